#include "program/plan.h"

#include <cstring>
#include <stdexcept>

#include "memory/memory.h"
#include "program/small_array.h"

namespace gemel {
namespace {

constexpr size_t kInsideBuffers = 24;
constexpr size_t kInsideIntegers = 64;
constexpr size_t kInsideBases = 32;

struct Running {
  const PlanRun& run;
  char* const* bases;
};

char* address(const Running& running, const BufferReference& buffer) {
  return running.bases[buffer.base] + buffer.byte_offset;
}

int64_t patch_value(const PlanRun& run, const ScalarPatch& patch) {
  if (patch.source == -1) return run.seed;
  if (patch.source < -1) return run.first_call + (-2 - patch.source);
  const PlanScalar& scalar = run.scalars[patch.source];
  if (!patch.is_float) return scalar.integer;
  int64_t bits;
  std::memcpy(&bits, &scalar.floating, sizeof bits);
  return bits;
}

int32_t call_step(const PlanStep& step, void* const* buffers, const Running& running) {
  if (step.patches.empty()) {
    return running.run.device->launch(
        {step.kernel.function, buffers, step.integers.data(), step.extent, step.chunk});
  }
  SmallArray<int64_t, kInsideIntegers> integers(step.integers.size());
  std::memcpy(integers.data(), step.integers.data(), sizeof(int64_t) * step.integers.size());
  for (const ScalarPatch& patch : step.patches) {
    integers[patch.position] = patch_value(running.run, patch);
  }
  return running.run.device->launch(
      {step.kernel.function, buffers, integers.data(), step.extent, step.chunk});
}

FailurePointer run_step(const PlanStep& step, const Running& running) {
  SmallArray<void*, kInsideBuffers> buffers(step.buffers.size());
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    buffers[i] = address(running, step.buffers[i]);
  }
  int32_t status = call_step(step, buffers.data(), running);
  return status == 0 ? nullptr : make_failure(step.failure, running.run.origin);
}

FailurePointer run_items(const std::vector<PlanItem>& items, const Running& running);

FailurePointer run_item(const PlanItem& item, const Running& running) {
  if (item.branch == nullptr) return run_step(item.step, running);
  const bool chosen = *address(running, item.branch->predicate) != 0;
  return run_items(chosen ? item.branch->then : item.branch->otherwise, running);
}

FailurePointer run_items(const std::vector<PlanItem>& items, const Running& running) {
  for (const PlanItem& item : items) {
    FailurePointer failure = run_item(item, running);
    if (failure != nullptr) return failure;
  }
  return nullptr;
}

const PlanSite* site_of(const PlanProgram& program, int item) {
  for (const PlanSite& site : program.sites) {
    if (site.item == item) return &site;
  }
  return nullptr;
}

void fail(Storage* storage, const FailurePointer& failure, PartialFailures* partial) {
  for (const auto& [failed, reason] : *partial) {
    if (failed == storage) return;  // by an earlier site
  }
  partial->emplace_back(storage, failure);
}

// What depends on an item that has failed is skipped.
FailurePointer run_sites(const Running& running, PartialFailures* partial) {
  const PlanProgram& program = *running.run.program;
  const Place* places = running.run.places;
  std::vector<bool> skipped(program.items.size());
  for (size_t i = 0; i < program.items.size(); ++i) {
    if (skipped[i]) continue;
    FailurePointer failure = run_item(program.items[i], running);
    if (failure == nullptr) continue;
    const PlanSite* site = site_of(program, static_cast<int>(i));
    if (site == nullptr) return failure;
    for (int later : site->skipped) skipped[static_cast<size_t>(later)] = true;
    // Also when all it reaches are updates, which stay as they were: somebody has to be told.
    if (site->inputs.empty() && site->outputs.empty()) partial->emplace_back(nullptr, failure);
    for (int input : site->inputs) fail(places[input].storage, failure, partial);
    for (int output : site->outputs) {
      fail(places[program.inputs.size() + output].storage, failure, partial);
    }
  }
  return nullptr;
}

class Resolver {
 public:
  explicit Resolver(const PlanProgram& program) : program_(program) {}

  void resolve(std::vector<PlanItem>& items) {
    for (PlanItem& item : items) {
      if (item.branch == nullptr) {
        for (BufferReference& buffer : item.step.buffers) resolve(buffer);
        check_patches(item.step);
        continue;
      }
      // Branches are shared with the Python object they came from, so each plan has its own.
      item.branch = std::make_shared<PlanBranch>(*item.branch);
      resolve(item.branch->predicate);
      resolve(item.branch->then);
      resolve(item.branch->otherwise);
    }
  }

 private:
  void resolve(BufferReference& buffer) {
    const size_t sizes[] = {program_.inputs.size(), program_.outputs.size(), 1,
                            program_.constants.size()};
    if (buffer.space < kInput || buffer.space > kConstant || buffer.index < 0 ||
        static_cast<size_t>(buffer.index) >= sizes[buffer.space]) {
      throw std::invalid_argument(program_.name + ": a step names buffer " +
                                  std::to_string(buffer.index) + " of space " +
                                  std::to_string(buffer.space) + ", which does not exist");
    }
    buffer.base = buffer.index;
    for (int space = kInput; space < buffer.space; ++space) {
      buffer.base += static_cast<int>(sizes[space]);
    }
  }

  void check_patches(const PlanStep& step) const {
    for (const ScalarPatch& patch : step.patches) {
      bool fine = patch.position >= 0 &&
                  static_cast<size_t>(patch.position) < step.integers.size() &&
                  patch.source < program_.scalars && -2 - patch.source < program_.random;
      if (!fine) throw std::invalid_argument(program_.name + ": a step's scalar is out of range");
    }
  }

  const PlanProgram& program_;
};

void find_bases(const PlanRun& run, char* workspace, char** bases) {
  const PlanProgram& program = *run.program;
  size_t arrays = program.inputs.size() + program.outputs.size();
  for (size_t i = 0; i < arrays; ++i) {
    bases[i] = static_cast<char*>(run.places[i].storage->data()) + run.places[i].bytes;
  }
  bases[arrays] = workspace;
  for (size_t i = 0; i < program.constants.size(); ++i) {
    const ConstantBuffer& constant = program.constants[i];
    bases[arrays + 1 + i] = static_cast<char*>(constant.storage->data()) + constant.byte_offset;
  }
}

}  // namespace

void PlanProgram::resolve() {
  Resolver(*this).resolve(items);
  std::vector<bool> known(items.size());
  for (const PlanSite& site : sites) check_site(site, known);
}

void PlanProgram::check_site(const PlanSite& site, std::vector<bool>& known) const {
  const auto within = [](int index, size_t bound) {
    return index >= 0 && static_cast<size_t>(index) < bound;
  };
  bool fine = within(site.item, items.size()) && !known[static_cast<size_t>(site.item)];
  for (int later : site.skipped) fine = fine && within(later, items.size()) && later > site.item;
  for (int output : site.outputs) fine = fine && within(output, outputs.size());
  for (int input : site.inputs) {
    fine = fine && within(input, inputs.size()) && inputs[static_cast<size_t>(input)].written;
  }
  if (!fine) throw std::invalid_argument(name + ": a site names what does not exist");
  known[static_cast<size_t>(site.item)] = true;
}

FailurePointer run_plan(const PlanRun& run, PartialFailures* partial) {
  const PlanProgram& program = *run.program;
  char* workspace = nullptr;
  if (program.workspace > 0) {
    workspace = static_cast<char*>(memory::allocate(program.workspace));
    if (workspace == nullptr) {
      FailureText text{"MemoryError", program.name + ": no memory for a workspace of " +
                                          std::to_string(program.workspace) + " bytes"};
      return make_failure(text, run.origin);
    }
  }
  SmallArray<char*, kInsideBases> bases(static_cast<size_t>(program.base_count()));
  find_bases(run, workspace, bases.data());
  const Running running{run, bases.data()};
  FailurePointer failure =
      program.sites.empty() ? run_items(program.items, running) : run_sites(running, partial);
  if (workspace != nullptr) memory::release(workspace, program.workspace);
  return failure;
}

}  // namespace gemel
