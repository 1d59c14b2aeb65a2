// Basic indexing: integers, slices, None and Ellipsis make a view.

#include "python/array.h"
#include "python/state.h"

namespace gemel {
namespace {

// The view being built, one part of the key at a time.
struct Selection {
  Array* source;
  int axis = 0;  // next dimension of the source
  int ndim = 0;  // dimensions of the view so far
  int64_t offset;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];

  explicit Selection(Array* array) : source(array), offset(array->offset) {}

  void keep_axis() {
    shape[ndim] = source->shape()[axis];
    strides[ndim++] = source->strides()[axis++];
  }
};

PyObject* index_error(int64_t index, int axis, int64_t size) {
  PyErr_Format(PyExc_IndexError, "index %lld is out of bounds for axis %d with size %lld",
               static_cast<long long>(index), axis, static_cast<long long>(size));
  return nullptr;
}

bool select_integer(Selection* selection, int64_t index) {
  int64_t size = selection->source->shape()[selection->axis];
  if (index < -size || index >= size) {
    index_error(index, selection->axis, size);
    return false;
  }
  if (index < 0) index += size;
  selection->offset += index * selection->source->strides()[selection->axis++];
  return true;
}

bool select_slice(Selection* selection, PyObject* slice) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return false;
  int64_t size = selection->source->shape()[selection->axis];
  Py_ssize_t length = PySlice_AdjustIndices(size, &start, &stop, step);
  int64_t stride = selection->source->strides()[selection->axis++];
  if (length > 0) selection->offset += start * stride;
  selection->shape[selection->ndim] = length;
  selection->strides[selection->ndim++] = stride * step;
  return true;
}

bool is_basic(PyObject* part) {
  return PyLong_CheckExact(part) || PySlice_Check(part) || part == Py_None || part == Py_Ellipsis;
}

// What the parts of a key ask for, before any is applied.
struct KeySummary {
  int consumed = 0;  // dimensions of the source that parts name
  int added = 0;     // None
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

bool apply_part(Selection* selection, PyObject* part, int skipped_axes) {
  if (part == Py_None) {
    selection->shape[selection->ndim] = 1;
    selection->strides[selection->ndim++] = 0;
    return true;
  }
  if (part == Py_Ellipsis) {
    for (int i = 0; i < skipped_axes; ++i) selection->keep_axis();
    return true;
  }
  if (PySlice_Check(part)) return select_slice(selection, part);
  int overflow = 0;
  long long index = PyLong_AsLongLongAndOverflow(part, &overflow);
  if (overflow != 0) {
    PyErr_SetString(PyExc_IndexError, "index does not fit 64 bits");
    return false;
  }
  return select_integer(selection, index);
}

PyObject* finish(Selection* selection) {
  while (selection->axis < selection->source->ndim) selection->keep_axis();
  return as_object(new_view(selection->source->storage, selection->source->code, selection->shape,
                            selection->strides, selection->ndim, selection->offset));
}

PyObject* index_in_python(PyObject* self, PyObject* key) {
  return PyObject_CallMethod(self, "_getitem", "(O)", key);
}

bool must_record(Array* array) { return thread_flags.recording && is_tracked(array); }

}  // namespace

PyObject* array_subscript(PyObject* self, PyObject* key) {
  Array* array = as_array(self);
  PyObject* const* parts = &key;
  Py_ssize_t count = 1;
  if (PyTuple_Check(key)) {
    parts = &PyTuple_GET_ITEM(key, 0);
    count = PyTuple_GET_SIZE(key);
  }
  KeySummary summary = summarize(parts, count);
  if (!summary.basic) return index_in_python(self, key);
  if (summary.ellipses > 1) {
    PyErr_SetString(PyExc_IndexError, "an index can only have a single ellipsis ('...')");
    return nullptr;
  }
  if (summary.consumed > array->ndim) {
    PyErr_Format(PyExc_IndexError,
                 "too many indices for array: array is %d-dimensional, but %d were indexed",
                 static_cast<int>(array->ndim), summary.consumed);
    return nullptr;
  }
  if (array->ndim + summary.added > kMaxRank) {
    PyErr_Format(PyExc_IndexError, "an array has at most %d dimensions", kMaxRank);
    return nullptr;
  }
  Selection selection(array);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!apply_part(&selection, parts[i], array->ndim - summary.consumed)) return nullptr;
  }
  // Checked here in any case: iteration ends with the IndexError.
  if (must_record(array)) return index_in_python(self, key);
  return finish(&selection);
}

PyObject* array_sequence_item(PyObject* self, Py_ssize_t index) {
  Array* array = as_array(self);
  if (array->ndim == 0) {
    PyErr_SetString(PyExc_IndexError,
                    "too many indices for array: array is 0-dimensional, but 1 were indexed");
    return nullptr;
  }
  if (index < 0 || index >= array->shape()[0]) {
    return index_error(index, 0, array->shape()[0]);
  }
  if (must_record(array)) {
    Reference key(PyLong_FromSsize_t(index));
    return key ? index_in_python(self, key.get()) : nullptr;
  }
  Selection selection(array);
  select_integer(&selection, index);
  return finish(&selection);
}

PyObject* array_iterate(PyObject* self) {
  if (as_array(self)->ndim == 0) {
    PyErr_SetString(PyExc_TypeError, "iteration over a 0-d array");
    return nullptr;
  }
  return PySeqIter_New(self);
}

}  // namespace gemel
