// Operations whose work is done outside the engine by a thread that takes them from a desk, for
// example a thread that talks to other machines. No thread waits inside the engine meanwhile.

#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "program/kernel.h"
#include "program/launch.h"
#include "program/tensor.h"

namespace gemel {

// An operation whose turn has come: its inputs are ready, its results have memory. It ends when
// `end` is called, once, on any thread. If it is dropped before that, it fails.
class Errand {
 public:
  struct Part {
    void* data;
    size_t bytes;
  };
  ~Errand();
  void end(const FailurePointer& failure = nullptr);

  uint64_t number = 0;  // as given to issue()
  std::vector<Part> inputs;
  std::vector<Part> outputs;
  // Set if the errand cannot be done because an input has failed. Then it has already ended and has
  // no parts.
  FailurePointer failure;

 private:
  friend class DeskOperation;
  std::optional<Completion> done_;
  Origin origin_;
};

// Where errands wait. They have a lane of their own, which delays no other lane.
class Desk : public std::enable_shared_from_this<Desk> {
 public:
  // `bell` is called, on any thread, when there may be something to take; it must not throw, and is
  // not called any more when close() has returned. `sums` have a separate
  // lane, so that a thread that does an errand may wait for sums: within one lane, the results that
  // may be computed ahead of an older operation are limited.
  static std::shared_ptr<Desk> make(std::function<void()> bell = {}, bool sums = false);

  // The tensors must be dense and in host memory; the outputs must be new.
  void issue(uint64_t number, std::string name, const std::vector<Tensor*>& inputs,
             const std::vector<Tensor*>& outputs, Front& front);
  // The next errand, in the order in which they become ready. Null if none arrives within
  // `patience`, or if the desk is closed.
  std::shared_ptr<Errand> take(std::chrono::microseconds patience);
  // Waiting errands and later ones fail with this.
  void close(const FailurePointer& failure);

 private:
  friend class DeskOperation;
  Desk(std::function<void()> bell, bool sums) : bell_(std::move(bell)), sums_(sums) {}
  void put(std::shared_ptr<Errand> errand);

  const std::function<void()> bell_;
  const bool sums_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Errand>> waiting_;
  int ringing_ = 0;  // threads that are calling the bell
  FailurePointer closed_;
};

}  // namespace gemel
