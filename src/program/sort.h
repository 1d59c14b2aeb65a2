// Sorting by digits (Knuth, The art of computer programming, volume 3, section 5.2.5): numbers as
// unsigned keys of the same order, a byte at a time, lowest first.

#pragma once

#include <memory>

#include "program/launch.h"
#include "program/tensor.h"

namespace gemel {

// How rows lie in a dense array of before x length x after elements, and what is wanted of them:
// the elements in order or, as int64, their positions. Equal elements keep their order, NaN is the
// largest.
struct SortedRows {
  int64_t before = 1;
  int64_t length = 0;
  int64_t after = 1;
  bool descending = false;
  bool positions = false;
  int64_t first = -1;  // of positions: only so many of each row; -1: all
  int64_t wanted() const { return first < 0 ? length : first; }
};

// Sorts now or later, on the array's device; complex numbers have no order.
void launch_sort(const SortedRows& rows, const Tensor& source, const Tensor& target, Front& front);

}  // namespace gemel
