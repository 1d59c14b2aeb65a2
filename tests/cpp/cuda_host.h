// Kernels printed as CUDA C++, run on the CPU: for tests on machines without a GPU. The threads of
// a block are fibres, one of which runs at a time until it waits for the others; blocks follow each
// other.

#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "cuda/grid.h"

#define GEMEL_HOST
#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))

struct Indices {
  unsigned x, y, z;
};
static Indices threadIdx, blockIdx, gridDim;

namespace host {

constexpr size_t kStackBytes = 64 << 10;
constexpr int64_t kScratchBytes = 4 << 20;
constexpr int kMultiprocessors = 2;

struct Fibre {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool ended = false;
};
static ucontext_t scheduler;
static std::vector<Fibre> fibres;
static size_t current;
static std::function<void()> body;

static void enter() {
  body();
  fibres[current].ended = true;
}

static void run_block(int threads) {
  while (fibres.size() < static_cast<size_t>(threads)) {
    fibres.emplace_back().stack = std::make_unique<char[]>(kStackBytes);
  }
  for (int i = 0; i < threads; ++i) {
    Fibre& fibre = fibres[i];
    fibre.ended = false;
    getcontext(&fibre.context);
    fibre.context.uc_stack.ss_sp = fibre.stack.get();
    fibre.context.uc_stack.ss_size = kStackBytes;
    fibre.context.uc_link = &scheduler;
    makecontext(&fibre.context, enter, 0);
  }
  for (bool running = true; running;) {
    running = false;
    for (current = 0; current < static_cast<size_t>(threads); ++current) {
      if (fibres[current].ended) continue;
      threadIdx = {static_cast<unsigned>(current), 0, 0};
      swapcontext(&scheduler, &fibres[current].context);
      running = true;
    }
  }
}

// A call as the device makes it: `Arguments` is what the kernel takes.
template <typename Arguments>
int32_t run(void (*kernel)(Arguments), const gemel::cuda::Form& form, void* const* buffers,
            const int64_t* integers) {
  static std::vector<char> scratch(kScratchBytes);
  static std::vector<unsigned> counters(1 << 14);
  static volatile int32_t status;
  status = 0;
  Arguments given;
  std::memcpy(given.buffers, buffers, sizeof(void*) * form.buffers);
  std::memcpy(given.integers, integers, sizeof(int64_t) * form.integers);
  const auto grid = gemel::cuda::grid_of(form, integers, kMultiprocessors, kScratchBytes);
  given.scratch = scratch.data();
  given.counters = counters.data();
  given.status = &status;
  given.across = grid.across;
  given.along = grid.along;
  gridDim = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1};
  body = [&] { kernel(given); };
  for (unsigned y = 0; y < gridDim.y; ++y) {
    for (unsigned x = 0; x < gridDim.x; ++x) {
      blockIdx = {x, y, 0};
      run_block(grid.threads);
    }
  }
  return status;
}

}  // namespace host

static void __syncthreads() { swapcontext(&host::fibres[host::current].context, &host::scheduler); }
static void __threadfence() {}
template <typename Value>
Value atomicAdd(Value* place, Value value) {
  const Value before = *place;
  *place += value;
  return before;
}
