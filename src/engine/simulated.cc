#include "engine/simulated.h"

#include <cstring>

#include "engine/engine.h"

namespace gemel {
namespace {

// Runs the CPU's code on one thread. A copy is made at once, but ends only when the link would have
// delivered it.
class SimulatedGpu final : public Device {
 public:
  SimulatedGpu(int number, const std::string& name) : Device(name, "host") {
    Engine& engine = Engine::get();
    lane = engine.add_lane({.name = name, .own_thread = true});
    incoming = engine.add_lane({.name = "copies to " + name, .own_thread = true, .link = number});
    outgoing = engine.add_lane({.name = "copies from " + name, .own_thread = true, .link = number});
  }

  void set(const Link& link) {
    nanoseconds_per_byte_ = link.bytes_per_second > 0 ? 1e9 / link.bytes_per_second : 0;
    latency_nanoseconds_ = link.latency_seconds * 1e9;
  }

  void copy(void* to, const void* from, size_t bytes, Completion done) override {
    const auto start = std::chrono::steady_clock::now();
    const double taken = latency_nanoseconds_ + static_cast<double>(bytes) * nanoseconds_per_byte_;
    std::memcpy(to, from, bytes);
    Engine::get().complete_at(start + std::chrono::nanoseconds(static_cast<int64_t>(taken)),
                              std::move(done));
  }

 private:
  std::atomic<double> nanoseconds_per_byte_{0};
  std::atomic<double> latency_nanoseconds_{0};
};

}  // namespace

void simulate_gpu(int number, const std::string& name, const Link& link) {
  Engine& engine = Engine::get();
  auto* gpu = dynamic_cast<SimulatedGpu*>(Engine::device(number));
  if (gpu == nullptr) {
    auto made = std::make_unique<SimulatedGpu>(number, name);
    gpu = made.get();
    engine.register_device(number, std::move(made));
  }
  gpu->set(link);
}

}  // namespace gemel
