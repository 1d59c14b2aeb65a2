// Python's operators as type slots. A table, filled from Python, has the operation for each slot.

#include <cstring>
#include <iterator>

#include "python/array.h"
#include "python/flags.h"
#include "python/history.h"
#include "python/op_type.h"

namespace gemel {
namespace {

enum OperatorSlot {
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

constexpr const char* kSlotNames[kSlots] = {"add", "sub",    "mul",    "truediv", "floordiv", "mod",
                                            "pow", "matmul", "neg",    "abs",     "and",      "or",
                                            "xor", "invert", "lshift", "rshift",  "lt",       "le",
                                            "eq",  "ne",     "gt",     "ge",      "copy"};

PyObject* operations[kSlots];
PyObject* symbol_types = nullptr;  // a tuple of classes, or null

bool is_scalar(PyObject* object) {
  return PyLong_CheckExact(object) || PyFloat_CheckExact(object) || PyBool_Check(object);
}

// Whether the operation's Python side handles this operand: symbols, lists, tuples, NumPy objects,
// arrays of other libraries, instances of classes derived from numbers. Objects of other types may
// have reflected operators of their own.
bool is_for_python(PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) return true;
  if (PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object)) return true;
  if (std::strncmp(Py_TYPE(object)->tp_name, "numpy.", 6) == 0) return true;
  if (symbol_types != nullptr && PyObject_IsInstance(object, symbol_types) == 1) return true;
  return PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__dlpack__") != 0;
}

PyObject* apply(OperatorSlot slot, PyObject* const* operands, int count) {
  PyObject* operation = operations[slot];
  if (operation == nullptr) Py_RETURN_NOTIMPLEMENTED;
  for (int i = 0; i < count; ++i) {
    if (is_array(operands[i]) || is_scalar(operands[i])) continue;
    if (!is_for_python(operands[i])) Py_RETURN_NOTIMPLEMENTED;
    return call_in_python(operation, Arguments{operands, count, nullptr});
  }
  return PyObject_Vectorcall(operation, operands, static_cast<size_t>(count), nullptr);
}

template <OperatorSlot slot>
PyObject* binary(PyObject* a, PyObject* b) {
  PyObject* operands[2] = {a, b};
  return apply(slot, operands, 2);
}

template <OperatorSlot slot>
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

// Whether the result of `self op other` can be written into self without losing kind or shape.
bool fits_in_place(OperatorSlot slot, const Tensor& self, PyObject* other) {
  int own = kind_rank(self.dtype);
  if (slot == kTrueDivide && own < 2) return false;
  // Arithmetic on bools gives numbers.
  if (own == 0 && slot != kAnd && slot != kOr && slot != kXor) return false;
  if (self.repeats()) return false;
  if (PyBool_Check(other)) return true;
  if (PyLong_CheckExact(other)) {
    int overflow;  // an int that does not fit int64 acts as a uint64 array
    PyLong_AsLongLongAndOverflow(other, &overflow);
    return own >= 1 && overflow == 0;
  }
  if (PyFloat_CheckExact(other)) return own >= 2;
  if (!is_array(other)) return false;
  const Tensor& tensor = tensor_of(other);
  if (!keeps_kind(tensor.dtype, self.dtype) || tensor.ndim > self.ndim) return false;
  if (own == 1 && kind_rank(tensor.dtype) == 1 && meet_in_floating(self.dtype, tensor.dtype)) {
    return false;
  }
  const int64_t* shape = self.extents() + (self.ndim - tensor.ndim);
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    if (tensor.extents()[axis] != 1 && tensor.extents()[axis] != shape[axis]) return false;
  }
  return true;
}

bool recorded(PyObject* self, PyObject* other) {
  return thread_flags.recording && (is_watched(self) || (is_array(other) && is_tracked(other)));
}

template <OperatorSlot slot>
PyObject* in_place(PyObject* self, PyObject* other) {
  PyObject* operation = operations[slot];
  if (operation == nullptr) Py_RETURN_NOTIMPLEMENTED;
  bool direct = slot != kMatmul && !capturing() &&
                reinterpret_cast<OpObject*>(operation)->elementwise &&
                fits_in_place(slot, tensor_of(self), other) && !recorded(self, other);
  if (!direct) {
    return call_method(self, "_inplace", "(sO)", kSlotNames[slot], other).take();
  }
  PyObject* operands[2] = {self, other};
  Arguments arguments{operands, 2, nullptr};
  call_into(reinterpret_cast<OpObject*>(operation), self, arguments);
  return Py_NewRef(self);
}

PyObject* in_place_power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return in_place<kPower>(a, b);
}

PyObject* compare(PyObject* a, PyObject* b, int operation) {
  static constexpr OperatorSlot kByOperation[6] = {kLess,     kLessEqual, kEqual,
                                                   kNotEqual, kGreater,   kGreaterEqual};
  PyObject* operands[2] = {a, b};
  return apply(kByOperation[operation], operands, 2);
}

int truth(PyObject* self) {
  const Tensor& tensor = tensor_of(self);
  if (tensor.size != 1) {
    throw Error("ValueError", "the truth value of an array with " + std::to_string(tensor.size) +
                                  " elements is ambiguous; use any() or all()");
  }
  return PyObject_IsTrue(owned(array_item(self)).get());
}

// The only element, for conversions to Python numbers.
Reference number(PyObject* self) {
  const int64_t size = tensor_of(self).size;
  if (size == 1) return owned(array_item(self));
  throw Error("TypeError", "only an array with one element becomes a number; this one has " +
                               std::to_string(size));
}

PyObject* to_int(PyObject* self) { return PyNumber_Long(number(self).get()); }

PyObject* to_float(PyObject* self) { return PyNumber_Float(number(self).get()); }

PyObject* to_index(PyObject* self) {
  const Tensor& tensor = tensor_of(self);
  if (kind_rank(tensor.dtype) == 1 && tensor.ndim == 0) return array_item(self);
  throw Error("TypeError",
              "only an integer array without dimensions can be an index, not " + describe(tensor));
}

OperatorSlot slot_of(const char* name) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (std::strcmp(kSlotNames[slot], name) == 0) return static_cast<OperatorSlot>(slot);
  }
  throw Error("ValueError", std::string(name) + " is not the name of an operator");
}

}  // namespace

PyType_Slot operator_slots[] = {{Py_nb_add, slot<binary<kAdd>>()},
                                {Py_nb_subtract, slot<binary<kSubtract>>()},
                                {Py_nb_multiply, slot<binary<kMultiply>>()},
                                {Py_nb_true_divide, slot<binary<kTrueDivide>>()},
                                {Py_nb_floor_divide, slot<binary<kFloorDivide>>()},
                                {Py_nb_remainder, slot<binary<kRemainder>>()},
                                {Py_nb_power, slot<power>()},
                                {Py_nb_matrix_multiply, slot<binary<kMatmul>>()},
                                {Py_nb_negative, slot<unary<kNegative>>()},
                                {Py_nb_positive, slot<positive>()},
                                {Py_nb_absolute, slot<unary<kAbsolute>>()},
                                {Py_nb_and, slot<binary<kAnd>>()},
                                {Py_nb_or, slot<binary<kOr>>()},
                                {Py_nb_xor, slot<binary<kXor>>()},
                                {Py_nb_invert, slot<unary<kInvert>>()},
                                {Py_nb_lshift, slot<binary<kLeftShift>>()},
                                {Py_nb_rshift, slot<binary<kRightShift>>()},
                                {Py_nb_inplace_add, slot<in_place<kAdd>>()},
                                {Py_nb_inplace_subtract, slot<in_place<kSubtract>>()},
                                {Py_nb_inplace_multiply, slot<in_place<kMultiply>>()},
                                {Py_nb_inplace_true_divide, slot<in_place<kTrueDivide>>()},
                                {Py_nb_inplace_floor_divide, slot<in_place<kFloorDivide>>()},
                                {Py_nb_inplace_remainder, slot<in_place<kRemainder>>()},
                                {Py_nb_inplace_power, slot<in_place_power>()},
                                {Py_nb_inplace_matrix_multiply, slot<in_place<kMatmul>>()},
                                {Py_nb_inplace_and, slot<in_place<kAnd>>()},
                                {Py_nb_inplace_or, slot<in_place<kOr>>()},
                                {Py_nb_inplace_xor, slot<in_place<kXor>>()},
                                {Py_nb_inplace_lshift, slot<in_place<kLeftShift>>()},
                                {Py_nb_inplace_rshift, slot<in_place<kRightShift>>()},
                                {Py_nb_bool, slot<truth>()},
                                {Py_nb_int, slot<to_int>()},
                                {Py_nb_float, slot<to_float>()},
                                {Py_nb_index, slot<to_index>()},
                                {Py_tp_richcompare, slot<compare>()}};

int operator_slot_count() { return static_cast<int>(std::size(operator_slots)); }

PyObject* set_operator(const char* name, PyObject* operation) {
  const OperatorSlot slot = slot_of(name);
  if (operation != Py_None && !PyObject_TypeCheck(operation, op_type)) {
    throw Error("TypeError", std::string("the operation for ") + name + " must derive from OpBase");
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
  PyObject* operation = operations[slot_of(name)];
  if (operation != nullptr) return operation;
  throw Error("RuntimeError", std::string("no operation is registered for ") + name);
}

}  // namespace gemel
