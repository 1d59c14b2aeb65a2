// Elementwise calls: from operands to the key of a prepared kernel, and from the kernel to the
// work.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/cache.h"
#include "program/kernel.h"
#include "program/launch.h"
#include "program/tensor.h"

namespace gemel {

// The positional operands of one call, arrays and Python scalars in order.
struct Operands {
  // Each operand adds a byte to the tag words: its tag plus one, so that 0 means no operand.
  void add(uint8_t tag) {
    tags[count] = tag;
    tag_words[count >> 3] |= (tag + uint64_t{1}) << 8 * (count & 7);
    ++count;
  }

  int count = 0;
  int array_count = 0;
  uint64_t tag_words[2] = {0, 0};
  uint64_t arrays = 0;                  // bit 2 * i: operand i is an array
  const Tensor* first = nullptr;        // the first array
  const Tensor* tensors[kMaxOperands];  // null for a scalar
  int64_t scalars[kMaxOperands];        // an integer, or the bits of a float64
  uint8_t tags[kMaxOperands];
};
// This leaves room for results and a target among the kMaxOperands.
constexpr int kMaxInputs = kMaxOperands - 4;

// A prepared call: a loop program with one loop for each coalesced dimension.
struct ElementwiseKernel {
  Kernel kernel;
  std::vector<uint8_t> out_codes;
  double nanoseconds_per_element = 1;
  FailureText failure;
  std::string name;  // of the operation
  // For each operand: the integer dtype that a Python int must fit, or kAnyNumber. kNatural is
  // added to it if the int must not be negative either. Empty if there are no such limits.
  std::vector<uint8_t> limits;
};
constexpr uint8_t kAnyNumber = 255;
constexpr uint8_t kNatural = 64;
using ElementwisePointer = std::shared_ptr<const ElementwiseKernel>;

// What a kernel is specialised for.
struct ElementwiseKey {
  uint64_t words[3] = {0, 0, 0};
  operator Words() const { return words; }
};

// One call, ready to look up its kernel and run.
struct ElementwiseCall {
  const Operands* operands;
  const Tensor* target = nullptr;  // is written instead of a new array
  int ndim = 0;                    // of the result
  bool even;  // all arrays are dense and of one shape, so one loop runs over them
  int64_t shape[kMaxRank];
  Loop loop;  // array inputs in order, then the target if there is one

  // False when the shapes do not broadcast.
  bool prepare();
  int device() const { return (target != nullptr ? target : operands->first)->device(); }
  ElementwiseKey key(uint32_t operation, uint32_t parameters) const;
  bool find_even();
  // The stride class of array input `array` (or of the target, which follows the inputs).
  int inner_class(int array) const;
  // Throws OverflowError for an int that its dtype cannot hold, and the kernel's own error for a
  // negative int where that is not allowed.
  void check_numbers(const ElementwiseKernel& kernel) const;
  // True when none of the operands has failed or can still fail.
  bool settled() const;
  // Runs the call or hands it over. `results` are new, one for each out code; none with a target.
  void launch(const ElementwisePointer& kernel, const Tensor* const* results, Front& front) const;
};

}  // namespace gemel
