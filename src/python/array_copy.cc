// Indexing by copying, without Python: x[basic key] = value, x[mask] with a mask of the shape of x,
// and small x[mask] = value and x[positions] = value.

#include <algorithm>
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

// The opposite of select_items: writes as many items as the mask chooses, which is `chosen`, at
// least one. Every item of the target is written, again because of mispredicted branches.
template <typename Item>
void place_items(const char* from, const char* mask, int64_t count, int64_t chosen, char* to) {
  auto* source = reinterpret_cast<const Item*>(from);
  auto* target = reinterpret_cast<Item*>(to);
  const Item* last = source + chosen - 1;
  for (int64_t i = 0; i < count; ++i) {
    target[i] = mask[i] != 0 ? *source : target[i];
    source = std::min(source + (mask[i] != 0), last);
  }
}

void place_chosen(const Tensor& values, const Tensor& mask, const Tensor& target) {
  if (values.size == 0) return;
  switch (item_size(target.dtype)) {
    case 1:
      return place_items<uint8_t>(values.data(), mask.data(), target.size, values.size,
                                  target.data());
    case 2:
      return place_items<uint16_t>(values.data(), mask.data(), target.size, values.size,
                                   target.data());
    case 4:
      return place_items<uint32_t>(values.data(), mask.data(), target.size, values.size,
                                   target.data());
    default:
      return place_items<uint64_t>(values.data(), mask.data(), target.size, values.size,
                                   target.data());
  }
}

int64_t chosen_by(const Tensor& mask) {
  return mask.size - std::count(mask.data(), mask.data() + mask.size, 0);
}

// Writes rows of values, or one element everywhere, to rows of the target. False, with nothing
// written, if some row does not exist.
template <typename Position>
bool place_rows(const Tensor& values, const Tensor& positions, const Tensor& target) {
  const int64_t rows = target.extents()[0];
  const auto* chosen = reinterpret_cast<const Position*>(positions.data());
  const auto exists = [&](Position row) { return row >= -rows && row < rows; };
  if (!std::all_of(chosen, chosen + positions.size, exists)) return false;
  const auto item = static_cast<size_t>(item_size(target.dtype));
  const size_t bytes = static_cast<size_t>(target.size / rows) * item;
  const bool single = values.size == 1;
  for (int64_t i = 0; i < positions.size; ++i) {
    const int64_t row = chosen[i] < 0 ? chosen[i] + rows : chosen[i];
    char* to = target.data() + static_cast<size_t>(row) * bytes;
    if (!single) {
      std::memcpy(to, values.data() + static_cast<size_t>(i) * bytes, bytes);
      continue;
    }
    for (size_t at = 0; at < bytes; at += item) std::memcpy(to + at, values.data(), item);
  }
  return true;
}

// Whether it was possible: as many values as a mask chooses, and only rows that exist.
bool place(const Tensor& values, const Tensor& chosen, const Tensor& target) {
  if (chosen.dtype == kInt64) return place_rows<int64_t>(values, chosen, target);
  if (chosen.dtype == kInt32) return place_rows<int32_t>(values, chosen, target);
  if (values.size != chosen_by(chosen)) return false;
  place_chosen(values, chosen, target);
  return true;
}

// What writes at most so many bytes is done by the caller, since handing it to NumPy takes longer.
constexpr int64_t kMostPlaced = int64_t{1} << 18;
constexpr double kPlacing = 0.1;  // microseconds: it counts as cheap

bool is_selectable(const Tensor& source, const Tensor& mask) {
  const bool alike = source.ndim == mask.ndim && source.contiguous && mask.contiguous &&
                     std::equal(source.extents(), source.extents() + source.ndim, mask.extents());
  return alike && source.size > 0 && source.device() == mask.device() &&
         Engine::on_host(source.device()) && item_size(source.dtype) <= 8;
}

bool is_placeable(const Tensor& target, const Tensor& chosen, const Tensor& values) {
  const int device = target.device();
  if (!Engine::on_host(device) || values.device() != device || chosen.device() != device)
    return false;
  const bool apart = values.storage != target.storage && chosen.storage != target.storage;
  const bool dense = target.contiguous && values.contiguous && chosen.contiguous;
  if (!apart || !dense || values.dtype != target.dtype || target.size == 0 || target.ndim == 0)
    return false;
  if (chosen.dtype == kBool) return is_selectable(target, chosen);
  const int64_t row = target.size / target.extents()[0];
  const bool fits = values.size == 1 || values.size == chosen.size * row;
  return fits && (chosen.dtype == kInt64 || chosen.dtype == kInt32);
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

PyObject* place_at_once(PyObject* self, PyObject* arguments) {
  PyObject *key, *value;
  if (!PyArg_ParseTuple(arguments, "O!O!", array_type, &key, array_type, &value)) return nullptr;
  const Tensor& target = tensor_of(self);
  const Tensor& chosen = tensor_of(key);
  const Tensor& values = tensor_of(value);
  if (!is_placeable(target, chosen, values)) return Py_NewRef(Py_False);
  const int64_t row = target.size / target.extents()[0];
  const int64_t items = chosen.dtype == kBool ? target.size : chosen.size * row;
  if (items * item_size(target.dtype) > kMostPlaced) return Py_NewRef(Py_False);
  Storage* reads[2] = {chosen.storage, values.storage};
  Storage* writes[1] = {target.storage};
  if (!Engine::get().acquire_inline(reads, 2, writes, 1, kPlacing)) return Py_NewRef(Py_False);
  const bool placed = place(values, chosen, target);
  Engine::get().release_inline(reads, 2, writes, 1);
  if (placed) target.storage->bump_version();
  return PyBool_FromLong(placed);
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
