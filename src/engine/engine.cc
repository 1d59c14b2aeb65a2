#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <new>

#include "engine/announce.h"
#include "engine/scheduler.h"
#include "engine/trace.h"
#include "memory/machine.h"
#include "memory/memory.h"

namespace gemel {

// --- storages and operations ---

namespace {

constexpr size_t kHeaderBytes =
    (sizeof(Storage) + memory::kAlignment - 1) / memory::kAlignment * memory::kAlignment;

// The address of the data does not tell: a separate block may begin right where the storage's block
// ends.
bool lies_inside(size_t bytes, int device) noexcept {
  return bytes <= Storage::kInsideBytes && Engine::on_host(device);
}

size_t block_bytes(size_t bytes, bool inside) noexcept {
  return kHeaderBytes + (inside ? bytes : 0);
}

}  // namespace

Storage::Storage(size_t bytes, int device, bool inside) noexcept : device_(device), bytes_(bytes) {
  if (inside) data_.store(own_data(), std::memory_order_relaxed);
}

Storage* Storage::create(size_t bytes, int device) {
  const bool inside = lies_inside(bytes, device);
  void* block = memory::allocate(block_bytes(bytes, inside));
  if (block == nullptr) throw std::bad_alloc();
  return new (block) Storage(bytes, device, inside);
}

Storage* Storage::adopt(void* data, size_t bytes, int device, Owner owner) {
  void* block = memory::allocate(kHeaderBytes + sizeof owner);
  if (block == nullptr) throw std::bad_alloc();
  auto* storage = new (block) Storage(bytes, device, false);
  storage->adopted_ = true;
  storage->data_.store(data, std::memory_order_relaxed);
  new (storage->own_data()) Owner(owner);
  storage->begin_export();
  return storage;
}

void* Storage::own_data() noexcept { return reinterpret_cast<char*>(this) + kHeaderBytes; }

void Storage::destroy() noexcept {
  if (trace_token_ != 0) trace::forget(trace_token_);
  if (adopted_) {
    const Owner owner = *static_cast<Owner*>(own_data());
    end_export();
    this->~Storage();
    memory::release(this, kHeaderBytes + sizeof owner);
    owner.release(owner.context);
    return;
  }
  void* const data = this->data();
  const bool inside = lies_inside(bytes_, device_);
  if (!inside && data != nullptr) Engine::device(device_)->release(data, bytes_);
  const size_t block = block_bytes(bytes_, inside);
  this->~Storage();
  memory::release(this, block);
}

uint64_t Storage::identity() noexcept {
  uint64_t known = identity_.load(std::memory_order_relaxed);
  if (known != 0) return known;
  const uint64_t fresh = identities_.fetch_add(1, std::memory_order_relaxed) + 1;
  return identity_.compare_exchange_strong(known, fresh) ? fresh : known;
}

void* Storage::materialize() noexcept {
  void* data = data_.load(std::memory_order_acquire);
  if (data != nullptr) return data;
  data = Engine::device(device_)->allocate(bytes_);
  data_.store(data, std::memory_order_release);
  return data;
}

FailurePointer Storage::failure() const {
  if (!failed()) return nullptr;
  Guard guard(Engine::get().state_->lock);
  return failure_;
}

Operation::~Operation() {
  if (requests_ != inside_) delete[] requests_;
}

// --- set-up ---

Engine::Engine() : state_(new EngineState) {
  register_hosts();
  add_lane({.name = "copies", .link = kBetweenHosts});
  add_lane({.name = "Python", .own_thread = true});
  configure(-1, false, 0, 0);
}

Engine& Engine::get() {
  static Engine* const engine = new Engine;
  return *engine;
}

void Engine::configure(int workers, bool serial, int64_t queue_operations, int64_t queue_bytes,
                       int64_t ahead_bytes) {
  EngineState& state = *state_;
  if (state.pending() > 0) wait_all_quietly();
  state.stop_workers();
  const int cores = machine::cores();
  const uint64_t ram = machine::memory_bytes();
  Guard guard(state.lock);
  state.worker_count = serial ? 0 : workers >= 0 ? workers : std::max(1, cores - 1);
  state.serial = serial;
  state.unusual = serial || state.worker_count.load() == 0 || state.tracing.load();
  state.queue_bound = queue_operations > 0 ? queue_operations : 1024;
  state.queue_operations = state.forks > 0 ? 0 : state.queue_bound;
  state.queue_bytes = queue_bytes > 0 ? static_cast<uint64_t>(queue_bytes) : ram / 4;
  state.ahead_bytes = ahead_bytes > 0 ? static_cast<uint64_t>(ahead_bytes) : kAheadBytes;
}

int Engine::workers() const noexcept { return state_->worker_count.load(); }

bool Engine::serial() const noexcept { return state_->serial.load(std::memory_order_relaxed); }

Counters Engine::counters() const {
  Guard guard(state_->lock);
  Counters result = state_->counters;
  result.issued = result.queued + result.inlined;
  result.pending = static_cast<uint64_t>(state_->pending());
  return result;
}

void Engine::set_tracing(bool on) {
  EngineState& state = *state_;
  Guard guard(state.lock);
  state.tracing = on;
  state.unusual = on || state.serial.load() || state.worker_count.load() == 0;
}

// --- the inline path ---

namespace {

double usual_inline_limit(const EngineState& state) noexcept {
  if (state.looking.load(std::memory_order_relaxed) > 0) return kInlineWhenSpinning;
  const bool asleep = state.parked.load(std::memory_order_relaxed) > 0 ||
                      !state.started.load(std::memory_order_relaxed);
  return asleep ? kInlineWhenParked : kInlineWhenBusy;
}

double inline_limit(const EngineState& state) noexcept {
  if (!state.unusual.load(std::memory_order_relaxed)) return usual_inline_limit(state);
  if (state.tracing.load(std::memory_order_relaxed)) return 0;
  // Without workers, queueing gains nothing: the thread that needs the result would have to do the
  // work.
  return std::numeric_limits<double>::infinity();
}

// The lists that callers of the inline path pass.
StorageList list(Storage* const* storages, int count) noexcept {
  return {storages, static_cast<size_t>(count)};
}

bool on_host(StorageList storages) noexcept {
  return storages.empty() || Engine::on_host(storages[0]->device());
}

}  // namespace

bool Engine::acquire_inline(Storage* const* read_list, int read_count, Storage* const* write_list,
                            int write_count, double microseconds) noexcept {
  EngineState& state = *state_;
  if (microseconds > inline_limit(state)) return false;
  const StorageList reads = list(read_list, read_count);
  const StorageList writes = list(write_list, write_count);
  // Other devices always do their work themselves. Passing on a failure costs 0 and is allowed.
  if (microseconds > 0 && !(gemel::on_host(reads) && gemel::on_host(writes))) return false;
  bool lacks_memory = false;
  {
    Guard guard(state.lock);
    const bool closed = state.forks > 0 && !forking && operation_depth == 0;
    if (closed && microseconds > 0) return false;
    for (const Storage* storage : reads) {
      if (!ready(storage) || storage->failed_.load(std::memory_order_relaxed)) return false;
    }
    for (const Storage* storage : writes) {
      if (!idle(storage) || storage->failed_.load(std::memory_order_relaxed)) return false;
    }
    for (Storage* storage : reads) {
      ++storage->reading_;
      add<uint32_t>(storage->reads_pending_, 1);
    }
    for (Storage* storage : writes) {
      storage->writing_ = true;
      add<uint64_t>(storage->writes_issued_, 1);
      lacks_memory |= storage->data_.load(std::memory_order_relaxed) == nullptr;
    }
    ++state.counters.inlined;
    add<uint64_t>(state.held_inline, reads.size() + writes.size());
  }
  bool complete = true;
  if (lacks_memory) {
    for (Storage* storage : writes) complete = complete && storage->materialize() != nullptr;
  }
  if (complete) {
    announce(reads, writes);
    return true;
  }
  release_inline(read_list, read_count, write_list, write_count);
  Guard guard(state.lock);
  --state.counters.inlined;
  return false;
}

void Engine::release_inline(Storage* const* reads, int read_count, Storage* const* writes,
                            int write_count, FailurePointer failure) noexcept {
  EngineState& state = *state_;
  std::vector<FailurePointer> replaced;  // destroyed after the lock is released
  Wakes wakes;
  Guard guard(state.lock);
  if (failure != nullptr) state.register_failure(++state.sequence, failure);
  state.release_storages(list(reads, read_count), list(writes, write_count), failure, replaced);
  add<uint64_t>(state.held_inline, -static_cast<uint64_t>(read_count + write_count));
  if (state.ready_lanes != 0 || !state.parked_waiters.empty()) state.restore(wakes);
}

// --- handing over ---

bool Engine::may_block() const noexcept { return serial() || !has_room(); }

double Engine::backlog() const noexcept {
  if (state_->held_inline.load(std::memory_order_relaxed) > 0) return kUnknown;
  return static_cast<double>(state_->backlog.load(std::memory_order_relaxed)) * 1e-3;
}

bool Engine::has_room() const noexcept {
  return state_->pending() < state_->queue_operations.load(std::memory_order_relaxed);
}

bool Engine::issue(std::unique_ptr<Operation> owned, InterruptedFunction interrupted) {
  EngineState& state = *state_;
  if (owned->lane < 0) owned->lane = device(owned->device)->lane;
  if (!serial()) state.start_threads(owned->lane);
  // An operation that issues others occupies a place in the queue itself: making it wait for room
  // could take for ever.
  bool patient = true;
  if (operation_depth == 0 && !has_room()) {
    patient = state.help_until({.kind = Condition::Kind::kRoom}, interrupted);
  }
  const size_t requests = owned->reads.size() + owned->writes.size();
  if (requests > Operation::kInsideRequests) owned->requests_ = new Request[requests];
  Operation* operation = owned.release();
  if (state.unusual.load(std::memory_order_relaxed)) {
    issue_watched(operation);
    return patient;
  }
  Wakes wakes;
  Guard guard(state.lock);
  state.link(operation);
  state.restore(wakes);
  return patient;
}

namespace {

trace::OperationRecord record_of(const Operation& operation) {
  return {.name = operation.name(),
          .detail = operation.detail(),
          .device = operation.device,
          .issued = trace::now(),
          .microseconds = operation.microseconds,
          .origin = operation.origin};
}

}  // namespace

// In serial mode every operation has finished when this returns. While tracing, operations that
// would otherwise have run inline run here, on the issuing thread.
void Engine::issue_watched(Operation* operation) {
  EngineState& state = *state_;
  const bool serial = this->serial();
  const bool traced = state.tracing.load(std::memory_order_relaxed);
  std::atomic<bool> finished{false};
  if (serial) operation->finished_ = &finished;
  trace::OperationRecord record;
  if (traced) record = record_of(*operation);
  bool run_here = false;
  {
    Wakes wakes;
    Guard guard(state.lock);
    state.link(operation);
    if (traced) {
      record.number = operation->sequence_;
      record.lane = operation->lane;
      operation->traced_ =
          trace::issued(std::move(record), operation->reads, operation->writes, state.pending());
    }
    const bool cheap = state.in_pool(operation->lane) && traced && state.worker_count.load() > 0 &&
                       operation->microseconds <= usual_inline_limit(state);
    run_here = (serial || cheap) && operation->ready_;
    operation->inlined_ = run_here;
    if (run_here) state.start_now(operation);
    if (serial && !run_here) state.want(operation);
    if (!run_here) state.restore(wakes);
  }
  if (run_here) {
    // This thread returns to its caller instead of looking for work.
    const Taker* const outer = std::exchange(own_taker, nullptr);
    state.execute(operation);
    own_taker = outer;
  }
  if (serial) state.help_until({.kind = Condition::Kind::kFlag, .flag = &finished}, nullptr);
}

}  // namespace gemel
