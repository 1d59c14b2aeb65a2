// A Completion reports the end of an operation to the engine.

#pragma once

#include <utility>

#include "engine/failure.h"

namespace gemel {

class Operation;

// Call it once, now or later, on any thread: with null, or with the reason why the operation
// failed. If a Completion is destroyed without having been called, its operation fails, so that no
// thread waits for ever.
class Completion {
 public:
  explicit Completion(Operation* operation) noexcept : operation_(operation) {}
  Completion(Completion&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  Completion& operator=(Completion&& other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~Completion() {
    if (operation_ != nullptr) drop();
  }
  void operator()(FailurePointer failure = nullptr) noexcept;

 private:
  void drop() noexcept;

  Operation* operation_;
};

}  // namespace gemel
