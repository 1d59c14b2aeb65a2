// What somebody waits for, and who has to be woken. Everything here runs under the engine's lock.

#include <algorithm>
#include <bit>

#include "engine/scheduler.h"

namespace gemel {

// --- wishes ---

void EngineState::mark_wanted(Operation* operation) {
  if (operation->wanted_) return;
  operation->wanted_ = true;
  if (operation->ready_) {
    sift_up(lanes[operation->lane], operation->place_);
    if (is_pool_lane(operation->lane)) add<uint32_t>(urgent, 1);
  }
  want_stack.push_back(operation);
}

// What holds up somebody behind `request`: the nearest writer, and for a writer the readers behind
// that one as well. What holds up that writer in turn is found when its own requests are looked at.
void EngineState::want_back(Request* request, bool readers) {
  for (; request != nullptr; request = request->previous) {
    if (request->write || readers) mark_wanted(request->operation);
    if (request->write) return;
  }
}

// What the storage's content depends on (for `idle` also those who read it) goes first, and no
// other: who reads the same weights is not held up by all who do.
void EngineState::want(const Storage* storage, bool idle) {
  want_back(storage->last_, idle);
  want_rest();
}

void EngineState::want(Operation* operation) {
  mark_wanted(operation);
  want_rest();
}

void EngineState::want_rest() {
  while (!want_stack.empty()) {
    Operation* operation = want_stack.back();
    want_stack.pop_back();
    for (uint32_t index = 0; index < operation->request_count_; ++index) {
      const Request& request = operation->requests_[index];
      if (!request.granted) want_back(request.previous, request.write);
    }
  }
}

void EngineState::register_failure(uint64_t order, const FailurePointer& failure) {
  if (failures.size() >= kMostFailures) {
    std::erase_if(failures, [](const auto& entry) { return entry.second->seen.load(); });
  }
  if (failures.size() < kMostFailures) failures.emplace_back(order, failure);
}

// --- waking ---

Parker* EngineState::take_parker() {
  if (free_parkers.empty()) return new Parker;
  Parker* parker = free_parkers.back();
  free_parkers.pop_back();
  parker->condition = nullptr;
  parker->taker = {};
  return parker;
}

// How many ready operations of the pool could start now.
int64_t EngineState::startable() const noexcept {
  if (next_operation({}) == nullptr) return 0;
  int64_t count = 0;
  for (uint64_t left = ready_lanes & served(); left != 0; left &= left - 1) {
    const Lane& lane = lanes[std::countr_zero(left)];
    const int64_t room = int64_t{lane.share} - lane.busy;
    count += std::clamp<int64_t>(room, 0, static_cast<int64_t>(lane.ready.size()));
  }
  return count;
}

// The lanes with threads of their own.
void EngineState::wake_lanes(Wakes& wakes) {
  for (uint64_t left = ready_lanes & ~kPoolLanes; left != 0; left &= left - 1) {
    Lane& lane = lanes[std::countr_zero(left)];
    if (lane.sleeper == nullptr || lane.busy >= lane.share) continue;
    const Operation* next = candidate(lane);
    if (next == nullptr || !fits(next, false)) continue;
    wakes.add(std::exchange(lane.sleeper, nullptr));
  }
}

// `takers`: threads which will look for work themselves right after this.
void EngineState::wake_for_work(Wakes& wakes, int64_t takers) {
  if ((ready_lanes & ~kPoolLanes) != 0) wake_lanes(wakes);
  if (parked_workers.empty() && parked_waiters.empty()) return;
  int64_t tiles = 0;
  for (const TileJob* job : jobs) {
    const int64_t left = job->tiles - job->next.load(std::memory_order_relaxed);
    const int64_t room =
        job->lane < 0 ? left : int64_t{lanes[job->lane].share} - lanes[job->lane].busy;
    tiles += std::max<int64_t>(0, std::min(left, room));
  }
  int64_t wanted = tiles + startable();
  wanted -= takers + looking.load(std::memory_order_relaxed);
  while (wanted > 0 && !parked_workers.empty()) {
    wakes.add(parked_workers.back());
    parked_workers.pop_back();
    add(looking, 1);  // on its behalf: nobody else is woken for the same work
    add(parked, -1);
    --wanted;
  }
  std::erase_if(parked_waiters, [&](Parker* parker) {
    const bool nested = parker->taker.nested;
    if (wanted <= 0 && !nested) return false;
    const bool starts = next_operation(parker->taker) != nullptr;
    // What a running operation waits for may start although it does not fit: nobody counted on it.
    const bool exempt = nested && starts;
    if (!exempt && (wanted <= 0 || (tiles == 0 && !starts))) return false;
    wakes.add(parker);
    --wanted;
    return true;
  });
}

void EngineState::wake_for_conditions(Wakes& wakes) {
  if (parked_waiters.empty()) return;
  std::erase_if(parked_waiters, [&](Parker* parker) {
    if (!done(*parker->condition)) return false;
    wakes.add(parker);
    return true;
  });
}

}  // namespace gemel
