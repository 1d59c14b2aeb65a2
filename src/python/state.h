// What the threads of the front end share or own: recording flags, random numbers, and failures as
// Python exceptions.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "python/wall.h"

namespace gemel {

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

// How often the caches of prepared calls knew the answer. Guarded by the GIL.
struct CacheCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
};
extern CacheCounters cache_counters;

void set_exception_types(PyObject* types);
// Sets the Python error that a failure stands for, and marks it as seen: the exception it came
// from, when there was one.
void raise_failure(const FailurePointer& failure);
// Sets a Python error by the name of its class: one of the registered classes, or a builtin.
void raise_named(const char* type, const std::string& message);
// "message (issued at FILE:LINE)"; needs the GIL.
std::string failure_text(const Failure& failure);
// The Python error that is set, as a failure which keeps the exception; clears it. `who` is named
// in its text.
FailurePointer failure_from_error(const std::string& who);

bool install_exit_hooks(PyObject* module);
void install_fork_hooks();

}  // namespace gemel
