#include "program/kernel.h"

#include <atomic>

namespace gemel {
namespace {

struct Tiles {
  const KernelCall& call;
  // (tile << 32 | status) of the earliest tile that failed.
  std::atomic<uint64_t> first_failure{UINT64_MAX};
};

void run_tile(void* opaque, int64_t tile) {
  auto* tiles = static_cast<Tiles*>(opaque);
  const KernelCall& call = tiles->call;
  const int64_t begin = tile * call.chunk;
  const int64_t end = std::min(begin + call.chunk, call.extent);
  const int32_t status = call.function(call.buffers, call.integers, begin, end);
  if (status == 0) return;
  const uint64_t mine = static_cast<uint64_t>(tile) << 32 | static_cast<uint32_t>(status);
  uint64_t seen = tiles->first_failure.load(std::memory_order_relaxed);
  while (mine < seen && !tiles->first_failure.compare_exchange_weak(seen, mine)) {
  }
}

}  // namespace

int32_t run_tiles(const KernelCall& call) {
  if (call.extent <= call.chunk || call.chunk <= 0) {
    return call.function(call.buffers, call.integers, 0, call.extent);
  }
  Tiles tiles{call};
  Engine::get().parallel((call.extent + call.chunk - 1) / call.chunk, run_tile, &tiles);
  const uint64_t failed = tiles.first_failure.load();
  return failed == UINT64_MAX ? 0 : static_cast<int32_t>(failed & 0xffffffff);
}

FailurePointer make_failure(const FailureText& text) {
  return std::make_shared<const Failure>(
      text.type.empty() ? "RuntimeError" : text.type,
      text.message.empty() ? "a kernel reported a failure" : text.message);
}

}  // namespace gemel
