#include "python/dlpack.h"

#include <cstring>
#include <memory>

#include "python/state.h"

namespace gemel {
namespace {

// The binary interface of DLPack 1.0: layouts and numbers are the standard's.
struct Device {
  int32_t type;
  int32_t number;
};
struct ElementType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  ElementType type;
  int64_t* shape;
  int64_t* strides;  // elements; null when C-contiguous
  uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};

constexpr int32_t kCpuType = 1;
constexpr uint32_t kMajor = 1;
enum TypeCode : uint8_t { kSigned = 0, kUnsigned = 1, kFloat = 2, kBoolean = 6 };

constexpr ElementType kTypes[kDTypes] = {{kBoolean, 8, 1}, {kUnsigned, 8, 1}, {kSigned, 8, 1},
                                         {kSigned, 32, 1}, {kSigned, 64, 1},  {kFloat, 16, 1},
                                         {kFloat, 32, 1},  {kFloat, 64, 1}};

template <typename M>
constexpr const char* kName = "dltensor";
template <>
constexpr const char* kName<ManagedVersioned> = "dltensor_versioned";
template <typename M>
constexpr const char* kUsedName = "used_dltensor";
template <>
constexpr const char* kUsedName<ManagedVersioned> = "used_dltensor_versioned";

// What a consumer holds.
template <typename M>
struct Shared {
  M managed{};
  Storage* storage = nullptr;
  int64_t dims[2 * kMaxRank];
};

// From any thread, with or without the GIL.
template <typename M>
void give_back(M* managed) {
  std::unique_ptr<Shared<M>> shared(static_cast<Shared<M>*>(managed->context));
  if (Py_IsInitialized()) {
    PyGILState_STATE state = PyGILState_Ensure();
    end_export(shared->storage);
    PyGILState_Release(state);
  }
  shared->storage->release();
}

// Of a capsule nobody has used.
template <typename M>
void drop_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kName<M>)) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
  managed->deleter(managed);
}

template <typename M>
PyObject* share(Array* array) {
  auto shared = std::make_unique<Shared<M>>();
  std::memcpy(shared->dims, array->dims, sizeof(int64_t) * 2 * array->ndim);
  Tensor& tensor = shared->managed.tensor;
  tensor.data = array->size == 0 ? nullptr : array_data(array);
  tensor.device = {kCpuType, 0};
  tensor.ndim = array->ndim;
  tensor.type = kTypes[array->code];
  tensor.shape = shared->dims;
  tensor.strides = shared->dims + array->ndim;
  if constexpr (std::is_same_v<M, ManagedVersioned>) shared->managed.major = kMajor;
  shared->managed.context = shared.get();
  shared->managed.deleter = give_back<M>;
  shared->storage = array->storage;
  PyObject* capsule = PyCapsule_New(&shared->managed, kName<M>, drop_capsule<M>);
  if (capsule == nullptr) return nullptr;
  array->storage->retain();
  begin_export(array->storage);
  shared.release();
  return capsule;
}

int code_of(const ElementType& type) {
  for (int code = 0; code < kDTypes; ++code) {
    const ElementType& known = kTypes[code];
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return code;
  }
  return -1;
}

bool check(const Tensor& tensor) {
  if (tensor.device.type != kCpuType) {
    PyErr_Format(PyExc_BufferError,
                 "from_dlpack: the data is on a device of type %d; copy it to the CPU first",
                 static_cast<int>(tensor.device.type));
    return false;
  }
  if (code_of(tensor.type) < 0) {
    PyErr_Format(PyExc_BufferError,
                 "from_dlpack: no dtype here has type code %d, %d bits and %d lanes; convert first",
                 tensor.type.code, tensor.type.bits, tensor.type.lanes);
    return false;
  }
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank) {
    PyErr_Format(PyExc_BufferError, "from_dlpack: %d dimensions; at most %d are possible",
                 tensor.ndim, kMaxRank);
    return false;
  }
  bool empty = false;
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.shape[axis] < 0) {
      PyErr_SetString(PyExc_BufferError, "from_dlpack: an extent is negative");
      return false;
    }
    empty = empty || tensor.shape[axis] == 0;
  }
  if (tensor.data == nullptr && !empty) {
    PyErr_SetString(PyExc_BufferError, "from_dlpack: there are elements, but no memory");
    return false;
  }
  return true;
}

char* gather(const Tensor& tensor, int axis, const char* from, int64_t size, char* to) {
  if (axis == tensor.ndim) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return to + size;
  }
  int64_t stride = 1;
  if (tensor.strides != nullptr) {
    stride = tensor.strides[axis];
  } else {
    for (int later = axis + 1; later < tensor.ndim; ++later) stride *= tensor.shape[later];
  }
  for (int64_t i = 0; i < tensor.shape[axis]; ++i) {
    to = gather(tensor, axis + 1, from + i * stride * size, size, to);
  }
  return to;
}

PyObject* copied(const Tensor& tensor) {
  if (!check(tensor)) return nullptr;
  const int code = code_of(tensor.type);
  Array* array = new_array_with_memory(code, tensor.shape, tensor.ndim, 0);
  if (array == nullptr || array->size == 0) return as_object(array);
  const char* from = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  gather(tensor, 0, from, kItemSize[code], array_data(array));
  return as_object(array);
}

template <typename M>
PyObject* take(PyObject* capsule) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
  if (managed == nullptr) return nullptr;
  PyObject* array = copied(managed->tensor);
  if (array == nullptr) return nullptr;  // the capsule stays usable, and frees what it holds
  PyCapsule_SetName(capsule, kUsedName<M>);
  if (managed->deleter != nullptr) managed->deleter(managed);
  return array;
}

}  // namespace

PyObject* to_dlpack(Array* array, bool versioned) {
  if (!wait_until_idle(array)) return nullptr;
  return versioned ? share<ManagedVersioned>(array) : share<Managed>(array);
}

PyObject* from_dlpack(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName<ManagedVersioned>)) {
    auto* managed =
        static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule, kName<ManagedVersioned>));
    if (managed->major == kMajor) return take<ManagedVersioned>(capsule);
    PyErr_Format(PyExc_BufferError, "from_dlpack: version %u of DLPack is not known here",
                 managed->major);
    return nullptr;
  }
  if (PyCapsule_IsValid(capsule, kName<Managed>)) return take<Managed>(capsule);
  PyErr_SetString(PyExc_BufferError, "from_dlpack: this is no DLPack capsule, or a used one");
  return nullptr;
}

}  // namespace gemel
