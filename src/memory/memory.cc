#include "memory/memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "memory/lock.h"
#include "memory/machine.h"
#include "memory/pages.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GEMEL_POISON(block, bytes) ASAN_POISON_MEMORY_REGION(block, bytes)
#define GEMEL_UNPOISON(block, bytes) ASAN_UNPOISON_MEMORY_REGION(block, bytes)
#else
#define GEMEL_POISON(block, bytes) ((void)(block), (void)(bytes))
#define GEMEL_UNPOISON(block, bytes) ((void)(block), (void)(bytes))
#endif

namespace gemel::memory {
namespace {

// Size classes: every 64 bytes up to 1 KiB, then four for each doubling (so at most a quarter is
// wasted).
constexpr size_t kFineBytes = 1024;
constexpr int kFineClasses = kFineBytes / kAlignment;
constexpr int kFineLog = 10;
constexpr int kMostLog = 46;
constexpr int kClasses = kFineClasses + (kMostLog - kFineLog) * 4;
constexpr size_t kMostBytes = size_t{1} << kMostLog;

constexpr int class_of(size_t bytes) noexcept {
  if (bytes <= kFineBytes) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / kAlignment);
  const size_t last = bytes - 1;
  const int log = std::bit_width(last) - 1;
  return kFineClasses + (log - kFineLog) * 4 + static_cast<int>((last >> (log - 2)) & 3);
}

constexpr size_t class_bytes(int index) noexcept {
  if (index < kFineClasses) return (index + 1) * kAlignment;
  const int log = kFineLog + (index - kFineClasses) / 4;
  return static_cast<size_t>(4 + (index - kFineClasses) % 4 + 1) << (log - 2);
}

// Small blocks are cut from slabs; bigger ones are mapped one by one.
constexpr size_t kSmallBytes = 32 * 1024;
constexpr int kSmallClasses = class_of(kSmallBytes) + 1;
constexpr size_t kSlabBytes = 256 * 1024;
constexpr int kMostSpares = 24;  // free slabs kept for use by any class

// Free blocks are chained through their last word, the only one that stays unpoisoned: a stale
// reader most likely touches the front, and the leak checker follows pointers only in unpoisoned
// memory.
void*& link_of(void* block, size_t bytes) noexcept {
  return *reinterpret_cast<void**>(static_cast<char*>(block) + bytes - sizeof(void*));
}

// --- what is held, and what is kept ---

struct Free {  // at the front of a slab or block that is free or about to go back to the system
  Free* next;
  size_t bytes;
};

struct BigClass {
  void* free = nullptr;
  uint64_t allocations = 0;
  uint64_t in_use = 0;  // blocks
  uint64_t cached = 0;  // blocks
  uint64_t idle = 0;    // the fewest blocks cached at any time since the last look for idle ones
};

// Blocks that were cached all the time while this many times the memory held was allocated go back
// to the system, if more than a little is held. Later steps of a program often need other sizes
// than the first ones. An allocation of a program that goes on as before finds its block in the
// cache, and one that comes back once in a while is a small part of what is done in between.
constexpr uint64_t kLooksAfter = 4;
constexpr uint64_t kLittleBytes = uint64_t{64} << 20;

BigClass big_classes[kClasses];  // the first kSmallClasses are unused
Lock cache_lock;                 // guards these classes and the next five variables
uint64_t cached_bytes = 0;
uint64_t allocated_bytes = 0;  // in big blocks since the last look
int eviction_class = 0;        // goes round, so that no size is preferred
Free* spare_slabs = nullptr;
int spares = 0;
std::atomic<uint64_t> held{0};  // slabs and big blocks in use
std::atomic<uint64_t> peak{0};
std::atomic<uint64_t> limit{~uint64_t{0}};
std::atomic<uint64_t> cache_limit{0};  // 0: not set yet

uint64_t most_cached() noexcept {
  uint64_t most = cache_limit.load(std::memory_order_relaxed);
  if (most == 0) {
    most = std::min<uint64_t>(uint64_t{1} << 30, machine::memory_bytes() / 8);
    cache_limit.store(most, std::memory_order_relaxed);
  }
  return most;
}

void give_up_footprint(size_t bytes) noexcept { held.fetch_sub(bytes, std::memory_order_relaxed); }

bool take_footprint(size_t bytes) noexcept {
  const uint64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > limit.load(std::memory_order_relaxed)) {
    give_up_footprint(bytes);
    return false;
  }
  uint64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
  return true;
}

void discard(Free* evicted) noexcept {
  while (evicted != nullptr) {
    Free* next = evicted->next;
    GEMEL_UNPOISON(evicted, evicted->bytes);
    pages::unmap(evicted, evicted->bytes);
    evicted = next;
  }
}

// --- small blocks ---

// Precedes its blocks and is aligned to its size, so a block's address determines its slab.
// `releases` is the number of releases after which the pool has to act: in an open slab the blocks
// in use, in the current slab one more, and 1 in a full slab.
struct alignas(kAlignment) Slab {
  void* free = nullptr;
  uint32_t fresh = kSlabBytes;  // offset of the part that was never cut into blocks
  uint32_t releases = 0;
  bool open = false;
  Slab* next = nullptr;
  Slab* previous = nullptr;
};

Slab* slab_of(void* block) noexcept {
  return reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(block) & ~(kSlabBytes - 1));
}

constexpr uint32_t blocks_in_slab(size_t bytes) noexcept {
  return static_cast<uint32_t>((kSlabBytes - sizeof(Slab)) / bytes);
}

Slab no_slab;  // acts as a full slab; never written

// The slabs of a class. Blocks come from the current slab, which stays in the pool when it is
// empty. Slabs in the `open` list have a free block, and leave the pool when they are empty. Full
// slabs are in no list until one of their blocks is released.
struct alignas(64) Pool {
  Lock lock;
  Slab* current = &no_slab;
  Slab* open = nullptr;
  uint64_t full = 0;
  uint64_t allocations = 0;
};

Pool pools[kSmallClasses];

void open_slab(Pool& pool, Slab* slab) noexcept {
  slab->open = true;
  slab->previous = nullptr;
  slab->next = pool.open;
  if (slab->next != nullptr) slab->next->previous = slab;
  pool.open = slab;
}

void close_slab(Pool& pool, Slab* slab) noexcept {
  slab->open = false;
  if (slab->next != nullptr) slab->next->previous = slab->previous;
  (slab->previous != nullptr ? slab->previous->next : pool.open) = slab->next;
}

void* spare_slab() noexcept {
  Guard guard(cache_lock);
  Free* spare = spare_slabs;
  if (spare == nullptr) return nullptr;
  spare_slabs = spare->next;
  --spares;
  return spare;
}

// Null when out of memory.
Slab* take_slab() noexcept {
  void* memory = spare_slab();
  if (memory == nullptr && take_footprint(kSlabBytes)) {
    memory = pages::map(kSlabBytes, kSlabBytes);
    if (memory == nullptr) give_up_footprint(kSlabBytes);
  }
  if (memory == nullptr) return nullptr;
  GEMEL_POISON(memory, kSlabBytes);
  GEMEL_UNPOISON(memory, sizeof(Slab));
  return new (memory) Slab{.fresh = sizeof(Slab)};
}

void leave_slab(Slab* slab) noexcept {
  Free* spare = new (slab) Free{nullptr, kSlabBytes};
  {
    Guard guard(cache_lock);
    if (spares < kMostSpares) {
      spare->next = spare_slabs;
      spare_slabs = spare;
      ++spares;
      return;
    }
  }
  give_up_footprint(kSlabBytes);
  discard(spare);
}

// The pool's lock is held, and the current slab has no block in its free list. Null when out of
// memory.
[[gnu::noinline]] void* find_block(Pool& pool, size_t bytes) noexcept {
  if (pool.current->fresh + bytes > kSlabBytes) {
    Slab* next = pool.open;
    if (next != nullptr) {
      close_slab(pool, next);
    } else {
      next = take_slab();
      if (next == nullptr) return nullptr;
    }
    if (pool.current != &no_slab) {
      ++pool.full;
      pool.current->releases = 1;
    }
    ++next->releases;
    pool.current = next;
  }
  Slab& slab = *pool.current;
  void* block = slab.free;
  if (block != nullptr) {
    slab.free = link_of(block, bytes);
  } else {
    block = reinterpret_cast<char*>(&slab) + slab.fresh;
    slab.fresh += static_cast<uint32_t>(bytes);
  }
  return block;
}

void* allocate_small(Pool& pool, size_t bytes) noexcept {
  Guard guard(pool.lock);
  void* block = pool.current->free;
  if (block != nullptr) [[likely]] {
    pool.current->free = link_of(block, bytes);
  } else {
    block = find_block(pool, bytes);
    if (block == nullptr) return nullptr;
  }
  ++pool.current->releases;
  ++pool.allocations;
  return block;
}

// The pool's lock is held. Whether the slab has become empty and leaves the pool; otherwise it was
// full and is open now.
[[gnu::noinline]] bool settle(Pool& pool, Slab* slab, size_t bytes) noexcept {
  if (slab->open) {
    close_slab(pool, slab);
    return true;
  }
  --pool.full;
  slab->releases = blocks_in_slab(bytes) - 1;
  open_slab(pool, slab);
  return false;
}

void release_small(void* block, Pool& pool, size_t bytes) noexcept {
  Slab* slab = slab_of(block);
  {
    Guard guard(pool.lock);
    link_of(block, bytes) = slab->free;
    slab->free = block;
    if (--slab->releases != 0 || !settle(pool, slab, bytes)) [[likely]]
      return;
  }
  leave_slab(slab);
}

void leave_empty_slab(Pool& pool) noexcept {
  Slab* slab = nullptr;
  {
    Guard guard(pool.lock);
    if (pool.current->releases != 1) return;
    slab = std::exchange(pool.current, &no_slab);
  }
  leave_slab(slab);
}

void count(Pool& pool, size_t bytes, Statistics& result) noexcept {
  Guard guard(pool.lock);
  uint64_t in_use = pool.full * blocks_in_slab(bytes);
  if (pool.current != &no_slab) in_use += pool.current->releases - 1;
  for (Slab* slab = pool.open; slab != nullptr; slab = slab->next) in_use += slab->releases;
  result.bytes_in_use += in_use * bytes;
  result.allocations += pool.allocations;
}

// --- big blocks ---

// The cache's lock is held, and a block of the class is cached.
void* from_cache(BigClass& owner, size_t bytes) noexcept {
  void* block = owner.free;
  owner.free = link_of(block, bytes);
  --owner.cached;
  owner.idle = std::min(owner.idle, owner.cached);
  cached_bytes -= bytes;
  return block;
}

// The same, for a block that goes back to the system.
Free* evict_one(BigClass& owner, size_t bytes, Free* evicted) noexcept {
  void* block = from_cache(owner, bytes);
  GEMEL_UNPOISON(block, sizeof(Free));
  return new (block) Free{evicted, bytes};
}

void* allocate_big(BigClass& owner, size_t bytes) noexcept {
  if (!take_footprint(bytes)) return nullptr;
  {
    Guard guard(cache_lock);
    ++owner.allocations;
    ++owner.in_use;
    allocated_bytes += bytes;
    if (owner.free != nullptr) return from_cache(owner, bytes);
  }
  void* block = pages::map(bytes, bytes >= pages::kHugeBytes ? pages::kHugeBytes : kAlignment);
  if (block != nullptr) return block;
  give_up_footprint(bytes);
  Guard guard(cache_lock);
  --owner.allocations;
  --owner.in_use;
  return nullptr;
}

// The cache's lock is held. Takes blocks out of the cache until at most `most` bytes are left;
// returns them chained in front of `evicted`.
Free* evict(uint64_t most, Free* evicted) noexcept {
  for (int step = 0; cached_bytes > most && step < kClasses; ++step) {
    eviction_class = (eviction_class + 1) % kClasses;
    const size_t bytes = class_bytes(eviction_class);
    BigClass& owner = big_classes[eviction_class];
    while (owner.free != nullptr && cached_bytes > most) evicted = evict_one(owner, bytes, evicted);
  }
  return evicted;
}

// The cache's lock is held. Looks for idle blocks if it is time to, and takes them out.
Free* evict_idle(Free* evicted) noexcept {
  const auto all = [] { return held.load(std::memory_order_relaxed) + cached_bytes; };
  if (allocated_bytes / kLooksAfter < all()) return evicted;
  allocated_bytes = 0;
  for (int index = kSmallClasses; index < kClasses; ++index) {
    BigClass& owner = big_classes[index];
    for (uint64_t left = owner.idle; left > 0 && all() > kLittleBytes; --left) {
      evicted = evict_one(owner, class_bytes(index), evicted);
    }
    owner.idle = owner.cached;
  }
  return evicted;
}

void release_big(void* block, BigClass& owner, size_t bytes) noexcept {
  give_up_footprint(bytes);
  const uint64_t most = most_cached();
  Free* evicted = nullptr;
  {
    Guard guard(cache_lock);
    --owner.in_use;
    if (bytes <= most) {
      evicted = evict(most - bytes, nullptr);
      link_of(block, bytes) = owner.free;
      owner.free = block;
      ++owner.cached;
      cached_bytes += bytes;
      evicted = evict_idle(evicted);
    } else {
      GEMEL_UNPOISON(block, sizeof(Free));
      evicted = new (block) Free{nullptr, bytes};
    }
  }
  discard(evicted);
}

// Of a block in use, only the requested bytes may be touched; of a free block only the link.
void open_block(void* block, size_t bytes, size_t asked) noexcept {
  GEMEL_POISON(block, bytes);
  GEMEL_UNPOISON(block, asked);
}

void close_block(void* block, size_t bytes) noexcept {
  GEMEL_POISON(block, bytes);
  GEMEL_UNPOISON(static_cast<char*>(block) + bytes - sizeof(void*), sizeof(void*));
}

void* take(int index, size_t rounded) noexcept {
  return index < kSmallClasses ? allocate_small(pools[index], rounded)
                               : allocate_big(big_classes[index], rounded);
}

}  // namespace

void* allocate(size_t bytes) noexcept {
  if (bytes > kMostBytes) return nullptr;
  const int index = class_of(bytes);
  const size_t rounded = class_bytes(index);
  void* block = take(index, rounded);
  if (block == nullptr) [[unlikely]] {  // the memory in the caches may be enough
    trim();
    block = take(index, rounded);
    if (block == nullptr) return nullptr;
  }
  open_block(block, rounded, bytes);
  return block;
}

void release(void* block, size_t bytes) noexcept {
  if (block == nullptr) return;
  const int index = class_of(bytes);
  const size_t rounded = class_bytes(index);
  close_block(block, rounded);
  if (index < kSmallClasses) {
    release_small(block, pools[index], rounded);
  } else {
    release_big(block, big_classes[index], rounded);
  }
}

Statistics statistics() noexcept {
  Statistics result;
  for (int index = 0; index < kSmallClasses; ++index) {
    count(pools[index], class_bytes(index), result);
  }
  Guard guard(cache_lock);
  for (int index = kSmallClasses; index < kClasses; ++index) {
    result.allocations += big_classes[index].allocations;
    result.bytes_in_use += big_classes[index].in_use * class_bytes(index);
  }
  result.peak_bytes = peak.load(std::memory_order_relaxed);
  result.bytes_cached = cached_bytes;
  return result;
}

uint64_t footprint() noexcept { return held.load(std::memory_order_relaxed); }

void reset_peak() noexcept { peak.store(held.load(std::memory_order_relaxed)); }

void trim() noexcept {
  for (Pool& pool : pools) leave_empty_slab(pool);
  Free* evicted = nullptr;
  {
    Guard guard(cache_lock);
    give_up_footprint(spares * kSlabBytes);
    spares = 0;
    evicted = evict(0, std::exchange(spare_slabs, nullptr));
  }
  discard(evicted);
}

void set_cache_limit(size_t bytes) noexcept {
  cache_limit.store(std::max<size_t>(bytes, 1), std::memory_order_relaxed);
  Free* evicted = nullptr;
  {
    Guard guard(cache_lock);
    evicted = evict(bytes, nullptr);
  }
  discard(evicted);
}

void set_limit(size_t bytes) noexcept { limit.store(bytes, std::memory_order_relaxed); }

void lock_for_fork() noexcept {
  for (Pool& pool : pools) pool.lock.lock();
  cache_lock.lock();
}

void unlock_after_fork() noexcept {
  cache_lock.unlock();
  for (Pool& pool : pools) pool.lock.unlock();
}

}  // namespace gemel::memory
