// Waiting threads: what they wait for, what they do meanwhile, and where they sleep.

#include <algorithm>
#include <chrono>

#include "engine/engine.h"
#include "engine/scheduler.h"

namespace gemel {

// --- waiting ---

bool Engine::wait(Storage* storage, uint64_t writes, InterruptedFunction interrupted) {
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

bool EngineState::done(const Condition& condition) const noexcept {
  const Storage* storage = condition.storage;
  switch (condition.kind) {
    case Condition::Kind::kWritten:
      return storage->writes_finished_.load(std::memory_order_acquire) >= condition.writes;
    case Condition::Kind::kIdle:
      return Engine::idle(storage);
    case Condition::Kind::kDevice:
      return device_pending[condition.device].load(std::memory_order_acquire) == 0;
    case Condition::Kind::kEpoch:
      return epoch_over(condition.epoch, condition.own);
    case Condition::Kind::kRoom:
      return Engine::get().has_room();
    case Condition::Kind::kFlag:
      return condition.flag->load(std::memory_order_acquire);
    case Condition::Kind::kJob:
      return condition.job->helpers.load(std::memory_order_acquire) == 0;
  }
  return true;
}

// Once the counter of an epoch has been zero, the epoch is over for good, although a later epoch
// may use the counter again.
bool EngineState::epoch_over(uint64_t which, int64_t own) const noexcept {
  return epoch.load() > which + 1 || pending_in[which & 1].load() <= own;
}

// Begins a new epoch as soon as the previous one has ended. `over` becomes the condition that
// everything issued before is finished.
bool EngineState::begin_epoch(InterruptedFunction interrupted, Condition& over) {
  for (;;) {
    {
      Guard guard(lock);
      const uint64_t now = epoch.load();
      over.epoch = now - 1;
      over.own = operations_in[over.epoch & 1];
      if (pending_in[over.epoch & 1].load() <= over.own) {
        over.epoch = now;
        over.own = operations_in[now & 1];
        epoch.store(now + 1);
        return true;
      }
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

FailurePointer Engine::wait_all(InterruptedFunction interrupted, DescribeFunction describe) {
  if (!wait_all_quietly(interrupted)) return nullptr;
  const Unseen all = take_unseen();
  if (all.failures.empty()) return nullptr;
  const FailurePointer& first = all.failures.front();
  const size_t count = all.failures.size() + all.more;
  if (count == 1) return first;
  const size_t listed = std::min(all.failures.size(), kMostListed);
  std::string message = describe(*first);
  for (size_t index = 1; index < listed; ++index) {
    message += "\nalso " + all.failures[index]->type + ": " + describe(*all.failures[index]);
  }
  if (listed < count) message += "\nand " + std::to_string(count - listed) + " more";
  // Each line has its own origin; the summary has none.
  auto summary = std::make_shared<Failure>(first->type, message, Origin(), first->payload);
  summary->seen.store(true);
  return summary;
}

void Engine::report(const FailurePointer& failure) {
  Guard guard(state_->lock);
  state_->register_failure(++state_->sequence, failure);
}

void EngineState::register_failure(uint64_t order, const FailurePointer& failure) {
  if (failures.size() >= kMostFailures) forget_seen();
  if (failures.size() < kMostFailures) {
    failures.emplace(order, failure);
  } else {
    ++more_failures;
  }
}

void EngineState::forget_seen() {
  std::erase_if(failures, [](const auto& entry) { return entry.second->seen.load(); });
}

Unseen Engine::unseen() const {
  std::multimap<uint64_t, FailurePointer> entries;
  Unseen result;
  {
    Guard guard(state_->lock);
    entries = state_->failures;
    result.more = state_->more_failures;
  }
  std::vector<FailurePointer>& told = result.failures;
  for (const auto& [sequence, failure] : entries) {
    const bool again = std::find(told.begin(), told.end(), failure) != told.end();
    if (!failure->seen.load() && !again) told.push_back(failure);
  }
  return result;
}

Unseen Engine::take_unseen() {
  Unseen result = unseen();
  for (const FailurePointer& failure : result.failures) failure->seen.store(true);
  Guard guard(state_->lock);
  state_->more_failures -= result.more;
  state_->forget_seen();
  return result;
}

// --- what a waiting thread does ---

constinit thread_local const Taker* own_taker = nullptr;
constinit thread_local bool counted_as_looking = false;

bool Taker::due() const noexcept {
  return interrupted != nullptr &&
         std::chrono::steady_clock::now() - polled >= std::chrono::milliseconds(kPollMilliseconds);
}

WaitForItself::WaitForItself(const std::string& operation)
    : std::runtime_error(
          operation +
          ": waits inside of it for an array that is not there before it has ended: its result, "
          "what is computed from that, or what is written to an array it reads; compute with the "
          "arrays it is given, and wait for others where it has been issued") {}

void EngineState::check_wait(const Condition& condition) const {
  if (operation_depth == 0 || condition.storage == nullptr) return;
  Around own;
  {
    Guard guard(lock);
    own = own_obstacle(condition);
  }
  if (own.operation != nullptr) throw WaitForItself(own.operation->name());
  if (own.here != nullptr) throw WaitForItself(own.here->name_);
}

// Works, then spins, then sleeps, until the condition holds. False when `interrupted` said stop.
bool EngineState::help_until(const Condition& condition, InterruptedFunction interrupted) {
  if (done(condition)) return true;
  check_wait(condition);
  if (!serial.load(std::memory_order_relaxed) && !started.load()) start_workers();
  Taker taker{.condition = &condition, .interrupted = interrupted, .nested = operation_depth > 0};
  taker.polled = std::chrono::steady_clock::now();
  // If workers exist, it begins nothing that would keep it from checking for signals in time.
  const bool helped = workers_made.load(std::memory_order_relaxed) > 0;
  if (interrupted != nullptr && helped && !taker.nested) taker.longest = 1e3 * kPollMilliseconds;
  const bool counts = taker.any_operation();
  if (counts) pending_waiters.fetch_add(1);
  if (condition.storage != nullptr) {
    Guard guard(lock);
    want(condition.storage, condition.kind == Condition::Kind::kIdle);
  }
  const Taker* const outer = std::exchange(own_taker, &taker);
  bool stopped = false;
  while (!stopped && !done(condition)) {
    if (!help_once(taker)) park_waiter(taker);
    if (!taker.due()) continue;
    stop_looking();
    stopped = interrupted();
    taker.polled = std::chrono::steady_clock::now();
  }
  own_taker = outer;
  stop_looking();
  if (counts) pending_waiters.fetch_sub(1);
  return !stopped;
}

// This thread turns to something else, although others may have counted on it: restores the
// invariant.
void EngineState::stop_looking() {
  if (!counted_as_looking) return;
  Wakes wakes;
  Guard guard(lock);
  mark_looking(false);
  restore(wakes);
}

void EngineState::perform(const Work& work, const Taker& taker) {
  if (work.job != nullptr) help_with(*work.job, taker);
  if (work.operation != nullptr) execute(work.operation);
}

// True when it has done some work or the condition holds; false after spinning in vain.
bool EngineState::help_once(const Taker& taker) {
  const bool works = taker.condition == nullptr;
  Patience patience;
  for (bool first = true; patience.left(); first = false) {
    // The hint covers only the pool, so look at the other lanes once.
    if (may_find_work() || first) {
      Work work;
      bool found = false;
      {
        Wakes wakes;
        Guard guard(lock);
        found = take(work, taker);
        // A thread that only works counts as looking until it sleeps.
        if (!found && counted_as_looking != works) {
          mark_looking(works);
          restore(wakes);
        }
      }
      if (found) {
        perform(work, taker);
        return true;
      }
      // There may be work, but none that this thread may take.
      if (!patience.left_for_lock()) break;
    }
    if (!works && done(*taker.condition)) return true;
  }
  return false;
}

void EngineState::park_waiter(const Taker& taker) {
  const Condition& condition = *taker.condition;
  Parker* parker = nullptr;
  {
    Wakes wakes;
    Guard guard(lock);
    // Events from here on wake this thread; earlier ones have to be checked once more.
    if (done(condition)) return;
    // To become idle, the storage also needs operations that were issued since the wait began.
    if (condition.kind == Condition::Kind::kIdle) want(condition.storage, true);
    if (may_take(taker)) return;
    parker = take_parker();
    parker->taker = &taker;
    parked_waiters.push_back(parker);
    restore(wakes);  // the stand-in may take what this thread passes over
  }
  const auto poll = taker.polled + std::chrono::milliseconds(kPollMilliseconds);
  sleep(parker, taker.interrupted == nullptr ? Engine::Time::max() : poll,
        [&] { return std::erase(parked_waiters, parker) > 0; });
}

}  // namespace gemel
