// Python as a front end of the engine: how it hands over, and how it waits.

#pragma once

#include "program/launch.h"
#include "python/waits.h"

namespace gemel {

// Needs the GIL, as everything here does. Throws PythonError.
Front& python_front();
void wait_for(Storage* storage);  // until its contents are there; throws what made them fail

}  // namespace gemel
