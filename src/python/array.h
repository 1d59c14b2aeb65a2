// The array as Python sees it: a tensor, its gradient, and its history (where its contents come
// from).
//
// Programs create and free arrays by the million, so they are a raw CPython type with a free list,
// and small shapes are stored inside the object.

#pragma once

#include "program/tensor.h"
#include "python/wall.h"

namespace gemel {

struct History;  // history.h

struct Array {
  PyObject_HEAD Tensor tensor;
  History* history;  // null means None, as it does for grad
  PyObject* grad;
  PyObject* weak_references;
};

extern PyTypeObject* array_type;   // gemel._core.Array
extern PyTypeObject* array_class;  // the class of new arrays: a subclass registered from Python

inline bool is_array(PyObject* object) {
  return Py_TYPE(object) == array_class || PyObject_TypeCheck(object, array_type);
}
inline Array* as_array(PyObject* object) { return reinterpret_cast<Array*>(object); }
inline PyObject* as_object(Array* array) { return reinterpret_cast<PyObject*>(array); }
inline Tensor& tensor_of(PyObject* object) { return as_array(object)->tensor; }
inline Tensor& tensor_of(const Reference& array) { return tensor_of(array.get()); }
// Throws TypeError if it is not an array; `who` names the function in the message.
Tensor& checked_tensor(PyObject* object, const char* who);

// An array whose tensor still has to be made.
Reference blank_array();
// Dense, with a new storage that has no memory yet.
Reference new_array(int code, const int64_t* extents, int rank, int device);
Reference new_array_like(const Tensor& tensor, int device);

// A dense copy of the elements, made by the registered operation. It is issued, not waited for.
// dense() returns the array itself if it is dense already.
Reference copy_of(PyObject* array);
Reference dense(PyObject* array);

// One element as a Python bool, int or float.
PyObject* read_element(const char* address, int code);
// The element of an array with one element; waits for it.
PyObject* array_item(PyObject* array);
// Copies the elements in C order to outside memory, with the contents that the array has at this
// point in the order of operations. Waits.
void read_elements(PyObject* array, char* to);
PyObject* to_list(PyObject* array, PyObject*);

// array_index.cc: basic_view() returns the view for a basic key, and an empty reference for any
// other key. array_subscript() is x[key]; it calls Python's `_getitem` for keys that the core does
// not handle.
Reference basic_view(PyObject* array, PyObject* key);
PyObject* array_subscript(PyObject* self, PyObject* key);
PyObject* array_sequence_item(PyObject* self, Py_ssize_t index);
PyObject* array_iterate(PyObject* self);

// array_copy.cc: x[key] = value and x[mask], if they only need copying. Otherwise false and null,
// without a Python error.
bool assign_at_once(PyObject* array, PyObject* key, PyObject* value);
PyObject* select_at_once(PyObject* array, PyObject* key);
// (mask or positions, values): whether x[key] = values was done, as it is for small arrays nobody
// uses. False leaves it, and what may be wrong with it, to Python.
PyObject* place_at_once(PyObject* array, PyObject* arguments);

// operators.cc
extern PyType_Slot operator_slots[];
int operator_slot_count();
PyObject* set_operator(const char* name, PyObject* operation);  // the previous one, or None
PyObject* set_symbol_types(PyObject* types);
// The operation registered for a slot, as a borrowed reference; throws when there is none.
PyObject* find_operator(const char* name);

// buffer.cc
int array_get_buffer(PyObject* self, Py_buffer* view, int flags);
void array_release_buffer(PyObject* self, Py_buffer* view);
// Waits until nothing is pending on the tensor; throws if it is not in CPU memory.
void wait_until_shareable(const Tensor& tensor);

// copy.cc
// Issues the copy to another device and returns the new array.
Reference copy_to_device(PyObject* source, int device);
// The same into an existing dense tensor of the same size and dtype.
void copy_across(PyObject* source, const Tensor& target);
// The array itself if the CPU can read it, else a copy on cpu(0).
Reference in_memory(PyObject* array);

// array_type.cc
void free_array(PyObject* self);  // tp_dealloc
bool make_array_type(PyObject* module);
PyObject* set_array_class(PyObject* type);  // the previous one
void set_dtypes(PyObject* list);
void set_devices(PyObject* list);

}  // namespace gemel
