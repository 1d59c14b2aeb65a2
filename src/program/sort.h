// Radix sort (Knuth, The art of computer programming, volume 3, section 5.2.5). Elements become
// unsigned keys with the same order, which are sorted one byte at a time, the lowest byte first.

#pragma once

#include <memory>

#include "program/launch.h"
#include "program/tensor.h"

namespace gemel {

// Which rows of a dense array of before x length x after elements are sorted, and what is wanted:
// the elements in order, or their positions as int64. Equal elements keep their order, and NaN is
// the largest.
struct SortedRows {
  int64_t before = 1;
  int64_t length = 0;
  int64_t after = 1;
  bool descending = false;
  bool positions = false;
  int64_t first = -1;  // only this many positions of each row; -1: all
  int64_t wanted() const { return first < 0 ? length : first; }
};

// Sorts now or later, on the array's device. Complex numbers have no order.
void launch_sort(const SortedRows& rows, const Tensor& source, const Tensor& target, Front& front);

}  // namespace gemel
