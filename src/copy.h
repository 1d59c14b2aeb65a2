// Copies between devices, by the lane of the link between them.

#pragma once

#include "array.h"

namespace gemel {

// A simulated link: copies take at least latency + bytes / bandwidth, whatever the memory does.
struct Link {
  double bytes_per_second = 0;
  double latency_seconds = 0;
};
void set_simulated_link(const Link& link);

// Issues the copy to another device; a new array, or null with a Python error set.
PyObject* copy_to_device(Array* source, int device);
// The same into an array of the same shape and dtype, both contiguous; false with a Python error.
bool copy_across(Array* source, Array* target);

}  // namespace gemel
