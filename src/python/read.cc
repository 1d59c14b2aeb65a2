// Copies of an array's elements, for Python. Waits for who writes it, not for who reads it.

#include <cstring>

#include "python/array.h"
#include "python/copy.h"

namespace gemel {
namespace {

// Elements in C order; gives where the next one goes.
char* copy_elements(Array* array, int axis, const char* from, char* to) {
  const int64_t size = kItemSize[array->code];
  if (axis == array->ndim) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return to + size;
  }
  const int64_t extent = array->shape()[axis];
  const int64_t step = array->strides()[axis] * size;
  if (axis == array->ndim - 1 && step == size) {
    std::memcpy(to, from, static_cast<size_t>(extent * size));
    return to + extent * size;
  }
  for (int64_t i = 0; i < extent; ++i) to = copy_elements(array, axis + 1, from + i * step, to);
  return to;
}

}  // namespace

bool read_elements(Array* given, char* to) {
  Reference host = in_memory(given);
  if (!host) return false;
  Array* array = as_array(host.get());
  Engine& engine = Engine::get();
  Storage* storage = array->storage;
  // As a reader, so that no other thread's write comes between.
  do {
    if (!wait_for(array)) return false;
  } while (!engine.acquire_inline(&storage, 1, nullptr, 0, 0));
  const size_t bytes = static_cast<size_t>(array->size * kItemSize[array->code]);
  if (bytes > 0 && array->contiguous) {
    std::memcpy(to, array_data(array), bytes);
  } else if (bytes > 0) {
    copy_elements(array, 0, array_data(array), to);
  }
  engine.release_inline(&storage, 1, nullptr, 0);
  return true;
}

}  // namespace gemel
