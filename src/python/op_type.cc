#include "python/op_type.h"

#include <structmember.h>

#include <cstring>

#include "python/callback.h"
#include "python/creation.h"
#include "python/flags.h"
#include "python/history.h"
#include "python/plan_type.h"
#include "python/tape.h"
#include "python/waits.h"

namespace gemel {

PyTypeObject* op_type = nullptr;

namespace {

constexpr int kMaxResults = 4;
constexpr size_t kMostKernels = 4096;
constexpr size_t kMostPrograms = 4096;  // kinds of calls that have programs (see CallKey)
constexpr size_t kMostVariants = 32;    // programs for one kind of calls

Cache<ElementwisePointer>& kernels() {
  static auto* cache = new Cache<ElementwisePointer>(kMostKernels);
  return *cache;
}

using Variants = std::shared_ptr<std::vector<ProgramPointer>>;
Cache<Variants>& programs() {
  static auto* cache = new Cache<Variants>(kMostPrograms);
  return *cache;
}

OpObject* as_op(PyObject* object) { return reinterpret_cast<OpObject*>(object); }
PyObject* as_object(OpObject* op) { return reinterpret_cast<PyObject*>(op); }

// --- operands ---

bool collect_scalar(PyObject* object, Operands* operands) {
  const int at = operands->count;
  operands->tensors[at] = nullptr;
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    operands->scalars[at] = PyLong_AsLongLongAndOverflow(object, &overflow);
    operands->add(kScalarInt);
    return overflow == 0;
  }
  if (PyFloat_CheckExact(object)) {
    double value = PyFloat_AS_DOUBLE(object);
    std::memcpy(&operands->scalars[at], &value, sizeof value);
    operands->add(kScalarFloat);
    return true;
  }
  if (PyBool_Check(object)) {
    operands->scalars[at] = object == Py_True;
    operands->add(kScalarBool);
    return true;
  }
  return false;
}

// Whether a result, or the first of several, is a view: then it already has a history, which it
// shares.
bool is_view(PyObject* result) {
  if (PyTuple_Check(result)) {
    if (PyTuple_GET_SIZE(result) == 0) return false;
    result = PyTuple_GET_ITEM(result, 0);
  }
  return as_array(result)->history != nullptr;
}

// --- elementwise calls ---

// For each operand: (code, stride class), or (-1, 0) bool, (-2, 0) int, (-3, 0) float.
Reference describe_operands(const ElementwiseCall& call) {
  const Operands& operands = *call.operands;
  Reference tuple = owned(PyTuple_New(operands.count));
  int array = 0;
  for (int i = 0; i < operands.count; ++i) {
    const bool scalar = operands.tensors[i] == nullptr;
    const int code = scalar ? operands.tags[i] - kScalarBool - 1 : operands.tags[i];
    const int inner = scalar ? 0 : call.inner_class(array++);
    PyTuple_SET_ITEM(tuple.get(), i, owned(Py_BuildValue("(ii)", code, inner)).take());
  }
  return tuple;
}

ElementwisePointer prepare_kernel(OpObject* op, const ElementwiseCall& call,
                                  const Arguments& arguments) {
  Reference operands = describe_operands(call);
  Reference parameters = parameters_dict(arguments);
  Reference kernel;
  if (call.target == nullptr) {
    kernel = call_method(as_object(op), "_kernel", "(iOOi)", call.loop.rank, operands.get(),
                         parameters.get(), call.device());
  } else {
    kernel = call_method(as_object(op), "_kernel", "(iOOiii)", call.loop.rank, operands.get(),
                         parameters.get(), call.device(), call.target->dtype,
                         call.inner_class(call.operands->array_count));
  }
  return kernel.get() == Py_None ? nullptr : elementwise_from(kernel.get());
}

// Null when the shapes do not broadcast or there is no kernel.
PyObject* call_elementwise(OpObject* op, const Operands& operands, const Arguments& arguments,
                           uint32_t parameters) {
  ElementwiseCall call;
  call.operands = &operands;
  if (!call.prepare()) return nullptr;
  const ElementwisePointer kernel = find_kernel(op, call, arguments, parameters);
  if (kernel == nullptr) return nullptr;
  if (!kernel->limits.empty()) call.check_numbers(*kernel);
  const size_t count = kernel->out_codes.size();
  const int device = operands.first->device();
  if (count == 1) {
    Reference result = new_array(kernel->out_codes[0], call.shape, call.ndim, device);
    const Tensor* tensor = &tensor_of(result);
    call.launch(kernel, &tensor, python_front());
    return result.take();
  }
  Reference results[kMaxResults];
  const Tensor* tensors[kMaxResults];
  for (size_t i = 0; i < count; ++i) {
    results[i] = new_array(kernel->out_codes[i], call.shape, call.ndim, device);
    tensors[i] = &tensor_of(results[i]);
  }
  call.launch(kernel, tensors, python_front());
  PyObject* taken[kMaxResults];
  for (size_t i = 0; i < count; ++i) taken[i] = results[i].take();
  return packed(taken, count);
}

// --- calls of programs ---

// A program takes its arrays first, then the run-time scalars.
struct Ordered {
  PyObject* values[kMaxOperands];
  size_t arrays = 0;

  Ordered(const Operands& operands, const Arguments& arguments) {
    for (int i = 0; i < operands.count; ++i) {
      if (operands.tensors[i] != nullptr) values[arrays++] = arguments.values[i];
    }
    size_t next = arrays;
    for (int i = 0; i < operands.count; ++i) {
      if (operands.tensors[i] == nullptr) values[next++] = arguments.values[i];
    }
  }
};

CallKey key_of(OpObject* op, const Operands& operands, uint32_t parameters, bool exact) {
  CallKey key(static_cast<uint64_t>(op->owner) << 32 | parameters, exact);
  for (int i = 0; i < operands.count; ++i) {
    if (operands.tensors[i] != nullptr) {
      key.add(*operands.tensors[i]);
    } else {
      key.add(operands.tags[i]);
    }
  }
  return key;
}

// A binding of a program that is known for calls like this one, or of a program that Python makes.
// Null when Python has a step for the call, or leaves it to `_call`.
BindingPointer prepare_binding(OpObject* op, PlanCall& call, CallKey& like,
                               const Arguments& arguments, StepPointer* step) {
  Mismatch mismatch;
  if (const Variants* known = programs().find(like)) {
    for (const ProgramPointer& program : **known) {
      if (BindingPointer binding = call.bind(program, &mismatch)) return binding;
    }
  }
  Reference inputs = inputs_tuple(arguments);
  Reference parameters = parameters_dict(arguments);
  Reference plan = call_method(as_object(op), "_prepare", "(OO)", inputs.get(), parameters.get());
  if (plan.get() == Py_None) return nullptr;
  if (PyTuple_Check(plan.get())) {
    *step = step_from(plan.get());
    return nullptr;
  }
  const ProgramPointer program = program_of(plan.get());
  BindingPointer binding = call.bind_made(program);
  if (programs().find(like) == nullptr) {
    programs().insert(like, std::make_shared<std::vector<ProgramPointer>>());
  }
  std::vector<ProgramPointer>& variants = **programs().find(like);
  variants.insert(variants.begin(), program);
  if (variants.size() > kMostVariants) variants.pop_back();
  return binding;
}

// Null when Python leaves the call to `_call`.
PyObject* call_program(OpObject* op, const Operands& operands, const Arguments& arguments,
                       uint32_t parameters) {
  CallKey key = key_of(op, operands, parameters, true);
  const Ordered ordered(operands, arguments);
  PlanCall call(ordered.values, ordered.arrays, ordered.values + ordered.arrays);
  if (const BindingPointer* found = bindings().find(key)) {
    ++cache_counters.hits;
    return call.run(BindingPointer(*found));
  }
  const StepPointer* known = operands.first->on_host() ? steps().find(key) : nullptr;
  if (known != nullptr) {
    ++cache_counters.hits;
    return call_step(StepPointer(*known), op->name, operands, arguments);
  }
  ++cache_counters.misses;
  CallKey like = key_of(op, operands, parameters, false);
  StepPointer step;
  const BindingPointer binding = prepare_binding(op, call, like, arguments, &step);
  if (step != nullptr) {
    if (steps().find(key) == nullptr) steps().insert(key, step);
    return call_step(step, op->name, operands, arguments);
  }
  if (binding == nullptr) return nullptr;
  if (bindings().find(key) == nullptr) bindings().insert(key, binding);
  return call.run(binding);
}

// Which operands are tracked, one bit each.
uint64_t tracked_operands(const Arguments& arguments) {
  uint64_t found = 0;
  for (Py_ssize_t i = 0; i < arguments.count; ++i) {
    PyObject* value = arguments.values[i];
    if (is_array(value) && is_tracked(value)) found |= uint64_t{1} << i;
  }
  return found;
}

// Records a call on the tape. This is done here if a call like it was recorded before, otherwise by
// `self._record(inputs, parameters, outputs)`, which says how to record later calls like it.
void record_call(OpObject* op, const Operands& operands, const Arguments& arguments,
                 uint32_t parameters, PyObject* result) {
  const bool single = !PyTuple_Check(result);
  const uint64_t wanted = tracked_operands(arguments);
  CallKey key = key_of(op, operands, parameters, true);
  key.add(wanted);
  if (single && record_like_before(key, arguments, wanted, result)) return;
  Reference inputs = inputs_tuple(arguments);
  Reference given = parameters_dict(arguments);
  Reference results = single ? owned(PyTuple_Pack(1, result)) : borrowed(result);
  Reference found =
      call_method(as_object(op), "_record", "(OOO)", inputs.get(), given.get(), results.get());
  if (single) remember_recorded(key, found.get());
}

PyObject* call_op(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
  OpObject* op = as_op(self);
  Arguments arguments{values, PyVectorcall_NARGS(flags), names};
  if (capturing()) return call_in_python(self, arguments);
  Operands operands;
  bool tracked;
  uint32_t parameters;
  // In a trace, a call without arrays may have free sizes among its parameters: no key to look for,
  // since comparing them asks the trace.
  if (arguments.count > op->most ||
      !collect_operands(values, arguments.count, &operands, &tracked) ||
      (operands.first == nullptr && thread_flags.tracing != 0) ||
      !parameters_id(op, arguments, &parameters)) {
    return call_in_python(self, arguments);
  }
  Reference result;
  if (operands.first == nullptr) {
    result = Reference(call_creation(op, operands, arguments, parameters));
    return result ? result.take() : call_in_python(self, arguments);
  }
  if (op->elementwise) result = Reference(call_elementwise(op, operands, arguments, parameters));
  if (!result) result = Reference(call_program(op, operands, arguments, parameters));
  if (!result) return call_in_python(self, arguments);
  if (thread_flags.recording && tracked && !is_view(result.get())) {
    record_call(op, operands, arguments, parameters, result.get());
  }
  return result.take();
}

PyObject* method_into(PyObject* self, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  if (count < 1 || !is_array(values[0])) {
    throw Error("TypeError", "into(target, *inputs): the target must be an array");
  }
  call_into(as_op(self), values[0], Arguments{values + 1, count - 1, names});
  return Py_NewRef(values[0]);
}

// --- the type ---

#if PY_VERSION_HEX < 0x030C0000
// Before Python 3.12, classes defined in Python do not inherit the flag, so calls would build
// tuples.
void inherit_vectorcall(PyTypeObject* type) {
  if (type->tp_call == PyVectorcall_Call && type->tp_vectorcall_offset != 0) {
    type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  }
}
#else
void inherit_vectorcall(PyTypeObject*) {}
#endif

PyObject* new_op(PyTypeObject* type, PyObject*, PyObject*) {
  Reference self = owned(type->tp_alloc(type, 0));
  OpObject* op = as_op(self.get());
  op->vectorcall = reinterpret_cast<vectorcallfunc>(slot<call_op>());
  op->owner = new_owner();
  op->parameter_ids = owned(PyDict_New()).take();
  op->older_parameter_ids = owned(PyDict_New()).take();
  inherit_vectorcall(type);
  return self.take();
}

int init_op(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"name", "elementwise", "parameters", "most", nullptr};
  PyObject *name, *parameters = nullptr;
  int elementwise, most = kMaxInputs;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "Up|Oi", const_cast<char**>(names), &name,
                                   &elementwise, &parameters, &most)) {
    return -1;
  }
  OpObject* op = as_op(self);
  op->elementwise = elementwise != 0;
  op->most = most;
  Py_XSETREF(op->name, Py_NewRef(name));
  Py_XSETREF(op->parameters, parameters == nullptr ? PyTuple_New(0) : PySequence_Tuple(parameters));
  return op->parameters == nullptr ? -1 : 0;
}

int traverse_op(PyObject* self, visitproc visit, void* arg) {
  OpObject* op = as_op(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(op->name);
  Py_VISIT(op->parameters);
  Py_VISIT(op->parameter_ids);
  Py_VISIT(op->older_parameter_ids);
  return visit_recent(op, visit, arg);
}

int clear_op(PyObject* self) {
  OpObject* op = as_op(self);
  Py_CLEAR(op->name);
  Py_CLEAR(op->parameters);
  Py_CLEAR(op->parameter_ids);
  Py_CLEAR(op->older_parameter_ids);
  forget_recent(op);
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
    {"_id", T_UINT, offsetof(OpObject, owner), READONLY, "The number standing for it in keys."},
    {nullptr, 0, 0, 0, nullptr}};

PyMethodDef methods[] = {
    {"into", method<method_into>(), METH_FASTCALL | METH_KEYWORDS,
     "into(target, *inputs, **parameters)\n--\n\nWrite the result into `target`; returns it."},
    {nullptr, nullptr, 0, nullptr}};

// An operation that is a class attribute acts as a method, like a function.
PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr || instance == Py_None ? Py_NewRef(self)
                                                    : PyMethod_New(self, instance);
}

PyType_Slot slots[] = {{Py_tp_new, slot<new_op>()},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
                       {Py_tp_init, slot<init_op>()},
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

bool collect_operands(PyObject* const* objects, Py_ssize_t count, Operands* operands,
                      bool* tracked) {
  *tracked = false;
  if (count > kMaxInputs) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_array(objects[i])) {
      if (!collect_scalar(objects[i], operands)) return false;
      continue;
    }
    const Tensor& tensor = tensor_of(objects[i]);
    operands->tensors[i] = &tensor;
    operands->arrays |= uint64_t{1} << 2 * i;
    operands->add(tensor.dtype);
    ++operands->array_count;
    *tracked |= is_tracked(objects[i]);
    if (operands->first == nullptr) {
      operands->first = &tensor;
    } else if (tensor.device() != operands->first->device()) {
      return false;
    }
  }
  return true;
}

ElementwisePointer find_kernel(OpObject* op, const ElementwiseCall& call,
                               const Arguments& arguments, uint32_t parameters) {
  const ElementwiseKey key = call.key(op->owner, parameters);
  if (const ElementwisePointer* found = kernels().find(key)) {
    ++cache_counters.hits;
    return *found;
  }
  ++cache_counters.misses;
  ElementwisePointer kernel = prepare_kernel(op, call, arguments);
  // Another thread may have inserted it.
  if (kernels().find(key) == nullptr) kernels().insert(key, kernel);
  return kernel;
}

PyObject* call_in_python(PyObject* op, const Arguments& arguments) {
  Reference inputs = inputs_tuple(arguments);
  Reference parameters = parameters_dict(arguments);
  return call_method(op, "_call", "(OO)", inputs.get(), parameters.get()).take();
}

size_t prepared_calls() { return kernels().size() + bindings().size() + steps().size(); }

void clear_prepared_calls() {
  kernels().clear();
  programs().clear();
  bindings().clear();
  steps().clear();
  forget_creations();
  forget_recorded();
}

bool make_op_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  op_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "OpBase", type) == 0;
}

}  // namespace gemel
