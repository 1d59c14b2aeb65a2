// CallSite: the quick way from a compiled function's arguments to the plan made for them.

#pragma once

#include "python/wall.h"

namespace gemel {

bool make_call_site_type(PyObject* module);
// Every site asks its fallback again, and keeps no parameter any longer: some have got other
// arrays.
void forget_call_sites();

}  // namespace gemel
