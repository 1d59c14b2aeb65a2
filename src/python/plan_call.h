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
  CallKey(uint64_t owner, size_t tensors, bool exact) : exact_(exact), words_(room(tensors)) {
    add(owner);
  }
  void add(uint64_t word) { words_[count_++] = word; }
  void add(const Tensor& tensor);
  operator Words() { return {words_.data(), count_}; }

 private:
  static constexpr size_t kInside = 128;
  static constexpr size_t kMostPerTensor = 1 + 2 * kMaxRank;
  static size_t room(size_t tensors) {
    const size_t most = 1 + tensors * kMostPerTensor;
    return most;
  }

  bool exact_;
  size_t count_ = 0;
  SmallArray<uint64_t, kInside> words_;
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
  // New references; runs it here or hands it over. `device` matters without arrays.
  void run(const BindingPointer& binding, int device, PyObject** results);
  // The same, in one object: the only result, or a tuple.
  PyObject* run(const BindingPointer& binding, int device = 0);

 private:
  const Tensor* const* tensors();
  void replace(size_t index, Reference copy);
  void separate_written(const Program& program);

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
