// Registration of devices and lanes, and the CPU's functions.

#include <cstring>
#include <stdexcept>

#include "engine/scheduler.h"
#include "memory/memory.h"

namespace gemel {
namespace {

struct TileContext {
  const KernelCall& call;
  // (tile << 32 | status) of the earliest tile that failed.
  std::atomic<uint64_t> first_failure{UINT64_MAX};
};

void run_tile(void* opaque, int64_t tile) {
  auto* context = static_cast<TileContext*>(opaque);
  const KernelCall& call = context->call;
  const int64_t begin = tile * call.chunk;
  const int64_t end = std::min(begin + call.chunk, call.extent);
  const int32_t status = run_kernel(call, begin, end);
  if (status == 0) return;
  const uint64_t mine = static_cast<uint64_t>(tile) << 32 | static_cast<uint32_t>(status);
  uint64_t seen = context->first_failure.load(std::memory_order_relaxed);
  while (mine < seen && !context->first_failure.compare_exchange_weak(seen, mine)) {
  }
}

}  // namespace

void* Device::allocate(size_t bytes) noexcept { return memory::allocate(bytes); }

void Device::release(void* block, size_t bytes) noexcept { memory::release(block, bytes); }

void Device::copy(void* to, const void* from, size_t bytes, Completion done) {
  std::memcpy(to, from, bytes);
  done();
}

bool Device::read(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return true;
}

std::string Device::explain(int32_t status) const {
  if (status == kNoThread) {
    return name +
           ": this thread's stack has no room for a kernel, and the system allows no other "
           "thread; give it a stack of 1 MiB (threading.stack_size)";
  }
  return name + ": a kernel ended with status " + std::to_string(status);
}

int32_t Device::launch(const KernelCall& call) {
  if (call.extent <= call.chunk || call.chunk <= 0) {
    return run_kernel(call, 0, call.extent);
  }
  TileContext context{call};
  Engine::get().parallel((call.extent + call.chunk - 1) / call.chunk, run_tile, &context);
  const uint64_t failed = context.first_failure.load();
  return failed == UINT64_MAX ? 0 : static_cast<int32_t>(failed & 0xffffffff);
}

void Engine::register_hosts() {
  for (int number = 0; number < kHosts; ++number) {
    auto cpu = std::make_unique<Device>("cpu(" + std::to_string(number) + ")", "host");
    cpu->on_host = true;
    cpu->lane = add_lane({.name = cpu->name});
    register_device(number, std::move(cpu));
  }
}

int Engine::add_lane(LaneOptions options) {
  EngineState& state = *state_;
  Guard guard(state.lock);
  const int number = state.lane_count;
  if (number == kMostLanes) throw std::invalid_argument("there are too many lanes");
  Lane& lane = state.lanes[number];
  if (options.at_once > 0 || options.own_thread) lane.share = std::max(options.at_once, 1);
  if (!options.own_thread) state.pool_lanes |= lane_bit(number);
  if (options.instant) state.instant_lanes |= lane_bit(number);
  lane.options = std::move(options);
  ++state.lane_count;
  return number;
}

void Engine::register_device(int number, std::unique_ptr<Device> table) {
  Guard guard(state_->lock);
  if (number < 0 || number >= kMostDevices || device(number) != nullptr) {
    throw std::invalid_argument("device " + std::to_string(number) +
                                " cannot be registered: it is there, or out of range");
  }
  if (table->on_host) hosts_ |= uint64_t{1} << number;
  devices_[number].store(table.release());
}

LaneOptions Engine::lane(int number) const {
  Guard guard(state_->lock);
  return state_->lanes[number].options;
}

void Engine::set_share(int device, int threads) {
  Wakes wakes;
  Guard guard(state_->lock);
  Lane& lane = state_->lanes[this->device(device)->lane];
  lane.share = threads > 0 ? threads : std::numeric_limits<int>::max();
  state_->restore(wakes);
}

}  // namespace gemel
