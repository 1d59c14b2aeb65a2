#include "python/call_site.h"

#include <structmember.h>

#include <cstring>
#include <new>
#include <vector>

#include "program/small_array.h"
#include "python/plan_type.h"
#include "python/state.h"

namespace gemel {
namespace {

PyTypeObject* site_type = nullptr;

struct ArgumentSpec {
  int code;
  std::vector<int64_t> shape;
};

// A plan, what its arguments look like, and the arrays that follow them.
struct Known {
  bool training;
  std::vector<ArgumentSpec> arguments;
  PyObject* plan;
  std::vector<PyObject*> parameters;
};

// More kinds of arguments than this, and the oldest is forgotten.
constexpr size_t kKnown = 16;
constexpr size_t kInsideValues = 32;

struct SiteObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* fallback;
  std::vector<Known> known;
  uint64_t epoch;  // of what is known
};

// Rises when what sites know may no longer hold. Guarded by the GIL.
uint64_t current_epoch = 0;

SiteObject* as_site(PyObject* object) { return reinterpret_cast<SiteObject*>(object); }

void drop(Known& known) {
  Py_DECREF(known.plan);
  for (PyObject* parameter : known.parameters) Py_DECREF(parameter);
}

void forget(SiteObject* site) {
  std::vector<Known> all = std::move(site->known);
  site->known.clear();
  for (Known& known : all) drop(known);
}

bool fits(const ArgumentSpec& spec, PyObject* value) {
  if (!is_array(value)) return false;
  Array* array = as_array(value);
  return array->code == spec.code && array->ndim == spec.shape.size() &&
         std::memcmp(array->shape(), spec.shape.data(), sizeof(int64_t) * array->ndim) == 0;
}

bool fits(const Known& known, bool training, PyObject* const* values, size_t count) {
  if (known.training != training || known.arguments.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!fits(known.arguments[i], values[i])) return false;
  }
  return true;
}

PyObject* run(const Known& known, PyObject* const* values, size_t count) {
  size_t total = count + known.parameters.size();
  SmallArray<PyObject*, kInsideValues> all(total);
  for (size_t i = 0; i < count; ++i) all[i] = values[i];
  for (size_t i = count; i < total; ++i) all[i] = known.parameters[i - count];
  return call_plan_unpacked(known.plan, all.data(), static_cast<Py_ssize_t>(total));
}

PyObject* call_site(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
  size_t count = static_cast<size_t>(PyVectorcall_NARGS(flags));
  const ThreadFlags& flags_now = thread_flags;
  const bool plain = !flags_now.recording && flags_now.tracing == 0 && names == nullptr;
  if (plain && as_site(self)->epoch == current_epoch) {
    for (const Known& known : as_site(self)->known) {
      if (fits(known, flags_now.training, values, count)) return run(known, values, count);
    }
  }
  return PyObject_Vectorcall(as_site(self)->fallback, values, flags, names);
}

// add(training, arguments, plan, parameters)
PyObject* add(PyObject* self, PyObject* arguments) {
  int training;
  PyObject *arrays, *plan, *parameters;
  if (!PyArg_ParseTuple(arguments, "pO!OO!", &training, &PyTuple_Type, &arrays, &plan,
                        &PyTuple_Type, &parameters)) {
    return nullptr;
  }
  if (!is_plan(plan)) return PyErr_Format(PyExc_TypeError, "%R is not a plan", plan);
  Known known{training != 0, {}, plan, {}};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arrays); ++i) {
    PyObject* value = PyTuple_GET_ITEM(arrays, i);
    if (!is_array(value)) return PyErr_Format(PyExc_TypeError, "%R is not an array", value);
    Array* array = as_array(value);
    known.arguments.push_back({array->code, {array->shape(), array->shape() + array->ndim}});
  }
  Py_INCREF(plan);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parameters); ++i) {
    known.parameters.push_back(Py_NewRef(PyTuple_GET_ITEM(parameters, i)));
  }
  if (as_site(self)->epoch != current_epoch) forget(as_site(self));
  as_site(self)->epoch = current_epoch;
  std::vector<Known>& all = as_site(self)->known;
  all.insert(all.begin(), std::move(known));
  if (all.size() > kKnown) {
    Known oldest = std::move(all.back());
    all.pop_back();
    drop(oldest);
  }
  Py_RETURN_NONE;
}

PyObject* clear(PyObject* self, PyObject*) {
  forget(as_site(self));
  Py_RETURN_NONE;
}

PyObject* new_site(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* fallback;
  if (!PyArg_ParseTuple(arguments, "O", &fallback)) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  as_site(self)->vectorcall = call_site;
  as_site(self)->fallback = Py_NewRef(fallback);
  new (&as_site(self)->known) std::vector<Known>();
  as_site(self)->epoch = current_epoch;
  return self;
}

// The fallback is a bound method of the object that owns the site: a cycle.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_site(self)->fallback);
  return 0;
}

int break_cycle(PyObject* self) {
  Py_CLEAR(as_site(self)->fallback);
  return 0;
}

void free_site(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  forget(as_site(self));
  as_site(self)->known.~vector();
  Py_CLEAR(as_site(self)->fallback);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {{"add", add, METH_VARARGS,
                          "add(training, arguments, plan, parameters): run the plan for "
                          "arguments like these."},
                         {"clear", clear, METH_NOARGS, "Forget every plan."},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(SiteObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(new_site)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_site)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(break_cycle)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("CallSite(fallback): calls the plan known for its arguments, "
                                  "or else the fallback.")},
    {0, nullptr}};

PyType_Spec spec = {"gemel._core.CallSite", sizeof(SiteObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

void forget_call_sites() { ++current_epoch; }

bool make_call_site_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  site_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "CallSite", type) == 0;
}

}  // namespace gemel
