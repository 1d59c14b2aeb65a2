// Specs as text, for the trace and for errors: "float32[2, 3]".

#pragma once

#include <string>

#include "python/array.h"

namespace gemel {

extern const char* const kDTypeNames[kDTypes];
std::string shape_text(const int64_t* shape, size_t ndim);
std::string describe(int code, const int64_t* shape, size_t ndim);
std::string describe(Array* array);

}  // namespace gemel
