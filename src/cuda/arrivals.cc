#include "cuda/arrivals.h"

#include <chrono>
#include <memory>
#include <thread>

namespace gemel::cuda {
namespace {

// How long the thread looks for an event before it sleeps, and for further operations.
constexpr auto kPatience = std::chrono::microseconds(50);

}  // namespace

void Arrivals::add(Completion done) {
  std::lock_guard<std::mutex> guard(mutex_);
  waiting_.push_back(std::move(done));
  if (!started_) {
    started_ = true;
    std::thread([this] { run(); }).detach();
  } else if (asleep_) {
    changed_.notify_one();
  }
}

FailurePointer Arrivals::failure(const char* action, Result result) const {
  return std::make_shared<const Failure>("DeviceError", driver_.explain(action, result));
}

// Kernels are short, so the thread looks for a while before it sleeps.
Result Arrivals::wait_for(Event event) const {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const Result result = driver_.query(event);
    if (result != kNotReady) return result;
    if (std::chrono::steady_clock::now() > until) return driver_.wait_for_event(event);
  }
}

void Arrivals::run() {
  driver_.set_current(context_);  // of a thread of its own, so no other library's is replaced
  Event event = nullptr;
  Result result = driver_.create_event(&event, kEventToWaitFor);
  std::vector<Completion> batch;
  auto idle_until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    {
      std::unique_lock<std::mutex> guard(mutex_);
      if (waiting_.empty() && std::chrono::steady_clock::now() > idle_until) {
        asleep_ = true;
        changed_.wait(guard, [this] { return !waiting_.empty(); });
        asleep_ = false;
      }
      batch.swap(waiting_);
    }
    if (batch.empty()) {
      std::this_thread::yield();
      continue;
    }
    if (result == kSuccess) result = driver_.record(event, stream_);
    if (result == kSuccess) result = wait_for(event);
    const FailurePointer failed = result == kSuccess ? nullptr : failure("run", result);
    for (Completion& done : batch) done(failed);
    batch.clear();
    idle_until = std::chrono::steady_clock::now() + kPatience;
  }
}

}  // namespace gemel::cuda
