// The type object of arrays: attributes, methods, conversions.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <vector>

#include "python/history.h"
#include "python/waits.h"

namespace gemel {
namespace {

PyObject* dtype_objects = nullptr;   // a list, by code
PyObject* device_objects = nullptr;  // a list, by number

PyObject* tuple_of(const int64_t* values, int count, int64_t factor = 1) {
  Reference tuple = owned(PyTuple_New(count));
  for (int i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, owned(PyLong_FromLongLong(factor * values[i])).take());
  }
  return tuple.take();
}

// The object registered for `number`, or the number itself if there is none.
PyObject* registered(PyObject* list, long number) {
  if (list == nullptr || number >= PySequence_Size(list)) {
    PyErr_Clear();
    return PyLong_FromLong(number);
  }
  return PySequence_GetItem(list, number);
}

PyObject* get_shape(PyObject* self, void*) {
  return tuple_of(tensor_of(self).extents(), tensor_of(self).ndim);
}
PyObject* get_strides(PyObject* self, void*) {
  const Tensor& tensor = tensor_of(self);
  return tuple_of(tensor.strides(), tensor.ndim, item_size(tensor.dtype));
}
PyObject* get_element_strides(PyObject* self, void*) {
  return tuple_of(tensor_of(self).strides(), tensor_of(self).ndim);
}
PyObject* get_offset(PyObject* self, void*) { return PyLong_FromLongLong(tensor_of(self).offset); }
PyObject* get_ndim(PyObject* self, void*) { return PyLong_FromLong(tensor_of(self).ndim); }
PyObject* get_size(PyObject* self, void*) { return PyLong_FromLongLong(tensor_of(self).size); }
PyObject* get_item_size(PyObject* self, void*) {
  return PyLong_FromLongLong(item_size(tensor_of(self).dtype));
}
PyObject* get_bytes(PyObject* self, void*) { return PyLong_FromLongLong(tensor_of(self).bytes()); }
PyObject* get_dtype(PyObject* self, void*) {
  return registered(dtype_objects, tensor_of(self).dtype);
}
PyObject* get_device(PyObject* self, void*) {
  return registered(device_objects, tensor_of(self).device());
}
PyObject* get_version(PyObject* self, void*) {
  return PyLong_FromUnsignedLongLong(tensor_of(self).storage->version());
}
PyObject* get_code(PyObject* self, void*) { return PyLong_FromLong(tensor_of(self).dtype); }
PyObject* get_contiguous(PyObject* self, void*) {
  return PyBool_FromLong(tensor_of(self).contiguous);
}
PyObject* get_loans(PyObject* self, void*) {
  const Storage* storage = tensor_of(self).storage;
  return PyLong_FromLongLong(storage->exported() ? -1
                                                 : static_cast<int64_t>(storage->exports_ended()));
}
PyObject* get_storage(PyObject* self, void*) { return PyLong_FromVoidPtr(tensor_of(self).storage); }

// None for an array that covers its whole storage; otherwise the whole storage as a one-dimensional
// array.
PyObject* get_base(PyObject* self, void*) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.whole()) Py_RETURN_NONE;
  const auto extent = static_cast<int64_t>(tensor.storage->bytes()) / item_size(tensor.dtype);
  Reference result = blank_array();
  tensor_of(result).view(tensor.storage, tensor.dtype, &extent, nullptr, 1, 0);
  return result.take();
}

PyObject* get_grad(PyObject* self, void*) {
  PyObject* grad = as_array(self)->grad;
  return Py_NewRef(grad == nullptr ? Py_None : grad);
}
int set_grad(PyObject* self, PyObject* value, void*) {
  Py_XSETREF(as_array(self)->grad,
             value == nullptr || value == Py_None ? nullptr : Py_NewRef(value));
  // Arrays refer to other objects only through their gradient and their history. So the collector
  // starts to track an array when it gets one of these.
  if (!PyObject_GC_IsTracked(self)) PyObject_GC_Track(self);
  return 0;
}

template <auto function>
getter guarded() {
  return reinterpret_cast<getter>(slot<function>());
}

PyGetSetDef attributes[] = {
    {"shape", guarded<get_shape>(), nullptr, "Extent of each dimension.", nullptr},
    {"strides", guarded<get_strides>(), nullptr,
     "Bytes from one position to the next, by dimension.", nullptr},
    {"_element_strides", guarded<get_element_strides>(), nullptr,
     "Elements from one position to the next, by dimension.", nullptr},
    {"offset", get_offset, nullptr, "Elements from the storage's start.", nullptr},
    {"ndim", get_ndim, nullptr, "Number of dimensions.", nullptr},
    {"size", get_size, nullptr, "Number of elements.", nullptr},
    {"itemsize", get_item_size, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_bytes, nullptr, "Bytes of all elements.", nullptr},
    {"dtype", get_dtype, nullptr, "Type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the contents live.", nullptr},
    {"base", guarded<get_base>(), nullptr,
     "None of an array that is all of its memory; of another one that memory, in one row.",
     nullptr},
    {"version", get_version, nullptr, "How many in-place writes have been issued.", nullptr},
    {"_code", get_code, nullptr, "Number of the dtype.", nullptr},
    {"_is_contiguous", get_contiguous, nullptr, "Whether the elements lie in C order.", nullptr},
    {"_loans", get_loans, nullptr,
     "How often others could write its memory, which is over; -1 while somebody can.", nullptr},
    {"_storage", get_storage, nullptr, "Identity of the storage; equal for views of it.", nullptr},
    {"_history", get_history, reinterpret_cast<setter>(slot<set_history>()),
     "Where the contents come from; shared by the views of them.", nullptr},
    {"_is_base", get_is_base, nullptr, "Whether its history was made for an array like it.",
     nullptr},
    {"_is_tracked", get_is_tracked, nullptr, "Whether a recorded computation made its contents.",
     nullptr},
    {"_grad", get_grad, set_grad, "The attached gradient.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyObject* wait_to_read(PyObject* self, PyObject*) {
  wait_for(tensor_of(self).storage);
  Py_RETURN_NONE;
}

PyObject* item(PyObject* self, PyObject*) { return array_item(self); }

std::vector<int64_t> integers_from(PyObject* sequence) {
  Reference fast = owned(PySequence_Fast(sequence, "a sequence of integers is needed"));
  std::vector<int64_t> values;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast.get()); ++i) {
    int64_t value = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast.get(), i));
    if (value == -1 && PyErr_Occurred()) throw PythonError{};
    values.push_back(value);
  }
  return values;
}

PyObject* as_strided(PyObject* self, PyObject* arguments) {
  const Tensor& tensor = tensor_of(self);
  PyObject *shape_object, *strides_object;
  long long offset;
  int code = tensor.dtype;
  if (!PyArg_ParseTuple(arguments, "OOL|i", &shape_object, &strides_object, &offset, &code)) {
    return nullptr;
  }
  if (code < 0 || code >= kDTypeCount) throw Error("ValueError", "unknown dtype code");
  const std::vector<int64_t> shape = integers_from(shape_object);
  const std::vector<int64_t> strides = integers_from(strides_object);
  if (shape.size() != strides.size()) {
    throw Error("ValueError", "shape and strides must have the same length");
  }
  Reference result = blank_array();
  tensor_of(result).view(tensor.storage, code, shape.data(), strides.data(),
                         static_cast<int>(shape.size()), offset);
  return result.take();
}

PyObject* detached(PyObject* self, PyObject*) {
  const Tensor& tensor = tensor_of(self);
  Reference result = blank_array();
  tensor_of(result).view(tensor.storage, tensor.dtype, tensor.extents(), tensor.strides(),
                         tensor.ndim, tensor.offset);
  return result.take();
}

PyMethodDef methods[] = {
    {"wait_to_read", method<wait_to_read>(), METH_NOARGS,
     "wait_to_read()\n--\n\nWait until the contents are there; raises what made them fail."},
    {"_wait", method<wait_to_read>(), METH_NOARGS, "_wait()\n--\n\nThe same as wait_to_read."},
    {"item", method<item>(), METH_NOARGS, "item()\n--\n\nThe only element, as a Python scalar."},
    {"tolist", method<to_list>(), METH_NOARGS, "tolist()\n--\n\nThe contents as nested lists."},
    {"_place", method<place_at_once>(), METH_VARARGS,
     "_place(mask or positions, values)\n--\n\nWrites small values at once; whether it did."},
    {"_as_strided", method<as_strided>(), METH_VARARGS,
     "_as_strided(shape, strides, offset, dtype=...)\n--\n\n"
     "A view of the same storage, unchecked; of its bytes as another dtype where that is given."},
    {"_detached", method<detached>(), METH_NOARGS,
     "_detached()\n--\n\nAnother array over the same elements, without history."},
    {"_save", method<save_array>(), METH_NOARGS,
     "_save()\n--\n\nKeeps the contents, to be read again: a Saved."},
    {"_shared_history", method<shared_history>(), METH_NOARGS,
     "_shared_history()\n--\n\nThe history, begun now if there was none."},
    {"_track", method<track>(), METH_O,
     "_track(source)\n--\n\nThe contents come from there, for all arrays that see them."},
    {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Array, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyObject* refuse_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyErr_Format(PyExc_TypeError, "%s is not made by calling it; use array() or empty()",
               type->tp_name);
  return nullptr;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_array(self)->history);
  Py_VISIT(as_array(self)->grad);
  return 0;
}

int clear(PyObject* self) {
  set_history(self, nullptr, nullptr);
  Py_CLEAR(as_array(self)->grad);
  return 0;
}

Py_hash_t identity_hash(PyObject* self) {
  auto hash = static_cast<Py_hash_t>(reinterpret_cast<uintptr_t>(self) >> 4);
  return hash == -1 ? -2 : hash;
}

Py_ssize_t length(PyObject* self) {
  if (tensor_of(self).ndim > 0) return tensor_of(self).extents()[0];
  PyErr_SetString(PyExc_TypeError, "len() of a 0-d array");
  return -1;
}

int assign_subscript(PyObject* self, PyObject* key, PyObject* value) {
  if (value == nullptr) {
    PyErr_SetString(PyExc_ValueError, "elements of an array cannot be deleted");
    return -1;
  }
  if (!assign_at_once(self, key, value)) call_method(self, "_setitem", "(OO)", key, value);
  return 0;
}

PyType_Slot basic_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_array)},
    {Py_tp_new, reinterpret_cast<void*>(refuse_new)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_hash, reinterpret_cast<void*>(identity_hash)},
    {Py_tp_iter, slot<array_iterate>()},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_mp_length, slot<length>()},
    {Py_mp_subscript, slot<array_subscript>()},
    {Py_mp_ass_subscript, slot<assign_subscript>()},
    {Py_sq_length, slot<length>()},
    {Py_sq_item, slot<array_sequence_item>()},
    {Py_bf_getbuffer, slot<array_get_buffer>()},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(array_release_buffer)},
    {Py_tp_doc, const_cast<char*>("An n-dimensional array over a storage of the engine.")}};

}  // namespace

bool make_array_type(PyObject* module) {
  std::vector<PyType_Slot> slots(std::begin(basic_slots), std::end(basic_slots));
  slots.insert(slots.end(), operator_slots, operator_slots + operator_slot_count());
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"gemel._core.Array", sizeof(Array), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) return false;
  array_type = array_class = reinterpret_cast<PyTypeObject*>(type);
  Py_INCREF(type);  // array_class owns one reference
  return PyModule_AddObjectRef(module, "Array", type) == 0;
}

PyObject* set_array_class(PyObject* object) {
  auto* type = reinterpret_cast<PyTypeObject*>(object);
  if (!PyType_Check(object) || !PyType_IsSubtype(type, array_type) ||
      type->tp_basicsize != static_cast<Py_ssize_t>(sizeof(Array)) || type->tp_dictoffset != 0) {
    throw Error("TypeError", "the class of arrays must derive from Array and have empty __slots__");
  }
  // Set directly to our own function: a class without fields has nothing more to free.
  type->tp_dealloc = free_array;
  auto* previous = reinterpret_cast<PyObject*>(array_class);
  Py_INCREF(object);
  array_class = type;
  return previous;
}

void set_dtypes(PyObject* list) { Py_XSETREF(dtype_objects, Py_NewRef(list)); }

void set_devices(PyObject* list) { Py_XSETREF(device_objects, Py_NewRef(list)); }

}  // namespace gemel
