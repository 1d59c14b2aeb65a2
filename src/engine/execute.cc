// The path of one operation from its turn to its end.

#include <algorithm>
#include <bit>

#include "engine/announce.h"
#include "engine/scheduler.h"
#include "engine/trace.h"

namespace gemel {

constinit thread_local int operation_depth = 0;
constinit thread_local int operations_in[2] = {};
constinit thread_local Operation* current_operation = nullptr;
constinit thread_local bool inside_tile = false;
constinit thread_local const TileJob* current_branches = nullptr;

constinit thread_local const InsideOperation* inside_inline = nullptr;

InsideOperation::InsideOperation(StorageList reads, const char* name) noexcept
    : reads_(reads), name_(name), outer_(std::exchange(inside_inline, this)) {
  ++operation_depth;
  if (reads_.empty()) return;
  EngineState& state = *Engine::get().state_;
  Guard guard(state.lock);
  state.enter(*this);
}
InsideOperation::~InsideOperation() {
  if (!reads_.empty()) {
    EngineState& state = *Engine::get().state_;
    Guard guard(state.lock);
    state.leave(*this);
  }
  inside_inline = outer_;
  --operation_depth;
}

void EngineState::enter(InsideOperation& inside) noexcept {
  inside.next_ = insides;
  if (insides != nullptr) insides->previous_ = &inside;
  insides = &inside;
}

void EngineState::leave(InsideOperation& inside) noexcept {
  (inside.previous_ != nullptr ? inside.previous_->next_ : insides) = inside.next_;
  if (inside.next_ != nullptr) inside.next_->previous_ = inside.previous_;
}

bool inside_operation() noexcept { return operation_depth > 0; }

void Completion::operator()(FailurePointer failure) noexcept {
  Engine::get().complete(std::exchange(operation_, nullptr), std::move(failure));
}

void Completion::drop() noexcept {
  (*this)(std::make_shared<Failure>(
      "RuntimeError", operation_->name() + ": nobody said that it ended", operation_->origin));
}

namespace {

// Whether the input has only been started and its end is not known yet; learn_late_failure() checks
// such inputs later.
bool early_on(std::span<const Request> requests, const Storage* storage) {
  const auto same = [&](const Request& request) { return request.storage == storage; };
  return std::find_if(requests.begin(), requests.end(), same)->early;
}

FailurePointer take_memory(const Operation& operation) {
  for (Storage* storage : operation.writes) {
    if (storage->materialize() != nullptr) continue;
    if (const char* reason = Engine::device(storage->device())->unusable()) {
      return std::make_shared<Failure>("DeviceError", reason, operation.origin);
    }
    return std::make_shared<Failure>(
        "MemoryError",
        "out of memory: could not take " + std::to_string(storage->bytes()) + " bytes",
        operation.origin);
  }
  return nullptr;
}

}  // namespace

FailurePointer EngineState::failed_input(Operation& operation) const {
  for (const std::vector<Storage*>* list : {&operation.reads, &operation.updates}) {
    for (const Storage* storage : *list) {
      if (!storage->failed()) continue;
      const bool early = operation.early_ && early_on(operation.requests(), storage);
      if (!early) return storage->failure();
    }
  }
  return nullptr;
}

// The reason why the operation cannot be started, or null. Sets the outcome that it then has.
FailurePointer EngineState::obstacle(Operation* operation) {
  operation->outcome_ = Outcome::kInputFailed;
  if (abandoned.load(std::memory_order_relaxed)) {
    return std::make_shared<Failure>("RuntimeError", "abandoned: the program has been interrupted",
                                     operation->origin);
  }
  if (FailurePointer failure = failed_input(*operation)) return failure;
  operation->outcome_ = Outcome::kNoMemory;
  return take_memory(*operation);
}

void EngineState::begin(Operation* operation) {
  // On a stream the work is done later and elsewhere.
  if (!lanes[operation->lane].options.ordered) {
    announce(operation->reads, operation->writes);
  }
  operation->outcome_ = Outcome::kRan;
  if (operation->traced_ != 0) trace::started(operation->traced_, operation->inlined_);
  operation->outer_ = std::exchange(current_operation, operation);
  try {
    operation->start(Completion(operation));
  } catch (const std::exception&) {  // its Completion has been dropped, so it fails
  }
  current_operation = operation->outer_;
}

void EngineState::execute(Operation* operation) {
  const uint8_t counter = operation->epoch_;
  ++operation_depth;
  ++operations_in[counter];
  operation->failure_ = obstacle(operation);
  if (operation->failure_ == nullptr) {
    begin(operation);
  } else {
    operation->open_.store(1, std::memory_order_relaxed);
  }
  --operations_in[counter];
  --operation_depth;
  const bool stream = lanes[operation->lane].options.ordered;
  if (stream && operation->open_.load(std::memory_order_acquire) == 2) {
    Wakes wakes;
    Guard guard(lock);
    launch(operation);
    look_again();
    restore(wakes);
  }
  close(operation);
}

uint64_t Engine::traced_operation() noexcept {
  const Operation* running = current_operation;
  return running == nullptr || running->traced_ == 0 ? 0 : running->sequence_;
}

void Engine::complete(Operation* operation, FailurePointer failure) noexcept {
  operation->failure_ = std::move(failure);
  state_->close(operation);
}

// Releases one storage that the operation writes, before the operation ends. On an ordered lane
// there is nothing to do, since those behind it may have been started already.
void EngineState::wrote(Operation* operation, Storage* storage,
                        std::vector<FailurePointer>& replaced) {
  if (lanes[operation->lane].options.ordered) return;
  for (Request& request : operation->requests()) {
    if (request.storage != storage || !request.write || request.over) continue;
    if (storage->failure_ != nullptr) set_failure(storage, nullptr, replaced);
    leave(request);
    request.over = true;
    request.previous = request.next = nullptr;
    grant_followers(storage);
  }
}

// Takes a ready operation that any thread may start at any time.
Operation* EngineState::start_instant() noexcept {
  if (serial.load(std::memory_order_relaxed)) return nullptr;
  for (uint64_t left = ready_lanes & instant_lanes; left != 0; left &= left - 1) {
    Operation* const next = next_of(lanes[std::countr_zero(left)]);
    if (next == nullptr) continue;
    start_now(next);
    return next;
  }
  return nullptr;
}

void Engine::wrote(Operation* operation, Storage* storage) noexcept {
  std::vector<FailurePointer> replaced;  // destroyed after the lock is released
  Operation* next = nullptr;
  {
    Wakes wakes;
    Guard guard(state_->lock);
    state_->wrote(operation, storage, replaced);
    next = state_->start_instant();
    state_->restore(wakes);
  }
  if (next == nullptr) return;
  // Another thread might not get a core before this operation ends. This one goes on with it, so it
  // does not look for other work when what it starts ends at once.
  const Taker* const taker = std::exchange(own_taker, nullptr);
  while (next != nullptr) {
    state_->execute(next);
    Wakes wakes;
    Guard guard(state_->lock);
    next = state_->start_instant();
    state_->restore(wakes);
  }
  own_taker = taker;
}

// Called when start() has returned and when the end has been reported; the later call finishes the
// operation.
void EngineState::close(Operation* operation) {
  if (operation->open_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(operation);
}

void EngineState::finish(Operation* operation) {
  if (operation->traced_ != 0 && operation->outcome_ == Outcome::kRan) {
    const bool failed = operation->failure_ != nullptr || !operation->partial.empty();
    trace::finished(operation->traced_, failed, pending() - 1);
  }
  std::vector<FailurePointer> replaced;  // destroyed after the lock is released
  Operation* ended = nullptr;
  {
    Wakes wakes;
    Guard guard(lock);
    ended = end(operation, replaced);
    look_again();
    restore(wakes);
  }
  while (ended != nullptr) {
    operation = std::exchange(ended, ended->newer_);
    for (const Request& request : operation->requests()) request.storage->release();
    const uint8_t counter = operation->epoch_;
    delete operation;
    // Counted down after the storages are released, so that a thread that has waited for everything
    // finds the memory free.
    pending_in[counter].fetch_sub(1);
  }
  if (pending_waiters.load() == 0) return;
  Wakes wakes;
  Guard guard(lock);
  restore(wakes);
}

}  // namespace gemel
