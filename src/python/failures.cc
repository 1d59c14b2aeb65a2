#include "python/failures.h"

#include <cstring>

#include "python/origins.h"

namespace gemel {

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

// An exception, and the traceback it was caught with.
struct Caught {
  PyObject* value;
  PyObject* traceback;
  ~Caught() {
    drop_later(value);
    drop_later(traceback);
  }
};

// Says where the failed operation was issued, once.
void add_note(PyObject* exception, const std::string& note) {
#if PY_VERSION_HEX >= 0x030B0000
  Reference notes(PyObject_GetAttrString(exception, "__notes__"));
  PyErr_Clear();
  Reference text(PyUnicode_FromStringAndSize(note.data(), static_cast<Py_ssize_t>(note.size())));
  if (text && !(notes && PySequence_Contains(notes.get(), text.get()) == 1)) {
    Reference done(PyObject_CallMethod(exception, "add_note", "O", text.get()));
  }
  PyErr_Clear();
#else
  (void)exception, (void)note;
#endif
}

void raise_caught(const Caught& caught, const Failure& failure) {
  add_note(caught.value, failure_text(failure));
  // With the traceback it was caught with: it must not grow from wait to wait.
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(caught.value))),
                Py_NewRef(caught.value), Py_XNewRef(caught.traceback));
}

}  // namespace

void set_exception_types(PyObject* types) { Py_XSETREF(exception_types, Py_NewRef(types)); }

std::string failure_text(const Failure& failure) {
  const int line = line_of(failure.origin);
  if (line == 0) return failure.message;
  return failure.message + " (issued at " + shown_file(file_of(failure.origin)) + ":" +
         std::to_string(line) + ")";
}

void raise_failure(const FailurePointer& failure) {
  failure->seen.store(true);
  if (failure->payload != nullptr) {
    raise_caught(*static_cast<const Caught*>(failure->payload.get()), *failure);
    return;
  }
  std::string text = failure_text(*failure);
  PyErr_SetString(exception_type(failure->type), text.c_str());
}

void raise_named(const char* type, const std::string& message) {
  PyErr_SetString(exception_type(type), message.c_str());
}

FailurePointer failure_from_error(const std::string& who) {
  // Ctrl-C is meant for the program, not for the operation that happened to run: say it again.
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Reference kept_type(type), kept_value(value), kept_traceback(traceback);
  Reference text(value == nullptr ? nullptr : PyObject_Str(value));
  const char* message = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (message == nullptr) {
    PyErr_Clear();
    message = "an error without a message";
  }
  const char* full = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  const char* dot = std::strrchr(full, '.');
  std::shared_ptr<void> caught;
  if (value != nullptr) {
    caught = std::shared_ptr<Caught>(new Caught{kept_value.take(), kept_traceback.take()});
  }
  return std::make_shared<Failure>(dot == nullptr ? full : dot + 1, who + ": " + message, Origin(),
                                   std::move(caught));
}

}  // namespace gemel
