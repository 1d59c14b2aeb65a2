// The engine: runs operations when their turn has come on each of their storages.
//
// A Storage is the engine's variable: it carries the queue of pending reads and writes, the
// version, and the failure of its last writer. An Operation names the storages it reads and writes.
// The engine knows nothing else of either: no shapes, no kernels, no Python.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/completion.h"
#include "engine/device.h"
#include "engine/failure.h"

namespace gemel {

class Operation;
class Storage;
struct EngineState;  // engine.cc
struct Request;      // one operation's place in one storage's queue
using StorageList = std::span<Storage* const>;

// Intrusive count; made by Storage::create (count 1), given back by release().
class Storage {
 public:
  static constexpr size_t kInsideBytes = 256;  // data this small lies in the storage's own block

  static Storage* create(size_t bytes, int device);  // throws std::bad_alloc
  // Memory of the host's that somebody else owns, who hears, on any thread, when it is no longer
  // used. It counts as exported all the time. Throws std::bad_alloc.
  struct Owner {
    void (*release)(void* context) noexcept;
    void* context;
  };
  static Storage* adopt(void* data, size_t bytes, int device, Owner owner);
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {  // from any thread
    // Who holds the only reference needs no atomic subtraction: nobody can make another.
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      destroy();
    }
  }
  uint32_t references() const noexcept { return references_.load(std::memory_order_acquire); }

  // Null until the first operation that writes it has started, except for small ones on the host
  // (kInsideBytes).
  void* data() const noexcept { return data_.load(std::memory_order_acquire); }
  void* materialize() noexcept;  // takes the memory now; null when out of memory
  size_t bytes() const noexcept { return bytes_; }
  int device() const noexcept { return device_; }
  // How many writes have been issued. The front end bumps it at issue (inline or not); the engine
  // does not.
  uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  void bump_version() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  FailurePointer failure() const;  // of the last finished writer; null when fine
  // Somebody outside reads and writes it at any time: operations that touch it are finished when
  // their call returns.
  void begin_export() noexcept {
    exports_.fetch_add(1, std::memory_order_relaxed);
    all_exports_.fetch_add(1, std::memory_order_relaxed);
  }
  void end_export() noexcept {
    exports_ended_.fetch_add(1,
                             std::memory_order_relaxed);  // before it counts as the engine's again
    exports_.fetch_sub(1, std::memory_order_release);
    all_exports_.fetch_sub(1, std::memory_order_relaxed);
  }
  bool exported() const noexcept { return exports_.load(std::memory_order_acquire) > 0; }
  uint64_t exports_ended() const noexcept { return exports_ended_.load(std::memory_order_relaxed); }
  static uint32_t all_exports() noexcept { return all_exports_.load(std::memory_order_relaxed); }
  // A number no other storage of this process has or had.
  uint64_t identity() noexcept;
  // For an operation that may read it and while nobody outside writes it: the same number, the same
  // contents. On the host: lanes of other devices count a write after others have read it.
  uint64_t contents() const noexcept {
    return writes_finished_.load(std::memory_order_acquire) +
           exports_ended_.load(std::memory_order_relaxed);
  }
  uint64_t& trace_token() noexcept { return trace_token_; }  // guarded by the trace's lock

 private:
  friend class Engine;
  friend struct EngineState;
  Storage(size_t bytes, int device, bool inside) noexcept;
  ~Storage() = default;
  void* own_data() noexcept;  // where small data lie, and the owner of others' memory
  void destroy() noexcept;

  std::atomic<uint32_t> references_{1};
  int32_t device_;
  size_t bytes_;
  std::atomic<void*> data_{nullptr};
  std::atomic<uint64_t> version_{0};
  // Changed under the engine's lock; the atomics are read without it by ready(), idle() and
  // spinners.
  std::atomic<uint64_t> writes_issued_{0};
  // In order of issue: one writer at a time, first come first served.
  std::atomic<uint64_t> writes_finished_{0};
  std::atomic<uint32_t> reads_pending_{0};  // queued, running or inline
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> exports_{0};
  std::atomic<uint64_t> exports_ended_{0};
  std::atomic<uint64_t> identity_{0};  // given when it is first asked for
  static inline std::atomic<uint64_t> identities_{0};
  static inline std::atomic<uint32_t> all_exports_{0};
  // Those that have been started on an ordered lane are no longer counted in these two.
  bool adopted_ = false;
  bool writing_ = false;      // a writer has its turn
  uint32_t reading_ = 0;      // readers which have their turn
  uint64_t mark_ = 0;         // of the last operation linked: finds duplicates
  Request* first_ = nullptr;  // oldest; includes requests which have their turn
  Request* last_ = nullptr;
  uint64_t trace_token_ = 0;
  FailurePointer failure_;
};

// One operation's place in one storage's queue. Private to the engine.
struct Request {
  Operation* operation = nullptr;
  Storage* storage = nullptr;
  Request* previous = nullptr;
  Request* next = nullptr;
  bool write = false;
  bool granted = false;
  bool early = false;  // behind others that have been started on the same ordered lane
  bool over = false;   // it has left the queue, before the operation's end
};

enum class Outcome : uint8_t { kRan, kInputFailed, kNoMemory };

// One unit of work. Subclasses say how; they are made by the front end and destroyed by the engine
// after they have finished (on a worker: the destructor must not touch Python).
class Operation {
 public:
  Operation() = default;
  virtual ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Begins the work, on any thread, once, when every read and write may proceed and written
  // storages have memory. It has ended when `done` is called: then every write carries the failure
  // given, if any (updates too, their content is unknown). The operation lives until start() has
  // returned and `done` has been called. May call Engine::parallel.
  virtual void start(Completion done) = 0;

  // What it is called, for the trace and for failures, and its specs, for the trace: these are
  // asked for on the thread that issues, before issue() returns.
  virtual std::string name() const { return "operation"; }
  virtual std::string detail() const { return ""; }

  // The lists may name a storage twice. Retained by the engine from issue until the operation has
  // finished. When a read one carries a failure the operation does not run and its writes get that
  // failure. A target whose old content matters (x += 1, x[0] = 1) is listed in `reads` AND
  // `writes`: it counts as one write, and a failure it carries is not healed by the operation.
  std::vector<Storage*> reads;
  std::vector<Storage*> writes;
  // Subset of writes (weights, running statistics): old content matters as well, but when a read
  // one failed they stay as they were, without failure.
  std::vector<Storage*> updates;
  // Filled before `done` is called with null: failures of some writes only, the first named for a
  // storage counts. Without a storage: one that reaches no array, but has to be reported.
  std::vector<std::pair<Storage*, FailurePointer>> partial;
  size_t workspace = 0;     // bytes taken while it runs, besides its writes
  double microseconds = 0;  // estimated cost on one core
  int priority = 0;         // higher first, then order of issue
  int device = 0;
  int lane = -1;  // -1: the device's own
  Origin origin;

 private:
  friend class Engine;
  friend struct EngineState;
  static constexpr uint32_t kInsideRequests = 4;

  std::span<Request> requests() noexcept { return {requests_, request_count_}; }

  Request inside_[kInsideRequests];
  Request* requests_ = inside_;  // or on the heap, when there are more
  uint32_t request_count_ = 0;
  uint32_t missing_ = 0;        // requests whose turn has not come
  uint64_t sequence_ = 0;       // order of issue
  Operation* older_ = nullptr;  // its neighbours among the unfinished of its lane
  Operation* newer_ = nullptr;
  uint64_t taken_bytes_ = 0;  // to be materialized when it starts, and its workspace
  uint64_t ahead_bytes_ = 0;  // of those that finished between it and its newer neighbour
  uint64_t traced_ = 0;       // its record in the trace
  uint8_t epoch_ = 0;         // which of the counters of pending operations it is in
  bool inlined_ = false;      // run by the thread that issued it (known while tracing only)
  bool ready_ = false;
  bool wanted_ = false;    // somebody waits for what depends on it
  bool early_ = false;     // some request of it is early
  bool launched_ = false;  // start() has returned on an ordered lane, the end is to come
  bool ended_ = false;     // on an ordered lane: waits for those started before it
  Outcome outcome_ = Outcome::kInputFailed;
  std::atomic<int> open_{2};  // start() has not returned, `done` has not been called
  FailurePointer failure_;
  uint64_t visit_ = 0;                     // of the last search that came by
  Operation* outer_ = nullptr;             // whose start() this thread was in before
  std::atomic<bool>* finished_ = nullptr;  // set when it has finished (serial issue)
};

using TileFunction = void (*)(void* context, int64_t tile);
using InterruptedFunction = bool (*)();

// While one lives, its thread is inside an operation as far as the engine is concerned: what it
// issues needs no room in the queue, because others may wait for what it does.
class InsideOperation {
 public:
  InsideOperation() noexcept : InsideOperation({}, "") {}
  // One of this name that has acquired these reads inline; both outlive this.
  InsideOperation(StorageList reads, const char* name) noexcept;
  ~InsideOperation();
  InsideOperation(const InsideOperation&) = delete;
  InsideOperation& operator=(const InsideOperation&) = delete;

 private:
  friend struct EngineState;
  const StorageList reads_;
  const char* const name_;
  const InsideOperation* const outer_;
};
bool inside_operation() noexcept;

// What wait() and wait_idle() throw instead of waiting for ever: this thread is inside of an
// operation that has to end first.
class WaitForItself : public std::runtime_error {
 public:
  explicit WaitForItself(const std::string& operation);
};

// Failures nobody has seen, in order of issue. There may be `more` than are remembered.
struct Unseen {
  std::vector<FailurePointer> failures;
  uint64_t more = 0;
};

struct Counters {
  uint64_t issued = 0;   // operations, inline ones included
  uint64_t inlined = 0;  // run by acquire_inline's caller
  uint64_t queued = 0;   // handed over
  uint64_t tiles = 0;    // run through parallel() by anybody
  uint64_t pending = 0;  // handed over and not finished
};

class Engine {
 public:
  static Engine& get();
  // Waits for everything pending first. workers < 0: cores - 1, at least 1; workers 0: only threads
  // which wait do the work. Bounds <= 0: defaults (1024 operations, a quarter of the RAM, 32 MiB).
  void configure(int workers, bool serial, int64_t queue_operations, int64_t queue_bytes,
                 int64_t ahead_bytes = 0);

  // The inline path. True when the work is cheap enough to be done here and every storage could be
  // acquired at this moment, by this very call (reads: no writer pending or running; writes: no
  // reader or writer), and none has failed and all writes have memory. The caller then runs the
  // work itself and calls release_inline with the same lists. A storage may be listed twice.
  // While tracing it refuses all work that costs anything.
  bool acquire_inline(Storage* const* reads, int read_count, Storage* const* writes,
                      int write_count, double microseconds) noexcept;
  void release_inline(Storage* const* reads, int read_count, Storage* const* writes,
                      int write_count, FailurePointer failure = nullptr) noexcept;

  // Hands over; returns at once unless the queue is full (then this thread works or waits). False
  // when `interrupted` ended that wait: the operation has been issued all the same. The caller
  // drops the GIL first when may_block() says so.
  bool issue(std::unique_ptr<Operation> operation, InterruptedFunction interrupted = nullptr);
  bool may_block() const noexcept;  // queue full, or serial
  bool has_room() const noexcept;
  // The operation has ended; what a Completion does.
  void complete(Operation* operation, FailurePointer failure) noexcept;
  // Called inside of start(): the operation will not touch this storage any more, which it writes.
  // Who is behind it there need not wait for its end, and a failure it ends with does not reach it.
  void wrote(Operation* operation, Storage* storage) noexcept;
  // Calls `done` at that time, holding no thread meanwhile.
  using Time = std::chrono::steady_clock::time_point;
  void complete_at(Time time, Completion done);

  // Until the last writer issued before this call has finished. Works meanwhile. `interrupted` is
  // polled about every 50 ms (Ctrl-C); returns false when it said stop. Throws WaitForItself.
  bool wait(Storage* storage, InterruptedFunction interrupted = nullptr);
  // Until nothing at all is pending on it: before content is changed or shared behind the engine's
  // back.
  bool wait_idle(Storage* storage, InterruptedFunction interrupted = nullptr);
  // The number of the operation this thread is inside of, if that is recorded; else 0.
  static uint64_t traced_operation() noexcept;
  static bool ready(const Storage* storage) noexcept {  // no writer pending or running
    return storage->writes_finished_.load(std::memory_order_acquire) ==
           storage->writes_issued_.load(std::memory_order_acquire);
  }
  static bool idle(const Storage* storage) noexcept {  // nothing pending or running at all
    return ready(storage) && storage->reads_pending_.load(std::memory_order_acquire) == 0;
  }
  // Until nothing issued to the device is queued or running. Failures are left where they are.
  bool wait_device(int device, InterruptedFunction interrupted = nullptr);
  bool device_idle(int device) const noexcept;

  // Lanes and devices stay for good. add_lane gives the new one's number; both throw
  // std::invalid_argument when there is no room, or the device is there already.
  int add_lane(LaneOptions options);
  void register_device(int number, std::unique_ptr<Device> device);
  static Device* device(int number) noexcept {  // null when there is none
    const bool valid = number >= 0 && number < kMostDevices;
    return valid ? devices_[number].load(std::memory_order_acquire) : nullptr;
  }
  LaneOptions lane(int number) const;
  // Its memory is the host's and any thread may do its work.
  static bool on_host(int device) noexcept {
    return (hosts_.load(std::memory_order_relaxed) >> device & 1) != 0;
  }
  // How many threads may work for a device of the pool at a time; <= 0: all there are.
  void set_share(int device, int threads);
  // While tracing, every operation comes through issue(), and is recorded by it (see trace.h).
  void set_tracing(bool on);
  // Until nothing is queued or running. First unseen failure (in order of issue) or null; what
  // `describe` says of the others is appended, all are marked as seen. Null too when interrupted.
  FailurePointer wait_all(InterruptedFunction interrupted = nullptr,
                          DescribeFunction describe = message_of);
  // Counts among those below although no storage carries it.
  void report(const FailurePointer& failure);
  Unseen unseen() const;
  Unseen take_unseen();  // all count as seen from now on

  // Runs function(context, 0..tiles-1) on this thread and idle workers; returns when all are done.
  // Inside a tile: runs them all here, unless that is one of `branches`, which are few and long:
  // who has ended its own helps with the tiles of others. The function must not throw.
  void parallel(int64_t tiles, TileFunction function, void* context, bool branches = false);

  int workers() const noexcept;
  bool serial() const noexcept;
  Counters counters() const;

  // Around a fork. Where the front end knows of it beforehand: close_for_fork lets nothing new in
  // until reopen (with the GIL: a thread that holds it has found room, and is not to wait), and
  // drain_for_fork waits until nothing is pending (without it); this may overlap with others'
  // forks. Around every fork, known or not, the other three, on the thread that forks: they
  // only hold the locks. What is still pending then fails in the child, which starts its threads
  // when it needs them.
  void close_for_fork();
  void drain_for_fork();
  void reopen();
  void before_fork();
  void after_fork_parent();
  void after_fork_child();

  // Drains and joins; later issues run serially; safe to call twice. When `interrupted` says stop,
  // or to begin with if `abandon`: what is queued does not run, what runs is waited for a moment.
  void shut_down(bool abandon = false, InterruptedFunction interrupted = nullptr);

 private:
  friend class Storage;
  Engine();
  void register_hosts();
  bool wait_all_quietly(InterruptedFunction interrupted = nullptr);
  void issue_watched(Operation* operation);
  // There is one engine; whoever makes a storage asks these without finding it first.
  static inline std::atomic<Device*> devices_[kMostDevices];
  static inline std::atomic<uint64_t> hosts_{0};
  EngineState* const state_;  // leaked on purpose: safe in static destruction
};

}  // namespace gemel
