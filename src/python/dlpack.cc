#include "python/dlpack.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "python/flags.h"
#include "python/history.h"

namespace gemel {
namespace {

// The binary interface of DLPack 1.0. Layouts and numbers are those of the standard.
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
  int64_t* strides;  // in elements; null when C-contiguous
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
constexpr uint64_t kReadOnly = 1;
constexpr uint64_t kCopied = 2;

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

// May be called on any thread, with or without the GIL.
template <typename M>
void give_back(M* managed) {
  std::unique_ptr<Shared<M>> shared(static_cast<Shared<M>*>(managed->context));
  shared->storage->end_export();
  shared->storage->release();
}

// Called for a capsule that no consumer has used.
template <typename M>
void drop_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kName<M>)) return;
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
  managed->deleter(managed);
}

template <typename M>
PyObject* share(const Tensor& source, bool copied) {
  auto shared = std::make_unique<Shared<M>>();
  std::memcpy(shared->dims, source.extents(), sizeof(int64_t) * 2 * source.ndim);
  Shape& tensor = shared->managed.tensor;
  tensor.data = source.size == 0 ? nullptr : source.data();
  tensor.device = {kCpuType, 0};
  tensor.ndim = source.ndim;
  tensor.type = type_of(kDTypes[source.dtype]);
  tensor.shape = shared->dims;
  tensor.strides = shared->dims + source.ndim;
  if constexpr (std::is_same_v<M, ManagedVersioned>) {
    shared->managed.major = kMajor;
    shared->managed.flags = copied ? kCopied : 0;
  }
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

// The checked contents of a capsule, with its strides and the address of its first element.
struct Source {
  explicit Source(const Shape& tensor)
      : code(code_of(tensor.type)),
        first(static_cast<char*>(tensor.data) + tensor.byte_offset),
        layout{tensor.ndim, tensor.shape, strides} {
    check(tensor);
    if (tensor.strides != nullptr) {
      std::copy_n(tensor.strides, tensor.ndim, strides);
    } else {
      contiguous_strides(tensor.shape, tensor.ndim, strides);
    }
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  bool empty() const { return element_count(layout.shape, layout.ndim) == 0; }
  bool aligned() const {
    const auto needed = static_cast<uintptr_t>(std::min<int64_t>(item_size(code), 8));
    return reinterpret_cast<uintptr_t>(first) % needed == 0;
  }

  int code;
  char* first;
  int64_t strides[kMaxRank];
  OperandLayout layout;
};

char* gather(const OperandLayout& layout, int axis, const char* from, int64_t size, char* to) {
  if (axis == layout.ndim) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return to + size;
  }
  if (is_contiguous(layout.shape + axis, layout.strides + axis, layout.ndim - axis)) {
    const int64_t bytes = size * element_count(layout.shape + axis, layout.ndim - axis);
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return to + bytes;
  }
  for (int64_t i = 0; i < layout.shape[axis]; ++i) {
    to = gather(layout, axis + 1, from + i * layout.strides[axis] * size, size, to);
  }
  return to;
}

Reference copied(const Source& source, int device) {
  Reference array = new_array(source.code, source.layout.shape, source.layout.ndim, device);
  Tensor& made = tensor_of(array);
  made.materialize();
  if (made.size > 0) gather(source.layout, 0, source.first, item_size(made.dtype), made.data());
  return array;
}

// The last array over borrowed memory may be freed on any thread.
void give_up(void* context) noexcept {
  auto* owner = static_cast<PyObject*>(context);
  if (Py_IsInitialized() && PyGILState_Check()) {
    into_python([&] { Py_DECREF(owner); });
  } else {
    drop_later(owner);
  }
}

// An array over the memory itself, which `owner` keeps alive.
Reference lent(const Source& source, int device, Reference owner) {
  Reference array = blank_array();
  int64_t low, high;
  element_range(source.layout, &low, &high);
  const int64_t size = item_size(source.code);
  Storage* storage =
      Storage::adopt(source.first + low * size, static_cast<size_t>((high - low) * size), device,
                     {give_up, owner.get()});
  owner.take();
  const std::unique_ptr<Storage, void (*)(Storage*)> held(storage,
                                                          [](Storage* ended) { ended->release(); });
  tensor_of(array).view(storage, source.code, source.layout.shape, source.strides,
                        source.layout.ndim, -low);
  return array;
}

constexpr const char* kOwnerName = "gemel.lent";

// Called when the capsule that keeps borrowed memory alive is freed.
template <typename M>
void end_loan(PyObject* capsule) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kOwnerName));
  PyObject *type, *value, *traceback;  // hide a pending error from the lender's deleter
  PyErr_Fetch(&type, &value, &traceback);
  if (managed->deleter != nullptr) managed->deleter(managed);
  PyErr_Restore(type, value, traceback);
}

template <typename M>
PyObject* take(PyObject* capsule, int device, std::optional<bool> copy) {
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, kName<M>));
  if (managed == nullptr) throw PythonError{};
  const Source source(managed->tensor);
  bool readonly = false;
  if constexpr (std::is_same_v<M, ManagedVersioned>) readonly = (managed->flags & kReadOnly) != 0;
  const bool hindered = !source.empty() && (readonly || !source.aligned());
  if (hindered && copy == false) {
    refuse(std::string("the data is ") + (readonly ? "read-only" : "not aligned to its elements") +
           ", so it has to be copied; leave out copy=False");
  }
  if (source.empty() || copy.value_or(hindered)) {
    // If this throws, the capsule remains usable and frees the memory.
    Reference array = copied(source, device);
    PyCapsule_SetName(capsule, kUsedName<M>);
    if (managed->deleter != nullptr) managed->deleter(managed);
    return array.take();
  }
  Reference owner = owned(PyCapsule_New(managed, kOwnerName, end_loan<M>));
  PyCapsule_SetName(capsule, kUsedName<M>);
  return lent(source, device, std::move(owner)).take();
}

}  // namespace

PyObject* to_dlpack(PyObject* array, bool versioned, bool copied) {
  const Tensor& tensor = checked_tensor(array, "to_dlpack");
  if (capturing()) call_method(array, "_lent", "()");
  if (is_computed(array)) {
    throw Error("BufferError",
                "__dlpack__: the array was computed inside autograd.record(), and what another "
                "library does with it has no gradient here; share x.detach()");
  }
  wait_until_shareable(tensor);
  return versioned ? share<ManagedVersioned>(tensor, copied) : share<Managed>(tensor, copied);
}

PyObject* from_dlpack(PyObject* capsule, int device, std::optional<bool> copy) {
  if (PyCapsule_IsValid(capsule, kName<ManagedVersioned>)) {
    auto* managed =
        static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule, kName<ManagedVersioned>));
    if (managed->major == kMajor) return take<ManagedVersioned>(capsule, device, copy);
    refuse("version " + std::to_string(managed->major) + " of DLPack is not known here");
  }
  if (PyCapsule_IsValid(capsule, kName<Managed>)) return take<Managed>(capsule, device, copy);
  refuse("this is no DLPack capsule, or a used one");
}

}  // namespace gemel
