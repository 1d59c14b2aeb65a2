// How much of the machine this process may use. Nothing here throws.

#pragma once

#include <cstdint>
#include <limits>

namespace gemel::machine {

struct Limits {
  double cores = std::numeric_limits<double>::infinity();
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
};

// What the control groups (versions 1 and 2) allow; the limit of a group holds for all groups in
// it. `process` is the file that names this process's groups (/proc/self/cgroup), `groups` the
// folder where they are mounted (/sys/fs/cgroup). Whatever cannot be read limits nothing.
Limits read(const char* process, const char* groups) noexcept;

int cores() noexcept;              // by affinity mask and quota, rounded up; at least 1
uint64_t memory_bytes() noexcept;  // by RAM and limit

}  // namespace gemel::machine
