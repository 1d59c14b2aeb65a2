// Elementwise calls: from operands to the key of a prepared kernel, and from the kernel to work.

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
  // A byte for each operand: one more than its tag, so that no operand is 0.
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
  int64_t scalars[kMaxOperands];        // or the bits of a float64
  uint8_t tags[kMaxOperands];
};
// Room for results and a target is left among kMaxOperands.
constexpr int kMaxInputs = kMaxOperands - 4;

// A prepared call: a loop program with one outer dimension per coalesced dimension.
struct ElementwiseKernel {
  Kernel kernel;
  std::vector<uint8_t> out_codes;
  double nanoseconds_per_element = 1;
  FailureText failure;
  std::string name;  // of the operation
  // By operand: the integer dtype a whole number among them must fit, or kAnyNumber; with kNatural
  // added where none below 0 does. Empty where any number does.
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

// One call, ready to look its kernel up and to run.
struct ElementwiseCall {
  const Operands* operands;
  const Tensor* target = nullptr;  // what is written instead of a new array
  int ndim = 0;                    // of the result
  bool even;                       // the arrays run on together, in one loop
  int64_t shape[kMaxRank];
  Loop loop;  // array inputs in order, then the target if there is one

  // False when the shapes do not broadcast.
  bool prepare();
  int device() const { return (target != nullptr ? target : operands->first)->device(); }
  ElementwiseKey key(uint32_t operation, uint32_t parameters) const;
  bool find_even();
  // The stride class of the i-th array input (or of the target, behind the inputs).
  int inner_class(int array) const;
  // Throws OverflowError for a whole number that its dtype cannot hold, and what the kernel says of
  // one below 0 that must not be.
  void check_numbers(const ElementwiseKernel& kernel) const;
  // None of its operands can still fail it.
  bool settled() const;
  // Runs it or hands it over; `results` are new, one per out code; none with a target.
  void launch(const ElementwisePointer& kernel, const Tensor* const* results, Front& front) const;
};

}  // namespace gemel
