// How many threads a kernel is run with, from the sizes of a call. Nothing here needs a GPU: the
// tests that run a kernel's text on the CPU use the same functions.

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace gemel::cuda {

// What the launch of a kernel depends on, written by `gemel.codegen.print_cuda` in front of the
// machine code. All fields are int32, in this order.
struct Form {
  int32_t buffers = 0;  // the numbers of its arguments
  int32_t integers = 0;
  int32_t outer = 0;  // the numbers of its loops; their extents are the first integers
  int32_t inner = 0;
  int32_t along_inner = 0;  // neighbours in memory are neighbours along the inner loops
  int32_t in_order = 0;     // one thread runs through all inner positions of an outer one
  int32_t alone = 0;        // one thread does everything
  // What blocks leave for each other that share the inner positions of an outer one: the bytes for
  // an outer position, or for a sum of a tile. 0 if they cannot share them.
  int32_t partial_bytes = 0;
  int32_t checks = 0;  // it may fail
  int32_t turned = 0;  // it can compute squares of the last two outer loops
  int32_t rows = 0;    // the tile of a matrix product that a block computes; else 0
  int32_t columns = 0;
  int32_t threads = 0;  // of a block that computes such a tile
  int32_t shared = 0;   // the bytes of shared memory that it asks for at the launch
};

struct Grid {
  int64_t x = 0, y = 1;  // blocks; x is 0 if there is nothing to do
  int32_t threads = 1;   // of a block
  int32_t across = 1;    // threads of a block that have different outer positions,
  int32_t along = 1;     // and threads that share an outer position: both are powers of two
  int32_t shift = 0;     // by so many bits the number of a thread is divided by the second if
                      // neighbours in memory are neighbours along the inner loops, else the first
};

constexpr int32_t kThreads = 256;
// A row shorter than this is left to one thread.
constexpr int64_t kShortRow = 32;
// So many elements along the inner loops are worth a thread, and so many keep one busy.
constexpr int64_t kPerThread = 8;
constexpr int64_t kManyPerThread = 32;
// Threads side by side along the outer loops, so that they read whole cache lines.
constexpr int32_t kLine = 32;
// How many outer positions a thread computes at a time if there are no inner loops.
constexpr int64_t kSideBySide = 4;
// Blocks for each multiprocessor: enough to keep it busy.
constexpr int64_t kBlocks = 8;
// Steps of k in which a tile takes as long as adding the sums of a tile to others.
constexpr double kAddedWhileMultiplying = 10;
// If there are more blocks than fit on the GPU so many times, each does more: its begin takes time.
constexpr int64_t kTurns = 4;
constexpr int64_t kMostParts = 1024;

// The side of such a square, and the fewest rows and columns for which it pays.
constexpr int64_t kSquare = 32;
constexpr int64_t kFewestTurned = 8;

inline int64_t product_of(const int64_t* extents, int32_t count) {
  int64_t product = 1;
  for (int32_t i = 0; i < count; ++i) product *= extents[i];
  return product;
}

inline int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Threads for `length` inner positions of each outer one: a power of two from kLine to kThreads.
// The more there are, the longer they take to combine what they have found.
inline int32_t threads_along(int64_t length, int64_t positions, int multiprocessors) {
  const int64_t busy = kBlocks * kThreads * multiprocessors;
  int32_t threads = kLine;
  while (threads < kThreads &&
         threads * (positions * threads < busy ? kPerThread : kManyPerThread) < length) {
    threads *= 2;
  }
  return threads;
}

// If there are fewer tiles than blocks fit on the GPU, several blocks share the k of each.
inline Grid grid_of_tiles(const Form& form, const int64_t* extents, int blocks, int64_t scratch) {
  Grid grid;
  grid.threads = form.threads;
  grid.x = extents[0] * extents[1] * divided_up(extents[2], form.rows) *
           divided_up(product_of(extents + 3, form.outer - 3), form.columns);
  if (grid.x == 0) return grid;
  const int64_t wanted = blocks / grid.x;
  // The last block adds the sums of all others, which takes as long as the rest if their number
  // grows with the root of k.
  const auto k = static_cast<double>(product_of(extents + form.outer, form.inner));
  const auto worthwhile = static_cast<int64_t>(std::sqrt(k / kAddedWhileMultiplying));
  const int64_t room = scratch / (grid.x * form.rows * form.columns * form.partial_bytes);
  grid.y = std::max<int64_t>(std::min({wanted, worthwhile, room}), 1);
  return grid;
}

// A block for each square; `across` is 0, which says so to the kernel.
inline Grid grid_of_squares(const Form& form, const int64_t* extents) {
  Grid grid;
  grid.threads = kThreads;
  grid.across = 0;
  grid.x = product_of(extents, form.outer - 2) * divided_up(extents[form.outer - 2], kSquare) *
           divided_up(extents[form.outer - 1], kSquare);
  return grid;
}

// `resident`: how many blocks of the kernel fit on a multiprocessor. `scratch`: the bytes there are
// for partial results.
inline Grid grid_of(const Form& form, const int64_t* extents, int multiprocessors, int resident,
                    int64_t scratch) {
  if (form.rows > 0) {
    return grid_of_tiles(form, extents, resident * multiprocessors, scratch);
  }
  Grid grid;
  const int64_t positions = product_of(extents, form.outer);
  const int64_t length = product_of(extents + form.outer, form.inner);
  if (positions == 0) return grid;
  if (form.alone) {
    grid.x = 1;
    return grid;
  }
  if (form.turned && std::min(extents[form.outer - 2], extents[form.outer - 1]) >= kFewestTurned) {
    return grid_of_squares(form, extents);
  }
  const bool shared = form.inner > 0 && !form.in_order && length >= kShortRow;
  const int64_t busy = kBlocks * multiprocessors;
  if (shared && form.along_inner) {
    grid.along = threads_along(length, positions, multiprocessors);
  } else if (shared && positions < busy * kThreads) {
    grid.along = kThreads / kLine;
  }
  grid.threads = kThreads;
  grid.across = kThreads / grid.along;
  const int64_t at_once = grid.across * (form.inner == 0 ? kSideBySide : 1);
  const int64_t blocks = divided_up(positions, at_once);
  grid.x = std::min(blocks, kTurns * resident * multiprocessors);
  grid.shift = std::countr_zero(static_cast<uint32_t>(form.along_inner ? grid.along : grid.across));
  if (form.partial_bytes == 0 || grid.along == 1 || blocks >= busy) return grid;
  const int64_t worthwhile = length / (grid.along * kPerThread);
  const int64_t room = scratch / (form.partial_bytes * blocks * grid.across);
  const int64_t parts = std::min({divided_up(busy, blocks), worthwhile, room, kMostParts});
  // All blocks but the last end when they have left their part, so each has one turn.
  if (parts > 1) grid.x = blocks;
  grid.y = std::max<int64_t>(parts, 1);
  return grid;
}

}  // namespace gemel::cuda
