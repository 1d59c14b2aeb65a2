// Copies between devices, by the lane of the link between them.

#pragma once

#include "python/array.h"
#include "python/state.h"
#include "python/waits.h"

namespace gemel {

// Issues the copy to another device; a new array, or null with a Python error set.
PyObject* copy_to_device(Array* source, int device);
// The same into an array of the same size and dtype, which is contiguous; false with a Python
// error.
bool copy_across(Array* source, Array* target);
// The array itself where the CPU can read it, else a copy on cpu(0); null with a Python error set.
Reference in_memory(Array* array);
// read.cc: copies the elements in C order to memory outside. Waits; false with a Python error set.
bool read_elements(Array* array, char* to);

}  // namespace gemel
