#include "engine/trace.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "memory/lock.h"
#include "memory/memory.h"

#if defined(__linux__)
#include <sys/syscall.h>
#endif

namespace gemel::trace {
namespace {

// The operations that have accessed a storage since its last write. Storages carry a number that is
// never reused, because their addresses are.
struct History {
  uint64_t writer = 0;
  std::vector<uint64_t> readers;
};

// A loop may read a weight for ever; its readers matter only until the next write.
constexpr size_t kMostReaders = 4096;

struct State {
  Lock lock;
  std::atomic<bool> active{false};
  Recording recording;
  size_t capacity = 0;
  uint64_t first = 1;  // the number of recording.operations[0]
  std::unordered_map<uint64_t, History> histories;
  uint64_t last_token = 0;
  std::unordered_map<int, std::string> names;
  int threads = 0;
};

State& state() {
  static State* const instance = new State;
  return *instance;
}

// The lock is held.
History& history_of(State& all, uint64_t& token) {
  if (token == 0) token = ++all.last_token;
  return all.histories[token];
}

OperationRecord* find(State& all, uint64_t record) {
  if (record < all.first) return nullptr;  // it was taken out of the recording while it was running
  return &all.recording.operations[record - all.first];
}

void count(State& all, int64_t time, int64_t pending) {
  if (all.recording.counters.size() >= 2 * all.capacity) return;
  all.recording.counters.push_back({time, pending, static_cast<int64_t>(memory::footprint())});
}

void add_edge(State& all, uint64_t before, uint64_t after, Dependency kind) {
  if (before == 0 || before == after || all.recording.edges.size() >= 8 * all.capacity) return;
  all.recording.edges.push_back({before, after, kind});
}

bool contains(StorageList storages, const Storage* storage) {
  return std::find(storages.begin(), storages.end(), storage) != storages.end();
}

bool is_main_thread() {
#if defined(__linux__)
  return syscall(SYS_gettid) == getpid();
#else
  return false;
#endif
}

}  // namespace

int64_t now() noexcept {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

bool active() noexcept { return state().active.load(std::memory_order_relaxed); }

void start(size_t capacity) {
  State& all = state();
  Guard guard(all.lock);
  all.capacity = capacity;
  all.histories.clear();
  all.active.store(true);
}

void stop() {
  State& all = state();
  Guard guard(all.lock);
  all.active.store(false);
  all.histories.clear();
}

Recording take() {
  State& all = state();
  Guard guard(all.lock);
  Recording taken = std::move(all.recording);
  all.recording = {};
  all.first += taken.operations.size();
  return taken;
}

std::unordered_map<int, std::string> thread_names() {
  State& all = state();
  Guard guard(all.lock);
  return all.names;
}

void lock_for_fork() noexcept { state().lock.lock(); }

void unlock_after_fork() noexcept { state().lock.unlock(); }

int this_thread() noexcept {
  thread_local int number = -1;
  if (number >= 0) return number;
  State& all = state();
  Guard guard(all.lock);
  number = all.threads++;
  all.names.emplace(number, is_main_thread() ? "main" : "thread " + std::to_string(number));
  return number;
}

void name_this_thread(const std::string& name) {
  const int number = this_thread();
  State& all = state();
  Guard guard(all.lock);
  all.names[number] = name;
}

uint64_t issued(OperationRecord record, const std::vector<Storage*>& reads,
                const std::vector<Storage*>& writes, int64_t pending) {
  record.issue_thread = this_thread();
  for (const Storage* storage : writes) record.bytes += static_cast<int64_t>(storage->bytes());
  State& all = state();
  Guard guard(all.lock);
  if (!all.active.load(std::memory_order_relaxed)) return 0;
  const uint64_t number = record.number;
  for (size_t i = 0; i < reads.size(); ++i) {
    Storage* storage = reads[i];
    if (contains(StorageList(reads).first(i), storage)) continue;
    History& history = history_of(all, storage->trace_token());
    add_edge(all, history.writer, number, Dependency::kReadAfterWrite);
    if (contains(writes, storage) || history.readers.size() >= kMostReaders) continue;
    history.readers.push_back(number);
  }
  for (Storage* storage : writes) {
    History& history = history_of(all, storage->trace_token());
    for (uint64_t reader : history.readers) {
      add_edge(all, reader, number, Dependency::kWriteAfterRead);
    }
    if (!contains(reads, storage)) {
      add_edge(all, history.writer, number, Dependency::kWriteAfterWrite);
    }
    history.readers.clear();
    history.writer = number;
  }
  count(all, record.issued, pending);
  if (all.recording.operations.size() >= all.capacity) {
    ++all.recording.dropped;
    return 0;
  }
  all.recording.operations.push_back(std::move(record));
  return all.first + all.recording.operations.size() - 1;
}

void started(uint64_t record, bool inlined) {
  const int thread = this_thread();
  State& all = state();
  Guard guard(all.lock);
  OperationRecord* found = find(all, record);
  if (found == nullptr) return;
  found->thread = thread;
  found->inlined = inlined;
  found->started = now();
}

void finished(uint64_t record, bool failed, int64_t pending) {
  const int64_t time = now();
  State& all = state();
  Guard guard(all.lock);
  OperationRecord* found = find(all, record);
  if (found == nullptr) return;
  found->failed = failed;
  found->finished = time;
  count(all, time, pending);
}

void stepped(StepRecord record) {
  record.thread = this_thread();
  State& all = state();
  Guard guard(all.lock);
  if (!all.active.load(std::memory_order_relaxed)) return;
  if (all.recording.steps.size() < all.capacity) all.recording.steps.push_back(std::move(record));
}

void forget(uint64_t token) noexcept {
  State& all = state();
  Guard guard(all.lock);
  all.histories.erase(token);
}

uint64_t writer_of(const Storage* storage) {
  const uint64_t token = const_cast<Storage*>(storage)->trace_token();
  State& all = state();
  Guard guard(all.lock);
  const auto found = all.histories.find(token);
  return found == all.histories.end() ? 0 : found->second.writer;
}

void waited(const WaitRecord& record) {
  State& all = state();
  Guard guard(all.lock);
  if (!all.active.load(std::memory_order_relaxed)) return;
  if (all.recording.waits.size() < all.capacity) all.recording.waits.push_back(record);
}

}  // namespace gemel::trace
