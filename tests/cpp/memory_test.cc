// Checks the promises of the memory pool and of machine.h. The exit status is 1 when one is broken.

#include "memory/memory.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "memory/machine.h"
#include "memory/pages.h"

namespace {

namespace memory = gemel::memory;
namespace machine = gemel::machine;

constexpr size_t kSmallBytes = 32 * 1024;
constexpr size_t kReserveBytes = 20'000'000;

uint64_t resident_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// A block filled with bytes that show whether anything else has been written into it.
class Block {
 public:
  Block() = default;
  Block(size_t bytes, unsigned char mark)
      : data_(static_cast<unsigned char*>(memory::allocate(bytes))), bytes_(bytes), mark_(mark) {
    if (data_ != nullptr && bytes > 0) std::memset(data_, mark, bytes);
  }
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mark_, other.mark_);
    return *this;
  }
  ~Block() { memory::release(data_, bytes_); }

  bool there() const { return data_ != nullptr; }
  const void* address() const { return data_; }
  bool sound() const {
    const bool aligned = reinterpret_cast<uintptr_t>(data_) % memory::kAlignment == 0;
    return aligned && std::all_of(data_, data_ + (there() ? bytes_ : 0),
                                  [this](unsigned char byte) { return byte == mark_; });
  }

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
  unsigned char mark_ = 0;
};

// Mostly tens of bytes to a few KiB, like the sizes of arrays.
size_t random_bytes(std::mt19937& random, size_t most) {
  const double exponent = std::uniform_real_distribution<>(0, 1)(random);
  return static_cast<size_t>(std::pow(static_cast<double>(most) + 1, exponent)) - 1;
}

// --- contents ---

struct Slot {  // any thread may put a block here and release the one it finds
  std::atomic_flag busy;
  Block block;
};

void blocks_belong_to_one_owner() {
  const uint64_t before = memory::statistics().bytes_in_use;
  static std::array<Slot, 500> slots;
  std::atomic<bool> sound = true;
  const auto work = [&sound](unsigned seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < (kSanitized ? 10'000 : 200'000); ++step) {
      Slot& slot = slots[random() % slots.size()];
      if (slot.busy.test_and_set(std::memory_order_acquire)) continue;
      const size_t most = step % 50 == 0 ? 4'000'000 : 3 * kSmallBytes;
      Block taken(step % 3 == 0 ? 0 : random_bytes(random, most), static_cast<unsigned char>(step));
      std::swap(taken, slot.block);
      slot.busy.clear(std::memory_order_release);
      if (!taken.sound()) sound = false;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  for (Slot& slot : slots) {
    if (!slot.block.sound()) sound = false;
    slot.block = Block();
  }
  check(sound, "a block keeps its content, and any thread may release it");
  check(memory::statistics().bytes_in_use == before, "bytes in use are counted");
}

// --- giving back ---

void small_memory_comes_back() {
  memory::trim();
  const uint64_t held = memory::footprint();
  const uint64_t resident = resident_bytes();
  std::mt19937 random(1);
  std::vector<Block> alive(20'000);
  for (int step = 0; step < (kSanitized ? 100'000 : 1'000'000); ++step) {
    alive[random() % alive.size()] = Block(64 + random() % (kSmallBytes - 63), 1);
  }
  check(memory::footprint() > held + 100'000'000, "the footprint counts the slabs of small blocks");
  std::shuffle(alive.begin(), alive.end(), random);
  alive.clear();
  check(memory::footprint() < held + kReserveBytes, "empty slabs are given back");
  if (!kSanitized) {  // a sanitizer's own memory is resident, too
    check(resident_bytes() < resident + kReserveBytes, "empty slabs are not resident");
  }
  memory::trim();
  check(memory::footprint() == held, "trim gives all free memory back");
}

void slabs_serve_any_class() {
  memory::trim();
  memory::reset_peak();
  const uint64_t held = memory::footprint();
  for (size_t bytes = 64; bytes <= kSmallBytes; bytes += 1000) {
    std::vector<Block> alive;
    for (size_t total = 0; total < 30'000'000; total += bytes) alive.emplace_back(bytes, 1);
  }
  check(memory::statistics().peak_bytes < held + 30'000'000 * 3 / 2 + kReserveBytes,
        "a size class reuses the slabs of others");
}

void one_live_block_keeps_one_slab() {
  memory::trim();
  const uint64_t held = memory::footprint();
  std::vector<Block> alive;
  for (int index = 0; index < 100'000; ++index) alive.emplace_back(1000, 1);
  Block last = std::move(alive[50'000]);
  alive.clear();
  memory::trim();
  const uint64_t kept = memory::footprint() - held;
  check(kept > 0 && kept <= 256 * 1024, "a live block keeps only its own slab");
  check(last.sound(), "a live block keeps its content");
}

void big_blocks_are_cached_up_to_a_bound() {
  constexpr size_t kBytes = 1 << 20;
  memory::trim();
  memory::set_cache_limit(3 * kBytes);
  const void* address = nullptr;
  {
    std::vector<Block> alive;
    for (int index = 0; index < 8; ++index) alive.emplace_back(kBytes, 1);
    Block larger(4 * kBytes, 1);
    address = alive.front().address();
    std::swap(alive.front(), alive.back());
  }
  check(memory::statistics().bytes_cached == 3 * kBytes, "the cache is filled up to its limit");
  check(Block(kBytes, 2).address() == address, "the block released last is used first");
  memory::trim();
  check(memory::statistics().bytes_cached == 0, "trim empties the cache");
  memory::set_cache_limit(size_t{1} << 30);
}

void any_bound_of_the_cache_will_do() {
  constexpr size_t kBytes = 1 << 17;
  for (const size_t bound : {size_t{1}, size_t{4095}, size_t{4097}, 3 * kBytes + 1}) {
    memory::set_cache_limit(bound);
    std::vector<Block> alive;
    for (int index = 0; index < 40; ++index) {
      alive.emplace_back(kBytes + 1000 * index, static_cast<unsigned char>(index));
      if (index % 3 == 2) alive.erase(alive.begin());
    }
    check(memory::statistics().bytes_cached <= bound, "the cache is not larger than its limit");
    for (const Block& block : alive) check(block.sound(), "blocks keep their content meanwhile");
  }
  memory::set_cache_limit(size_t{1} << 30);
  memory::trim();
}

void idle_blocks_go_back() {
  constexpr size_t kBytes = 1 << 20;
  const auto cached = [] { return memory::statistics().bytes_cached; };
  memory::trim();
  {
    std::vector<Block> alive;
    for (int index = 0; index < 100; ++index) alive.emplace_back(kBytes, 1);
  }
  // Those that are needed again and again stay.
  const auto use = [&](size_t bytes, int count) {
    for (int turn = 0; turn < count; ++turn) {
      std::vector<Block> alive;
      for (int index = 0; index < 80; ++index) alive.emplace_back(bytes, 2);
    }
  };
  use(kBytes, 100);
  check(cached() == 80 * kBytes, "what was idle goes back, and the rest stays");
  use(2 * kBytes, 100);
  check(cached() == 160 * kBytes, "blocks of another size that are idle go back");
  use(kBytes / 2, 200);
  check(cached() > 60 * kBytes && cached() <= 66 * kBytes, "a little is kept, used or not");
  memory::trim();
}

void free_memory_is_joined_and_divided() {
  constexpr size_t kBytes = 1 << 20;
  const auto cached = [] { return memory::statistics().bytes_cached; };
  memory::trim();
  std::vector<Block> alive;
  for (int index = 0; index < 64; ++index) alive.emplace_back(kBytes, 1);
  const uint64_t resident = resident_bytes();
  std::mt19937 random(5);
  std::shuffle(alive.begin(), alive.end(), random);
  alive.clear();
  check(cached() == 64 * kBytes, "released blocks are cached");
  Block whole(64 * kBytes, 2);
  check(cached() == 0 && whole.sound(), "a large block takes the place of small ones");
  whole = Block();
  for (int index = 0; index < 128; ++index) alive.emplace_back(kBytes / 2, 3);
  check(cached() == 0, "small blocks take the place of a large one");
  if (!kSanitized) {
    check(resident_bytes() < resident + kReserveBytes, "neither needs more memory");
  }
  alive.clear();
  memory::trim();
}

void other_sizes_need_little_more_memory() {
  memory::trim();
  memory::reset_peak();
  const uint64_t held = memory::footprint();
  std::mt19937 random(6);
  uint64_t kept = 0;
  for (int phase = 0; phase < 20; ++phase) {  // of a program, each with sizes of its own
    const size_t bytes = 50'000 + random() % 8'000'000;
    std::vector<Block> alive(kSanitized ? 10 : 100'000'000 / bytes);
    for (size_t step = 0; step < 10 * alive.size(); ++step) {
      alive[random() % alive.size()] = Block(bytes + random() % (bytes / 2), 1);
    }
    kept = std::max(kept, memory::footprint() + memory::statistics().bytes_cached - held);
  }
  const uint64_t used = memory::statistics().peak_bytes - held;
  check(kept < used + used / 2 + kReserveBytes, "sizes that are no longer needed keep no memory");
  memory::trim();
}

// --- no memory ---

void impossible_sizes_are_refused() {
  for (const size_t bytes : {size_t{1} << 47, size_t{1} << 63, ~size_t{0}, ~size_t{0} - 4096}) {
    check(memory::allocate(bytes) == nullptr, "an impossible size is refused");
  }
  Block first(0, 0);
  Block second(0, 0);
  check(first.there() && first.address() != second.address(),
        "empty blocks have addresses of their own");
  memory::release(nullptr, 100);
}

// Allocates blocks until there is no memory left. Returns how many bytes it got.
size_t exhaust(std::vector<Block>& alive, size_t bytes) {
  size_t taken = 0;
  for (Block block(bytes, 3); block.there(); block = Block(bytes, 3)) {
    alive.push_back(std::move(block));
    taken += bytes;
    block = Block();
  }
  return taken;
}

void the_limit_holds() {
  constexpr size_t kMore = 10'000'000;
  memory::trim();
  const uint64_t in_use = memory::statistics().bytes_in_use;
  memory::set_limit(memory::footprint() + kMore);
  for (const size_t bytes : {size_t{100'000}, size_t{100}, size_t{5000}, kSmallBytes}) {
    std::vector<Block> alive;
    const size_t taken = exhaust(alive, bytes);
    check(taken <= kMore && taken > kMore / 2, "all free memory can be had, and no more");
    check(!Block(kMore, 1).there(), "at the limit a large block is refused");
  }
  check(Block(kMore / 2, 1).there(), "empty slabs do not count against the limit");
  memory::set_limit(~size_t{0});
  check(memory::statistics().bytes_in_use == in_use, "refused blocks are not counted as in use");
}

void the_system_may_refuse() {
  if (kSanitized) return;  // sanitizers reserve more address space than any limit
  memory::trim();
  const uint64_t held = memory::footprint();
  std::vector<Block> alive;
  alive.reserve(2'000'000);
  rlimit old{};
  getrlimit(RLIMIT_AS, &old);
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit less = old;
  less.rlim_cur = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + 100'000'000;
  setrlimit(RLIMIT_AS, &less);
  for (const size_t bytes : {size_t{200}, kSmallBytes, size_t{3'000'000}}) {
    check(exhaust(alive, bytes) > 20'000'000, "some memory can be had below the limit");
    const bool sound =
        std::all_of(alive.begin(), alive.end(), [](const Block& block) { return block.sound(); });
    check(sound, "a refusal leaves other blocks intact");
    alive.clear();
  }
  setrlimit(RLIMIT_AS, &old);
  memory::trim();
  check(memory::footprint() == held, "blocks refused by the system are not counted");
}

// --- forks ---

#if !defined(__SANITIZE_THREAD__)

// The exit status of a child that uses its own blocks and an inherited one.
int forked(Block& inherited) {
  memory::lock_for_fork();
  const pid_t child = fork();
  memory::unlock_after_fork();
  if (child != 0) {
    int status = 1;
    waitpid(child, &status, 0);
    return status;
  }
  bool sound = inherited.sound();
  inherited = Block();
  std::mt19937 random(7);
  std::vector<Block> alive(100);
  for (int step = 0; step < 2000; ++step) {
    Block& block = alive[random() % alive.size()];
    sound = sound && block.sound();
    block = Block(random_bytes(random, 3 * kSmallBytes), static_cast<unsigned char>(step));
  }
  _exit(sound ? 0 : 1);
}

void children_find_the_memory_in_order() {
  std::atomic<bool> over = false;
  std::atomic<int> wrong = 0;
  const auto busy = [&over] {
    while (!over) {
      for (const size_t bytes : {size_t{100}, 2 * kSmallBytes}) {
        memory::release(memory::allocate(bytes), bytes);
      }
    }
  };
  const auto forking = [&wrong](unsigned char mark) {
    for (int round = 0; round < 20; ++round) {
      Block inherited(1000, mark);
      if (forked(inherited) != 0) ++wrong;
      if (!inherited.sound()) ++wrong;
    }
  };
  std::thread computing(busy);
  std::thread first(forking, 1);
  std::thread second(forking, 2);
  first.join();
  second.join();
  over = true;
  computing.join();
  check(wrong == 0, "children have usable memory if other threads allocate and fork");
}

#endif

// --- the machine ---

// A folder with invented control groups.
class Groups {
 public:
  Groups() {
    std::string name = (std::filesystem::temp_directory_path() / "groups-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    root_ = name;
  }
  ~Groups() { std::filesystem::remove_all(root_); }
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  Groups& file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
    return *this;
  }
  machine::Limits read() const {
    return machine::read((root_ / "self").c_str(), (root_ / "groups").c_str());
  }

 private:
  std::filesystem::path root_;
};

bool is(const machine::Limits& found, double cores, uint64_t bytes) {
  return found.cores == cores && found.memory_bytes == bytes;
}

constexpr double kAnyCores = machine::Limits().cores;
constexpr uint64_t kAnyBytes = machine::Limits().memory_bytes;

void groups_of_version_2() {
  Groups groups;
  check(is(groups.read(), kAnyCores, kAnyBytes), "without files there is no limit");
  groups.file("self", "0::/a/b\n").file("groups/a/b/cpu.max", "150000 100000\n");
  check(is(groups.read(), 1.5, kAnyBytes), "a group's quota limits the cores");
  groups.file("groups/a/memory.max", "1000000\n").file("groups/a/b/memory.max", "max\n");
  check(is(groups.read(), 1.5, 1'000'000), "the parent group's memory limit counts");
  groups.file("groups/cpu.max", "50000 100000").file("groups/memory.max", "70000");
  check(is(groups.read(), 0.5, 70'000), "the top group's limits count");
  groups.file("groups/a/cpu.max", "max 100000\n").file("groups/a/b/memory.max", "60000\n");
  check(is(groups.read(), 0.5, 60'000), "the lowest limit counts");
}

void groups_of_version_1() {
  Groups groups;
  groups.file("self", "5:memory:/box/x\n4:cpu,cpuacct:/box/x\n1:name=systemd:/box/x\n0::/\n");
  groups.file("groups/cpu/box/x/cpu.cfs_quota_us", "-1\n")
      .file("groups/cpu/box/x/cpu.cfs_period_us", "100000\n")
      .file("groups/memory/box/x/memory.limit_in_bytes", "9223372036854771712\n");
  check(is(groups.read(), kAnyCores, 9223372036854771712U), "a quota of minus one is no limit");
  groups.file("groups/cpu/box/cpu.cfs_quota_us", "320000\n")
      .file("groups/cpu/box/cpu.cfs_period_us", "100000\n")
      .file("groups/memory/memory.limit_in_bytes", "500\n");
  check(is(groups.read(), 3.2, 500), "limits of parent groups count");
  groups.file("self", "5:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n");
  check(is(groups.read(), kAnyCores, 500),
        "in a container the group it sees at the top is its own");
  groups.file("groups/unified/z/memory.max", "400").file("self", "5:memory:/\n0::/z\n");
  check(is(groups.read(), kAnyCores, 400), "both versions can be used side by side");
}

void nonsense_limits_nothing() {
  for (const char* self :
       {"", "0::", "0::a", "::", "0", "\n\n:::\n", "0::/../../x", "0::///", "4:cpu"}) {
    Groups groups;
    groups.file("self", self);
    for (const char* content :
         {"", "\n", "max", "-5", "0", "0 0", "0 100000", "x y", "nan nan", "inf"}) {
      groups.file("groups/cpu.max", content).file("groups/memory.max", content);
      groups.file("groups/cpu/cpu.cfs_quota_us", content);
      check(is(groups.read(), kAnyCores, kAnyBytes), "a nonsensical file sets no limit");
    }
  }
  Groups folders;
  folders.file("self/x", "").file("groups/cpu.max/x", "");
  check(is(folders.read(), kAnyCores, kAnyBytes), "folders in place of files set no limit");
}

void the_machine_is_not_larger_than_it_is() {
  const int cores = machine::cores();
  check(cores >= 1 && cores <= sysconf(_SC_NPROCESSORS_CONF),
        "the number of cores is that of the machine or less");
  const uint64_t ram = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  check(machine::memory_bytes() > 0 && machine::memory_bytes() <= ram,
        "the memory is that of the machine or less");
}

void slow_huge_pages_are_not_requested_for_a_while() {
  using gemel::pages::HugePages;
  using std::chrono::milliseconds;
  HugePages pages;
  for (int block = 0; block < 100; ++block) {
    check(pages.are_wanted() && pages.is_fast(milliseconds(0)), "fast huge pages are requested");
  }
  for (int round = 0; round < 3; ++round) {
    check(pages.are_wanted() && !pages.is_fast(milliseconds(4)), "huge pages are tried again");
    for (int block = 0; block < HugePages::kPause; ++block) {
      check(!pages.are_wanted(), "slow huge pages are not requested for a while");
    }
  }
  check(pages.are_wanted() && pages.is_fast(milliseconds(1)), "huge pages may be fast again");
  check(pages.are_wanted(), "and then are requested for every block");
}

}  // namespace

int main() {
  slow_huge_pages_are_not_requested_for_a_while();
  blocks_belong_to_one_owner();
  small_memory_comes_back();
  slabs_serve_any_class();
  one_live_block_keeps_one_slab();
  big_blocks_are_cached_up_to_a_bound();
  any_bound_of_the_cache_will_do();
  idle_blocks_go_back();
  free_memory_is_joined_and_divided();
  other_sizes_need_little_more_memory();
  impossible_sizes_are_refused();
  the_limit_holds();
  the_system_may_refuse();
#if !defined(__SANITIZE_THREAD__)
  children_find_the_memory_in_order();
#endif
  groups_of_version_2();
  groups_of_version_1();
  nonsense_limits_nothing();
  the_machine_is_not_larger_than_it_is();
  if (failures == 0) std::printf("memory: all promises kept\n");
  return failures == 0 ? 0 : 1;
}
