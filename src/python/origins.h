// Where operations were issued, as Python identifies it: a code object and a position in it.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>

#include "engine/failure.h"

namespace gemel {

// The innermost Python frame outside the package.
Origin current_origin();
// The file and the line; an empty text and 0 when unknown. Needs the GIL.
const char* file_of(const Origin& origin);
int line_of(const Origin& origin);
// "FILE:LINE". A registered Python function chooses the name of the file, such as the number of a
// notebook cell.
std::string shown_line(const Origin& origin);
void set_file_namer(PyObject* function);
// How many code objects are kept alive now.
size_t kept_code();

}  // namespace gemel
