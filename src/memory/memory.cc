#include "memory/memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "memory/arena.h"
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

// Size classes of small blocks: every 64 bytes up to 1 KiB, then four for each doubling (so at most
// a quarter is wasted).
constexpr size_t kFineBytes = 1024;
constexpr int kFineClasses = kFineBytes / kAlignment;
constexpr int kFineLog = 10;
constexpr size_t kMostBytes = size_t{1} << 42;

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

// Small blocks are cut from slabs; bigger ones are whole pages of the arena.
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

struct Free {  // at the front of a slab that is free or about to go back to the system
  Free* next;
};

// Memory that was cached all the time while this many times the memory held was allocated goes back
// to the system, if more than a little is held. What comes back once in a while is a small part of
// what is done in between.
constexpr uint64_t kLooksAfter = 4;
constexpr uint64_t kLittleBytes = uint64_t{64} << 20;

Arena arena;
std::atomic<uint64_t> big_blocks{0};       // allocated so far
std::atomic<uint64_t> big_bytes{0};        // in use
std::atomic<uint64_t> allocated_bytes{0};  // in big blocks since the last look for idle memory
Lock spare_lock;                           // guards the next two variables
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

void discard(Free* slabs) noexcept {
  while (slabs != nullptr) {
    Free* next = slabs->next;
    pages::unmap(slabs, kSlabBytes);
    slabs = next;
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
  Guard guard(spare_lock);
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
  Free* spare = new (slab) Free{nullptr};
  {
    Guard guard(spare_lock);
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

void* allocate_big(size_t bytes) noexcept {
  if (!take_footprint(bytes)) return nullptr;
  void* block = arena.allocate(bytes);
  if (block == nullptr) {
    give_up_footprint(bytes);
    return nullptr;
  }
  big_blocks.fetch_add(1, std::memory_order_relaxed);
  big_bytes.fetch_add(bytes, std::memory_order_relaxed);
  allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return block;
}

// Gives idle memory back if it is time to look for it.
void give_idle_back() noexcept {
  const uint64_t all = held.load(std::memory_order_relaxed) + arena.cached();
  if (allocated_bytes.load(std::memory_order_relaxed) / kLooksAfter < all) return;
  allocated_bytes.store(0, std::memory_order_relaxed);
  const uint64_t idle = std::min<uint64_t>(arena.idle(), all - std::min(all, kLittleBytes));
  if (idle > 0) arena.shrink(std::max<uint64_t>(arena.cached(), idle + 1) - idle);
  arena.forget_idle();
}

void release_big(void* block, size_t bytes) noexcept {
  give_up_footprint(bytes);
  big_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  arena.release(block, bytes);
  const uint64_t most = most_cached();
  if (arena.cached() > most) arena.shrink(most);
  give_idle_back();
}

// Of a block in use, only the requested bytes may be touched; of a free block only the link.
void open_block(void* block, size_t bytes, size_t asked) noexcept {
  GEMEL_POISON(block, bytes);
  GEMEL_UNPOISON(block, asked);
}

void close_block(void* block, size_t bytes, bool small) noexcept {
  GEMEL_POISON(block, bytes);
  if (small) {
    GEMEL_UNPOISON(static_cast<char*>(block) + bytes - sizeof(void*), sizeof(void*));
  }
}

// The bytes of a block: those of its size class, or whole pages.
constexpr size_t rounded(size_t bytes) noexcept {
  if (bytes <= kSmallBytes) return class_bytes(class_of(bytes));
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void* take(size_t bytes) noexcept {
  if (bytes > kSmallBytes) return allocate_big(rounded(bytes));
  return allocate_small(pools[class_of(bytes)], rounded(bytes));
}

}  // namespace

void* allocate(size_t bytes) noexcept {
  if (bytes > kMostBytes) return nullptr;
  void* block = take(bytes);
  if (block == nullptr) [[unlikely]] {  // the memory in the caches may be enough
    trim();
    block = take(bytes);
    if (block == nullptr) return nullptr;
  }
  open_block(block, rounded(bytes), bytes);
  return block;
}

void release(void* block, size_t bytes) noexcept {
  if (block == nullptr) return;
  const bool small = bytes <= kSmallBytes;
  close_block(block, rounded(bytes), small);
  if (small) {
    release_small(block, pools[class_of(bytes)], rounded(bytes));
  } else {
    release_big(block, rounded(bytes));
  }
}

Statistics statistics() noexcept {
  Statistics result;
  for (int index = 0; index < kSmallClasses; ++index) {
    count(pools[index], class_bytes(index), result);
  }
  result.allocations += big_blocks.load(std::memory_order_relaxed);
  result.bytes_in_use += big_bytes.load(std::memory_order_relaxed);
  result.peak_bytes = peak.load(std::memory_order_relaxed);
  result.bytes_cached = arena.cached();
  return result;
}

uint64_t footprint() noexcept { return held.load(std::memory_order_relaxed); }

void reset_peak() noexcept { peak.store(held.load(std::memory_order_relaxed)); }

void trim() noexcept {
  for (Pool& pool : pools) leave_empty_slab(pool);
  Free* slabs = nullptr;
  {
    Guard guard(spare_lock);
    give_up_footprint(spares * kSlabBytes);
    spares = 0;
    slabs = std::exchange(spare_slabs, nullptr);
  }
  discard(slabs);
  arena.shrink(0);
}

void set_cache_limit(size_t bytes) noexcept {
  cache_limit.store(std::max<size_t>(bytes, 1), std::memory_order_relaxed);
  arena.shrink(std::max<size_t>(bytes, 1));
}

void set_limit(size_t bytes) noexcept { limit.store(bytes, std::memory_order_relaxed); }

void lock_for_fork() noexcept {
  for (Pool& pool : pools) pool.lock.lock();
  spare_lock.lock();
  arena.lock().lock();
}

void unlock_after_fork() noexcept {
  arena.lock().unlock();
  spare_lock.unlock();
  for (Pool& pool : pools) pool.lock.unlock();
}

}  // namespace gemel::memory
