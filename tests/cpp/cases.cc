// Checks the engine's promises one by one. The exit status is 1 when one is broken.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "check.h"
#include "engine/engine.h"
#include "memory/memory.h"

namespace {

using gemel::Completion;
using gemel::Engine;
using gemel::Failure;
using gemel::FailurePointer;
using gemel::Storage;
using Storages = std::vector<Storage*>;

class Function : public gemel::Operation {
 public:
  explicit Function(std::function<FailurePointer()> function) : function_(std::move(function)) {}
  void start(Completion done) override { done(function_()); }

 private:
  std::function<FailurePointer()> function_;
};

struct Options {
  double microseconds = 100;
  int priority = 0;
  Storages updates = {};
};

void issue(Storages reads, Storages writes, std::function<FailurePointer()> function,
           Options options = {}) {
  auto operation = std::make_unique<Function>(std::move(function));
  operation->reads = std::move(reads);
  operation->writes = std::move(writes);
  operation->updates = std::move(options.updates);
  operation->microseconds = options.microseconds;
  operation->priority = options.priority;
  Engine::get().issue(std::move(operation));
}

FailurePointer fine() { return nullptr; }

std::function<FailurePointer()> failing(const char* message) {
  return [message] { return std::make_shared<Failure>("ValueError", message); };
}

std::function<FailurePointer()> sleeping(int milliseconds) {
  return [milliseconds]() -> FailurePointer {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return nullptr;
  };
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Handle {  // releases the storage
  explicit Handle(size_t bytes = 8) : storage(Storage::create(bytes, 0)) {}
  ~Handle() { storage->release(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator Storage*() const { return storage; }
  Storage* storage;
};

std::string message_of(const Handle& handle) {
  const FailurePointer failure = handle.storage->failure();
  return failure == nullptr ? "" : failure->message;
}

// --- cases ---

// engine.md 4
void waiting_is_for_one_storage() {
  Engine::get().configure(1, false, 0, 0);
  Handle slow, quick;
  const auto start = std::chrono::steady_clock::now();
  issue({}, {slow}, sleeping(400), {400000.0});
  issue({}, {quick}, fine, {400000.0});
  Engine::get().wait(quick);
  check(milliseconds_since(start) < 300, "a wait only waits for its own storage");
  Engine::get().wait(slow);
  check(milliseconds_since(start) >= 399, "a wait waits for its storage");
}

// engine.md 4, 7
void waiting_prefers_what_it_needs() {
  Engine::get().configure(0, false, 0, 0);  // only the waiting thread works
  Handle other, first, last;
  int unrelated = 0;
  for (int index = 0; index < 50; ++index) {
    issue({}, {other},
          [&]() -> FailurePointer {
            ++unrelated;
            return nullptr;
          },
          {5000, 9});
  }
  issue({}, {first}, fine, {5000});
  issue({first}, {last}, fine, {5000});
  Engine::get().wait(last);
  check(unrelated == 0, "a waiting thread runs what it depends on first");
  check(!Engine::ready(other), "others are still queued");
  Engine::get().wait_all();
  check(unrelated == 50, "wait_all runs everything");
}

// engine.md 4
void readers_of_the_same_do_not_hold_up_each_other() {
  Engine::get().configure(0, false, 0, 0);
  Handle shared, last;
  std::vector<std::unique_ptr<Handle>> others;
  int before = 0;
  for (int index = 0; index < 20; ++index) {
    others.push_back(std::make_unique<Handle>());
    issue({shared}, {*others.back()},
          [&]() -> FailurePointer {
            ++before;
            return nullptr;
          },
          {5000});
  }
  issue({shared}, {last}, fine, {5000});
  Engine::get().wait(last);
  check(before == 0, "operations that read the same storage do not wait for each other");
  issue({}, {shared}, fine, {5000});
  Engine::get().wait(shared);
  check(before == 20, "an operation that overwrites a storage waits for its readers");
  Engine::get().wait_all();
}

void priorities_come_first() {
  Engine::get().configure(0, false, 0, 0);
  Handle storages[6];
  std::string order;
  const int priorities[] = {0, 1, -1, 1, 0, 2};
  for (int index = 0; index < 6; ++index) {
    const auto note = [&order, index]() -> FailurePointer {
      order += static_cast<char>('0' + index);
      return nullptr;
    };
    issue({}, {storages[index]}, note, {5000, priorities[index]});
  }
  Engine::get().wait_all();
  check(order == "513042", "operations run by priority, then in the order of issue");
}

void failures_stick(int workers, bool serial) {
  Engine::get().configure(workers, serial, 0, 0);
  Handle bad, derived, weights, sum;
  issue({}, {weights}, fine);
  issue({}, {sum}, fine);
  issue({}, {bad}, failing("one"));
  issue({bad}, {derived, weights}, fine, {100, 0, {weights}});
  issue({bad, sum}, {sum}, fine);
  for (Storage* storage : Storages{bad, derived, weights, sum}) Engine::get().wait(storage);
  check(message_of(bad) == "one" && message_of(derived) == "one",
        "a failure reaches the results that depend on it");
  check(message_of(weights).empty(), "an update whose input failed leaves its target alone");
  check(message_of(sum) == "one", "a target that is overwritten in place fails with its input");
  Storage* const list[] = {derived};
  check(!Engine::get().acquire_inline(list, 1, nullptr, 0, 0),
        "no inline work on a failed storage");
  issue({}, {derived}, fine);
  Engine::get().wait(derived);
  check(message_of(derived).empty(), "overwriting a storage clears its failure");
  issue({sum}, {sum}, fine);
  Engine::get().wait(sum);
  check(message_of(sum) == "one", "overwriting in place does not clear a failure");
  issue({}, {derived}, failing("two"));
  Engine::get().wait(derived);
  check(Engine::get().unseen().failures.size() == 2, "two failures are still unseen");
  const FailurePointer all = Engine::get().wait_all();
  check(all != nullptr && all->message == "one\nalso ValueError: two",
        "wait_all reports all failures");
  check(Engine::get().unseen().failures.empty() && Engine::get().wait_all() == nullptr,
        "wait_all reports each failure once");
}

// An operation that fails some of its writes only.
class Partial : public gemel::Operation {
 public:
  explicit Partial(std::vector<std::pair<Storage*, FailurePointer>> told)
      : told_(std::move(told)) {}
  void start(Completion done) override {
    partial = told_;
    done();
  }

 private:
  std::vector<std::pair<Storage*, FailurePointer>> told_;
};

void some_writes_fail(int workers, bool serial) {
  Engine::get().configure(workers, serial, 0, 0);
  Handle first, second, healed, weights, kept, elsewhere;
  issue({}, {healed}, failing("before"));
  Engine::get().wait(healed);
  Engine::get().wait_all();
  const auto one = std::make_shared<Failure>("ValueError", "one");
  const auto two = std::make_shared<Failure>("ValueError", "two");
  const auto nobody = std::make_shared<Failure>("ValueError", "nobody's");
  auto operation = std::make_unique<Partial>(
      std::vector<std::pair<Storage*, FailurePointer>>{{first, one},
                                                       {weights, one},
                                                       {elsewhere, one},
                                                       {first, two},
                                                       {second, two},
                                                       {nullptr, nobody}});
  operation->writes = {first, second, healed, weights, kept};
  operation->updates = {weights, kept};
  operation->microseconds = 100;
  Engine::get().issue(std::move(operation));
  Engine::get().wait(kept);
  check(message_of(first) == "one" && message_of(second) == "two", "each write gets its failure");
  check(message_of(weights) == "one", "the target of an update may fail, too");
  check(message_of(healed).empty() && message_of(kept).empty(), "the other writes do not fail");
  check(message_of(elsewhere).empty(), "a storage that is not written does not fail");
  const FailurePointer all = Engine::get().wait_all();
  check(all != nullptr && all->message == "one\nalso ValueError: two\nalso ValueError: nobody's",
        "each failure is reported once");
  issue({}, {first}, fine);
  Engine::get().wait(first);
  check(message_of(first).empty(), "overwriting clears the failure of a single write");
}

// Reports its first write early, and ends when `go` is set.
class EarlyWriter : public gemel::Operation {
 public:
  EarlyWriter(std::atomic<bool>& begun, std::atomic<bool>& go, FailurePointer failure)
      : begun_(begun), go_(go), failure_(std::move(failure)) {}
  void start(Completion done) override {
    begun_ = true;
    Engine::get().wrote(this, writes[0]);
    Engine::get().wrote(this, writes[0]);  // a second report does nothing
    while (!go_) std::this_thread::yield();
    done(failure_);
  }

 private:
  std::atomic<bool>& begun_;
  std::atomic<bool>& go_;
  FailurePointer failure_;
};

// engine.md 44
void what_is_written_early_is_there(bool serial) {
  Engine::get().configure(2, serial, 0, 0);
  for (const bool fails : {false, true}) {
    Handle early, late, result;
    issue({}, {early.storage}, failing("before"));  // the early write clears this failure
    std::atomic<bool> begun{false}, go{serial};
    auto writer =
        std::make_unique<EarlyWriter>(begun, go, fails ? failing("at its end")() : nullptr);
    writer->writes = {early.storage, late.storage};
    writer->microseconds = 100;
    Engine::get().issue(std::move(writer));
    while (!begun) std::this_thread::yield();  // a waiting thread could get stuck in start()
    std::atomic<int> read{0};
    const auto count = [&]() -> FailurePointer {
      ++read;
      return nullptr;
    };
    issue({early.storage}, {result.storage}, count);
    issue({early.storage}, {early.storage}, count);
    Engine::get().wait(early.storage);
    check(read == 2 && !early.storage->failed(),
          "a storage that was written early can be read and written");
    check(serial || !Engine::ready(late.storage), "the other writes are not ready yet");
    go = true;
    Engine::get().wait(late.storage);
    check(late.storage->failed() == fails, "the other writes fail if the operation fails");
    check(!early.storage->failed() && !result.storage->failed(),
          "the early write does not fail with the operation");
    Engine::get().wait_all();
    Engine::get().take_unseen();
  }
}

void memory_failures_stick() {
  Engine::get().configure(1, false, 0, 0);
  Handle huge((size_t{1} << 46) + 64), derived;
  issue({}, {huge}, fine);
  issue({huge}, {derived}, fine);
  Engine::get().wait(derived);
  const FailurePointer failure = derived.storage->failure();
  check(failure != nullptr && failure->type == "MemoryError", "out of memory is a sticky failure");
  check(Engine::get().wait_all() == failure, "wait_all reports that memory ran out");
}

// engine.md 18
void memory_stays_flat() {
  Engine::get().configure(1, false, 8, 0);
  const uint64_t before = gemel::memory::statistics().bytes_in_use;
  gemel::memory::reset_peak();
  const uint64_t low = gemel::memory::statistics().peak_bytes;
  constexpr size_t kBytes = size_t{1} << 20;
  for (int index = 0; index < 200; ++index) {
    Handle first(kBytes), second(kBytes);
    issue({}, {first}, sleeping(0), {1000});
    issue({first}, {second}, sleeping(0), {1000});
  }
  Engine::get().wait_all();
  check(gemel::memory::statistics().bytes_in_use == before, "all memory is given back");
  check(gemel::memory::statistics().peak_bytes - low <= 10 * kBytes,
        "a bounded queue bounds the memory");
}

struct Tally {
  std::atomic<int> inner{0};
  std::atomic<int> outer{0};
};

// engine.md 8
void tiles_all_run(int workers, bool serial) {
  Engine::get().configure(workers, serial, 0, 0);
  Tally tally;
  const auto outer = [](void* context, int64_t) {
    const auto inner = [](void* same, int64_t) { ++static_cast<Tally*>(same)->inner; };
    ++static_cast<Tally*>(context)->outer;
    Engine::get().parallel(3, inner, context);  // nested: runs on this thread
  };
  Engine::get().parallel(100, outer, &tally);
  Handle result;
  issue({}, {result}, [&]() -> FailurePointer {
    Engine::get().parallel(100, outer, &tally);
    return nullptr;
  });
  Engine::get().wait(result);
  check(tally.outer == 200 && tally.inner == 600, "every tile runs once");
}

struct Branches {
  int64_t tiled = 0;  // which of the two branches has tiles; the other one ends at once
  std::mutex mutex;
  std::set<std::thread::id> threads;
  int tiles = 0;
};

// engine.md 8
void branches_are_helped(int64_t tiled) {
  Engine::get().configure(1, false, 0, 0);
  Branches seen;
  seen.tiled = tiled;
  const auto branch = [](void* context, int64_t index) {
    if (index != static_cast<Branches*>(context)->tiled) return;
    const auto tile = [](void* same, int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      auto* all = static_cast<Branches*>(same);
      std::lock_guard<std::mutex> guard(all->mutex);
      all->threads.insert(std::this_thread::get_id());
      ++all->tiles;
    };
    for (int call = 0; call < 5; ++call) Engine::get().parallel(10, tile, context);
  };
  Handle result;
  issue({}, {result}, [&]() -> FailurePointer {
    Engine::get().parallel(2, branch, &seen, true);
    return nullptr;
  });
  Engine::get().wait(result);
  check(seen.tiles == 50, "every tile of a branch runs once");
  check(seen.threads.size() == 2,
        "a thread that has ended its branch helps with another one's tiles");
}

struct Sleepers {
  std::mutex mutex = {};
  std::set<std::thread::id> threads = {};
  std::atomic<size_t> seen{0};
  int tiles = 0;

  // Returns how many tiles have begun before this one.
  int enter() {
    std::lock_guard<std::mutex> guard(mutex);
    threads.insert(std::this_thread::get_id());
    seen.store(threads.size());
    return tiles++;
  }
};

void sleep_all_workers() {
  Handle first;
  issue({}, {first}, fine, {1e6});
  Engine::get().wait(first);                                    // the worker has been started now
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // and now it has gone to sleep
}

// engine.md 8: the first tile takes long, the others wait until a second thread has joined.
void sleepers_are_woken_for_what_lasts(int64_t tiles) {
  Engine::get().configure(1, false, 0, 0);
  sleep_all_workers();
  Sleepers sleepers;
  const auto tile = [](void* context, int64_t) {
    auto* all = static_cast<Sleepers*>(context);
    const bool first = all->enter() == 0;
    const auto start = std::chrono::steady_clock::now();
    while (first ? milliseconds_since(start) < 3
                 : all->seen < 2 && milliseconds_since(start) < 5000) {
      std::this_thread::yield();
    }
  };
  Engine::get().parallel(tiles, tile, &sleepers);
  check(sleepers.tiles == tiles, "every tile runs once");
  check(sleepers.seen == 2, "a sleeping worker is woken for tiles that take long");
}

// On a busy machine even an empty tile may take long, so one short call out of many is enough.
void sleepers_are_not_woken_for_less() {
  Engine::get().configure(1, false, 0, 0);
  for (int attempt = 0; attempt < 20; ++attempt) {
    sleep_all_workers();
    Sleepers sleepers;
    const auto tile = [](void* context, int64_t) { static_cast<Sleepers*>(context)->enter(); };
    Engine::get().parallel(4, tile, &sleepers);
    check(sleepers.tiles == 4, "every tile runs once");
    if (sleepers.seen == 1) return;
  }
  check(false, "a sleeping worker is not woken for tiles that end soon");
}

void waits_can_be_interrupted() {
  Engine::get().configure(1, false, 0, 0);
  Handle slow;
  issue({}, {slow}, sleeping(500), {500000.0});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the worker is running it now
  const auto start = std::chrono::steady_clock::now();
  check(!Engine::get().wait(slow, [] { return true; }), "an interrupted wait returns false");
  check(milliseconds_since(start) < 300, "an interrupted wait returns soon");
  Engine::get().wait(slow);
}

void operations_may_wait() {
  Engine::get().configure(1, false, 2, 1);  // small bounds: nothing here may wait for room
  Handle first, second, last;
  issue({}, {last}, [&]() -> FailurePointer {
    issue({}, {first}, sleeping(5));
    issue({first}, {second}, fine);
    Engine::get().wait(second);
    return nullptr;
  });
  Engine::get().wait(last);
  check(Engine::idle(second), "an operation may issue others and wait for them");
}

// engine.md 20
void operations_may_wait_for_memory() {
  constexpr size_t kBytes = 4096;
  Engine::get().configure(1, false, 0, kBytes);  // room for one operation at a time
  Handle inner(kBytes), outer(kBytes);
  issue({}, {outer}, [&]() -> FailurePointer {
    issue({}, {inner}, sleeping(5));
    Engine::get().wait(inner);
    return nullptr;
  });
  Engine::get().wait(outer);
  check(Engine::ready(inner), "an operation that a running one waits for is not held back");
}

// Only the waiting thread works. It also has to run what is issued while it waits for idleness.
void idle_counts_later_operations() {
  Engine::get().configure(0, false, 0, 0);
  Handle storage;
  std::atomic<bool> go{false};
  issue({}, {storage}, [&]() -> FailurePointer {
    go = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return nullptr;
  });
  std::thread other([&] {
    while (!go) std::this_thread::yield();
    issue({}, {storage}, fine, {1e6});
  });
  Engine::get().wait_idle(storage);
  other.join();
  Engine::get().wait_all();
  check(Engine::idle(storage), "wait_idle also runs operations that are issued meanwhile");
}

void idle_means_no_reader() {
  Engine::get().configure(1, false, 0, 0);
  Handle source, copy;
  issue({}, {source}, fine);
  issue({source}, {copy}, sleeping(50));
  Engine::get().wait_idle(source);
  check(Engine::ready(copy), "wait_idle waits for readers");
}

// The Completions of operations that have been started, to be called later.
class Begun {
 public:
  void add(Completion done) {
    std::lock_guard<std::mutex> guard(mutex_);
    ends_.push_back(std::move(done));
  }
  size_t count() {
    std::lock_guard<std::mutex> guard(mutex_);
    return ends_.size();
  }
  Completion take(size_t index) {
    std::lock_guard<std::mutex> guard(mutex_);
    return std::move(ends_[index]);
  }

 private:
  std::mutex mutex_;
  std::vector<Completion> ends_;
};

class Later : public gemel::Operation {
 public:
  explicit Later(Begun& begun) : begun_(begun) {}
  void start(Completion done) override { begun_.add(std::move(done)); }

 private:
  Begun& begun_;
};

void issue_later(Storages reads, Storages writes, Begun& begun, int lane) {
  auto operation = std::make_unique<Later>(begun);
  operation->reads = std::move(reads);
  operation->writes = std::move(writes);
  operation->lane = lane;
  Engine::get().issue(std::move(operation));
}

void wait_until(const std::function<bool()>& holds) {
  const auto start = std::chrono::steady_clock::now();
  while (!holds() && milliseconds_since(start) < 5000) std::this_thread::yield();
}

// engine.md 39
void operations_end_when_told(int workers) {
  Engine::get().configure(workers, false, 0, 0);
  const int lane = Engine::get().add_lane({.name = "elsewhere", .own_thread = true});
  Handle first, second, other;
  Begun begun;
  issue_later({}, {first}, begun, lane);
  issue_later({}, {other}, begun, lane);
  issue({first}, {second}, fine);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    check(begun.count() == 1, "an operation occupies its lane until it has ended");
    check(Engine::get().counters().pending == 3, "an operation is pending until it has ended");
    begun.take(0)(std::make_shared<Failure>("ValueError", "told"));
  });
  Engine::get().wait(second);
  check(message_of(second) == "told", "any thread may end an operation");
  ends.join();
  wait_until([&] { return begun.count() == 2; });
  begun.take(1);
  Engine::get().wait(other);
  check(message_of(other).find("nobody said") != std::string::npos,
        "an operation whose completion is dropped fails");
  Engine::get().wait_all();
}

// engine.md 44: one worker, which is inside of the writer, and no thread that waits.
void what_is_written_early_starts_instantly() {
  Engine::get().configure(1, false, 0, 0);
  const int lane =
      Engine::get().add_lane({.name = "at once", .ended_outside = true, .instant = true});
  const int other_lane = Engine::get().add_lane({.name = "soon", .ended_outside = true});
  Handle early, late, failed, result, second, third, fourth;
  Begun begun, not_begun;
  std::atomic<bool> inside{false}, go{false};
  std::atomic<size_t> started{0}, others{0};
  class Writer : public gemel::Operation {
   public:
    explicit Writer(std::function<void(Writer&)> body) : body_(std::move(body)) {}
    void start(Completion done) override {
      body_(*this);
      done(nullptr);
    }

   private:
    std::function<void(Writer&)> body_;
  };
  auto writer = std::make_unique<Writer>([&](Writer& self) {
    inside = true;
    while (!go) std::this_thread::yield();
    Engine::get().wrote(&self, self.writes[0]);
    started = begun.count();
    others = not_begun.count();
  });
  writer->writes = {early, late};
  writer->microseconds = 100;
  issue({}, {failed}, failing("an input"));
  Engine::get().wait(failed);
  Engine::get().issue(std::move(writer));
  while (!inside) std::this_thread::yield();
  issue_later({early}, {result}, begun, lane);
  issue_later({early}, {second}, begun, lane);
  issue_later({early, failed}, {fourth}, begun, lane);  // is ended instead of started
  issue_later({early}, {third}, not_begun, other_lane);
  go = true;
  wait_until([&] { return begun.count() == 2 && not_begun.count() == 1; });
  Engine::get().wait(late);
  check(started == 2 && others == 0,
        "what is ready in an instant lane starts before wrote returns");
  for (const size_t index : {0, 1}) begun.take(index)(nullptr);
  not_begun.take(0)(nullptr);
  Engine::get().wait_all();
  check(message_of(result).empty() && message_of(second).empty() && message_of(third).empty(),
        "and ends when told");
  check(message_of(fourth) == "an input", "with its input it fails");
  Engine::get().take_unseen();
}

// engine.md 39
void the_clock_ends_operations() {
  class Timed : public gemel::Operation {
   public:
    void start(Completion done) override {
      const auto now = std::chrono::steady_clock::now();
      Engine::get().complete_at(now + std::chrono::milliseconds(50), std::move(done));
    }
  };
  for (const bool serial : {false, true}) {
    Engine::get().configure(1, serial, 0, 0);
    Handle storages[20];
    const auto start = std::chrono::steady_clock::now();
    for (Handle& storage : storages) {
      auto operation = std::make_unique<Timed>();
      operation->writes = {storage};
      Engine::get().issue(std::move(operation));
    }
    Engine::get().wait_all();
    const double taken = milliseconds_since(start);
    check(taken >= 50, "an operation does not end before its time");
    check(serial == (taken >= 1000), "timed operations overlap, except on a serial engine");
  }
}

// engine.md 40
void streams_start_early() {
  Engine::get().configure(2, false, 0, 0);
  const int lane = Engine::get().add_lane({.name = "stream", .own_thread = true, .ordered = true});
  Handle first, second, third, elsewhere, weights;
  Begun begun;
  std::atomic<int> ran{0};
  const auto note = [&]() -> FailurePointer {
    ++ran;
    return nullptr;
  };
  issue_later({}, {first}, begun, lane);
  issue_later({first}, {second}, begun, lane);
  issue({second}, {elsewhere}, note);
  issue_later({second, first}, {third}, begun, lane);
  issue_later({second}, {first}, begun, lane);
  auto update = std::make_unique<Later>(begun);
  update->reads = {third};
  update->writes = update->updates = {weights};
  update->lane = lane;
  Engine::get().issue(std::move(update));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  check(begun.count() == 4, "the next operation of a stream starts at once, unless it updates");
  check(ran == 0, "an operation of another lane waits for its input to end");
  for (const size_t index : {3, 2, 1}) begun.take(index)();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  check(!Engine::ready(third) && ran == 0,
        "operations of a stream end in order, whichever completes first");
  begun.take(0)(std::make_shared<Failure>("ValueError", "late"));
  Engine::get().wait(weights);
  check(message_of(second) == "late" && message_of(third) == "late",
        "a later failure reaches operations that have already started");
  check(message_of(first) == "late", "a later failure reaches an input that was overwritten");
  check(message_of(weights).empty(), "a later failure leaves the targets of updates unchanged");
  Engine::get().wait_all();
  check(message_of(elsewhere) == "late" && ran == 0, "a later failure reaches other lanes");
}

void many_failures_are_counted() {
  Engine::get().configure(1, false, 0, 0);
  Handle storage;
  for (int index = 0; index < 1500; ++index) issue({}, {storage}, failing("again"));
  const FailurePointer all = Engine::get().wait_all();
  check(all != nullptr && all->message.ends_with("\nand 1400 more"), "all failures are counted");
  check(Engine::get().wait_all() == nullptr, "all failures count as seen after wait_all");
}

// engine.md 29
void a_fork_nobody_knew_of() {
#if !defined(__SANITIZE_THREAD__)
  Engine::get().configure(0, false, 0, 0);
  Handle done, pending, after;
  issue({}, {done}, fine);
  Engine::get().wait(done);
  issue({}, {pending}, fine, {1e6});
  issue({pending}, {after}, fine, {1e6});
  Engine::get().before_fork();
  const pid_t child = fork();
  if (child == 0) {
    Engine::get().after_fork_child();
    Engine::get().wait(after);
    const bool told = message_of(after).find("only the parent") != std::string::npos;
    issue({done}, {pending}, fine);
    Engine::get().wait(pending);
    Engine::get().wait_all();
    _exit(told && message_of(pending).empty() && message_of(done).empty() ? 0 : 1);
  }
  Engine::get().after_fork_parent();
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "pending operations fail in the child, which can go on");
  Engine::get().wait(after);
  check(message_of(after).empty(), "the parent still runs its pending operations");
#endif
}

// engine.md 7, 28
void waits_begin_nothing_long() {
  Engine::get().configure(1, false, 0, 0);
  Handle first, second;
  std::atomic<int> at_once{0}, most{0};
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<bool> mine{false};
  const auto slow = [&]() -> FailurePointer {
    if (std::this_thread::get_id() == here) mine = true;
    const int now = ++at_once;
    if (now > most) most = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    --at_once;
    return nullptr;
  };
  issue({}, {first}, slow, {1e5});
  issue({}, {second}, slow, {1e5});
  const auto start = std::chrono::steady_clock::now();
  for (const Handle* handle : {&first, &second}) {
    Engine::get().wait(*handle, [] { return false; });
  }
  check(!mine, "an interruptible wait starts no long operation");
  check(most == 2 && milliseconds_since(start) < 190,
        "another thread runs long operations in its place");
}

// engine.md 30
void an_abandoned_queue_ends_soon() {
#if !defined(__SANITIZE_THREAD__)
  const pid_t child = fork();
  if (child == 0) {
    Engine::get().after_fork_child();
    Engine::get().configure(1, false, 0, 0);
    Handle storages[40];
    static std::atomic<int> tiles{0};
    const auto tiled = []() -> FailurePointer {
      const auto tile = [](void*, int64_t) {
        ++tiles;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      };
      Engine::get().parallel(1000, tile, nullptr);
      return nullptr;
    };
    for (Handle& storage : storages) issue({}, {storage}, tiled, {1e6});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto start = std::chrono::steady_clock::now();
    Engine::get().shut_down(true);
    const bool soon = milliseconds_since(start) < 400 && tiles < 900;
    _exit(soon && Engine::idle(storages[39]) ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "abandoned operations do not run, and running ones skip their tiles");
#endif
}

// engine.md 19
void inside_an_operation_nobody_waits_for_room() {
  Engine::get().configure(0, false, 1, 0);
  Handle first, second;
  issue({}, {first}, fine, {1e6});
  check(Engine::get().may_block(), "the queue is full");
  {
    const gemel::InsideOperation inside;
    issue({}, {second}, fine, {1e6});
    check(Engine::get().counters().pending == 2,
          "inside an operation, issuing does not wait for room");
  }
  Engine::get().wait_all();
}

void a_child_starts_afresh() {
#if !defined(__SANITIZE_THREAD__)
  Engine::get().configure(2, false, 0, 0);
  Handle storage(4096);
  issue({}, {storage}, sleeping(20));
  Engine::get().close_for_fork();
  Engine::get().drain_for_fork();
  check(Engine::ready(storage), "drain_for_fork empties the queue");
  Engine::get().before_fork();
  const pid_t child = fork();
  if (child == 0) {
    Engine::get().after_fork_child();
    Engine::get().reopen();
    Handle own(4096);
    for (int index = 0; index < 100; ++index) issue({storage}, {own}, fine);
    Engine::get().wait(own);
    Engine::get().shut_down();
    _exit(Engine::idle(own) ? 0 : 1);
  }
  Engine::get().after_fork_parent();
  Engine::get().reopen();
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "the child can issue and wait");
  issue({}, {storage}, fine);
  Engine::get().wait(storage);
#endif
}

void shutting_down_twice() {
  Handle storage;
  Engine::get().configure(2, false, 0, 0);
  issue({}, {storage}, sleeping(20));
  Engine::get().shut_down();
  check(Engine::ready(storage), "shut_down empties the queue");
  Engine::get().shut_down();
  issue({}, {storage}, failing("late"));
  check(message_of(storage) == "late", "operations issued after shut_down run at once");
  Engine::get().wait_all();
}

}  // namespace

int main() {
  waiting_is_for_one_storage();
  waiting_prefers_what_it_needs();
  readers_of_the_same_do_not_hold_up_each_other();
  priorities_come_first();
  for (const int workers : {0, 1, 2}) {
    failures_stick(workers, false);
    tiles_all_run(workers, false);
    some_writes_fail(workers, false);
  }
  failures_stick(0, true);
  some_writes_fail(0, true);
  tiles_all_run(0, true);
  for (const bool serial : {false, true}) what_is_written_early_is_there(serial);
  Engine::get().configure(2, false, 0, 0);
  memory_failures_stick();
  memory_stays_flat();
  for (const int64_t tiled : {0, 1}) branches_are_helped(tiled);
  sleepers_are_not_woken_for_less();
  for (const int64_t tiles : {4, 20}) sleepers_are_woken_for_what_lasts(tiles);
  waits_can_be_interrupted();
  operations_may_wait();
  operations_may_wait_for_memory();
  idle_counts_later_operations();
  idle_means_no_reader();
  for (const int workers : {0, 1, 2}) operations_end_when_told(workers);
  what_is_written_early_starts_instantly();
  the_clock_ends_operations();
  streams_start_early();
  many_failures_are_counted();
  waits_begin_nothing_long();
  inside_an_operation_nobody_waits_for_room();
  a_fork_nobody_knew_of();
  a_child_starts_afresh();
  an_abandoned_queue_ends_soon();
  shutting_down_twice();
  if (failures == 0) std::printf("engine: all promises kept\n");
  return failures == 0 ? 0 : 1;
}
