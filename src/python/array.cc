#include "python/array.h"

#include <cstring>
#include <new>

#include "python/history.h"
#include "python/op_type.h"
#include "python/waits.h"

namespace gemel {

PyTypeObject* array_type = nullptr;
PyTypeObject* array_class = nullptr;

namespace {

constexpr int kMaxFree = 256;
Array* free_arrays[kMaxFree];
int free_count = 0;

double upper_half_to_double(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

double half_to_double(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  uint32_t exponent = half >> 10 & 31;
  uint32_t mantissa = half & 1023;
  if (exponent == 0) {
    double magnitude = mantissa * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  uint32_t bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

template <typename T>
T load(const char* address) {
  T value;
  std::memcpy(&value, address, sizeof value);
  return value;
}

// Runs the operation registered as `copy` into a new array with the wanted layout.
Reference copied_into(PyObject* source, Reference target) {
  auto* operation = reinterpret_cast<OpObject*>(find_operator("copy"));
  call_into(operation, target.get(), Arguments{&source, 1, nullptr});
  return target;
}

}  // namespace

Tensor& checked_tensor(PyObject* object, const char* who) {
  if (is_array(object)) return tensor_of(object);
  throw Error("TypeError", std::string(who) + " needs an array");
}

Reference blank_array() {
  Array* array;
  if (free_count > 0) {
    array = free_arrays[--free_count];
    PyObject_Init(as_object(array), array_class);
  } else {
    // The garbage collector tracks an array only once it refers to other objects (see
    // array_type.cc).
    array = PyObject_GC_New(Array, array_class);
    if (array == nullptr) throw PythonError{};
  }
  new (&array->tensor) Tensor;
  array->history = nullptr;
  array->grad = array->weak_references = nullptr;
  return Reference(as_object(array));
}

void free_array(PyObject* object) {
  Array* array = as_array(object);
  PyTypeObject* type = Py_TYPE(object);
  if (PyObject_GC_IsTracked(object)) PyObject_GC_UnTrack(object);
  if (array->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  if (array->history != nullptr) set_history(object, nullptr, nullptr);
  Py_CLEAR(array->grad);
  array->tensor.~Tensor();
  if (type == array_class && free_count < kMaxFree) {
    free_arrays[free_count++] = array;
  } else {
    type->tp_free(object);
  }
  Py_DECREF(type);
}

Reference new_array(int code, const int64_t* extents, int rank, int device) {
  Reference array = blank_array();
  tensor_of(array).make(code, extents, rank, device);
  return array;
}

Reference new_array_like(const Tensor& tensor, int device) {
  return new_array(tensor.dtype, tensor.extents(), tensor.ndim, device);
}

Reference copy_of(PyObject* array) {
  const Tensor& tensor = tensor_of(array);
  return copied_into(array, new_array_like(tensor, tensor.device()));
}

Reference dense(PyObject* array) {
  return tensor_of(array).contiguous ? borrowed(array) : copy_of(array);
}

PyObject* read_element(const char* address, int code) {
  switch (code) {
    case kBool:
      return PyBool_FromLong(*address != 0);
    case kUInt8:
      return PyLong_FromLong(load<uint8_t>(address));
    case kInt8:
      return PyLong_FromLong(load<int8_t>(address));
    case kInt32:
      return PyLong_FromLong(load<int32_t>(address));
    case kInt64:
      return PyLong_FromLongLong(load<int64_t>(address));
    case kUInt32:
      return PyLong_FromUnsignedLong(load<uint32_t>(address));
    case kUInt64:
      return PyLong_FromUnsignedLongLong(load<uint64_t>(address));
    case kInt16:
      return PyLong_FromLong(load<int16_t>(address));
    case kUInt16:
      return PyLong_FromLong(load<uint16_t>(address));
    case kFloat16:
      return PyFloat_FromDouble(half_to_double(load<uint16_t>(address)));
    case kBFloat16:
      return PyFloat_FromDouble(upper_half_to_double(load<uint16_t>(address)));
    case kFloat32:
      return PyFloat_FromDouble(load<float>(address));
    case kComplex64:
      return PyComplex_FromDoubles(load<float>(address), load<float>(address + 4));
    case kComplex128:
      return PyComplex_FromDoubles(load<double>(address), load<double>(address + 8));
    default:
      return PyFloat_FromDouble(load<double>(address));
  }
}

}  // namespace gemel
