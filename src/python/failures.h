// Failures as Python exceptions, and Python exceptions as failures.

#pragma once

#include <string>

#include "engine/engine.h"
#include "python/wall.h"

namespace gemel {

void set_exception_types(PyObject* types);
// Sets the Python error that a failure stands for, and marks the failure as seen. If the failure
// came from an exception, that exception is raised again.
void raise_failure(const FailurePointer& failure);
// Sets a Python error by the name of its class: one of the registered classes or a builtin.
void raise_named(const char* type, const std::string& message);
// "message (issued at FILE:LINE)"; needs the GIL.
std::string failure_text(const Failure& failure);
// Turns the current Python error into a failure that keeps the exception, and clears the error. The
// failure's text names `who`.
FailurePointer failure_from_error(const std::string& who);

}  // namespace gemel
