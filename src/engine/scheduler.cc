// The queues of storages and the heaps of ready operations. Everything here runs under the engine's
// lock.

#include "engine/scheduler.h"

#include <algorithm>
#include <bit>

namespace gemel {
namespace {

bool contains(StorageList storages, const Storage* storage) noexcept {
  return std::find(storages.begin(), storages.end(), storage) != storages.end();
}

// The failure of one write of an operation that failed in part; `others` if `partial` does not name
// the storage.
const FailurePointer& partial_failure(const Operation& operation, const Storage* storage,
                                      const FailurePointer& others) noexcept {
  for (const auto& [failed, reason] : operation.partial) {
    if (failed == storage) return reason;
  }
  return others;
}

}  // namespace

// --- the heaps ---

// Whether `left` is to start after `right`. With this order std::push_heap keeps the operation to
// start first on top.
bool EngineState::after(const Operation* left, const Operation* right) noexcept {
  if (left->wanted_ != right->wanted_) return right->wanted_;
  if (left->priority != right->priority) return left->priority < right->priority;
  return left->sequence_ > right->sequence_;
}

// Compares the tops of different lanes. Copies go first, so that they travel while others compute.
bool EngineState::better(const Operation* left, const Operation* right) noexcept {
  const bool equal = left->wanted_ == right->wanted_ && left->priority == right->priority;
  const bool left_copies = left->lane == kCopyLane;
  if (equal && left_copies != (right->lane == kCopyLane)) return left_copies;
  return after(right, left);
}

void EngineState::push_ready(Operation* operation) {
  operation->ready_ = true;
  operation->taken_bytes_ = operation->workspace;
  for (const Storage* storage : operation->writes) {
    if (storage->data() == nullptr) operation->taken_bytes_ += storage->bytes();
  }
  Lane& lane = lanes[operation->lane];
  lane.ready.push_back(operation);
  std::push_heap(lane.ready.begin(), lane.ready.end(), after);
  const uint64_t bit = lane_bit(operation->lane);
  if (lane.ready.size() == 1) add(ready_lanes, bit);
  const bool known = (wanted_lanes.load(std::memory_order_relaxed) & bit) != 0;
  if (operation->wanted_ && !known) add(wanted_lanes, bit);
}

// Updates the sets of lanes after the lane's ready operations have changed.
void EngineState::note_ready(int number) noexcept {
  const std::vector<Operation*>& ready = lanes[number].ready;
  const auto note = [=](std::atomic<uint64_t>& set, bool contains) {
    const uint64_t others = set.load(std::memory_order_relaxed) & ~lane_bit(number);
    set.store(contains ? others | lane_bit(number) : others, std::memory_order_release);
  };
  note(ready_lanes, !ready.empty());
  note(wanted_lanes, !ready.empty() && ready.front()->wanted_);
}

// Takes an operation out of its heap, wherever it is, by making it the top. The caller runs it.
void EngineState::start_now(Operation* operation) noexcept {
  Lane& lane = lanes[operation->lane];
  std::vector<Operation*>& ready = lane.ready;
  const auto place = std::find(ready.begin(), ready.end(), operation);
  const auto first = [&](auto* left, auto* right) { return right == operation && left != right; };
  std::push_heap(ready.begin(), place + 1, first);
  std::pop_heap(ready.begin(), ready.end(), after);
  ready.pop_back();
  note_ready(operation->lane);
  ++lane.busy;
  if (lane.options.ordered) lane.flight.push_back(operation);
  operation->ready_ = false;
  running_bytes += operation->taken_bytes_;
}

// An operation larger than the bound runs alone. One that a running operation needs (nested) always
// fits.
bool EngineState::fits(const Operation* operation, bool nested) const noexcept {
  if (nested || operation->taken_bytes_ == 0) return true;
  return running_bytes == 0 || running_bytes + operation->taken_bytes_ <= queue_bytes;
}

// The oldest unfinished operation of a lane or, if `wanted`, the oldest that some thread waits for.
Operation* EngineState::leader(const Lane& lane, bool wanted) noexcept {
  Operation* operation = lane.oldest;
  while (wanted && operation != nullptr && !operation->wanted_) operation = operation->newer_;
  return operation;
}

// Whether it may allocate memory now. A loop that never waits has the first operations of many
// batches ready. Results that are not needed yet must not pile up while the first of these batches
// is being computed. The oldest operation of a lane, and the oldest of all (which depends on
// nothing unfinished), always may. An operation that some thread waits for is only compared with
// others of that kind.
bool EngineState::in_turn(const Operation* operation) const noexcept {
  const Lane& lane = lanes[operation->lane];
  if (operation->taken_bytes_ == 0 || lane.ahead_bytes <= ahead_bytes) return true;
  if (leader(lane, operation->wanted_) == operation) return true;
  for (int other = 0; other < lane_count; ++other) {
    const Operation* first = leader(lanes[other], operation->wanted_);
    if (first != nullptr && first->sequence_ < operation->sequence_) return false;
  }
  return true;
}

// What a lane would start next: the best of its ready operations or, if that is not in turn, the
// one it has to wait for.
Operation* EngineState::candidate(const Lane& lane) const noexcept {
  Operation* top = lane.ready.front();
  if (in_turn(top)) return top;
  Operation* first = leader(lane, top->wanted_);
  if (first != nullptr && first->ready_) return first;
  return lane.oldest->ready_ ? lane.oldest : nullptr;
}

void EngineState::append(Operation* operation) noexcept {
  Lane& lane = lanes[operation->lane];
  operation->older_ = lane.newest;
  (lane.newest != nullptr ? lane.newest->newer_ : lane.oldest) = operation;
  lane.newest = operation;
}

void EngineState::remove(Operation* operation, bool ran) {
  Lane& lane = lanes[operation->lane];
  Operation* older = operation->older_;
  Operation* newer = operation->newer_;
  (older != nullptr ? older->newer_ : lane.oldest) = newer;
  (newer != nullptr ? newer->older_ : lane.newest) = older;
  add<int64_t>(device_pending[operation->device], -1);
  add(backlog, -operation->nanoseconds_);
  if (older == nullptr) {
    lane.ahead_bytes -= operation->ahead_bytes_;
    return;
  }
  const uint64_t bytes = ran ? operation->taken_bytes_ : 0;
  older->ahead_bytes_ += operation->ahead_bytes_ + bytes;
  lane.ahead_bytes += bytes;
}

// The answer holds only for a moment, since other threads take tiles without the lock. So ask once
// and use the answer.
TileJob* EngineState::open_job(const Taker& taker) const noexcept {
  for (TileJob* job : jobs) {
    if (job->branches && taker.only_tiles()) continue;
    if (job->lane >= 0 && lanes[job->lane].busy >= lanes[job->lane].share) continue;
    if (job->taken.load(std::memory_order_relaxed) < job->tiles) return job;
  }
  return nullptr;
}

// What a lane may start now; null if nothing.
Operation* EngineState::next_of(const Lane& lane) const noexcept {
  if (lane.ready.empty() || lane.busy >= lane.share) return nullptr;
  Operation* next = candidate(lane);
  return next != nullptr && fits(next, false) ? next : nullptr;
}

// The lanes that the pool serves: those without a thread of their own; in serial mode all lanes.
uint64_t EngineState::served() const noexcept {
  return serial.load(std::memory_order_relaxed) ? ~uint64_t{0} : pool_lanes.load();
}

bool EngineState::allowed(const Operation* operation, const Taker& taker) const noexcept {
  if (taker.only_tiles()) return false;
  if ((served() & lane_bit(operation->lane)) == 0) return needs(*taker.condition, operation);
  if (operation->microseconds > taker.longest) return false;
  if (operation->wanted_) return true;
  if (off_duty(taker)) return false;
  return taker.any_operation() || operation->microseconds <= kShortMicroseconds;
}

// The best operation of the lanes that have room. A waiting thread passes over long operations that
// no thread waits for. If the best one does not fit, no younger one overtakes it.
Operation* EngineState::next_operation(const Taker& taker) const noexcept {
  if (taker.stand_in && off_duty(taker)) return nullptr;
  const uint64_t python = taker.interrupted != nullptr ? lane_bit(kPythonLane) : 0;
  Operation* best = nullptr;
  for (uint64_t left = ready_lanes & (served() | python); left != 0; left &= left - 1) {
    const Lane& lane = lanes[std::countr_zero(left)];
    if (lane.busy >= lane.share && !taker.nested) continue;
    Operation* top = taker.nested ? lane.ready.front() : candidate(lane);
    if (top == nullptr || !allowed(top, taker)) continue;
    if (best == nullptr || better(top, best)) best = top;
  }
  return best != nullptr && fits(best, taker.nested) ? best : nullptr;
}

// How many pool threads could start something now: an operation or a tile.
int64_t EngineState::startable() const noexcept {
  int64_t count = 0;
  for (const TileJob* job : jobs) {
    const int64_t left = job->tiles - job->taken.load(std::memory_order_relaxed);
    const int64_t room =
        job->lane < 0 ? left : int64_t{lanes[job->lane].share} - lanes[job->lane].busy;
    count += std::max<int64_t>(0, std::min(left, room));
  }
  if ((ready_lanes & served()) == 0 || next_operation({}) == nullptr) return count;
  for (uint64_t left = ready_lanes & served(); left != 0; left &= left - 1) {
    const Lane& lane = lanes[std::countr_zero(left)];
    const int64_t room = int64_t{lane.share} - lane.busy;
    count += std::clamp<int64_t>(room, 0, static_cast<int64_t>(lane.ready.size()));
  }
  return count;
}

// Takes wanted operations first, then tiles (since started work holds memory), then other
// operations.
bool EngineState::take(Work& work, const Taker& taker) {
  Operation* operation = next_operation(taker);
  const bool wanted = operation != nullptr && operation->wanted_;
  if (!wanted && !off_duty(taker)) work.job = open_job(taker);
  if (work.job != nullptr) {
    add(work.job->helpers, 1);
    if (work.job->lane >= 0) ++lanes[work.job->lane].busy;
  } else if (operation != nullptr) {
    work.operation = operation;
    start_now(operation);
  } else {
    return false;
  }
  mark_looking(false);
  return true;
}

// Whether the stand-in has taken its place or, for the stand-in, whether no thread needs one any
// more.
bool EngineState::off_duty(const Taker& taker) const noexcept {
  if (taker.stand_in) return parked_waiters.empty();
  return taker.condition != nullptr && standing_in && !taker.nested;
}

bool EngineState::may_take(const Taker& taker) const noexcept {
  return (!off_duty(taker) && open_job(taker) != nullptr) || next_operation(taker) != nullptr;
}

// --- storages ---

void EngineState::grant(Request& request, bool early) {
  Operation* operation = request.operation;
  request.granted = true;
  request.early = early;
  operation->early_ |= early;
  if (request.write) {
    request.storage->writing_ = true;
  } else {
    ++request.storage->reading_;
  }
  if (--operation->missing_ == 0) push_ready(operation);
}

namespace {

// The ordered lane on which requests of a storage have been started.
class Stream {
 public:
  void join(int lane) { lane_ = lane_ == kNobody || lane_ == lane ? lane : kSeveral; }
  void block() { lane_ = kSeveral; }
  bool empty() const { return lane_ == kNobody; }
  // Whether the operation may be started behind these requests. An operation with updates has to
  // know how they end.
  bool lets_pass(const Operation* operation) const {
    return lane_ == kNobody || (lane_ == operation->lane && operation->updates.empty());
  }

 private:
  static constexpr int kNobody = -1;
  static constexpr int kSeveral = -2;
  int lane_ = kNobody;
};

}  // namespace

void EngineState::grant_followers(Storage* storage) {
  Stream all, writers;  // over the unfinished requests ahead
  for (Request* request = storage->first_; request != nullptr; request = request->next) {
    if (request->operation->launched_) {
      all.join(request->operation->lane);
      if (request->write) writers.join(request->operation->lane);
      continue;
    }
    if (storage->writing_) return;
    const Stream& ahead = request->write ? all : writers;
    const bool passes = ahead.lets_pass(request->operation);
    if (request->write) {
      if (passes && storage->reading_ == 0) grant(*request, !ahead.empty());
      return;
    }
    if (!request->granted && passes) grant(*request, !ahead.empty());
    if (!request->granted) all.block();
  }
}

void EngineState::add_request(Operation* operation, Storage* storage, bool write) {
  if (storage->mark_ == operation->sequence_) return;
  storage->mark_ = operation->sequence_;
  storage->retain();
  Request* request = &operation->requests_[operation->request_count_++];
  *request = {operation, storage, storage->last_, nullptr, write};
  (storage->last_ != nullptr ? storage->last_->next : storage->first_) = request;
  storage->last_ = request;
}

void EngineState::link(Operation* operation) {
  operation->sequence_ = ++sequence;
  operation->epoch_ = epoch.load(std::memory_order_relaxed) & 1;
  pending_in[operation->epoch_].fetch_add(1);
  append(operation);
  add<int64_t>(device_pending[operation->device], 1);
  const bool inside = in_pool(operation->lane) && !lanes[operation->lane].options.ended_outside;
  const double known = inside ? operation->microseconds : kUnknown;
  operation->nanoseconds_ = static_cast<int64_t>(std::min(known, kUnknown) * 1e3);
  add(backlog, operation->nanoseconds_);
  ++counters.queued;
  for (Storage* storage : operation->writes) add_request(operation, storage, true);
  for (Storage* storage : operation->reads) add_request(operation, storage, false);
  operation->missing_ = operation->request_count_ + 1;  // not ready before all have been asked
  for (Request& request : operation->requests()) {
    Storage* storage = request.storage;
    const bool no_writer = Engine::ready(storage);
    const bool no_reader = storage->reads_pending_.load(std::memory_order_relaxed) == 0;
    if (request.write) {
      add<uint64_t>(storage->writes_issued_, 1);
    } else {
      add<uint32_t>(storage->reads_pending_, 1);
    }
    if (no_writer && (!request.write || no_reader)) grant(request);
  }
  if (--operation->missing_ == 0) {
    push_ready(operation);
  } else if (lanes[operation->lane].options.ordered) {
    for (const Request& request : operation->requests()) {
      if (!request.granted) grant_followers(request.storage);
    }
  }
}

// On an ordered lane, start() has returned: what follows there may be started.
void EngineState::launch(Operation* operation) {
  operation->launched_ = true;
  --lanes[operation->lane].busy;
  for (const Request& request : operation->requests()) {
    if (request.write) {
      request.storage->writing_ = false;
    } else {
      --request.storage->reading_;
    }
  }
  for (const Request& request : operation->requests()) grant_followers(request.storage);
}

// Removes the operations that end now and returns them, chained by newer_. On an ordered lane this
// operation has to wait for earlier ones, and its end may end later ones that waited for it.
Operation* EngineState::end(Operation* operation, std::vector<FailurePointer>& replaced) {
  Lane& lane = lanes[operation->lane];
  if (!lane.options.ordered) {
    unlink(operation, replaced);
    operation->newer_ = nullptr;
    return operation;
  }
  operation->ended_ = true;
  Operation* first = nullptr;
  Operation** next = &first;
  while (!lane.flight.empty() && lane.flight.front()->ended_) {
    Operation* ended = lane.flight.front();
    lane.flight.erase(lane.flight.begin());
    learn_late_failure(ended);
    unlink(ended, replaced);
    *next = ended;
    next = &ended->newer_;
  }
  *next = nullptr;
  return first;
}

// An operation that was started before its inputs had ended learns now whether they have failed.
void EngineState::learn_late_failure(Operation* operation) {
  if (!operation->early_) return;
  for (const Storage* storage : operation->reads) {
    if (storage->failure_ == nullptr) continue;
    operation->failure_ = storage->failure_;
    operation->outcome_ = Outcome::kInputFailed;
    operation->partial.clear();
    return;
  }
}

// Takes a request out of the queue and the counts of its storage.
void EngineState::leave(Request& request) noexcept {
  Storage* storage = request.storage;
  (request.previous != nullptr ? request.previous->next : storage->first_) = request.next;
  (request.next != nullptr ? request.next->previous : storage->last_) = request.previous;
  const bool has_turn = request.granted && !request.operation->launched_;
  if (request.write) {
    if (has_turn) storage->writing_ = false;
    add<uint64_t>(storage->writes_finished_, 1);
  } else {
    if (has_turn) --storage->reading_;
    add<uint32_t>(storage->reads_pending_, -1);
  }
}

void EngineState::set_failure(Storage* storage, const FailurePointer& failure,
                              std::vector<FailurePointer>& replaced) {
  if (storage->failure_ != nullptr) replaced.push_back(std::move(storage->failure_));
  storage->failure_ = failure;
  storage->failed_.store(failure != nullptr, std::memory_order_release);
}

// Registers each failure once, however many storages it reaches.
void EngineState::register_partial(const Operation& operation) {
  for (auto entry = operation.partial.begin(); entry != operation.partial.end(); ++entry) {
    const auto same = [&](const auto& earlier) { return earlier.second == entry->second; };
    if (std::any_of(operation.partial.begin(), entry, same)) continue;
    register_failure(operation.sequence_, entry->second);
  }
}

// The operation has finished (or was skipped): those behind it in the queues of its storages get
// their turn.
void EngineState::unlink(Operation* operation, std::vector<FailurePointer>& replaced) {
  const FailurePointer& failure = operation->failure_;
  const Outcome outcome = operation->outcome_;
  if (failure != nullptr && outcome != Outcome::kInputFailed) {
    register_failure(operation->sequence_, failure);
  }
  register_partial(*operation);
  for (Request& request : operation->requests()) {
    if (request.over) continue;
    Storage* storage = request.storage;
    const bool untouched =
        !request.write || (outcome != Outcome::kRan && contains(operation->updates, storage));
    const FailurePointer& reason =
        operation->partial.empty() ? failure : partial_failure(*operation, storage, failure);
    if (!untouched && (reason != nullptr || storage->failure_ != nullptr)) {
      set_failure(storage, reason, replaced);
    }
    leave(request);
  }
  for (const Request& request : operation->requests()) {
    if (request.over) continue;
    Storage* storage = request.storage;
    // While other readers remain, the end of a reader lets nothing else start.
    const bool room = storage->reading_ == 0 || operation->launched_;
    if (storage->first_ != nullptr && room) grant_followers(storage);
  }
  running_bytes -= operation->taken_bytes_;
  if (!operation->launched_) --lanes[operation->lane].busy;
  remove(operation, outcome == Outcome::kRan);
  if (operation->finished_ != nullptr) operation->finished_->store(true, std::memory_order_release);
}

void EngineState::release_storages(StorageList reads, StorageList writes,
                                   const FailurePointer& failure,
                                   std::vector<FailurePointer>& replaced) {
  bool queued = false;
  for (Storage* storage : reads) {
    --storage->reading_;
    add<uint32_t>(storage->reads_pending_, -1);
    queued |= storage->first_ != nullptr;
  }
  for (Storage* storage : writes) {
    if (failure != nullptr || storage->failure_ != nullptr) set_failure(storage, failure, replaced);
    storage->writing_ = false;
    add<uint64_t>(storage->writes_finished_, 1);
    queued |= storage->first_ != nullptr;
  }
  if (!queued) return;
  for (Storage* storage : reads) grant_followers(storage);
  for (Storage* storage : writes) grant_followers(storage);
}

}  // namespace gemel
