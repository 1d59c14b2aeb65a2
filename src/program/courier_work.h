// The thread of a courier, and what it knows.

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

// Bytes that wake who receives, unless fewer are left; and after how long all are tried anyway, as
// no system has to do what it is told of how much is enough.
constexpr size_t kEnough = 256 << 10;
constexpr int kTryingMilliseconds = 100;

// Nobody has a part of a sum with more: it would be asked of the allocator before the sum is known.
constexpr uint64_t kMostBytes = uint64_t{1} << 40;

using Key = std::pair<uint64_t, uint64_t>;  // tag and turn

// What has been issued, by the number of its errand.
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
  std::vector<std::unique_ptr<Buffer>> theirs;  // by rank: their part of the piece that is ours
  std::vector<bool> told;                       // by rank: its piece has come, added up
  size_t added = 0;                             // bytes of the piece that is ours
  size_t unsent = 0;                            // frames
  bool all_added = false;
  Clock::time_point since;
};

struct Peer {
  int socket = -1;
  bool gone = false;
  int enough = -1;  // as the socket was told
  Outgoing going;
  Header header;
  size_t header_have = 0;
  Buffer* filling = nullptr;  // of phase 0
  std::unique_ptr<Buffer> early;
  Sum* telling = nullptr;  // of phase 1, from `at` on
  size_t at = 0, end = 0;
};

// The thread, and what only it touches unless it says otherwise.
class CourierWork {
 public:
  CourierWork(int rank, const std::vector<int>& sockets);
  ~CourierWork();

  uint64_t number(uint64_t tag, const std::string& name, int item, int priority);
  Courier::State state();
  void close(const FailurePointer& failure);

  std::shared_ptr<Desk> desk;
  const pid_t process = getpid();

 private:
  void run();
  void round(std::vector<pollfd>& polled, std::vector<int>& ranks);
  bool take();
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
  static double worked();  // seconds of a core that the calling thread has taken
  void tell_of_waiting();
  bool awaits(const Sum& sum, int rank) const;
  size_t enough(int rank) const;
  void set_enough(int rank);
  void ring() noexcept;
  // The part of a row that a rank adds up: all of it where there are two, who exchange them.
  std::pair<size_t, size_t> piece(const Row& row, int rank) const;

  const int rank_;
  const int size_;
  std::vector<Peer> peers_;
  std::map<Key, std::unique_ptr<Sum>> open_;
  std::map<std::pair<Key, int>, std::unique_ptr<Buffer>> early_;  // of sums that have not started
  Buffers buffers_;
  int bell_[2] = {-1, -1};
  std::atomic<bool> rung_{false};
  std::thread thread_;
  bool stuck_ = false;  // there is a problem: nothing more is sent or received
  FailurePointer given_up_;

  std::mutex joining_;
  std::mutex mutex_;  // of what follows
  std::unordered_map<uint64_t, uint64_t> turns_;
  std::unordered_map<uint64_t, Asked> asked_;
  uint64_t numbers_ = 0;
  uint64_t ended_ = 0;
  Courier::State state_;
  Clock::time_point oldest_;
  FailurePointer closing_;
};

}  // namespace gemel
