// Lanes: where ready operations queue for somebody to run them. A device has one, a link between
// devices has one for each direction, so has Python.
//
// The pool's lanes are served by the workers and by threads which wait; at most `share` threads
// work for one of them at a time. Every other lane has one thread of its own, made when it is first
// needed.

#pragma once

#include <cstdint>

namespace gemel {

// Lanes and devices have the same numbers where they mean the same.
constexpr int kCpus = 16;
constexpr int kFirstGpu = kCpus;
constexpr int kGpus = 8;
constexpr int kDevices = kCpus + kGpus;
constexpr int kFirstToGpu = kDevices;               // copies to gpu(i)
constexpr int kFirstFromGpu = kFirstToGpu + kGpus;  // copies from gpu(i)
constexpr int kCopyLane = kFirstFromGpu + kGpus;    // copies between cpus: the pool's
constexpr int kPythonLane = kCopyLane + 1;          // operations which need the GIL
constexpr int kLanes = kPythonLane + 1;

constexpr uint64_t lane_bit(int lane) { return uint64_t{1} << lane; }
constexpr uint64_t kPoolLanes = (lane_bit(kCpus) - 1) | lane_bit(kCopyLane);
constexpr bool is_pool_lane(int lane) { return (kPoolLanes & lane_bit(lane)) != 0; }

static_assert(kLanes <= 64, "a set of lanes is one word");

}  // namespace gemel
