// Basic indexing: integers, slices, None and Ellipsis give a view.

#include "python/array.h"
#include "python/flags.h"
#include "python/history.h"

namespace gemel {
namespace {

// A view under construction; the parts of the key are applied one by one.
struct Selection {
  const Tensor& source;
  int axis = 0;  // next dimension of the source
  int ndim = 0;  // dimensions of the view so far
  int64_t offset;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];

  explicit Selection(const Tensor& tensor) : source(tensor), offset(tensor.offset) {}

  void keep_axis() {
    shape[ndim] = source.extents()[axis];
    strides[ndim++] = source.strides()[axis++];
  }
};

[[noreturn]] void index_error(int64_t index, int axis, int64_t size) {
  throw Error("IndexError", "index " + std::to_string(index) + " is out of bounds for axis " +
                                std::to_string(axis) + " with size " + std::to_string(size));
}

void select_integer(Selection* selection, int64_t index) {
  int64_t size = selection->source.extents()[selection->axis];
  if (index < -size || index >= size) index_error(index, selection->axis, size);
  if (index < 0) index += size;
  selection->offset += index * selection->source.strides()[selection->axis++];
}

void select_slice(Selection* selection, PyObject* slice) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) {
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) throw PythonError{};
    PyErr_Clear();
    throw Error("ValueError", "slice step cannot be zero");
  }
  int64_t size = selection->source.extents()[selection->axis];
  Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
  int64_t stride = selection->source.strides()[selection->axis++];
  if (length > 0) selection->offset += start * stride;
  selection->shape[selection->ndim] = length;
  selection->strides[selection->ndim++] = stride * step;
}

bool is_basic(PyObject* part) {
  return PyLong_CheckExact(part) || PySlice_Check(part) || part == Py_None || part == Py_Ellipsis;
}

// What the parts of a key need in total, before any part is applied.
struct KeySummary {
  int consumed = 0;  // dimensions of the source that the parts index
  int added = 0;     // the number of None
  int ellipses = 0;
  bool basic = true;
};

KeySummary summarize(PyObject* const* parts, Py_ssize_t count) {
  KeySummary summary;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_basic(parts[i])) summary.basic = false;
    if (parts[i] == Py_None) {
      ++summary.added;
    } else if (parts[i] == Py_Ellipsis) {
      ++summary.ellipses;
    } else {
      ++summary.consumed;
    }
  }
  return summary;
}

void apply_part(Selection* selection, PyObject* part, int skipped_axes) {
  if (part == Py_None) {
    selection->shape[selection->ndim] = 1;
    selection->strides[selection->ndim++] = 0;
  } else if (part == Py_Ellipsis) {
    for (int i = 0; i < skipped_axes; ++i) selection->keep_axis();
  } else if (PySlice_Check(part)) {
    select_slice(selection, part);
  } else {
    int overflow = 0;
    long long index = PyLong_AsLongLongAndOverflow(part, &overflow);
    if (overflow != 0) throw Error("IndexError", "index does not fit 64 bits");
    select_integer(selection, index);
  }
}

Reference finish(Selection* selection) {
  const Tensor& source = selection->source;
  while (selection->axis < source.ndim) selection->keep_axis();
  Reference result = blank_array();
  tensor_of(result).view(source.storage, source.dtype, selection->shape, selection->strides,
                         selection->ndim, selection->offset);
  return result;
}

void check_parts(const KeySummary& summary, const Tensor& tensor) {
  if (summary.ellipses > 1) {
    throw Error("IndexError", "an index can only have a single ellipsis ('...')");
  }
  if (summary.consumed > tensor.ndim) {
    throw Error("IndexError", "too many indices for array: array is " +
                                  std::to_string(tensor.ndim) + "-dimensional, but " +
                                  std::to_string(summary.consumed) + " were indexed");
  }
  if (tensor.ndim + summary.added > kMaxRank) {
    throw Error("IndexError", "an array has at most " + std::to_string(kMaxRank) + " dimensions");
  }
}

}  // namespace

Reference basic_view(PyObject* self, PyObject* key) {
  const Tensor& tensor = tensor_of(self);
  PyObject* const* parts = &key;
  Py_ssize_t count = 1;
  if (PyTuple_Check(key)) {
    parts = &PyTuple_GET_ITEM(key, 0);
    count = PyTuple_GET_SIZE(key);
  }
  const KeySummary summary = summarize(parts, count);
  if (!summary.basic) return {};
  check_parts(summary, tensor);
  Selection selection(tensor);
  for (Py_ssize_t i = 0; i < count; ++i) {
    apply_part(&selection, parts[i], tensor.ndim - summary.consumed);
  }
  return finish(&selection);
}

PyObject* array_subscript(PyObject* self, PyObject* key) {
  if (capturing()) return call_method(self, "_getitem", "(O)", key).take();
  Reference found = basic_view(self, key);
  if (found) {
    share_history(self, found.get());
    return found.take();
  }
  found = Reference(select_at_once(self, key));
  return found ? found.take() : call_method(self, "_getitem", "(O)", key).take();
}

PyObject* array_sequence_item(PyObject* self, Py_ssize_t index) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.ndim == 0) check_parts({.consumed = 1}, tensor);
  if (index < 0 || index >= tensor.extents()[0]) index_error(index, 0, tensor.extents()[0]);
  if (capturing()) return call_method(self, "_getitem", "(n)", index).take();
  Selection selection(tensor);
  select_integer(&selection, index);
  Reference result = finish(&selection);
  share_history(self, result.get());
  return result.take();
}

PyObject* array_iterate(PyObject* self) {
  if (tensor_of(self).ndim == 0) throw Error("TypeError", "iteration over a 0-d array");
  return PySeqIter_New(self);
}

}  // namespace gemel
