// OpBase: the callable behind every operation. Knows no operation by name.

#pragma once

#include <variant>
#include <vector>

#include "python/dispatch.h"
#include "python/state.h"

namespace gemel {

// A general operation whose result is a view of its first input.
struct ViewSpec {
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // relative to the input's
};

struct OpObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* name;
  PyObject* parameters;
  PyObject* parameter_ids;  // dict: type-tagged keyword values -> small integer
  uint32_t id;
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
PyObject* parameters_dict(const Arguments& arguments);
PyObject* inputs_tuple(const Arguments& arguments);

// op_type.cc: `self._call(args, kwargs)`.
PyObject* call_in_python(PyObject* op, const Arguments& arguments);
// `self._record(inputs, parameters, outputs)` when recording and tracked; steals nothing.
bool record_call(PyObject* op, const Arguments& arguments, PyObject* const* outputs, int count);
// `op.into(target, ...)`: false with a Python error set.
bool call_into(OpObject* op, Array* target, const Arguments& arguments);

// general.cc: operations which are prepared for exact specs.
PyObject* call_general(OpObject* op, const Operands& operands, const Arguments& arguments,
                       uint32_t parameters);
size_t general_table_size();
void clear_general_table();

// module.cc: what Python prepared, seen from here. Null or false with a Python error set.
ElementwisePointer elementwise_from(PyObject* object);
const ViewSpec* view_from(PyObject* object);  // null without an error when it is no View

}  // namespace gemel
