// GPUs for machines without one: a device behind a link that has a bandwidth and a latency.

#pragma once

#include <string>

namespace gemel {

// Copies take at least latency + bytes / bandwidth, whatever the memory does.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};

// Registers it under that number with its three lanes, if it is not there; its link is set anew.
void simulate_gpu(int number, const std::string& name, const Link& link);

}  // namespace gemel
