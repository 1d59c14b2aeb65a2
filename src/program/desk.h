// Operations whose work is done outside of the engine, by whoever takes them: a thread that talks
// to other machines, for example. Nobody waits inside of the engine meanwhile.

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

// An operation whose turn has come: its inputs are there, its results have memory. It ends when
// `end` is called, once, on any thread; one that is dropped fails.
class Errand {
 public:
  struct Part {
    void* data;
    size_t bytes;
  };
  ~Errand();
  void end(const FailurePointer& failure = nullptr);

  uint64_t number = 0;  // as issue() was told
  std::vector<Part> inputs;
  std::vector<Part> outputs;
  // It cannot be done, since what it reads has failed. Then it has ended, and has no parts.
  FailurePointer failure;

 private:
  friend class DeskOperation;
  std::optional<Completion> done_;
  Origin origin_;
};

// Where errands wait. They have a lane of their own, which holds up no other.
class Desk : public std::enable_shared_from_this<Desk> {
 public:
  // `bell` is called, on any thread, when there may be something to take. `sums` have a
  // lane apart, so that who does an errand may wait for some: what finishes in a lane before one
  // that is older is limited.
  static std::shared_ptr<Desk> make(std::function<void()> bell = {}, bool sums = false);

  // The tensors are dense and in the host's memory; the outputs are new.
  void issue(uint64_t number, std::string name, const std::vector<Tensor*>& inputs,
             const std::vector<Tensor*>& outputs, Front& front);
  // The next, in the order in which they start. Null when there is none by then, or it is closed.
  std::shared_ptr<Errand> take(std::chrono::microseconds patience);
  // What waits here and what comes from now on fails with this.
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
  FailurePointer closed_;
};

}  // namespace gemel
