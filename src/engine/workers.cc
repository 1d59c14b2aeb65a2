// Worker threads, tiles, fork and shutdown.

#include <signal.h>

#include <algorithm>
#include <string>

#include "engine/scheduler.h"
#include "engine/trace.h"
#include "memory/memory.h"

namespace gemel {

void block_signals(sigset_t* old) noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, old);
}

// --- workers ---

// A worker looks for work by spinning, then sleeps. `looking` counts those who will see new work by
// themselves: it falls, under the lock, when one takes work or goes to sleep.
void EngineState::worker_main(int index) {
  trace::name_this_thread("worker " + std::to_string(index));
  bool counted = false;
  for (;;) {
    Work work;
    const Search search = find_work(work, counted);
    if (search == Search::kStop) return;
    counted = search == Search::kSlept;  // whoever woke us has counted us
    if (work.job != nullptr) help_with(*work.job, nullptr);
    if (work.operation != nullptr) execute(work.operation);
  }
}

EngineState::Search EngineState::find_work(Work& work, bool counted) {
  if (!counted) {
    Guard guard(lock);
    if (take(work, {})) return Search::kFound;
    looking.fetch_add(1, std::memory_order_relaxed);
  }
  for (int spin = 0; spin < kSpins; ++spin) {
    if (work_hint.load(std::memory_order_acquire) > 0) {
      Guard guard(lock);
      if (take(work, {})) {
        looking.fetch_sub(1, std::memory_order_relaxed);
        return Search::kFound;
      }
      spin += back_off();
    }
    pause_briefly();
  }
  Parker* parker = nullptr;
  {
    Guard guard(lock);
    looking.fetch_sub(1, std::memory_order_relaxed);
    if (take(work, {})) return Search::kFound;
    if (stopping) return Search::kStop;
    parker = take_parker();
    parked_workers.push_back(parker);
    parked.store(static_cast<int>(parked_workers.size()));
  }
  parker->sleep();
  Guard guard(lock);
  free_parkers.push_back(parker);
  return Search::kSlept;
}

// --- lanes with a thread of their own ---

namespace {

std::string lane_name(int lane) {
  if (lane == kPythonLane) return "Python";
  if (lane >= kFirstFromGpu) return "copies from gpu(" + std::to_string(lane - kFirstFromGpu) + ")";
  if (lane >= kFirstToGpu) return "copies to gpu(" + std::to_string(lane - kFirstToGpu) + ")";
  return "gpu(" + std::to_string(lane - kFirstGpu) + ")";
}

}  // namespace

void EngineState::start_lane(int number) {
  {
    Guard guard(lock);
    if (lanes[number].started) return;
  }
  std::lock_guard<std::mutex> guard(thread_mutex);
  if (lanes[number].started) return;  // changed with this mutex held only
  sigset_t old;
  block_signals(&old);
  threads.emplace_back([this, number] { lane_main(number); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  Guard state_guard(lock);
  lanes[number].started = true;
}

// Such threads do not spin: they would take a core from the pool.
void EngineState::lane_main(int number) {
  trace::name_this_thread(lane_name(number));
  serves_pool = false;
  Lane& lane = lanes[number];
  for (;;) {
    Operation* operation = nullptr;
    Parker* parker = nullptr;
    {
      Guard guard(lock);
      const bool room = !lane.ready.empty() && lane.busy < lane.share;
      Operation* next = room ? candidate(lane) : nullptr;
      if (next != nullptr && fits(next, false)) {
        operation = next;
        start_now(operation);
      } else if (stopping) {
        return;
      } else {
        parker = lane.sleeper = take_parker();
      }
    }
    if (operation != nullptr) {
      execute(operation);
      continue;
    }
    parker->sleep();
    Guard guard(lock);
    free_parkers.push_back(parker);
  }
}

// --- tiles ---

// Until the tiles are used up, or what the thread itself waits for is there.
void EngineState::run_tiles(TileJob& job, const Condition* until, bool helping) {
  const bool outer = inside_tile;
  inside_tile = true;
  for (;;) {
    const int64_t tile = job.next.fetch_add(1, std::memory_order_relaxed);
    if (tile >= job.tiles) break;
    job.function(job.context, tile);
    if (until != nullptr && done(*until)) break;
    // Who came to help leaves for what somebody waits for.
    if (helping && urgent.load(std::memory_order_relaxed) > 0) break;
  }
  inside_tile = outer;
}

// take() has counted us among the helpers: the job stays until we have left.
void EngineState::help_with(TileJob& job, const Condition* until) {
  run_tiles(job, until, true);
  Wakes wakes;
  Guard guard(lock);
  if (job.lane >= 0) {
    Lane& lane = lanes[job.lane];
    if (lane.busy-- == lane.share && ready_lanes != 0) wake_for_work(wakes, 1);
  }
  const int others = job.helpers.load(std::memory_order_relaxed) - 1;
  if (others == 0 && job.owner != nullptr) wakes.add(job.owner);
  job.helpers.store(others, std::memory_order_release);  // the last touch: the owner may return now
}

void EngineState::wait_for_helpers(TileJob& job) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (job.helpers.load(std::memory_order_acquire) == 0) return;
    pause_briefly();
  }
  Parker* parker = nullptr;
  {
    Guard guard(lock);
    if (job.helpers.load(std::memory_order_relaxed) == 0) return;
    parker = take_parker();
    job.owner = parker;
  }
  parker->sleep();
  Guard guard(lock);
  free_parkers.push_back(parker);
}

void Engine::parallel(int64_t tiles, TileFunction function, void* context) {
  EngineState& state = *state_;
  if (tiles <= 0) return;
  const bool alone = tiles == 1 || inside_tile || serial();
  if (!alone && !state.started.load(std::memory_order_acquire)) state.start_workers();
  TileJob job{function, context, tiles, current_lane};
  {
    Wakes wakes;
    Guard guard(state.lock);
    state.counters.tiles += static_cast<uint64_t>(tiles);
    if (!alone) {
      state.jobs.push_back(&job);
      add<uint32_t>(state.work_hint, 1);
      state.wake_for_work(wakes, 1);
    }
  }
  state.run_tiles(job, nullptr, false);
  if (alone) return;
  {
    Guard guard(state.lock);
    std::erase(state.jobs, &job);
    add<uint32_t>(state.work_hint, -1);
  }
  state.wait_for_helpers(job);
}

// --- fork and exit ---

void Engine::before_fork() {
  EngineState& state = *state_;
  // Nothing new comes in: who issues finds the queue full until the fork is over.
  state.forking_room = state.queue_operations.exchange(0);
  for (;;) {
    if (operation_depth == 0) wait_all_quietly();
    state.thread_mutex.lock();
    state.lock.lock();
    // Another thread may have been past that point.
    if (operation_depth > 0 || state.pending() == 0) break;
    state.lock.unlock();
    state.thread_mutex.unlock();
  }
  memory::lock_for_fork();
}

void Engine::after_fork_parent() {
  memory::unlock_after_fork();
  {
    Wakes wakes;
    state_->queue_operations.store(state_->forking_room);
    state_->wake_for_conditions(wakes);
    state_->lock.unlock();
  }
  state_->thread_mutex.unlock();
}

// Only this thread is left. Sleepers, their parkers and the thread handles are dropped as they are.
void Engine::after_fork_child() {
  EngineState& state = *state_;
  memory::unlock_after_fork();
  new std::vector<std::thread>(
      std::move(state.threads));  // destroying a running handle would abort
  state.threads.clear();
  state.parked_workers.clear();
  state.parked_waiters.clear();
  state.free_parkers.clear();
  state.jobs.clear();
  state.work_hint.store(0);
  for (Lane& lane : state.lanes) {
    lane.sleeper = nullptr;
    lane.started = false;
  }
  state.looking.store(0);
  state.parked.store(0);
  state.pending_waiters.store(0);
  state.queue_operations.store(state.forking_room);
  state.started.store(false);
  state.lock.unlock();
  state.thread_mutex.unlock();
}

void Engine::shut_down() {
  if (operation_depth > 0) return;  // somebody called exit() inside an operation: just go
  // A daemon thread may go on issuing for ever: it does so serially, and is not waited for.
  state_->serial.store(true);
  state_->unusual.store(true);
  wait_all_quietly();
  state_->stop_workers();
}

}  // namespace gemel
