// The cache of prepared calls: keys of a few words, one probe when it hits.
//
// Bounded by second chance: when it is full, the next entry takes the place of one that has not
// been asked for since it was last passed over. That goes round in the order of the hashes, not of
// use, so that a program going round more keys than fit still finds most of them.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gemel {

using Words = std::span<const uint64_t>;

inline uint64_t hash_words(Words words) {
  uint64_t hash = words.size();
  for (uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

template <typename Value>
class Cache {
 public:
  explicit Cache(size_t limit) : limit_(limit), slots_(kFewest) {}

  // Valid until the next insert() or clear().
  const Value* find(Words key) {
    const uint64_t hash = hash_words(key);
    for (size_t at = place(hash); slots_[at].used; at = next(at)) {
      Slot& slot = slots_[at];
      if (slot.hash != hash || !std::ranges::equal(slot.key(), key)) continue;
      slot.asked = true;
      return &slot.value;
    }
    return nullptr;
  }

  // The key must not be there.
  void insert(Words key, Value value) {
    const uint64_t hash = hash_words(key);
    Value evicted{};  // dropped last: that may run any code
    if (count_ == limit_) evicted = evict();
    if (2 * (count_ + 1) > slots_.size()) grow();
    put(Slot(hash, key, std::move(value)));
    ++count_;
  }

  size_t size() const { return count_; }

  void clear() {
    std::vector<Slot> dropped(kFewest);
    dropped.swap(slots_);
    count_ = 0;
  }

 private:
  static constexpr size_t kInside = 5;  // words of a key that need no memory of their own
  static constexpr size_t kFewest = 64;

  struct Slot {
    Slot() = default;
    Slot(uint64_t hash_of_key, Words words, Value kept)
        : hash(hash_of_key), used(true), count(static_cast<uint32_t>(words.size())) {
      if (count > kInside) outside = std::make_unique<uint64_t[]>(count);
      std::copy(words.begin(), words.end(), count > kInside ? outside.get() : inside);
      value = std::move(kept);
    }
    Words key() const { return {count > kInside ? outside.get() : inside, count}; }

    uint64_t hash = 0;
    bool used = false;
    bool asked = false;  // of a sweep over more keys than fit, the last go first
    uint32_t count = 0;
    uint64_t inside[kInside] = {};
    std::unique_ptr<uint64_t[]> outside;
    Value value{};
  };

  size_t place(uint64_t hash) const { return hash & (slots_.size() - 1); }
  size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }

  void put(Slot slot) {
    size_t at = place(slot.hash);
    while (slots_[at].used) at = next(at);
    slots_[at] = std::move(slot);
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.used) put(std::move(slot));
    }
  }

  Value evict() {
    size_t at = hand_ & (slots_.size() - 1);
    while (!slots_[at].used || std::exchange(slots_[at].asked, false)) at = next(at);
    hand_ = at;
    Value evicted = std::move(slots_[at].value);
    --count_;
    // What was pushed on by it moves back: no probe may meet a gap before its key.
    slots_[at] = Slot();
    for (size_t later = next(at); slots_[later].used; later = next(later)) {
      Slot moved = std::exchange(slots_[later], Slot());
      put(std::move(moved));
    }
    return evicted;
  }

  size_t limit_;
  size_t count_ = 0;
  size_t hand_ = 0;          // where passing over goes on
  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace gemel
