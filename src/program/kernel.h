// Machine-code kernels: one calling convention for all, and how a kernel's range is cut into tiles.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "program/object.h"

namespace gemel {

// A function and whatever keeps its code mapped. Queued work holds a copy, so that a kernel stays
// callable after the tables of prepared calls have forgotten it.
struct Kernel {
  std::shared_ptr<const void> mapping;
  KernelFunction function = nullptr;
};

// A place in a storage whose memory may not have been taken yet.
struct Place {
  Storage* storage;
  int64_t bytes;
};

// What a non-zero status of a kernel is called when the user meets it.
struct FailureText {
  std::string type;
  std::string message;
};

// A prepared elementwise call: a loop program with one outer dimension per coalesced dimension.
struct ElementwiseKernel {
  Kernel kernel;
  std::vector<uint8_t> out_codes;
  double nanoseconds_per_element = 1;
  FailureText failure;
  std::string name;  // of the operation
};

// Elements in one tile of a large elementwise call: about 20 us of work, so that sharing tiles
// costs little and a waiting thread is never behind a long one.
constexpr int64_t kTileElements = 65536;

FailurePointer make_failure(const FailureText& text, const Origin& origin);

}  // namespace gemel
