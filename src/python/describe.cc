#include "python/describe.h"

namespace gemel {

const char* const kDTypeNames[kDTypes] = {"bool",  "uint8",   "int8",    "int32",
                                          "int64", "float16", "float32", "float64"};

std::string shape_text(const int64_t* shape, size_t ndim) {
  std::string text = "(";
  for (size_t axis = 0; axis < ndim; ++axis) {
    text += std::to_string(shape[axis]) + (axis + 1 < ndim ? ", " : ndim == 1 ? "," : "");
  }
  return text + ")";
}

std::string describe(int code, const int64_t* shape, size_t ndim) {
  std::string text = kDTypeNames[code];
  for (size_t axis = 0; axis < ndim; ++axis) {
    text += (axis == 0 ? "[" : ", ") + std::to_string(shape[axis]);
  }
  return ndim == 0 ? text + "[]" : text + "]";
}

std::string describe(Array* array) { return describe(array->code, array->dims, array->ndim); }

}  // namespace gemel
