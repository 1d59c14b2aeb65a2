// Lanes: where ready operations queue for somebody to start them. A device has one, a link between
// devices has one for each direction, so has Python. They are registered at run time.

#pragma once

#include <cstdint>
#include <string>

namespace gemel {

constexpr int kMostLanes = 64;  // a set of lanes is one word
constexpr int kMostDevices = 64;
// Registered by the engine itself: the logical CPU devices, whose lanes come first, and two lanes.
constexpr int kHosts = 16;
constexpr int kCopyLane = kHosts;        // copies between CPUs: the pool's
constexpr int kPythonLane = kHosts + 1;  // operations which need the GIL

constexpr int kNoLink = -2;        // a lane that carries no copies
constexpr int kBetweenHosts = -1;  // copies that use no link

struct LaneOptions {
  std::string name;
  // Operations are started by one thread made for the lane, when it is first needed; else by the
  // workers and by threads which wait.
  bool own_thread = false;
  // A stream: what is started later on it runs after what was started earlier, so that an operation
  // may be started as soon as those before it have been. It has no updates then, which must know
  // whether their inputs have failed. They end in the order in which they were started.
  bool ordered = false;
  // Operations that may run at a time; of an ordered lane: that may be being started. 0: any number
  // for the pool, one for a thread of its own.
  int at_once = 0;
  int link = kNoLink;  // or the device at the far end of what copies travel over
};

constexpr uint64_t lane_bit(int lane) { return uint64_t{1} << lane; }

}  // namespace gemel
