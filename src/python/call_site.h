// CallSite: the quick way from a compiled function's arguments to the plan made for them.

#pragma once

#include "python/array.h"

namespace gemel {

bool make_call_site_type(PyObject* module);
// Every site asks its fallback again: some parameter has got another array.
void forget_call_sites();

}  // namespace gemel
