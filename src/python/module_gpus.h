// The part of the module gemel._core that is about GPUs, real and simulated.

#pragma once

#include <nanobind/nanobind.h>

namespace gemel {

void define_gpus(nanobind::module_& module);

}  // namespace gemel
