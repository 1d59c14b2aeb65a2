// Couriers connected by socket pairs. Sums are exact for all sizes and orders. If a rank goes away,
// stops, or sends nonsense, that is reported as a problem and as failures, never ignored. The exit
// status is 1 when a promise is broken.

#include "program/courier.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "front.h"
#include "program/frames.h"

namespace {

using gemel::Courier;
using gemel::Engine;
using gemel::Failure;
using gemel::Header;
using gemel::Tensor;
using std::chrono::milliseconds;

using Clock = std::chrono::steady_clock;
using Arrays = std::vector<std::unique_ptr<Tensor>>;

constexpr milliseconds kPatience(20000);
constexpr int kRounds = kSanitized ? 1 : 3;
constexpr int64_t kLargest = kSanitized ? 20'000 : 100'000;  // elements of an array

std::unique_ptr<Tensor> array(int64_t size, int code) {
  auto tensor = std::make_unique<Tensor>();
  tensor->make(code, &size, 1, 0);
  return tensor;
}

// Values whose sums have other bits when they are added in another order.
Arrays drawn(const std::vector<int64_t>& sizes, int code, std::mt19937& draw) {
  std::normal_distribution<double> normal;
  Arrays found;
  for (const int64_t size : sizes) {
    found.push_back(array(size, code));
    found.back()->materialize();
    for (int64_t i = 0; i < size; ++i) {
      const double value = normal(draw);
      if (code == gemel::kFloat64)
        reinterpret_cast<double*>(found.back()->data())[i] = value;
      else
        reinterpret_cast<float*>(found.back()->data())[i] = static_cast<float>(value);
    }
  }
  return found;
}

// Who sends first in the couriers that are made.
Courier::Sender sender = Courier::Sender::kBringer;

std::unique_ptr<Courier> made(int rank, const std::vector<int>& sockets) {
  return std::make_unique<Courier>(rank, sockets, sender);
}

Arrays ones(int64_t size) {
  Arrays found;
  found.push_back(array(size, gemel::kFloat32));
  found.back()->materialize();
  std::fill_n(reinterpret_cast<float*>(found.back()->data()), size, 1.0F);
  return found;
}

Arrays issued(Courier& courier, uint64_t tag, const Arrays& given, int priority = 0) {
  PlainFront front;
  Arrays made;
  std::vector<Tensor*> inputs, outputs;
  for (const auto& one : given) {
    inputs.push_back(one.get());
    made.push_back(array(one->size, one->dtype));
    outputs.push_back(made.back().get());
  }
  const int item = given[0]->dtype == gemel::kFloat64 ? 8 : 4;
  const std::string name = "sum " + std::to_string(tag);
  courier.desk()->issue(courier.number(tag, name, item, priority), name, inputs, outputs, front);
  return made;
}

// Waits for an array and returns its failure; empty if it has none.
std::string failure_of(const Tensor& tensor) {
  Engine::get().wait(tensor.storage);
  const gemel::FailurePointer failure = tensor.storage->failure();
  return failure == nullptr ? "" : failure->message;
}

// Waits until the courier reports a problem, and returns it.
std::string problem_of(const Courier& courier) {
  const auto end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    const Courier::State state = courier.state();
    if (!state.problem.empty()) return state.problem;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return "";
}

// Waits until a sum has started.
void see_open(const Courier& courier) {
  const auto end = Clock::now() + kPatience;
  while (courier.state().name.empty() && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

bool says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "said: '%s', not '%s'\n", text.c_str(), part.c_str());
  return false;
}

void close(Courier& courier, const char* reason) {
  courier.close(std::make_shared<const Failure>("WorkersError", reason));
}

// The sockets of each rank to the others. `room`: the size of the kernel's buffers; 0: the default.
std::vector<std::vector<int>> connected(int size, int room = 0) {
  std::vector<std::vector<int>> ends(size, std::vector<int>(size, -1));
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      int both[2];
      check(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0, "socketpair makes a pair of sockets");
      for (int end : both) {
        if (room == 0) continue;
        setsockopt(end, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        setsockopt(end, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
      }
      ends[low][high] = both[0];
      ends[high][low] = both[1];
    }
  }
  return ends;
}

// ---- sums

struct Case {
  uint64_t tag;
  int code, priority;
  std::vector<Arrays> given;  // by rank
};

Case drawn_case(uint64_t tag, int ranks, std::mt19937& draw) {
  std::vector<int64_t> sizes(1 + draw() % 4);
  for (int64_t& size : sizes) {
    const int64_t most[] = {1, 4, 1000, kLargest};
    size = static_cast<int64_t>(draw() % static_cast<uint64_t>(most[draw() % 4] + 1));
  }
  const int code = draw() % 2 == 0 ? gemel::kFloat32 : gemel::kFloat64;
  Case found{tag, code, static_cast<int>(draw() % 5), {}};
  for (int rank = 0; rank < ranks; ++rank) found.given.push_back(drawn(sizes, code, draw));
  return found;
}

template <typename T>
bool in_order(const Case& one, size_t place, const Tensor& total) {
  const auto* found = reinterpret_cast<const T*>(total.data());
  for (int64_t i = 0; i < total.size; ++i) {
    T sum = reinterpret_cast<const T*>(one.given[0][place]->data())[i];
    for (size_t rank = 1; rank < one.given.size(); ++rank) {
      sum += reinterpret_cast<const T*>(one.given[rank][place]->data())[i];
    }
    if (std::memcmp(&sum, found + i, sizeof(T)) != 0) return false;
  }
  return true;
}

// Each rank issues the same sums twice, each rank in its own order.
void sums_are_exact(int ranks, int room, unsigned seed) {
  std::mt19937 draw(seed);
  const auto ends = connected(ranks, room);
  std::vector<std::unique_ptr<Courier>> couriers;
  for (int rank = 0; rank < ranks; ++rank) {
    couriers.push_back(made(rank, ends[rank]));
  }
  std::vector<Case> cases;
  for (uint64_t tag = 0; tag < 12; ++tag) cases.push_back(drawn_case(tag, ranks, draw));
  std::vector<std::vector<Arrays>> totals(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<size_t> order(cases.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), draw);
    totals[rank].resize(2 * cases.size());
    threads.emplace_back([&, rank, order] {
      for (size_t turn = 0; turn < 2; ++turn) {
        for (const size_t i : order) {
          const Case& one = cases[i];
          totals[rank][turn * cases.size() + i] =
              issued(*couriers[rank], one.tag, one.given[rank], one.priority);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  bool right = true;
  for (const auto& mine : totals) {
    for (size_t i = 0; i < mine.size(); ++i) {
      const Case& one = cases[i % cases.size()];
      for (size_t place = 0; place < mine[i].size(); ++place) {
        const Tensor& total = *mine[i][place];
        right &= failure_of(total).empty();
        right &= one.code == gemel::kFloat64 ? in_order<double>(one, place, total)
                                             : in_order<float>(one, place, total);
      }
    }
  }
  check(right, "elements are added in the order of ranks");
}

// ---- ranks that go

// One of three ranks goes away while sums are being exchanged. The others close when they notice.
void a_rank_goes(unsigned seed) {
  std::mt19937 draw(seed);
  const auto ends = connected(3, 4096);
  std::vector<std::unique_ptr<Courier>> couriers;
  for (int rank = 0; rank < 3; ++rank) {
    couriers.push_back(made(rank, ends[rank]));
  }
  const Arrays given = ones(kLargest);
  std::vector<Arrays> totals;
  for (uint64_t tag = 0; tag < 6; ++tag) {
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != 2 || tag != 5) totals.push_back(issued(*couriers[rank], tag, given));
    }
  }
  std::this_thread::sleep_for(std::chrono::microseconds(draw() % 2000));
  couriers[2].reset();  // this fails its own sums
  for (int rank = 0; rank < 2; ++rank) {
    check(says(problem_of(*couriers[rank]), "worker 2 is gone"),
          "the problem names the worker that is gone");
  }
  for (int rank = 0; rank < 2; ++rank) close(*couriers[rank], "worker 2 is gone");
  for (const Arrays& arrays : totals) {
    const std::string why = failure_of(*arrays[0]);
    const auto* data = reinterpret_cast<const float*>(arrays[0]->data());
    const bool whole = why.empty() && data[0] == 3.0F && data[arrays[0]->size - 1] == 3.0F;
    check(whole || says(why, "gone"), "a sum is complete or has failed");
  }
}

// A courier whose peer is played by the test, which can send anything.
class Against {
 public:
  explicit Against(int room = 0) {
    const auto ends = connected(2, room);
    other_ = ends[1][0];
    courier = made(0, ends[0]);
  }
  ~Against() { leave(); }
  void say(const void* bytes, size_t count) {
    check(send(other_, bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count),
          "the test can send its bytes");
  }
  void say(uint64_t tag, uint64_t turn, uint64_t bytes, uint64_t phase = 0,
           uint64_t magic = Header::kMagic) {
    const Header header{magic, tag, turn, phase, bytes};
    say(&header, sizeof header);
  }
  void leave() {
    if (other_ >= 0) ::close(other_);
    other_ = -1;
  }
  // The problem fails the open sums and later ones.
  void ends_with(const Arrays& total, const char* problem) {
    check(says(problem_of(*courier), problem), "the problem says what is wrong");
    const Arrays later = issued(*courier, 77, ones(10));
    close(*courier, problem);
    check(says(failure_of(*total[0]), problem), "an open sum fails");
    check(says(failure_of(*later[0]), problem), "a later sum fails");
  }

  std::unique_ptr<Courier> courier;

 private:
  int other_;
};

constexpr uint64_t kItems = 1000, kBytes = 4 * kItems;

void a_rank_dies_in_the_middle() {
  const std::vector<float> half(kItems / 2, 1.0F);
  for (const size_t sent : {size_t{0}, size_t{1}, sizeof(Header), sizeof(Header) + 6}) {
    Against one;
    const Arrays total = issued(*one.courier, 5, ones(kItems));
    std::vector<char> bytes(sizeof(Header) + half.size() * sizeof(float));
    const Header header{Header::kMagic, 5, 0, 0, kBytes};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, half.data(), bytes.size() - sizeof header);
    if (sent > 0) one.say(bytes.data(), sent);
    one.leave();
    one.ends_with(total, "worker 1 is gone");
  }
}

void frames_that_lie() {
  {
    Against one;
    const Arrays total = issued(*one.courier, 5, ones(kItems));
    one.say(5, 0, kBytes, 0, 12345);
    one.ends_with(total, "makes no sense");
  }
  // Two ranks have no phase 1.
  for (const uint64_t phase : {uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    Against one;
    const Arrays total = issued(*one.courier, 5, ones(kItems));
    one.say(5, 0, kBytes, phase);
    one.ends_with(total, "makes no sense");
  }
  for (const uint64_t bytes : {kBytes - 4, kBytes + 4, uint64_t{0}, uint64_t{1} << 60}) {
    for (const bool early : {false, true}) {
      Against one;
      const char* problem = early && bytes > 2 * kBytes ? "makes no sense" : "disagree";
      if (early) one.say(5, 0, bytes);
      if (early && bytes > 2 * kBytes)
        check(says(problem_of(*one.courier), problem),
              "a size that makes no sense is reported at once");
      const Arrays total = issued(*one.courier, 5, ones(kItems));
      if (!early) see_open(*one.courier);
      if (!early) one.say(5, 0, bytes);
      one.ends_with(total, problem);
    }
  }
}

// The same part is sent twice. Before its sum has started here, that is an error. After the sum has
// ended nothing is known about it any more, so the part is kept in vain.
void a_part_that_comes_twice() {
  const std::vector<float> part(kItems, 1.0F);
  for (const bool early : {false, true}) {
    Against one;
    Arrays ended;
    if (!early) ended = issued(*one.courier, 6, ones(kItems));
    for (int time = 0; time < 2; ++time) {
      one.say(6, 0, kBytes);
      one.say(part.data(), kBytes);
      if (!early) check(failure_of(*ended[0]).empty(), "the sum ends without a failure");
    }
    if (!early) one.leave();
    const Arrays total = issued(*one.courier, 5, ones(kItems));
    one.ends_with(total, early ? "makes no sense" : "worker 1 is gone");
  }
}

// The courier is stopped while it sends. Nobody receives, so the sums cannot end.
void stopped_while_sending() {
  for (int round = 0; round < 20; ++round) {
    Against one(4096);
    std::vector<Arrays> totals;
    for (uint64_t tag = 0; tag < 4; ++tag)
      totals.push_back(issued(*one.courier, tag, ones(kLargest)));
    if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100 * round));
    std::thread other([&one] { close(*one.courier, "stopped"); });
    close(*one.courier, "stopped");
    for (const Arrays& total : totals)
      check(says(failure_of(*total[0]), "stopped"), "a sum fails when the courier is stopped");
    other.join();
    const Arrays late = issued(*one.courier, 9, ones(10));
    check(says(failure_of(*late[0]), "stopped"), "no sum starts after the courier was stopped");
  }
}

}  // namespace

int main() {
  using Sender = Courier::Sender;
  for (const auto& [workers, sends] :
       {std::pair{1, Sender::kBringer}, {3, Sender::kBringer}, {3, Sender::kOwn}}) {
    sender = sends;
    Engine::get().configure(workers, false, 0, 0);
    unsigned seed = 0;
    for (const int ranks : {1, 2, 3, 5}) {
      for (const int room : {0, 4096}) {
        for (int round = 0; round < kRounds; ++round) sums_are_exact(ranks, room, ++seed);
      }
    }
    for (unsigned round = 0; round < 10; ++round) a_rank_goes(round);
    a_rank_dies_in_the_middle();
    frames_that_lie();
    a_part_that_comes_twice();
    stopped_while_sending();
  }
  Engine::get().shut_down();
  std::printf(failures == 0 ? "courier: all right\n" : "courier: %d broken\n", failures);
  return failures == 0 ? 0 : 1;
}
