// The trace as Python sees it; `trace_take` in the stub file describes it.

#pragma once

#include "python/failures.h"

namespace gemel {

void start_trace(size_t capacity);
void stop_trace();
// None and a new dict, or null with a Python error set.
PyObject* settle_trace();
PyObject* take_trace();

}  // namespace gemel
