#include "python/state.h"

#include <string>

#include "python/origins.h"

namespace gemel {

thread_local ThreadFlags thread_flags;
RandomState random_stream;
TableCounters table_counters;

namespace {

PyObject* exception_types = nullptr;

PyObject* exception_type(const std::string& name) {
  if (exception_types != nullptr) {
    PyObject* found = PyDict_GetItemString(exception_types, name.c_str());
    if (found != nullptr) return found;
  }
  PyObject* builtins = PyEval_GetBuiltins();
  PyObject* found = builtins == nullptr ? nullptr : PyDict_GetItemString(builtins, name.c_str());
  return found != nullptr && PyExceptionClass_Check(found) ? found : PyExc_RuntimeError;
}

}  // namespace

void set_exception_types(PyObject* types) {
  Py_INCREF(types);
  Py_XDECREF(exception_types);
  exception_types = types;
}

std::string failure_text(const Failure& failure) {
  const int line = line_of(failure.origin);
  if (line == 0) return failure.message;
  return failure.message + " (issued at " + file_of(failure.origin) + ":" + std::to_string(line) +
         ")";
}

void raise_failure(const FailurePointer& failure) {
  failure->seen.store(true);
  std::string text = failure_text(*failure);
  PyErr_SetString(exception_type(failure->type), text.c_str());
}

void raise_named(const char* type, const std::string& message) {
  PyErr_SetString(exception_type(type), message.c_str());
}

}  // namespace gemel
