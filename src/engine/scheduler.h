// Private to the engine: its state, everything it does under its lock.
//
// One lock guards every queue. Sections under it are a few dozen instructions, so a lock for each
// storage would cost more in atomic operations (an inline call takes this one twice, whatever the
// number of its storages) and acquiring several storages in one step would need roll-back.

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

// What a thread waits for. done() may be asked by anybody who holds the lock, and by its owner.
struct Condition {
  enum class Kind { kWritten, kIdle, kDevice, kEpoch, kRoom, kFlag, kJob };
  Kind kind = Kind::kFlag;
  const Storage* storage = nullptr;
  uint64_t writes = 0;                      // kWritten: this many have finished
  int device = 0;                           // kDevice: nothing issued to it is unfinished
  uint64_t epoch = 0;                       // kEpoch: what was issued in it is finished,
  int64_t own = 0;                          // but for what this thread is inside of
  const std::atomic<bool>* flag = nullptr;  // kFlag: it is set
  const TileJob* job = nullptr;             // kJob: nobody is at its tiles
};

// A thread that looks for work, and what it may take.
struct Taker {
  const Condition* condition = nullptr;  // what it waits for meanwhile; null: it only works
  // Who polls for signals has come from Python, as has a callback that waits. Such a thread takes
  // Python work too, but only what it waits for, since it may hold locks which foreign callbacks
  // take.
  InterruptedFunction interrupted = nullptr;
  bool nested = false;    // it is inside an operation
  bool stand_in = false;  // it works while another thread waits, in its place
  double longest = std::numeric_limits<double>::infinity();  // microseconds of an operation
  Engine::Time polled = {};

  // Who waits for one storage takes only what is short or wanted.
  bool any_operation() const noexcept {
    return condition == nullptr ||
           (condition->storage == nullptr && condition->kind != Condition::Kind::kFlag &&
            condition->kind != Condition::Kind::kJob);
  }
  // Who waits for helpers with branches helps with their tiles: soon over, all of them.
  bool only_tiles() const noexcept {
    return condition != nullptr && condition->kind == Condition::Kind::kJob;
  }
  bool due() const noexcept;  // time to ask `interrupted`
};

// A place to sleep. Whoever takes a parker out of the list of sleepers, under the lock, owes it
// exactly one wake(), after the lock. Parkers are reused and never freed, so that late wake() is
// always safe.
struct Parker {
  void wake();
  bool sleep(Engine::Time limit);  // false when nobody has woken it until then

  const Taker* taker = nullptr;
  bool looks = false;      // whoever woke it has counted it among those who look
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
  void take(Parker*& sleeper) noexcept {  // if there is one
    if (sleeper != nullptr) add(std::exchange(sleeper, nullptr));
  }

 private:
  Parker* first_ = nullptr;
};

// Ready operations of one device, link, ... (see lanes.h).
struct Lane {
  LaneOptions options;
  std::vector<Operation*> ready;                // a heap: wanted, then priority, then oldest first
  int share = std::numeric_limits<int>::max();  // how many may be busy with it at a time
  int busy = 0;                                 // threads, and operations to be completed
  Operation* oldest = nullptr;                  // of the unfinished, in order of issue
  Operation* newest = nullptr;
  std::vector<Operation*> flight;  // of an ordered lane: started and not finished, in this order
  // Memory of what finished out of order, until the oldest has caught up: its results wait for
  // others. Each of the unfinished carries that of those behind it.
  uint64_t ahead_bytes = 0;
  Parker* sleeper = nullptr;         // its own thread, asleep
  std::atomic<bool> started{false};  // it has its own thread
};

// One call of parallel(); lies on the stack of the thread which called. That takes tiles from the
// first one on, who helps takes them from the last: where the same data are used by one call after
// the other, a core mostly finds those it has in its caches.
struct TileJob {
  TileFunction function;
  void* context;
  int64_t tiles;
  int lane;                          // whose share of the cores it counts in; -1: none
  bool branches;                     // its tiles are long and call parallel() in turn
  std::atomic<int64_t> taken{0};     // by anybody, and asked for in vain
  std::atomic<int64_t> from_end{0};  // of those, by helpers
  std::atomic<int> helpers{0};       // changed under the lock
  bool quiet = false;                // nobody has been woken for it,
  Engine::Time begun = {};           // since when
  Parker* owner = nullptr;           // asleep until the last helper has left
};

struct Work {
  Operation* operation = nullptr;
  TileJob* job = nullptr;
};

// What a thread is inside of: an operation, or work it does inline; or nothing.
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
  Operation* end(Operation* operation, std::vector<FailurePointer>& replaced);
  void release_storages(StorageList reads, StorageList writes, const FailurePointer& failure,
                        std::vector<FailurePointer>& replaced);
  Operation* next_operation(const Taker& taker) const noexcept;
  Operation* next_of(const Lane& lane) const noexcept;
  static bool after(const Operation* left, const Operation* right) noexcept;
  TileJob* open_job(const Taker& taker) const noexcept;
  int64_t startable() const noexcept;
  void register_failure(uint64_t sequence, const FailurePointer& failure);
  void forget_seen();  // failures, and what they hold
  uint64_t served() const noexcept;
  bool may_find_work() const noexcept {  // for spinners
    return (ready_lanes.load() & pool_lanes.load()) != 0 || job_count.load() > 0;
  }
  bool in_pool(int lane) const noexcept { return (pool_lanes & lane_bit(lane)) != 0; }

  // What somebody waits for (wanted.cc); the lock is held.
  void want(const Storage* storage, bool idle);
  void want(Operation* operation);
  bool needs(const Condition& condition, const Operation* operation) const;
  Around own_obstacle(const Condition& condition) const;

  // Who sleeps (waking.cc); the lock is held.
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
  // `forget` takes it out of where it would be woken; false: somebody has, his wake is on its way.
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
  static bool runs_here(const Operation* operation) noexcept;
  void fail_pending();

  mutable Lock lock;
  std::mutex thread_mutex;  // starting and stopping threads; before `lock`
  std::vector<std::thread> threads;
  std::atomic<bool> started{false};
  bool stopping = false;
  std::atomic<bool> serial{false};
  std::atomic<bool> tracing{false};
  std::atomic<bool> abandoned{false};  // nothing is started any more, tiles are skipped
  // Serial, tracing, or without workers: what the quick ways need not ask for one by one.
  std::atomic<bool> unusual{false};
  std::atomic<int> worker_count{0};
  std::atomic<int> workers_made{0};
  std::atomic<int64_t> queue_operations{1024};  // 0 while somebody forks
  int64_t queue_bound = 1024;                   // what it is else
  int forks = 0;                                // drained for, and not over
  uint64_t queue_bytes = 0;
  uint64_t ahead_bytes = 0;  // a lane's bound on what finishes out of order

  uint64_t sequence = 0;
  int64_t pending() const noexcept {  // operations handed over and not yet destroyed
    return pending_in[0].load() + pending_in[1].load();
  }
  bool done(const Condition& condition) const noexcept;
  void check_wait(const Condition& condition) const;
  bool epoch_over(uint64_t which, int64_t own) const noexcept;
  bool begin_epoch(InterruptedFunction interrupted, Condition& over);

  Counters counters;  // all but `issued` and `pending`
  Lane lanes[kMostLanes];
  int lane_count = 0;
  std::atomic<uint64_t> pool_lanes{0};    // the set of those without a thread of their own
  std::atomic<uint64_t> ready_lanes{0};   // of those with ready operations,
  std::atomic<uint64_t> wanted_lanes{0};  // and with some that somebody waits for
  std::vector<TileJob*> jobs;
  std::atomic<uint32_t> job_count{0};  // = jobs.size(), for spinners
  std::atomic<int64_t> device_pending[kMostDevices] = {};
  uint64_t running_bytes = 0;  // taken by operations which run now
  // Who waits for everything waits for what was issued before, not for what other threads issue
  // meanwhile: he begins a new epoch and waits until the count of the one before is zero. Of two
  // epochs back nothing is left, so two counters are enough.
  std::atomic<uint64_t> epoch{0};
  std::atomic<int64_t> pending_in[2] = {};
  std::atomic<int> pending_waiters{0};  // threads that wait for such a count
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
  mutable uint64_t visits = 0;                       // searches made by needs()
  mutable std::vector<Operation*> to_visit;          // of the search under way
  std::multimap<uint64_t, FailurePointer> failures;  // by order of issue; as far as we know unseen
  uint64_t more_failures = 0;                        // that are not remembered

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

// For counters changed under the lock only: no need of an atomic addition.
template <typename Integer>
void add(std::atomic<Integer>& counter, Integer amount) noexcept {
  counter.store(counter.load(std::memory_order_relaxed) + amount, std::memory_order_release);
}

// How many operations this thread is inside of (they may wait, and waiting runs others), the same
// by epoch, the innermost whose start() it is in, and whether it is in a tile.
extern constinit thread_local int operation_depth;
extern constinit thread_local int operations_in[2];
extern constinit thread_local Operation* current_operation;
extern constinit thread_local const InsideOperation* inside_inline;
extern constinit thread_local bool inside_tile;
// The call whose branch this thread is in.
extern constinit thread_local const TileJob* current_branches;
// What this thread may take when it looks for work, as it does again whenever it has done
// something; null for one that does not. Whether it is counted in `looking`.
extern constinit thread_local const Taker* own_taker;
extern constinit thread_local bool counted_as_looking;

// The inline rule. Handing over to a spinning worker costs about 0.3 us and starts at once; waking
// a parked one costs the waker 5 us or more; with every worker busy nothing is gained by queueing.
constexpr double kInlineWhenSpinning = 2.0;
constexpr double kInlineWhenBusy = 5.0;
constexpr double kInlineWhenParked = 8.0;
// Nobody is woken for so few tiles before the first has shown how long they take: what is over in
// less than these microseconds is over before who sleeps is awake. Small kernels of plans are cut
// into so many (SHARES in gemel/codegen/nest.py).
constexpr int64_t kFewTiles = 4;
constexpr double kWorthWaking = 30.0;
// A waiting thread takes operations nobody waits for only when they are this short: its own storage
// may be ready any moment.
constexpr double kShortMicroseconds = 300.0;
constexpr int kPollMilliseconds = 50;  // between two looks for Ctrl-C
constexpr uint64_t kAheadBytes = uint64_t{32} << 20;
constexpr size_t kMostFailures = 1000;  // remembered, the others are counted
constexpr size_t kMostListed = 100;     // by waitall

}  // namespace gemel
