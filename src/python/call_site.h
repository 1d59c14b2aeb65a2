// CallSite: the fast path from a compiled function's arguments to the plan made for them.

#pragma once

#include "python/wall.h"

namespace gemel {

bool make_call_site_type(PyObject* module);
// Makes every site ask its fallback again and drop the parameters it holds. Called when parameters
// have got other arrays.
void forget_call_sites();

}  // namespace gemel
