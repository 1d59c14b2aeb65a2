#include "memory/arena.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "memory/pages.h"

namespace gemel::memory {
namespace {

constexpr size_t kFirstRegionBytes = size_t{64} << 20;
constexpr size_t kMostGrowthBytes = size_t{16} << 30;

// Free pages are listed by their number: exactly up to 16, then in eight bins for each doubling.
constexpr uint32_t kExactPages = 16;
constexpr int kBins = 256;

constexpr int bin_of(uint32_t pages) noexcept {
  if (pages < kExactPages) return static_cast<int>(pages);
  const int log = std::bit_width(pages) - 1;
  return static_cast<int>(kExactPages) + (log - 4) * 8 + static_cast<int>((pages >> (log - 3)) & 7);
}

// A span of free pages or a block, known at its first and last page; `next` and `previous` are the
// first pages of others in the bin, plus 1.
struct Page {
  uint32_t pages;
  bool free;
  uint32_t next;
  uint32_t previous;
};

constexpr uint32_t kLargePages = 1024;
constexpr int kProbes = 8;  // spans of a bin that may be too small

constexpr size_t round_up(size_t bytes, size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

// At the front of the memory for its tables.
struct Region {
  char* base;
  uint32_t pages;
  Page* table;
  uint8_t* resident;  // for each page whether it takes memory
  std::array<uint64_t, kBins / 64> filled;
  std::array<uint32_t, kBins> heads;

  static size_t table_bytes(uint32_t pages) noexcept {
    return round_up(sizeof(Region) + pages * (sizeof(Page) + 1), kPageBytes);
  }

  void mark(uint32_t first, uint32_t count, bool free) noexcept {
    for (const uint32_t page : {first, first + count - 1}) {
      table[page].pages = count;
      table[page].free = free;
    }
  }

  void insert(uint32_t first, uint32_t count) noexcept {
    const int bin = bin_of(count);
    mark(first, count, true);
    table[first].previous = 0;
    table[first].next = heads[bin];
    if (heads[bin] != 0) table[heads[bin] - 1].previous = first + 1;
    heads[bin] = first + 1;
    filled[bin / 64] |= uint64_t{1} << (bin % 64);
  }

  void remove(uint32_t first) noexcept {
    const Page& page = table[first];
    const int bin = bin_of(page.pages);
    if (page.next != 0) table[page.next - 1].previous = page.previous;
    (page.previous != 0 ? table[page.previous - 1].next : heads[bin]) = page.next;
    if (heads[bin] == 0) filled[bin / 64] &= ~(uint64_t{1} << (bin % 64));
  }

  // Lists pages as free, joined with free ones before and behind them.
  void join(uint32_t first, uint32_t count) noexcept {
    const uint32_t behind = first + count;
    if (behind < pages && table[behind].free) {
      count += table[behind].pages;
      remove(behind);
    }
    if (first > 0 && table[first - 1].free) {
      count += table[first - 1].pages;
      first -= table[first - 1].pages;
      remove(first);
    }
    insert(first, count);
  }

  // The first page of a free span of at least `count` pages, plus 1.
  uint32_t find(uint32_t count) const noexcept {
    const int own = bin_of(count);
    uint32_t best = 0;
    uint32_t next = heads[own];
    for (int probe = 0; next != 0 && probe < kProbes; ++probe) {
      const Page& page = table[next - 1];
      if (page.pages >= count && (best == 0 || page.pages < table[best - 1].pages)) best = next;
      next = page.next;
    }
    if (best != 0) return best;
    const int from = own + 1;
    uint64_t word = filled[from / 64] & (~uint64_t{0} << (from % 64));
    for (int index = from / 64;; word = filled[index]) {
      if (word != 0) return heads[index * 64 + std::countr_zero(word)];
      if (++index == kBins / 64) return 0;
    }
  }

  // How many pages of a span lie before the end of the last one that takes memory.
  uint32_t touched(uint32_t first, uint32_t count) const noexcept {
    for (uint64_t eight = 0; count >= 8; count -= 8) {
      std::memcpy(&eight, resident + first + count - 8, 8);
      if (eight != 0) break;
    }
    while (count > 0 && resident[first + count - 1] == 0) --count;
    return count;
  }

  // The first page of a free span of which some takes memory, plus 1; large spans come first.
  uint32_t touched_span() const noexcept {
    for (int bin = kBins; bin-- > 0;) {
      for (uint32_t next = heads[bin]; next != 0; next = table[next - 1].next) {
        if (touched(next - 1, table[next - 1].pages) > 0) return next;
      }
    }
    return 0;
  }

  uint32_t residents(uint32_t first, uint32_t count) const noexcept {
    return static_cast<uint32_t>(std::count(resident + first, resident + first + count, 1));
  }
};

Region* Arena::region_of(const void* block) const noexcept {
  const auto* address = static_cast<const char*>(block);
  for (size_t index = 0;; ++index) {
    Region* region = regions_[index];
    if (address >= region->base && address < region->base + region->pages * kPageBytes)
      return region;
  }
}

// The lock is held. A system that refuses much may still give what is needed.
Region* Arena::add_region(size_t bytes) noexcept {
  if (count_ == kMostRegions) return nullptr;
  const size_t least = round_up(bytes, pages::kHugeBytes);
  size_t size = std::clamp(mapped_, kFirstRegionBytes, kMostGrowthBytes);
  size = std::max(size, least);
  void* base = pages::map(size, pages::kHugeBytes);
  if (base == nullptr && size > least) base = pages::map(size = least, pages::kHugeBytes);
  if (base == nullptr) return nullptr;
  const auto count = static_cast<uint32_t>(size / kPageBytes);
  void* tables = pages::map(Region::table_bytes(count), kPageBytes);
  if (tables == nullptr) {
    pages::unmap(base, size);
    return nullptr;
  }
  auto* region = new (tables) Region{};
  region->base = static_cast<char*>(base);
  region->pages = count;
  region->table = reinterpret_cast<Page*>(region + 1);
  region->resident = reinterpret_cast<uint8_t*>(region->table + count);
  std::memset(region->resident, 0, count);
  region->insert(0, count);
  regions_[count_++] = region;
  mapped_ += size;
  return region;
}

void Arena::count_cached(int64_t pages) noexcept {
  const size_t now = cached() + static_cast<size_t>(pages * static_cast<int64_t>(kPageBytes));
  cached_.store(now, std::memory_order_relaxed);
  if (now < idle()) idle_.store(now, std::memory_order_relaxed);
}

// The lock is held. Makes a block of the front of a free span. A large one is made of the end of
// what takes memory there, or if that is too small of the end of the span: so what is large stays
// together when small blocks between them live longer. Returns its first page.
uint32_t Arena::carve(Region& region, uint32_t span, uint32_t pages) noexcept {
  const uint32_t whole = region.table[span].pages;
  uint32_t before = 0;
  if (pages >= kLargePages) {
    const uint32_t touched = region.touched(span, whole);
    before = (touched >= pages ? touched : whole) - pages;
  }
  region.remove(span);
  if (before > 0) region.insert(span, before);
  if (whole > before + pages) region.insert(span + before + pages, whole - before - pages);
  region.mark(span + before, pages, false);
  return span + before;
}

void* Arena::allocate(size_t bytes) noexcept {
  const auto pages = static_cast<uint32_t>(bytes / kPageBytes);
  char* block = nullptr;
  uint32_t fresh = 0;
  {
    Guard guard(lock_);
    Region* region = nullptr;
    uint32_t found = 0;
    for (size_t index = 0; index < count_ && found == 0; ++index) {
      region = regions_[index];
      found = region->find(pages);
    }
    if (found == 0) {
      region = add_region(bytes);
      if (region == nullptr) return nullptr;
      found = 1;
    }
    const uint32_t first = carve(*region, found - 1, pages);
    block = region->base + first * kPageBytes;
    const uint32_t resident = region->residents(first, pages);
    fresh = pages - resident;
    std::memset(region->resident + first, 1, pages);
    count_cached(-static_cast<int64_t>(resident));
  }
  if (fresh * kPageBytes >= pages::kHugeBytes) pages::request_huge(block, bytes);
  return block;
}

void Arena::release(void* block, size_t bytes) noexcept {
  const auto pages = static_cast<uint32_t>(bytes / kPageBytes);
  Guard guard(lock_);
  Region& region = *region_of(block);
  const auto first = static_cast<uint32_t>((static_cast<char*>(block) - region.base) / kPageBytes);
  region.join(first, pages);
  count_cached(pages);
}

// --- giving back ---

// Takes one span of free pages, or its end, out of the lists, gives its memory back, and lists it
// again. Later regions and larger spans come first. Returns how many bytes that were, or 0.
size_t Arena::take_out(size_t most) noexcept {
  Region* region = nullptr;
  uint32_t first = 0;
  uint32_t count = 0;
  {
    Guard guard(lock_);
    if (cached() <= most) return 0;
    uint32_t span = 0;
    for (size_t index = count_; index-- > 0 && span == 0;) {
      region = regions_[index];
      span = region->touched_span();
    }
    if (span == 0) return 0;
    const uint32_t whole = region->table[--span].pages;
    const uint32_t touched = region->touched(span, whole);
    const auto wanted = static_cast<uint32_t>(round_up(cached() - most, kPageBytes) / kPageBytes);
    count = std::min(wanted, touched);
    first = span + touched - count;
    region->remove(span);
    if (first > span) region->insert(span, first - span);
    if (whole > touched) region->insert(span + touched, whole - touched);
    region->mark(first, count, false);
    count_cached(-static_cast<int64_t>(region->residents(first, count)));
    std::memset(region->resident + first, 0, count);
  }
  pages::give_back(region->base + first * kPageBytes, count * kPageBytes);
  Guard guard(lock_);
  region->join(first, count);
  return count * kPageBytes;
}

void Arena::drop_empty_regions() noexcept {
  Guard guard(lock_);
  size_t kept = 0;
  for (size_t index = 0; index < count_; ++index) {
    Region* region = regions_[index];
    if (!region->table[0].free || region->table[0].pages != region->pages) {
      regions_[kept++] = region;
      continue;
    }
    const size_t bytes = region->pages * kPageBytes;
    count_cached(-static_cast<int64_t>(region->residents(0, region->pages)));
    mapped_ -= bytes;
    pages::unmap(region->base, bytes);
    pages::unmap(region, Region::table_bytes(region->pages));
  }
  count_ = kept;
}

void Arena::shrink(size_t most) noexcept {
  while (take_out(most) > 0) {
  }
  if (most == 0) drop_empty_regions();
}

}  // namespace gemel::memory
