#include "python/failures.h"

#include <cstring>
#include <utility>

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

// An exception, and the traceback with which it was caught. The traceback is kept only until it has
// been shown once: its frames may lead to the code that waited and ran the callback, which holds
// arrays, which hold this failure.
struct Caught {
  PyObject* value;
  PyObject* traceback;
  std::string shown = {};  // the traceback as text, after it has been shown
  ~Caught() {
    drop_later(value);
    drop_later(traceback);
  }
};

// Adds a note that says where the failed operation was issued, unless the exception has it already.
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

// Calls a function of one of Python's own modules. Null, without a Python error, if that fails.
Reference called(const char* module, const char* function, PyObject* argument) {
  Reference home(PyImport_ImportModule(module));
  Reference found(home ? PyObject_CallMethod(home.get(), function, "O", argument) : nullptr);
  PyErr_Clear();
  return found;
}

// A traceback in the form in which Python prints it.
std::string text_of(PyObject* traceback) {
  Reference lines = called("traceback", "format_tb", traceback);
  Reference nothing(PyUnicode_FromString(""));
  Reference text(lines && nothing ? PyUnicode_Join(nothing.get(), lines.get()) : nullptr);
  const char* found = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return found == nullptr ? "" : std::string("raised at\n") + found;
}

bool is_like(PyObject* copy, PyObject* value) {
  if (copy == nullptr || Py_TYPE(copy) != Py_TYPE(value)) return false;
  Reference first(PyObject_GetAttrString(copy, "args"));
  Reference second(PyObject_GetAttrString(value, "args"));
  const bool same =
      first && second && PyObject_RichCompareBool(first.get(), second.get(), Py_EQ) == 1;
  PyErr_Clear();
  return same;
}

// Another exception like this one; the same object if it cannot be copied.
Reference another(PyObject* value) {
  Reference copy = called("copy", "copy", value);
  if (is_like(copy.get(), value)) return copy;
  // The class takes other arguments than `args` has: create the object without calling the class.
  Reference arguments(PyObject_GetAttrString(value, "args"));
  Reference state(PyObject_GetAttrString(value, "__dict__"));
  if (arguments && state) {
    copy = Reference(Py_TYPE(value)->tp_new(Py_TYPE(value), arguments.get(), nullptr));
    Reference own(copy ? PyObject_GetAttrString(copy.get(), "__dict__") : nullptr);
    if (own && PyDict_Update(own.get(), state.get()) == 0 && is_like(copy.get(), value))
      return copy;
  }
  PyErr_Clear();
  return borrowed(value);
}

// The exception that is raised also collects frames of the program. So each wait raises a copy, and
// the kept exception does not refer to any frames. An exception that cannot be copied is raised
// itself.
void raise_caught(Caught& caught, const Failure& failure) {
  Reference raised = another(caught.value);
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(caught.value));
  if (raised.get() != caught.value) {
    PyException_SetContext(raised.get(), PyException_GetContext(caught.value));
    PyObject* cause = PyException_GetCause(caught.value);
    if (cause != nullptr) PyException_SetCause(raised.get(), cause);
    // Those before it lead to frames, too, and from there to readers, whose arrays keep the
    // failure.
    PyException_SetContext(caught.value, nullptr);
    PyException_SetCause(caught.value, nullptr);
  }
  add_note(raised.get(), failure_text(failure));
  if (caught.traceback == nullptr) {
    add_note(raised.get(), caught.shown);
  } else {
    caught.shown = text_of(caught.traceback);
  }
  PyErr_Restore(Py_NewRef(type), raised.take(), std::exchange(caught.traceback, nullptr));
}

// Clears the frames that the exception and those before it passed through, so that they release
// what they hold.
void clear_frames(PyObject* value, PyObject* traceback) {
  if (traceback != nullptr) called("traceback", "clear_frames", traceback);
  PyException_SetTraceback(value, Py_None);
  Reference before(PyException_GetCause(value));
  if (!before) {
    // After `raise ... from None` the one before is never shown, but would be kept with the
    // failure.
    Reference hidden(PyObject_GetAttrString(value, "__suppress_context__"));
    if (hidden && hidden.get() == Py_True) PyException_SetContext(value, nullptr);
    before = Reference(PyException_GetContext(value));
  }
  for (int links = 0; before && links < 100; ++links) {
    Reference its(PyException_GetTraceback(before.get()));
    if (its) called("traceback", "clear_frames", its.get());
    Reference next(PyException_GetCause(before.get()));
    before = next ? std::move(next) : Reference(PyException_GetContext(before.get()));
  }
}

}  // namespace

void set_exception_types(PyObject* types) { Py_XSETREF(exception_types, Py_NewRef(types)); }

std::string failure_text(const Failure& failure) {
  const std::string line = shown_line(failure.origin);
  return line.empty() ? failure.message : failure.message + " (issued at " + line + ")";
}

void raise_failure(const FailurePointer& failure) {
  failure->seen.store(true);
  if (failure->payload != nullptr) {
    raise_caught(*static_cast<Caught*>(failure->payload.get()), *failure);
    return;
  }
  std::string text = failure_text(*failure);
  PyErr_SetString(exception_type(failure->type), text.c_str());
}

void raise_named(const char* type, const std::string& message) {
  PyErr_SetString(exception_type(type), message.c_str());
}

FailurePointer failure_from_error(const std::string& who) {
  // Ctrl-C is meant for the program, not for the operation that happened to run: signal it again.
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
    clear_frames(value, traceback);
    caught = std::shared_ptr<Caught>(new Caught{kept_value.take(), kept_traceback.take()});
  }
  return std::make_shared<Failure>(dot == nullptr ? full : dot + 1, who + ": " + message, Origin(),
                                   std::move(caught));
}

}  // namespace gemel
