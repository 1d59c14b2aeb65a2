// Reading an array's elements for Python. A read has its place in the order of operations like any
// other operation. So it sees the contents of one moment, and later writers cannot delay it for
// ever.

#include <cstring>
#include <memory>

#include "python/array.h"
#include "python/flags.h"
#include "python/waits.h"

namespace gemel {
namespace {

// Copies elements in C order; returns the position after the last one.
char* copy_elements(const Tensor& tensor, int axis, const char* from, char* to) {
  const int64_t size = item_size(tensor.dtype);
  if (axis == tensor.ndim) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return to + size;
  }
  const int64_t extent = tensor.extents()[axis];
  const int64_t step = tensor.strides()[axis] * size;
  if (axis == tensor.ndim - 1 && step == size) {
    std::memcpy(to, from, static_cast<size_t>(extent * size));
    return to + extent * size;
  }
  for (int64_t i = 0; i < extent; ++i) to = copy_elements(tensor, axis + 1, from + i * step, to);
  return to;
}

// Reads if the storage is ready now. The memory is touched only while it is acquired.
bool read_at_once(const Tensor& tensor, char* to) {
  Engine& engine = Engine::get();
  Storage* storage = tensor.storage;
  if (!engine.acquire_inline(&storage, 1, nullptr, 0, 0)) return false;
  if (tensor.contiguous) {
    std::memcpy(to, tensor.data(), static_cast<size_t>(tensor.bytes()));
  } else {
    copy_elements(tensor, 0, tensor.data(), to);
  }
  engine.release_inline(&storage, 1, nullptr, 0);
  return true;
}

PyObject* nested_list(const Tensor& tensor, int axis, const char*& next) {
  if (axis == tensor.ndim) {
    PyObject* element = read_element(next, tensor.dtype);
    next += item_size(tensor.dtype);
    return element;
  }
  Reference list = owned(PyList_New(tensor.extents()[axis]));
  for (int64_t i = 0; i < tensor.extents()[axis]; ++i) {
    PyList_SET_ITEM(list.get(), i, owned(nested_list(tensor, axis + 1, next)).take());
  }
  return list.take();
}

}  // namespace

void read_elements(PyObject* given, char* to) {
  // If a function that is being traced asks for values, the trace has to remember it.
  Reference asked = capturing() ? call_method(given, "_asked", "()") : borrowed(given);
  Reference host = in_memory(asked.get());
  const Tensor& tensor = tensor_of(host);
  wait_for(tensor.storage);
  if (tensor.size == 0 || read_at_once(tensor, to)) return;
  // A writer has started again. A copy is issued behind that writer, and no other operation writes
  // the copy.
  Reference copy = copy_of(host.get());
  const Tensor& own = tensor_of(copy);
  wait_for(own.storage);
  std::memcpy(to, own.data(), static_cast<size_t>(own.bytes()));
}

PyObject* to_list(PyObject* self, PyObject*) {
  const Tensor& tensor = tensor_of(self);
  // Read the elements before creating Python objects, since that may run any code.
  auto bytes = std::make_unique<char[]>(static_cast<size_t>(tensor.bytes()));
  read_elements(self, bytes.get());
  const char* next = bytes.get();
  return nested_list(tensor, 0, next);
}

PyObject* array_item(PyObject* self) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.size != 1) {
    throw Error("ValueError",
                "only an array with one element converts to a Python scalar; this "
                "one has " +
                    std::to_string(tensor.size));
  }
  char element[16];
  read_elements(self, element);
  return read_element(element, tensor.dtype);
}

}  // namespace gemel
