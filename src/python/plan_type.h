// Plan as Python sees it: a callable over arrays and scalars.

#pragma once

#include "program/plan.h"
#include "python/array.h"

namespace gemel {

bool make_plan_type(PyObject* module);
bool is_plan(PyObject* object);
// One output as itself, several as a tuple; a new reference.
PyObject* call_plan_unpacked(PyObject* plan, PyObject* const* values, Py_ssize_t count);

// module.cc: from the arguments of `Plan(...)`; null with a Python error set.
std::shared_ptr<PlanProgram> program_from(PyObject* arguments, PyObject* keywords);

}  // namespace gemel
