// What a courier's thread does with sums: it sends parts, receives parts, and adds them up.

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "program/courier_work.h"

namespace gemel {

std::pair<size_t, size_t> CourierWork::piece(const Row& row, int rank) const {
  if (size_ <= 2) return {0, row.bytes()};
  const size_t items = row.bytes() / row.item(), ranks = static_cast<size_t>(size_);
  const auto place = static_cast<size_t>(rank);
  return {items * place / ranks * row.item(), items * (place + 1) / ranks * row.item()};
}

void CourierWork::start(std::shared_ptr<Errand> errand, Asked asked) {
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

void CourierWork::queue(Sum& sum, int rank, bool total) {
  const auto [begin, end] = piece(sum.given, total ? rank_ : rank);
  Header header{Header::kMagic, sum.asked.key.first, sum.asked.key.second, total ? 1U : 0U,
                end - begin};
  ++sum.unsent;
  peers_[rank].going.add(
      {header, total ? &sum.total : &sum.given, begin, end, sum.asked.priority, 0});
  empty(rank);
}

// Sends as much as possible now.
void CourierWork::empty(int rank) {
  Peer& peer = peers_[rank];
  while (!stuck_ && !peer.gone && !peer.going.empty()) {
    const Frame* sent = nullptr;
    if (!peer.going.send(peer.socket, &sent)) {
      peer.gone = true;
      return fail("worker " + std::to_string(rank) + " is gone (" + std::strerror(errno) + ")");
    }
    if (sent == nullptr) return;  // the rest is sent later
    const auto found = open_.find(sent->header.key());
    peer.going.pop();
    --found->second->unsent;
    finish(*found->second);
  }
}

// Receives the data that has arrived.
void CourierWork::drain(int rank) {
  Peer& peer = peers_[rank];
  while (!stuck_ && !peer.gone && step(rank)) continue;
}

// Receives once; true if there may be more.
bool CourierWork::step(int rank) {
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

// A header has arrived: finds out where its contents belong.
void CourierWork::open_frame(int rank) {
  Peer& peer = peers_[rank];
  const Header& header = peer.header;
  const auto found = open_.find(header.key());
  Sum* sum = found == open_.end() ? nullptr : found->second.get();
  const auto [begin, end] = sum == nullptr ? std::pair<size_t, size_t>{0, header.bytes}
                                           : piece(sum->given, header.phase == 1 ? rank : rank_);
  const bool kept = early_.contains({header.key(), rank});
  const bool known = header.phase == 0 ? !kept && (sum == nullptr || sum->theirs[rank] == nullptr)
                                       : sum != nullptr && !sum->told[rank];
  const bool sane = sum != nullptr || header.bytes <= kMostBytes;
  if (header.magic != Header::kMagic || header.phase > 1 || !known || !sane) {
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

// More of a frame has arrived, perhaps all of it.
void CourierWork::end_frame(int rank) {
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

// Adds up what has arrived of our piece.
void CourierWork::progress(Sum& sum) {
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
    // Only a precaution: each part is as large as our piece.
    if (buffer != nullptr && buffer->have < buffer->size) return;
  }
  sum.all_added = true;
  if (size_ > 2) {
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      ++sum.unsent;  // keeps the sum from being finished in this loop
      queue(sum, other, true);
      if (stuck_) return;
      --sum.unsent;
    }
  }
  finish(sum);
}

void CourierWork::finish(Sum& sum) {
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

void CourierWork::count(const Sum& sum) {
  const double seconds = std::chrono::duration<double>(Clock::now() - sum.since).count();
  const double taken = worked();
  const std::lock_guard guard(mutex_);
  state_.worked = taken;
  ++ended_;
  ++state_.sums;
  state_.seconds += seconds;
}

}  // namespace gemel
