// The buffer protocol. While somebody holds a buffer of an array, operations that touch its storage
// finish before their call returns: the outside cannot know of the engine's queue.

#include <unordered_map>

#include "python/array.h"
#include "python/state.h"
#include "python/waits.h"

namespace gemel {
namespace {

constexpr const char* kFormat[kDTypes] = {"?", "B", "b", "i", "q", "e", "f", "d"};

// How many buffers of each storage are alive. Guarded by the GIL; empty nearly always.
std::unordered_map<Storage*, int>& exported() {
  static auto* table = new std::unordered_map<Storage*, int>;
  return *table;
}

struct Export {
  Storage* storage;
  Py_ssize_t shape[kMaxRank];
  Py_ssize_t strides[kMaxRank];
};

bool layout_allowed(Array* array, int flags) {
  bool needs_contiguous = (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
                          (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS ||
                          (flags & PyBUF_STRIDES) != PyBUF_STRIDES;
  if (needs_contiguous && !array->contiguous) {
    PyErr_SetString(PyExc_BufferError, "the array is not C-contiguous; copy it first");
    return false;
  }
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && array->ndim > 1) {
    PyErr_SetString(PyExc_BufferError, "the array is not Fortran-contiguous");
    return false;
  }
  return true;
}

bool wait_idle(Storage* storage) {
  bool finished;
  {
    WithoutGil released;
    finished = Engine::get().wait_idle(storage, interrupted_by_signal);
  }
  if (!finished && !PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
  return finished;
}

}  // namespace

// The consumer reads and writes at will, so pending readers have to finish too.
bool wait_until_idle(Array* array) {
  const int device = array->storage->device();
  if (!Engine::on_host(device)) {
    PyErr_Format(PyExc_BufferError,
                 "the array is on %s; copy it to the CPU first: x.as_in_ctx(cpu())",
                 Engine::device(device)->name.c_str());
    return false;
  }
  if (!wait_for_storage(array->storage, trace::WaitKind::kExport)) return false;
  // While this thread was without the GIL another one may have issued more.
  while (!Engine::get().idle(array->storage)) {
    TracedWait traced(trace::WaitKind::kExport, array->storage);
    if (!wait_idle(array->storage)) return false;
  }
  return true;
}

void begin_export(Storage* storage) { ++exported()[storage]; }

void end_export(Storage* storage) {
  auto found = exported().find(storage);
  if (found != exported().end() && --found->second == 0) exported().erase(found);
}

size_t export_count() { return exported().size(); }

int array_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Array* array = as_array(self);
  view->obj = nullptr;
  if (!layout_allowed(array, flags) || !wait_until_idle(array)) return -1;
  auto* export_ = static_cast<Export*>(PyMem_Malloc(sizeof(Export)));
  if (export_ == nullptr) {
    PyErr_NoMemory();
    return -1;
  }
  int64_t item_size = kItemSize[array->code];
  export_->storage = array->storage;
  for (int axis = 0; axis < array->ndim; ++axis) {
    export_->shape[axis] = array->shape()[axis];
    export_->strides[axis] = array->strides()[axis] * item_size;
  }
  static char nothing[8];  // consumers of empty arrays expect some address
  char* data = array->size == 0 ? nothing : array_data(array);
  view->buf = data;
  view->len = array->size * item_size;
  view->itemsize = item_size;
  view->readonly = 0;
  view->ndim = array->ndim;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(kFormat[array->code]) : nullptr;
  view->shape = (flags & PyBUF_ND) != 0 ? export_->shape : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? export_->strides : nullptr;
  view->suboffsets = nullptr;
  view->internal = export_;
  Py_INCREF(self);
  view->obj = self;
  begin_export(array->storage);
  return 0;
}

void array_release_buffer(PyObject*, Py_buffer* view) {
  auto* export_ = static_cast<Export*>(view->internal);
  end_export(export_->storage);
  PyMem_Free(export_);
}

bool any_exported(Storage* const* storages, int count) {
  if (exported().empty()) return false;
  for (int i = 0; i < count; ++i) {
    if (exported().count(storages[i]) != 0) return true;
  }
  return false;
}

bool settle_exports(Storage* const* storages, int count) {
  if (!any_exported(storages, count)) return true;
  for (int i = 0; i < count; ++i) {
    if (exported().count(storages[i]) == 0) continue;
    if (!wait_idle(storages[i])) return false;
  }
  return true;
}

}  // namespace gemel
