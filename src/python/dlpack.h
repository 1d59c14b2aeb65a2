// DLPack: arrays shared with other libraries without copying, both ways.

#pragma once

#include <optional>

#include "python/array.h"

namespace gemel {

// A new capsule over the array's own memory, which counts as exported until the consumer (or the
// unused capsule) gives it back. Waits until nothing is pending on it. Throws.
// `copied` is what the consumer is told.
PyObject* to_dlpack(PyObject* array, bool versioned, bool copied);
// A new array over what a capsule holds, which is used up; over a copy where asked for or, unless
// that is ruled out, needed. Throws.
PyObject* from_dlpack(PyObject* capsule, int device, std::optional<bool> copy);

}  // namespace gemel
