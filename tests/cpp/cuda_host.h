// Kernels printed as CUDA C++, run on the CPU: for tests on machines without a GPU. The threads of
// a block are fibres, one of which runs at a time until it waits for the others; blocks follow each
// other. Every other block runs its threads, and every other call its blocks, from the last to the
// first, so that a kernel that lacks a barrier does not always give the right result.

#pragma once

#include <setjmp.h>
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

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct Indices {
  unsigned x, y, z;
};
static Indices threadIdx, blockIdx, gridDim;

namespace host {

constexpr size_t kStackBytes = 64 << 10;
constexpr int64_t kScratchBytes = 4 << 20;
constexpr int kMultiprocessors = 2, kResident = 1;

// What a call returns if some threads of a block end while others wait for them.
constexpr int32_t kDiverged = -1;

// It runs one thread after another. Jumps, unlike swapcontext(), need no system calls.
struct Fibre {
  std::unique_ptr<char[]> stack;
  jmp_buf place;
  bool ended = false;
};
static jmp_buf scheduler;
static std::vector<Fibre> fibres;
static size_t current;
static std::function<void()> body;

static void leave() {
  if (_setjmp(fibres[current].place) == 0) _longjmp(scheduler, 1);
}

static void live() {
  for (;;) {
    body();
    fibres[current].ended = true;
    leave();
  }
}

static void begin(Fibre& fibre) {
  ucontext_t context;
  fibre.stack = std::make_unique<char[]>(kStackBytes);
  getcontext(&context);
  context.uc_stack.ss_sp = fibre.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  makecontext(&context, live, 0);
  setcontext(&context);
}

static void resume(Fibre& fibre) {
  if (_setjmp(scheduler) != 0) return;
  if (fibre.stack != nullptr) _longjmp(fibre.place, 1);
  begin(fibre);
}

// False if the threads do not all come to the same barriers.
static bool run_block(int threads, bool backwards) {
  if (fibres.size() < static_cast<size_t>(threads)) fibres.resize(threads);
  for (int i = 0; i < threads; ++i) fibres[i].ended = false;
  for (;;) {
    int ended = 0;
    for (int i = 0; i < threads; ++i) {
      current = backwards ? threads - 1 - i : i;
      threadIdx = {static_cast<unsigned>(current), 0, 0};
      resume(fibres[current]);
      ended += fibres[current].ended;
    }
    if (ended == threads) return true;
    if (ended == 0) continue;
    fibres.clear();
    return false;
  }
}

// A call as the device makes it: `Arguments` is what the kernel takes.
template <typename Arguments>
int32_t run(void (*kernel)(Arguments), const gemel::cuda::Form& form, void* const* buffers,
            const int64_t* integers) {
  static std::vector<char> scratch(kScratchBytes);
  static std::vector<unsigned> counters(1 << 14);
  static volatile int32_t status;
  static bool backwards = false;
  status = 0;
  Arguments given;
  std::memcpy(given.buffers, buffers, sizeof(void*) * form.buffers);
  std::memcpy(given.integers, integers, sizeof(int64_t) * form.integers);
  const auto grid =
      gemel::cuda::grid_of(form, integers, kMultiprocessors, kResident, kScratchBytes);
  given.scratch = scratch.data();
  given.counters = counters.data();
  given.status = &status;
  given.across = grid.across;
  given.along = grid.along;
  given.shift = grid.shift;
  gridDim = {static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1};
  body = [&] { kernel(given); };
  const unsigned blocks = gridDim.x * gridDim.y;
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned block = backwards ? blocks - 1 - i : i;
    blockIdx = {block % gridDim.x, block / gridDim.x, 0};
    if (!run_block(grid.threads, block % 2 != 0)) return kDiverged;
  }
  backwards = !backwards;
  return status;
}

}  // namespace host

static void __syncthreads() { host::leave(); }
static void __threadfence() {}
template <typename Value>
Value atomicAdd(Value* place, Value value) {
  const Value before = *place;
  *place += value;
  return before;
}

// Shared memory whose size is known at the launch, and copies to it in the background: here, at
// once.
#define DYNAMIC_SHARED(name) static char* const name = host::dynamic
namespace host {

alignas(1024) static char dynamic[256 << 10];

}  // namespace host

template <int bytes>
void copy_later(void* to, const void* from, bool there) {
  std::memset(to, 0, bytes);
  if (there) std::memcpy(to, from, bytes);
}
static void end_group() {}
template <int groups>
void wait_for_groups() {}

// What a thread reads of another one of its warp. All threads of a block have to take part.
namespace host {

template <typename Value>
Value of_thread(Value value, unsigned lane) {
  static Value all[gemel::cuda::kThreads];
  const unsigned thread = threadIdx.x;
  all[thread] = value;
  __syncthreads();
  const Value found = lane < 32 ? all[thread / 32 * 32 + lane] : value;
  __syncthreads();
  return found;
}

}  // namespace host

template <typename Value>
Value __shfl_down_sync(unsigned, Value value, unsigned step) {
  return host::of_thread(value, threadIdx.x % 32 + step);
}
template <typename Value>
Value __shfl_sync(unsigned, Value value, unsigned lane) {
  return host::of_thread(value, lane);
}

// What tensor cores do: pieces of 16 x 16 and 16 x 8 elements, whose registers are spread over the
// threads of a warp (PTX manual, mma.m16n8k16). All threads of a block have to take part.
namespace host {

static float as_f16(uint32_t bits) {
  const uint32_t exponent = bits >> 10 & 31, digits = bits & 1023;
  const float sign = bits >> 15 & 1 ? -1.0f : 1.0f;
  if (exponent == 31) return digits != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(digits), -24);
  return sign * std::ldexp(static_cast<float>(digits + 1024), static_cast<int>(exponent) - 25);
}

static float as_bf16(uint32_t bits) {
  const uint32_t whole = bits << 16;
  float value;
  std::memcpy(&value, &whole, sizeof value);
  return value;
}

template <float (*as_float)(uint32_t)>
void multiply(float& c0, float& c1, float& c2, float& c3, const uint32_t (&a)[4],
              const uint32_t* b) {
  static uint32_t all_a[gemel::cuda::kThreads][4], all_b[gemel::cuda::kThreads][2];
  const unsigned thread = threadIdx.x, warp = thread / 32 * 32, lane = thread % 32;
  std::memcpy(all_a[thread], a, sizeof a);
  std::memcpy(all_b[thread], b, sizeof all_b[thread]);
  __syncthreads();
  const auto part = [](uint32_t pair, unsigned k) { return as_float(pair >> k % 2 * 16 & 0xffff); };
  float* const sums[] = {&c0, &c1, &c2, &c3};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const uint32_t left = all_a[warp + row * 4 + k % 8 / 2][i / 2 + k / 8 * 2];
      const uint32_t right = all_b[warp + column * 4 + k % 8 / 2][k / 8];
      *sums[i] += part(left, k) * part(right, k);
    }
  }
  __syncthreads();
}

}  // namespace host

// Four matrices of 8 x 8 two-byte elements, of which every thread says where a row lies (PTX
// manual, ldmatrix).
template <bool turned>
void read_matrices(uint32_t (&four)[4], const void* row) {
  static const uint16_t* rows[gemel::cuda::kThreads];
  const unsigned thread = threadIdx.x, warp = thread / 32 * 32, lane = thread % 32;
  rows[thread] = static_cast<const uint16_t*>(row);
  __syncthreads();
  for (unsigned i = 0; i < 4; ++i) {
    const uint16_t* const* const matrix = &rows[warp + 8 * i];
    uint16_t pair[2];
    for (unsigned j = 0; j < 2; ++j) {
      const unsigned far = lane % 4 * 2 + j, near = lane / 4;
      pair[j] = turned ? matrix[far][near] : matrix[near][far];
    }
    std::memcpy(&four[i], pair, sizeof pair);
  }
  __syncthreads();
}

// What groups of four warps do: 64 rows and some columns, whose factors lie in shared memory in
// rows of 128 bytes, along k or (turned) along 64 lines, whose vectors are permuted (PTX manual,
// wgmma).
namespace host {

constexpr unsigned kRow = 128, kEightRows = 8 * kRow, kBlock = 8 * kEightRows;

template <bool turned>
uint32_t of_part(const void* part, unsigned line, unsigned k) {
  const unsigned far = turned ? line / 64 * kBlock + k * kRow + line % 64 * 2 : line * kRow + k * 2;
  auto address = reinterpret_cast<uintptr_t>(part) + far;
  address ^= address / kRow % 8 * 16;
  return *reinterpret_cast<const uint16_t*>(address);
}

template <float (*as_float)(uint32_t), unsigned columns, bool turned_a, bool turned_b>
void multiply_group(float (&sums)[2][columns / 4], const void* a, const void* b) {
  const unsigned thread = threadIdx.x % 128;
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned row = thread / 32 * 16 + thread % 32 / 4 + 8 * i;
    for (unsigned k = 0; k < 16; ++k) {
      const float left = as_float(of_part<turned_a>(a, row, k));
      for (unsigned j = 0; j < columns / 4; ++j) {
        const unsigned column = j / 2 * 8 + thread % 4 * 2 + j % 2;
        sums[i][j] += left * as_float(of_part<turned_b>(b, column, k));
      }
    }
  }
}

}  // namespace host

static void publish() {}
static void begin_groups() {}
static void end_groups() {}
static void wait_for_products() {}

constexpr auto multiply_f16 = host::multiply<host::as_f16>;
constexpr auto multiply_bf16 = host::multiply<host::as_bf16>;
