// Indexing by copying, without Python: x[basic key] = value, and x[mask] with a mask of the shape
// of x.

#include <cstring>

#include "python/array.h"
#include "python/flags.h"
#include "python/op_type.h"
#include "python/waits.h"

namespace gemel {
namespace {

// Whether the target can hold the value unchanged, so that nothing but a copy is needed.
bool fits(const Tensor& target, PyObject* value) {
  if (PyBool_Check(value) || PyLong_CheckExact(value)) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(value, &overflow);
    return overflow == 0;
  }
  if (PyFloat_CheckExact(value)) return kind_rank(target.dtype) == 2;
  if (!is_array(value)) return false;
  const Tensor& tensor = tensor_of(value);
  if (tensor.dtype != target.dtype || tensor.device() != target.device()) return false;
  if (tensor.ndim > target.ndim) return false;
  const int64_t* extents = target.extents() + (target.ndim - tensor.ndim);
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.extents()[axis] != 1 && tensor.extents()[axis] != extents[axis]) return false;
  }
  return true;
}

// Copies the elements where the mask is true, one after another; returns how many. Every element is
// written, but the position advances only behind chosen ones: a branch would be mispredicted every
// other time. So `to` needs room for one element more than are chosen.
template <typename Item>
int64_t select_items(const char* from, const char* mask, int64_t count, char* to) {
  auto* source = reinterpret_cast<const Item*>(from);
  auto* target = reinterpret_cast<Item*>(to);
  int64_t chosen = 0;
  for (int64_t i = 0; i < count; ++i) {
    target[chosen] = source[i];
    chosen += mask[i] != 0;
  }
  return chosen;
}

int64_t select(const Tensor& source, const Tensor& mask, char* to) {
  switch (item_size(source.dtype)) {
    case 1:
      return select_items<uint8_t>(source.data(), mask.data(), source.size, to);
    case 2:
      return select_items<uint16_t>(source.data(), mask.data(), source.size, to);
    case 4:
      return select_items<uint32_t>(source.data(), mask.data(), source.size, to);
    default:
      return select_items<uint64_t>(source.data(), mask.data(), source.size, to);
  }
}

bool is_selectable(const Tensor& source, const Tensor& mask) {
  const bool alike = source.ndim == mask.ndim && source.contiguous && mask.contiguous &&
                     std::equal(source.extents(), source.extents() + source.ndim, mask.extents());
  return alike && source.size > 0 && source.device() == mask.device() &&
         Engine::on_host(source.device()) && item_size(source.dtype) <= 8;
}

}  // namespace

bool assign_at_once(PyObject* self, PyObject* key, PyObject* value) {
  if (thread_flags.recording || capturing()) return false;
  // A part of the array might not repeat elements although the array does.
  check_writable("setitem", tensor_of(self));
  Reference view = basic_view(self, key);
  if (!view || !fits(tensor_of(view), value)) return false;
  if (tensor_of(view).size == 0) return true;
  auto* copy = reinterpret_cast<OpObject*>(find_operator("copy"));
  call_into(copy, view.get(), Arguments{&value, 1, nullptr});
  return true;
}

PyObject* select_at_once(PyObject* self, PyObject* key) {
  if (thread_flags.recording || !is_array(key)) return nullptr;
  const Tensor& source = tensor_of(self);
  const Tensor& mask = tensor_of(key);
  if (mask.dtype != kBool || !is_selectable(source, mask)) return nullptr;
  wait_for(source.storage);
  wait_for(mask.storage);
  const auto size = static_cast<size_t>(item_size(source.dtype));
  std::unique_ptr<char[]> chosen(new char[(static_cast<size_t>(source.size) + 1) * size]);
  Storage* storages[2] = {source.storage, mask.storage};
  // Fails if a writer has started again meanwhile.
  if (!Engine::get().acquire_inline(storages, 2, nullptr, 0, 0)) return nullptr;
  const int64_t count = select(source, mask, chosen.get());
  Engine::get().release_inline(storages, 2, nullptr, 0);
  Reference result = new_array(source.dtype, &count, 1, source.device());
  tensor_of(result).materialize();
  if (count > 0) std::memcpy(tensor_of(result).data(), chosen.get(), size * count);
  return result.take();
}

}  // namespace gemel
