// Copies between devices, in the lane of the link between them.

#include "program/kernel.h"
#include "python/array.h"
#include "python/waits.h"

namespace gemel {
namespace {

// The memory bandwidth of one core, for estimating the cost of a copy.
constexpr double kBytesPerMicrosecond = 8000;

// The device at the end of the link, and the lane of the link.
struct Way {
  Device* carrier;
  int lane;
};

Way way_between(int source, int target) {
  Device* from = Engine::device(source);
  Device* to = Engine::device(target);
  return from->on_host ? Way{to, to->incoming} : Way{from, from->outgoing};
}

class CopyOperation final : public Operation {
 public:
  void start(Completion done) override {
    carrier->copy(to.address(), from.address(), bytes, std::move(done));
  }
  std::string name() const override { return "copy"; }
  std::string detail() const override { return specs; }

  Device* carrier = nullptr;
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
    // The rest of the target keeps its contents and its failure.
    if (!target.whole()) reads_[read_count++] = target.storage;
    device = target.device();
    way_ = way_between(source.device(), device);
    lane = way_.lane;
    microseconds = static_cast<double>(source.bytes()) / kBytesPerMicrosecond;
    only_later = true;
  }

  // Never called: this work is always done later.
  FailurePointer run(PartialFailures&) override { return nullptr; }
  std::unique_ptr<Operation> later() override {
    auto operation = std::make_unique<CopyOperation>();
    operation->carrier = way_.carrier;
    operation->from = {source_.storage, source_.offset * item_size(source_.dtype)};
    operation->to = {target_.storage, target_.offset * item_size(target_.dtype)};
    operation->bytes = static_cast<size_t>(source_.bytes());
    operation->specs = describe(source_);
    return operation;
  }

 private:
  const Tensor& source_;
  const Tensor& target_;
  Way way_;
  Storage* reads_[2];
  Storage* writes_[1];
};

}  // namespace

void copy_across(PyObject* given, const Tensor& target) {
  Reference source = dense(given);
  if (target.size == 0 && tensor_of(source).settled()) return;
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
  if (!Engine::on_host(tensor_of(array).device())) return copy_to_device(array, 0);
  return borrowed(array);
}

}  // namespace gemel
