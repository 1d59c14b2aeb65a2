// Operations written in Python: NumPy-backed ones, and users' callbacks.

#pragma once

#include <string>
#include <vector>

#include "python/wall.h"

namespace gemel {

// One result of a Python function: an array to be filled.
struct ResultSpec {
  int code = 0;
  std::vector<int64_t> shape;
};

// A call of function(inputs, outputs): tuples of memoryviews of whole storages, those of `inputs`
// readable, of `targets` and of the new results (in this order) writable.
struct Callback {
  PyObject* function;  // borrowed, as are the others
  std::string name;
  std::vector<PyObject*> inputs;
  std::vector<PyObject*> targets;  // overwritten in place: old content matters
  std::vector<ResultSpec> results;
  int device = 0;
};

// Runs it now when everything is there, else in the Python lane. The results, as a new tuple; what
// the function raises becomes the failure of what it writes.
Reference issue_callback(const Callback& callback);

}  // namespace gemel
