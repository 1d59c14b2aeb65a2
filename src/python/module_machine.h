// The part of the module gemel._core that is about the machine: its cores, the code that is made
// for them, and GPUs, real and simulated.

#pragma once

#include <nanobind/nanobind.h>

namespace gemel {

void define_machine(nanobind::module_& module);

}  // namespace gemel
