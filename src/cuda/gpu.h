// Real GPUs as devices of the engine.

#pragma once

#include <cstddef>
#include <string>

namespace gemel::cuda {

// What a GPU is called and can do.
struct Description {
  std::string name;
  int capability = 0;  // 90 for compute capability 9.0
  int multiprocessors = 0;
};

// Both throw std::runtime_error if the driver refuses.
Description describe(int gpu);
// Free and total bytes of its memory.
struct Memory {
  size_t free = 0;
  size_t total = 0;
};
Memory memory_of(int gpu);

// Registers GPU number `gpu` of the driver as a device of the engine, with its lanes, unless that
// is done already. Throws std::runtime_error if the driver refuses.
void register_gpu(int gpu, int device, const std::string& name);

}  // namespace gemel::cuda
