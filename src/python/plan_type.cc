// Plan: a program read from its image. It is called with arrays first, then numbers.

#include "python/plan_type.h"

#include <structmember.h>

#include <new>

#include "python/plan_call.h"
#include "python/waits.h"

namespace gemel {
namespace {

PyTypeObject* plan_type = nullptr;

struct PlanObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  ProgramPointer program;
  KeeperPointer keeper;  // closed when the last plan that shares it is freed
  uint32_t owner;
};

PlanObject* as_plan(PyObject* object) { return reinterpret_cast<PlanObject*>(object); }

// -1 if no device was given.
int take_device(PyObject* const* values, Py_ssize_t count, PyObject* names) {
  int device = -1;
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "device") != 0) {
      PyErr_Format(PyExc_TypeError, "a plan has no parameter %R", name);
      throw PythonError{};
    }
    device = checked_device(PyLong_AsLong(values[count + i]));
  }
  return device;
}

// A caller who names the device may pass arrays of other CPU devices, since all of them use host
// memory.
bool reaches(int device, int other) {
  return device == other || (Engine::on_host(device) && Engine::on_host(other));
}

void check_arguments(const Program& program, PyObject* const* values, size_t count, int given) {
  const size_t arrays = program.inputs.size();
  if (count != arrays + static_cast<size_t>(program.scalars)) {
    throw Error("TypeError", program.name + " takes " + std::to_string(arrays) + " arrays and " +
                                 std::to_string(program.scalars) + " scalars, " +
                                 std::to_string(count) + " arguments were given");
  }
  for (size_t i = 0; i < arrays; ++i) {
    const std::string which = program.name + ": input " + std::to_string(i);
    if (!is_array(values[i])) {
      throw Error("TypeError", which + " is a " + Py_TYPE(values[i])->tp_name + ", not an array");
    }
    const int device = tensor_of(values[i]).device();
    const int first = given < 0 ? tensor_of(values[0]).device() : given;
    if (given < 0 ? device != first : !reaches(given, device)) {
      throw Error("TypeError", which + " is on device " + std::to_string(device) +
                                   ", the others are on device " + std::to_string(first));
    }
  }
}

BindingPointer find_binding(PlanObject* plan, const ProgramPointer& program, PlanCall& call) {
  const size_t count = program->inputs.size();
  for (size_t i = 0; i < count; ++i) {
    const InputSpec& spec = program->inputs[i];
    if (!spec.strided && !spec.written && !call.tensor(i).contiguous) call.make_dense(i);
  }
  CallKey key(static_cast<uint64_t>(plan->owner) << 32, true);
  for (size_t i = 0; i < count; ++i) key.add(call.tensor(i));
  if (const BindingPointer* found = bindings().find(key)) return *found;
  Mismatch mismatch;
  BindingPointer binding = call.bind(program, &mismatch);
  if (binding == nullptr) throw Error("TypeError", call.explain(*program, mismatch));
  bindings().insert(key, binding);
  return binding;
}

PyObject* call_plan(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
  // The call may run Python code (a copy of an input), which may drop the plan.
  Reference keep = borrowed(self);
  const ProgramPointer program = as_plan(self)->program;
  const auto count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  const int device = take_device(values, static_cast<Py_ssize_t>(count), names);
  check_arguments(*program, values, count, device);
  PlanCall call(values, program->inputs.size(), values + program->inputs.size());
  const BindingPointer binding = find_binding(as_plan(self), program, call);
  SmallArray<PyObject*, 8> results(program->outputs.size());
  call.run(binding, device, results.data());
  return packed(results.data(), program->outputs.size());
}

// The arrays a plan closes over, which must be dense; a null iterable means none.
std::vector<Captured> captured_from(PyObject* iterable) {
  std::vector<Captured> captured;
  if (iterable == nullptr) return captured;
  Reference items = owned(PySequence_Fast(iterable, "what a plan closes over is a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    const Tensor& tensor = checked_tensor(PySequence_Fast_GET_ITEM(items.get(), i), "Plan");
    wait_for(tensor.storage);
    if (!tensor.contiguous) {
      throw Error("ValueError", "Plan: the arrays a plan closes over must be contiguous");
    }
    tensor.storage->retain();
    std::shared_ptr<Storage> storage(tensor.storage, [](Storage* held) { held->release(); });
    captured.push_back({std::move(storage), tensor.offset * item_size(tensor.dtype)});
  }
  return captured;
}

// Plan(image, kernels=(), captured=(), keeper=Keeper())
PyObject* new_plan(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"image", "kernels", "captured", "keeper", nullptr};
  Py_buffer image;
  PyObject *kernels = nullptr, *captured = nullptr, *keeper = nullptr;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "y*|OOO", const_cast<char**>(names), &image,
                                   &kernels, &captured, &keeper)) {
    return nullptr;
  }
  struct Released {
    Py_buffer* buffer;
    ~Released() { PyBuffer_Release(buffer); }
  } released{&image};
  std::span<const char> bytes(static_cast<const char*>(image.buf), static_cast<size_t>(image.len));
  KeeperPointer own = keeper == nullptr || keeper == Py_None ? std::make_shared<KeeperOwner>()
                                                             : keeper_from(keeper);
  ProgramPointer program =
      Program::read(bytes, kernels_from(kernels), captured_from(captured), own->keeper);
  Reference self = owned(type->tp_alloc(type, 0));
  PlanObject* plan = as_plan(self.get());
  plan->vectorcall = reinterpret_cast<vectorcallfunc>(slot<call_plan>());
  new (&plan->program) ProgramPointer(std::move(program));
  new (&plan->keeper) KeeperPointer(std::move(own));
  plan->owner = new_owner();
  return self.take();
}

void free_plan(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  as_plan(self)->program.~shared_ptr();
  as_plan(self)->keeper.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_name(PyObject* self, void*) {
  return PyUnicode_FromString(as_plan(self)->program->name.c_str());
}

PyObject* repr(PyObject* self) {
  const Program& program = *as_plan(self)->program;
  return PyUnicode_FromFormat("<Plan %s: %zd inputs, %zd outputs, %zd steps>", program.name.c_str(),
                              static_cast<Py_ssize_t>(program.inputs.size()),
                              static_cast<Py_ssize_t>(program.outputs.size()),
                              static_cast<Py_ssize_t>(program.steps.size()));
}

// bound(*arrays): (estimated microseconds on one core, bytes of workspace) for arrays like these.
PyObject* bound(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  const ProgramPointer program = as_plan(self)->program;
  if (static_cast<size_t>(count) != program->inputs.size()) {
    throw Error("TypeError", program->name + " takes " + std::to_string(program->inputs.size()) +
                                 " arrays, " + std::to_string(count) + " were given");
  }
  for (Py_ssize_t i = 0; i < count; ++i) checked_tensor(values[i], "Plan.bound");
  PlanCall call(values, static_cast<size_t>(count), nullptr);
  const BindingPointer binding = find_binding(as_plan(self), program, call);
  return Py_BuildValue("(dn)", binding->microseconds, static_cast<Py_ssize_t>(binding->workspace));
}

PyObject* fits(PyObject* self, PyObject* const* values, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) checked_tensor(values[i], "Plan.fits");
  PlanCall call(values, static_cast<size_t>(count), nullptr);
  Mismatch mismatch;
  return PyBool_FromLong(call.bind(as_plan(self)->program, &mismatch) != nullptr);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PlanObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef attributes[] = {{"name", get_name, nullptr, "What the plan computes.", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef methods[] = {{"bound", method<bound>(), METH_FASTCALL,
                          "bound(*arrays)\n--\n\nFor arrays like these: estimated microseconds on "
                          "one core, and bytes of "
                          "workspace."},
                         {"fits", method<fits>(), METH_FASTCALL,
                          "fits(*arrays)\n--\n\nWhether it computes with arrays like these."},
                         {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, slot<new_plan>()},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(free_plan)},
                       {Py_tp_repr, reinterpret_cast<void*>(repr)},
                       {Py_tp_members, members},
                       {Py_tp_getset, attributes},
                       {Py_tp_methods, methods},
                       {Py_tp_doc, const_cast<char*>("A compiled graph: call it with arrays.")},
                       {0, nullptr}};

PyType_Spec spec = {"gemel._core.Plan", sizeof(PlanObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};

}  // namespace

bool make_plan_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  plan_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "Plan", type) == 0;
}

ProgramPointer program_of(PyObject* object) {
  if (!Py_IS_TYPE(object, plan_type)) throw Error("TypeError", "a Plan is needed");
  return as_plan(object)->program;
}

}  // namespace gemel
