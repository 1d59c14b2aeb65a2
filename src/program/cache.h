// The cache of prepared calls. Keys are a few words long, and a hit needs one probe.
//
// The size is bounded by the second-chance strategy: when the cache is full, the next entry
// replaces one that has not been looked up since it was last passed over. The order of passing over
// is that of the hashes, not of use. So a program that cycles through more keys than fit still
// finds most of them.

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

  // The pointer is valid until the next insert() or clear().
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

  // The key must not be in the cache yet.
  void insert(Words key, Value value) {
    const uint64_t hash = hash_words(key);
    Value evicted{};  // destroyed last, since its destructor may run any code
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
  static constexpr size_t kInside = 5;  // keys up to this many words need no memory of their own
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
    // Looked up since the last time it was passed over. A new entry starts without, so a sweep over
    // more keys than fit evicts mostly its own entries.
    bool asked = false;
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
    // Entries that this one had pushed further on move back: no probe may meet a gap before its
    // key.
    slots_[at] = Slot();
    for (size_t later = next(at); slots_[later].used; later = next(later)) {
      Slot moved = std::exchange(slots_[later], Slot());
      put(std::move(moved));
    }
    return evicted;
  }

  size_t limit_;
  size_t count_ = 0;
  size_t hand_ = 0;          // where passing over continues
  std::vector<Slot> slots_;  // their number is a power of two; at most half of them are used
};

}  // namespace gemel
