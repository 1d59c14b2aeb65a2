// What the engine does around a fork and at the exit.

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/scheduler.h"
#include "engine/trace.h"
#include "memory/memory.h"

namespace gemel {

// --- forks ---

namespace {

// How long a fork waits for what other threads do inline, which is no operation of the queue.
constexpr std::chrono::seconds kPatience{60};

}  // namespace

constinit thread_local bool forking = false;

void Engine::close_for_fork() {
  EngineState& state = *state_;
  forking = true;
  // Keeps new operations out: threads that issue find the queue full until the forks are over, and
  // nothing is run inline.
  Guard guard(state.lock);
  ++state.forks;
  state.queue_operations.store(0);
}

void Engine::drain_for_fork() {
  if (operation_depth > 0) return;
  // A callback may be in the middle of a library that cannot be forked then (OpenBLAS waits for
  // ever), but it may also wait for this thread.
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (state_->held_inline.load() > 0 && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  wait_all_quietly();
}

void Engine::reopen() {
  EngineState& state = *state_;
  Wakes wakes;
  Guard guard(state.lock);
  forking = false;
  if (--state.forks > 0) return;
  state.queue_operations.store(state.queue_bound);
  state.restore(wakes);
}

void Engine::before_fork() {
  state_->thread_mutex.lock();
  state_->lock.lock();
  trace::lock_for_fork();
  memory::lock_for_fork();
}

void Engine::after_fork_parent() {
  memory::unlock_after_fork();
  trace::unlock_after_fork();
  state_->lock.unlock();
  state_->thread_mutex.unlock();
}

void Engine::after_fork_child() {
  EngineState& state = *state_;
  memory::unlock_after_fork();
  trace::unlock_after_fork();
  state.forget_threads();
  state.fail_pending();
  state.lock.unlock();
  state.thread_mutex.unlock();
}

// In the child only this thread is left. Objects of the other threads are leaked instead of
// destroyed: destroying the handle of a running thread would abort.
void EngineState::forget_threads() {
  new auto(std::exchange(threads, {}));
  new auto(std::exchange(timers, {}));
  timer_started = false;
  timer_sleeper = stand_in = nullptr;
  standing_in = false;
  parked_workers.clear();
  parked_waiters.clear();
  free_parkers.clear();
  jobs.clear();
  job_count.store(0);
  for (Lane& lane : lanes) {
    lane.sleeper = nullptr;
    lane.started.store(false);
  }
  looking.store(0);
  counted_as_looking = false;
  parked.store(0);
  pending_waiters.store(0);
  forks = forking ? 1 : 0;
  queue_operations.store(forking ? 0 : queue_bound);
  workers_made.store(0);
  started.store(false);
}

template <typename Frame>
bool EngineState::lies_around(const Frame* sought, const Frame* innermost) noexcept {
  while (innermost != nullptr && innermost != sought) innermost = innermost->outer_;
  return innermost != nullptr;
}

// The other threads do not exist here, so they cannot release what they read inline. Nobody here
// knows what they were writing.
void EngineState::release_others(std::vector<FailurePointer>& replaced) {
  uint64_t held = 0;
  InsideOperation* next = nullptr;
  for (InsideOperation* inside = insides; inside != nullptr; inside = next) {
    next = inside->next_;
    if (lies_around<InsideOperation>(inside, inside_inline)) {
      held += inside->reads_.size();
    } else {
      leave(*inside);
      release_storages(inside->reads_, {}, nullptr, replaced);
    }
  }
  held_inline.store(held);
}

// Only the parent computes what is pending now, so the child must not wait for it. Those operations
// fail in the child, except the ones this thread is inside of. (None are pending if the front end
// has drained the queue before.) The operations are not destroyed, since other threads may have
// owned what is in them.
void EngineState::fail_pending() {
  const auto reason = std::make_shared<Failure>(
      "RuntimeError", "the process forked while this was pending: only the parent computes it");
  std::vector<Operation*> dropped;
  for (Lane& lane : lanes) {
    lane.busy = 0;
    lane.ready.clear();
    lane.flight.clear();
    for (Operation* operation = lane.oldest; operation != nullptr; operation = operation->newer_) {
      if (!lies_around<Operation>(operation, current_operation)) dropped.push_back(operation);
    }
  }
  running_bytes = 0;
  ready_lanes.store(0);
  wanted_lanes.store(0);
  const auto order = [](auto* left, auto* right) { return left->sequence_ < right->sequence_; };
  std::sort(dropped.begin(), dropped.end(), order);
  auto& replaced = *new std::vector<FailurePointer>;
  for (Operation* operation : dropped) {
    for (Request& request : operation->requests()) {
      if (request.over) continue;
      if (request.write) set_failure(request.storage, reason, replaced);
      leave(request);
    }
    remove(operation, false);
    pending_in[operation->epoch_].fetch_sub(1);
  }
  release_others(replaced);
  for (Operation* kept = current_operation; kept != nullptr; kept = kept->outer_) {
    ++lanes[kept->lane].busy;
    running_bytes += kept->taken_bytes_;
  }
}

// --- the exit ---

void Engine::shut_down(bool abandon, InterruptedFunction interrupted) {
  if (operation_depth > 0) return;  // exit() was called inside an operation: just go
  EngineState& state = *state_;
  // A daemon thread may issue for ever. From now on it does so serially, and nothing waits for it.
  state.serial.store(true);
  state.unusual.store(true);
  if (!abandon) abandon = !wait_all_quietly(interrupted);
  if (abandon) {
    static Time limit;
    limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(4 * kPollMilliseconds);
    state.abandoned.store(true);
    const auto late = [] { return std::chrono::steady_clock::now() > limit; };
    if (!wait_all_quietly(late)) return;
  }
  state.stop_workers();
}

}  // namespace gemel
