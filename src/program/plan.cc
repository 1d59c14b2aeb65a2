#include "program/plan.h"

#include "memory/memory.h"
#include "program/small_array.h"

namespace gemel {
namespace {

constexpr size_t kInsideBases = 32;
constexpr size_t kInsideArrays = 24;

// --- where it runs ---

class OnDevice final : public Environment {
 public:
  // `results` are the places of the operation's results. Each result that is finished early is
  // reported to the engine.
  explicit OnDevice(Device* device, Operation* operation = nullptr, const Place* results = nullptr)
      : device_(device), operation_(operation), results_(results) {}
  int32_t launch(const KernelCall& call) const override { return device_->launch(call); }
  std::string explain(int32_t status) const override { return device_->explain(status); }
  std::optional<bool> is_set(const char* byte) const override {
    char value = 0;
    if (!device_->read(&value, byte, 1)) return std::nullopt;
    return value != 0;
  }
  // Other devices run one kernel after another.
  void side_by_side(int64_t count, TileFunction function, void* context) const override {
    if (device_->on_host) return Engine::get().parallel(count, function, context, true);
    for (int64_t index = 0; index < count; ++index) function(context, index);
  }
  void* allocate(size_t bytes) const override { return device_->borrow(bytes); }
  void release(void* block, size_t bytes) const override { device_->give_back(block, bytes); }
  Keeper::Memory hold(size_t bytes) const override {
    auto* block = static_cast<char*>(device_->borrow(bytes));
    if (block == nullptr) return nullptr;
    return {block, [device = device_, bytes](char* held) { device->give_back(held, bytes); }};
  }
  const void* keeps_for() const override { return device_->on_host ? device_ : nullptr; }
  void result_is_there(int output) const override {
    if (operation_ != nullptr) Engine::get().wrote(operation_, results_[output].storage);
  }

 private:
  Device* device_;
  Operation* operation_;
  const Place* results_;
};

class ThisThread final : public Environment {
 public:
  int32_t launch(const KernelCall& call) const override { return run_kernel(call, 0, call.extent); }
  std::string explain(int32_t status) const override { return std::to_string(status); }
  std::optional<bool> is_set(const char* byte) const override { return *byte != 0; }
  void side_by_side(int64_t count, TileFunction function, void* context) const override {
    for (int64_t index = 0; index < count; ++index) function(context, index);
  }
  void* allocate(size_t bytes) const override { return memory::allocate(bytes); }
  void release(void* block, size_t bytes) const override { memory::release(block, bytes); }
  Keeper::Memory hold(size_t bytes) const override {
    auto* block = static_cast<char*>(memory::allocate(bytes));
    if (block == nullptr) return nullptr;
    return {block, [bytes](char* held) { memory::release(held, bytes); }};
  }
  const void* keeps_for() const override { return this; }
};

// --- one call ---

void fail(Storage* storage, const FailurePointer& failure, PartialFailures& partial) {
  for (const auto& [failed, reason] : partial) {
    if (failed == storage) return;  // by an earlier site
  }
  partial.emplace_back(storage, failure);
}

// Which storages the failures of sites reach.
void spread(const std::vector<SiteFailure>& sites, const Program& program, const Place* places,
            PartialFailures& partial) {
  for (const auto& [site, failure] : sites) {
    // A failure may reach only updates, which keep their contents. It has to be reported
    // nevertheless.
    if (site->inputs.empty() && site->outputs.empty()) partial.emplace_back(nullptr, failure);
    for (int input : site->inputs) fail(places[input].storage, failure, partial);
    for (int output : site->outputs) {
      fail(places[program.inputs.size() + static_cast<size_t>(output)].storage, failure, partial);
    }
  }
}

FailurePointer run_places(const Binding& binding, Device* device, const Place* places,
                          const PlanScalar* scalars, RandomNumbers random, PartialFailures& partial,
                          Operation* operation = nullptr) {
  const Program& program = *binding.program;
  const size_t count = program.inputs.size() + program.outputs.size();
  SmallArray<char*, kInsideBases> arrays(count);
  for (size_t i = 0; i < count; ++i) arrays[i] = static_cast<char*>(places[i].address());
  std::vector<SiteFailure> sites;
  FailurePointer failure = run_plan({binding, arrays.data(), places, scalars, random},
                                    OnDevice(device, operation, places + program.inputs.size()),
                                    program.sites.empty() ? nullptr : &sites);
  if (!sites.empty()) spread(sites, program, places, partial);
  return failure;
}

// "float32[2, 3], float32[3] -> float32[2, 3]"; of many inputs or outputs only the first ones.
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
        run_places(*binding, where, places.data(), scalars.data(), random, partial, this);
    locate(partial, origin);
    if (failure != nullptr) {
      where->settle();
      return done(located(failure, origin));
    }
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
    // Captured arrays are read anew by every run.
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

void launch_plan(const std::shared_ptr<const Binding>& binding, const Tensor* const* inputs,
                 const Tensor* const* outputs, const PlanScalar* scalars, RandomNumbers random,
                 int device, Front& front) {
  if (binding->idle()) return;
  PlanLaunch work(binding, inputs, outputs, scalars, random);
  work.device = device;
  launch(work, front);
}

}  // namespace gemel
