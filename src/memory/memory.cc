#include "memory/memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>

#include "memory/lock.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <unistd.h>

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

// Classes: every 64 bytes up to 1 KiB, then four a doubling (at most a quarter is wasted).
constexpr size_t kFineBytes = 1024;
constexpr int kFineClasses = kFineBytes / kAlignment;
constexpr int kFineLog = 10;
constexpr int kMostLog = 46;
constexpr int kClasses = kFineClasses + (kMostLog - kFineLog + 1) * 4;
constexpr size_t kMostBytes = size_t{1} << kMostLog;
constexpr size_t kSlabBytes =
    256 * 1024;  // small blocks are cut from slabs, which are never given back
constexpr size_t kSmallBytes = 32 * 1024;  // bigger ones come one by one
constexpr size_t kHugePage =
    2 * 1024 * 1024;  // from here on, ask for huge pages: faults cost 0.1 us/KiB

int class_of(size_t bytes) noexcept {
  if (bytes <= kFineBytes) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / kAlignment);
  const size_t last = bytes - 1;
  const int log = std::bit_width(last) - 1;
  return kFineClasses + (log - kFineLog) * 4 + static_cast<int>((last >> (log - 2)) & 3);
}

size_t class_bytes(int index) noexcept {
  if (index < kFineClasses) return (index + 1) * kAlignment;
  const int log = kFineLog + (index - kFineClasses) / 4;
  return static_cast<size_t>(4 + (index - kFineClasses) % 4 + 1) << (log - 2);
}

// Free blocks are chained through their last word, which alone stays unpoisoned: a stale reader
// most likely touches the front, and the leak checker follows pointers in unpoisoned memory only.
void*& link_of(void* block, size_t bytes) noexcept {
  return *reinterpret_cast<void**>(static_cast<char*>(block) + bytes - sizeof(void*));
}

struct alignas(64) Pool {
  Lock lock;
  void* free = nullptr;
  char* fresh = nullptr;  // what is left of the newest slab
  char* fresh_end = nullptr;
  uint64_t allocations = 0;
  uint64_t in_use = 0;  // blocks
};

Pool pools[kClasses];
Lock cache_lock;  // of the big classes' free lists and of the next two
uint64_t cached_bytes = 0;
int eviction_class = 0;         // goes round, so that no size is favoured
std::atomic<uint64_t> held{0};  // slabs and big blocks in use
std::atomic<uint64_t> peak{0};
std::atomic<uint64_t> limit{~uint64_t{0}};
std::atomic<uint64_t> cache_limit{0};  // 0: not set yet

uint64_t default_cache_limit() noexcept {
  const uint64_t ram = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min<uint64_t>(uint64_t{1} << 30, ram / 8);
}

uint64_t most_cached() noexcept {
  uint64_t most = cache_limit.load(std::memory_order_relaxed);
  if (most == 0) {
    most = default_cache_limit();
    cache_limit.store(most, std::memory_order_relaxed);
  }
  return most;
}

bool take_footprint(size_t bytes) noexcept {
  const uint64_t now = held.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (now > limit.load(std::memory_order_relaxed)) {
    held.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  uint64_t before = peak.load(std::memory_order_relaxed);
  while (now > before && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {
  }
  return true;
}

void* system_block(size_t bytes) noexcept {
  const size_t alignment = bytes >= kHugePage ? kHugePage : 4096;
  const size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* block = nullptr;
  if (posix_memalign(&block, alignment, rounded) != 0) return nullptr;
#if defined(__linux__)
  if (bytes >= kHugePage) madvise(block, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return block;
}

// The pool's lock is held. Null when out of memory.
void* cut_small(Pool& pool, size_t bytes) noexcept {
  if (static_cast<size_t>(pool.fresh_end - pool.fresh) < bytes) {
    if (!take_footprint(kSlabBytes)) return nullptr;
    char* slab = static_cast<char*>(system_block(kSlabBytes));
    if (slab == nullptr) {
      held.fetch_sub(kSlabBytes, std::memory_order_relaxed);
      return nullptr;
    }
    GEMEL_POISON(slab, kSlabBytes);
    pool.fresh = slab;
    pool.fresh_end = slab + kSlabBytes;
  }
  char* block = pool.fresh;
  pool.fresh += bytes;
  return block;
}

void* allocate_small(int index, size_t bytes) noexcept {
  Pool& pool = pools[index];
  Guard guard(pool.lock);
  void* block = pool.free;
  if (block != nullptr) {
    pool.free = link_of(block, bytes);
  } else {
    block = cut_small(pool, bytes);
    if (block == nullptr) return nullptr;
  }
  ++pool.allocations;
  ++pool.in_use;
  return block;
}

void* cached_block(int index, size_t bytes) noexcept {
  Guard guard(cache_lock);
  void* block = pools[index].free;
  if (block == nullptr) return nullptr;
  pools[index].free = link_of(block, bytes);
  cached_bytes -= bytes;
  return block;
}

void* allocate_big(int index, size_t bytes) noexcept {
  if (!take_footprint(bytes)) return nullptr;
  void* block = cached_block(index, bytes);
  if (block == nullptr) block = system_block(bytes);
  if (block == nullptr) {  // what we hoard may be what is missing
    trim();
    block = system_block(bytes);
  }
  if (block == nullptr) {
    held.fetch_sub(bytes, std::memory_order_relaxed);
    return nullptr;
  }
  Guard guard(pools[index].lock);
  ++pools[index].allocations;
  ++pools[index].in_use;
  return block;
}

// The cache's lock is held. Takes blocks out until `most` bytes are left, chained through
// `evicted`.
void evict(uint64_t most, void*& evicted) noexcept {
  for (int step = 0; cached_bytes > most && step < kClasses; ++step) {
    eviction_class = (eviction_class + 1) % kClasses;
    const size_t bytes = class_bytes(eviction_class);
    Pool& pool = pools[eviction_class];
    while (bytes > kSmallBytes && pool.free != nullptr && cached_bytes > most) {
      void* block = pool.free;
      pool.free = link_of(block, bytes);
      cached_bytes -= bytes;
      GEMEL_UNPOISON(block, bytes);
      *static_cast<void**>(block) = evicted;
      evicted = block;
    }
  }
}

void give_back(void* evicted) noexcept {
  while (evicted != nullptr) {
    void* next = *static_cast<void**>(evicted);
    std::free(evicted);
    evicted = next;
  }
}

void release_big(void* block, int index, size_t bytes) noexcept {
  held.fetch_sub(bytes, std::memory_order_relaxed);
  {
    Guard guard(pools[index].lock);
    --pools[index].in_use;
  }
  const uint64_t most = most_cached();
  if (bytes > most) {
    GEMEL_UNPOISON(block, bytes);
    std::free(block);
    return;
  }
  void* evicted = nullptr;
  {
    Guard guard(cache_lock);
    evict(most - bytes, evicted);
    link_of(block, bytes) = pools[index].free;
    pools[index].free = block;
    cached_bytes += bytes;
  }
  give_back(evicted);
}

// Only what was asked for may be touched, and of a free block only the link.
void open_block([[maybe_unused]] void* block, [[maybe_unused]] size_t asked) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  const size_t bytes = class_bytes(class_of(asked));
  GEMEL_POISON(block, bytes);
  GEMEL_UNPOISON(block, asked);
#endif
}

void close_block([[maybe_unused]] void* block, [[maybe_unused]] size_t bytes) noexcept {
  GEMEL_POISON(block, bytes);
  GEMEL_UNPOISON(static_cast<char*>(block) + bytes - sizeof(void*), sizeof(void*));
}

}  // namespace

void* allocate(size_t bytes) noexcept {
  if (bytes > kMostBytes) return nullptr;
  const int index = class_of(bytes);
  const size_t rounded = class_bytes(index);
  void* block =
      rounded <= kSmallBytes ? allocate_small(index, rounded) : allocate_big(index, rounded);
  if (block != nullptr) open_block(block, bytes);
  return block;
}

void release(void* block, size_t bytes) noexcept {
  if (block == nullptr) return;
  const int index = class_of(bytes);
  const size_t rounded = class_bytes(index);
  close_block(block, rounded);
  if (rounded > kSmallBytes) {
    release_big(block, index, rounded);
    return;
  }
  Pool& pool = pools[index];
  Guard guard(pool.lock);
  link_of(block, rounded) = pool.free;
  pool.free = block;
  --pool.in_use;
}

Statistics statistics() noexcept {
  Statistics result;
  for (int index = 0; index < kClasses; ++index) {
    Guard guard(pools[index].lock);
    result.allocations += pools[index].allocations;
    result.bytes_in_use += pools[index].in_use * class_bytes(index);
  }
  result.peak_bytes = peak.load(std::memory_order_relaxed);
  Guard guard(cache_lock);
  result.bytes_cached = cached_bytes;
  return result;
}

uint64_t footprint() noexcept { return held.load(std::memory_order_relaxed); }

void reset_peak() noexcept { peak.store(held.load(std::memory_order_relaxed)); }

void trim() noexcept {
  void* evicted = nullptr;
  {
    Guard guard(cache_lock);
    evict(0, evicted);
  }
  give_back(evicted);
}

void set_cache_limit(size_t bytes) noexcept {
  cache_limit.store(std::max<size_t>(bytes, 1), std::memory_order_relaxed);
  void* evicted = nullptr;
  {
    Guard guard(cache_lock);
    evict(bytes, evicted);
  }
  give_back(evicted);
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
