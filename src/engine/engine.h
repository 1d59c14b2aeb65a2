// The engine runs each operation when its turn has come in the queues of all its storages.
//
// A Storage is the engine's variable. It has the queue of pending reads and writes, the version,
// and the failure of the last writer. An Operation names the storages it reads and writes. The
// engine knows nothing else about either: no shapes, no kernels, no Python.

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
struct EngineState;  // scheduler.h
struct Request;      // one operation's place in one storage's queue
using StorageList = std::span<Storage* const>;

// Has an intrusive reference count. Storage::create returns it with a count of 1; release() drops
// one reference.
class Storage {
 public:
  static constexpr size_t kInsideBytes = 256;  // data this small is in the storage's own block

  static Storage* create(size_t bytes, int device);  // throws std::bad_alloc
  // Adopts host memory that somebody else owns. The owner's release() is called, on any thread,
  // when the memory is no longer used. Such a storage always counts as exported. Throws
  // std::bad_alloc.
  struct Owner {
    void (*release)(void* context) noexcept;
    void* context;
  };
  static Storage* adopt(void* data, size_t bytes, int device, Owner owner);
  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept {  // may be called on any thread
    // The holder of the only reference needs no atomic subtraction, since no other thread can add a
    // reference.
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      destroy();
    }
  }
  uint32_t references() const noexcept { return references_.load(std::memory_order_acquire); }

  // Null until the first operation that writes the storage has started. Small storages on the host
  // (kInsideBytes) have data from the beginning.
  void* data() const noexcept { return data_.load(std::memory_order_acquire); }
  void* materialize() noexcept;  // allocates the memory now; null when out of memory
  size_t bytes() const noexcept { return bytes_; }
  int device() const noexcept { return device_; }
  // The number of writes that have been issued. The front end increases it when it issues a write
  // (inline or not); the engine does not.
  uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  void bump_version() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  FailurePointer failure() const;  // of the last writer that has finished; null if it succeeded
  // While a storage is exported, outside code may read and write it at any time. So operations that
  // touch it are finished when their call returns.
  void begin_export() noexcept {
    exports_.fetch_add(1, std::memory_order_relaxed);
    all_exports_.fetch_add(1, std::memory_order_relaxed);
  }
  void end_export() noexcept {
    // Counted before the storage is the engine's own again.
    exports_ended_.fetch_add(1, std::memory_order_relaxed);
    exports_.fetch_sub(1, std::memory_order_release);
    all_exports_.fetch_sub(1, std::memory_order_relaxed);
  }
  bool exported() const noexcept { return exports_.load(std::memory_order_acquire) > 0; }
  uint64_t exports_ended() const noexcept { return exports_ended_.load(std::memory_order_relaxed); }
  static uint32_t all_exports() noexcept { return all_exports_.load(std::memory_order_relaxed); }
  // A number that no other storage of this process has or had.
  uint64_t identity() noexcept;
  // As long as this number stays the same, the contents stay the same. Only valid for an operation
  // that may read the storage, while no outside code writes it, and only on the host: the lanes of
  // other devices count a write after other operations have already read it.
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
  void* own_data() noexcept;  // where small data is stored, and the Owner of adopted memory
  void destroy() noexcept;

  std::atomic<uint32_t> references_{1};
  int32_t device_;
  size_t bytes_;
  std::atomic<void*> data_{nullptr};
  std::atomic<uint64_t> version_{0};
  // These change under the engine's lock. ready(), idle() and spinning threads read the atomic ones
  // without it.
  std::atomic<uint64_t> writes_issued_{0};
  // Writes finish in the order of issue: there is one writer at a time, first come, first served.
  std::atomic<uint64_t> writes_finished_{0};
  std::atomic<uint32_t> reads_pending_{0};  // queued, running or inline
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> exports_{0};
  std::atomic<uint64_t> exports_ended_{0};
  std::atomic<uint64_t> identity_{0};  // assigned on the first call of identity()
  static inline std::atomic<uint64_t> identities_{0};
  static inline std::atomic<uint32_t> all_exports_{0};
  bool adopted_ = false;
  // Whether a writer has its turn, and how many readers have theirs. Requests that have been
  // started on an ordered lane no longer count.
  bool writing_ = false;
  uint32_t reading_ = 0;
  uint64_t mark_ = 0;         // number of the last operation linked, to find duplicates
  Request* first_ = nullptr;  // the oldest; includes requests that have their turn
  Request* last_ = nullptr;
  uint64_t trace_token_ = 0;
  FailurePointer failure_;
};

// The place of one operation in the queue of one storage. Private to the engine.
struct Request {
  Operation* operation = nullptr;
  Storage* storage = nullptr;
  Request* previous = nullptr;
  Request* next = nullptr;
  bool write = false;
  bool granted = false;
  // Granted behind requests that have only been started, on the same ordered lane
  bool early = false;
  bool over = false;  // has left the queue before the end of its operation
};

enum class Outcome : uint8_t { kRan, kInputFailed, kNoMemory };

// One unit of work. Subclasses define the work. The front end creates operations; the engine
// destroys them after they have finished, possibly on a worker, so the destructor must not touch
// Python.
class Operation {
 public:
  Operation() = default;
  virtual ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Begins the work. Called once, on any thread, when every read and write may proceed and the
  // written storages have memory. The operation has ended when `done` is called. If that call gives
  // a failure, every write gets it (updates too, since their contents are unknown). The operation
  // lives until start() has returned and `done` has been called. May call Engine::parallel.
  virtual void start(Completion done) = 0;

  // The name for traces and failures, and the operand specs for traces. Both are asked for on the
  // issuing thread, before issue() returns.
  virtual std::string name() const { return "operation"; }
  virtual std::string detail() const { return ""; }

  // The lists may name a storage twice. The engine holds references from the issue until the
  // operation has finished. If a storage in `reads` carries a failure, the operation does not run
  // and its writes get that failure. A target whose old contents matter (x += 1, x[0] = 1) is
  // listed in both `reads` AND `writes`: that counts as one write, and the operation does not clear
  // a failure of the target.
  std::vector<Storage*> reads;
  std::vector<Storage*> writes;
  // A subset of `writes` (weights, running statistics) whose old contents matter too. If a storage
  // in `reads` has failed, these keep their old contents and get no failure.
  std::vector<Storage*> updates;
  // Filled before `done` is called with null: failures of some writes only. If a storage is named
  // several times, its first entry counts. An entry without a storage reaches no array but has to
  // be reported.
  std::vector<std::pair<Storage*, FailurePointer>> partial;
  size_t workspace = 0;     // bytes allocated while it runs, in addition to its writes
  double microseconds = 0;  // estimated cost on one core
  int priority = 0;         // higher first, then in order of issue
  int device = 0;
  int lane = -1;  // -1: the lane of the device
  Origin origin;

 private:
  friend class Engine;
  friend struct EngineState;
  static constexpr uint32_t kInsideRequests = 4;

  std::span<Request> requests() noexcept { return {requests_, request_count_}; }

  Request inside_[kInsideRequests];
  Request* requests_ = inside_;  // on the heap when there are more
  uint32_t request_count_ = 0;
  uint32_t missing_ = 0;        // requests that do not have their turn yet
  uint64_t sequence_ = 0;       // order of issue
  Operation* older_ = nullptr;  // its neighbours among the unfinished operations of its lane
  Operation* newer_ = nullptr;
  uint64_t taken_bytes_ = 0;  // what it allocates when it starts: new results and workspace
  int64_t nanoseconds_ = 0;   // what it adds to the backlog
  uint64_t ahead_bytes_ = 0;  // allocated by those that finished between it and its newer neighbour
  uint64_t traced_ = 0;       // its record in the trace
  uint8_t epoch_ = 0;         // which counter of pending operations counts it
  bool inlined_ = false;      // run by the issuing thread (only known in serial mode and tracing)
  bool ready_ = false;
  bool wanted_ = false;    // some thread waits for something that depends on it
  bool early_ = false;     // at least one of its requests is early
  bool launched_ = false;  // on an ordered lane: start() has returned, the end is still to come
  bool ended_ = false;     // on an ordered lane: it waits for the end of those started before it
  Outcome outcome_ = Outcome::kInputFailed;
  std::atomic<int> open_{2};  // one each for: start() has not returned, `done` has not been called
  FailurePointer failure_;
  uint64_t visit_ = 0;                     // the last search that visited it
  Operation* outer_ = nullptr;             // the operation whose start() this thread was in before
  std::atomic<bool>* finished_ = nullptr;  // set when it has finished (serial issue)
};

using TileFunction = void (*)(void* context, int64_t tile);
using InterruptedFunction = bool (*)();

// While an object of this class lives, the engine treats its thread as inside an operation: what
// the thread issues needs no room in the queue, because others may be waiting for this thread.
class InsideOperation {
 public:
  InsideOperation() noexcept : InsideOperation({}, "") {}
  // Inside an operation of this name that has acquired these reads inline. Name and list must
  // outlive this object.
  InsideOperation(StorageList reads, const char* name) noexcept;
  ~InsideOperation();
  InsideOperation(const InsideOperation&) = delete;
  InsideOperation& operator=(const InsideOperation&) = delete;

 private:
  friend struct EngineState;
  const StorageList reads_;
  const char* const name_;
  const InsideOperation* const outer_;
  // Neighbours in the list of those that have reads, of all threads.
  InsideOperation* previous_ = nullptr;
  InsideOperation* next_ = nullptr;
};
bool inside_operation() noexcept;

// Thrown by wait() and wait_idle() when they would wait for ever, because this thread is inside an
// operation that has to end first.
class WaitForItself : public std::runtime_error {
 public:
  explicit WaitForItself(const std::string& operation);
};

// Failures that nobody has seen yet, in order of issue, and how many `more` were not remembered.
struct Unseen {
  std::vector<FailurePointer> failures;
  uint64_t more = 0;
};

struct Counters {
  uint64_t issued = 0;   // including inline ones
  uint64_t inlined = 0;  // run by the caller of acquire_inline
  uint64_t queued = 0;   // handed over to the engine
  uint64_t tiles = 0;    // tiles that any thread has run for parallel()
  uint64_t pending = 0;  // handed over and not yet finished
};

class Engine {
 public:
  static Engine& get();
  // Waits for everything pending first. workers < 0: one less than the number of cores, at least 1;
  // workers 0: only waiting threads do the work. Bounds <= 0 mean the defaults (1024 operations, a
  // quarter of the RAM, 32 MiB).
  void configure(int workers, bool serial, int64_t queue_operations, int64_t queue_bytes,
                 int64_t ahead_bytes = 0);

  // The inline path. True when the work is cheap enough to be done by the caller, this call could
  // acquire every storage at once (reads: no writer pending or running; writes: no reader or
  // writer), no storage has failed, and all writes have memory. The caller then does the work
  // itself and calls release_inline with the same lists. A storage may be listed twice. While
  // tracing, all work with a cost above 0 is refused.
  bool acquire_inline(Storage* const* reads, int read_count, Storage* const* writes,
                      int write_count, double microseconds) noexcept;
  void release_inline(Storage* const* reads, int read_count, Storage* const* writes,
                      int write_count, FailurePointer failure = nullptr) noexcept;

  // Hands the operation over and returns at once, unless the queue is full: then this thread works
  // or waits until there is room. False when `interrupted` ended that wait; the operation has been
  // issued nevertheless. If may_block() is true, the caller has to drop the GIL first.
  bool issue(std::unique_ptr<Operation> operation, InterruptedFunction interrupted = nullptr);
  bool may_block() const noexcept;  // the queue is full, or the mode is serial
  bool has_room() const noexcept;
  // Ends the operation; called by its Completion.
  void complete(Operation* operation, FailurePointer failure) noexcept;
  // Called inside start(): the operation has finished writing this storage and will not touch it
  // again. Operations behind it in that queue need not wait for its end, and if it fails later, the
  // failure does not reach the storage.
  void wrote(Operation* operation, Storage* storage) noexcept;
  // Calls `done` at that time. No thread waits meanwhile, except that the caller sleeps in serial
  // mode or when the thread of the engine's clock cannot be created.
  using Time = std::chrono::steady_clock::time_point;
  void complete_at(Time time, Completion done);

  // Waits until the last writer issued before this call has finished; works meanwhile.
  // `interrupted` (Ctrl-C) is polled about every 50 ms; returns false when it says stop. Throws
  // WaitForItself.
  bool wait(Storage* storage, InterruptedFunction interrupted = nullptr) {
    return wait(storage, writes_issued(storage), interrupted);
  }
  // Waits until so many writes have finished.
  bool wait(Storage* storage, uint64_t writes, InterruptedFunction interrupted);
  static uint64_t writes_issued(const Storage* storage) noexcept {
    return storage->writes_issued_.load(std::memory_order_acquire);
  }
  // Waits until nothing at all is pending on the storage. Needed before its contents are changed or
  // shared behind the engine's back.
  bool wait_idle(Storage* storage, InterruptedFunction interrupted = nullptr);
  // The number of the operation this thread is inside of if it is being traced, else 0.
  static uint64_t traced_operation() noexcept;
  static bool ready(const Storage* storage) noexcept {  // no writer pending or running
    return storage->writes_finished_.load(std::memory_order_acquire) ==
           storage->writes_issued_.load(std::memory_order_acquire);
  }
  static bool idle(const Storage* storage) noexcept {  // no reader or writer pending or running
    return ready(storage) && storage->reads_pending_.load(std::memory_order_acquire) == 0;
  }
  // Waits until nothing issued to the device is queued or running. Failures remain unseen.
  bool wait_device(int device, InterruptedFunction interrupted = nullptr);
  bool device_idle(int device) const noexcept;

  // Lanes and devices are never removed. add_lane returns the number of the new lane. Both throw
  // std::invalid_argument when there is no room, or the device is already registered.
  int add_lane(LaneOptions options);
  void register_device(int number, std::unique_ptr<Device> device);
  static Device* device(int number) noexcept {  // null when there is none
    const bool valid = number >= 0 && number < kMostDevices;
    return valid ? devices_[number].load(std::memory_order_acquire) : nullptr;
  }
  LaneOptions lane(int number) const;
  // Whether the device uses host memory and any thread may do its work.
  static bool on_host(int device) noexcept {
    return (hosts_.load(std::memory_order_relaxed) >> device & 1) != 0;
  }
  // Device::machine of this device.
  static int machine(int number) noexcept { return on_host(number) ? 0 : device(number)->machine; }
  // How many threads may work for a device of the pool at the same time; <= 0: all of them.
  void set_share(int device, int threads);
  // While tracing, every operation goes through issue(), which records it (see trace.h).
  void set_tracing(bool on);
  // Waits until what was issued before, by any thread, is finished. False when interrupted.
  bool wait_all_quietly(InterruptedFunction interrupted = nullptr);
  // Does that, too. Returns the first unseen failure (in order of issue), with what `describe` says
  // about the others appended, or null if there is none. All of them are then marked as seen. Also
  // returns null when interrupted.
  FailurePointer wait_all(InterruptedFunction interrupted = nullptr,
                          DescribeFunction describe = message_of);
  // Adds a failure that no storage carries to the unseen ones.
  void report(const FailurePointer& failure);
  Unseen unseen() const;
  Unseen take_unseen();  // and marks them as seen

  // Runs function(context, 0..tiles-1) on this thread and on idle workers; returns when all tiles
  // are done. A call inside a tile runs all its tiles on this thread, unless that tile is one of
  // `branches`. Branches are few and long: a thread that has finished its own branch helps with the
  // tiles of the others. The function must not throw.
  void parallel(int64_t tiles, TileFunction function, void* context, bool branches = false);

  int workers() const noexcept;
  bool serial() const noexcept;
  Counters counters() const;
  // The estimated microseconds on one core of all that is pending; a second for each operation in
  // a lane with a thread of its own or of operations that something outside ends, and if a thread
  // does work inline: about these nothing is known.
  double backlog() const noexcept;

  // Around a fork. If the front end knows of the fork beforehand, it calls close_for_fork (with the
  // GIL, since a thread that has found room and still holds the GIL must not have to wait) to keep
  // new operations out until reopen, and drain_for_fork (without the GIL) to wait until nothing is
  // pending. Forks of several threads may overlap. Around every fork, known or not, the other three
  // functions are called on the forking thread; they only hold the locks. What is still pending
  // then fails in the child. The child starts its threads when it needs them.
  void close_for_fork();
  void drain_for_fork();
  void reopen();
  void before_fork();
  void after_fork_parent();
  void after_fork_child();

  // Finishes everything and joins the threads; later operations run serially. Safe to call twice.
  // With `abandon`, or once `interrupted` says stop, queued operations do not run and running ones
  // are waited for only briefly.
  void shut_down(bool abandon = false, InterruptedFunction interrupted = nullptr);

 private:
  friend class InsideOperation;
  friend class Storage;
  Engine();
  void register_hosts();
  void issue_watched(Operation* operation);
  // Static, because there is only one engine and creating a storage should not have to look it up.
  static inline std::atomic<Device*> devices_[kMostDevices];
  static inline std::atomic<uint64_t> hosts_{0};
  EngineState* const state_;  // leaked on purpose, so that static destructors can still use it
};

}  // namespace gemel
