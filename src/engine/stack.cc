// Kernels on threads whose stacks have no room for them. Code on a stack of its own (a coroutine)
// is taken to have enough: such an address is no thread's.

#include <pthread.h>

#include <cstdint>

#include "engine/device.h"
#include "memory/signals.h"

namespace gemel {

namespace {

// Products keep up to 0.45 MiB on the stack: panels of windows and copied rows.
constexpr size_t kKernelStack = size_t{3} << 18;

// The lowest address of this thread's stack; 0 if unknown, which counts as enough.
uintptr_t lowest_address() noexcept {
#ifdef __APPLE__
  const auto top = reinterpret_cast<uintptr_t>(pthread_get_stackaddr_np(pthread_self()));
  return top - pthread_get_stacksize_np(pthread_self());
#else
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  return known ? reinterpret_cast<uintptr_t>(lowest) : 0;
#endif
}

bool has_room() noexcept {
  static thread_local const uintptr_t lowest = lowest_address();
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) - lowest >= kKernelStack;
}

struct Piece {
  const KernelCall& call;
  int64_t begin;
  int64_t end;
  int32_t status = kNoThread;

  void run() { status = call.function(call.buffers, call.integers, begin, end); }
};

void* run_piece(void* piece) {
  static_cast<Piece*>(piece)->run();
  return nullptr;
}

// Like the engine's own threads, this one takes no signals.
bool run_elsewhere(Piece& piece) noexcept {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_t thread;
  bool made = pthread_attr_setstacksize(&attributes, 2 * kKernelStack) == 0;
  if (made) {
    const SignalsBlocked blocked;
    made = pthread_create(&thread, &attributes, run_piece, &piece) == 0;
  }
  pthread_attr_destroy(&attributes);
  return made && pthread_join(thread, nullptr) == 0;
}

}  // namespace

int32_t run_kernel(const KernelCall& call, int64_t begin, int64_t end) noexcept {
  if (has_room()) return call.function(call.buffers, call.integers, begin, end);
  Piece piece{call, begin, end};
  run_elsewhere(piece);
  return piece.status;
}

}  // namespace gemel
