#include "program/desk.h"

#include <utility>

#include "program/error.h"

namespace gemel {
namespace {

int lane_of_errands(bool sums) {
  static const auto add = [](const char* name) {
    return Engine::get().add_lane({.name = name, .ended_outside = true, .instant = true});
  };
  static const int lane = add("errands");
  static const int lane_of_sums = add("sums");
  return sums ? lane_of_sums : lane;
}

Place place_of(const Tensor& tensor) {
  return {tensor.storage, tensor.offset * item_size(tensor.dtype)};
}

struct Stretch {
  Place place;
  size_t bytes;
  Errand::Part part() const {
    static char nothing[8];
    if (bytes == 0) return {nothing, 0};
    return {place.address(), bytes};
  }
};

}  // namespace

Errand::~Errand() {
  if (done_)
    (*done_)(located(std::make_shared<const Failure>("RuntimeError", "nobody did it"), origin_));
}

void Errand::end(const FailurePointer& why) {
  if (!done_) throw Error("RuntimeError", "the errand has ended before");
  Completion done = std::move(*done_);
  done_.reset();
  inputs.clear();
  outputs.clear();
  done(why == nullptr ? nullptr : located(why, origin_));
}

class DeskOperation final : public Operation {
 public:
  DeskOperation(std::shared_ptr<Desk> desk, uint64_t number, std::string name)
      : desk_(std::move(desk)), number_(number), name_(std::move(name)) {}
  // If an input has failed, the operation is destroyed without having been started. Its errand is
  // put on the desk as a notice, since others may be waiting for it.
  ~DeskOperation() override {
    if (!started_) {
      auto errand = std::make_shared<Errand>();
      errand->number = number_;
      errand->failure = reason();
      desk_->put(std::move(errand));
    }
    for (const Stretch& input : inputs) input.place.storage->release();
  }
  void start(Completion done) override {
    started_ = true;
    auto errand = std::make_shared<Errand>();
    errand->number = number_;
    for (const Stretch& input : inputs) errand->inputs.push_back(input.part());
    for (const Stretch& output : outputs) errand->outputs.push_back(output.part());
    errand->origin_ = origin;
    errand->done_.emplace(std::move(done));
    // When put() returns, the operation may have been destroyed.
    const std::shared_ptr<Desk> desk = desk_;
    desk->put(std::move(errand));
  }
  std::string name() const override { return name_; }

  void add_input(const Tensor& tensor) {
    tensor.storage->retain();
    inputs.push_back({place_of(tensor), static_cast<size_t>(tensor.bytes())});
  }
  void add_output(const Tensor& tensor) {
    outputs.push_back({place_of(tensor), static_cast<size_t>(tensor.bytes())});
  }

 private:
  FailurePointer reason() const {
    for (const Stretch& input : inputs) {
      if (FailurePointer failure = input.place.storage->failure()) return failure;
    }
    return std::make_shared<const Failure>("RuntimeError", name_ + ": called off");
  }

  const std::shared_ptr<Desk> desk_;
  const uint64_t number_;
  const std::string name_;
  std::vector<Stretch> inputs;
  std::vector<Stretch> outputs;
  bool started_ = false;
};

namespace {

class DeskLaunch final : public Launch {
 public:
  DeskLaunch(std::unique_ptr<DeskOperation> operation, const std::vector<Tensor*>& inputs,
             const std::vector<Tensor*>& outputs, bool sums)
      : operation_(std::move(operation)) {
    for (const Tensor* input : inputs) {
      operation_->add_input(*input);
      reads_.push_back(input->storage);
    }
    for (const Tensor* output : outputs) {
      operation_->add_output(*output);
      writes_.push_back(output->storage);
      device = output->device();
    }
    reads = reads_.data();
    read_count = static_cast<int>(reads_.size());
    writes = writes_.data();
    write_count = static_cast<int>(writes_.size());
    lane = lane_of_errands(sums);
    microseconds = 5;
    only_later = true;
  }
  // Never called: this work is always done later.
  FailurePointer run(PartialFailures&) override { return nullptr; }
  std::unique_ptr<Operation> later() override { return std::move(operation_); }

 private:
  std::unique_ptr<DeskOperation> operation_;
  std::vector<Storage*> reads_;
  std::vector<Storage*> writes_;
};

}  // namespace

std::shared_ptr<Desk> Desk::make(std::function<void()> bell, bool sums) {
  return std::shared_ptr<Desk>(new Desk(std::move(bell), sums));
}

void Desk::issue(uint64_t number, std::string name, const std::vector<Tensor*>& inputs,
                 const std::vector<Tensor*>& outputs, Front& front) {
  for (const std::vector<Tensor*>* tensors : {&inputs, &outputs}) {
    for (const Tensor* tensor : *tensors) {
      if (!Engine::on_host(tensor->device()) || !tensor->contiguous) {
        throw Error("ValueError", name + ": its arrays are dense and in the host's memory");
      }
    }
  }
  DeskLaunch work(std::make_unique<DeskOperation>(shared_from_this(), number, std::move(name)),
                  inputs, outputs, sums_);
  launch(work, front);
}

void Desk::put(std::shared_ptr<Errand> errand) {
  {
    std::unique_lock lock(mutex_);
    if (closed_ == nullptr) {
      waiting_.push_back(std::move(errand));
      changed_.notify_one();
      if (!bell_) return;
      // Without the lock, because the bell may take what is there.
      ++ringing_;
      lock.unlock();
      bell_();
      lock.lock();
      if (--ringing_ == 0) changed_.notify_all();
      return;
    }
  }
  if (errand->failure == nullptr) errand->end(closed_);
}

std::shared_ptr<Errand> Desk::take(std::chrono::microseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return !waiting_.empty() || closed_ != nullptr; });
  if (waiting_.empty()) return nullptr;
  std::shared_ptr<Errand> errand = std::move(waiting_.front());
  waiting_.pop_front();
  return errand;
}

void Desk::close(const FailurePointer& failure) {
  std::deque<std::shared_ptr<Errand>> left;
  {
    std::unique_lock lock(mutex_);
    if (closed_ == nullptr) {
      closed_ = failure;
      left.swap(waiting_);
      changed_.notify_all();
    }
    changed_.wait(lock, [this] { return ringing_ == 0; });
  }
  for (const std::shared_ptr<Errand>& errand : left) {
    if (errand->failure == nullptr) errand->end(failure);
  }
}

}  // namespace gemel
