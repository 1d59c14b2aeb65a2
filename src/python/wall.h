// Between Python's C interface and C++: owned references, errors as exceptions, and the wall that
// lets no exception through into CPython.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <new>
#include <utility>

#include "program/error.h"

namespace gemel {

// An owned reference. Only where the GIL is held.
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

// The error is set in Python.
struct PythonError {};

// A new reference, or the exception for the error that is set.
inline Reference owned(PyObject* object) {
  if (object == nullptr) throw PythonError{};
  return Reference(object);
}
inline Reference borrowed(PyObject* object) { return Reference(Py_NewRef(object)); }
inline void check(int status) {
  if (status < 0) throw PythonError{};
}
// Sets the exception in flight as Python's error.
void set_error_in_flight() noexcept;

// Drops a reference from any thread, GIL or not: it is left to the next thread that has the GIL.
void drop_later(PyObject* object) noexcept;
// Drops what is left; needs the GIL.
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

// The function for a slot or a method table: what it throws becomes Python's error.
template <auto function>
void* slot() {
  return reinterpret_cast<void*>(&wall::Guarded<function>::call);
}
template <auto function>
PyCFunction method() {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(slot<function>()));
}

}  // namespace gemel
