#include "python/plan_call.h"

#include <algorithm>
#include <cstring>

#include "python/flags.h"
#include "python/history.h"
#include "python/op_type.h"
#include "python/waits.h"

namespace gemel {
namespace {

constexpr size_t kMostBindings = 4096;
constexpr size_t kInsideResults = 8;

PlanScalar scalar_from(const Program& program, size_t index, PyObject* value) {
  PlanScalar scalar;
  if (PyFloat_CheckExact(value)) {
    scalar.floating = PyFloat_AS_DOUBLE(value);
    bool fits = scalar.floating >= -0x1p63 && scalar.floating < 0x1p63;
    scalar.integer = fits ? static_cast<int64_t>(scalar.floating) : 0;
    return scalar;
  }
  if (!PyLong_CheckExact(value) && !PyBool_Check(value)) {
    throw Error("TypeError", program.name + ": scalar " + std::to_string(index) + " is a " +
                                 Py_TYPE(value)->tp_name + ", not a bool, an int or a float");
  }
  scalar.integer = PyLong_AsLongLong(value);
  if (scalar.integer == -1 && PyErr_Occurred()) throw PythonError{};
  scalar.floating = static_cast<double>(scalar.integer);
  return scalar;
}

RandomNumbers take_random(int count) {
  if (count == 0) return {};
  const RandomNumbers taken{random_stream.seed, random_stream.next_call};
  random_stream.next_call += count;
  return taken;
}

// A new array with the same extents and, if the tensor is not dense, the same strides.
Reference laid_out_like(const Tensor& tensor) {
  if (tensor.contiguous) return new_array_like(tensor, tensor.device());
  int64_t low, high;
  element_range(tensor.layout(), &low, &high);
  const int64_t size = high - low;
  Reference whole = new_array(tensor.dtype, &size, 1, tensor.device());
  Reference view = blank_array();
  tensor_of(view).view(tensor_of(whole).storage, tensor.dtype, tensor.extents(), tensor.strides(),
                       tensor.ndim, -low);
  return view;
}

}  // namespace

uint32_t new_owner() {
  static uint32_t made = 0;
  return ++made;
}

void CallKey::add(const Tensor& tensor) {
  add(static_cast<uint64_t>(tensor.dtype) | static_cast<uint64_t>(tensor.ndim) << 8 |
      static_cast<uint64_t>(tensor.contiguous) << 16 |
      static_cast<uint64_t>(Engine::machine(tensor.device())) << 32);
  if (!exact_) return;
  const int count = tensor.contiguous ? tensor.ndim : 2 * tensor.ndim;
  const int64_t* dims = tensor.extents();  // the strides follow the extents
  for (int i = 0; i < count; ++i) add(static_cast<uint64_t>(dims[i]));
}

Cache<BindingPointer>& bindings() {
  static auto* cache = new Cache<BindingPointer>(kMostBindings);
  return *cache;
}

PlanCall::PlanCall(PyObject* const* arrays, size_t array_count, PyObject* const* scalars)
    : count_(array_count), scalars_(scalars), arrays_(array_count), tensors_(array_count) {
  std::copy_n(arrays, array_count, arrays_.data());
}

const Tensor* const* PlanCall::tensors() {
  for (size_t i = 0; i < count_; ++i) tensors_[i] = &tensor_of(arrays_[i]);
  return tensors_.data();
}

BindingPointer PlanCall::bind(const ProgramPointer& program, Mismatch* mismatch) {
  if (program->inputs.size() != count_) return nullptr;
  return Binding::make(program, tensors(), mismatch);
}

BindingPointer PlanCall::bind_made(const ProgramPointer& program) {
  Mismatch mismatch;
  BindingPointer binding = bind(program, &mismatch);
  if (binding != nullptr) return binding;
  throw Error("RuntimeError", program->name + ": the plan does not fit the call it was made for");
}

void PlanCall::replace(size_t index, Reference copy) {
  arrays_[index] = copy.get();
  copies_.push_back(std::move(copy));
}

bool PlanCall::is_copy(PyObject* array) const {
  return std::ranges::any_of(copies_, [&](const Reference& copy) { return copy.get() == array; });
}

void PlanCall::make_dense(size_t index) { replace(index, copy_of(arrays_[index])); }

// No other input may be in a storage that the plan overwrites through an input. So inputs that are
// only read get copies.
void PlanCall::separate_written(const Program& program) {
  for (size_t i = 0; i < count_; ++i) {
    if (!program.inputs[i].written) continue;
    for (size_t j = 0; j < count_; ++j) {
      if (j == i || tensor(j).storage != tensor(i).storage || program.inputs[j].written) continue;
      Reference copy = laid_out_like(tensor(j));
      auto* operation = reinterpret_cast<OpObject*>(find_operator("copy"));
      call_into(operation, copy.get(), Arguments{&arrays_[j], 1, nullptr});
      replace(j, std::move(copy));
    }
  }
}

void PlanCall::run(const BindingPointer& binding, int device, PyObject** results) {
  const Program& program = *binding->program;
  if (program.writes_inputs) separate_written(program);
  if (device < 0) device = count_ > 0 ? tensor(0).device() : 0;
  const Tensor* const* inputs = tensors();
  const size_t outputs = program.outputs.size();
  SmallArray<Reference, kInsideResults> made(outputs);
  SmallArray<const Tensor*, kInsideResults> tensors(outputs);
  for (size_t i = 0; i < outputs; ++i) {
    made[i] = blank_array();
    tensors[i] = &tensor_of(made[i]);
    binding->make_result(i, inputs, tensors.data(), device, &tensor_of(made[i]));
    const OutputSpec& spec = program.outputs[i];
    if (!spec.is_view) continue;
    PyObject* viewed = spec.space == kInput ? arrays_[spec.index] : made[spec.index].get();
    if (!is_copy(viewed)) share_history(viewed, made[i].get());
  }
  SmallArray<PlanScalar, kInsideResults> scalars(static_cast<size_t>(program.scalars));
  for (size_t i = 0; i < static_cast<size_t>(program.scalars); ++i) {
    scalars[i] = scalar_from(program, i, scalars_[i]);
  }
  launch_plan(binding, inputs, tensors.data(), scalars.data(), take_random(program.random), device,
              python_front());
  for (size_t i = 0; i < outputs; ++i) results[i] = made[i].take();
}

PyObject* PlanCall::run(const BindingPointer& binding, int device) {
  const size_t outputs = binding->program->outputs.size();
  SmallArray<PyObject*, kInsideResults> results(outputs);
  run(binding, device, results.data());
  return outputs == 1 ? results[0] : packed(results.data(), outputs);
}

PyObject* packed(PyObject** results, size_t count) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  for (size_t i = 0; i < count; ++i) {
    if (tuple != nullptr) {
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), results[i]);
    } else {
      Py_DECREF(results[i]);
    }
  }
  if (tuple == nullptr) throw PythonError{};
  return tuple;
}

}  // namespace gemel
