// How whoever does an operation's work says that it has ended.

#pragma once

#include <utility>

#include "engine/failure.h"

namespace gemel {

class Operation;

// Called once, now or later, on any thread: null, or why the operation failed. One that is dropped
// without having been called fails its operation, so that nobody waits for ever.
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
