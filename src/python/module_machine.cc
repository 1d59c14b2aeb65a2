// The part of the module gemel._core that is about the machine: its cores, the code that is made
// for them, and GPUs, real and simulated.

#include "python/module_machine.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <stdexcept>

#include "compiler/assembler.h"
#include "compiler/llvm.h"
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

// The triple, the processor, its features, how code is relocated, and the level of optimisation.
using TargetFields = std::tuple<std::string, std::string, std::string, std::string, int>;

llvm::Target target_of(const TargetFields& fields) {
  return std::make_from_tuple<llvm::Target>(fields);
}

nanobind::bytes bytes_of(const std::string& text) {
  return nanobind::bytes(text.data(), text.size());
}

void define_compiler(nanobind::module_& module) {
  using nanobind::literals::operator""_a;
  nanobind::class_<llvm::Library>(module, "Llvm")
      .def(nanobind::init<std::string>(), "path"_a)
      .def("open_soon", &llvm::Library::open_soon)
      .def("settle",
           [](llvm::Library& library) {
             const GilLeft left;
             library.settle();
           })
      .def(
          "object_of",
          [](llvm::Library& library, const std::string& assembly, const TargetFields& target) {
            std::string object;
            {
              const GilLeft left;
              object = library.object_of(assembly, target_of(target));
            }
            return bytes_of(object);
          },
          "assembly"_a, "target"_a);
  nanobind::class_<llvm::Assembler>(module, "Assembler")
      .def(nanobind::init<std::shared_ptr<llvm::Library>, int>(), "library"_a, "threads"_a)
      .def(
          "give",
          [](llvm::Assembler& assembler, std::string assembly, const TargetFields& target,
             int length) { assembler.give(std::move(assembly), target_of(target), length); },
          "assembly"_a, "target"_a, "length"_a)
      .def("finish", [](llvm::Assembler& assembler) {
        std::vector<llvm::Outcome> outcomes;
        {
          const GilLeft left;
          outcomes = assembler.finish();
        }
        nanobind::list found;
        for (const llvm::Outcome& outcome : outcomes) {
          found.append(std::make_pair(bytes_of(outcome.object), outcome.refused));
        }
        return found;
      });
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
  define_compiler(module);
}

}  // namespace gemel
