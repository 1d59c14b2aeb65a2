// Finds what waiting threads need. Everything here runs under the engine's lock.

#include <algorithm>

#include "engine/scheduler.h"

namespace gemel {

// Enters the operations that hold up one behind `request`: the nearest writer and, for a writer,
// the readers behind that writer too. `enter` says whether the search continues from an operation.
template <typename Enter>
void EngineState::enter_ahead(const Request* request, bool readers, Enter enter) const {
  for (; request != nullptr; request = request->previous) {
    const bool holds_up = request->write || readers;
    if (holds_up && enter(request->operation)) to_visit.push_back(request->operation);
    if (request->write) return;
  }
}

// Continues with what holds up the operations that have been entered.
template <typename Enter>
void EngineState::enter_rest(Enter enter) const {
  while (!to_visit.empty()) {
    Operation* operation = to_visit.back();
    to_visit.pop_back();
    for (const Request& request : operation->requests()) {
      if (!request.granted) enter_ahead(request.previous, request.write, enter);
    }
  }
}

// False when it was marked already.
bool EngineState::mark_wanted(Operation* operation) {
  if (operation->wanted_) return false;
  operation->wanted_ = true;
  if (operation->ready_) {
    std::vector<Operation*>& ready = lanes[operation->lane].ready;
    const auto place = std::find(ready.begin(), ready.end(), operation);
    std::push_heap(ready.begin(), place + 1, after);
    note_ready(operation->lane);
  }
  return true;
}

// Marks the operations that the storage's contents depend on (and for `idle` those that read it),
// so that they go first. Other operations are not marked: an operation that reads the same weights
// as many others does not have to wait for all of them.
void EngineState::want(const Storage* storage, bool idle) {
  const auto enter = [this](Operation* operation) { return mark_wanted(operation); };
  enter_ahead(storage->last_, idle, enter);
  enter_rest(enter);
}

void EngineState::want(Operation* operation) {
  if (mark_wanted(operation)) to_visit.push_back(operation);
  enter_rest([this](Operation* other) { return mark_wanted(other); });
}

// The newest request of the storage that the condition may wait for. Of writes, those that were
// issued after the wait had begun do not count.
const Request* EngineState::last_awaited(const Condition& condition) noexcept {
  const Request* last = condition.storage->last_;
  if (condition.kind != Condition::Kind::kWritten) return last;
  uint64_t behind = condition.storage->writes_issued_ - condition.writes;
  for (; behind > 0 && last != nullptr; last = last->previous) behind -= last->write ? 1 : 0;
  return last;
}

// Whether the condition cannot hold before the operation has run. `wanted_` does not help here,
// since it does not say which thread wants the operation.
bool EngineState::needs(const Condition& condition, const Operation* sought) const {
  switch (condition.kind) {
    case Condition::Kind::kEpoch:
      return sought->epoch_ == (condition.epoch & 1);
    case Condition::Kind::kDevice:
      return sought->device == condition.device;
    case Condition::Kind::kRoom:
    case Condition::Kind::kFlag:
    case Condition::Kind::kJob:
      return false;
    default:
      break;
  }
  ++visits;
  const auto enter = [this](Operation* operation) {
    return std::exchange(operation->visit_, visits) != visits;
  };
  enter_ahead(last_awaited(condition), condition.kind == Condition::Kind::kIdle, enter);
  enter_rest(enter);
  return sought->visit_ == visits;
}

// The operation (or inline work) that this thread is inside of and that has to end before the
// condition on a storage can hold. What other threads wait for is not considered.
Around EngineState::own_obstacle(const Condition& condition) const {
  const auto reads = [](const InsideOperation* here, const Storage* storage) {
    return std::find(here->reads_.begin(), here->reads_.end(), storage) != here->reads_.end();
  };
  const auto inline_reader = [&](const Storage* storage) {
    const InsideOperation* here = inside_inline;
    while (here != nullptr && !reads(here, storage)) here = here->outer_;
    return here;
  };
  const bool idle = condition.kind == Condition::Kind::kIdle;
  Around found;
  if (idle) found.here = inline_reader(condition.storage);
  ++visits;
  // An inline reader has no request, but it holds up writers that do not have their turn yet.
  const auto enter = [&](Operation* operation) {
    if (std::exchange(operation->visit_, visits) == visits) return false;
    for (const Request& request : operation->requests()) {
      const bool held_up = request.write && !request.granted && found.here == nullptr;
      if (held_up) found.here = inline_reader(request.storage);
    }
    return true;
  };
  enter_ahead(last_awaited(condition), idle, enter);
  enter_rest(enter);
  const Operation* operation = current_operation;
  while (operation != nullptr && operation->visit_ != visits) operation = operation->outer_;
  found.operation = operation;
  return found;
}

}  // namespace gemel
