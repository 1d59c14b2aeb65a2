// How much of the machine this process may use. Nothing here throws.

#pragma once

#include <cstdint>
#include <limits>

namespace gemel::machine {

struct Limits {
  double cores = std::numeric_limits<double>::infinity();
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
};

// What the control groups (versions 1 and 2) allow. The limit of a group also applies to all groups
// inside it. `process` is the file that names this process's groups (/proc/self/cgroup), `groups`
// the folder where they are mounted (/sys/fs/cgroup). A file that cannot be read sets no limit.
Limits read(const char* process, const char* groups) noexcept;

int cores() noexcept;              // by affinity mask and quota, rounded up; at least 1
uint64_t memory_bytes() noexcept;  // the RAM, or the limit if that is lower

}  // namespace gemel::machine
