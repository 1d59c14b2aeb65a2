#include "python/copy.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "python/describe.h"
#include "python/op_type.h"

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
    std::memcpy(static_cast<char*>(to.storage->data()) + to.bytes,
                static_cast<const char*>(from.storage->data()) + from.bytes, bytes);
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

// The array itself when it is contiguous, else a contiguous copy on its device.
Reference contiguous(Array* array) {
  PyObject* object = as_object(array);
  if (array->contiguous) return Reference(Py_NewRef(object));
  PyObject* operation = find_operator("copy");
  if (operation == nullptr) return {};
  Reference copy(
      as_object(new_array(array->code, array->shape(), array->ndim, array->storage->device())));
  if (!copy || !call_into(reinterpret_cast<OpObject*>(operation), as_array(copy.get()),
                          Arguments{&object, 1, nullptr})) {
    return {};
  }
  return copy;
}

Place place_of(Array* array) { return {array->storage, array->offset * kItemSize[array->code]}; }

bool issue_copy(Array* source, Array* target) {
  auto operation = std::make_unique<CopyOperation>();
  operation->from = place_of(source);
  operation->to = place_of(target);
  operation->bytes = static_cast<size_t>(source->size * kItemSize[source->code]);
  operation->reads.push_back(source->storage);
  operation->writes.push_back(target->storage);
  // What is not overwritten keeps its meaning, and its failure.
  if (operation->bytes != target->storage->bytes()) operation->reads.push_back(target->storage);
  operation->device = target->storage->device();
  operation->lane = lane_between(source->storage->device(), operation->device);
  operation->microseconds = static_cast<double>(operation->bytes) / kBytesPerMicrosecond;
  operation->specs = describe(source);
  operation->origin = current_origin();
  return issue_operation(std::move(operation));
}

}  // namespace

void set_simulated_link(const Link& link) {
  nanoseconds_per_byte.store(link.bytes_per_second > 0 ? 1e9 / link.bytes_per_second : 0);
  latency_nanoseconds.store(link.latency_seconds * 1e9);
}

bool copy_across(Array* source, Array* target) {
  Reference dense = contiguous(source);
  if (!dense) return false;
  if (source->size == 0) return true;
  target->storage->bump_version();
  if (!issue_copy(as_array(dense.get()), target)) return false;
  Storage* const touched[] = {as_array(dense.get())->storage, target->storage};
  return settle_exports(touched, 2);
}

PyObject* copy_to_device(Array* source, int device) {
  Reference target(as_object(new_array(source->code, source->shape(), source->ndim, device)));
  if (!target || !copy_across(source, as_array(target.get()))) return nullptr;
  return target.take();
}

Reference in_memory(Array* array) {
  if (array->storage->device() >= kFirstGpu) return Reference(copy_to_device(array, 0));
  return Reference(Py_NewRef(as_object(array)));
}

}  // namespace gemel
