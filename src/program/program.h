// A compiled graph for many sizes, as its image says it (docs/internals/plan-image.md).
//
// Every size is a slot: a place in the list of numbers that binding works out for one call.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "program/kept.h"
#include "program/kernel.h"
#include "program/tensor.h"

namespace gemel {

using Slot = int32_t;

enum class Arithmetic : int64_t { kAdd, kSubtract, kMultiply, kDivide, kRemainder, kMin, kMax };
enum class Relation : int64_t { kEqual, kLess, kLessEqual };

struct SizeInstruction {
  Arithmetic operation;
  Slot left;
  Slot right;
};

struct SizeGuard {
  Relation relation;
  Slot left;
  Slot right;
  bool answer;
};

struct InputSpec {
  enum Flag : int64_t { kStrided = 1, kWritten = 2, kFails = 4, kRead = 8 };
  int dtype = 0;
  bool strided = false;
  bool written = false;  // overwritten in place
  bool fails = false;    // a written one fails with what it is computed from; else it stays
  bool read = false;     // of a written one that fails: its old content matters
  std::vector<Slot> extents;
  std::vector<Slot> strides;  // of a strided one
};

struct OutputSpec {
  bool is_view = false;
  int dtype = 0;  // of a new one
  int space = 0;  // of a view: of an input, or of an earlier output
  int index = 0;
  std::vector<Slot> extents;
  std::vector<Slot> strides;  // of a view, as is the offset
  Slot offset = 0;            // elements, relative to what is viewed
};

enum Space { kInput = 0, kOutput = 1, kTemporary = 2, kCaptured = 3, kWindow = 4, kKept = 5 };

// Where a buffer lies; `base` is its place among all base addresses of a run: inputs, outputs,
// captured arrays, the workspace, what is kept, and windows last.
struct BufferReference {
  int space = kInput;
  int index = 0;
  Slot offset = 0;  // bytes
  int base = 0;
};

// A run-time value written over one of a step's integers.
struct ScalarPatch {
  int position = 0;
  int source = 0;         // >= 0 scalar argument, -1 seed, -2 - k random call number + k
  bool is_float = false;  // as the bits of a float64
};

struct Step {
  int kernel = 0;
  std::vector<BufferReference> buffers;
  std::vector<Slot> integers;
  Slot extent = 0;
  Slot chunk = 0;
  std::vector<ScalarPatch> patches;
  Slot cost = 0;  // nanoseconds on one core
  FailureText failure;
  std::string label;  // what it computes, for people; {n} stands for the n-th of these sizes
  std::vector<Slot> label_sizes;
};

// What a loop's items see elsewhere in each of its rounds: round r at `source` plus r times `step`
// bytes, or, with a period, plus (r modulo period) times. One with a `first` is where that window
// of the loop is in the first round, and one step behind in all others.
struct Window {
  BufferReference source;
  Slot step = 0;
  int64_t period = 0;
  int first = -1;
};

struct LoopSpec {
  Slot rounds = 0;
  int first_window = 0;  // of the program's
  int window_count = 0;
  int condition = -1;  // of the program's predicates: whether a round is done; -1: all are
};

// Values that depend on these inputs and captured arrays only.
struct KeptSpec {
  std::vector<int> inputs;
  std::vector<int> captured;
  std::string kind;              // the same for the same values, in all programs of a graph
  std::vector<int64_t> offsets;  // of its buffers in its memory
  size_t bytes = 0;              // of all of them; 0: nothing is kept
};

struct Item {
  enum class Kind { kStep, kChoice, kTogether, kLoop, kKept, kResult };
  Kind kind = Kind::kStep;
  int step = 0;  // of the program's; of a choice: its predicate; of a loop: which; an output
  // Among the items sites speak of, -1 inside a choice or loop, of what is kept and of results
  // that are there; of branches side by side: among such.
  int number = 0;
  // Then and otherwise, what runs side by side, what is done in each round and, of a loop with a
  // condition, at the end, or what makes the values that are kept.
  std::vector<std::vector<Item>> branches;
};

struct Temporary {
  Slot bytes;
  int64_t first;  // when it is alive, inclusive
  int64_t last;
};

// What a failing item reaches; all numbers are places in the program's lists.
struct Site {
  int item = 0;
  std::vector<int> skipped;  // items that depend on it
  std::vector<int> outputs;  // fail
  std::vector<int> inputs;   // overwritten ones it has begun to write: fail
};

// An array the program closes over; kept alive by whoever holds a copy, dropped on any thread.
struct Captured {
  std::shared_ptr<Storage> storage;
  int64_t byte_offset = 0;
};

struct Program {
  // Of an image: throws Error("ValueError") saying what is wrong with it. `given` are the kernels
  // and captured arrays that lie beside the image, in order; the keeper is shared with other
  // programs of the same graph.
  static std::shared_ptr<const Program> read(std::span<const char> image,
                                             std::vector<Kernel> kernels,
                                             std::vector<Captured> captured,
                                             std::shared_ptr<Keeper> keeper);

  std::string name;
  std::string target;
  std::vector<int64_t> constants;      // the first slots
  int free_sizes = 0;                  // the next ones
  std::vector<SizeInstruction> sizes;  // the others
  std::vector<SizeGuard> guards;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  int scalars = 0;
  int random = 0;
  std::vector<Temporary> temporaries;
  std::vector<Captured> captured;
  std::vector<Kernel> kernels;
  std::vector<Step> steps;
  std::vector<BufferReference> predicates;  // of choices and loops: the first byte decides
  std::vector<LoopSpec> loops;
  std::vector<Window> windows;  // of all loops
  std::vector<Item> items;
  int item_count = 0;   // those sites speak of
  int group_count = 0;  // those whose branches run side by side
  std::vector<Site> sites;
  KeptSpec kept;
  std::shared_ptr<Keeper> keeper;
  bool writes_inputs = false;

  size_t slot_count() const { return constants.size() + free_sizes + sizes.size(); }
  size_t base_count() const {
    return inputs.size() + outputs.size() + captured.size() + 2 + windows.size();
  }
};

}  // namespace gemel
