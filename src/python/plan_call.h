// Calls of programs from Python: which binding fits the arrays, its results, its scalars.

#pragma once

#include <memory>

#include "program/cache.h"
#include "program/plan.h"
#include "program/small_array.h"
#include "python/array.h"

namespace gemel {

using ProgramPointer = std::shared_ptr<const Program>;
using BindingPointer = std::shared_ptr<const Binding>;

// Numbers of what keys belong to: operations, plans and call sites count together.
uint32_t new_owner();

// The key of a call: whose it is, then what is known of every array. `exact` with all sizes, else
// what decides which programs may serve it: dtype, rank, and whether it is dense.
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
  std::vector<uint64_t> more_;  // all of them, when they are more
};

// Programs bound to exact sizes, by key. Guarded by the GIL.
Cache<BindingPointer>& bindings();

// The arrays and numbers of one call, in the program's order.
class PlanCall {
 public:
  PlanCall(PyObject* const* arrays, size_t array_count, PyObject* const* scalars);
  // Null when the program does not fit; `mismatch` says why.
  BindingPointer bind(const ProgramPointer& program, Mismatch* mismatch);
  std::string explain(const Program& program, const Mismatch& mismatch) {
    return gemel::explain(program, mismatch, tensors());
  }
  // Replaces an array by a dense copy of it.
  void make_dense(size_t index);
  const Tensor& tensor(size_t index) { return tensor_of(arrays_[index]); }
  // New references; runs it here or hands it over: on `device`, or if that is -1 where the first
  // array is.
  void run(const BindingPointer& binding, int device, PyObject** results);
  // The same, in one object: the only result, or a tuple.
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

// A tuple of new references, which it takes over.
PyObject* packed(PyObject** results, size_t count);

}  // namespace gemel
