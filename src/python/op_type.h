// OpBase: the callable behind every operation. Knows no operation by name.

#pragma once

#include "program/elementwise.h"
#include "python/array.h"
#include "python/plan_call.h"

namespace gemel {

// Keywords of an earlier call, and the number they have: the next call often has the very objects.
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
  // Type-tagged keyword values -> small integer: those asked for lately, and those before them.
  PyObject* parameter_ids;
  PyObject* older_parameter_ids;
  RecentParameters recent[kRecent];
  unsigned oldest;  // of these, the one the next takes the place of
  uint32_t next_parameter_id;
  uint32_t owner;
  int most;  // inputs it takes; calls with more are Python's
  bool elementwise;
};

extern PyTypeObject* op_type;
bool make_op_type(PyObject* module);

// The positional and keyword arguments of one call as the vectorcall protocol has them.
struct Arguments {
  PyObject* const* values;
  Py_ssize_t count;
  PyObject* names;  // null, or a tuple of the last values' names
};

// parameters.cc: the small integer standing for these keyword values; false, without a Python
// error, when they cannot be a key.
bool parameters_id(OpObject* op, const Arguments& arguments, uint32_t* id);
int visit_recent(const OpObject* op, visitproc visit, void* arg);
void forget_recent(OpObject* op);
Reference parameters_dict(const Arguments& arguments);
Reference inputs_tuple(const Arguments& arguments);

// False, without a Python error, when the call is one for Python: an operand of another kind,
// different devices, too many operands, an int beyond 64 bits. `tracked`: some array is on a tape.
bool collect_operands(PyObject* const* objects, Py_ssize_t count, Operands* operands,
                      bool* tracked);
// The kernel for this call, from the cache or from Python. The caller's copy keeps it while the
// call runs, as Python code may empty the cache meanwhile. Null when there is none: NumPy does it.
ElementwisePointer find_kernel(OpObject* op, const ElementwiseCall& call,
                               const Arguments& arguments, uint32_t parameters);
// `self._call(args, kwargs)`.
PyObject* call_in_python(PyObject* op, const Arguments& arguments);
// `op.into(target, ...)`
void call_into(OpObject* op, PyObject* target, const Arguments& arguments);

// Throws ShapeError for an array whose elements have several places.
void check_writable(const char* operation, const Tensor& target);

// Both caches of what operations have prepared.
size_t prepared_calls();
void clear_prepared_calls();

// module.cc: what Python prepared, seen from here; throws TypeError for anything else.
ElementwisePointer elementwise_from(PyObject* object);

}  // namespace gemel
