// A small open-addressing table for prepared calls: fixed-size keys, one probe when it hits.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace gemel {

inline uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

// Bounded: when `limit` entries are there the next one finds an empty table. What it forgets is
// prepared again; programs that need more than that make keys that never repeat.
template <typename Key, typename Value>
class Table {
 public:
  explicit Table(size_t limit) : limit_(limit), slots_(limit * 2) {}

  const Value* find(const Key& key) const {
    size_t at = key.hash() & (slots_.size() - 1);
    while (slots_[at].used) {
      if (slots_[at].key == key) return &slots_[at].value;
      at = (at + 1) & (slots_.size() - 1);
    }
    return nullptr;
  }

  void insert(const Key& key, Value value) {
    if (count_ == limit_) clear();
    size_t at = key.hash() & (slots_.size() - 1);
    while (slots_[at].used && !(slots_[at].key == key)) at = (at + 1) & (slots_.size() - 1);
    if (!slots_[at].used) ++count_;
    slots_[at] = Slot{true, key, std::move(value)};
  }

  size_t size() const { return count_; }

  void clear() {
    std::vector<Slot> empty(slots_.size());
    slots_.swap(empty);
    count_ = 0;
  }

 private:
  struct Slot {
    bool used = false;
    Key key{};
    Value value{};
  };
  size_t limit_;  // a power of two
  size_t count_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace gemel
