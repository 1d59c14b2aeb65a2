// What a courier sends and receives: rows of several parts of memory, and frames of them.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "program/desk.h"

namespace gemel {

// What receive() gives when nothing is there now; 0 when nothing more will come.
constexpr ssize_t kLater = -1;
constexpr ssize_t kGone = -2;

// Of a stream socket that does not block: the bytes that came, up to so many.
ssize_t receive(int socket, char* to, size_t bytes);
// Who polls the socket is woken by so many bytes.
void say_enough(int socket, int bytes);

// Memory in several places, as one row of items.
class Row {
 public:
  Row() = default;
  Row(std::vector<Errand::Part> parts, size_t item);
  size_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  size_t item() const { return item_; }
  // The memory that begins at a byte of the row, and how much of it is of one part.
  std::pair<char*, size_t> at(size_t place) const;
  // Fills what lies between two bytes, as far as something has come.
  ssize_t receive(int socket, size_t begin, size_t end) const;

 private:
  std::vector<Errand::Part> parts_;
  std::vector<size_t> ends_;
  size_t item_ = 1;
};

// Adds up bytes `first` to `last` of a piece that begins at a byte of the row, in the order of
// ranks. `rows` has the piece of each other rank; null is our own, which is `given`.
void add_rows(const Row& given, const Row& total, size_t piece, size_t first, size_t last,
              const std::vector<const char*>& rows);

// Goes before each frame.
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
  size_t sent;  // with the header
};

// The frames on their way to a rank: of those that have not begun, the highest priority goes first.
class Outgoing {
 public:
  bool empty() const { return frames_.empty(); }
  void add(const Frame& frame);
  // Sends as much as can be sent now; false when nobody is there, with errno. `done` is the first
  // frame if all of it has been sent, which is then to be popped.
  bool send(int socket, const Frame** done);
  void pop() { frames_.pop_front(); }

 private:
  std::deque<Frame> frames_;
};

// Memory for what comes, which is kept: to take new pages costs as much as a copy.
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
