// Between Python's C interface and C++: owned references, errors as exceptions, and a wall that
// lets no C++ exception through into CPython.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <new>
#include <utility>

#include "program/error.h"

namespace gemel {

// An owned reference. Use it only with the GIL held.
class Reference {
 public:
  Reference() = default;
  explicit Reference(PyObject* object) : object_(object) {}
  Reference(Reference&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  ~Reference() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* take() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Thrown when a Python error has been set.
struct PythonError {};

// Owns a new reference, or throws PythonError if it is null.
inline Reference owned(PyObject* object) {
  if (object == nullptr) throw PythonError{};
  return Reference(object);
}
inline Reference borrowed(PyObject* object) { return Reference(Py_NewRef(object)); }
inline void check(int status) {
  if (status < 0) throw PythonError{};
}
// When the interpreter shuts down, it ends a thread that asks for the GIL by unwinding its stack.
// That must not pass through C++ code, where it would drop objects without the GIL, or abort. Such
// a thread sleeps here for ever, and the process ends without it.
[[noreturn]] void sleep_for_ever();

// Makes a call that may run Python code or wait for the GIL.
template <typename Call>
auto into_python(Call&& call) {
  try {
    return call();
  } catch (...) {  // Python throws no exceptions: this is its forced unwinding of the thread
    sleep_for_ever();
  }
}

// Calls a method; throws if that fails.
template <typename... Arguments>
Reference call_method(PyObject* self, const char* name, const char* format, Arguments... given) {
  return owned(into_python([&] { return PyObject_CallMethod(self, name, format, given...); }));
}

// Turns the C++ exception being handled into Python's error.
void set_error_in_flight() noexcept;

// Drops a reference from any thread, with or without the GIL: the next thread that holds the GIL
// does it.
void drop_later(PyObject* object) noexcept;
// Drops these references; needs the GIL.
void drop_now();

namespace wall {

template <typename Result>
constexpr Result failed() {
  if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else {
    return static_cast<Result>(-1);
  }
}
template <>
constexpr void failed<void>() {}

template <auto function>
struct Guarded;
template <typename Result, typename... Arguments, Result (*function)(Arguments...)>
struct Guarded<function> {
  static Result call(Arguments... arguments) {
    try {
      return function(arguments...);
    } catch (const PythonError&) {
    } catch (const std::exception&) {
      set_error_in_flight();
    }
    return failed<Result>();
  }
};

}  // namespace wall

// The function for a slot or a method table: its C++ exceptions become Python errors.
template <auto function>
void* slot() {
  return reinterpret_cast<void*>(&wall::Guarded<function>::call);
}
template <auto function>
PyCFunction method() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(slot<function>()));
}

}  // namespace gemel
