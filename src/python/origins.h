// Where operations were issued, as Python knows it: a code object and a position in it.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>

#include "engine/failure.h"

namespace gemel {

// The first Python frame outside the package.
Origin current_origin();
// "FILE" and the line; an empty text and 0 when it is not known. Needs the GIL.
const char* file_of(const Origin& origin);
int line_of(const Origin& origin);
// "FILE:LINE" as a function of Python wants files called, such as a notebook's number of a cell.
std::string shown_line(const Origin& origin);
void set_file_namer(PyObject* function);
// How many code objects are kept at this moment.
size_t kept_code();

}  // namespace gemel
