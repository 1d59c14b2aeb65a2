// A mutex for critical sections of a few nanoseconds to a few microseconds. Releasing it is a plain
// store, which is impossible for a lock with sleeping waiters. So it needs half the atomic
// operations of std::mutex, which matters because the inline path of an operation takes it twice. A
// thread that does not get the lock spins, then yields, then takes short naps, because the holder
// may have lost its core.

#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gemel {

// Tells the core that this is a spin loop.
inline void pause_briefly() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

class Lock {
 public:
  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) lock_slowly();
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 100;  // longer than nearly every critical section
  static constexpr int kYields = 200;
  static constexpr int kNapMicroseconds = 20;

  bool try_lock() noexcept {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  }

  [[gnu::noinline, gnu::cold]] void lock_slowly() noexcept {
    for (int attempt = 0; !try_lock(); ++attempt) {
      if (attempt < kSpins) {
        pause_briefly();
      } else if (attempt < kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(kNapMicroseconds));
      }
    }
  }

  std::atomic<bool> held_{false};
};

// Like std::lock_guard, but without including <mutex>.
class Guard {
 public:
  explicit Guard(Lock& lock) noexcept : lock_(lock) { lock_.lock(); }
  ~Guard() { lock_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace gemel
