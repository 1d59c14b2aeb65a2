// The engine's clock: completions to be called at a given time.

#include "engine/scheduler.h"
#include "engine/trace.h"

namespace gemel {

// If there is no thread for the clock, this thread sleeps. It does so in serial mode too, where it
// would have to wait for the end anyway.
void Engine::complete_at(Time time, Completion done) {
  EngineState& state = *state_;
  if (time > std::chrono::steady_clock::now() && !serial() && state.start_timer()) {
    Wakes wakes;
    Guard guard(state.lock);
    state.timers.emplace(time, std::move(done));
    wakes.take(state.timer_sleeper);
    return;
  }
  std::this_thread::sleep_until(time);
  done();
}

void EngineState::timer_main() {
  trace::name_this_thread("clock");
  for (;;) {
    Parker* parker = nullptr;
    decltype(timers)::node_type due;
    Engine::Time next = Engine::Time::max();
    {
      Guard guard(lock);
      if (stopping && timers.empty()) return;
      if (!timers.empty()) next = timers.begin()->first;
      if (next <= std::chrono::steady_clock::now()) {
        due = timers.extract(timers.begin());
      } else {
        parker = timer_sleeper = take_parker();
      }
    }
    if (due) {
      due.mapped()();
    } else {
      sleep(parker, next, [&] { return std::exchange(timer_sleeper, nullptr) == parker; });
    }
  }
}

}  // namespace gemel
