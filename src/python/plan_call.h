// Calls of programs from Python: the binding that fits the arrays, the results, the scalars.

#pragma once

#include <memory>

#include "program/cache.h"
#include "program/plan.h"
#include "program/small_array.h"
#include "python/array.h"

namespace gemel {

using ProgramPointer = std::shared_ptr<const Program>;
using BindingPointer = std::shared_ptr<const Binding>;

// A new number for an owner of keys: an operation, a plan or a call site.
uint32_t new_owner();

// The key of a call: its owner, then words about every array. `exact` includes all sizes; otherwise
// the key has what decides which programs can serve the call: dtype, rank, and whether the array is
// dense.
class CallKey {
 public:
  CallKey(uint64_t owner, bool exact) : exact_(exact) { add(owner); }
  void add(uint64_t word) {
    if (count_ == kInside) more_.assign(inside_, inside_ + kInside);
    if (count_ < kInside) {
      inside_[count_] = word;
    } else {
      more_.push_back(word);
    }
    ++count_;
  }
  void add(const Tensor& tensor);
  operator Words() { return {count_ > kInside ? more_.data() : inside_, count_}; }

 private:
  static constexpr size_t kInside = 64;

  bool exact_;
  size_t count_ = 0;
  uint64_t inside_[kInside];
  std::vector<uint64_t> more_;  // all words, when they do not fit inside_
};

// Programs bound to exact sizes. Guarded by the GIL.
Cache<BindingPointer>& bindings();

// The arrays and scalars of one call, in the program's order.
class PlanCall {
 public:
  PlanCall(PyObject* const* arrays, size_t array_count, PyObject* const* scalars);
  // Null when the program does not fit; `mismatch` then says why.
  BindingPointer bind(const ProgramPointer& program, Mismatch* mismatch);
  // The same for a program made for this call; throws if it does not fit.
  BindingPointer bind_made(const ProgramPointer& program);
  std::string explain(const Program& program, const Mismatch& mismatch) {
    return gemel::explain(program, mismatch, tensors());
  }
  // Replaces an array by a dense copy of it.
  void make_dense(size_t index);
  const Tensor& tensor(size_t index) { return tensor_of(arrays_[index]); }
  // Runs the program here or hands it over, on `device`, or on the device of the first array if
  // that is -1. The results are new references.
  void run(const BindingPointer& binding, int device, PyObject** results);
  // The same with the results in one object: the only result, or a tuple.
  PyObject* run(const BindingPointer& binding, int device = -1);

 private:
  const Tensor* const* tensors();
  void replace(size_t index, Reference copy);
  void separate_written(const Program& program);
  bool is_copy(PyObject* array) const;

  static constexpr size_t kInside = 24;
  size_t count_;
  PyObject* const* scalars_;
  SmallArray<PyObject*, kInside> arrays_;
  SmallArray<const Tensor*, kInside> tensors_;
  std::vector<Reference> copies_;
};

// Makes a tuple and takes over these references.
PyObject* packed(PyObject** results, size_t count);

}  // namespace gemel
