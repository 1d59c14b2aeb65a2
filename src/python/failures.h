// Failures as Python exceptions, and the other way round.

#pragma once

#include <string>

#include "engine/engine.h"
#include "python/wall.h"

namespace gemel {

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

}  // namespace gemel
