// What the tests without Python share: how they report a broken promise, and how they issue.

#pragma once

#include <cstdio>
#include <memory>
#include <utility>

#include "engine/engine.h"
#include "program/launch.h"

inline int failures = 0;

inline void check(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "broken: %s\n", what);
  ++failures;
}

class PlainFront final : public gemel::Front {
 public:
  void issue(std::unique_ptr<gemel::Operation> operation) override {
    gemel::Engine::get().issue(std::move(operation));
  }
  gemel::Origin origin() override { return {}; }
  void wait_until_idle(gemel::Storage* storage) override {
    gemel::Engine::get().wait_idle(storage);
  }
  void wait_until_written(gemel::Storage* storage) override { gemel::Engine::get().wait(storage); }
};
