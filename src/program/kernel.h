// Machine-code kernels: what a function belongs to, what its failure is called, where it runs.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "program/object.h"

namespace gemel {

// A function and whatever keeps its code mapped. Queued work holds a copy, so that a kernel stays
// callable after the caches of prepared calls have forgotten it.
struct Kernel {
  std::shared_ptr<const void> mapping;
  KernelFunction function = nullptr;
};

// A place in a storage whose memory may not have been taken yet.
struct Place {
  Storage* storage;
  int64_t bytes;
  void* address() const { return static_cast<char*>(storage->data()) + bytes; }
};

// What a non-zero status of a kernel is called when the user meets it.
struct FailureText {
  std::string type;
  std::string message;
};

FailurePointer make_failure(const FailureText& text);

}  // namespace gemel
