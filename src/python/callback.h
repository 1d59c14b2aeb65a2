// Operations written in Python: those computed by NumPy, and users' callbacks.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/sort.h"
#include "python/op_type.h"

namespace gemel {

// One result of a Python function: an array to be filled.
struct ResultSpec {
  int code = 0;
  std::vector<int64_t> shape;
};

// A call of function(inputs, outputs). Both are tuples of memoryviews: read-only for `inputs`,
// writable for `targets` and then the new results, which together form `outputs`. The view of a
// dense array has its elements, that of any other array its whole storage. Python numbers among the
// inputs are passed unchanged.
struct Callback {
  PyObject* function;  // borrowed, as are the other objects
  std::string name;
  std::vector<PyObject*> inputs;
  std::vector<PyObject*> targets;  // overwritten in place; their old contents matter
  const std::vector<ResultSpec>* results;
  int device = 0;
};

// Runs it now if all inputs are ready, else in the Python lane. Returns the results as a new tuple.
// If the function raises, the error becomes a failure of what it writes.
Reference issue_callback(const Callback& callback);

// What Python has prepared for calls of one operation on dense host arrays with these dtypes and
// shapes.
struct NumpyStep;
using StepPointer = std::shared_ptr<const NumpyStep>;
// Steps by the exact key of such calls. Guarded by the GIL.
Cache<StepPointer>& steps();
// Makes a step from (function, [(code, shape) of each result]), or from (function, None): such a
// function is called with the inputs, waits for them and returns the operation's results. A
// SortedRows in place of the function is executed without Python.
StepPointer step_from(PyObject* pair);
// Returns a new reference: the result, or a tuple of several results.
PyObject* call_step(const StepPointer& step, PyObject* name, const Operands& operands,
                    const Arguments& arguments);
// module.cc. sorted_rows_from() returns null for anything else. result_specs_from() converts
// results as Python describes them.
const SortedRows* sorted_rows_from(PyObject* object);
std::vector<ResultSpec> result_specs_from(PyObject* described);

}  // namespace gemel
