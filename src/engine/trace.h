// What happened, when tracing is on: operations, what each had to wait for, waits, and how much was
// queued and held. Knows no Python.
//
// Off, it costs nothing on the inline path (Engine::acquire_inline refuses while tracing, so that
// every operation comes through Engine::issue) and a test of one flag when an operation is run.

#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace gemel::trace {

// Nanoseconds of the monotonic clock: Python's time.perf_counter_ns.
int64_t now() noexcept;

struct OperationRecord {
  uint64_t number = 0;  // order of issue
  std::string name;
  std::string detail;
  int device = 0;
  int lane = 0;
  int thread = 0;
  int issue_thread = 0;
  int64_t issued = 0;
  int64_t started = 0;
  int64_t finished = 0;
  int64_t bytes = 0;  // of the results
  bool inlined = false;
  bool failed = false;
  double microseconds = 0;  // as estimated
  Origin origin;
};

enum class Dependency : uint8_t { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };

struct Edge {
  uint64_t before = 0;
  uint64_t after = 0;
  Dependency kind = Dependency::kReadAfterWrite;
};

enum class WaitKind : uint8_t { kArray, kExport, kAll, kDevice, kQueue };

struct WaitRecord {
  int thread = 0;
  int64_t started = 0;
  int64_t finished = 0;
  WaitKind kind = WaitKind::kArray;
  uint64_t operation = 0;  // whose result was waited for; 0: several
  Origin origin;
};

struct CounterRecord {
  int64_t time = 0;
  int64_t pending = 0;
  int64_t bytes = 0;
};

// A step of a compiled program that was run by an operation.
struct StepRecord {
  uint64_t operation = 0;
  std::string label;
  int thread = 0;
  int64_t started = 0;
  int64_t finished = 0;
};

struct Recording {
  std::vector<OperationRecord> operations;
  std::vector<StepRecord> steps;
  std::vector<Edge> edges;
  std::vector<WaitRecord> waits;
  std::vector<CounterRecord> counters;
  uint64_t dropped = 0;
};

bool active() noexcept;
// Records up to `capacity` operations (and in proportion of the rest); what is over is counted.
void start(size_t capacity);
void stop();
Recording take();  // everything recorded so far; it is recorded no longer
std::unordered_map<int, std::string> thread_names();

// Around fork().
void lock_for_fork() noexcept;
void unlock_after_fork() noexcept;

int this_thread() noexcept;  // a small number
void name_this_thread(const std::string& name);

// For the engine. What issued() gives stands for the operation in the other two; 0: not recorded.
uint64_t issued(OperationRecord record, const std::vector<Storage*>& reads,
                const std::vector<Storage*>& writes, int64_t pending);
void started(uint64_t record, bool inlined);
void finished(uint64_t record, bool failed, int64_t pending);

// A step of an operation that is recorded. What is over the capacity is left out.
void stepped(StepRecord record);

// The storage with this token is gone.
void forget(uint64_t token) noexcept;

// For the front end. The number of the last operation issued that writes the storage, if known.
uint64_t writer_of(const Storage* storage);
void waited(const WaitRecord& record);

}  // namespace gemel::trace
