// The engine's clock: completions that are due at a time.

#include <algorithm>

#include "engine/scheduler.h"
#include "engine/trace.h"

namespace gemel {
namespace {

bool later(const Timer& left, const Timer& right) { return left.time > right.time; }

}  // namespace

// Without a thread for the clock this one sleeps, as it does in serial mode, where it would wait
// for the end anyhow.
void Engine::complete_at(Time time, Completion done) {
  EngineState& state = *state_;
  if (time > std::chrono::steady_clock::now() && !serial() && state.start_timer()) {
    Wakes wakes;
    Guard guard(state.lock);
    state.timers.push_back({time, std::move(done)});
    std::push_heap(state.timers.begin(), state.timers.end(), later);
    if (state.timer_sleeper != nullptr) wakes.add(std::exchange(state.timer_sleeper, nullptr));
    return;
  }
  std::this_thread::sleep_until(time);
  done();
}

void EngineState::timer_main() {
  trace::name_this_thread("clock");
  for (;;) {
    Parker* parker = nullptr;
    std::vector<Timer> due;
    Engine::Time next = Engine::Time::max();
    {
      Guard guard(lock);
      const auto now = std::chrono::steady_clock::now();
      while (!timers.empty() && timers.front().time <= now) {
        std::pop_heap(timers.begin(), timers.end(), later);
        due.push_back(std::move(timers.back()));
        timers.pop_back();
      }
      if (!timers.empty()) next = timers.front().time;
      if (due.empty()) {
        if (stopping && timers.empty()) return;
        parker = timer_sleeper = take_parker();
      }
    }
    for (Timer& timer : due) timer.done();
    if (parker == nullptr) continue;
    sleep(parker, next, [&] { return std::exchange(timer_sleeper, nullptr) == parker; });
  }
}

}  // namespace gemel
