#include "python/dlpack.h"

#include <cstring>
#include <memory>

#include "python/array.h"

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
struct Shape {
  void* data;
  Device device;
  int32_t ndim;
  ElementType type;
  int64_t* shape;
  int64_t* strides;  // elements; null when C-contiguous
  uint64_t byte_offset;
};
struct Managed {
  Shape tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Shape tensor;
};

constexpr int32_t kCpuType = 1;
constexpr uint32_t kMajor = 1;

ElementType type_of(const DType& dtype) {
  return {dtype.exchange, static_cast<uint8_t>(dtype.size * 8), 1};
}

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
  shared->storage->end_export();
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
PyObject* share(const Tensor& source) {
  auto shared = std::make_unique<Shared<M>>();
  std::memcpy(shared->dims, source.extents(), sizeof(int64_t) * 2 * source.ndim);
  Shape& tensor = shared->managed.tensor;
  tensor.data = source.size == 0 ? nullptr : source.data();
  tensor.device = {kCpuType, 0};
  tensor.ndim = source.ndim;
  tensor.type = type_of(kDTypes[source.dtype]);
  tensor.shape = shared->dims;
  tensor.strides = shared->dims + source.ndim;
  if constexpr (std::is_same_v<M, ManagedVersioned>) shared->managed.major = kMajor;
  shared->managed.context = shared.get();
  shared->managed.deleter = give_back<M>;
  shared->storage = source.storage;
  Reference capsule = owned(PyCapsule_New(&shared->managed, kName<M>, drop_capsule<M>));
  source.storage->retain();
  source.storage->begin_export();
  shared.release();
  return capsule.take();
}

int code_of(const ElementType& type) {
  for (int code = 0; code < kDTypeCount; ++code) {
    const ElementType known = type_of(kDTypes[code]);
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return code;
  }
  return -1;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error("BufferError", "from_dlpack: " + what);
}

void check(const Shape& tensor) {
  if (tensor.device.type != kCpuType) {
    refuse("the data is on a device of type " + std::to_string(tensor.device.type) +
           "; copy it to the CPU first");
  }
  if (code_of(tensor.type) < 0) {
    refuse("no dtype here has type code " + std::to_string(tensor.type.code) + ", " +
           std::to_string(tensor.type.bits) + " bits and " + std::to_string(tensor.type.lanes) +
           " lanes; convert first");
  }
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank) {
    refuse(std::to_string(tensor.ndim) + " dimensions; at most " + std::to_string(kMaxRank) +
           " are possible");
  }
  bool empty = false;
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.shape[axis] < 0) refuse("an extent is negative");
    empty = empty || tensor.shape[axis] == 0;
  }
  if (tensor.data == nullptr && !empty) refuse("there are elements, but no memory");
}

char* gather(const Shape& tensor, int axis, const char* from, int64_t size, char* to) {
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

Reference copied(const Shape& tensor) {
  check(tensor);
  Reference array = new_array(code_of(tensor.type), tensor.shape, tensor.ndim, 0);
  Tensor& made = tensor_of(array);
  made.materialize();
  if (made.size == 0) return array;
  const char* from = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  gather(tensor, 0, from, item_size(made.dtype), made.data());
  return array;
}

template <typename M>
PyObject* take(PyObject* capsule) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
  if (managed == nullptr) throw PythonError{};
  Reference array = copied(managed->tensor);  // else the capsule stays usable, and frees it all
  PyCapsule_SetName(capsule, kUsedName<M>);
  if (managed->deleter != nullptr) managed->deleter(managed);
  return array.take();
}

}  // namespace

PyObject* to_dlpack(PyObject* array, bool versioned) {
  const Tensor& tensor = checked_tensor(array, "to_dlpack");
  wait_until_shareable(tensor);
  return versioned ? share<ManagedVersioned>(tensor) : share<Managed>(tensor);
}

PyObject* from_dlpack(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName<ManagedVersioned>)) {
    auto* managed =
        static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule, kName<ManagedVersioned>));
    if (managed->major == kMajor) return take<ManagedVersioned>(capsule);
    refuse("version " + std::to_string(managed->major) + " of DLPack is not known here");
  }
  if (PyCapsule_IsValid(capsule, kName<Managed>)) return take<Managed>(capsule);
  refuse("this is no DLPack capsule, or a used one");
}

}  // namespace gemel
