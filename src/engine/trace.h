// Records what happens while tracing is on: operations, what each had to wait for, waits, and how
// much was queued and allocated. Knows no Python.
//
// When tracing is off, it costs nothing on the inline path and one test of a flag when an operation
// runs. (While tracing is on, Engine::acquire_inline refuses, so every operation goes through
// Engine::issue.)

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
  int64_t bytes = 0;  // bytes of the results
  bool inlined = false;
  bool failed = false;
  double microseconds = 0;  // as estimated when issued
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
  uint64_t operation = 0;  // the operation whose result was waited for; 0: several
  Origin origin;
};

struct CounterRecord {
  int64_t time = 0;
  int64_t pending = 0;
  int64_t bytes = 0;
};

// A step of a compiled program, run by an operation.
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
// Records up to `capacity` operations (and proportionally many of the other records). Operations
// beyond that are only counted.
void start(size_t capacity);
void stop();
Recording take();  // takes everything recorded so far out of the recording
std::unordered_map<int, std::string> thread_names();

// Around fork().
void lock_for_fork() noexcept;
void unlock_after_fork() noexcept;

int this_thread() noexcept;  // a small number, assigned on the first call
void name_this_thread(const std::string& name);

// For the engine. The other two functions take the number that issued() returns; it is 0 when the
// operation is not recorded.
uint64_t issued(OperationRecord record, const std::vector<Storage*>& reads,
                const std::vector<Storage*>& writes, int64_t pending);
void started(uint64_t record, bool inlined);
void finished(uint64_t record, bool failed, int64_t pending);

// Records a step of an operation that is being recorded. Steps beyond the capacity are dropped.
void stepped(StepRecord record);

// Called when the storage with this token is destroyed.
void forget(uint64_t token) noexcept;

// For the front end. The number of the last issued operation that writes the storage; 0 if unknown.
uint64_t writer_of(const Storage* storage);
void waited(const WaitRecord& record);

}  // namespace gemel::trace
