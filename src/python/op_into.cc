// Writing an operation's result into an existing array.

#include <vector>

#include "python/op_type.h"
#include "python/waits.h"

namespace gemel {
namespace {

const char* name_of(const OpObject* op) {
  const char* name = PyUnicode_AsUTF8(op->name);
  if (name == nullptr) throw PythonError{};
  return name;
}

void check_into(const OpObject* op, const Operands& operands, const Tensor& target,
                bool collected) {
  if (!collected) {
    throw Error("TypeError", "into() takes arrays on one device and Python numbers of 64 bits");
  }
  if (operands.first != nullptr && operands.first->device() != target.device()) {
    throw Error("TypeError", "into(): the target is on another device than the inputs");
  }
  check_writable(name_of(op), target);
}

// Replaces inputs that overlap the target by copies, which `copies` keeps alive.
void copy_overlapping(Operands* operands, const Tensor& target, const Arguments& arguments,
                      std::vector<Reference>* copies) {
  for (int i = 0; i < operands->count; ++i) {
    const Tensor* input = operands->tensors[i];
    if (input == nullptr || input->same_layout(target) || !input->overlaps(target)) continue;
    copies->push_back(copy_of(arguments.values[i]));
    operands->tensors[i] = &tensor_of(copies->back());
    if (operands->first == input) operands->first = operands->tensors[i];
  }
}

[[noreturn]] void refuse_shapes(OpObject* op, const Tensor& target, const Arguments& arguments) {
  // If the inputs do not broadcast with each other, Python raises its own, better error here.
  owned(call_in_python(reinterpret_cast<PyObject*>(op), arguments));
  throw Error("ShapeError", std::string(name_of(op)) +
                                ": the result does not fit a target of shape " +
                                shape_text(target.extents(), target.ndim));
}

}  // namespace

void check_writable(const char* operation, const Tensor& target) {
  if (!target.repeats()) return;
  throw Error("ShapeError", std::string(operation) + ": an array of shape " +
                                shape_text(target.extents(), target.ndim) +
                                " that repeats elements, as broadcast_to's result, cannot be "
                                "written to; copy() it first");
}

void call_into(OpObject* op, PyObject* target, const Arguments& arguments) {
  const Tensor& tensor = tensor_of(target);
  Operands operands;
  bool tracked;
  uint32_t parameters;
  const bool collected = collect_operands(arguments.values, arguments.count, &operands, &tracked) &&
                         parameters_id(op, arguments, &parameters);
  check_into(op, operands, tensor, collected);
  std::vector<Reference> copies;
  copy_overlapping(&operands, tensor, arguments, &copies);
  ElementwiseCall call;
  call.operands = &operands;
  call.target = &tensor;
  if (!call.prepare()) refuse_shapes(op, tensor, arguments);
  const ElementwisePointer kernel = find_kernel(op, call, arguments, parameters);
  if (kernel == nullptr) {
    Reference inputs = inputs_tuple(arguments);
    Reference given = parameters_dict(arguments);
    call_method(reinterpret_cast<PyObject*>(op), "_into", "(OOO)", target, inputs.get(),
                given.get());
    return;
  }
  if (!kernel->limits.empty()) call.check_numbers(*kernel);
  call.launch(kernel, nullptr, python_front());
}

}  // namespace gemel
