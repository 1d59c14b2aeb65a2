// Simulated GPUs, for machines without one: a device behind a link with a bandwidth and a latency.

#pragma once

#include <string>

namespace gemel {

// A copy takes at least latency + bytes / bandwidth, however fast the memory is.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// Registers the GPU with this number and its three lanes, unless it exists already. In both cases
// sets its link.
void simulate_gpu(int number, const std::string& name, const Link& link);

}  // namespace gemel
