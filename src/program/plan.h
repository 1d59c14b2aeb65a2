// Running a program: bound to the sizes of a call, then as one operation of the engine, or without
// the engine.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/launch.h"
#include "program/program.h"

namespace gemel {

// Where a program and the arrays of a call do not agree.
struct Mismatch {
  enum class Kind { kDType, kRank, kExtents, kLayout, kSizes };
  Kind kind = Kind::kSizes;
  int input = 0;  // of no meaning for kSizes: a guard, or sizes beyond 63 bits
};

// What a user is told of it.
std::string explain(const Program& program, const Mismatch& mismatch, const Tensor* const* inputs);

// A program for exact sizes: every slot a number, every temporary in its place.
struct Binding {
  struct Buffer {
    int base;
    int64_t offset;
  };
  struct BoundStep {
    KernelFunction function;
    size_t first_buffer;
    size_t first_integer;
    int64_t extent;
    int64_t chunk;
  };

  // The same as in the program, with numbers.
  struct BoundWindow {
    Buffer source;
    int64_t step;
    int64_t period;
    int first;
  };

  // Null when the program does not fit; `mismatch` says why. Inputs that have to be dense must be.
  static std::shared_ptr<const Binding> make(const std::shared_ptr<const Program>& program,
                                             const Tensor* const* inputs, Mismatch* mismatch);
  int64_t at(Slot slot) const { return slots[static_cast<size_t>(slot)]; }
  // Makes the result number `index`; views are of `inputs` or of the results before it.
  void make_result(size_t index, const Tensor* const* inputs, const Tensor* const* results,
                   int device, Tensor* result) const;
  // Nothing is to be computed: all results are views.
  bool idle() const;

  std::shared_ptr<const Program> program;
  std::vector<int64_t> slots;
  std::vector<BoundStep> steps;
  std::vector<Buffer> buffers;       // of all steps
  std::vector<Buffer> predicates;    // of all choices
  std::vector<BoundWindow> windows;  // of all loops
  std::vector<int64_t> integers;     // of all steps
  std::vector<bool> together;        // whether each group of branches is worth running side by side
  size_t workspace = 0;              // bytes
  double microseconds = 0;           // on one core
};

struct PlanScalar {
  int64_t integer = 0;
  double floating = 0;
};

// The random numbers of one run.
struct RandomNumbers {
  int64_t seed = 0;
  int64_t first_call = 0;
};

// What a run needs of its surroundings: a device of the engine, or this thread alone.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual int32_t launch(const KernelCall& call) const = 0;
  // Calls function(context, 0..count-1), in any order or at once.
  virtual void side_by_side(int64_t count, TileFunction function, void* context) const = 0;
  virtual void* allocate(size_t bytes) const = 0;  // null when out of memory
  virtual void release(void* block, size_t bytes) const = 0;
  // Memory that stays as long as somebody holds it; null when out of memory.
  virtual Keeper::Memory hold(size_t bytes) const = 0;
  // A result of the program is written for good, while the run goes on.
  virtual void result_is_there(int /*output*/) const {}
  // For whom values can be kept; null where a run cannot tell what it reads.
  virtual const void* keeps_for() const = 0;
};
const Environment& this_thread_alone();

struct PlanRun {
  const Binding& binding;
  char* const* arrays;  // addresses of inputs, then outputs
  const Place* places;  // where they lie; null where nobody says
  const PlanScalar* scalars;
  RandomNumbers random;
};

// A failing item with a site: its number in the program, and why.
struct SiteFailure {
  const Site* site;
  FailurePointer failure;
};

// Null, or why everything failed. Where only some results fail they are told by `partial`.
FailurePointer run_plan(const PlanRun& run, const Environment& environment,
                        std::vector<SiteFailure>* partial);

// One call: run here or handed over. `outputs` were made by make_result().
void launch_plan(const std::shared_ptr<const Binding>& binding, const Tensor* const* inputs,
                 const Tensor* const* outputs, const PlanScalar* scalars, RandomNumbers random,
                 int device, Front& front);

}  // namespace gemel
