// The threads of the engine: workers, the stand-in, lanes' own threads; and tiles.

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/scheduler.h"
#include "engine/trace.h"
#include "memory/signals.h"

namespace gemel {

namespace {

template <typename Body>
bool make_thread(std::vector<std::thread>& threads, Body body) noexcept {
  const SignalsBlocked blocked;
  try {
    threads.emplace_back(std::move(body));
  } catch (const std::exception&) {  // the system allows no more threads
    return false;
  }
  return true;
}

}  // namespace

// --- starting and stopping ---

void EngineState::start_threads(int lane) {
  if (!started.load(std::memory_order_acquire)) start_workers();
  if (!in_pool(lane)) start_lane(lane);
}

// If the system allows fewer threads than wanted, that is enough: waiting threads work too.
void EngineState::start_workers() {
  std::lock_guard<std::mutex> guard(thread_mutex);
  if (started.load()) return;
  int made = 0;
  while (made < worker_count.load() &&
         make_thread(threads, [this, index = made] { worker_main(index); })) {
    ++made;
  }
  if (made > 0) make_thread(threads, [this] { stand_in_main(); });
  workers_made.store(made);
  started.store(true);
}

// If the thread of a lane cannot be created, the pool serves the lane until it can.
void EngineState::start_lane(int number) {
  Lane& lane = lanes[number];
  if (lane.started.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> guard(thread_mutex);
  if (lane.started.load()) return;  // changes only with this mutex held
  const bool made = make_thread(threads, [this, number] { lane_main(number); });
  Guard state_guard(lock);
  lane.started.store(made);
  pool_lanes = made ? pool_lanes & ~lane_bit(number) : pool_lanes | lane_bit(number);
}

bool EngineState::start_timer() {
  std::lock_guard<std::mutex> guard(thread_mutex);
  if (!timer_started) timer_started = make_thread(threads, [this] { timer_main(); });
  return timer_started;
}

void EngineState::stop_workers() {
  std::lock_guard<std::mutex> thread_guard(thread_mutex);
  if (threads.empty()) {
    started.store(false);
    return;
  }
  {
    Wakes wakes;
    Guard guard(lock);
    stopping = true;
    for (Parker* parker : parked_workers) wakes.add(parker);
    parked_workers.clear();
    parked.store(0);
    wakes.take(stand_in);
    wakes.take(timer_sleeper);
    for (Lane& lane : lanes) {
      wakes.take(lane.sleeper);
      lane.started.store(false);
    }
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  Guard guard(lock);
  timer_started = false;
  stopping = false;
  workers_made.store(0);
  started.store(false);
}

// --- workers ---

// A worker spins while it looks for work, then sleeps.
void EngineState::worker_main(int index) {
  trace::name_this_thread("worker " + std::to_string(index));
  const Taker taker;
  own_taker = &taker;
  for (;;) {
    if (help_once(taker)) continue;
    Parker* parker = nullptr;
    {
      Guard guard(lock);
      if (may_take(taker)) continue;
      mark_looking(false);
      if (stopping) return;
      parker = take_parker();
      parked_workers.push_back(parker);
      parked.store(static_cast<int>(parked_workers.size()));
    }
    sleep(parker);
  }
}

// One more thread than there are cores, counting the waiting threads. It works in place of a
// waiting thread that sleeps because the available work is too long for it.
void EngineState::stand_in_main() {
  trace::name_this_thread("stand-in");
  const Taker taker{.stand_in = true};
  own_taker = &taker;
  for (;;) {
    Work work;
    Parker* parker = nullptr;
    {
      Wakes wakes;
      Guard guard(lock);
      if (!take(work, taker)) {
        mark_looking(false);
        standing_in = false;
        if (stopping) return;
        parker = stand_in = take_parker();
        restore(wakes);
      }
    }
    perform(work, taker);
    if (parker != nullptr) sleep(parker);
  }
}

// --- lanes with a thread of their own ---

// These threads do not spin, since that would take a core away from the pool.
void EngineState::lane_main(int number) {
  Lane& lane = lanes[number];
  trace::name_this_thread(lane.options.name);
  for (;;) {
    Operation* operation = nullptr;
    Parker* parker = nullptr;
    {
      Guard guard(lock);
      operation = next_of(lane);
      if (operation != nullptr) {
        start_now(operation);
      } else if (stopping) {
        return;
      } else {
        parker = lane.sleeper = take_parker();
      }
    }
    operation != nullptr ? execute(operation) : sleep(parker);
  }
}

// --- tiles ---

// Whether a helper may leave its job: for what it waits for itself, for a signal check, or for an
// operation that some thread waits for.
bool EngineState::may_leave(const Taker& taker) const noexcept {
  return (taker.condition != nullptr && done(*taker.condition)) || taker.due() ||
         (wanted_lanes.load() & pool_lanes.load()) != 0;
}

// Takes tiles until none are left. `number` counts all tiles taken so far, beginning with this
// thread's first one. A helper may leave earlier.
void EngineState::run_tiles(TileJob& job, int64_t number, const Taker* helper) {
  const bool outer = std::exchange(inside_tile, inside_tile || !job.branches);
  const TileJob* const around = current_branches;
  if (job.branches) current_branches = &job;
  for (int64_t own = 0; number < job.tiles && !abandoned.load(std::memory_order_relaxed);
       number = job.taken.fetch_add(1, std::memory_order_relaxed)) {
    const int64_t tile = helper == nullptr
                             ? own++
                             : job.tiles - 1 - job.from_end.fetch_add(1, std::memory_order_relaxed);
    job.function(job.context, tile);
    if (helper != nullptr && may_leave(*helper)) break;
    if (helper == nullptr && job.quiet) call_for_help(job);
  }
  current_branches = around;
  inside_tile = outer;
}

// Its owner has done the first tile. Threads that are looking for work have seen the job already;
// this wakes sleeping ones if the rest is long enough.
void EngineState::call_for_help(TileJob& job) {
  job.quiet = false;
  const int64_t left = job.tiles - job.taken.load(std::memory_order_relaxed);
  const std::chrono::duration<double, std::micro> took =
      std::chrono::steady_clock::now() - job.begun;
  if (took.count() * static_cast<double>(left) < kWorthWaking) return;
  Wakes wakes;
  Guard guard(lock);
  restore(wakes);
}

// take() has counted this thread among the helpers, so the job stays alive until it has left.
void EngineState::help_with(TileJob& job, const Taker& taker) {
  run_tiles(job, job.taken.fetch_add(1, std::memory_order_relaxed), &taker);
  Wakes wakes;
  Guard guard(lock);
  if (job.lane >= 0) --lanes[job.lane].busy;
  look_again();
  const int others = job.helpers.load(std::memory_order_relaxed) - 1;
  if (others == 0 && job.owner != nullptr) wakes.add(job.owner);
  // The last access: the owner may return now.
  job.helpers.store(others, std::memory_order_release);
  restore(wakes);
}

void EngineState::wait_for_helpers(TileJob& job) {
  if (job.branches) {
    help_until({.kind = Condition::Kind::kJob, .job = &job}, nullptr);
    return;
  }
  Patience patience;
  do {
    if (job.helpers.load(std::memory_order_acquire) == 0) return;
  } while (patience.left());
  Parker* parker = nullptr;
  {
    Guard guard(lock);
    if (job.helpers.load(std::memory_order_relaxed) == 0) return;
    parker = take_parker();
    job.owner = parker;
  }
  sleep(parker);
}

void Engine::parallel(int64_t tiles, TileFunction function, void* context, bool branches) {
  EngineState& state = *state_;
  if (tiles <= 0) return;
  const bool alone = tiles == 1 || inside_tile || serial();
  if (!alone && !state.started.load(std::memory_order_acquire)) state.start_workers();
  int lane = current_operation == nullptr ? -1 : current_operation->lane;
  if (current_branches != nullptr) lane = current_branches->lane;
  TileJob job{function, context, tiles, lane, branches};
  {
    Wakes wakes;
    Guard guard(state.lock);
    state.counters.tiles += static_cast<uint64_t>(tiles);
    job.taken = 1;  // the first tile is for this thread
    if (!alone) {
      state.jobs.push_back(&job);
      add<uint32_t>(state.job_count, 1);
      job.quiet = !branches && tiles <= kFewTiles && state.parked.load() > 0;
      if (job.quiet) {
        job.begun = std::chrono::steady_clock::now();
      } else {
        state.restore(wakes);
      }
    }
  }
  state.run_tiles(job, 0, nullptr);
  if (alone) return;
  {
    Guard guard(state.lock);
    std::erase(state.jobs, &job);
    add<uint32_t>(state.job_count, -1);
  }
  state.wait_for_helpers(job);
}

}  // namespace gemel
