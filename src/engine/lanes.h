// A lane is a queue of ready operations that wait to be started. Every device has a lane, a link
// between devices has one for each direction, and Python has one. Lanes are registered at run time.

#pragma once

#include <cstdint>
#include <string>

namespace gemel {

constexpr int kMostLanes = 64;  // so that a set of lanes fits in one word
constexpr int kMostDevices = 64;
// Registered by the engine itself: the logical CPU devices, whose lanes come first, and two more
// lanes.
constexpr int kHosts = 16;
constexpr int kCopyLane = kHosts;        // copies between CPUs, run by the pool
constexpr int kPythonLane = kHosts + 1;  // operations that need the GIL

constexpr int kNoLink = -2;        // a lane that carries no copies
constexpr int kBetweenHosts = -1;  // copies that use no link

struct LaneOptions {
  std::string name;
  // If true, a thread of the lane's own starts the operations; it is created when it is first
  // needed. Otherwise workers and waiting threads start them.
  bool own_thread = false;
  // A stream: its operations run in the order in which they are started. So an operation may be
  // started as soon as those before it on the lane have been started, and they end in that order
  // too. Operations with `updates` are an exception, because they must know whether their inputs
  // have failed.
  bool ordered = false;
  // How many operations may run at the same time; on an ordered lane, how many may be in the
  // process of being started. 0: any number in the pool, one on a thread of the lane's own.
  int at_once = 0;
  // Something outside the engine ends its operations: nothing is known about how long they take.
  bool ended_outside = false;
  // To start its operations takes no time and waits for nothing. So a thread that makes one ready
  // in the middle of another operation starts it itself.
  bool instant = false;
  int link = kNoLink;  // or the device at the far end of the link that carries the copies
};

constexpr uint64_t lane_bit(int lane) { return uint64_t{1} << lane; }

}  // namespace gemel
