// DLPack: arrays shared with other libraries without copying, and copied from them.

#pragma once

#include "python/array.h"

namespace gemel {

// A new capsule over the array's own memory, which counts as exported until the consumer (or the
// unused capsule) gives it back. Waits until nothing is pending on it. Throws.
PyObject* to_dlpack(PyObject* array, bool versioned);
// A new array with a copy of what a capsule holds; the capsule is used up. Throws.
PyObject* from_dlpack(PyObject* capsule);

}  // namespace gemel
