#include "python/array.h"

#include <cstring>
#include <new>

#include "python/copy.h"
#include "python/state.h"
#include "python/waits.h"

namespace gemel {

const int64_t kItemSize[10] = {1, 1, 1, 4, 8, 2, 4, 8, 4, 8};

PyTypeObject* array_type = nullptr;
PyTypeObject* array_class = nullptr;

namespace {

constexpr int kMaxFree = 256;
Array* free_arrays[kMaxFree];
int free_count = 0;

// Everything but dims is left for the caller to fill in.
Array* allocate(int ndim) {
  if (ndim > kMaxRank) {
    PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions, not %d", kMaxRank, ndim);
    return nullptr;
  }
  Array* array;
  if (free_count > 0) {
    array = free_arrays[--free_count];
    PyObject_Init(as_object(array), array_class);
  } else {
    // Not tracked by the garbage collector until it refers to something (see array_type.cc).
    array = PyObject_GC_New(Array, array_class);
    if (array == nullptr) return nullptr;
  }
  array->ndim = static_cast<uint8_t>(ndim);
  array->dims = array->inline_dims;
  array->storage = nullptr;
  array->tape = array->grad = array->weak_references = nullptr;
  if (ndim > kInlineRank) {
    array->dims = static_cast<int64_t*>(PyMem_Malloc(sizeof(int64_t) * 2 * ndim));
    if (array->dims == nullptr) {
      array->dims = array->inline_dims;
      Py_DECREF(array);
      PyErr_NoMemory();
      return nullptr;
    }
  }
  return array;
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

// The product of the extents, or -1 when the bytes would not fit 63 bits.
int64_t checked_size(int code, const int64_t* shape, int ndim) {
  int64_t size = 1;
  for (int axis = 0; axis < ndim; ++axis) {
    if (__builtin_mul_overflow(size, shape[axis], &size)) return -1;
  }
  int64_t bytes;
  return __builtin_mul_overflow(size, kItemSize[code], &bytes) ? -1 : size;
}

}  // namespace

void free_array(PyObject* object) {
  Array* array = as_array(object);
  PyTypeObject* type = Py_TYPE(object);
  if (PyObject_GC_IsTracked(object)) PyObject_GC_UnTrack(object);
  if (array->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  Py_CLEAR(array->tape);
  Py_CLEAR(array->grad);
  if (array->storage != nullptr) array->storage->release();
  if (array->dims != array->inline_dims) PyMem_Free(array->dims);
  if (type == array_class && free_count < kMaxFree) {
    free_arrays[free_count++] = array;
  } else {
    type->tp_free(object);
  }
  Py_DECREF(type);
}

Array* new_array(int code, const int64_t* shape, int ndim, int device) {
  int64_t size = checked_size(code, shape, ndim);
  if (size < 0) {
    PyErr_SetString(PyExc_MemoryError, "the array is larger than any address space");
    return nullptr;
  }
  Array* array = allocate(ndim);
  if (array == nullptr) return nullptr;
  try {
    array->storage = Storage::create(static_cast<size_t>(size * kItemSize[code]), device);
  } catch (const std::bad_alloc&) {
    Py_DECREF(array);
    PyErr_NoMemory();
    return nullptr;
  }
  array->code = static_cast<uint8_t>(code);
  array->offset = 0;
  array->size = size;
  array->contiguous = true;
  for (int axis = 0; axis < ndim; ++axis) array->dims[axis] = shape[axis];
  contiguous_strides(array->shape(), ndim, array->strides());
  return array;
}

Array* new_array_with_memory(int code, const int64_t* shape, int ndim, int device) {
  Array* array = new_array(code, shape, ndim, device);
  if (array == nullptr) return nullptr;
  if (array->size > 0 && array->storage->materialize() == nullptr) {
    PyErr_Format(PyExc_MemoryError, "no memory for an array of %lld bytes",
                 static_cast<long long>(array->size * kItemSize[code]));
    Py_DECREF(array);
    return nullptr;
  }
  return array;
}

Array* new_view(Storage* storage, int code, const int64_t* shape, const int64_t* strides, int ndim,
                int64_t offset) {
  Array* array = allocate(ndim);
  if (array == nullptr) return nullptr;
  storage->retain();
  array->storage = storage;
  array->code = static_cast<uint8_t>(code);
  array->offset = offset;
  array->size = element_count(shape, ndim);
  for (int axis = 0; axis < ndim; ++axis) array->dims[axis] = shape[axis];
  if (strides == nullptr) {
    contiguous_strides(shape, ndim, array->strides());
    array->contiguous = true;
  } else {
    for (int axis = 0; axis < ndim; ++axis) array->strides()[axis] = strides[axis];
    array->contiguous = is_contiguous(shape, strides, ndim);
  }
  return array;
}

bool wait_for(Array* array) { return wait_for_storage(array->storage); }

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
    case kFloat16:
      return PyFloat_FromDouble(half_to_double(load<uint16_t>(address)));
    case kFloat32:
      return PyFloat_FromDouble(load<float>(address));
    default:
      return PyFloat_FromDouble(load<double>(address));
  }
}

PyObject* array_item(Array* array) {
  if (array->size != 1) {
    PyErr_Format(PyExc_ValueError,
                 "only an array with one element converts to a Python scalar; this one has %lld",
                 static_cast<long long>(array->size));
    return nullptr;
  }
  Reference host = in_memory(array);
  if (!host || !wait_for(as_array(host.get()))) return nullptr;
  return read_element(array_data(as_array(host.get())), array->code);
}

}  // namespace gemel
