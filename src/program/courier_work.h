// A courier's thread and its state.

#pragma once

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/courier.h"
#include "program/frames.h"

namespace gemel {

using Clock = std::chrono::steady_clock;

// The thread is woken when this many bytes have arrived, or when everything that is still missing
// has. Since systems may ignore this hint (SO_RCVLOWAT), all sockets are tried after this time
// anyway.
constexpr size_t kEnough = 256 << 10;
constexpr int kTryingMilliseconds = 100;

// No part of a sum is larger. Without this bound a header could make us allocate any size before
// its sum is known.
constexpr uint64_t kMostBytes = uint64_t{1} << 40;

using Key = std::pair<uint64_t, uint64_t>;  // tag and turn

// A sum that has been issued, by the number of its errand.
struct Asked {
  Key key;
  std::string name;
  int item;
  int priority;
};

// A sum that has started here.
struct Sum {
  Asked asked;
  std::shared_ptr<Errand> errand;
  Row given, total;
  std::vector<std::unique_ptr<Buffer>> theirs;  // by rank: their part of our piece
  std::vector<bool> told;                       // by rank: its piece of the total has arrived
  size_t added = 0;                             // bytes of our piece
  size_t unsent = 0;                            // frames that have not been sent completely
  bool all_added = false;
  Clock::time_point since;
};

struct Peer {
  int socket = -1;
  bool gone = false;
  int enough = -1;  // the value the socket was told
  Outgoing going;
  Header header;
  size_t header_have = 0;
  Buffer* filling = nullptr;  // while receiving phase 0
  std::unique_ptr<Buffer> early;
  Sum* telling = nullptr;  // while receiving phase 1: bytes from `at` to `end` are missing
  size_t at = 0, end = 0;
};

class CourierWork {
 public:
  CourierWork(int rank, const std::vector<int>& sockets, Courier::Sender sender);
  ~CourierWork();

  uint64_t number(uint64_t tag, const std::string& name, int item, int priority);
  Courier::State state();
  void close(const FailurePointer& failure);

  std::shared_ptr<Desk> desk;
  const pid_t process = getpid();

 private:
  void run();
  bool round(std::vector<pollfd>& polled, std::vector<int>& ranks);
  void heard() noexcept;
  bool send_here() noexcept;
  bool take();
  bool answer();
  void start(std::shared_ptr<Errand> errand, Asked asked);
  void queue(Sum& sum, int rank, bool total);
  void empty(int rank);
  void drain(int rank);
  bool step(int rank);
  void open_frame(int rank);
  void end_frame(int rank);
  void progress(Sum& sum);
  void finish(Sum& sum);
  void fail(const std::string& problem);
  void fail_without(const Sum& sum, int rank);
  void fail_unequal(const Sum& sum, int rank, size_t sent, size_t needed);
  void count(const Sum& sum);
  static double worked();  // CPU time that the calling thread has used, in seconds
  void tell_of_waiting();
  bool awaits(const Sum& sum, int rank) const;
  size_t enough(int rank) const;
  void set_enough(int rank);
  void ring() noexcept;
  // The part of a row that a rank adds up. With two ranks each adds up all of it, since they
  // exchange everything.
  std::pair<size_t, size_t> piece(const Row& row, int rank) const;

  const int rank_;
  const int size_;
  const bool sends_here_;  // the thread that brings a sum sends it

  // Guards the members up to `given_up_`. The thread holds it except while it sleeps.
  std::mutex working_;
  bool patient_ = false;  // the thread sleeps until it is woken
  std::vector<Peer> peers_;
  std::map<Key, std::unique_ptr<Sum>> open_;
  // Parts of sums that have not started here.
  std::map<std::pair<Key, int>, std::unique_ptr<Buffer>> early_;
  Buffers buffers_;
  bool stuck_ = false;  // there is a problem: nothing is sent or received any more
  FailurePointer given_up_;

  int bell_[2] = {-1, -1};
  std::atomic<bool> rung_{false};
  std::thread thread_;
  std::mutex joining_;
  std::mutex mutex_;  // guards the members below
  std::unordered_map<uint64_t, uint64_t> turns_;
  std::unordered_map<uint64_t, Asked> asked_;
  uint64_t numbers_ = 0;
  uint64_t ended_ = 0;
  Courier::State state_;
  Clock::time_point oldest_;
  FailurePointer closing_;
};

}  // namespace gemel
