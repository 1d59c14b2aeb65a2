#include "program/frames.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gemel {
namespace {

#ifndef MSG_NOSIGNAL
constexpr int MSG_NOSIGNAL = 0;
#endif
// The most parts of memory in one system call, and the most buffers kept for reuse.
constexpr size_t kMostParts = 64;
constexpr size_t kMostFree = 64;

// total[i] = rows[0][i] + rows[1][i] + ...; a few elements at a time, so that the sums stay in the
// cache.
template <typename T>
void add(const char* const* rows, size_t count, char* total, size_t bytes) {
  constexpr size_t kAtOnce = 2048;
  auto* out = reinterpret_cast<T*>(total);
  const size_t items = bytes / sizeof(T);
  for (size_t begin = 0; begin < items; begin += kAtOnce) {
    const size_t end = std::min(items, begin + kAtOnce);
    const T* first = reinterpret_cast<const T*>(rows[0]);
    const T* second = reinterpret_cast<const T*>(rows[1]);
    for (size_t i = begin; i < end; ++i) out[i] = first[i] + second[i];
    for (size_t row = 2; row < count; ++row) {
      const T* next = reinterpret_cast<const T*>(rows[row]);
      for (size_t i = begin; i < end; ++i) out[i] += next[i];
    }
  }
}

}  // namespace

ssize_t receive(int socket, char* to, size_t bytes) {
  for (;;) {
    const ssize_t count = recv(socket, to, bytes, MSG_DONTWAIT);
    if (count >= 0) return count;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? kLater : kGone;
  }
}

void say_enough(int socket, int bytes) {
  setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

Row::Row(std::vector<Errand::Part> parts, size_t item) : parts_(std::move(parts)), item_(item) {
  size_t end = 0;
  for (const Errand::Part& part : parts_) ends_.push_back(end += part.bytes);
}

std::pair<char*, size_t> Row::at(size_t place) const {
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), place);
  const auto index = static_cast<size_t>(found - ends_.begin());
  const size_t left = *found - place;
  return {static_cast<char*>(parts_[index].data) + (parts_[index].bytes - left), left};
}

ssize_t Row::receive(int socket, size_t begin, size_t end) const {
  const auto [place, left] = at(begin);
  return gemel::receive(socket, place, std::min(left, end - begin));
}

void add_rows(const Row& given, const Row& total, size_t piece, size_t first, size_t last,
              const std::vector<const char*>& rows) {
  std::vector<const char*> moved(rows.size());
  while (first < last) {
    const auto [own, here] = given.at(piece + first);
    const auto [target, there] = total.at(piece + first);
    const size_t bytes = std::min({here, there, last - first});
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      moved[rank] = rows[rank] == nullptr ? own : rows[rank] + first;
    }
    if (rows.size() == 1) {
      std::memcpy(target, own, bytes);
    } else if (given.item() == sizeof(double)) {
      add<double>(moved.data(), moved.size(), target, bytes);
    } else {
      add<float>(moved.data(), moved.size(), target, bytes);
    }
    first += bytes;
  }
}

void Outgoing::add(const Frame& frame) {
  auto place = frames_.begin();
  if (place != frames_.end() && place->sent > 0) ++place;
  while (place != frames_.end() && place->priority >= frame.priority) ++place;
  frames_.insert(place, frame);
}

bool Outgoing::send(int socket, const Frame** done) {
  Frame& frame = frames_.front();
  const size_t whole = sizeof(Header) + frame.end - frame.begin;
  while (frame.sent < whole) {
    iovec parts[kMostParts];
    size_t count = 0, place = frame.begin;
    if (frame.sent < sizeof(Header)) {
      parts[count++] = {reinterpret_cast<char*>(&frame.header) + frame.sent,
                        sizeof(Header) - frame.sent};
    } else {
      place += frame.sent - sizeof(Header);
    }
    while (count < kMostParts && place < frame.end) {
      const auto [memory, left] = frame.row->at(place);
      parts[count++] = {memory, std::min(left, frame.end - place)};
      place += parts[count - 1].iov_len;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      frame.sent += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
  *done = &frame;
  return true;
}

std::unique_ptr<Buffer> Buffers::take(size_t bytes) {
  // Chooses the smallest buffer that is large enough.
  auto best = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    const bool fits = (*one)->capacity >= bytes;
    if (fits && (best == free_.end() || (*one)->capacity < (*best)->capacity)) best = one;
  }
  std::unique_ptr<Buffer> found;
  if (best != free_.end() && (*best)->capacity <= 2 * bytes + 4096) {
    found = std::move(*best);
    free_.erase(best);
  } else {
    found = std::make_unique<Buffer>();
    found->memory.reset(new char[bytes]);
    found->capacity = bytes;
  }
  found->size = bytes;
  found->have = 0;
  return found;
}

void Buffers::give(std::unique_ptr<Buffer> buffer) {
  if (free_.size() == kMostFree) free_.erase(free_.begin());
  free_.push_back(std::move(buffer));
}

}  // namespace gemel
