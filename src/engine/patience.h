// How long a thread that has nothing to do looks on before it sleeps.
//
// Waking a thread costs its waker some 5 us, but where the other core has halted meanwhile, as
// those of virtual machines do at once, the sleeper is awake 50 to 100 us later: longer than most
// kernels take, and between two kernels of a program somebody waits for somebody. So it looks on
// for about as long as what follows may take to come, and offers its core to others meanwhile.

#pragma once

#include <chrono>
#include <thread>

#include "memory/lock.h"

namespace gemel {

class Patience {
 public:
  // A short pause; false when it has been long enough.
  bool left() noexcept {
    pause_briefly();
    return ++pauses_ % kPauses != 0 || left_by_clock();
  }
  // After looking in vain under the engine's lock: lets others have it.
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

  static constexpr int kPauses = 20;  // between two looks at the clock, which takes some of them
  static constexpr int kAloneMicroseconds = 20;
  static constexpr int kMicroseconds = 1000;

  int pauses_ = 0;
  Clock::time_point begun_ = {};
};

}  // namespace gemel
