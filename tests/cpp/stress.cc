// Random programs on the engine, compared bit for bit with a serial replay in the order of issue.
//
//   stress [--seconds N] [--seed S]
//
// Storages hold small vectors of int64. Operations read several and write one or two; they
// overwrite in place, update, fail on purpose (all results or one), compute in tiles, run inline,
// or are handed over to any lane. Several threads issue, wait and take snapshots. Some programs are
// traced: every recorded dependency must have been kept. Exit status 1 at the first difference.

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "engine/engine.h"
#include "engine/trace.h"
#include "memory/memory.h"

namespace {

using gemel::kCopyLane;
using gemel::kPythonLane;

using gemel::Completion;
using gemel::Engine;
using gemel::Failure;
using gemel::FailurePointer;
using gemel::Storage;

constexpr size_t kImpossibleBytes = (size_t{1} << 46) + 64;  // the pool refuses this size at once

struct Vector {  // a storage, as the program sees it
  int id;
  int64_t length;
  bool impossible = false;  // too large for any memory: every write is a MemoryError
};

struct Step {  // an entry of the log
  enum class Kind { kOperation, kSnapshot };
  Kind kind = Kind::kOperation;
  std::vector<Vector> reads;
  std::vector<Vector> writes;
  std::vector<Vector> updates;
  uint64_t salt = 0;
  bool fails = false;
  bool partial = false;  // if there are several writes, only the last one fails
  bool tiled = false;
  std::string failure;  // kSnapshot: the failure and the contents found in reads[0]
  std::vector<int64_t> content;
};

int64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return static_cast<int64_t>(value ^ (value >> 31));
}

bool among(const std::vector<Vector>& vectors, int id) {
  for (const Vector& vector : vectors) {
    if (vector.id == id) return true;
  }
  return false;
}

// Computes elements [begin, end) of write number `target` of a step. `data` has the contents of the
// step's reads, then of its writes. In-place targets and updates depend on their old contents.
void compute(const Step& step, const std::vector<int64_t*>& data, size_t target, int64_t begin,
             int64_t end) {
  const Vector& out = step.writes[target];
  int64_t* const result = data[step.reads.size() + target];
  const bool keeps = among(step.reads, out.id) || among(step.updates, out.id);
  for (int64_t index = begin; index < end; ++index) {
    uint64_t value = step.salt + target + static_cast<uint64_t>(index);
    if (keeps) value = value * 31 + static_cast<uint64_t>(result[index]);
    for (size_t read = 0; read < step.reads.size(); ++read) {
      if (among(step.writes, step.reads[read].id)) continue;
      value = value * 131 + static_cast<uint64_t>(data[read][index % step.reads[read].length]);
    }
    result[index] = mix(value);
  }
}

std::string own_failure(const Step& step) {
  return "failed on purpose " + std::to_string(step.salt);
}

// --- on the engine ---

struct Tiles {
  const Step* step;
  const std::vector<int64_t*>* data;
  size_t target;
  static constexpr int64_t kLength = 16;

  static void run(void* context, int64_t tile) {
    const Tiles& self = *static_cast<Tiles*>(context);
    const int64_t length = self.step->writes[self.target].length;
    const int64_t begin = tile * kLength;
    compute(*self.step, *self.data, self.target, begin, std::min(length, begin + kLength));
  }
};

// The writes of a step, one after another or side by side.
struct Writes {
  const Step* step;
  std::vector<int64_t*> data;

  static void run(void* context, int64_t index) {
    const Writes& self = *static_cast<Writes*>(context);
    const auto target = static_cast<size_t>(index);
    const std::vector<Vector>& writes = self.step->writes;
    if (target > 0 && writes[target].id == writes[0].id) return;
    const int64_t length = writes[target].length;
    Tiles tiles{self.step, &self.data, target};
    if (self.step->tiled) {
      Engine::get().parallel((length + Tiles::kLength - 1) / Tiles::kLength, Tiles::run, &tiles);
    } else {
      compute(*self.step, self.data, target, 0, length);
    }
  }
};

FailurePointer run_step(const Step& step, const std::vector<Storage*>& reads,
                        const std::vector<Storage*>& writes) {
  Writes all{&step, {}};
  for (Storage* storage : reads) all.data.push_back(static_cast<int64_t*>(storage->data()));
  for (Storage* storage : writes) all.data.push_back(static_cast<int64_t*>(storage->data()));
  const auto count = static_cast<int64_t>(step.writes.size());
  if (step.salt % 2 == 0) {
    Engine::get().parallel(count, Writes::run, &all, true);
  } else {
    for (int64_t target = 0; target < count; ++target) Writes::run(&all, target);
  }
  if (!step.fails) return nullptr;
  return std::make_shared<Failure>("ValueError", own_failure(step));
}

// Runs work in order on its own thread, like a stream of a GPU. The engine does not know about it.
class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    push(nullptr);
    thread_.join();
  }
  void push(std::function<void()> work) {
    std::lock_guard<std::mutex> guard(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock<std::mutex> guard(mutex_);
        changed_.wait(guard, [this] { return !queue_.empty(); });
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

Stream& stream() {
  static Stream instance;
  return instance;
}

// Whether only the step's last write fails. Inline work has no partial failures.
bool fails_in_part(const Step& step) {
  return step.fails && step.partial && step.writes.size() == 2 &&
         step.writes[0].id != step.writes[1].id;
}

// Lanes of the programs: one with its own thread, one that runs two at a time, and a stream.
int own_lane, double_lane, stream_lane;

class StepOperation : public gemel::Operation {
 public:
  StepOperation(Step step, uint64_t microseconds)
      : step_(std::move(step)), microseconds_(microseconds) {}

  // Ends here or later: by the engine's clock or, in a stream, by the thread that does the work.
  void start(Completion done) override {
    if (lane == stream_lane) {
      stream().push(
          [this, done = std::make_shared<Completion>(std::move(done))] { (*done)(work()); });
      return;
    }
    FailurePointer failure = work();
    if (failure != nullptr || microseconds_ == 0) return done(std::move(failure));
    const auto now = std::chrono::steady_clock::now();
    Engine::get().complete_at(now + std::chrono::microseconds(microseconds_), std::move(done));
  }

 private:
  FailurePointer work() {
    FailurePointer failure = run_step(step_, reads, writes);
    if (!fails_in_part(step_)) return failure;
    partial.emplace_back(writes[1], failure);
    return nullptr;
  }

  const Step step_;
  const uint64_t microseconds_;  // from the end of the work to its completion
};

// --- the replay ---

struct Replayed {
  std::vector<int64_t> content;
  std::string failure;
};

std::string memory_failure() {
  return "out of memory: could not take " + std::to_string(kImpossibleBytes) + " bytes";
}

class Replay {
 public:
  void run(const Step& step) {
    std::string failure;
    for (const Vector& read : step.reads) failure = failure.empty() ? at(read).failure : failure;
    for (const Vector& kept : step.updates) failure = failure.empty() ? at(kept).failure : failure;
    bool ran = failure.empty();
    for (const Vector& write : step.writes) {
      if (ran && write.impossible) {
        failure = memory_failure();
        ran = false;
      }
    }
    if (ran) {
      calculate(step);
      if (step.fails) failure = own_failure(step);
    }
    const bool in_part = ran && fails_in_part(step);
    for (const Vector& write : step.writes) {
      const bool spared = in_part && write.id != step.writes[1].id;
      if (ran || !among(step.updates, write.id)) at(write).failure = spared ? "" : failure;
    }
  }

  Replayed& at(const Vector& vector) {
    Replayed& state = storages_[vector.id];
    if (state.content.empty() && !vector.impossible) state.content.resize(vector.length);
    return state;
  }

 private:
  void calculate(const Step& step) {
    std::vector<int64_t*> data;
    for (const Vector& read : step.reads) data.push_back(at(read).content.data());
    for (const Vector& write : step.writes) data.push_back(at(write).content.data());
    for (size_t target = 0; target < step.writes.size(); ++target) {
      if (target > 0 && step.writes[target].id == step.writes[0].id) continue;
      compute(step, data, target, 0, step.writes[target].length);
    }
  }

  std::map<int, Replayed> storages_;
};

bool compare(Replay& replay, const Step& snapshot) {
  const Replayed& expected = replay.at(snapshot.reads[0]);
  if (expected.failure != snapshot.failure) {
    std::fprintf(stderr, "storage %d: failure \"%s\", the replay has \"%s\"\n",
                 snapshot.reads[0].id, snapshot.failure.c_str(), expected.failure.c_str());
    return false;
  }
  if (!expected.failure.empty() || expected.content == snapshot.content) return true;
  std::fprintf(stderr, "storage %d: content differs from the replay\n", snapshot.reads[0].id);
  return false;
}

// --- programs ---

struct Settings {
  int workers;
  bool serial;
  int64_t queue_operations;
  int64_t queue_bytes;
  int64_t ahead_bytes;
  int threads;
  bool shared;  // the threads share one set of storages, and a lock orders the log
  bool traced;
  int share;  // how many threads may work for device 0; 0: all
  uint64_t seed;
};

struct Slot {
  Vector vector;
  Storage* storage;
};

// The storages that some threads work on, with a log of what they issued.
class World {
 public:
  World(std::mt19937_64& random, int slots) {
    for (int slot = 0; slot < slots; ++slot) slots_.push_back(fresh(random));
  }
  ~World() {
    for (const Slot& slot : slots_) slot.storage->release();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void act(std::mt19937_64& random) {
    const uint64_t choice = random() % 100;
    if (choice < 4) return snapshot(random() % slots_.size());
    if (choice < 8) return wait_unlocked(random);
    if (choice < 9) return static_cast<void>(Engine::get().wait_all());
    if (choice < 10) return static_cast<void>(Engine::get().wait_device(random() % 2));
    if (choice < 14) replace(random);
    operate(random);
  }

  bool check() {
    for (size_t slot = 0; slot < slots_.size(); ++slot) snapshot(slot);
    Replay replay;
    for (const Step& step : log_) {
      if (step.kind == Step::Kind::kOperation) {
        replay.run(step);
      } else if (!compare(replay, step)) {
        return false;
      }
    }
    return true;
  }

 private:
  // New storages have no contents, so the first operation on them writes all of it.
  Slot fresh(std::mt19937_64& random) {
    const bool impossible = random() % 64 == 0;
    const Vector vector{next_id_++, static_cast<int64_t>(1 + random() % 96), impossible};
    const size_t bytes = impossible ? kImpossibleBytes : vector.length * sizeof(int64_t);
    const Slot slot{vector, Storage::create(bytes, 0)};
    Step step;
    step.writes = {vector};
    step.salt = random();
    step.fails = random() % 32 == 0;
    hand_over(std::move(step), {}, {slot.storage}, {}, random);
    return slot;
  }

  // The old storage lives as long as operations need it.
  void replace(std::mt19937_64& random) {
    std::lock_guard<std::mutex> guard(mutex_);
    const size_t slot = random() % slots_.size();
    slots_[slot].storage->release();
    slots_[slot] = fresh(random);
  }

  void snapshot(size_t slot) {
    std::lock_guard<std::mutex> guard(mutex_);  // no thread issues: the contents do not change
    const auto& [vector, storage] = slots_[slot];
    Engine::get().wait(storage);
    Step step;
    step.kind = Step::Kind::kSnapshot;
    step.reads = {vector};
    if (const FailurePointer failure = storage->failure()) {
      step.failure = failure->message;
      failure->seen.store(true);
    } else {
      const auto* data = static_cast<const int64_t*>(storage->data());
      step.content.assign(data, data + vector.length);
    }
    log_.push_back(std::move(step));
  }

  void wait_unlocked(std::mt19937_64& random) {
    Storage* storage = nullptr;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      storage = slots_[random() % slots_.size()].storage;
      storage->retain();
    }
    if (random() % 4 == 0) {
      Engine::get().wait_idle(storage);
    } else {
      Engine::get().wait(storage);
    }
    storage->release();
  }

  void operate(std::mt19937_64& random) {
    std::unique_lock<std::mutex> guard(mutex_);
    Step step;
    std::vector<Storage*> reads;
    std::vector<Storage*> writes;
    std::vector<Storage*> updates;
    choose(random, step, reads, writes, updates);
    if (!updates.empty() || random() % 2 == 0) {
      hand_over(std::move(step), reads, writes, updates, random);
      return;
    }
    Engine& engine = Engine::get();
    const int read_count = static_cast<int>(reads.size());
    const int write_count = static_cast<int>(writes.size());
    if (!engine.acquire_inline(reads.data(), read_count, writes.data(), write_count, 1)) {
      hand_over(std::move(step), reads, writes, updates, random);
      return;
    }
    step.partial = false;
    for (Storage* storage : reads) storage->retain();  // another thread may replace the slot
    for (Storage* storage : writes) storage->retain();
    log_.push_back(step);
    guard.unlock();
    FailurePointer failure = run_step(step, reads, writes);
    engine.release_inline(reads.data(), read_count, writes.data(), write_count, failure);
    for (Storage* storage : reads) storage->release();
    for (Storage* storage : writes) storage->release();
  }

  void choose(std::mt19937_64& random, Step& step, std::vector<Storage*>& reads,
              std::vector<Storage*>& writes, std::vector<Storage*>& updates) {
    for (uint64_t count = random() % 7; count > 0; --count) {
      const Slot& slot = slots_[random() % slots_.size()];
      step.reads.push_back(slot.vector);
      reads.push_back(slot.storage);
    }
    for (uint64_t count = random() % 20 == 0 ? 0 : 1 + random() % 2; count > 0; --count) {
      const Slot& slot = slots_[random() % slots_.size()];
      step.writes.push_back(slot.vector);
      writes.push_back(slot.storage);
      if (random() % 4 != 0) continue;
      step.updates.push_back(slot.vector);
      updates.push_back(slot.storage);
    }
    step.salt = random();
    step.fails = random() % 16 == 0;
    step.partial = random() % 2 == 0;
    step.tiled = random() % 3 == 0;
  }

  void hand_over(Step step, const std::vector<Storage*>& reads, const std::vector<Storage*>& writes,
                 const std::vector<Storage*>& updates, std::mt19937_64& random) {
    log_.push_back(step);
    // Rarely, the end comes so late that a thread waiting for it goes to sleep.
    const uint64_t most = random() % 100 == 0 ? 4000 : 200;
    const uint64_t late = most > 200 || random() % 8 == 0 ? random() % most : 0;
    auto operation = std::make_unique<StepOperation>(std::move(step), late);
    operation->reads = reads;
    operation->writes = writes;
    operation->updates = updates;
    operation->priority = static_cast<int>(random() % 3) - 1;
    operation->microseconds = random() % 8 == 0 ? 1000 : 10;
    operation->device = static_cast<int>(random() % 2);
    operation->workspace = random() % 4 == 0 ? 512 : 0;
    const int lanes[] = {-1,          -1,          -1,        own_lane,   double_lane,
                         stream_lane, stream_lane, kCopyLane, kPythonLane};
    operation->lane = lanes[random() % std::size(lanes)];
    Engine::get().issue(std::move(operation));
  }

  std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<Step> log_;
  int next_id_ = 0;
};

// Whether every dependency in the trace was respected.
bool check_trace() {
  const gemel::trace::Recording recording = gemel::trace::take();
  std::map<uint64_t, const gemel::trace::OperationRecord*> known;
  for (const auto& record : recording.operations) known[record.number] = &record;
  for (const auto& edge : recording.edges) {
    const auto before = known.find(edge.before);
    const auto after = known.find(edge.after);
    if (before == known.end() || after == known.end()) continue;
    const bool streamed = before->second->lane == stream_lane && after->second->lane == stream_lane;
    const int64_t ended = streamed ? before->second->started : before->second->finished;
    const int64_t started = after->second->started;  // 0: not run, because an input had failed
    if (edge.before < edge.after && (started == 0 || ended <= started)) continue;
    std::fprintf(stderr, "operation %ld started before %ld had ended\n", long(edge.after),
                 long(edge.before));
    return false;
  }
  return true;
}

bool run_program(const Settings& settings) {
  Engine::get().configure(settings.workers, settings.serial, settings.queue_operations,
                          settings.queue_bytes, settings.ahead_bytes);
  Engine::get().set_share(0, settings.share);
  if (settings.traced) {
    gemel::trace::start(100000);
    Engine::get().set_tracing(true);
  }
  const uint64_t before = gemel::memory::statistics().bytes_in_use;
  bool same = true;
  {
    std::mt19937_64 random(settings.seed);
    std::vector<std::unique_ptr<World>> worlds;
    for (int world = 0; world < (settings.shared ? 1 : settings.threads); ++world) {
      worlds.push_back(std::make_unique<World>(random, 3 + static_cast<int>(random() % 12)));
    }
    std::vector<std::thread> threads;
    for (int thread = 0; thread < settings.threads; ++thread) {
      World& world = *worlds[settings.shared ? 0 : thread];
      threads.emplace_back([&world, seed = random()] {
        std::mt19937_64 own(seed);
        for (int step = 0; step < 150; ++step) world.act(own);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& world : worlds) same = same && world->check();
    Engine::get().wait_all();
  }
  if (settings.traced) {
    Engine::get().set_tracing(false);
    gemel::trace::stop();
    same = check_trace() && same;
  }
  const uint64_t after = gemel::memory::statistics().bytes_in_use;
  if (after != before) std::fprintf(stderr, "%ld bytes not given back\n", long(after - before));
  return same && after == before;
}

}  // namespace

int main(int count, char** arguments) {
  double seconds = 5;
  uint64_t seed = 1;
  for (int index = 1; index + 1 < count; index += 2) {
    if (std::strcmp(arguments[index], "--seconds") == 0) seconds = std::atof(arguments[index + 1]);
    if (std::strcmp(arguments[index], "--seed") == 0)
      seed = std::strtoull(arguments[index + 1], nullptr, 10);
  }
  own_lane = Engine::get().add_lane({.name = "own", .own_thread = true});
  double_lane = Engine::get().add_lane({.name = "double", .own_thread = true, .at_once = 2});
  stream_lane = Engine::get().add_lane({.name = "stream", .own_thread = true, .ordered = true});
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int programs = 0;
  for (; std::chrono::steady_clock::now() < end; ++seed, ++programs) {
    std::mt19937_64 random(seed);
    const int64_t queues[] = {1, 8, 1024};
    const int64_t bytes[] = {1, 2048, 0};
    const Settings settings{static_cast<int>(random() % 3),
                            random() % 8 == 0,
                            queues[random() % 3],
                            bytes[random() % 3],
                            bytes[random() % 3],
                            1 + static_cast<int>(random() % 4),
                            random() % 2 == 0,
                            random() % 4 == 0,
                            static_cast<int>(random() % 3),
                            seed};
    if (run_program(settings)) continue;
    std::fprintf(
        stderr,
        "seed %llu: workers %d, serial %d, queue %ld, bytes %ld, ahead %ld, threads %d, shared %d, "
        "traced %d, share %d\n",
        static_cast<unsigned long long>(seed), settings.workers, settings.serial,
        long(settings.queue_operations), long(settings.queue_bytes), long(settings.ahead_bytes),
        settings.threads, settings.shared, settings.traced, settings.share);
    return 1;
  }
  std::printf("%d programs agree with their replay\n", programs);
  Engine::get().shut_down();
  return 0;
}
