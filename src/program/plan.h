// Running a program: it is bound to the sizes of a call, and then runs as one operation of the
// engine or without the engine.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program/launch.h"
#include "program/program.h"

namespace gemel {

// How the arrays of a call fail to match a program.
struct Mismatch {
  enum class Kind { kDType, kRank, kExtents, kLayout, kSizes };
  Kind kind = Kind::kSizes;
  int input = 0;  // unused for kSizes, which means a failed guard or a size beyond 63 bits
};

// Explains it to the user.
std::string explain(const Program& program, const Mismatch& mismatch, const Tensor* const* inputs);

// A program for exact sizes: every slot has a number, every temporary has a place.
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

  // As Window in the program, with numbers.
  struct BoundWindow {
    Buffer source;
    int64_t step;
    int64_t period;
    int first;
  };

  // Null when the program does not fit; `mismatch` then says why. Inputs that the program needs
  // dense must be dense.
  static std::shared_ptr<const Binding> make(const std::shared_ptr<const Program>& program,
                                             const Tensor* const* inputs, Mismatch* mismatch);
  int64_t at(Slot slot) const { return slots[static_cast<size_t>(slot)]; }
  // Makes result number `index`. A view is of one of the `inputs` or of an earlier result.
  void make_result(size_t index, const Tensor* const* inputs, const Tensor* const* results,
                   int device, Tensor* result) const;
  // Nothing has to be computed, because all results are views.
  bool idle() const;

  std::shared_ptr<const Program> program;
  std::vector<int64_t> slots;
  std::vector<BoundStep> steps;
  std::vector<Buffer> buffers;       // of all steps
  std::vector<Buffer> predicates;    // of all choices and loops
  std::vector<BoundWindow> windows;  // of all loops
  std::vector<int64_t> integers;     // of all steps
  std::vector<bool> together;  // for each group of branches: whether running them side by side pays
  size_t workspace = 0;        // bytes
  double microseconds = 0;     // on one core
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

// What a run needs from its surroundings: a device of the engine, or the calling thread alone.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual int32_t launch(const KernelCall& call) const = 0;
  // What a negative status of launch() means.
  virtual std::string explain(int32_t status) const = 0;
  // Whether a byte of a buffer is not 0, after everything launched before. Nothing if that cannot
  // be found out.
  virtual std::optional<bool> is_set(const char* byte) const = 0;
  // Calls function(context, 0..count-1), in any order or concurrently.
  virtual void side_by_side(int64_t count, TileFunction function, void* context) const = 0;
  virtual void* allocate(size_t bytes) const = 0;  // null when out of memory
  virtual void release(void* block, size_t bytes) const = 0;
  // Memory that lives as long as somebody holds the pointer; null when out of memory.
  virtual Keeper::Memory hold(size_t bytes) const = 0;
  // Called during the run when nothing will write this result of the program any more.
  virtual void result_is_there(int /*output*/) const {}
  // For which place values can be kept (see Keeper); null where they cannot be.
  virtual const void* keeps_for() const = 0;
};
const Environment& this_thread_alone();

struct PlanRun {
  const Binding& binding;
  char* const* arrays;  // addresses of inputs, then outputs
  const Place* places;  // where they are; null when unknown
  const PlanScalar* scalars;
  RandomNumbers random;
};

// A failed item that has a site, and why it failed.
struct SiteFailure {
  const Site* site;
  FailurePointer failure;
};

// Null, or why everything failed. If only some results fail, `partial` says which.
FailurePointer run_plan(const PlanRun& run, const Environment& environment,
                        std::vector<SiteFailure>* partial);

// One call: runs it here or hands it over. `outputs` were made by make_result().
void launch_plan(const std::shared_ptr<const Binding>& binding, const Tensor* const* inputs,
                 const Tensor* const* outputs, const PlanScalar* scalars, RandomNumbers random,
                 int device, Front& front);

}  // namespace gemel
