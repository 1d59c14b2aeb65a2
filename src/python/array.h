// The array as Python sees it: a shape and strides over a storage of the engine.
//
// Arrays are made and freed by the million, so they are a raw CPython type with a free list, and
// small shapes live inside the object.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>

#include "engine/engine.h"
#include "program/layout.h"

namespace gemel {

constexpr int kInlineRank = 6;

struct Array {
  PyObject_HEAD Storage* storage;
  int64_t* dims;   // shape, then strides (elements); inside the object up to kInlineRank
  int64_t offset;  // elements from the storage's start
  int64_t size;
  PyObject* tape;  // null means None, here and in grad
  PyObject* grad;
  PyObject* weak_references;
  uint8_t code;
  uint8_t ndim;
  bool contiguous;
  int64_t inline_dims[2 * kInlineRank];

  int64_t* shape() { return dims; }
  int64_t* strides() { return dims + ndim; }
  OperandLayout layout() { return {ndim, dims, dims + ndim}; }
};

constexpr int kDTypes = 8;
extern const int64_t kItemSize[10];
enum Code : uint8_t { kBool, kUInt8, kInt8, kInt32, kInt64, kFloat16, kFloat32, kFloat64 };

extern PyTypeObject* array_type;   // gemel._core.Array
extern PyTypeObject* array_class;  // what new arrays are: a subclass registered from Python

inline bool is_array(PyObject* object) {
  return Py_TYPE(object) == array_class || PyObject_TypeCheck(object, array_type);
}
inline Array* as_array(PyObject* object) { return reinterpret_cast<Array*>(object); }
inline PyObject* as_object(Array* array) { return reinterpret_cast<PyObject*>(array); }
inline bool is_tracked(Array* array) { return array->tape != nullptr; }

// 0 bool and integers and floats are ordered: bool, integer, floating.
inline int kind_rank(int code) { return code == kBool ? 0 : code < kFloat16 ? 1 : 2; }

// All of these return a new reference, or null with a Python error set.
// Contiguous, with a storage of its own that has no memory yet.
Array* new_array(int code, const int64_t* shape, int ndim, int device);
// The same, memory taken at once.
Array* new_array_with_memory(int code, const int64_t* shape, int ndim, int device);
// Shares `storage` (and retains it). Strides may be null for contiguous.
Array* new_view(Storage* storage, int code, const int64_t* shape, const int64_t* strides, int ndim,
                int64_t offset);

// The address of the first element; null before memory was taken.
inline char* array_data(Array* array) {
  auto* base = static_cast<char*>(array->storage->data());
  return base == nullptr ? nullptr : base + array->offset * kItemSize[array->code];
}

// Until the array's contents are there; false with a Python error set when it failed or was
// interrupted. Releases the GIL only when it has to block.
bool wait_for(Array* array);

// One element, as a Python bool, int or float; the array has been waited for.
PyObject* read_element(const char* address, int code);
PyObject* array_item(Array* array);  // of an array with one element; waits

// array_index.cc: the view for a basic key, or Python's `_getitem` for any other.
PyObject* array_subscript(PyObject* self, PyObject* key);
PyObject* array_sequence_item(PyObject* self, Py_ssize_t index);
PyObject* array_iterate(PyObject* self);

// operators.cc
extern PyType_Slot operator_slots[];
int operator_slot_count();
PyObject* set_operator(const char* name, PyObject* operation);  // the previous one, or None
PyObject* set_symbol_types(PyObject* types);
// The operation registered for a slot, borrowed; null with a Python error when there is none.
PyObject* find_operator(const char* name);
PyObject* call_operator(const char* name, PyObject* const* operands, int count);

// buffer.cc
int array_get_buffer(PyObject* self, Py_buffer* view, int flags);
void array_release_buffer(PyObject* self, Py_buffer* view);
// Exports: storages somebody outside may read and write at any time.
bool wait_until_idle(Array* array);  // false with a Python error set
void begin_export(Storage* storage);
void end_export(Storage* storage);
size_t export_count();
bool any_exported(Storage* const* storages, int count);
// After an operation was issued: waits until what it does with exported storages is done. False
// with a Python error set.
bool settle_exports(Storage* const* storages, int count);

// array_type.cc
void free_array(PyObject* self);  // tp_dealloc
bool make_array_type(PyObject* module);
PyObject* set_array_class(PyObject* type);  // the previous one; null with a Python error
void set_dtypes(PyObject* list);
void set_devices(PyObject* list);

}  // namespace gemel
