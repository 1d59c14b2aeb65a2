// Threads that wait: for what, what they do meanwhile, and where they sleep.

#include <algorithm>
#include <chrono>

#include "engine/engine.h"
#include "engine/scheduler.h"

namespace gemel {

// --- waiting ---

bool Engine::wait(Storage* storage, InterruptedFunction interrupted) {
  if (ready(storage)) return true;
  const uint64_t writes = storage->writes_issued_.load(std::memory_order_acquire);
  return state_->help_until(
      {.kind = Condition::Kind::kWritten, .storage = storage, .writes = writes}, interrupted);
}

bool Engine::wait_idle(Storage* storage, InterruptedFunction interrupted) {
  if (idle(storage)) return true;
  return state_->help_until({.kind = Condition::Kind::kIdle, .storage = storage}, interrupted);
}

bool Engine::wait_all_quietly(InterruptedFunction interrupted) {
  Condition over{.kind = Condition::Kind::kEpoch};
  return state_->begin_epoch(interrupted, over) && state_->help_until(over, interrupted);
}

// Over for good as soon as its counter is zero: a later epoch may use the counter again then.
bool EngineState::epoch_over(uint64_t which, int64_t own) const noexcept {
  return epoch.load() > which + 1 || pending_in[which & 1].load() <= own;
}

// Begins an epoch, once the one before has ended; `over`: until what has been issued is finished.
bool EngineState::begin_epoch(InterruptedFunction interrupted, Condition& over) {
  for (;;) {
    {
      Guard guard(lock);
      const uint64_t now = epoch.load();
      if (pending_in[(now + 1) & 1].load() <= operations_in[(now + 1) & 1]) {
        over.epoch = now;
        over.own = operations_in[now & 1];
        epoch.store(now + 1);
        return true;
      }
      over.epoch = now - 1;
      over.own = operations_in[(now + 1) & 1];
    }
    if (!help_until(over, interrupted)) return false;
  }
}

bool Engine::device_idle(int device) const noexcept {
  return state_->device_pending[device].load(std::memory_order_acquire) == 0;
}

bool Engine::wait_device(int device, InterruptedFunction interrupted) {
  const Condition condition = {.kind = Condition::Kind::kDevice, .device = device};
  return state_->help_until(condition, interrupted);
}

FailurePointer Engine::wait_all(InterruptedFunction interrupted) {
  if (!wait_all_quietly(interrupted)) return nullptr;
  const std::vector<FailurePointer> all = unseen();
  if (all.empty()) return nullptr;
  std::string message = all.front()->message;
  for (size_t index = 1; index < all.size(); ++index) {
    message += "\nalso " + all[index]->type + ": " + all[index]->message;
  }
  for (const FailurePointer& failure : all) failure->seen.store(true);
  if (all.size() == 1) return all.front();
  auto summary = std::make_shared<Failure>(all.front()->type, message, all.front()->origin);
  summary->seen.store(true);
  return summary;
}

void Engine::report(const FailurePointer& failure) {
  Guard guard(state_->lock);
  state_->register_failure(++state_->sequence, failure);
}

std::vector<FailurePointer> Engine::unseen() const {
  std::vector<std::pair<uint64_t, FailurePointer>> entries;
  {
    Guard guard(state_->lock);
    entries = state_->failures;
  }
  const auto order = [](const auto& left, const auto& right) { return left.first < right.first; };
  std::stable_sort(entries.begin(), entries.end(), order);
  std::vector<FailurePointer> result;
  for (const auto& [sequence, failure] : entries) {
    const bool again = std::find(result.begin(), result.end(), failure) != result.end();
    if (!failure->seen.load() && !again) result.push_back(failure);
  }
  return result;
}

// Works, spins, then sleeps, until the condition holds. False when `interrupted` said stop.
bool EngineState::help_until(Condition condition, InterruptedFunction interrupted) {
  if (done(condition)) return true;
  if (!serial.load(std::memory_order_relaxed) && !started.load()) start_workers();
  const bool any_work = condition.kind == Condition::Kind::kDevice ||
                        condition.kind == Condition::Kind::kEpoch ||
                        condition.kind == Condition::Kind::kRoom;
  // Who polls for signals has come from Python, as has a callback that waits.
  const Taker taker = {any_work, operation_depth > 0, interrupted != nullptr};
  if (any_work) pending_waiters.fetch_add(1);
  if (condition.storage != nullptr) {
    Guard guard(lock);
    want(condition.storage, condition.kind == Condition::Kind::kIdle);
  }
  bool stopped = false;
  auto polled = std::chrono::steady_clock::now();
  while (!stopped && !done(condition)) {
    if (!help_once(condition, taker)) park_waiter(condition, taker, interrupted != nullptr);
    if (interrupted == nullptr) continue;
    const auto now = std::chrono::steady_clock::now();
    if (now - polled < std::chrono::milliseconds(kPollMilliseconds)) continue;
    polled = now;
    stopped = interrupted();
  }
  if (any_work) pending_waiters.fetch_sub(1);
  Wakes wakes;  // somebody may have counted on this thread
  Guard guard(lock);
  if (ready_lanes != 0 || !jobs.empty()) wake_for_work(wakes, 0);
  return !stopped;
}

// True when it has done something, or the condition holds; false after spinning in vain.
bool EngineState::help_once(const Condition& condition, const Taker& taker) {
  for (int spin = 0; spin < kSpins; ++spin) {
    // The hint tells of the pool only: look at the other lanes once.
    if (work_hint.load(std::memory_order_acquire) > 0 || spin == 0) {
      Work work;
      bool found = false;
      {
        Guard guard(lock);
        found = take(work, taker);
      }
      if (found) {
        if (work.job != nullptr) help_with(*work.job, &condition);
        if (work.operation != nullptr) execute(work.operation);
        return true;
      }
      spin += back_off();  // there is work, but not for us
    }
    if (done(condition)) return true;
    pause_briefly();
  }
  return false;
}

void EngineState::park_waiter(const Condition& condition, const Taker& taker, bool polled) {
  Parker* parker = nullptr;
  {
    Wakes wakes;
    Guard guard(lock);
    // What happens from here on wakes us; what has happened already must be looked at once more.
    if (done(condition) || open_job() != nullptr) return;
    // Operations issued since we began to wait hold up "idle" as well.
    if (condition.kind == Condition::Kind::kIdle) want(condition.storage, true);
    if (next_operation(taker) != nullptr) return;
    // What we pass over is for others; when it became ready we may have been counted as taking it.
    if (ready_lanes != 0) wake_for_work(wakes, 0);
    parker = take_parker();
    parker->condition = &condition;
    parker->taker = taker;
    parked_waiters.push_back(parker);
  }
  bool woken = true;
  if (polled) {
    woken = parker->sleep_briefly(kPollMilliseconds);
  } else {
    parker->sleep();
  }
  if (!woken) {
    Guard guard(lock);
    if (std::erase(parked_waiters, parker) > 0) {
      free_parkers.push_back(parker);
      return;
    }
  }
  if (!woken) parker->sleep();  // chosen in the meantime: that wake is on its way
  Guard guard(lock);
  free_parkers.push_back(parker);
}

}  // namespace gemel
