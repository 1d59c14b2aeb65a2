// What the threads of the front end share or own: recording flags, random numbers, failures as
// Python exceptions, and where an operation was issued.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "engine/trace.h"

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

struct ThreadFlags {
  bool recording = false;
  bool training = false;
  int tracing = 0;   // how many traces are in progress
  int priority = 0;  // of what is issued
};
extern thread_local ThreadFlags thread_flags;

// The random stream: one seed, and the number of the next random call. Guarded by the GIL.
struct RandomState {
  int64_t seed = 0;
  int64_t next_call = 0;
};
extern RandomState random_stream;

// How often the tables of prepared calls knew the answer. Guarded by the GIL.
struct TableCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
};
extern TableCounters table_counters;

void set_exception_types(PyObject* types);
// Sets the Python error that a failure stands for, and marks it as seen.
void raise_failure(const FailurePointer& failure);
// Sets a Python error by the name of its class: one of the registered classes, or a builtin.
void raise_named(const char* type, const std::string& message);
// "message (issued at FILE:LINE)"; needs the GIL.
std::string failure_text(const Failure& failure);

bool install_exit_hooks(PyObject* module);
void install_fork_hooks();

}  // namespace gemel
