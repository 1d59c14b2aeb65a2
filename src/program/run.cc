// One run of a bound program: it runs the items in order.

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>

#include "engine/trace.h"
#include "program/plan.h"
#include "program/small_array.h"

namespace gemel {
namespace {

constexpr size_t kInsideBuffers = 24;
constexpr size_t kInsideIntegers = 64;
constexpr size_t kInsideBases = 32;
constexpr size_t kInsideSources = 24;

// The text with each "{n}" replaced by integer number n.
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

// The kept values of a run: found by the keeper, or to be computed.
class KeptValues {
 public:
  KeptValues(const PlanRun& run, const Environment& environment)
      : program_(*run.binding.program),
        place_(environment.keeps_for()),
        count_(program_.kept.inputs.size() + program_.kept.captured.size()),
        sources_(count_) {
    if (program_.kept.bytes == 0) return;
    if (!identify(run)) place_ = nullptr;
    if (place_ != nullptr) memory_ = program_.keeper->find(place_, program_.kept.kind, sources());
    known_ = memory_ != nullptr;
    if (!known_) memory_ = environment.hold(program_.kept.bytes);
  }

  bool missing() const { return program_.kept.bytes > 0 && memory_ == nullptr; }
  bool known() const { return known_; }
  char* memory() const { return memory_.get(); }
  // Called when the values have been computed: stores them.
  void leave() {
    if (memory_ != nullptr && !known_ && place_ != nullptr) {
      program_.keeper->keep(place_, program_.kept.kind, sources(), memory_);
    }
  }

 private:
  std::span<const Source> sources() { return {sources_.data(), count_}; }

  // False if other code may write the arrays that the values depend on.
  bool identify(const PlanRun& run) {
    const KeptSpec& kept = program_.kept;
    if (run.places == nullptr && !kept.inputs.empty()) return false;
    size_t next = 0;
    const auto add = [&](Storage* storage, int64_t place) {
      sources_[next++] = {storage->identity(), storage->contents(), place};
      return !storage->exported();
    };
    for (int input : kept.inputs) {
      const Place& place = run.places[input];
      if (!add(place.storage, place.bytes)) return false;
    }
    for (int index : kept.captured) {
      const Captured& captured = program_.captured[static_cast<size_t>(index)];
      if (!add(captured.storage.get(), captured.byte_offset)) return false;
    }
    return true;
  }

  const Program& program_;
  const void* place_;
  const size_t count_;
  SmallArray<Source, kInsideSources> sources_;
  Keeper::Memory memory_;
  bool known_ = false;
};

// One run and its progress through the items.
class Runner {
 public:
  Runner(const PlanRun& run, const Environment& environment, char** bases, bool kept_known,
         std::vector<SiteFailure>* partial)
      : run_(run),
        binding_(run.binding),
        program_(*run.binding.program),
        environment_(environment),
        bases_(bases),
        kept_known_(kept_known),
        partial_(partial),
        traced_(Engine::traced_operation()),
        skipped_(program_.sites.empty() ? 0 : static_cast<size_t>(program_.item_count)) {}

  FailurePointer run_all() {
    FailurePointer failure = run_items(program_.items);
    if (partial_ == nullptr) return failure;
    // Branches that run side by side may fail in any order. The failure of the first item counts.
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
  FailurePointer run_traced(size_t index);
  FailurePointer run_together(const Item& item);
  FailurePointer run_loop(const Item& item);
  bool reached(const Item& item, const FailurePointer& failure);
  // Whether a condition holds; nothing if the device does not say.
  std::optional<bool> is_set(const Binding::Buffer& buffer) const {
    return environment_.is_set(bases_[buffer.base] + buffer.offset);
  }
  FailurePointer unreadable() const {
    return make_failure({"DeviceError", program_.name + ": a condition could not be read"});
  }
  void tell_result(int output);
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
  char** bases_;  // the entries for windows change from round to round
  const bool kept_known_;
  std::vector<SiteFailure>* partial_;
  const uint64_t traced_;      // the operation whose steps are recorded; 0: none
  std::vector<char> skipped_;  // for each item; written before any thread reaches that item
  std::mutex mutex_;           // guards partial_ and writes to skipped_
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
  const int32_t status = call(whole, step);
  if (status == 0) return nullptr;
  if (status < 0) return make_failure({"DeviceError", environment_.explain(status)});
  return make_failure(
      {step.failure.type, filled(step.failure.message, {whole.integers, step.integers.size()})});
}

FailurePointer Runner::run_traced(size_t index) {
  const int64_t started = trace::now();
  FailurePointer failure = run_step(index);
  const int64_t finished = trace::now();
  const Step& step = program_.steps[index];
  std::vector<int64_t> sizes;
  for (Slot slot : step.label_sizes) sizes.push_back(binding_.at(slot));
  trace::stepped({.operation = traced_,
                  .label = filled(step.label, sizes),
                  .started = started,
                  .finished = finished});
  return failure;
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

// The windows belong to this loop: nothing that runs at the same time uses them.
FailurePointer Runner::run_loop(const Item& item) {
  const LoopSpec& loop = program_.loops[static_cast<size_t>(item.step)];
  const auto first = static_cast<size_t>(loop.first_window);
  const std::span<const Binding::BoundWindow> windows(binding_.windows.data() + first,
                                                      static_cast<size_t>(loop.window_count));
  char** bases = bases_ + (program_.base_count() - program_.windows.size() + first);
  const auto move = [&](int64_t round, int64_t done) {
    for (size_t i = 0; i < windows.size(); ++i) {
      const Binding::BoundWindow& window = windows[i];
      if (window.first >= 0 && round == 0) {
        bases[i] = bases[window.first];
        continue;
      }
      const int64_t along = window.first >= 0 ? round - 1 : round;
      const int64_t steps = window.period > 0 ? done % window.period : along;
      bases[i] = bases_[window.source.base] + window.source.offset + steps * window.step;
    }
  };
  const Binding::Buffer* condition = nullptr;
  // Whether the condition is at another place in each round, even after one that was not run.
  bool moves = false;
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
    if (condition != nullptr) {
      const std::optional<bool> goes_on = is_set(*condition);
      if (!goes_on) return unreadable();
      if (!*goes_on && !moves) break;
      if (!*goes_on) continue;
    }
    FailurePointer failure = run_items(item.branches[0]);
    if (failure != nullptr) return failure;
    ++done;
  }
  if (condition == nullptr) return nullptr;
  move(rounds, done);
  return run_items(item.branches[1]);
}

// Reports a result that is finished early, unless it has failed: that is reported at the end.
void Runner::tell_result(int output) {
  if (partial_ != nullptr) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (const SiteFailure& failed : *partial_) {
      const std::vector<int>& reached = failed.site->outputs;
      if (std::find(reached.begin(), reached.end(), output) != reached.end()) return;
    }
  }
  environment_.result_is_there(output);
}

FailurePointer Runner::run_item(const Item& item) {
  if (item.kind == Item::Kind::kResult) {
    tell_result(item.step);
    return nullptr;
  }
  if (item.kind == Item::Kind::kStep) {
    const auto index = static_cast<size_t>(item.step);
    return traced_ == 0 ? run_step(index) : run_traced(index);
  }
  if (item.kind == Item::Kind::kTogether) return run_together(item);
  if (item.kind == Item::Kind::kLoop) return run_loop(item);
  if (item.kind == Item::Kind::kKept) return kept_known_ ? nullptr : run_items(item.branches[0]);
  const std::optional<bool> chosen = is_set(binding_.predicates[static_cast<size_t>(item.step)]);
  if (!chosen) return unreadable();
  return run_items(item.branches[*chosen ? 0 : 1]);
}

// Whether a site says what the failure reaches. Then the items that depend on it are skipped.
bool Runner::reached(const Item& item, const FailurePointer& failure) {
  if (!has_number(item)) return false;
  for (const Site& site : program_.sites) {
    if (site.item != item.number) continue;
    // Two branches may both mark the items that follow them.
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

FailurePointer no_memory(const Program& program, const std::string& what, size_t bytes) {
  return make_failure({"MemoryError", program.name + ": no memory for " + what + " of " +
                                          std::to_string(bytes) + " bytes"});
}

}  // namespace

FailurePointer run_plan(const PlanRun& run, const Environment& environment,
                        std::vector<SiteFailure>* partial) {
  const Binding& binding = run.binding;
  const Program& program = *binding.program;
  char* workspace = nullptr;
  if (binding.workspace > 0) {
    workspace = static_cast<char*>(environment.allocate(binding.workspace));
    if (workspace == nullptr) {
      return no_memory(program, "a workspace", binding.workspace);
    }
  }
  KeptValues kept(run, environment);
  if (kept.missing()) {
    if (workspace != nullptr) environment.release(workspace, binding.workspace);
    return no_memory(program, "values it keeps", program.kept.bytes);
  }
  SmallArray<char*, kInsideBases> bases(program.base_count());
  const size_t arrays = program.inputs.size() + program.outputs.size();
  std::copy_n(run.arrays, arrays, bases.data());
  for (size_t i = 0; i < program.captured.size(); ++i) {
    const Captured& captured = program.captured[i];
    bases[arrays + i] = static_cast<char*>(captured.storage->data()) + captured.byte_offset;
  }
  bases[arrays + program.captured.size()] = workspace;
  bases[arrays + program.captured.size() + 1] = kept.memory();
  FailurePointer failure = Runner(run, environment, bases.data(), kept.known(), partial).run_all();
  if (failure == nullptr) kept.leave();
  if (workspace != nullptr) environment.release(workspace, binding.workspace);
  return failure;
}

}  // namespace gemel
