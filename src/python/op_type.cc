#include "python/op_type.h"

#include <structmember.h>

#include <cstring>

namespace gemel {

PyTypeObject* op_type = nullptr;

namespace {

uint32_t operations_made = 0;
constexpr int kMaxResults = 4;

// ((code, stride class) or (-1, 0) bool, (-2, 0) int, (-3, 0) float) for each operand.
PyObject* describe_operands(const ElementwiseCall& call) {
  const Operands& operands = *call.operands;
  Reference tuple(PyTuple_New(operands.count));
  int array = 0;
  for (int i = 0; tuple && i < operands.count; ++i) {
    bool scalar = operands.arrays[i] == nullptr;
    int code = scalar ? kScalarBool - 1 - operands.tags[i] : operands.tags[i];
    PyObject* item = Py_BuildValue("(ii)", code, scalar ? 0 : call.inner_class(array++));
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), i, item);
  }
  return tuple.take();
}

ElementwisePointer prepare_kernel(OpObject* op, const ElementwiseCall& call,
                                  const Arguments& arguments) {
  Reference operands(describe_operands(call));
  Reference parameters(parameters_dict(arguments));
  if (!operands || !parameters) return nullptr;
  auto* self = reinterpret_cast<PyObject*>(op);
  Reference kernel;
  if (call.target == nullptr) {
    kernel = Reference(PyObject_CallMethod(self, "_kernel", "(iOO)", call.loop.rank, operands.get(),
                                           parameters.get()));
  } else {
    kernel = Reference(PyObject_CallMethod(self, "_kernel", "(iOOii)", call.loop.rank,
                                           operands.get(), parameters.get(), call.target->code,
                                           call.inner_class(call.operands->array_count)));
  }
  return kernel ? elementwise_from(kernel.get()) : nullptr;
}

// The kernel for this call, from the table or from Python; null with a Python error set. The
// caller's copy keeps it while the call runs, as Python code may empty the table meanwhile.
ElementwisePointer find_kernel(OpObject* op, const ElementwiseCall& call,
                               const Arguments& arguments, uint32_t parameters) {
  ElementwiseKey key = call.key(op->id, parameters);
  if (const ElementwisePointer* found = elementwise_table().find(key)) {
    ++table_counters.hits;
    return *found;
  }
  ++table_counters.misses;
  ElementwisePointer kernel = prepare_kernel(op, call, arguments);
  if (kernel != nullptr) elementwise_table().insert(key, kernel);
  return kernel;
}

PyObject* pack_results(PyObject** results, int count) {
  if (count == 1) return results[0];
  PyObject* tuple = PyTuple_New(count);
  for (int i = 0; i < count; ++i) {
    if (tuple != nullptr) {
      PyTuple_SET_ITEM(tuple, i, results[i]);
    } else {
      Py_DECREF(results[i]);
    }
  }
  return tuple;
}

PyObject* call_elementwise(OpObject* op, Operands* operands, const Arguments& arguments,
                           uint32_t parameters) {
  auto* self = reinterpret_cast<PyObject*>(op);
  ElementwiseCall call;
  call.operands = operands;
  if (!call.prepare()) return call_in_python(self, arguments);
  ElementwisePointer kernel = find_kernel(op, call, arguments, parameters);
  if (kernel == nullptr) return nullptr;
  PyObject* results[kMaxResults];
  if (!run_elementwise(call, kernel, results)) return nullptr;
  int count = static_cast<int>(kernel->out_codes.size());
  if (thread_flags.recording && operands->tracked &&
      !record_call(self, arguments, results, count)) {
    for (int i = 0; i < count; ++i) Py_DECREF(results[i]);
    return nullptr;
  }
  return pack_results(results, count);
}

PyObject* call_op(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
  auto* op = reinterpret_cast<OpObject*>(self);
  Arguments arguments{values, PyVectorcall_NARGS(flags), names};
  Operands operands;
  uint32_t parameters;
  if (!collect_operands(values, arguments.count, &operands) || operands.first == nullptr ||
      !parameters_id(op, arguments, &parameters)) {
    return call_in_python(self, arguments);
  }
  return op->elementwise ? call_elementwise(op, &operands, arguments, parameters)
                         : call_general(op, operands, arguments, parameters);
}

// Whether writing the target could change what is still to be read of `input`.
bool must_copy(Array* input, Array* target) {
  if (input->storage != target->storage) return false;
  bool same = input->code == target->code && input->offset == target->offset &&
              input->ndim == target->ndim &&
              std::memcmp(input->dims, target->dims, sizeof(int64_t) * 2 * input->ndim) == 0;
  if (same) return false;
  int64_t input_low, input_high, target_low, target_high;
  element_range(input->layout(), &input_low, &input_high);
  element_range(target->layout(), &target_low, &target_high);
  int64_t input_size = kItemSize[input->code], target_size = kItemSize[target->code];
  return (input->offset + input_low) * input_size < (target->offset + target_high) * target_size &&
         (target->offset + target_low) * target_size < (input->offset + input_high) * input_size;
}

bool check_into(const Operands& operands, Array* target, bool collected) {
  if (!collected) {
    PyErr_SetString(PyExc_TypeError,
                    "into() takes arrays on one device and Python numbers of 64 bits");
    return false;
  }
  if (operands.first != nullptr && operands.first->storage->device() != target->storage->device()) {
    PyErr_SetString(PyExc_TypeError, "into(): the target is on another device than the inputs");
    return false;
  }
  return true;
}

// Inputs that overlap the target are replaced by copies, which `copies` keeps alive.
bool copy_overlapping(Operands* operands, Array* target, std::vector<Reference>* copies) {
  for (int i = 0; i < operands->count; ++i) {
    Array* input = operands->arrays[i];
    if (input == nullptr || !must_copy(input, target)) continue;
    PyObject* original = as_object(input);
    PyObject* copy = call_operator("copy", &original, 1);
    if (copy == nullptr) return false;
    copies->emplace_back(copy);
    operands->arrays[i] = as_array(copy);
    if (operands->first == input) operands->first = as_array(copy);
  }
  return true;
}

bool raise_shapes(OpObject* op, Array* target, const Arguments& arguments) {
  // Inputs that do not broadcast among themselves get their own, better error from Python.
  Reference done(call_in_python(reinterpret_cast<PyObject*>(op), arguments));
  if (!done) return false;
  Reference shape(PyObject_GetAttrString(as_object(target), "shape"));
  Reference text(shape ? PyObject_Repr(shape.get()) : nullptr);
  const char* name = PyUnicode_AsUTF8(op->name);
  if (!text || name == nullptr) return false;
  raise_named("ShapeError", std::string(name) + ": the result does not fit a target of shape " +
                                PyUnicode_AsUTF8(text.get()));
  return false;
}

PyObject* method_into(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  if (count < 1 || !is_array(values[0])) {
    PyErr_SetString(PyExc_TypeError, "into(target, *inputs): the target must be an array");
    return nullptr;
  }
  Arguments arguments{values + 1, count - 1, names};
  if (!call_into(reinterpret_cast<OpObject*>(self), as_array(values[0]), arguments)) return nullptr;
  return Py_NewRef(values[0]);
}

#if PY_VERSION_HEX < 0x030C0000
// Before 3.12 classes made by Python do not inherit the flag, and calls would build tuples.
void inherit_vectorcall(PyTypeObject* type) {
  if (type->tp_call == PyVectorcall_Call && type->tp_vectorcall_offset != 0) {
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  }
}
#else
void inherit_vectorcall(PyTypeObject*) {}
#endif

PyObject* new_op(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  auto* op = reinterpret_cast<OpObject*>(self);
  op->vectorcall = call_op;
  op->id = ++operations_made;
  op->parameter_ids = PyDict_New();
  inherit_vectorcall(type);
  return self;
}

int init_op(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"name", "elementwise", "parameters", nullptr};
  PyObject *name, *parameters = nullptr;
  int elementwise;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Up|O", const_cast<char**>(names), &name,
                                   &elementwise, &parameters)) {
    return -1;
  }
  auto* op = reinterpret_cast<OpObject*>(self);
  op->elementwise = elementwise != 0;
  Py_XSETREF(op->name, Py_NewRef(name));
  Py_XSETREF(op->parameters, parameters == nullptr ? PyTuple_New(0) : PySequence_Tuple(parameters));
  return op->parameters == nullptr ? -1 : 0;
}

int traverse_op(PyObject* self, visitproc visit, void* arg) {
  auto* op = reinterpret_cast<OpObject*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(op->name);
  Py_VISIT(op->parameters);
  Py_VISIT(op->parameter_ids);
  return 0;
}

int clear_op(PyObject* self) {
  auto* op = reinterpret_cast<OpObject*>(self);
  Py_CLEAR(op->name);
  Py_CLEAR(op->parameters);
  Py_CLEAR(op->parameter_ids);
  return 0;
}

void free_op(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear_op(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(OpObject, vectorcall), READONLY, nullptr},
    {"name", T_OBJECT, offsetof(OpObject, name), 0, "The operation's name."},
    {"elementwise", T_BOOL, offsetof(OpObject, elementwise), READONLY,
     "Whether results depend on one position of the broadcast inputs."},
    {"parameters", T_OBJECT, offsetof(OpObject, parameters), 0, "Names of keyword parameters."},
    {"_id", T_UINT, offsetof(OpObject, id), READONLY, "The number standing for it in keys."},
    {nullptr, 0, 0, 0, nullptr}};

PyMethodDef methods[] = {
    {"into", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method_into)),
     METH_FASTCALL | METH_KEYWORDS,
     "into(target, *inputs, **parameters)\n--\n\nWrite the result into `target`; returns it."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_op)},
                       {Py_tp_init, reinterpret_cast<void*>(init_op)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(free_op)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse_op)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear_op)},
                       {Py_tp_members, members},
                       {Py_tp_methods, methods},
                       {Py_tp_doc, const_cast<char*>("The callable behind every operation.")},
                       {0, nullptr}};

PyType_Spec spec = {
    "gemel._core.OpBase", sizeof(OpObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    slots};

}  // namespace

PyObject* call_in_python(PyObject* op, const Arguments& arguments) {
  Reference inputs(inputs_tuple(arguments));
  Reference parameters(parameters_dict(arguments));
  if (!inputs || !parameters) return nullptr;
  return PyObject_CallMethod(op, "_call", "(OO)", inputs.get(), parameters.get());
}

bool record_call(PyObject* op, const Arguments& arguments, PyObject* const* outputs, int count) {
  Reference inputs(inputs_tuple(arguments));
  Reference parameters(parameters_dict(arguments));
  Reference results(PyTuple_New(count));
  if (!inputs || !parameters || !results) return false;
  for (int i = 0; i < count; ++i) PyTuple_SET_ITEM(results.get(), i, Py_NewRef(outputs[i]));
  Reference done(
      PyObject_CallMethod(op, "_record", "(OOO)", inputs.get(), parameters.get(), results.get()));
  return static_cast<bool>(done);
}

bool call_into(OpObject* op, Array* target, const Arguments& arguments) {
  Operands operands;
  uint32_t parameters;
  bool collected = collect_operands(arguments.values, arguments.count, &operands) &&
                   parameters_id(op, arguments, &parameters);
  if (!check_into(operands, target, collected)) return false;
  std::vector<Reference> copies;
  if (!copy_overlapping(&operands, target, &copies)) return false;
  ElementwiseCall call;
  call.operands = &operands;
  call.target = target;
  if (!call.prepare()) return raise_shapes(op, target, arguments);
  ElementwisePointer kernel = find_kernel(op, call, arguments, parameters);
  if (kernel == nullptr) return false;
  return run_elementwise_into(call, kernel);
}

bool make_op_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  op_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "OpBase", type) == 0;
}

}  // namespace gemel
