// What a backward pass asks of the recorded calls it goes through (gemel/tape/steps.py).

#pragma once

#include "python/tape.h"

namespace gemel {

// Adds calls_before, leading, step_words, saved_arrays and turned to the module.
bool add_step_functions(PyObject* module);

}  // namespace gemel
