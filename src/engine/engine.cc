#include "engine/engine.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "engine/announce.h"
#include "engine/scheduler.h"
#include "engine/trace.h"
#include "memory/machine.h"
#include "memory/memory.h"

namespace gemel {

constinit thread_local int operation_depth = 0;
constinit thread_local int current_lane = -1;
constinit thread_local int operations_in[2] = {};
constinit thread_local bool inside_tile = false;
constinit thread_local bool serves_pool = true;

// --- storages and operations ---

namespace {

constexpr size_t kHeaderBytes =
    (sizeof(Storage) + memory::kAlignment - 1) / memory::kAlignment * memory::kAlignment;

size_t block_bytes(size_t bytes) noexcept {
  return kHeaderBytes + (bytes <= Storage::kInsideBytes ? bytes : 0);
}

}  // namespace

Storage::Storage(size_t bytes, int device) noexcept : device_(device), bytes_(bytes) {
  if (bytes <= kInsideBytes) {
    data_.store(reinterpret_cast<char*>(this) + kHeaderBytes, std::memory_order_relaxed);
  }
}

Storage* Storage::create(size_t bytes, int device) {
  void* block = memory::allocate(block_bytes(bytes));
  if (block == nullptr) throw std::bad_alloc();
  return new (block) Storage(bytes, device);
}

void Storage::destroy() noexcept {
  const size_t bytes = bytes_;
  if (bytes > kInsideBytes) memory::release(data(), bytes);
  this->~Storage();
  memory::release(this, block_bytes(bytes));
}

void* Storage::materialize() noexcept {
  void* data = data_.load(std::memory_order_acquire);
  if (data != nullptr) return data;
  data = memory::allocate(bytes_);
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
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!is_pool_lane(lane)) state_->lanes[lane].share = 1;
  }
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
  state.queue_operations = queue_operations > 0 ? queue_operations : 1024;
  state.queue_bytes = queue_bytes > 0 ? static_cast<uint64_t>(queue_bytes) : ram / 4;
  state.ahead_bytes = ahead_bytes > 0 ? static_cast<uint64_t>(ahead_bytes) : kAheadBytes;
}

void EngineState::start_threads(int lane) {
  if (!started.load(std::memory_order_acquire)) start_workers();
  if (!is_pool_lane(lane)) start_lane(lane);
}

void EngineState::start_workers() {
  std::lock_guard<std::mutex> guard(thread_mutex);
  if (started.load()) return;
  sigset_t old;
  block_signals(&old);
  for (int index = 0; index < worker_count.load(); ++index) {
    try {
      threads.emplace_back([this, index] { worker_main(index); });
    } catch (const std::exception&) {  // fewer, then: waiting threads work as well
      break;
    }
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  started.store(true);
}

void EngineState::stop_workers() {
  std::lock_guard<std::mutex> thread_guard(thread_mutex);
  if (!started.load()) return;
  {
    Wakes wakes;
    Guard guard(lock);
    stopping = true;
    for (Parker* parker : parked_workers) wakes.add(parker);
    for (Lane& lane : lanes) {
      if (lane.sleeper != nullptr) wakes.add(std::exchange(lane.sleeper, nullptr));
      lane.started = false;
    }
    looking.store(looking.load() + static_cast<int>(parked_workers.size()));
    parked_workers.clear();
    parked.store(0);
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  Guard guard(lock);
  stopping = false;
  started.store(false);
}

int Engine::workers() const noexcept { return state_->worker_count.load(); }

bool Engine::serial() const noexcept { return state_->serial.load(std::memory_order_relaxed); }

Counters Engine::counters() const {
  Guard guard(state_->lock);
  Counters result = state_->counters;
  result.issued += result.inlined;
  result.pending = static_cast<uint64_t>(state_->pending());
  return result;
}

void Engine::set_share(int lane, int threads) {
  Wakes wakes;
  Guard guard(state_->lock);
  state_->lanes[lane].share = threads > 0 ? threads : std::numeric_limits<int>::max();
  if (state_->ready_lanes != 0) state_->wake_for_work(wakes, 0);
}

void Engine::set_tracing(bool on) {
  EngineState& state = *state_;
  Guard guard(state.lock);
  state.tracing = on;
  state.unusual = on || state.serial.load() || state.worker_count.load() == 0;
}

// --- the inline path ---

namespace {

double unusual_inline_limit(const EngineState& state) noexcept {
  if (state.tracing.load(std::memory_order_relaxed)) return 0;
  // Without workers nothing is gained by waiting: whoever needs the result would have to do it.
  return std::numeric_limits<double>::infinity();
}

double usual_inline_limit(const EngineState& state) noexcept {
  if (state.looking.load(std::memory_order_relaxed) > 0) return kInlineWhenSpinning;
  const bool asleep = state.parked.load(std::memory_order_relaxed) > 0 ||
                      !state.started.load(std::memory_order_relaxed);
  return asleep ? kInlineWhenParked : kInlineWhenBusy;
}

double inline_limit(const EngineState& state) noexcept {
  if (state.unusual.load(std::memory_order_relaxed)) return unusual_inline_limit(state);
  return usual_inline_limit(state);
}

[[maybe_unused]] void announce(Storage* const* reads, size_t read_count, Storage* const* writes,
                               size_t write_count) {
  for (size_t i = 0; i < read_count; ++i) announce_read(reads[i]->data(), reads[i]->bytes());
  for (size_t i = 0; i < write_count; ++i) announce_write(writes[i]->data(), writes[i]->bytes());
}

bool on_pool(const Storage* const* storages, int count) noexcept {
  return count == 0 || storages[0]->device() < kCpus;
}

}  // namespace

bool Engine::acquire_inline(Storage* const* reads, int read_count, Storage* const* writes,
                            int write_count, double microseconds) noexcept {
  EngineState& state = *state_;
  if (microseconds > inline_limit(state)) return false;
  // Other devices do their work themselves, however little it is; giving failures costs nothing.
  if (microseconds > 0 && !(on_pool(reads, read_count) && on_pool(writes, write_count))) {
    return false;
  }
  bool lacks_memory = false;
  {
    Guard guard(state.lock);
    for (int index = 0; index < read_count; ++index) {
      if (!ready(reads[index]) || reads[index]->failed_.load(std::memory_order_relaxed))
        return false;
    }
    for (int index = 0; index < write_count; ++index) {
      if (!idle(writes[index]) || writes[index]->failed_.load(std::memory_order_relaxed))
        return false;
    }
    for (int index = 0; index < read_count; ++index) {
      Storage* storage = reads[index];
      ++storage->reading_;
      const uint32_t before = storage->reads_pending_.load(std::memory_order_relaxed);
      storage->reads_pending_.store(before + 1, std::memory_order_release);
    }
    for (int index = 0; index < write_count; ++index) {
      Storage* storage = writes[index];
      storage->writing_ = true;
      const uint64_t before = storage->writes_issued_.load(std::memory_order_relaxed);
      storage->writes_issued_.store(before + 1, std::memory_order_release);
      lacks_memory |= storage->data_.load(std::memory_order_relaxed) == nullptr;
    }
    ++state.counters.inlined;
  }
  bool complete = true;
  for (int index = 0; lacks_memory && index < write_count; ++index) {
    complete = complete && writes[index]->materialize() != nullptr;
  }
  if constexpr (kAnnounced) {
    if (complete) announce(reads, read_count, writes, write_count);
  }
  if (complete) return true;
  release_inline(reads, read_count, writes, write_count);
  Guard guard(state.lock);
  --state.counters.inlined;
  return false;
}

void Engine::release_inline(Storage* const* reads, int read_count, Storage* const* writes,
                            int write_count, FailurePointer failure) noexcept {
  EngineState& state = *state_;
  std::vector<FailurePointer> replaced;  // dropped after the lock
  Wakes wakes;
  Guard guard(state.lock);
  if (failure != nullptr) state.register_failure(++state.sequence, failure);
  state.release_storages(reads, read_count, writes, write_count, failure, replaced);
  if (!state.parked_waiters.empty()) state.wake_for_conditions(wakes);
  if (state.ready_lanes != 0) state.wake_for_work(wakes, 0);
}

// --- handing over ---

bool Engine::may_block() const noexcept { return serial() || !has_room(); }

bool Engine::has_room() const noexcept {
  return state_->pending() < state_->queue_operations.load(std::memory_order_relaxed);
}

bool Engine::issue(std::unique_ptr<Operation> owned, InterruptedFunction interrupted) {
  EngineState& state = *state_;
  if (owned->lane < 0) owned->lane = owned->device;
  if (!serial()) state.start_threads(owned->lane);
  // An operation that issues others holds a place itself: making it wait for room could be for
  // ever.
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
  state.wake_for_work(wakes, 0);
  return patient;
}

namespace {

trace::OperationRecord record_of(const Operation& operation) {
  trace::OperationRecord record;
  record.name = operation.name();
  record.detail = operation.detail();
  record.device = operation.device;
  record.microseconds = operation.microseconds;
  record.origin = operation.origin;
  record.issued = trace::now();
  return record;
}

}  // namespace

// Serial (each operation is finished when this returns) or traced (what would have been run inline
// had nobody looked is run here now).
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
    const bool cheap = is_pool_lane(operation->lane) && traced && state.worker_count.load() > 0 &&
                       operation->microseconds <= usual_inline_limit(state);
    run_here = (serial || cheap) && state.take_this(operation);
    operation->inlined_ = run_here;
    if (serial && !run_here) state.want(operation);
    if (!run_here) state.wake_for_work(wakes, 0);
  }
  if (run_here) state.execute(operation);
  if (serial) state.help_until({.kind = Condition::Kind::kFlag, .flag = &finished}, nullptr);
}

namespace {

FailurePointer failed_input(const Operation& operation) {
  for (const Storage* storage : operation.reads) {
    if (storage->failed()) return storage->failure();
  }
  for (const Storage* storage : operation.updates) {
    if (storage->failed()) return storage->failure();
  }
  return nullptr;
}

FailurePointer take_memory(const Operation& operation) {
  for (Storage* storage : operation.writes) {
    if (storage->materialize() != nullptr) continue;
    return std::make_shared<Failure>(
        "MemoryError",
        "out of memory: could not take " + std::to_string(storage->bytes()) + " bytes",
        operation.origin);
  }
  return nullptr;
}

}  // namespace

FailurePointer EngineState::run(Operation* operation) {
  if constexpr (kAnnounced) {
    announce(operation->reads.data(), operation->reads.size(), operation->writes.data(),
             operation->writes.size());
  }
  const int outer = std::exchange(current_lane, operation->lane);
  FailurePointer failure;
  if (operation->traced_ == 0) {
    failure = operation->run();
  } else {
    trace::started(operation->traced_, operation->inlined_);
    failure = operation->run();
    const bool failed = failure != nullptr || !operation->partial.empty();
    trace::finished(operation->traced_, failed, pending() - 1);
  }
  current_lane = outer;
  return failure;
}

void EngineState::execute(Operation* operation) {
  ++operation_depth;
  ++operations_in[operation->epoch_];
  Outcome outcome = Outcome::kInputFailed;
  FailurePointer failure = failed_input(*operation);
  if (failure == nullptr) {
    outcome = Outcome::kNoMemory;
    failure = take_memory(*operation);
  }
  if (failure == nullptr) {
    outcome = Outcome::kRan;
    failure = run(operation);
  }
  --operations_in[operation->epoch_];
  --operation_depth;
  std::vector<FailurePointer> replaced;  // dropped after the lock
  {
    Wakes wakes;
    Guard guard(lock);
    unlink(operation, failure, outcome, replaced);
    wake_for_conditions(wakes);
    // In serial mode a thread runs nothing but its own operation: it is no taker.
    const bool taker = serves_pool && !serial.load(std::memory_order_relaxed);
    if (ready_lanes != 0) wake_for_work(wakes, taker ? 1 : 0);
  }
  for (uint32_t index = 0; index < operation->request_count_; ++index) {
    operation->requests_[index].storage->release();
  }
  const uint8_t counter = operation->epoch_;
  delete operation;
  // After the storages are gone: who has waited for everything finds the memory given back.
  pending_in[counter].fetch_sub(1);
  if (pending_waiters.load() == 0) return;
  Wakes wakes;
  Guard guard(lock);
  wake_for_conditions(wakes);
}

}  // namespace gemel
