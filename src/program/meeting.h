// Where operations of several devices meet (all-gather), without a waiting thread.

#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "program/kernel.h"
#include "program/launch.h"
#include "program/tensor.h"

namespace gemel {

// Each party brings an array and gets the arrays of all parties, in the order of ranks. Its
// operation begins when its array is ready and ends when everybody's array is. Until then it is
// pending, in a lane of its own that delays no other lane. If the array of one party has failed,
// all parties get that failure.
class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  static std::shared_ptr<Meeting> make(int parties, std::string name);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Issues the operation of a party. Both tensors must be dense and in host memory; `taken` must
  // have room for the arrays of all parties. Throws Error if the size differs from the others' or
  // the rank has already joined.
  void join(int rank, const Tensor& given, const Tensor& taken, Front& front);
  // Everyone who has joined or will join gets the failure. With `over`, nobody has to join any
  // more.
  void fail(const FailurePointer& failure, bool over = false);
  // Whether a party may still join.
  bool open() const;

  // About all existing meetings.
  static bool any_open() noexcept;
  static void fail_open(const std::string& why, std::chrono::seconds age = {});

 private:
  friend class MeetingOperation;
  struct Arrival {
    Place from;
    Place to;
    Completion done;
  };

  Meeting(int parties, std::string name);
  void arrive(int rank, Arrival arrival);
  void deliver();
  void set_open(bool open);

  const std::string name_;
  mutable std::mutex mutex_;
  size_t bytes_ = 0;
  int joined_ = 0;
  int arrived_ = 0;
  bool open_ = false;  // those who have joined are waiting for others
  bool called_off_ = false;
  std::chrono::steady_clock::time_point began_;
  std::vector<bool> came_;  // which ranks have joined
  std::vector<std::optional<Arrival>> arrivals_;
  FailurePointer failure_;
};

}  // namespace gemel
