#include "memory/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace gemel::machine {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "max", malformed numbers and numbers that are not positive set no limit.
double number(const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 ? value : std::numeric_limits<double>::infinity();
}

void limit_cores(Limits& limits, double quota, double period) {
  const double cores = quota / period;
  if (cores > 0) limits.cores = std::min(limits.cores, cores);
}

// No file name has another meaning in another version or controller, so we look for all of them.
void read_group(const std::string& folder, Limits& limits) {
  std::istringstream unified(first_line(folder + "/cpu.max"));
  std::string quota;
  std::string period;
  unified >> quota >> period;
  limit_cores(limits, number(quota), number(period));
  limit_cores(limits, number(first_line(folder + "/cpu.cfs_quota_us")),
              number(first_line(folder + "/cpu.cfs_period_us")));
  for (const char* name : {"/memory.max", "/memory.limit_in_bytes"}) {
    const double bytes = number(first_line(folder + name));
    if (bytes < static_cast<double>(limits.memory_bytes)) {
      limits.memory_bytes = static_cast<uint64_t>(bytes);
    }
  }
}

// Reads the group and all groups around it. In a container the own group may be mounted at the top
// although its path is the one outside; then only `mount` itself exists.
void read_groups(const std::string& mount, std::string path, Limits& limits) {
  if (!path.starts_with('/') || path.find("/..") != path.npos) path.clear();
  for (;; path.resize(path.rfind('/'))) {
    read_group(mount + path, limits);
    if (path.empty()) return;
  }
}

// A line is "NUMBER:CONTROLLERS:PATH"; version 2 has no controllers. A folder for several
// controllers has links with the name of each.
void read_line(const std::string& line, const std::string& groups, Limits& limits) {
  std::istringstream parts(line);
  std::string hierarchy;
  std::string controllers;
  std::string path;
  std::getline(parts, hierarchy, ':');
  std::getline(parts, controllers, ':');
  std::getline(parts, path);
  if (controllers.empty()) {
    read_groups(groups, path, limits);
    read_groups(groups + "/unified", path, limits);
    return;
  }
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu" || name == "memory") read_groups(groups + "/" + name, path, limits);
  }
}

int allowed_cores() noexcept {
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

Limits limits() noexcept { return machine::read("/proc/self/cgroup", "/sys/fs/cgroup"); }

}  // namespace

Limits read(const char* process, const char* groups) noexcept {
  Limits limits;
  try {
    std::ifstream file(process);
    for (std::string line; std::getline(file, line);) read_line(line, groups, limits);
  } catch (const std::exception&) {  // out of memory: keep what has been read
  }
  return limits;
}

int cores() noexcept {
  // cores() is called for every compiled plan, so the files of the control groups are read only
  // once.
  static const double quota = std::ceil(limits().cores);
  return std::max(1, static_cast<int>(std::min<double>(quota, allowed_cores())));
}

uint64_t memory_bytes() noexcept {
  const uint64_t ram = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(ram, limits().memory_bytes);
}

}  // namespace gemel::machine
