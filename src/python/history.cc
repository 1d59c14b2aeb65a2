#include "python/history.h"

#include <structmember.h>

#include <new>

namespace gemel {
namespace {

PyTypeObject* history_type = nullptr;

History* as_history(PyObject* object) { return reinterpret_cast<History*>(object); }
PyObject* as_object(History* history) { return reinterpret_cast<PyObject*>(history); }

Reference new_history(const Tensor& base) {
  History* history = PyObject_GC_New(History, history_type);
  if (history == nullptr) throw PythonError{};
  new (&history->base) Tensor;
  history->source = history->variable = history->views = nullptr;
  history->saved = nullptr;
  Reference made(as_object(history));
  history->base.view(base.storage, base.dtype, base.extents(), base.strides(), base.ndim,
                     base.offset);
  PyObject_GC_Track(made.get());
  return made;
}

void give(PyObject* array, Reference history) {
  History* old = as_array(array)->history;
  as_array(array)->history = as_history(history.take());
  if (!PyObject_GC_IsTracked(array)) PyObject_GC_Track(array);
  Py_XDECREF(as_object(old));
}

PyObject* tuple_of(const int64_t* values, int count) {
  Reference tuple = owned(PyTuple_New(count));
  for (int i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, owned(PyLong_FromLongLong(values[i])).take());
  }
  return tuple.take();
}

PyObject* get_base(PyObject* self, void*) {
  const Tensor& base = as_history(self)->base;
  Reference shape(tuple_of(base.extents(), base.ndim));
  Reference strides(tuple_of(base.strides(), base.ndim));
  return Py_BuildValue("(OOL)", shape.get(), strides.get(), static_cast<long long>(base.offset));
}

PyObject* get_is_saved(PyObject* self, void*) {
  return PyBool_FromLong(as_history(self)->saved != nullptr);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_history(self)->source);
  Py_VISIT(as_history(self)->variable);
  Py_VISIT(as_history(self)->views);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(as_history(self)->source);
  Py_CLEAR(as_history(self)->variable);
  Py_CLEAR(as_history(self)->views);
  return 0;
}

void free_history(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_TRASHCAN_BEGIN(self, free_history);
  clear(self);
  leave_saved(as_history(self));
  as_history(self)->base.~Tensor();
  type->tp_free(self);
  Py_DECREF(type);
  Py_TRASHCAN_END;
}

// Attributes that are None when null, and become null when set to None.
template <PyObject* History::* member>
PyObject* get(PyObject* self, void*) {
  PyObject* value = as_history(self)->*member;
  return Py_NewRef(value == nullptr ? Py_None : value);
}
template <PyObject* History::* member>
int set(PyObject* self, PyObject* value, void*) {
  Py_XSETREF(as_history(self)->*member,
             value == nullptr || value == Py_None ? nullptr : Py_NewRef(value));
  return 0;
}

PyGetSetDef attributes[] = {
    {"base", reinterpret_cast<getter>(slot<get_base>()), nullptr,
     "Shape, strides and offset of the array it was made for.", nullptr},
    {"source", get<&History::source>, set<&History::source>, "What made the contents of the base.",
     nullptr},
    {"variable", get<&History::variable>, set<&History::variable>,
     "The source it had as a variable.", nullptr},
    {"views", get<&History::views>, set<&History::views>,
     "What made the contents of views, by their layout, for this source.", nullptr},
    {"is_saved", get_is_saved, nullptr, "Whether somebody has kept the contents.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef methods[] = {
    {"take_saved", method<take_saved>(), METH_NOARGS,
     "take_saved()\n--\n\nWho has kept the contents, as a list; it no longer knows them."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_history)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_getset, attributes},
    {Py_tp_doc, const_cast<char*>("Where the contents that some arrays share come from.")},
    {0, nullptr}};

}  // namespace

History* history_of(PyObject* array) {
  if (as_array(array)->history == nullptr) give(array, new_history(tensor_of(array)));
  return as_array(array)->history;
}

void share_history(PyObject* array, PyObject* view) {
  give(view, borrowed(as_object(history_of(array))));
}

PyObject* get_history(PyObject* array, void*) {
  History* history = as_array(array)->history;
  return Py_NewRef(history == nullptr ? Py_None : as_object(history));
}

int set_history(PyObject* array, PyObject* value, void*) {
  if (value == nullptr || value == Py_None) {
    History* old = std::exchange(as_array(array)->history, nullptr);
    Py_XDECREF(as_object(old));
    return 0;
  }
  if (!PyObject_TypeCheck(value, history_type)) {
    throw Error("TypeError", "the history of an array is None or that of another array");
  }
  give(array, borrowed(value));
  return 0;
}

PyObject* get_is_base(PyObject* array, void*) {
  const History* history = as_array(array)->history;
  return PyBool_FromLong(history == nullptr || history->base.same_layout(tensor_of(array)));
}

PyObject* get_is_tracked(PyObject* array, void*) { return PyBool_FromLong(is_tracked(array)); }

PyObject* shared_history(PyObject* array, PyObject*) {
  return Py_NewRef(as_object(history_of(array)));
}

PyObject* track(PyObject* array, PyObject* source) {
  History* history = history_of(array);
  Py_XSETREF(history->source, source == Py_None ? nullptr : Py_NewRef(source));
  Py_CLEAR(history->views);
  Py_RETURN_NONE;
}

bool make_history_type(PyObject* module) {
  PyType_Spec spec = {"gemel._core.History", sizeof(History), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  history_type = reinterpret_cast<PyTypeObject*>(type);
  return PyModule_AddObjectRef(module, "History", type) == 0;
}

}  // namespace gemel
