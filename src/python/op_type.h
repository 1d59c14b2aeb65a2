// OpBase: the callable behind every operation. Knows no operation by name.

#pragma once

#include "program/elementwise.h"
#include "python/array.h"
#include "python/plan_call.h"

namespace gemel {

// The keywords of an earlier call and their number. The next call often passes the same objects.
struct RecentParameters {
  static constexpr Py_ssize_t kMost = 4;
  PyObject* names[kMost];
  PyObject* values[kMost];
  Py_ssize_t count;  // 0: none yet
  uint32_t id;
};

struct OpObject {
  static constexpr unsigned kRecent = 4;
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* name;
  PyObject* parameters;
  // From type-tagged keyword values to a small integer: those used recently, and the ones before.
  PyObject* parameter_ids;
  PyObject* older_parameter_ids;
  RecentParameters recent[kRecent];
  unsigned oldest;  // the entry of `recent` that is replaced next
  uint32_t next_parameter_id;
  uint32_t owner;
  int most;  // the largest number of inputs; calls with more go to Python
  bool elementwise;
};

extern PyTypeObject* op_type;
bool make_op_type(PyObject* module);

// The positional and keyword arguments of one call, in the form of the vectorcall protocol.
struct Arguments {
  PyObject* const* values;
  Py_ssize_t count;
  PyObject* names;  // null, or a tuple of the names of the last values
};

// parameters.cc: the small integer that stands for these keyword values. False, without a Python
// error, when they cannot be a key.
bool parameters_id(OpObject* op, const Arguments& arguments, uint32_t* id);
int visit_recent(const OpObject* op, visitproc visit, void* arg);
void forget_recent(OpObject* op);
Reference parameters_dict(const Arguments& arguments);
Reference inputs_tuple(const Arguments& arguments);

// False, without a Python error, when Python has to handle the call: an operand of another kind,
// different devices, too many operands, or an int beyond 64 bits. `tracked`: some array is on a
// tape.
bool collect_operands(PyObject* const* objects, Py_ssize_t count, Operands* operands,
                      bool* tracked);
// The kernel for this call, from the cache or from Python. The caller's copy keeps it alive during
// the call, since Python code may empty the cache meanwhile. Null when Python has no kernel for it.
ElementwisePointer find_kernel(OpObject* op, const ElementwiseCall& call,
                               const Arguments& arguments, uint32_t parameters);
// `self._call(args, kwargs)`.
PyObject* call_in_python(PyObject* op, const Arguments& arguments);
// `op.into(target, ...)`
void call_into(OpObject* op, PyObject* target, const Arguments& arguments);

// Throws ShapeError if some element of the array appears at several indexes.
void check_writable(const char* operation, const Tensor& target);

// About both caches of prepared calls: kernels and steps.
size_t prepared_calls();
void clear_prepared_calls();

// module.cc: converts a kernel that Python has prepared; throws TypeError for anything else.
ElementwisePointer elementwise_from(PyObject* object);

}  // namespace gemel
