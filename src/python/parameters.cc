// Keyword parameters as keys. 2, 2.0 and True are equal as Python keys and are not the same
// parameter, so every value goes into the key together with its type.

#include <cstring>

#include "python/op_type.h"

namespace gemel {
namespace {

PyObject* tagged(PyObject* value);

PyObject* tagged_items(PyObject* sequence) {
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  Reference items(PyTuple_New(count + 1));
  if (!items) return nullptr;
  PyTuple_SET_ITEM(items.get(), 0, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(sequence))));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = tagged(PySequence_Fast_GET_ITEM(sequence, i));
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(items.get(), i + 1, item);
  }
  return items.take();
}

// By its bits: 0.0 equals -0.0, and a NaN does not equal itself.
PyObject* tagged_float(PyObject* value) {
  double number = PyFloat_AS_DOUBLE(value);
  long long bits;
  std::memcpy(&bits, &number, sizeof bits);
  Reference key(PyLong_FromLongLong(bits));
  return key ? PyTuple_Pack(2, &PyFloat_Type, key.get()) : nullptr;
}

// Null with a Python error set when the value cannot be part of a key.
PyObject* tagged(PyObject* value) {
  if (PyUnicode_CheckExact(value) || value == Py_None) return Py_NewRef(value);
  if (PyTuple_Check(value) || PyList_Check(value)) return tagged_items(value);
  if (PyFloat_CheckExact(value)) return tagged_float(value);
  if (is_array(value)) {
    PyErr_SetString(PyExc_TypeError, "an array is not a static parameter");
    return nullptr;
  }
  return PyTuple_Pack(2, Py_TYPE(value), value);
}

PyObject* make_key(const Arguments& arguments) {
  Py_ssize_t count = PyTuple_GET_SIZE(arguments.names);
  Reference key(PyTuple_New(2 * count));
  if (!key) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* value = tagged(arguments.values[arguments.count + i]);
    if (value == nullptr) return nullptr;
    PyTuple_SET_ITEM(key.get(), 2 * i, Py_NewRef(PyTuple_GET_ITEM(arguments.names, i)));
    PyTuple_SET_ITEM(key.get(), 2 * i + 1, value);
  }
  return key.take();
}

}  // namespace

bool parameters_id(OpObject* op, const Arguments& arguments, uint32_t* id) {
  *id = 0;
  if (arguments.names == nullptr || PyTuple_GET_SIZE(arguments.names) == 0) return true;
  Reference key(make_key(arguments));
  PyObject* known = key ? PyDict_GetItemWithError(op->parameter_ids, key.get()) : nullptr;
  if (known != nullptr) {
    *id = static_cast<uint32_t>(PyLong_AsUnsignedLong(known));
    return true;
  }
  if (!PyErr_Occurred()) {
    // 24 bits of a key hold it; beyond that many the calls go through Python.
    Py_ssize_t next = PyDict_GET_SIZE(op->parameter_ids) + 1;
    Reference number(PyLong_FromSsize_t(next));
    if (next < (1 << 24) && number &&
        PyDict_SetItem(op->parameter_ids, key.get(), number.get()) == 0) {
      *id = static_cast<uint32_t>(next);
      return true;
    }
  }
  PyErr_Clear();
  return false;
}

PyObject* parameters_dict(const Arguments& arguments) {
  PyObject* dict = PyDict_New();
  Py_ssize_t count = arguments.names == nullptr ? 0 : PyTuple_GET_SIZE(arguments.names);
  for (Py_ssize_t i = 0; dict != nullptr && i < count; ++i) {
    if (PyDict_SetItem(dict, PyTuple_GET_ITEM(arguments.names, i),
                       arguments.values[arguments.count + i]) < 0) {
      Py_CLEAR(dict);
    }
  }
  return dict;
}

PyObject* inputs_tuple(const Arguments& arguments) {
  PyObject* tuple = PyTuple_New(arguments.count);
  for (Py_ssize_t i = 0; tuple != nullptr && i < arguments.count; ++i) {
    PyTuple_SET_ITEM(tuple, i, Py_NewRef(arguments.values[i]));
  }
  return tuple;
}

}  // namespace gemel
