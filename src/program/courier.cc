#include "program/courier.h"

#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <exception>

#include "engine/engine.h"
#include "memory/machine.h"
#include "memory/signals.h"
#include "program/courier_work.h"
#include "program/error.h"

namespace gemel {
double CourierWork::worked() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

CourierWork::CourierWork(int rank, const std::vector<int>& sockets, Courier::Sender sender)
    : rank_(rank),
      size_(static_cast<int>(sockets.size())),
      sends_here_(
          sender == Courier::Sender::kBringer ||
          (sender == Courier::Sender::kEither && Engine::get().workers() + 1 >= machine::cores())),
      peers_(sockets.size()) {
  if (pipe(bell_) != 0) throw Error("OSError", "Courier: no pipe can be had");
  for (int end : bell_) fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
  for (int end : bell_) fcntl(end, F_SETFD, FD_CLOEXEC);
  for (int other = 0; other < size_; ++other) {
    peers_[other].socket = sockets[other];
    if (other != rank_) fcntl(sockets[other], F_SETFL, fcntl(sockets[other], F_GETFL) | O_NONBLOCK);
  }
  desk = Desk::make([this] { heard(); }, true);
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

CourierWork::~CourierWork() {
  close(std::make_shared<const Failure>("RuntimeError", "the courier has gone"));
  for (int other = 0; other < size_; ++other) {
    if (other != rank_) ::close(peers_[other].socket);
  }
  for (int end : bell_) ::close(end);
}

// There is something on the desk. If all cores compute, the courier's thread might not get one
// before they have ended, although sending takes a moment only. Then the thread that brings it
// sends it, as far as the connections take it now.
void CourierWork::heard() noexcept {
  if (!sends_here_ || !send_here()) ring();
}

// Whether the courier's thread has nothing to do before more arrives.
bool CourierWork::send_here() noexcept {
  const std::unique_lock lock(working_, std::try_to_lock);
  if (!lock || given_up_ != nullptr) return false;
  try {
    take();
  } catch (const std::exception& error) {
    fail("worker " + std::to_string(rank_) + " could not go on: " + error.what());
  }
  if (stuck_) return false;
  for (int other = 0; other < size_; ++other) {
    if (other == rank_ || peers_[other].gone) continue;
    if (!peers_[other].going.empty()) return false;
    set_enough(other);
  }
  return !patient_;
}

void CourierWork::ring() noexcept {
  if (rung_.exchange(true)) return;
  const char one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_[1], &one, 1);
}

uint64_t CourierWork::number(uint64_t tag, const std::string& name, int item, int priority) {
  if (item != 4 && item != 8) throw Error("ValueError", "Courier: items are of 4 or 8 bytes");
  const std::lock_guard guard(mutex_);
  asked_[++numbers_] = {{tag, turns_[tag]++}, name, item, priority};
  return numbers_;
}

Courier::State CourierWork::state() {
  const std::lock_guard guard(mutex_);
  Courier::State found = state_;
  found.open = numbers_ - ended_;
  if (!found.name.empty()) {
    found.waiting = std::chrono::duration<double>(Clock::now() - oldest_).count();
  }
  return found;
}

void CourierWork::close(const FailurePointer& failure) {
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

void CourierWork::run() {
  std::vector<pollfd> polled;
  std::vector<int> ranks;
  try {
    while (round(polled, ranks)) continue;
  } catch (const std::exception& error) {
    {
      const std::lock_guard guard(working_);
      fail("worker " + std::to_string(rank_) + " could not go on: " + error.what());
    }
    while (round(polled, ranks)) continue;
  }
  const std::lock_guard guard(working_);
  tell_of_waiting();
  for (auto& [key, sum] : std::exchange(open_, {})) sum->errand->end(given_up_);
}

// Sleeps until there is something to do, and does it. False if the courier has given up.
bool CourierWork::round(std::vector<pollfd>& polled, std::vector<int>& ranks) {
  std::unique_lock lock(working_);
  if (given_up_ != nullptr) return false;
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
  patient_ = open_.empty() || stuck_;
  const int patience = patient_ ? -1 : kTryingMilliseconds;
  lock.unlock();
  const int ready = poll(polled.data(), polled.size(), patience);
  lock.lock();
  patient_ = false;
  bool all = ready == 0;
  if (polled[0].revents != 0) all |= answer();
  for (size_t i = 1; i < polled.size(); ++i) {
    if (all || (polled[i].revents & ~POLLOUT) != 0) drain(ranks[i]);
    if (all || (polled[i].revents & POLLOUT) != 0) empty(ranks[i]);
  }
  return true;
}

// Starts the errands that have become ready. True if there were some.
bool CourierWork::take() {
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
  return any;
}

// The thread has been woken. True if there were errands.
bool CourierWork::answer() {
  char bytes[64];
  while (read(bell_[0], bytes, sizeof bytes) > 0) continue;
  rung_ = false;
  const bool any = take();
  const std::lock_guard guard(mutex_);
  if (closing_ != nullptr) given_up_ = closing_;
  return any;
}

// ---- waiting

bool CourierWork::awaits(const Sum& sum, int rank) const {
  const auto& buffer = sum.theirs[rank];
  return buffer == nullptr || buffer->have < buffer->size || !sum.told[rank];
}

// The number of bytes from this rank that are worth waking up for.
size_t CourierWork::enough(int rank) const {
  const Peer& peer = peers_[rank];
  if (peer.header_have == sizeof(Header)) {
    const size_t left =
        peer.telling != nullptr ? peer.end - peer.at : peer.filling->size - peer.filling->have;
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

void CourierWork::set_enough(int rank) {
  const int wanted = static_cast<int>(enough(rank));
  if (wanted == peers_[rank].enough) return;
  peers_[rank].enough = wanted;
  say_enough(peers_[rank].socket, wanted);
}

void CourierWork::tell_of_waiting() {
  const Sum* oldest = nullptr;
  for (const auto& [key, sum] : open_) {
    if (oldest == nullptr || sum->since < oldest->since) oldest = sum.get();
  }
  const double taken = worked();
  const std::lock_guard guard(mutex_);
  state_.worked = taken;
  state_.missing.clear();
  state_.name.clear();
  if (oldest == nullptr) return;
  state_.name = oldest->asked.name;
  oldest_ = oldest->since;
  const auto come = [&](int other) {
    const auto& buffer = oldest->theirs[other];
    return buffer != nullptr && buffer->have == buffer->size;
  };
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && !come(other)) state_.missing.push_back(other);
  }
  if (!state_.missing.empty()) return;  // the others may be waiting for these ranks too
  for (int other = 0; other < size_; ++other) {
    if (other != rank_ && !oldest->told[other]) state_.missing.push_back(other);
  }
}

// The courier cannot go on. Its state says why, so that the owner closes it.
void CourierWork::fail(const std::string& problem) {
  stuck_ = true;
  const std::lock_guard guard(mutex_);
  if (state_.problem.empty()) state_.problem = problem;
}

void CourierWork::fail_without(const Sum& sum, int rank) {
  fail(sum.asked.name + ": worker " + std::to_string(rank) + " is gone");
}

void CourierWork::fail_unequal(const Sum& sum, int rank, size_t sent, size_t needed) {
  fail("the workers disagree about " + sum.asked.name + ": worker " + std::to_string(rank) +
       " sends " + std::to_string(sent) + " bytes, worker " + std::to_string(rank_) + " needs " +
       std::to_string(needed));
}

// ---- what others see

Courier::Courier(int rank, const std::vector<int>& sockets, Sender sender)
    : work_(std::make_unique<CourierWork>(rank, sockets, sender)) {}
Courier::~Courier() {
  // A forked child does not have the thread, so it cannot join it. The work is leaked there.
  if (getpid() != work_->process) static_cast<void>(work_.release());
}
uint64_t Courier::number(uint64_t tag, const std::string& name, int item_bytes, int priority) {
  return work_->number(tag, name, item_bytes, priority);
}
std::shared_ptr<Desk> Courier::desk() { return work_->desk; }
Courier::State Courier::state() const { return work_->state(); }
void Courier::close(const FailurePointer& failure) { work_->close(failure); }

}  // namespace gemel
