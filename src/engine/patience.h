// How long a thread without work keeps looking before it sleeps.
//
// Waking a thread costs the waking thread about 5 us. But if the other core has halted meanwhile,
// as the cores of virtual machines do at once, the sleeper is awake only 50 to 100 us later. That
// is longer than most kernels take, and between two kernels of a program some thread always waits
// for another. So a thread keeps looking for about as long as the next work may take to arrive, and
// offers its core to other threads meanwhile.

#pragma once

#include <chrono>
#include <thread>

#include "memory/lock.h"

namespace gemel {

class Patience {
 public:
  // Pauses briefly; false when the patience has run out.
  bool left() noexcept {
    pause_briefly();
    return ++pauses_ % kPauses != 0 || left_by_clock();
  }
  // Called after looking in vain under the engine's lock: pauses longer, so that other threads can
  // have the lock.
  bool left_for_lock() noexcept {
    for (int pause = 0; pause < kPauses; ++pause) pause_briefly();
    return left_by_clock();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool left_by_clock() noexcept {
    const Clock::time_point now = Clock::now();
    if (begun_ == Clock::time_point()) begun_ = now;
    if (now - begun_ >= std::chrono::microseconds(kMicroseconds)) return false;
    if (now - begun_ >= std::chrono::microseconds(kAloneMicroseconds)) std::this_thread::yield();
    return true;
  }

  static constexpr int kPauses = 20;  // between two looks at the clock, which costs some pauses
  static constexpr int kAloneMicroseconds = 20;
  static constexpr int kMicroseconds = 1000;

  int pauses_ = 0;
  Clock::time_point begun_ = {};
};

}  // namespace gemel
