// Elementwise calls: from operands to a prepared kernel, run here or handed over.

#pragma once

#include "program/kernel.h"
#include "program/table.h"
#include "python/array.h"

namespace gemel {

// Tags of operands in keys: a dtype code, or which kind of Python scalar.
enum Tag : uint8_t { kScalarBool = 12, kScalarInt = 13, kScalarFloat = 14 };
inline bool is_scalar_tag(uint8_t tag) { return tag >= kScalarBool; }

// The positional operands of one call, arrays and Python scalars in order.
struct Operands {
  int count = 0;
  int array_count = 0;
  Array* first = nullptr;       // the first array
  bool tracked = false;         // some array is on a tape
  Array* arrays[kMaxOperands];  // null for a scalar
  int64_t scalars[kMaxOperands];
  uint8_t tags[kMaxOperands];
};

// False, without a Python error, when the call is one for Python: an operand of another kind,
// different devices, too many operands, an int beyond 64 bits.
bool collect_operands(PyObject* const* objects, Py_ssize_t count, Operands* operands);

// What a kernel is specialised for, in three words.
struct ElementwiseKey {
  uint64_t words[3] = {0, 0, 0};
  bool operator==(const ElementwiseKey& other) const {
    return words[0] == other.words[0] && words[1] == other.words[1] && words[2] == other.words[2];
  }
  size_t hash() const { return mix(mix(mix(0, words[0]), words[1]), words[2]); }
};

// One elementwise call, ready to look its kernel up and to run.
struct ElementwiseCall {
  Operands* operands;
  Array* target = nullptr;  // of `into`
  int ndim = 0;             // of the result
  int64_t shape[kMaxRank];
  Loop loop;  // array inputs in order, then the target if there is one

  // False when the shapes do not broadcast.
  bool prepare();
  ElementwiseKey key(uint32_t operation, uint32_t parameters) const;
  // The stride class of the i-th array input (or of the target, behind the inputs).
  int inner_class(int array) const { return stride_class(loop.strides[array][loop.rank - 1]); }
};

using ElementwisePointer = std::shared_ptr<const ElementwiseKernel>;
using ElementwiseTable = Table<ElementwiseKey, ElementwisePointer>;
ElementwiseTable& elementwise_table();

// Makes the results (new references in `results`, one per out code) and runs the call or hands it
// over. False with a Python error set.
bool run_elementwise(const ElementwiseCall& call, const ElementwisePointer& kernel,
                     PyObject** results);
// The same into call.target.
bool run_elementwise_into(const ElementwiseCall& call, const ElementwisePointer& kernel);

}  // namespace gemel
