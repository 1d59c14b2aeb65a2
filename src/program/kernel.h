// Machine-code kernels: what keeps their code alive, how their failures are described, and where
// their buffers are.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "program/object.h"

namespace gemel {

// A function and the object that keeps its code mapped. Queued work holds a copy, so that the
// kernel can still be called after the caches of prepared calls have dropped it.
struct Kernel {
  std::shared_ptr<const void> mapping;
  KernelFunction function = nullptr;
};

// A place in a storage whose memory may not have been allocated yet.
struct Place {
  Storage* storage;
  int64_t bytes;
  void* address() const { return static_cast<char*>(storage->data()) + bytes; }
};

// The error that a non-zero status of a kernel stands for.
struct FailureText {
  std::string type;
  std::string message;
};

FailurePointer make_failure(const FailureText& text);

}  // namespace gemel
