// Calls without arrays (`zeros`, `sin(2.0)`): their results are new arrays on the current device.

#pragma once

#include "python/op_type.h"

namespace gemel {

// Null when Python has to make the call.
PyObject* call_creation(OpObject* op, const Operands& operands, const Arguments& arguments,
                        uint32_t parameters);
void forget_creations();

}  // namespace gemel
