// Private to the engine: its state, and everything it does under its lock.
//
// One lock guards every queue. Sections under it are a few dozen instructions. One lock for each
// storage would cost more atomic operations (an inline call takes this one twice, whatever the
// number of its storages), and acquiring several storages in one step would need roll-back.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/patience.h"
#include "memory/lock.h"

namespace gemel {

struct TileJob;

// What a thread waits for. done() may be called by the waiting thread, and by any thread that holds
// the lock.
struct Condition {
  enum class Kind { kWritten, kIdle, kDevice, kEpoch, kRoom, kFlag, kJob };
  Kind kind = Kind::kFlag;
  const Storage* storage = nullptr;
  uint64_t writes = 0;                      // kWritten: so many writes have finished
  int device = 0;                           // kDevice: nothing issued to it is unfinished
  uint64_t epoch = 0;                       // kEpoch: everything issued in it is finished,
  int64_t own = 0;                          // except what this thread is inside of
  const std::atomic<bool>* flag = nullptr;  // kFlag: it is set
  const TileJob* job = nullptr;             // kJob: no helper is at its tiles
};

// A thread that looks for work, and which work it may take.
struct Taker {
  const Condition* condition = nullptr;  // what it waits for; null: it only works
  // A thread that polls for signals comes from Python, as does a callback that waits. Such a thread
  // also takes Python work, but only the work it waits for, since it may hold locks that other
  // callbacks acquire.
  InterruptedFunction interrupted = nullptr;
  bool nested = false;    // it is inside an operation
  bool stand_in = false;  // it works in place of a waiting thread
  // The longest operation it may take, in microseconds.
  double longest = std::numeric_limits<double>::infinity();
  Engine::Time polled = {};

  // A thread that waits for one storage takes only short or wanted operations.
  bool any_operation() const noexcept {
    return condition == nullptr ||
           (condition->storage == nullptr && condition->kind != Condition::Kind::kFlag &&
            condition->kind != Condition::Kind::kJob);
  }
  // A thread that waits for helpers with its branches only helps with tiles, which are short.
  bool only_tiles() const noexcept {
    return condition != nullptr && condition->kind == Condition::Kind::kJob;
  }
  bool due() const noexcept;  // it is time to call `interrupted`
};

// A place to sleep. A thread that takes a parker out of a list of sleepers, under the lock, must
// call wake() exactly once, after it has released the lock. Parkers are reused and never freed, so
// a late wake() is always safe.
struct Parker {
  void wake();
  bool sleep(Engine::Time limit);  // false when no thread has woken it by then

  const Taker* taker = nullptr;
  bool looks = false;      // the thread that woke it has counted it among those that look
  Parker* next = nullptr;  // in a list of Wakes

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

// Threads to wake after the lock has been released: declare it before the Guard.
class Wakes {
 public:
  Wakes() = default;
  ~Wakes();
  Wakes(const Wakes&) = delete;
  Wakes& operator=(const Wakes&) = delete;
  void add(Parker* parker) noexcept;
  void take(Parker*& sleeper) noexcept {  // if there is one
    if (sleeper != nullptr) add(std::exchange(sleeper, nullptr));
  }

 private:
  Parker* first_ = nullptr;
};

// Ready operations of one device, link, ... (see lanes.h).
struct Lane {
  LaneOptions options;
  std::vector<Operation*> ready;  // a heap: wanted first, then by priority, then oldest
  int share = std::numeric_limits<int>::max();  // how many may be busy with it at the same time
  int busy = 0;                 // threads, and operations that have not been completed
  Operation* oldest = nullptr;  // the unfinished operations, in order of issue
  Operation* newest = nullptr;
  std::vector<Operation*> flight;  // on an ordered lane: started and not finished, in this order
  // Memory of operations that finished before older ones, whose results thus wait for others, until
  // the oldest has caught up. Each unfinished operation has the share of those that finished right
  // behind it.
  uint64_t ahead_bytes = 0;
  Parker* sleeper = nullptr;         // its own thread, while asleep
  std::atomic<bool> started{false};  // it has its own thread
};

// One call of parallel(), on the stack of the calling thread. The caller takes tiles from the
// front, helpers take them from the back. So when several calls use the same data, each core mostly
// finds the part that is already in its caches.
struct TileJob {
  TileFunction function;
  void* context;
  int64_t tiles;
  int lane;                          // whose share of the cores it counts in; -1: none
  bool branches;                     // its tiles are long and call parallel() themselves
  std::atomic<int64_t> taken{0};     // by any thread, including attempts when none was left
  std::atomic<int64_t> from_end{0};  // how many of these by helpers
  std::atomic<int> helpers{0};       // changed under the lock
  bool quiet = false;                // no thread has been woken for it
  Engine::Time begun = {};           // since when it has been quiet
  Parker* owner = nullptr;           // asleep until the last helper has left
};

struct Work {
  Operation* operation = nullptr;
  TileJob* job = nullptr;
};

// What a thread is inside of: an operation, work that it does inline, or nothing.
struct Around {
  const Operation* operation = nullptr;
  const InsideOperation* here = nullptr;
};

struct EngineState {
  // Queues (scheduler.cc); the lock is held.
  void link(Operation* operation);
  bool take(Work& work, const Taker& taker);
  void start_now(Operation* operation) noexcept;
  void launch(Operation* operation);
  void wrote(Operation* operation, Storage* storage, std::vector<FailurePointer>& replaced);
  Operation* start_instant() noexcept;
  Operation* end(Operation* operation, std::vector<FailurePointer>& replaced);
  void release_storages(StorageList reads, StorageList writes, const FailurePointer& failure,
                        std::vector<FailurePointer>& replaced);
  void enter(InsideOperation& inside) noexcept;
  void leave(InsideOperation& inside) noexcept;
  Operation* next_operation(const Taker& taker) const noexcept;
  Operation* next_of(const Lane& lane) const noexcept;
  static bool after(const Operation* left, const Operation* right) noexcept;
  TileJob* open_job(const Taker& taker) const noexcept;
  int64_t startable() const noexcept;
  void register_failure(uint64_t sequence, const FailurePointer& failure);
  void forget_seen();  // drops the failures that have been seen
  uint64_t served() const noexcept;
  bool may_find_work() const noexcept {  // for spinning threads
    return (ready_lanes.load() & pool_lanes.load()) != 0 || job_count.load() > 0;
  }
  bool in_pool(int lane) const noexcept { return (pool_lanes & lane_bit(lane)) != 0; }

  // What threads wait for (wanted.cc); the lock is held.
  void want(const Storage* storage, bool idle);
  void want(Operation* operation);
  bool needs(const Condition& condition, const Operation* operation) const;
  Around own_obstacle(const Condition& condition) const;
  static const Request* last_awaited(const Condition& condition) noexcept;

  // Which threads sleep (waking.cc); the lock is held.
  void restore(Wakes& wakes);
  void mark_looking(bool looks) noexcept;
  void look_again() noexcept;
  bool may_take(const Taker& taker) const noexcept;
  Parker* take_parker();
  void give_parker(Parker* parker);

  // Outside the lock.
  void execute(Operation* operation);
  FailurePointer obstacle(Operation* operation);
  FailurePointer failed_input(Operation& operation) const;
  void begin(Operation* operation);
  void close(Operation* operation);
  void finish(Operation* operation);
  void perform(const Work& work, const Taker& taker);
  void run_tiles(TileJob& job, int64_t number, const Taker* helper);
  void help_with(TileJob& job, const Taker& taker);
  void call_for_help(TileJob& job);
  bool may_leave(const Taker& taker) const noexcept;
  bool help_until(const Condition& condition, InterruptedFunction interrupted);
  bool help_once(const Taker& taker);
  void park_waiter(const Taker& taker);
  void stop_looking();
  void sleep(Parker* parker);
  // `forget` removes the parker from the place where it would be woken. False: it is no longer
  // there, so another thread is about to wake it.
  template <typename Forget>
  void sleep(Parker* parker, Engine::Time limit, Forget forget) {
    if (!parker->sleep(limit)) {
      {
        Guard guard(lock);
        if (forget()) return give_parker(parker);
      }
      parker->sleep(Engine::Time::max());
    }
    Guard guard(lock);
    give_parker(parker);
  }
  void worker_main(int index);
  void stand_in_main();
  void lane_main(int lane);
  void timer_main();
  void wait_for_helpers(TileJob& job);
  void start_threads(int lane);
  void start_workers();
  void start_lane(int lane);
  bool start_timer();
  void stop_workers();
  void forget_threads();
  // Whether this thread is inside of an operation, the innermost one being given.
  template <typename Frame>
  static bool lies_around(const Frame* sought, const Frame* innermost) noexcept;
  void release_others(std::vector<FailurePointer>& replaced);
  void fail_pending();

  mutable Lock lock;
  std::mutex thread_mutex;  // for starting and stopping threads; acquired before `lock`
  std::vector<std::thread> threads;
  std::atomic<bool> started{false};
  bool stopping = false;
  std::atomic<bool> serial{false};
  std::atomic<bool> tracing{false};
  std::atomic<bool> abandoned{false};  // no operation is started any more, and tiles are skipped
  // Serial, tracing, or without workers: one flag, so that the fast paths need not test each of
  // these.
  std::atomic<bool> unusual{false};
  std::atomic<int> worker_count{0};
  std::atomic<int> workers_made{0};
  std::atomic<int64_t> queue_operations{1024};  // 0 while a thread is forking
  int64_t queue_bound = 1024;                   // its value at other times
  int forks = 0;                                // announced by close_for_fork and not over yet
  uint64_t queue_bytes = 0;
  uint64_t ahead_bytes = 0;  // each lane's bound on what finishes out of order

  uint64_t sequence = 0;
  int64_t pending() const noexcept {  // operations handed over and not yet destroyed
    return pending_in[0].load() + pending_in[1].load();
  }
  bool done(const Condition& condition) const noexcept;
  void check_wait(const Condition& condition) const;
  bool epoch_over(uint64_t which, int64_t own) const noexcept;
  bool begin_epoch(InterruptedFunction interrupted, Condition& over);

  Counters counters;  // all except `issued` and `pending`
  Lane lanes[kMostLanes];
  int lane_count = 0;
  std::atomic<uint64_t> pool_lanes{0};    // the set of lanes without a thread of their own
  std::atomic<uint64_t> ready_lanes{0};   // the set of lanes with ready operations
  uint64_t instant_lanes = 0;             // see LaneOptions::instant
  std::atomic<uint64_t> wanted_lanes{0};  // those with ready operations that some thread waits for
  std::vector<TileJob*> jobs;
  std::atomic<uint32_t> job_count{0};  // = jobs.size(), for spinning threads
  std::atomic<int64_t> device_pending[kMostDevices] = {};
  uint64_t running_bytes = 0;  // allocated by the operations that are running
  // A thread that waits for everything waits for what was issued before, not for what other threads
  // issue meanwhile. So it begins a new epoch and waits until the count of the previous one is
  // zero. Of the epoch before that nothing is left, so two counters are enough.
  std::atomic<uint64_t> epoch{0};
  std::atomic<int64_t> pending_in[2] = {};
  std::atomic<int> pending_waiters{0};   // threads that wait for such a counter
  std::atomic<int64_t> backlog{0};       // nanoseconds, see Engine::backlog
  std::atomic<uint64_t> held_inline{0};  // how many storages acquire_inline has given out
  InsideOperation* insides = nullptr;    // of all threads, those that have reads
  // See waking.cc for these.
  std::atomic<int> looking{0};
  std::atomic<int> parked{0};  // = parked_workers.size(), for the inline rule
  std::vector<Parker*> parked_workers;
  std::vector<Parker*> parked_waiters;
  Parker* stand_in = nullptr;  // asleep
  bool standing_in = false;    // awake
  std::vector<Parker*> free_parkers;
  std::multimap<Engine::Time, Completion> timers;
  Parker* timer_sleeper = nullptr;
  bool timer_started = false;
  mutable uint64_t visits = 0;                       // number of searches so far
  mutable std::vector<Operation*> to_visit;          // operations left in the current search
  std::multimap<uint64_t, FailurePointer> failures;  // by order of issue; some may have been seen
  uint64_t more_failures = 0;                        // how many were not remembered

 private:
  static bool better(const Operation* left, const Operation* right) noexcept;
  void push_ready(Operation* operation);
  void note_ready(int lane) noexcept;
  bool allowed(const Operation* operation, const Taker& taker) const noexcept;
  bool off_duty(const Taker& taker) const noexcept;
  bool fits(const Operation* operation, bool nested) const noexcept;
  bool in_turn(const Operation* operation) const noexcept;
  static Operation* leader(const Lane& lane, bool wanted) noexcept;
  void append(Operation* operation) noexcept;
  void remove(Operation* operation, bool ran);
  Operation* candidate(const Lane& lane) const noexcept;
  void add_request(Operation* operation, Storage* storage, bool write);
  void grant(Request& request, bool early = false);
  void grant_followers(Storage* storage);
  void leave(Request& request) noexcept;
  void unlink(Operation* operation, std::vector<FailurePointer>& replaced);
  void learn_late_failure(Operation* operation);
  void register_partial(const Operation& operation);
  bool mark_wanted(Operation* operation);
  template <typename Enter>
  void enter_ahead(const Request* request, bool readers, Enter enter) const;
  template <typename Enter>
  void enter_rest(Enter enter) const;
  void set_failure(Storage* storage, const FailurePointer& failure,
                   std::vector<FailurePointer>& replaced);
  void wake_lanes(Wakes& wakes);
};

// For counters that change only under the lock: these need no atomic addition.
template <typename Integer>
void add(std::atomic<Integer>& counter, Integer amount) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_release);
}

// How many operations this thread is inside of (they may wait, and a waiting thread runs others),
// the same number for each epoch, the innermost operation whose start() it is in, and whether it is
// in a tile.
extern constinit thread_local int operation_depth;
extern constinit thread_local int operations_in[2];
extern constinit thread_local Operation* current_operation;
extern constinit thread_local const InsideOperation* inside_inline;
extern constinit thread_local bool inside_tile;
// Whether this thread has closed the queue for a fork that is not over yet.
extern constinit thread_local bool forking;
// The call of parallel() whose branch this thread is in.
extern constinit thread_local const TileJob* current_branches;
// What this thread may take when it looks for work, which it does again whenever it has finished
// something; null for a thread that does not. And whether the thread is counted in `looking`.
extern constinit thread_local const Taker* own_taker;
extern constinit thread_local bool counted_as_looking;

// The inline rule: an operation with a cost up to these microseconds is done by the call. Handing
// it over to a spinning worker costs about 0.3 us and it starts at once. Waking a parked worker
// costs the waking thread 5 us or more. If every worker is busy, queueing gains nothing.
constexpr double kInlineWhenSpinning = 2.0;
constexpr double kInlineWhenBusy = 5.0;
constexpr double kInlineWhenParked = 8.0;
// For this few tiles no thread is woken until the first tile has shown how long they take: if all
// of them take less than these microseconds, they are done before a sleeping thread would be awake.
// The small kernels of plans have this many tiles (SHARES in gemel/codegen/language/nest.py).
constexpr int64_t kFewTiles = 4;
constexpr double kWorthWaking = 30.0;
// A waiting thread takes operations that no thread waits for only when they are this short, since
// its own storage may be ready at any moment.
constexpr double kShortMicroseconds = 300.0;
constexpr double kUnknown = 1e6;       // what an operation of unknown length adds to the backlog
constexpr int kPollMilliseconds = 50;  // between two looks for Ctrl-C
constexpr uint64_t kAheadBytes = uint64_t{32} << 20;
constexpr size_t kMostFailures = 1000;  // remembered; further ones are only counted
constexpr size_t kMostListed = 100;     // in the message of wait_all

}  // namespace gemel
