// A compiled graph for many sizes, read from its image (docs/internals/plan-image.md).
//
// Every size is a slot: an index into the list of numbers that binding computes for one call.

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
  // A written input fails if what it is computed from fails; otherwise it keeps its contents.
  bool fails = false;
  bool read = false;  // the old contents of a written input matter
  std::vector<Slot> extents;
  std::vector<Slot> strides;  // of a strided input
};

struct OutputSpec {
  bool is_view = false;
  int dtype = 0;  // of a new array
  int space = 0;  // of a view: whether it is of an input or of an earlier output
  int index = 0;
  std::vector<Slot> extents;
  std::vector<Slot> strides;  // of a view, as is the offset
  Slot offset = 0;            // in elements, relative to the viewed array
};

enum Space { kInput = 0, kOutput = 1, kTemporary = 2, kCaptured = 3, kWindow = 4, kKept = 5 };

// Where a buffer is. `base` is its index among all base addresses of a run: inputs, outputs,
// captured arrays, the workspace, the kept values, and finally windows.
struct BufferReference {
  int space = kInput;
  int index = 0;
  Slot offset = 0;  // bytes
  int base = 0;
};

// A run-time value that replaces one of a step's integers.
struct ScalarPatch {
  int position = 0;
  int source = 0;         // >= 0 scalar argument, -1 seed, -2 - k random call number + k
  bool is_float = false;  // stored as the bits of a float64
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
  std::string label;  // describes the step to people; {n} stands for the n-th of these sizes
  std::vector<Slot> label_sizes;
};

// A buffer of a loop that moves with each round: in round r it is at `source` plus r times `step`
// bytes or, with a period, plus (r modulo period) times `step`. If `first` is set, it is in the
// first round where window `first` of the loop is, and after that one step behind (at r - 1).
struct Window {
  BufferReference source;
  Slot step = 0;
  int64_t period = 0;
  int first = -1;
};

struct LoopSpec {
  Slot rounds = 0;
  int first_window = 0;  // among the program's windows
  int window_count = 0;
  int condition = -1;  // among the program's predicates: whether a round is run; -1: all are
};

// Values that depend only on these inputs and captured arrays.
struct KeptSpec {
  std::vector<int> inputs;
  std::vector<int> captured;
  std::string kind;              // equal for equal values, in all programs of a graph
  std::vector<int64_t> offsets;  // of the kept buffers in their memory
  size_t bytes = 0;              // of all buffers; 0: nothing is kept
};

struct Item {
  enum class Kind { kStep, kChoice, kTogether, kLoop, kKept, kResult };
  Kind kind = Kind::kStep;
  int step = 0;  // Index of: a step; the predicate of a choice; a loop; the output of a result.
  // The number that sites use; -1 for items inside a choice or loop, kept values and results. Of
  // branches side by side: their number among such groups.
  int number = 0;
  // Of a choice: the items for true and for false. Of kTogether: the branches that run side by
  // side. Of a loop: the items of each round and, with a condition, those at the end. Of kKept: the
  // items that compute the kept values.
  std::vector<std::vector<Item>> branches;
};

struct Temporary {
  Slot bytes;
  int64_t first;  // when it is alive (`last` is included)
  int64_t last;
};

// What the failure of an item reaches. All numbers are indexes into the program's lists.
struct Site {
  int item = 0;
  std::vector<int> skipped;  // later items that depend on it
  std::vector<int> outputs;  // outputs that fail
  std::vector<int> inputs;   // overwritten inputs that it has begun to write, which fail
};

// An array the program closes over. It lives as long as somebody holds a copy, and may be dropped
// on any thread.
struct Captured {
  std::shared_ptr<Storage> storage;
  int64_t byte_offset = 0;
};

struct Program {
  // Reads an image. Throws Error("ValueError") with the reason if the image is malformed. `kernels`
  // and `captured` are those not contained in the image, in order. The keeper is shared with other
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
  std::vector<BufferReference> predicates;  // of choices and loops; the first byte decides
  std::vector<LoopSpec> loops;
  std::vector<Window> windows;  // of all loops
  std::vector<Item> items;
  int item_count = 0;   // the number of items that sites count
  int group_count = 0;  // the number of groups whose branches run side by side
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
