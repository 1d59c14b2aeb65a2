// What somebody waits for. Everything here runs under the engine's lock.

#include "engine/scheduler.h"

namespace gemel {

void EngineState::mark_wanted(Operation* operation) {
  if (operation->wanted_) return;
  operation->wanted_ = true;
  if (operation->ready_) {
    sift_up(lanes[operation->lane], operation->place_);
    if (in_pool(operation->lane)) add<uint32_t>(wanted_ready, 1);
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

// Whether the condition cannot hold before the operation has run. `wanted_` does not say for whom.
bool EngineState::needs(const Condition& condition, const Operation* sought) const {
  switch (condition.kind) {
    case Condition::Kind::kEpoch:
      return sought->epoch_ == (condition.epoch & 1);
    case Condition::Kind::kDevice:
      return sought->device == condition.device;
    case Condition::Kind::kRoom:
    case Condition::Kind::kFlag:
      return false;
    default:
      break;
  }
  ++visits;
  const auto visit = [this](Request* request, bool readers) {
    for (; request != nullptr; request = request->previous) {
      Operation* operation = request->operation;
      const bool known = operation->visit_ == visits;
      if (!known && (request->write || readers)) {
        operation->visit_ = visits;
        visit_stack.push_back(operation);
      }
      if (request->write) return;
    }
  };
  visit(condition.storage->last_, condition.kind == Condition::Kind::kIdle);
  while (!visit_stack.empty()) {
    const Operation* operation = visit_stack.back();
    visit_stack.pop_back();
    for (uint32_t index = 0; index < operation->request_count_; ++index) {
      const Request& request = operation->requests_[index];
      if (!request.granted) visit(request.previous, request.write);
    }
  }
  return sought->visit_ == visits;
}

}  // namespace gemel
