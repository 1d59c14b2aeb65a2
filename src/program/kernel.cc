#include "program/kernel.h"

#include <atomic>

namespace gemel {
namespace {

struct TileContext {
  KernelFunction function;
  void* const* buffers;
  const int64_t* integers;
  int64_t extent;
  int64_t chunk;
  // (tile << 32 | status) of the earliest tile that failed.
  std::atomic<uint64_t> first_failure{UINT64_MAX};
};

void run_tile(void* opaque, int64_t tile) {
  auto* context = static_cast<TileContext*>(opaque);
  int64_t begin = tile * context->chunk;
  int64_t end = begin + context->chunk;
  if (end > context->extent) end = context->extent;
  int32_t status = context->function(context->buffers, context->integers, begin, end);
  if (status == 0) return;
  uint64_t mine = static_cast<uint64_t>(tile) << 32 | static_cast<uint32_t>(status);
  uint64_t seen = context->first_failure.load(std::memory_order_relaxed);
  while (mine < seen && !context->first_failure.compare_exchange_weak(seen, mine)) {
  }
}

}  // namespace

int32_t run_tiles(KernelFunction function, void* const* buffers, const int64_t* integers,
                  int64_t extent, int64_t chunk) {
  if (extent <= chunk || chunk <= 0) return function(buffers, integers, 0, extent);
  TileContext context{function, buffers, integers, extent, chunk};
  Engine::get().parallel((extent + chunk - 1) / chunk, run_tile, &context);
  uint64_t failed = context.first_failure.load();
  return failed == UINT64_MAX ? 0 : static_cast<int32_t>(failed & 0xffffffff);
}

FailurePointer make_failure(const FailureText& text, const Origin& origin) {
  return std::make_shared<const Failure>(
      text.type.empty() ? "RuntimeError" : text.type,
      text.message.empty() ? "a kernel reported a failure" : text.message, origin);
}

}  // namespace gemel
