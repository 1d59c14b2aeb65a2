// Plans: a compiled graph as a list of steps, run as one operation of the engine. Knows no Python.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/kernel.h"

namespace gemel {

enum Space { kInput = 0, kOutput = 1, kWorkspace = 2, kConstant = 3 };

// Where a buffer lies. `base` is its place among all base addresses of a run, found when the plan
// is made: inputs, outputs, the workspace, constants.
struct BufferReference {
  int space = kInput;
  int index = 0;
  int64_t byte_offset = 0;
  int base = 0;
};

// A run-time value written over one of a step's integers.
struct ScalarPatch {
  int position = 0;
  int source = 0;         // >= 0 scalar argument, -1 seed, -2 - k random call number + k
  bool is_float = false;  // as the bits of a float64
};

struct PlanStep {
  Kernel kernel;
  std::vector<BufferReference> buffers;
  std::vector<int64_t> integers;
  int64_t extent = 1;
  int64_t chunk = 1;
  std::vector<ScalarPatch> patches;
  FailureText failure;
};

struct PlanBranch;

// A step, or a branch when there is one.
struct PlanItem {
  PlanStep step;
  std::shared_ptr<PlanBranch> branch;
};

struct PlanBranch {
  BufferReference predicate;
  std::vector<PlanItem> then;
  std::vector<PlanItem> otherwise;
};

// What a failing item reaches; all numbers are places in the program's lists.
struct PlanSite {
  int item = 0;
  std::vector<int> skipped;  // items that depend on it
  std::vector<int> outputs;  // fail
  std::vector<int> inputs;   // overwritten ones it has begun to write: fail
};

struct InputSpec {
  int code = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  bool contiguous = true;
  bool written = false;  // overwritten in place
  // A written one that fails with what it is computed from; one that does not stays as it was.
  bool fails = false;
  bool read = false;  // its old content matters; known for those that fail
};

struct OutputSpec {
  bool is_view = false;
  int code = 0;        // of a new one
  int space = kInput;  // of a view
  int index = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // elements, relative to what is viewed
};

// A storage kept alive; copies share it. May be dropped on any thread.
struct ConstantBuffer {
  std::shared_ptr<Storage> storage;
  int64_t byte_offset = 0;
};

struct PlanProgram {
  std::string name;
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<PlanItem> items;
  size_t workspace = 0;
  std::vector<ConstantBuffer> constants;
  int scalars = 0;
  int random = 0;
  bool writes_inputs = false;
  double microseconds = 0;
  std::vector<PlanSite> sites;

  int base_count() const {
    return static_cast<int>(inputs.size() + outputs.size() + 1 + constants.size());
  }
  // Fills in every BufferReference::base; throws std::invalid_argument for one that is out of
  // range.
  void resolve();

 private:
  void check_site(const PlanSite& site, std::vector<bool>& known) const;
};

struct PlanScalar {
  int64_t integer = 0;
  double floating = 0;
};

// One run: where inputs and outputs lie, and the run-time values.
struct PlanRun {
  Device* device;
  const PlanProgram* program;
  const Place* places;  // inputs, then outputs
  const PlanScalar* scalars;
  int64_t seed = 0;
  int64_t first_call = 0;  // random call number
  Origin origin;
};

using PartialFailures = std::vector<std::pair<Storage*, FailurePointer>>;

// Null, or why it failed. All storages have memory. When only some results fail, because the item
// that did has a site, they are put into `partial` and the answer is null.
FailurePointer run_plan(const PlanRun& run, PartialFailures* partial);

}  // namespace gemel
