// Python's operators, as type slots: a table of operations indexed by slot, filled from Python.

#include <cstring>
#include <iterator>

#include "python/array.h"
#include "python/op_type.h"
#include "python/state.h"

namespace gemel {
namespace {

enum Slot {
  kAdd,
  kSubtract,
  kMultiply,
  kTrueDivide,
  kFloorDivide,
  kRemainder,
  kPower,
  kMatmul,
  kNegative,
  kAbsolute,
  kAnd,
  kOr,
  kXor,
  kInvert,
  kLeftShift,
  kRightShift,
  kLess,
  kLessEqual,
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,
  kCopy,
  kSlots
};

constexpr const char* kSlotNames[kSlots] = {
    "add",   "subtract", "multiply", "true_divide", "floor_divide", "remainder",
    "power", "matmul",   "negative", "absolute",    "and",          "or",
    "xor",   "invert",   "lshift",   "rshift",      "lt",           "le",
    "eq",    "ne",       "gt",       "ge",          "copy"};

PyObject* operations[kSlots];
PyObject* symbol_types = nullptr;  // tuple of classes, or null

bool is_scalar(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object);
}

// Operands the operation's Python side understands: symbols, lists, tuples, NumPy's objects, and
// numbers of derived classes. Others may have reflected operators of their own.
bool is_for_python(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return true;
  if (PyLong_Check(object) || PyFloat_Check(object)) return true;
  if (std::strncmp(Py_TYPE(object)->tp_name, "numpy.", 6) == 0) return true;
  return symbol_types != nullptr && PyObject_IsInstance(object, symbol_types) == 1;
}

PyObject* apply(Slot slot, PyObject* const* operands, int count) {
  PyObject* operation = operations[slot];
  if (operation == nullptr) Py_RETURN_NOTIMPLEMENTED;
  for (int i = 0; i < count; ++i) {
    if (is_array(operands[i]) || is_scalar(operands[i])) continue;
    if (!is_for_python(operands[i])) Py_RETURN_NOTIMPLEMENTED;
    return call_in_python(operation, Arguments{operands, count, nullptr});
  }
  return PyObject_Vectorcall(operation, operands, static_cast<size_t>(count), nullptr);
}

template <Slot slot>
PyObject* binary(PyObject* a, PyObject* b) {
  PyObject* operands[2] = {a, b};
  return apply(slot, operands, 2);
}

template <Slot slot>
PyObject* unary(PyObject* a) {
  return apply(slot, &a, 1);
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<kPower>(a, b);
}

PyObject* positive(PyObject* a) {
  if (operations[kCopy] == nullptr) return Py_NewRef(a);
  return unary<kCopy>(a);
}

// Whether the result of `self op other` can be written over self without losing kind or shape.
bool fits_in_place(Slot slot, Array* self, PyObject* other) {
  int own = kind_rank(self->code);
  if (slot == kTrueDivide && own < 2) return false;
  for (int axis = 0; axis < self->ndim; ++axis) {
    if (self->strides()[axis] == 0 && self->shape()[axis] > 1) return false;
  }
  if (PyBool_Check(other)) return true;
  if (PyLong_CheckExact(other)) return own >= 1;
  if (PyFloat_CheckExact(other)) return own >= 2;
  if (!is_array(other)) return false;
  Array* array = as_array(other);
  if (own < kind_rank(array->code) || array->ndim > self->ndim) return false;
  const int64_t* shape = self->shape() + (self->ndim - array->ndim);
  for (int axis = 0; axis < array->ndim; ++axis) {
    if (array->shape()[axis] != 1 && array->shape()[axis] != shape[axis]) return false;
  }
  return true;
}

bool recorded(Array* self, PyObject* other) {
  return thread_flags.recording &&
         (is_tracked(self) || (is_array(other) && is_tracked(as_array(other))));
}

template <Slot slot>
PyObject* in_place(PyObject* self, PyObject* other) {
  PyObject* operation = operations[slot];
  if (operation == nullptr) Py_RETURN_NOTIMPLEMENTED;
  bool direct = slot != kMatmul && reinterpret_cast<OpObject*>(operation)->elementwise &&
                fits_in_place(slot, as_array(self), other) && !recorded(as_array(self), other);
  if (!direct) return PyObject_CallMethod(self, "_inplace", "(sO)", kSlotNames[slot], other);
  PyObject* operands[2] = {self, other};
  Arguments arguments{operands, 2, nullptr};
  if (!call_into(reinterpret_cast<OpObject*>(operation), as_array(self), arguments)) {
    return nullptr;
  }
  return Py_NewRef(self);
}

PyObject* in_place_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return in_place<kPower>(a, b);
}

PyObject* compare(PyObject* a, PyObject* b, int operation) {
  static constexpr Slot kByOperation[6] = {kLess,     kLessEqual, kEqual,
                                           kNotEqual, kGreater,   kGreaterEqual};
  PyObject* operands[2] = {a, b};
  return apply(kByOperation[operation], operands, 2);
}

int truth(PyObject* self) {
  Array* array = as_array(self);
  if (array->size != 1) {
    PyErr_Format(PyExc_ValueError,
                 "the truth value of an array with %lld elements is ambiguous; use any() or all()",
                 static_cast<long long>(array->size));
    return -1;
  }
  Reference item(array_item(array));
  return item ? PyObject_IsTrue(item.get()) : -1;
}

PyObject* to_int(PyObject* self) {
  Reference item(array_item(as_array(self)));
  return item ? PyNumber_Long(item.get()) : nullptr;
}

PyObject* to_float(PyObject* self) {
  Reference item(array_item(as_array(self)));
  return item ? PyNumber_Float(item.get()) : nullptr;
}

PyObject* to_index(PyObject* self) {
  if (kind_rank(as_array(self)->code) == 1 && as_array(self)->size == 1) {
    return array_item(as_array(self));
  }
  PyErr_SetString(PyExc_TypeError, "only an integer array with one element can be an index");
  return nullptr;
}

int slot_of(const char* name) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (std::strcmp(kSlotNames[slot], name) == 0) return slot;
  }
  PyErr_Format(PyExc_ValueError, "%s is not the name of an operator", name);
  return -1;
}

template <typename Function>
constexpr void* erase(Function function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

PyType_Slot operator_slots[] = {{Py_nb_add, erase(binary<kAdd>)},
                                {Py_nb_subtract, erase(binary<kSubtract>)},
                                {Py_nb_multiply, erase(binary<kMultiply>)},
                                {Py_nb_true_divide, erase(binary<kTrueDivide>)},
                                {Py_nb_floor_divide, erase(binary<kFloorDivide>)},
                                {Py_nb_remainder, erase(binary<kRemainder>)},
                                {Py_nb_power, erase(power)},
                                {Py_nb_matrix_multiply, erase(binary<kMatmul>)},
                                {Py_nb_negative, erase(unary<kNegative>)},
                                {Py_nb_positive, erase(positive)},
                                {Py_nb_absolute, erase(unary<kAbsolute>)},
                                {Py_nb_and, erase(binary<kAnd>)},
                                {Py_nb_or, erase(binary<kOr>)},
                                {Py_nb_xor, erase(binary<kXor>)},
                                {Py_nb_invert, erase(unary<kInvert>)},
                                {Py_nb_lshift, erase(binary<kLeftShift>)},
                                {Py_nb_rshift, erase(binary<kRightShift>)},
                                {Py_nb_inplace_add, erase(in_place<kAdd>)},
                                {Py_nb_inplace_subtract, erase(in_place<kSubtract>)},
                                {Py_nb_inplace_multiply, erase(in_place<kMultiply>)},
                                {Py_nb_inplace_true_divide, erase(in_place<kTrueDivide>)},
                                {Py_nb_inplace_floor_divide, erase(in_place<kFloorDivide>)},
                                {Py_nb_inplace_remainder, erase(in_place<kRemainder>)},
                                {Py_nb_inplace_power, erase(in_place_power)},
                                {Py_nb_inplace_matrix_multiply, erase(in_place<kMatmul>)},
                                {Py_nb_inplace_and, erase(in_place<kAnd>)},
                                {Py_nb_inplace_or, erase(in_place<kOr>)},
                                {Py_nb_inplace_xor, erase(in_place<kXor>)},
                                {Py_nb_inplace_lshift, erase(in_place<kLeftShift>)},
                                {Py_nb_inplace_rshift, erase(in_place<kRightShift>)},
                                {Py_nb_bool, erase(truth)},
                                {Py_nb_int, erase(to_int)},
                                {Py_nb_float, erase(to_float)},
                                {Py_nb_index, erase(to_index)},
                                {Py_tp_richcompare, erase(compare)}};

int operator_slot_count() { return static_cast<int>(std::size(operator_slots)); }

PyObject* set_operator(const char* name, PyObject* operation) {
  int slot = slot_of(name);
  if (slot < 0) return nullptr;
  if (operation != Py_None && !PyObject_TypeCheck(operation, op_type)) {
    PyErr_Format(PyExc_TypeError, "the operation for %s must derive from OpBase", name);
    return nullptr;
  }
  PyObject* previous = operations[slot];
  operations[slot] = operation == Py_None ? nullptr : Py_NewRef(operation);
  return previous == nullptr ? Py_NewRef(Py_None) : previous;
}

PyObject* set_symbol_types(PyObject* types) {
  Py_XSETREF(symbol_types, Py_NewRef(types));
  Py_RETURN_NONE;
}

PyObject* find_operator(const char* name) {
  int slot = slot_of(name);
  if (slot < 0) return nullptr;
  if (operations[slot] == nullptr) {
    PyErr_Format(PyExc_RuntimeError, "no operation is registered for %s", name);
  }
  return operations[slot];
}

PyObject* call_operator(const char* name, PyObject* const* operands, int count) {
  PyObject* operation = find_operator(name);
  if (operation == nullptr) return nullptr;
  return PyObject_Vectorcall(operation, operands, static_cast<size_t>(count), nullptr);
}

}  // namespace gemel
