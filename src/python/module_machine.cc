// The part of the module gemel._core that is about the machine: its cores, and GPUs, real and
// simulated.

#include "python/module_machine.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>

#include "cuda/driver.h"
#include "cuda/gpu.h"
#include "cuda/kernel.h"
#include "engine/simulated.h"
#include "memory/machine.h"
#include "program/kernel.h"
#include "program/target.h"
#include "python/waits.h"

namespace gemel {
namespace {

// What the driver refuses is the user's DeviceError.
template <typename Function>
auto asked(Function function) {
  try {
    return function();
  } catch (const std::runtime_error& error) {
    throw Error("DeviceError", error.what());
  }
}

Kernel load_gpu_kernel(nanobind::bytes code) {
  try {
    const auto kernel = cuda::Kernel::load(code.c_str(), code.size());
    return {kernel, kernel->function()};
  } catch (const std::runtime_error& error) {
    throw nanobind::value_error(error.what());
  }
}

}  // namespace

void define_machine(nanobind::module_& module) {
  using nanobind::literals::operator""_a;
  module.def("cores", &machine::cores);
  module.def("tiles_allowed", &tiles_allowed);
  module.def("simulate_gpu", [](int device, const std::string& name, double bytes_per_second,
                                double latency_seconds) {
    simulate_gpu(device, name, {bytes_per_second, latency_seconds});
  });
  module.def("count_gpus", [] {
    const WithoutGil released;  // the driver may take a second to start
    return cuda::count_gpus();
  });
  module.def(
      "describe_gpu",
      [](int gpu) {
        const cuda::Description found = asked([&] { return cuda::describe(gpu); });
        return std::make_tuple(found.name, found.capability, found.multiprocessors);
      },
      "gpu"_a);
  module.def(
      "gpu_memory",
      [](int gpu) {
        const cuda::Memory memory = asked([&] { return cuda::memory_of(gpu); });
        return std::make_tuple(memory.free, memory.total);
      },
      "gpu"_a);
  module.def(
      "open_gpu",
      [](int gpu, int device, const std::string& name) {
        asked([&] { cuda::register_gpu(gpu, device, name); });
      },
      "gpu"_a, "device"_a, "name"_a);
  module.def("load_gpu_kernel", &load_gpu_kernel, "code"_a);
}

}  // namespace gemel
