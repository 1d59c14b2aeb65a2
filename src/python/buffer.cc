// The buffer protocol. While somebody holds a buffer of an array, operations that touch its storage
// finish before their call returns, because outside code knows nothing about the engine's queue.

#include "python/flags.h"
#include "python/history.h"
#include "python/waits.h"

namespace gemel {
namespace {

struct Export {
  Storage* storage;
  Py_ssize_t shape[kMaxRank];
  Py_ssize_t strides[kMaxRank];
};

bool fortran(const Tensor& tensor) {
  int64_t step = 1;
  for (int axis = 0; axis < tensor.ndim && tensor.size > 0; ++axis) {
    if (tensor.extents()[axis] > 1 && tensor.strides()[axis] != step) return false;
    step *= tensor.extents()[axis];
  }
  return true;
}

void check_layout(const Tensor& tensor, int flags) {
  if (kDTypes[tensor.dtype].format == nullptr) {
    throw Error("BufferError", std::string("a buffer has no ") + kDTypes[tensor.dtype].name +
                                   "; convert it first: x.astype('float32')");
  }
  const bool either = (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS;
  const bool needs_contiguous = either || (flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS ||
                                (flags & PyBUF_STRIDES) != PyBUF_STRIDES;
  if (needs_contiguous && !tensor.contiguous && !(either && fortran(tensor))) {
    throw Error("BufferError", "the array is not C-contiguous; copy it first");
  }
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !fortran(tensor)) {
    throw Error("BufferError", "the array is not Fortran-contiguous");
  }
}

}  // namespace

// The consumer may read and write at any time, so pending readers have to finish too.
void wait_until_shareable(const Tensor& tensor) {
  if (!Engine::on_host(tensor.device())) {
    throw Error("BufferError", "the array is on " + Engine::device(tensor.device())->name +
                                   "; copy it to the CPU first: x.as_in_ctx(cpu())");
  }
  if (inside_operation() && !Engine::idle(tensor.storage)) {
    throw Error(
        "BufferError",
        "inside of a callback, an array that operations still use cannot be shared: they may "
        "wait for the callback; take x.asnumpy()");
  }
  wait_for(tensor.storage, trace::WaitKind::kExport);
  // While this thread was waiting without the GIL, another one may have issued more operations.
  while (!Engine::idle(tensor.storage)) {
    TracedWait traced(trace::WaitKind::kExport, tensor.storage);
    python_front().wait_until_idle(tensor.storage);
  }
}

int array_get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const Tensor& tensor = tensor_of(self);
  view->obj = nullptr;
  if (capturing()) call_method(self, "_lent", "()");
  check_layout(tensor, flags);
  // A write from outside would change values that gradients read, and the tape would not notice.
  const bool computed = is_computed(self);
  if (computed && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
    throw Error("BufferError",
                "the array was computed inside autograd.record(), so others may "
                "only read it; x.detach() or x.copy() can be written");
  }
  wait_until_shareable(tensor);
  auto export_ = std::make_unique<Export>();
  const int64_t size = item_size(tensor.dtype);
  export_->storage = tensor.storage;
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    export_->shape[axis] = tensor.extents()[axis];
    export_->strides[axis] = tensor.strides()[axis] * size;
  }
  static char nothing[8];  // consumers expect an address even for an empty array
  view->buf = tensor.size == 0 ? nothing : tensor.data();
  view->len = tensor.bytes();
  view->itemsize = size;
  view->readonly = computed ? 1 : 0;
  view->ndim = tensor.ndim;
  const bool wants_format = (flags & PyBUF_FORMAT) != 0;
  view->format = wants_format ? const_cast<char*>(kDTypes[tensor.dtype].format) : nullptr;
  view->shape = (flags & PyBUF_ND) != 0 ? export_->shape : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? export_->strides : nullptr;
  view->suboffsets = nullptr;
  tensor.storage->begin_export();
  view->internal = export_.release();
  view->obj = Py_NewRef(self);
  return 0;
}

void array_release_buffer(PyObject*, Py_buffer* view) {
  std::unique_ptr<Export> export_(static_cast<Export*>(view->internal));
  export_->storage->end_export();
}

}  // namespace gemel
