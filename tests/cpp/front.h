// How tests without Python issue operations.

#pragma once

#include <memory>
#include <utility>

#include "check.h"
#include "engine/engine.h"
#include "program/launch.h"

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
