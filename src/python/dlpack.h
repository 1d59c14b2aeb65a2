// DLPack: sharing arrays with other libraries without copying, in both directions.

#pragma once

#include <optional>

#include "python/array.h"

namespace gemel {

// A new capsule over the array's own memory. The array counts as exported until the consumer (or
// the unused capsule) releases it. Waits until nothing is pending on the array. Throws. `copied` is
// passed on to the consumer.
PyObject* to_dlpack(PyObject* array, bool versioned, bool copied);
// A new array over the memory of a capsule, which is consumed. If `copy` is true, or if a copy is
// needed and `copy` does not rule it out, the array is over a copy. Throws.
PyObject* from_dlpack(PyObject* capsule, int device, std::optional<bool> copy);

}  // namespace gemel
