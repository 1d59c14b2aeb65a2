// The first elements of a row that is being read, in the order of their keys.

#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

namespace gemel {

// An element to be sorted: its key and, if needed, its position.
template <typename Bits>
struct Placed {
  Bits key;
  uint32_t position;
};

// The most elements that `First` keeps in order.
inline constexpr int64_t kMostFirst = 32;

// The smallest elements seen so far, in order.
template <typename Bits>
class First {
 public:
  explicit First(int64_t wanted) : wanted_(wanted) {}
  bool takes(Bits key) const { return count_ < wanted_ || key < found_[count_ - 1].key; }
  void put(Bits key, int64_t position) {
    int64_t at = count_ < wanted_ ? count_++ : count_ - 1;
    for (; at > 0 && found_[at - 1].key > key; --at) found_[at] = found_[at - 1];
    found_[at] = {key, static_cast<uint32_t>(position)};
  }
  const Placed<Bits>* sorted() { return found_; }

 private:
  const int64_t wanted_;
  int64_t count_ = 0;
  Placed<Bits> found_[kMostFirst];
};

// The same for more of them: candidates are kept without order, and most are dropped whenever there
// are twice as many as wanted. Of equal elements the first come first.
template <typename Bits>
class Nearest {
 public:
  explicit Nearest(int64_t wanted) : wanted_(wanted) { found_.reserve(2 * wanted); }
  bool takes(Bits key) const { return open_ || key < bound_; }
  void put(Bits key, int64_t position) {
    found_.push_back({key, static_cast<uint32_t>(position)});
    if (std::ssize(found_) < 2 * wanted_) return;
    const auto last = found_.begin() + wanted_ - 1;
    std::nth_element(found_.begin(), last, found_.end(), &before);
    bound_ = last->key;
    open_ = false;
    found_.resize(wanted_);
  }
  const Placed<Bits>* sorted() {
    std::nth_element(found_.begin(), found_.begin() + wanted_ - 1, found_.end(), &before);
    std::sort(found_.begin(), found_.begin() + wanted_, &before);
    return found_.data();
  }

 private:
  static bool before(const Placed<Bits>& a, const Placed<Bits>& b) {
    return a.key != b.key ? a.key < b.key : a.position < b.position;
  }

  const int64_t wanted_;
  bool open_ = true;  // no element is too large yet
  Bits bound_{};
  std::vector<Placed<Bits>> found_;
};

}  // namespace gemel
