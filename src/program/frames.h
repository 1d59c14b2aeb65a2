// What a courier sends and receives: rows, which consist of several parts of memory, and frames.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "program/desk.h"

namespace gemel {

// Results of receive(): kLater when no data is there now, kGone after an error; 0 when the other
// side has closed the connection.
constexpr ssize_t kLater = -1;
constexpr ssize_t kGone = -2;

// Receives up to `bytes` bytes from a non-blocking stream socket; the number of bytes received.
ssize_t receive(int socket, char* to, size_t bytes);
// A poll of the socket returns only when this many bytes are there.
void say_enough(int socket, int bytes);

// Several parts of memory that together form one row of items.
class Row {
 public:
  Row() = default;
  Row(std::vector<Errand::Part> parts, size_t item);
  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  size_t item() const { return item_; }
  // The address of byte `place` of the row, and how many bytes of the same part follow.
  std::pair<char*, size_t> at(size_t place) const;
  // Receives into the row from byte `begin` on, at most up to `end`.
  ssize_t receive(int socket, size_t begin, size_t end) const;

 private:
  std::vector<Errand::Part> parts_;
  std::vector<size_t> ends_;
  size_t item_ = 1;
};

// Adds up bytes `first` to `last` of a piece that begins at byte `piece` of the row, in the order
// of ranks. `rows` has the piece of each other rank; null stands for our own rank, whose data is in
// `given`.
void add_rows(const Row& given, const Row& total, size_t piece, size_t first, size_t last,
              const std::vector<const char*>& rows);

// Precedes the contents of each frame.
struct Header {
  static constexpr uint64_t kMagic = 0x67656d656c733031;
  uint64_t magic = 0, tag = 0, turn = 0;
  uint64_t phase = 0;  // 0: a part of a sum; 1: the sum
  uint64_t bytes = 0;
  std::pair<uint64_t, uint64_t> key() const { return {tag, turn}; }
};

struct Frame {
  Header header;
  const Row* row;
  size_t begin, end;
  int priority;
  size_t sent;  // bytes sent so far, including the header
};

// The frames still to be sent to a rank. Among those that have not been begun, the one with the
// highest priority goes first.
class Outgoing {
 public:
  bool empty() const { return frames_.empty(); }
  void add(const Frame& frame);
  // Sends as much as possible now. False when the other side is gone, with errno set. `done` is set
  // to the first frame if all of it has been sent; the caller then has to pop it.
  bool send(int socket, const Frame** done);
  void pop() { frames_.pop_front(); }

 private:
  std::deque<Frame> frames_;
};

// Memory for incoming data. It is reused, because touching new pages costs as much as a copy.
struct Buffer {
  char* data() { return memory.get(); }
  std::unique_ptr<char[]> memory;
  size_t capacity = 0, size = 0, have = 0;
};

class Buffers {
 public:
  std::unique_ptr<Buffer> take(size_t bytes);
  void give(std::unique_ptr<Buffer> buffer);

 private:
  std::vector<std::unique_ptr<Buffer>> free_;
};

}  // namespace gemel
