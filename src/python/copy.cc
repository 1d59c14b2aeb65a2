// Copies between devices, by the lane of the link between them.

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "program/kernel.h"
#include "python/array.h"
#include "python/front.h"

namespace gemel {
namespace {

std::atomic<double> nanoseconds_per_byte{0};
std::atomic<double> latency_nanoseconds{0};

// What the memory moves on one core, to know which copies are small enough to be made at once.
constexpr double kBytesPerMicrosecond = 8000;

int lane_between(int source, int target) {
  if (source >= kFirstGpu) return kFirstFromGpu + source - kFirstGpu;
  if (target >= kFirstGpu) return kFirstToGpu + target - kFirstGpu;
  return kCopyLane;
}

class CopyOperation final : public Operation {
 public:
  FailurePointer run() override {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.address(), from.address(), bytes);
    if (lane == kCopyLane) return nullptr;
    const double nanoseconds =
        latency_nanoseconds.load() + static_cast<double>(bytes) * nanoseconds_per_byte.load();
    std::this_thread::sleep_until(start +
                                  std::chrono::nanoseconds(static_cast<int64_t>(nanoseconds)));
    return nullptr;
  }
  std::string name() const override { return "copy"; }
  std::string detail() const override { return specs; }

  Place from;
  Place to;
  size_t bytes = 0;
  std::string specs;
};

class CopyLaunch final : public Launch {
 public:
  CopyLaunch(const Tensor& source, const Tensor& target) : source_(source), target_(target) {
    reads = reads_;
    writes = writes_;
    reads_[read_count++] = source.storage;
    writes_[write_count++] = target.storage;
    known_writes = 1;
    // What is not overwritten keeps its meaning, and its failure.
    if (!target.whole()) reads_[read_count++] = target.storage;
    device = target.device();
    lane = lane_between(source.device(), device);
    microseconds = static_cast<double>(source.bytes()) / kBytesPerMicrosecond;
    only_later = true;
  }

  FailurePointer run(PartialFailures&) override { return nullptr; }  // it is only done later
  std::unique_ptr<Operation> later() override {
    auto operation = std::make_unique<CopyOperation>();
    operation->from = {source_.storage, source_.offset * item_size(source_.dtype)};
    operation->to = {target_.storage, target_.offset * item_size(target_.dtype)};
    operation->bytes = static_cast<size_t>(source_.bytes());
    operation->specs = describe(source_);
    return operation;
  }

 private:
  const Tensor& source_;
  const Tensor& target_;
  Storage* reads_[2];
  Storage* writes_[1];
};

}  // namespace

void set_simulated_link(const Link& link) {
  nanoseconds_per_byte.store(link.bytes_per_second > 0 ? 1e9 / link.bytes_per_second : 0);
  latency_nanoseconds.store(link.latency_seconds * 1e9);
}

void copy_across(PyObject* given, const Tensor& target) {
  Reference source = dense(given);
  if (target.size == 0) return;
  target.storage->bump_version();
  CopyLaunch work(tensor_of(source), target);
  launch(work, python_front());
}

Reference copy_to_device(PyObject* source, int device) {
  Reference target = new_array_like(tensor_of(source), device);
  copy_across(source, tensor_of(target));
  return target;
}

Reference in_memory(PyObject* array) {
  if (tensor_of(array).device() >= kFirstGpu) return copy_to_device(array, 0);
  return borrowed(array);
}

}  // namespace gemel
