#include "program/courier.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <unordered_map>

#include "program/error.h"
#include "program/frames.h"

namespace gemel {
namespace {

using Clock = std::chrono::steady_clock;

// Bytes that wake who receives, unless fewer are left; and after how long all are tried anyway, as
// no system has to do what it is told of how much is enough.
constexpr size_t kEnough = 256 << 10;
constexpr int kTryingMilliseconds = 100;

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
  Sum* telling = nullptr;     // of phase 1, from `at` on
  size_t at = 0, end = 0;
};

double now_of_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

// The thread, and what only it touches unless it says otherwise.
class Courier::Work {
 public:
  Work(int rank, const std::vector<int>& sockets);
  ~Work();

  uint64_t number(uint64_t tag, const std::string& name, int item, int priority);
  State state();
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
  State state_;
  Clock::time_point oldest_;
  FailurePointer closing_;
};

Courier::Work::Work(int rank, const std::vector<int>& sockets)
    : rank_(rank), size_(static_cast<int>(sockets.size())), peers_(sockets.size()) {
  if (pipe(bell_) != 0) throw Error("OSError", "Courier: no pipe can be had");
  for (int end : bell_) fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
  for (int end : bell_) fcntl(end, F_SETFD, FD_CLOEXEC);
  for (int other = 0; other < size_; ++other) {
    peers_[other].socket = sockets[other];
    if (other != rank_) fcntl(sockets[other], F_SETFL, fcntl(sockets[other], F_GETFL) | O_NONBLOCK);
  }
  desk = Desk::make([this] { ring(); });
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Courier::Work::~Work() {
  close(std::make_shared<const Failure>("RuntimeError", "the courier has gone"));
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) ::close(peers_[other].socket);
  }
  for (int end : bell_) ::close(end);
}

void Courier::Work::ring() noexcept {
  if (rung_.exchange(true)) return;
  const char one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_[1], &one, 1);
}

uint64_t Courier::Work::number(uint64_t tag, const std::string& name, int item, int priority) {
  if (item != 4 && item != 8) throw Error("ValueError", "Courier: items are of 4 or 8 bytes");
  const std::lock_guard guard(mutex_);
  asked_[++numbers_] = {{tag, turns_[tag]++}, name, item, priority};
  return numbers_;
}

Courier::State Courier::Work::state() {
  const std::lock_guard guard(mutex_);
  State found = state_;
  found.open = numbers_ - ended_;
  if (!found.name.empty()) {
    found.waiting = std::chrono::duration<double>(Clock::now() - oldest_).count();
  }
  return found;
}

void Courier::Work::close(const FailurePointer& failure) {
  {
    const std::lock_guard guard(mutex_);
    if (closing_ == nullptr) closing_ = failure;
  }
  desk->close(failure);
  ring();
  const std::lock_guard guard(joining_);
  if (thread_.joinable()) thread_.join();
}

// ---- the thread

void Courier::Work::run() {
  std::vector<pollfd> polled;
  std::vector<int> ranks;
  try {
    while (given_up_ == nullptr) round(polled, ranks);
  } catch (const std::exception& error) {
    fail("worker " + std::to_string(rank_) + " could not go on: " + error.what());
    while (given_up_ == nullptr) round(polled, ranks);
  }
  tell_of_waiting();
  for (auto& [key, sum] : std::exchange(open_, {})) sum->errand->end(given_up_);
}

void Courier::Work::round(std::vector<pollfd>& polled, std::vector<int>& ranks) {
  tell_of_waiting();
  polled.assign(1, {bell_[0], POLLIN, 0});
  ranks.assign(1, rank_);
  for (int other = 0; other < size_; ++other) {
    Peer& peer = peers_[other];
    if (other == rank_ || peer.gone || stuck_) continue;
    set_enough(other);
    const bool going = !peer.going.empty();
    polled.push_back({peer.socket, static_cast<short>(POLLIN | (going ? POLLOUT : 0)), 0});
    ranks.push_back(other);
  }
  const bool patient = open_.empty() || stuck_;
  const int ready = poll(polled.data(), polled.size(), patient ? -1 : kTryingMilliseconds);
  bool all = ready == 0;
  if (polled[0].revents != 0) all |= take();
  for (size_t i = 1; i < polled.size(); ++i) {
    if (all || (polled[i].revents & ~POLLOUT) != 0) drain(ranks[i]);
    if (all || (polled[i].revents & POLLOUT) != 0) empty(ranks[i]);
  }
}

// What has started here, and whether it is all to end. Returns whether there was anything.
bool Courier::Work::take() {
  char bytes[64];
  while (read(bell_[0], bytes, sizeof bytes) > 0) continue;
  rung_ = false;
  bool any = false;
  while (std::shared_ptr<Errand> errand = desk->take(std::chrono::microseconds(0))) {
    Asked asked;
    {
      const std::lock_guard guard(mutex_);
      asked = std::move(asked_.extract(errand->number).mapped());
    }
    any = true;
    if (errand->failure == nullptr) {
      start(std::move(errand), std::move(asked));
      continue;
    }
    fail("worker " + std::to_string(rank_) + ": " + asked.name + ": " + errand->failure->message);
    const std::lock_guard guard(mutex_);
    ++ended_;
  }
  const std::lock_guard guard(mutex_);
  if (closing_ != nullptr) given_up_ = closing_;
  return any;
}

std::pair<size_t, size_t> Courier::Work::piece(const Row& row, int rank) const {
  if (size_ <= 2) return {0, row.bytes()};
  const size_t items = row.bytes() / row.item(), ranks = static_cast<size_t>(size_);
  const auto place = static_cast<size_t>(rank);
  return {items * place / ranks * row.item(), items * (place + 1) / ranks * row.item()};
}

void Courier::Work::start(std::shared_ptr<Errand> errand, Asked asked) {
  auto made = std::make_unique<Sum>();
  Sum& sum = *made;
  const auto item = static_cast<size_t>(asked.item);
  sum.given = Row(errand->inputs, item);
  sum.total = Row(errand->outputs, item);
  sum.errand = std::move(errand);
  sum.asked = std::move(asked);
  sum.since = Clock::now();
  sum.theirs.resize(peers_.size());
  sum.told.resize(peers_.size(), size_ <= 2);
  open_[sum.asked.key] = std::move(made);
  if (stuck_) return;
  const auto [begin, end] = piece(sum.given, rank_);
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    if (peers_[other].gone) return fail_without(sum, other);
    auto found = early_.find({sum.asked.key, other});
    if (found != early_.end()) {
      sum.theirs[other] = std::move(found->second);
      early_.erase(found);
    } else if (peers_[other].early != nullptr && peers_[other].header.key() == sum.asked.key) {
      sum.theirs[other] = std::move(peers_[other].early);
    }
    if (sum.theirs[other] != nullptr && sum.theirs[other]->size != end - begin) {
      return fail_unequal(sum, other, sum.theirs[other]->size, end - begin);
    }
    queue(sum, other, false);
  }
  progress(sum);
}

void Courier::Work::queue(Sum& sum, int rank, bool total) {
  const auto [begin, end] = piece(sum.given, total ? rank_ : rank);
  Header header{Header::kMagic, sum.asked.key.first, sum.asked.key.second, total ? 1U : 0U,
                end - begin};
  ++sum.unsent;
  peers_[rank].going.add({header, total ? &sum.total : &sum.given, begin, end,
                          sum.asked.priority, 0});
  empty(rank);
}

// Sends what can be sent now.
void Courier::Work::empty(int rank) {
  Peer& peer = peers_[rank];
  while (!stuck_ && !peer.gone && !peer.going.empty()) {
    const Frame* sent = nullptr;
    if (!peer.going.send(peer.socket, &sent)) {
      peer.gone = true;
      return fail("worker " + std::to_string(rank) + " is gone (" + std::strerror(errno) + ")");
    }
    if (sent == nullptr) return;  // the rest later
    const auto found = open_.find(sent->header.key());
    peer.going.pop();
    --found->second->unsent;
    finish(*found->second);
  }
}

// Receives what has come.
void Courier::Work::drain(int rank) {
  Peer& peer = peers_[rank];
  while (!stuck_ && !peer.gone && step(rank)) continue;
}

// Receives once; whether there may be more.
bool Courier::Work::step(int rank) {
  Peer& peer = peers_[rank];
  ssize_t count = 0;
  const bool headed = peer.header_have == sizeof(Header);
  if (!headed) {
    count = receive(peer.socket, reinterpret_cast<char*>(&peer.header) + peer.header_have,
                    sizeof(Header) - peer.header_have);
  } else if (peer.telling != nullptr) {
    count = peer.telling->total.receive(peer.socket, peer.at, peer.end);
  } else {
    Buffer& buffer = *peer.filling;
    count = receive(peer.socket, buffer.data() + buffer.have, buffer.size - buffer.have);
  }
  if (count == kLater) return false;
  if (count <= 0) {
    peer.gone = true;
    for (const auto& [key, sum] : open_) {
      if (!awaits(*sum, rank)) continue;
      fail_without(*sum, rank);
      break;
    }
    return false;
  }
  if (!headed) {
    peer.header_have += static_cast<size_t>(count);
    if (peer.header_have == sizeof(Header)) open_frame(rank);
    return true;
  }
  if (peer.telling != nullptr) {
    peer.at += static_cast<size_t>(count);
    if (peer.at == peer.end) end_frame(rank);
    return true;
  }
  peer.filling->have += static_cast<size_t>(count);
  end_frame(rank);
  return true;
}

// A header has come: where its contents belong.
void Courier::Work::open_frame(int rank) {
  Peer& peer = peers_[rank];
  const Header& header = peer.header;
  const auto found = open_.find(header.key());
  Sum* sum = found == open_.end() ? nullptr : found->second.get();
  const auto [begin, end] = sum == nullptr ? std::pair<size_t, size_t>{0, header.bytes}
                                           : piece(sum->given, header.phase == 1 ? rank : rank_);
  const bool known = header.phase == 0 ? sum == nullptr || sum->theirs[rank] == nullptr
                                       : sum != nullptr && !sum->told[rank];
  if (header.magic != Header::kMagic || header.phase > 1 || !known) {
    return fail("what worker " + std::to_string(rank) + " sends makes no sense");
  }
  if (header.bytes != end - begin) return fail_unequal(*sum, rank, header.bytes, end - begin);
  if (header.phase == 1) {
    peer.telling = sum;
    peer.at = begin;
    peer.end = end;
    if (begin == end) end_frame(rank);
    return;
  }
  std::unique_ptr<Buffer> buffer = buffers_.take(header.bytes);
  peer.filling = buffer.get();
  (sum == nullptr ? peer.early : sum->theirs[rank]) = std::move(buffer);
  if (header.bytes == 0) end_frame(rank);
}

// More of a frame has come, perhaps all.
void Courier::Work::end_frame(int rank) {
  Peer& peer = peers_[rank];
  const Key key = peer.header.key();
  if (peer.telling != nullptr) {
    Sum& sum = *peer.telling;
    peer.telling = nullptr;
    peer.header_have = 0;
    sum.told[rank] = true;
    return finish(sum);
  }
  if (peer.filling->have == peer.filling->size) {
    peer.filling = nullptr;
    peer.header_have = 0;
    if (peer.early != nullptr) early_[{key, rank}] = std::move(peer.early);
  }
  const auto found = open_.find(key);
  if (found != open_.end()) progress(*found->second);
}

// Adds up what has come of the piece that is ours.
void Courier::Work::progress(Sum& sum) {
  if (sum.all_added || stuck_) return;
  const auto [begin, end] = piece(sum.given, rank_);
  size_t have = end - begin;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    if (sum.theirs[other] == nullptr) return;
    have = std::min(have, sum.theirs[other]->have);
  }
  have -= have % static_cast<size_t>(sum.asked.item);
  if (have > sum.added) {
    std::vector<const char*> rows(peers_.size(), nullptr);
    for (int other = 0; other < size_; ++other) {
      if (other != rank_) rows[other] = sum.theirs[other]->data();
    }
    add_rows(sum.given, sum.total, begin, sum.added, have, rows);
    sum.added = have;
  }
  if (have < end - begin) return;
  for (const auto& buffer : sum.theirs) {
    if (buffer != nullptr && buffer->have < buffer->size) return;  // of nothing
  }
  sum.all_added = true;
  if (size_ > 2) {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      ++sum.unsent;  // not to be finished in between
      queue(sum, other, true);
      if (stuck_) return;
      --sum.unsent;
    }
  }
  finish(sum);
}

void Courier::Work::finish(Sum& sum) {
  if (!sum.all_added || sum.unsent > 0 || stuck_) return;
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && !sum.told[other]) return;
  }
  for (auto& buffer : sum.theirs) {
    if (buffer != nullptr) buffers_.give(std::move(buffer));
  }
  count(sum);
  const auto taken = open_.extract(sum.asked.key);
  taken.mapped()->errand->end();
}

void Courier::Work::count(const Sum& sum) {
  const double seconds = std::chrono::duration<double>(Clock::now() - sum.since).count();
  const std::lock_guard guard(mutex_);
  ++ended_;
  ++state_.sums;
  state_.seconds += seconds;
}

// ---- waiting

bool Courier::Work::awaits(const Sum& sum, int rank) const {
  const auto& buffer = sum.theirs[rank];
  return buffer == nullptr || buffer->have < buffer->size || !sum.told[rank];
}

// Bytes that are worth being woken for.
size_t Courier::Work::enough(int rank) const {
  const Peer& peer = peers_[rank];
  if (peer.header_have == sizeof(Header)) {
    const size_t left = peer.telling != nullptr ? peer.end - peer.at
                                                : peer.filling->size - peer.filling->have;
    return std::min(left, kEnough);
  }
  size_t least = kEnough;
  for (const auto& [key, sum] : open_) {
    if (!awaits(*sum, rank)) continue;
    const bool first = sum->theirs[rank] == nullptr;
    const auto [begin, end] = piece(sum->given, first ? rank_ : rank);
    least = std::min(least, end - begin + sizeof(Header) - peer.header_have);
  }
  return least;
}

void Courier::Work::set_enough(int rank) {
  const int wanted = static_cast<int>(enough(rank));
  if (wanted == peers_[rank].enough) return;
  peers_[rank].enough = wanted;
  say_enough(peers_[rank].socket, wanted);
}

void Courier::Work::tell_of_waiting() {
  const Sum* oldest = nullptr;
  for (const auto& [key, sum] : open_) {
    if (oldest == nullptr || sum->since < oldest->since) oldest = sum.get();
  }
  const double worked = now_of_thread();
  const std::lock_guard guard(mutex_);
  state_.worked = worked;
  state_.missing.clear();
  state_.name.clear();
  if (oldest == nullptr) return;
  state_.name = oldest->asked.name;
  oldest_ = oldest->since;
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && awaits(*oldest, other)) state_.missing.push_back(other);
  }
}

// Nobody can go on; whoever asks for the state hears why, and closes.
void Courier::Work::fail(const std::string& problem) {
  stuck_ = true;
  const std::lock_guard guard(mutex_);
  if (state_.problem.empty()) state_.problem = problem;
}

void Courier::Work::fail_without(const Sum& sum, int rank) {
  fail(sum.asked.name + ": worker " + std::to_string(rank) + " is gone");
}

void Courier::Work::fail_unequal(const Sum& sum, int rank, size_t sent, size_t needed) {
  fail("the workers disagree about " + sum.asked.name + ": worker " + std::to_string(rank) +
       " sends " + std::to_string(sent) + " bytes, worker " + std::to_string(rank_) + " needs " +
       std::to_string(needed));
}

// ---- what others see

Courier::Courier(int rank, const std::vector<int>& sockets)
    : work_(std::make_unique<Work>(rank, sockets)) {}
Courier::~Courier() {
  if (getpid() != work_->process) static_cast<void>(work_.release());  // its thread is not here
}
uint64_t Courier::number(uint64_t tag, const std::string& name, int item_bytes, int priority) {
  return work_->number(tag, name, item_bytes, priority);
}
Desk& Courier::desk() { return *work_->desk; }
Courier::State Courier::state() const { return work_->state(); }
void Courier::close(const FailurePointer& failure) { work_->close(failure); }

}  // namespace gemel
