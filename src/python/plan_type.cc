#include "python/plan_type.h"

#include <structmember.h>

#include <new>

#include "python/plan_launch.h"

namespace gemel {
namespace {

PyTypeObject* plan_type = nullptr;

struct PlanObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  std::shared_ptr<const PlanProgram> program;
};

PlanObject* as_plan(PyObject* object) { return reinterpret_cast<PlanObject*>(object); }

constexpr size_t kInsideResults = 8;

bool take_device(PyObject* const* values, Py_ssize_t count, PyObject* names, int* device) {
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* name = PyTuple_GET_ITEM(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "device") != 0) {
      PyErr_Format(PyExc_TypeError, "a plan has no parameter %R", name);
      return false;
    }
    *device = static_cast<int>(PyLong_AsLong(values[count + i]));
    if (*device == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

bool execute(const std::shared_ptr<const PlanProgram>& program, PyObject* const* values,
             Py_ssize_t count, int device, PyObject** results) {
  PlanLaunch launch(program, device);
  return launch.take_arguments(values, count) && launch.run(results);
}

PyObject* pack(PyObject** results, size_t count) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  for (size_t i = 0; i < count; ++i) {
    if (tuple != nullptr) {
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), results[i]);
    } else {
      Py_DECREF(results[i]);
    }
  }
  return tuple;
}

PyObject* call_plan(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
  // The call may run Python (a copy of an input), which may drop the plan.
  std::shared_ptr<const PlanProgram> program = as_plan(self)->program;
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  int device = -1;
  if (!take_device(values, count, names, &device)) return nullptr;
  SmallArray<PyObject*, kInsideResults> results(program->outputs.size());
  if (!execute(program, values, count, device, results.data())) return nullptr;
  return pack(results.data(), program->outputs.size());
}

PyObject* new_plan(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  std::shared_ptr<PlanProgram> program = program_from(arguments, keywords);
  if (program == nullptr) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  as_plan(self)->vectorcall = call_plan;
  new (&as_plan(self)->program) std::shared_ptr<const PlanProgram>(std::move(program));
  return self;
}

void free_plan(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  as_plan(self)->program.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* get_name(PyObject* self, void*) {
  return PyUnicode_FromString(as_plan(self)->program->name.c_str());
}
PyObject* get_microseconds(PyObject* self, void*) {
  return PyFloat_FromDouble(as_plan(self)->program->microseconds);
}
PyObject* get_workspace(PyObject* self, void*) {
  return PyLong_FromSize_t(as_plan(self)->program->workspace);
}

PyObject* repr(PyObject* self) {
  const PlanProgram& program = *as_plan(self)->program;
  return PyUnicode_FromFormat("<Plan %s: %zd inputs, %zd outputs, %zd steps>", program.name.c_str(),
                              static_cast<Py_ssize_t>(program.inputs.size()),
                              static_cast<Py_ssize_t>(program.outputs.size()),
                              static_cast<Py_ssize_t>(program.items.size()));
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PlanObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef attributes[] = {
    {"name", get_name, nullptr, "What the plan computes.", nullptr},
    {"microseconds", get_microseconds, nullptr, "Estimated cost on one core.", nullptr},
    {"workspace", get_workspace, nullptr, "Bytes taken while it runs.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_plan)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(free_plan)},
                       {Py_tp_repr, reinterpret_cast<void*>(repr)},
                       {Py_tp_members, members},
                       {Py_tp_getset, attributes},
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

bool is_plan(PyObject* object) { return Py_IS_TYPE(object, plan_type); }

PyObject* call_plan_unpacked(PyObject* plan, PyObject* const* values, Py_ssize_t count) {
  std::shared_ptr<const PlanProgram> program = as_plan(plan)->program;
  SmallArray<PyObject*, kInsideResults> results(program->outputs.size());
  if (!execute(program, values, count, -1, results.data())) return nullptr;
  if (program->outputs.size() == 1) return results[0];
  return pack(results.data(), program->outputs.size());
}

}  // namespace gemel
