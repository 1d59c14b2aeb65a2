// Operations written in Python: NumPy-backed ones, and users' callbacks.

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

// A call of function(inputs, outputs): tuples of memoryviews, those of `inputs` readable, of
// `targets` and of the new results (in this order) writable. A dense array's is of its elements,
// another's of its whole storage. Numbers among the inputs stand in their tuple as they are.
struct Callback {
  PyObject* function;  // borrowed, as are the others
  std::string name;
  std::vector<PyObject*> inputs;
  std::vector<PyObject*> targets;  // overwritten in place: old content matters
  const std::vector<ResultSpec>* results;
  int device = 0;
};

// Runs it now when everything is there, else in the Python lane. The results, as a new tuple; what
// the function raises becomes the failure of what it writes.
Reference issue_callback(const Callback& callback);

// What Python has prepared for calls of one operation on dense arrays like these, on the host.
struct NumpyStep;
using StepPointer = std::shared_ptr<const NumpyStep>;
// By the exact key of such calls. Guarded by the GIL.
Cache<StepPointer>& steps();
// From (function, [(code, shape) of each result]); or from (function, None), which is called with
// the inputs, waits for them and returns what the operation does. A SortedRows in place of the
// function is done without Python.
StepPointer step_from(PyObject* pair);
// A new reference: the result, or a tuple of several.
PyObject* call_step(const StepPointer& step, PyObject* name, const Operands& operands,
                    const Arguments& arguments);
// module.cc: null for anything else; and results as Python describes them.
const SortedRows* sorted_rows_from(PyObject* object);
std::vector<ResultSpec> result_specs_from(PyObject* described);

}  // namespace gemel
