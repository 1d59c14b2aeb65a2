// Keyword parameters as keys. As Python keys, 2, 2.0 and True are equal, but they are different
// parameters. So values other than Python's own integers and strings become part of the key
// together with their type.

#include <algorithm>
#include <cstring>
#include <utility>

#include "python/op_type.h"

namespace gemel {
namespace {

// Deeper lists are no parameters of any operation, and a list may contain itself.
constexpr int kDeepest = 64;

PyObject* tagged(PyObject* value, int depth = 0);

PyObject* tagged_items(PyObject* sequence, int depth) {
  if (depth > kDeepest) {
    PyErr_SetString(PyExc_TypeError, "a list that is so deep is not a static parameter");
    return nullptr;
  }
  Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence);
  Reference items(PyTuple_New(count + 1));
  if (!items) return nullptr;
  PyTuple_SET_ITEM(items.get(), 0, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(sequence))));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = tagged(PySequence_Fast_GET_ITEM(sequence, i), depth);
    if (item == nullptr) return nullptr;
    PyTuple_SET_ITEM(items.get(), i + 1, item);
  }
  return items.take();
}

// A float is represented by its bits: 0.0 equals -0.0, and NaN does not equal itself.
PyObject* tagged_float(PyObject* value) {
  double number = PyFloat_AS_DOUBLE(value);
  long long bits;
  std::memcpy(&bits, &number, sizeof bits);
  Reference key(PyLong_FromLongLong(bits));
  return key ? PyTuple_Pack(2, &PyFloat_Type, key.get()) : nullptr;
}

// Null with a Python error set if the value cannot be part of a key.
PyObject* tagged(PyObject* value, int depth) {
  if (PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || value == Py_None) {
    return Py_NewRef(value);
  }
  if (PyTuple_Check(value) || PyList_Check(value)) return tagged_items(value, depth + 1);
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

// Whether all these keywords are the operation's own. NumPy's common ones (out, where, dtype, ...)
// usually are not; such calls go to Python.
bool are_own(OpObject* op, PyObject* names) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    const int found = PySequence_Contains(op->parameters, PyTuple_GET_ITEM(names, i));
    if (found != 1) return false;
  }
  return true;
}

// There are two generations of keys. When the younger one is full it replaces the older one, whose
// keys are forgotten unless they were used meanwhile. A number is never reused, since prepared
// calls are found by it.
PyObject* find_id(OpObject* op, PyObject* key, PyObject* names) {
  constexpr Py_ssize_t kMostIds = 2048;
  constexpr uint32_t kEnd = 1u << 31;  // beyond this number calls go through Python
  PyObject* known = PyDict_GetItemWithError(op->parameter_ids, key);
  if (known != nullptr || PyErr_Occurred()) return Py_XNewRef(known);
  known = PyDict_GetItemWithError(op->older_parameter_ids, key);
  if (PyErr_Occurred() || (known == nullptr && op->next_parameter_id >= kEnd)) return nullptr;
  if (known == nullptr && !are_own(op, names)) return nullptr;
  Reference number(known != nullptr ? Py_NewRef(known)
                                    : PyLong_FromUnsignedLong(++op->next_parameter_id));
  if (!number) return nullptr;
  if (PyDict_GET_SIZE(op->parameter_ids) >= kMostIds) {
    PyObject* fresh = PyDict_New();
    if (fresh == nullptr) return nullptr;
    Py_XSETREF(op->older_parameter_ids, std::exchange(op->parameter_ids, fresh));
  }
  if (PyDict_SetItem(op->parameter_ids, key, number.get()) != 0) return nullptr;
  return number.take();
}

// --- the same objects again ---

// Whether a value can change later. Dictionary keys cannot, but lists can (a key has only their
// items).
bool may_change(PyObject* value) {
  if (!PyTuple_Check(value)) return PyList_Check(value);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
    if (may_change(PyTuple_GET_ITEM(value, i))) return true;
  }
  return false;
}

bool are_same(const RecentParameters& recent, PyObject* names, PyObject* const* values,
              Py_ssize_t count) {
  if (recent.count != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const bool same =
        recent.names[i] == PyTuple_GET_ITEM(names, i) && recent.values[i] == values[i];
    if (!same) return false;
  }
  return true;
}

void forget(RecentParameters& recent) {
  for (Py_ssize_t i = std::exchange(recent.count, 0); i-- > 0;) {
    Py_CLEAR(recent.names[i]);
    Py_CLEAR(recent.values[i]);
  }
}

void keep(OpObject* op, PyObject* names, PyObject* const* values, uint32_t id) {
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  if (count > RecentParameters::kMost || std::any_of(values, values + count, may_change)) return;
  RecentParameters& recent = op->recent[op->oldest++ % OpObject::kRecent];
  // Destroyed last, since that may run any code.
  RecentParameters forgotten = std::exchange(recent, {});
  for (Py_ssize_t i = 0; i < count; ++i) {
    recent.names[i] = Py_NewRef(PyTuple_GET_ITEM(names, i));
    recent.values[i] = Py_NewRef(values[i]);
  }
  recent.count = count;
  recent.id = id;
  forget(forgotten);
}

}  // namespace

int visit_recent(const OpObject* op, visitproc visit, void* arg) {
  for (const RecentParameters& recent : op->recent) {
    for (Py_ssize_t i = 0; i < recent.count; ++i) Py_VISIT(recent.values[i]);
  }
  return 0;
}

void forget_recent(OpObject* op) {
  for (RecentParameters& recent : op->recent) forget(recent);
}

bool parameters_id(OpObject* op, const Arguments& arguments, uint32_t* id) {
  *id = 0;
  if (arguments.names == nullptr || PyTuple_GET_SIZE(arguments.names) == 0) return true;
  PyObject* const* values = arguments.values + arguments.count;
  for (const RecentParameters& recent : op->recent) {
    if (!are_same(recent, arguments.names, values, PyTuple_GET_SIZE(arguments.names))) continue;
    *id = recent.id;
    return true;
  }
  Reference key(make_key(arguments));
  Reference number(key ? find_id(op, key.get(), arguments.names) : nullptr);
  if (!number) {
    PyErr_Clear();
    return false;
  }
  *id = static_cast<uint32_t>(PyLong_AsUnsignedLong(number.get()));
  keep(op, arguments.names, values, *id);
  return true;
}

Reference parameters_dict(const Arguments& arguments) {
  Reference dict = owned(PyDict_New());
  Py_ssize_t count = arguments.names == nullptr ? 0 : PyTuple_GET_SIZE(arguments.names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    check(PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(arguments.names, i),
                         arguments.values[arguments.count + i]));
  }
  return dict;
}

Reference inputs_tuple(const Arguments& arguments) {
  Reference tuple = owned(PyTuple_New(arguments.count));
  for (Py_ssize_t i = 0; i < arguments.count; ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(arguments.values[i]));
  }
  return tuple;
}

}  // namespace gemel
