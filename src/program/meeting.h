// Where operations of several devices meet: all-gather, without a thread that waits.

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

// Each party brings an array and gets what all bring, in the order of their ranks. Its operation
// begins when its array is there and ends when everybody's is: until then it is pending, in a lane
// of its own that holds up no other. If somebody's array failed, all get that failure.
class Meeting : public std::enable_shared_from_this<Meeting> {
 public:
  static std::shared_ptr<Meeting> make(int parties, std::string name);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Issues the operation of a party. Both tensors are dense and in the host's memory; `taken` has
  // room for what all bring. Throws Error for another size than the others', a rank that has come.
  void join(int rank, const Tensor& given, const Tensor& taken, Front& front);
  // Whoever has come, or comes, gets the failure. If it is `over`, nobody need come any more.
  void fail(const FailurePointer& failure, bool over = false);
  // Somebody may still come.
  bool open() const;

  // Of all meetings there are.
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
  bool open_ = false;  // who has come waits for others
  bool called_off_ = false;
  std::chrono::steady_clock::time_point began_;
  std::vector<bool> came_;  // which ranks have joined
  std::vector<std::optional<Arrival>> arrivals_;
  FailurePointer failure_;
};

}  // namespace gemel
