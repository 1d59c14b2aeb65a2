// Which threads sleep and which are woken. Everything here except the parkers runs under the
// engine's lock.
//
// The invariant, whenever the lock is free:
//
//   No thread sleeps on a condition that holds. A lane's own thread does not sleep while the lane
//   may start something. And if k pieces of work of the pool could be started, then k awake threads
//   are about to look for work, or no thread that may take such work sleeps.
//
// docs/internals/engine.md says what "about to look" promises; `looking` counts those threads.
// restore() is called at the end of each section that makes work startable or a condition true.

#include <algorithm>
#include <bit>

#include "engine/scheduler.h"

namespace gemel {

void Parker::wake() {
  // Notify under the mutex: as soon as the sleeper sees the flag, it may pass the parker on to
  // another thread.
  std::lock_guard<std::mutex> guard(mutex_);
  woken_ = true;
  changed_.notify_one();
}

bool Parker::sleep(Engine::Time limit) {
  std::unique_lock<std::mutex> guard(mutex_);
  const auto woken = [this] { return woken_; };
  if (limit == Engine::Time::max()) {
    changed_.wait(guard, woken);
  } else if (!changed_.wait_until(guard, limit, woken)) {
    return false;
  }
  woken_ = false;
  return true;
}

Wakes::~Wakes() {
  while (first_ != nullptr) {
    Parker* parker = first_;
    first_ = parker->next;  // read before the wake, after which the parker may be reused
    parker->wake();
  }
}

void Wakes::add(Parker* parker) noexcept {
  parker->next = first_;
  first_ = parker;
}

Parker* EngineState::take_parker() {
  if (free_parkers.empty()) return new Parker;
  Parker* parker = free_parkers.back();
  free_parkers.pop_back();
  parker->taker = nullptr;
  parker->looks = false;
  return parker;
}

void EngineState::give_parker(Parker* parker) {
  if (parker->looks) counted_as_looking = true;  // the waking thread has counted this one
  free_parkers.push_back(parker);
}

void EngineState::sleep(Parker* parker) {
  parker->sleep(Engine::Time::max());
  Guard guard(lock);
  give_parker(parker);
}

void EngineState::mark_looking(bool looks) noexcept {
  if (counted_as_looking == looks) return;
  counted_as_looking = looks;
  add(looking, looks ? 1 : -1);
}

// This thread has finished something, and looks again if it is a thread that looks for work. A
// waiting thread may leave instead, so it counts only if it would find something.
void EngineState::look_again() noexcept {
  if (own_taker == nullptr) return;
  const bool waits = own_taker->condition != nullptr;
  if (!waits || may_take(*own_taker)) mark_looking(true);
}

void EngineState::wake_lanes(Wakes& wakes) {
  for (uint64_t left = ready_lanes & ~pool_lanes; left != 0; left &= left - 1) {
    Lane& lane = lanes[std::countr_zero(left)];
    if (lane.sleeper != nullptr && next_of(lane) != nullptr) wakes.take(lane.sleeper);
  }
}

void EngineState::restore(Wakes& wakes) {
  if ((ready_lanes & ~pool_lanes) != 0) wake_lanes(wakes);
  if (parked_workers.empty() && parked_waiters.empty()) return;
  std::erase_if(parked_waiters, [&](Parker* parker) {
    if (!done(*parker->taker->condition)) return false;
    wakes.add(parker);
    return true;
  });
  int64_t missing = startable() - looking.load(std::memory_order_relaxed);
  const auto wake = [&](Parker* parker) {
    parker->looks = true;
    add(looking, 1);
    wakes.add(parker);
    --missing;
  };
  while (missing > 0 && !parked_workers.empty()) {
    wake(parked_workers.back());
    parked_workers.pop_back();
    add(parked, -1);
  }
  std::erase_if(parked_waiters, [&](Parker* parker) {
    // An operation that a running one waits for may start although it does not fit. It is not part
    // of the count.
    const bool exempt = parker->taker->nested;
    if ((missing <= 0 && !exempt) || !may_take(*parker->taker)) return false;
    wake(parker);
    return true;
  });
  // The waiting threads must not begin work that is long: the stand-in does it instead.
  if (missing <= 0 || stand_in == nullptr || parked_waiters.empty()) return;
  wake(std::exchange(stand_in, nullptr));
  standing_in = true;
}

}  // namespace gemel
