// Private to engine.cc: the engine's state, everything it does under its lock.
//
// One lock guards every queue. Sections under it are a few dozen instructions, so a lock for each
// storage would cost more in atomic operations (an inline call takes this one twice, whatever the
// number of its storages) and acquiring several storages in one step would need roll-back.

#pragma once

#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "memory/lock.h"

namespace gemel {

// What a thread waits for. done() may be asked by anybody who holds the lock, and by its owner.
struct Condition {
  enum class Kind { kWritten, kIdle, kDevice, kEpoch, kRoom, kFlag };
  Kind kind = Kind::kFlag;
  const Storage* storage = nullptr;
  uint64_t writes = 0;                      // kWritten: this many have finished
  int device = 0;                           // kDevice: nothing issued to it is unfinished
  uint64_t epoch = 0;                       // kEpoch: what was issued in it is finished,
  int64_t own = 0;                          // but for what this thread is inside of
  const std::atomic<bool>* flag = nullptr;  // kFlag: it is set
};

// What the thread that looks for work may take.
struct Taker {
  bool any_operation = true;  // not only what is short or wanted
  bool nested = false;        // it is inside an operation
  bool python = false;        // it may take the GIL
};

// A place to sleep. Whoever takes a parker out of the list of sleepers, under the lock, owes it
// exactly one wake(), after the lock. Parkers are reused and never freed, so that late wake() is
// always safe.
struct Parker {
  void wake();
  void sleep();                          // until woken
  bool sleep_briefly(int milliseconds);  // false when nobody woke it in that time

  const Condition* condition = nullptr;  // of a waiting thread; null: a worker
  Taker taker;
  Parker* next = nullptr;  // in a list of Wakes

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

// Threads to wake once the lock is free: declare it before the Guard.
class Wakes {
 public:
  Wakes() = default;
  ~Wakes();
  Wakes(const Wakes&) = delete;
  Wakes& operator=(const Wakes&) = delete;
  void add(Parker* parker) noexcept;

 private:
  Parker* first_ = nullptr;
};

// Memory an operation took which had finished before an older one of its lane.
struct Ahead {
  uint64_t sequence;
  uint64_t bytes;
  bool operator>(const Ahead& other) const noexcept { return sequence > other.sequence; }
};

// Ready operations of one device, link, ... (see lanes.h).
struct Lane {
  std::vector<Operation*> ready;                // a heap: wanted, then priority, then oldest first
  int share = std::numeric_limits<int>::max();  // threads which may work for it at a time
  int busy = 0;                                 // threads which do
  Operation* oldest = nullptr;                  // of the unfinished, in order of issue
  Operation* newest = nullptr;
  // What finished out of order, until the oldest has caught up: its results wait for others.
  std::priority_queue<Ahead, std::vector<Ahead>, std::greater<Ahead>> ahead;
  uint64_t ahead_bytes = 0;
  Parker* sleeper = nullptr;  // its own thread, asleep
  bool started = false;       // it has its own thread
};

// One call of parallel(); lies on the stack of the thread which called.
struct TileJob {
  TileFunction function;
  void* context;
  int64_t tiles;
  int lane;  // whose share of the cores it counts in; -1: none
  std::atomic<int64_t> next{0};
  std::atomic<int> helpers{0};  // changed under the lock
  Parker* owner = nullptr;      // asleep until the last helper has left
};

struct Work {
  Operation* operation = nullptr;
  TileJob* job = nullptr;
};

enum class Outcome { kRan, kInputFailed, kNoMemory };

struct EngineState {
  // Queues (scheduler.cc); the lock is held.
  void link(Operation* operation);
  bool take(Work& work, const Taker& taker);
  void unlink(Operation* operation, const FailurePointer& failure, Outcome outcome,
              std::vector<FailurePointer>& replaced);
  void release_storages(Storage* const* reads, int read_count, Storage* const* writes,
                        int write_count, const FailurePointer& failure,
                        std::vector<FailurePointer>& replaced);
  bool take_this(Operation* operation);
  Operation* next_operation(const Taker& taker) const noexcept;
  TileJob* open_job() const noexcept;
  void want(const Storage* storage, bool idle);
  void want(Operation* operation);
  void register_failure(uint64_t sequence, const FailurePointer& failure);
  void register_partial(const Operation& operation);
  void wake_for_work(Wakes& wakes, int64_t takers);
  void wake_for_conditions(Wakes& wakes);
  Parker* take_parker();

  // Outside the lock.
  void execute(Operation* operation);
  void run_tiles(TileJob& job, const Condition* until, bool helping);
  void help_with(TileJob& job, const Condition* until);
  FailurePointer run(Operation* operation);
  bool help_until(Condition condition, InterruptedFunction interrupted);
  bool help_once(const Condition& condition, const Taker& taker);
  void park_waiter(const Condition& condition, const Taker& taker, bool polled);
  enum class Search { kFound, kSlept, kStop };
  void worker_main(int index);
  void lane_main(int lane);
  void start_lane(int lane);
  Search find_work(Work& work, bool counted);
  void wait_for_helpers(TileJob& job);
  void start_threads(int lane);
  void start_workers();
  void stop_workers();

  mutable Lock lock;
  std::mutex thread_mutex;  // starting and stopping workers; before `lock`
  std::vector<std::thread> threads;
  std::atomic<bool> started{false};
  bool stopping = false;
  std::atomic<bool> serial{false};
  std::atomic<bool> tracing{false};
  // Serial, tracing, or without workers: what the quick ways need not ask for one by one.
  std::atomic<bool> unusual{false};
  std::atomic<int> worker_count{0};
  std::atomic<int64_t> queue_operations{1024};
  int64_t forking_room = 0;  // what queue_operations was before a fork
  uint64_t queue_bytes = 0;
  uint64_t ahead_bytes = 0;  // a lane's bound on what finishes out of order

  uint64_t sequence = 0;
  int64_t pending() const noexcept {  // operations handed over and not yet destroyed
    return pending_in[0].load() + pending_in[1].load();
  }
  bool epoch_over(uint64_t which, int64_t own) const noexcept;
  bool begin_epoch(InterruptedFunction interrupted, Condition& over);

  Counters counters;  // all but `pending`
  Lane lanes[kLanes];
  uint64_t ready_lanes = 0;  // the set of those with ready operations
  std::vector<TileJob*> jobs;
  std::atomic<uint32_t> work_hint{0};  // ready operations of the pool + jobs, for spinners
  std::atomic<uint32_t> urgent{0};     // ready operations of the pool somebody waits for
  std::atomic<int64_t> device_pending[kDevices] = {};
  uint64_t running_bytes = 0;  // taken by operations which run now
  // Who waits for everything waits for what was issued before, not for what other threads issue
  // meanwhile: he begins a new epoch and waits until the count of the one before is zero. Of two
  // epochs back nothing is left, so two counters are enough.
  std::atomic<uint64_t> epoch{0};
  std::atomic<int64_t> pending_in[2] = {};
  std::atomic<int> pending_waiters{0};  // threads that wait for such a count
  std::atomic<int> looking{0};          // workers spinning, or woken and on their way
  std::atomic<int> parked{0};           // = parked_workers.size(), for the inline rule
  std::vector<Parker*> parked_workers;
  std::vector<Parker*> parked_waiters;
  std::vector<Parker*> free_parkers;
  std::vector<Operation*> want_stack;
  std::vector<std::pair<uint64_t, FailurePointer>>
      failures;  // nobody has seen them, as far as we know

 private:
  static bool before(const Operation* left, const Operation* right) noexcept;
  static bool better(const Operation* left, const Operation* right) noexcept;
  static void sift_up(Lane& lane, size_t place) noexcept;
  static void sift_down(Lane& lane, size_t place) noexcept;
  void push_ready(Operation* operation);
  void start_now(Operation* operation) noexcept;
  int64_t startable() const noexcept;
  uint64_t served() const noexcept;
  void wake_lanes(Wakes& wakes);
  bool fits(const Operation* operation, bool nested) const noexcept;
  bool in_turn(const Operation* operation) const noexcept;
  static Operation* leader(const Lane& lane, bool wanted) noexcept;
  void append(Operation* operation) noexcept;
  void remove(Operation* operation, bool ran);
  Operation* candidate(const Lane& lane) const noexcept;
  void add_request(Operation* operation, Storage* storage, bool write);
  void grant(Request* request);
  void grant_followers(Storage* storage);
  void remove_request(Request* request) noexcept;
  void mark_wanted(Operation* operation);
  void want_back(Request* request, bool readers);
  void want_rest();
  void set_failure(Storage* storage, const FailurePointer& failure,
                   std::vector<FailurePointer>& replaced);
};

bool done(const Condition& condition) noexcept;

// For threads about to be made: signals are the front end's business, Python expects them on its
// own threads.
void block_signals(sigset_t* old) noexcept;

// For counters changed under the lock only: no need of an atomic addition.
template <typename Integer>
void add(std::atomic<Integer>& counter, Integer amount) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_release);
}

// Operations this thread is inside of (they may wait, and waiting runs others), the lane of the
// innermost, and whether in a tile.
extern constinit thread_local int operation_depth;
extern constinit thread_local int current_lane;
extern constinit thread_local int operations_in[2];  // the same, by epoch
extern constinit thread_local bool inside_tile;
// Whether this thread looks for work of the pool when it has done something: not one that serves
// another lane.
extern constinit thread_local bool serves_pool;

// Spinning costs a core, parking costs its waker about 5 us: spin for about as long as that pays.
constexpr int kSpins = 2000;
// After looking in vain under the lock: lets others have it. How many spins that was.
inline int back_off() noexcept {
  constexpr int kPauses = 20;
  for (int pause = 0; pause < kPauses; ++pause) pause_briefly();
  return kPauses;
}
// The inline rule. Handing over to a spinning worker costs about 0.3 us and starts at once; waking
// a parked one costs the waker 5 us or more; with every worker busy nothing is gained by queueing.
constexpr double kInlineWhenSpinning = 2.0;
constexpr double kInlineWhenBusy = 5.0;
constexpr double kInlineWhenParked = 8.0;
// A waiting thread takes operations nobody waits for only when they are this short: its own storage
// may be ready any moment.
constexpr double kShortMicroseconds = 300.0;
constexpr int kPollMilliseconds = 50;
constexpr uint64_t kAheadBytes = uint64_t{32} << 20;
constexpr size_t kMostFailures = 1000;  // remembered for the report at exit

}  // namespace gemel
