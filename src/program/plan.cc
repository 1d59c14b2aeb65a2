#include "program/plan.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>

#include "memory/memory.h"
#include "program/small_array.h"

namespace gemel {
namespace {

constexpr size_t kInsideBuffers = 24;
constexpr size_t kInsideIntegers = 64;
constexpr size_t kInsideBases = 32;
constexpr size_t kInsideArrays = 24;

// The message with "{n}" replaced by integer n.
std::string filled(std::string text, std::span<const int64_t> integers) {
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    const size_t close = text.find('}', open);
    const std::string name = text.substr(open + 1, close - open - 1);
    const bool number = !name.empty() && name.size() < 9 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    if (close == std::string::npos || !number) continue;
    const auto index = static_cast<size_t>(std::stoul(name));
    if (index < integers.size()) {
      text.replace(open, close - open + 1, std::to_string(integers[index]));
    }
  }
  return text;
}

// One run on its way through the items.
class Runner {
 public:
  Runner(const PlanRun& run, const Environment& environment, char** bases,
         std::vector<SiteFailure>* partial)
      : run_(run),
        binding_(run.binding),
        program_(*run.binding.program),
        environment_(environment),
        bases_(bases),
        partial_(partial),
        skipped_(program_.sites.empty() ? 0 : static_cast<size_t>(program_.item_count)) {}

  FailurePointer run_all() {
    FailurePointer failure = run_items(program_.items);
    if (partial_ == nullptr) return failure;
    // Branches that ran side by side fail in any order; the first item's failure is told.
    const auto earlier = [](const SiteFailure& left, const SiteFailure& right) {
      return left.site->item < right.site->item;
    };
    std::sort(partial_->begin(), partial_->end(), earlier);
    return failure;
  }

 private:
  FailurePointer run_items(const std::vector<Item>& items);
  FailurePointer run_item(const Item& item);
  FailurePointer run_step(size_t index);
  FailurePointer run_together(const Item& item);
  FailurePointer run_loop(const Item& item);
  bool reached(const Item& item, const FailurePointer& failure);
  static bool has_number(const Item& item) {
    return item.kind != Item::Kind::kTogether && item.number >= 0;
  }
  bool is_skipped(const Item& item) const {
    return !skipped_.empty() && has_number(item) && skipped_[static_cast<size_t>(item.number)] != 0;
  }
  int32_t call(const KernelCall& given, const Step& step);
  int64_t patch_value(const ScalarPatch& patch) const;

  const PlanRun& run_;
  const Binding& binding_;
  const Program& program_;
  const Environment& environment_;
  char** bases_;  // those of windows change from round to round
  std::vector<SiteFailure>* partial_;
  std::vector<char> skipped_;  // by item; each is written before who reads it is run
  std::mutex mutex_;           // of partial_, and of writing skipped_
};

int64_t Runner::patch_value(const ScalarPatch& patch) const {
  if (patch.source == -1) return run_.random.seed;
  if (patch.source < -1) return run_.random.first_call + (-2 - patch.source);
  const PlanScalar& scalar = run_.scalars[patch.source];
  if (!patch.is_float) return scalar.integer;
  int64_t bits;
  std::memcpy(&bits, &scalar.floating, sizeof bits);
  return bits;
}

int32_t Runner::call(const KernelCall& given, const Step& step) {
  if (step.patches.empty()) return environment_.launch(given);
  SmallArray<int64_t, kInsideIntegers> integers(step.integers.size());
  std::memcpy(integers.data(), given.integers, sizeof(int64_t) * step.integers.size());
  for (const ScalarPatch& patch : step.patches) integers[patch.position] = patch_value(patch);
  KernelCall patched = given;
  patched.integers = integers.data();
  return environment_.launch(patched);
}

FailurePointer Runner::run_step(size_t index) {
  const Binding::BoundStep& bound = binding_.steps[index];
  if (bound.extent <= 0) return nullptr;
  const Step& step = program_.steps[index];
  SmallArray<void*, kInsideBuffers> buffers(step.buffers.size());
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    const Binding::Buffer& buffer = binding_.buffers[bound.first_buffer + i];
    buffers[i] = bases_[buffer.base] + buffer.offset;
  }
  const KernelCall whole{bound.function, buffers.data(),
                         binding_.integers.data() + bound.first_integer, bound.extent, bound.chunk};
  if (call(whole, step) == 0) return nullptr;
  return make_failure(
      {step.failure.type, filled(step.failure.message, {whole.integers, step.integers.size()})});
}

FailurePointer Runner::run_together(const Item& item) {
  struct Context {
    Runner* runner;
    const Item* item;
    std::vector<FailurePointer> failures;
  } context{this, &item, std::vector<FailurePointer>(item.branches.size())};
  const auto run_branch = [](void* opaque, int64_t index) {
    auto* all = static_cast<Context*>(opaque);
    const auto at = static_cast<size_t>(index);
    all->failures[at] = all->runner->run_items(all->item->branches[at]);
  };
  const auto count = static_cast<int64_t>(item.branches.size());
  if (binding_.together[static_cast<size_t>(item.number)]) {
    environment_.side_by_side(count, run_branch, &context);
  } else {
    for (int64_t index = 0; index < count; ++index) run_branch(&context, index);
  }
  for (FailurePointer& failure : context.failures) {
    if (failure != nullptr) return failure;
  }
  return nullptr;
}

// The windows are the loop's own: nothing that runs beside it uses them.
FailurePointer Runner::run_loop(const Item& item) {
  const LoopSpec& loop = program_.loops[static_cast<size_t>(item.step)];
  const auto first = static_cast<size_t>(loop.first_window);
  const std::span<const Binding::BoundWindow> windows(binding_.windows.data() + first,
                                                      static_cast<size_t>(loop.window_count));
  char** bases = bases_ + (program_.base_count() - program_.windows.size() + first);
  const auto move = [&](int64_t round, int64_t done) {
    for (size_t i = 0; i < windows.size(); ++i) {
      const Binding::BoundWindow& window = windows[i];
      const int64_t steps = window.period > 0 ? done % window.period : round;
      bases[i] = bases_[window.source.base] + window.source.offset + steps * window.step;
    }
  };
  const Binding::Buffer* condition = nullptr;
  bool moves = false;  // the condition is another one in each round, done or not
  if (loop.condition >= 0) {
    condition = &binding_.predicates[static_cast<size_t>(loop.condition)];
    const int64_t window = &bases_[condition->base] - bases;
    moves = window >= 0 && window < loop.window_count &&
            windows[static_cast<size_t>(window)].period == 0;
  }
  const int64_t rounds = binding_.at(loop.rounds);
  int64_t done = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    move(round, done);
    if (condition != nullptr && bases_[condition->base][condition->offset] == 0) {
      if (!moves) break;
      continue;
    }
    FailurePointer failure = run_items(item.branches[0]);
    if (failure != nullptr) return failure;
    ++done;
  }
  if (condition == nullptr) return nullptr;
  move(rounds, done);
  return run_items(item.branches[1]);
}

FailurePointer Runner::run_item(const Item& item) {
  if (item.kind == Item::Kind::kStep) return run_step(static_cast<size_t>(item.step));
  if (item.kind == Item::Kind::kTogether) return run_together(item);
  if (item.kind == Item::Kind::kLoop) return run_loop(item);
  const Binding::Buffer& predicate = binding_.predicates[static_cast<size_t>(item.step)];
  const bool chosen = bases_[predicate.base][predicate.offset] != 0;
  return run_items(item.branches[chosen ? 0 : 1]);
}

// Whether a site says what the failure reaches: then what depends on it is skipped.
bool Runner::reached(const Item& item, const FailurePointer& failure) {
  if (!has_number(item)) return false;
  for (const Site& site : program_.sites) {
    if (site.item != item.number) continue;
    // Two branches may skip what follows both.
    std::lock_guard<std::mutex> guard(mutex_);
    for (int later : site.skipped) skipped_[static_cast<size_t>(later)] = 1;
    partial_->push_back({&site, failure});
    return true;
  }
  return false;
}

FailurePointer Runner::run_items(const std::vector<Item>& items) {
  for (const Item& item : items) {
    if (is_skipped(item)) continue;
    FailurePointer failure = run_item(item);
    if (failure != nullptr && !reached(item, failure)) return failure;
  }
  return nullptr;
}

// --- where it runs ---

class OnDevice final : public Environment {
 public:
  explicit OnDevice(Device* device) : device_(device) {}
  int32_t launch(const KernelCall& call) const override { return device_->launch(call); }
  void side_by_side(int64_t count, TileFunction function, void* context) const override {
    Engine::get().parallel(count, function, context);
  }
  void* allocate(size_t bytes) const override { return device_->allocate(bytes); }
  void release(void* block, size_t bytes) const override { device_->release(block, bytes); }

 private:
  Device* device_;
};

class ThisThread final : public Environment {
 public:
  int32_t launch(const KernelCall& call) const override {
    return call.function(call.buffers, call.integers, 0, call.extent);
  }
  void side_by_side(int64_t count, TileFunction function, void* context) const override {
    for (int64_t index = 0; index < count; ++index) function(context, index);
  }
  void* allocate(size_t bytes) const override { return memory::allocate(bytes); }
  void release(void* block, size_t bytes) const override { memory::release(block, bytes); }
};

// --- one call ---

void fail(Storage* storage, const FailurePointer& failure, PartialFailures& partial) {
  for (const auto& [failed, reason] : partial) {
    if (failed == storage) return;  // by an earlier site
  }
  partial.emplace_back(storage, failure);
}

// Of an input or output: which storages a site's failure reaches.
void spread(const std::vector<SiteFailure>& sites, const Program& program, const Place* places,
            PartialFailures& partial) {
  for (const auto& [site, failure] : sites) {
    // Also when all it reaches are updates, which stay as they were: somebody has to be told.
    if (site->inputs.empty() && site->outputs.empty()) partial.emplace_back(nullptr, failure);
    for (int input : site->inputs) fail(places[input].storage, failure, partial);
    for (int output : site->outputs) {
      fail(places[program.inputs.size() + static_cast<size_t>(output)].storage, failure, partial);
    }
  }
}

FailurePointer run_places(const Binding& binding, Device* device, const Place* places,
                          const PlanScalar* scalars, RandomNumbers random,
                          PartialFailures& partial) {
  const Program& program = *binding.program;
  const size_t count = program.inputs.size() + program.outputs.size();
  SmallArray<char*, kInsideBases> arrays(count);
  for (size_t i = 0; i < count; ++i) arrays[i] = static_cast<char*>(places[i].address());
  std::vector<SiteFailure> sites;
  FailurePointer failure = run_plan({binding, arrays.data(), scalars, random}, OnDevice(device),
                                    program.sites.empty() ? nullptr : &sites);
  if (!sites.empty()) spread(sites, program, places, partial);
  return failure;
}

// "float32[2, 3], float32[3] -> float32[2, 3]", of many inputs the first ones.
std::string describe_plan(const Binding& binding) {
  constexpr size_t kMost = 4;
  const Program& program = *binding.program;
  const auto spec_text = [&](int dtype, const std::vector<Slot>& slots) {
    std::vector<int64_t> extents;
    for (Slot slot : slots) extents.push_back(binding.at(slot));
    return describe(dtype, extents.data(), static_cast<int>(extents.size()));
  };
  std::string text;
  for (size_t i = 0; i < program.inputs.size() && i < kMost; ++i) {
    text += (i > 0 ? ", " : "") + spec_text(program.inputs[i].dtype, program.inputs[i].extents);
  }
  if (program.inputs.size() > kMost) {
    text += ", ... " + std::to_string(program.inputs.size() - kMost) + " more";
  }
  const char* separator = " -> ";
  for (size_t i = 0; i < program.outputs.size() && i < kMost; ++i) {
    if (program.outputs[i].is_view) continue;
    text += separator + spec_text(program.outputs[i].dtype, program.outputs[i].extents);
    separator = ", ";
  }
  return text;
}

class PlanOperation final : public Operation {
 public:
  void start(Completion done) override {
    Device* where = Engine::device(device);
    FailurePointer failure =
        run_places(*binding, where, places.data(), scalars.data(), random, partial);
    locate(partial, origin);
    if (failure != nullptr) return done(located(failure, origin));
    where->finish(std::move(done));
  }
  std::string name() const override { return binding->program->name; }
  std::string detail() const override { return describe_plan(*binding); }

  std::shared_ptr<const Binding> binding;
  std::vector<Place> places;
  std::vector<PlanScalar> scalars;
  RandomNumbers random;
};

class PlanLaunch final : public Launch {
 public:
  PlanLaunch(const std::shared_ptr<const Binding>& binding, const Tensor* const* inputs,
             const Tensor* const* outputs, const PlanScalar* scalars, RandomNumbers random)
      : binding_(binding),
        program_(*binding->program),
        scalars_(scalars),
        random_(random),
        places_(program_.inputs.size() + program_.outputs.size()),
        reads_(program_.inputs.size() + program_.captured.size()),
        writes_(program_.inputs.size() + program_.outputs.size()) {
    reads = reads_.data();
    writes = writes_.data();
    microseconds = binding->microseconds;
    workspace = binding->workspace;
    for (size_t i = 0; i < program_.inputs.size(); ++i) add_input(i, *inputs[i]);
    // Arrays the program closes over are read anew by every run.
    for (const Captured& captured : program_.captured) {
      reads_[read_count++] = captured.storage.get();
    }
    known_writes = write_count;
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      places_[program_.inputs.size() + i] = place_of(*outputs[i]);
      if (!program_.outputs[i].is_view) writes_[write_count++] = outputs[i]->storage;
    }
  }

  FailurePointer run(PartialFailures& partial) override {
    return run_places(*binding_, Engine::device(device), places_.data(), scalars_, random_,
                      partial);
  }

  std::unique_ptr<Operation> later() override {
    auto operation = std::make_unique<PlanOperation>();
    const size_t count = program_.inputs.size() + program_.outputs.size();
    operation->binding = binding_;
    operation->places.assign(places_.data(), places_.data() + count);
    operation->scalars.assign(scalars_, scalars_ + program_.scalars);
    operation->random = random_;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      const InputSpec& spec = program_.inputs[i];
      if (spec.written && !spec.fails) operation->updates.push_back(places_[i].storage);
    }
    return operation;
  }

 private:
  static Place place_of(const Tensor& tensor) {
    return {tensor.storage, tensor.offset * item_size(tensor.dtype)};
  }

  void add_input(size_t index, const Tensor& tensor) {
    const InputSpec& spec = program_.inputs[index];
    places_[index] = place_of(tensor);
    if (spec.written) {
      writes_[write_count++] = tensor.storage;
      tensor.storage->bump_version();
    }
    if (!spec.written || spec.read) reads_[read_count++] = tensor.storage;
  }

  const std::shared_ptr<const Binding>& binding_;
  const Program& program_;
  const PlanScalar* scalars_;
  RandomNumbers random_;
  SmallArray<Place, 2 * kInsideArrays> places_;
  SmallArray<Storage*, kInsideArrays> reads_;
  SmallArray<Storage*, 2 * kInsideArrays> writes_;  // overwritten inputs, then new results
};

}  // namespace

const Environment& this_thread_alone() {
  static const ThisThread environment;
  return environment;
}

FailurePointer run_plan(const PlanRun& run, const Environment& environment,
                        std::vector<SiteFailure>* partial) {
  const Binding& binding = run.binding;
  const Program& program = *binding.program;
  char* workspace = nullptr;
  if (binding.workspace > 0) {
    workspace = static_cast<char*>(environment.allocate(binding.workspace));
    if (workspace == nullptr) {
      return make_failure({"MemoryError", program.name + ": no memory for a workspace of " +
                                              std::to_string(binding.workspace) + " bytes"});
    }
  }
  SmallArray<char*, kInsideBases> bases(program.base_count());
  const size_t arrays = program.inputs.size() + program.outputs.size();
  std::copy_n(run.arrays, arrays, bases.data());
  for (size_t i = 0; i < program.captured.size(); ++i) {
    const Captured& captured = program.captured[i];
    bases[arrays + i] = static_cast<char*>(captured.storage->data()) + captured.byte_offset;
  }
  bases[arrays + program.captured.size()] = workspace;
  FailurePointer failure = Runner(run, environment, bases.data(), partial).run_all();
  if (workspace != nullptr) environment.release(workspace, binding.workspace);
  return failure;
}

void launch_plan(const std::shared_ptr<const Binding>& binding, const Tensor* const* inputs,
                 const Tensor* const* outputs, const PlanScalar* scalars, RandomNumbers random,
                 int device, Front& front) {
  if (binding->idle()) return;
  PlanLaunch work(binding, inputs, outputs, scalars, random);
  work.device = device;
  launch(work, front);
}

}  // namespace gemel
