// Binding a program to the sizes of a call. Nothing here takes more than a few microseconds.

#include <algorithm>
#include <numeric>

#include "program/plan.h"

namespace gemel {
namespace {

constexpr int64_t kAlignment = 64;
// More than a process can address: allocating this much fails, and sums of several do not overflow.
constexpr int64_t kMostBytes = int64_t{1} << 48;
// Microseconds: running branches side by side pays if all branches except the longest take this
// long together.
constexpr double kWorthTogether = 20.0;

int64_t divided(int64_t left, int64_t right) {
  if (right == 0) return 0;
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

// False on overflow.
bool compute(const SizeInstruction& code, const std::vector<int64_t>& slots, int64_t* result) {
  const int64_t left = slots[static_cast<size_t>(code.left)];
  const int64_t right = slots[static_cast<size_t>(code.right)];
  switch (code.operation) {
    case Arithmetic::kAdd:
      return !__builtin_add_overflow(left, right, result);
    case Arithmetic::kSubtract:
      return !__builtin_sub_overflow(left, right, result);
    case Arithmetic::kMultiply:
      return !__builtin_mul_overflow(left, right, result);
    case Arithmetic::kDivide:
      *result = right == -1 ? -left : divided(left, right);
      return right != -1 || left != INT64_MIN;
    case Arithmetic::kRemainder:
      *result = right == 0 || right == -1 ? 0 : left - right * divided(left, right);
      return true;
    case Arithmetic::kMin:
      *result = std::min(left, right);
      return true;
    case Arithmetic::kMax:
      *result = std::max(left, right);
      return true;
  }
  return false;
}

bool holds(const SizeGuard& guard, const std::vector<int64_t>& slots) {
  const int64_t left = slots[static_cast<size_t>(guard.left)];
  const int64_t right = slots[static_cast<size_t>(guard.right)];
  const bool answer = guard.relation == Relation::kEqual  ? left == right
                      : guard.relation == Relation::kLess ? left < right
                                                          : left <= right;
  return answer == guard.answer;
}

class Binder {
 public:
  Binder(const Program& program, Binding& binding, Mismatch* mismatch)
      : program_(program), binding_(binding), slots_(binding.slots), mismatch_(mismatch) {
    slots_.reserve(program.slot_count());
    slots_ = program.constants;
    defined_.assign(slots_.size(), true);
    slots_.resize(slots_.size() + static_cast<size_t>(program.free_sizes));
    defined_.resize(slots_.size());
  }

  bool match(const Tensor* const* inputs) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      mismatch_->input = static_cast<int>(i);
      if (!match_input(program_.inputs[i], *inputs[i])) return false;
    }
    mismatch_->kind = Mismatch::Kind::kSizes;
    for (const SizeInstruction& code : program_.sizes) {
      int64_t result = 0;
      if (!compute(code, slots_, &result)) return false;
      slots_.push_back(result);
    }
    return std::all_of(program_.guards.begin(), program_.guards.end(),
                       [this](const SizeGuard& guard) { return holds(guard, slots_); });
  }

  void place_temporaries();
  void bind_steps();
  double bind_costs(const std::vector<Item>& items);

 private:
  bool match_input(const InputSpec& spec, const Tensor& tensor) {
    mismatch_->kind = Mismatch::Kind::kDType;
    if (tensor.dtype != spec.dtype) return false;
    mismatch_->kind = Mismatch::Kind::kRank;
    if (tensor.ndim != spec.extents.size()) return false;
    mismatch_->kind = Mismatch::Kind::kExtents;
    for (int axis = 0; axis < tensor.ndim; ++axis) {
      if (!agrees(spec.extents[static_cast<size_t>(axis)], tensor.extents()[axis])) return false;
    }
    mismatch_->kind = Mismatch::Kind::kLayout;
    if (!spec.strided) return tensor.contiguous;
    for (int axis = 0; axis < tensor.ndim; ++axis) {
      if (tensor.extents()[axis] <= 1) continue;
      if (!agrees(spec.strides[static_cast<size_t>(axis)], tensor.strides()[axis])) return false;
    }
    return true;
  }

  Binding::Buffer bound(const BufferReference& buffer) const {
    const auto index = static_cast<size_t>(buffer.index);
    int64_t start = 0;
    if (buffer.space == kTemporary) start = offsets_[index];
    if (buffer.space == kKept) start = program_.kept.offsets[index];
    return {buffer.base, start + binding_.at(buffer.offset)};
  }

  // The first occurrence of a free size defines it.
  bool agrees(Slot slot, int64_t value) {
    const auto at = static_cast<size_t>(slot);
    if (defined_[at]) return slots_[at] == value;
    slots_[at] = value;
    defined_[at] = true;
    return true;
  }

  const Program& program_;
  Binding& binding_;
  std::vector<int64_t>& slots_;
  Mismatch* mismatch_;
  std::vector<bool> defined_;
  std::vector<int64_t> offsets_;  // of the temporaries
};

// Places the largest first, each at the lowest offset that does not overlap a temporary alive at
// the same time: the greedy-by-size strategy of Pisarchyk and Lee (2020).
void Binder::place_temporaries() {
  const std::vector<Temporary>& all = program_.temporaries;
  std::vector<int64_t> bytes;
  for (const Temporary& temporary : all) {
    const int64_t asked = std::clamp<int64_t>(binding_.at(temporary.bytes), 1, kMostBytes);
    bytes.push_back((asked + kAlignment - 1) / kAlignment * kAlignment);
  }
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t left, size_t right) {
    const int64_t difference = bytes[left] - bytes[right];
    if (difference != 0) return difference > 0;
    return all[left].first != all[right].first ? all[left].first < all[right].first : left < right;
  });
  offsets_.assign(all.size(), 0);
  std::vector<size_t> placed;  // sorted by offset
  int64_t total = 0;
  for (size_t index : order) {
    int64_t offset = 0;
    for (size_t other : placed) {
      if (all[other].first > all[index].last || all[index].first > all[other].last) continue;
      if (offset + bytes[index] <= offsets_[other]) break;
      offset = std::max(offset, offsets_[other] + bytes[other]);
    }
    offsets_[index] = offset;
    const auto later = [&](int64_t value, size_t other) { return value < offsets_[other]; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, later), index);
    total = std::max(total, offset + bytes[index]);
  }
  binding_.workspace = static_cast<size_t>(total);
}

void Binder::bind_steps() {
  for (const Step& step : program_.steps) {
    binding_.steps.push_back({program_.kernels[static_cast<size_t>(step.kernel)].function,
                              binding_.buffers.size(), binding_.integers.size(),
                              binding_.at(step.extent),
                              std::max<int64_t>(binding_.at(step.chunk), 1)});
    for (const BufferReference& buffer : step.buffers) binding_.buffers.push_back(bound(buffer));
    for (Slot slot : step.integers) binding_.integers.push_back(binding_.at(slot));
  }
  for (const BufferReference& buffer : program_.predicates) {
    binding_.predicates.push_back(bound(buffer));
  }
  for (const Window& window : program_.windows) {
    binding_.windows.push_back(
        {bound(window.source), binding_.at(window.step), window.period, window.first});
  }
}

// The cost of the items in microseconds, if they run one after the other.
double Binder::bind_costs(const std::vector<Item>& items) {
  double total = 0;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::kResult) continue;
    if (item.kind == Item::Kind::kKept) {  // rarely computed, so not counted
      bind_costs(item.branches[0]);
      continue;
    }
    if (item.kind == Item::Kind::kStep) {
      total +=
          static_cast<double>(binding_.at(program_.steps[static_cast<size_t>(item.step)].cost));
      continue;
    }
    if (item.kind == Item::Kind::kLoop) {
      const Slot rounds = program_.loops[static_cast<size_t>(item.step)].rounds;
      const auto count = static_cast<double>(std::max<int64_t>(binding_.at(rounds), 0));
      total += count * bind_costs(item.branches[0]) * 1e3;
      if (item.branches.size() > 1) total += bind_costs(item.branches[1]) * 1e3;
      continue;
    }
    double sum = 0, most = 0;
    for (const std::vector<Item>& branch : item.branches) {
      const double cost = bind_costs(branch) * 1e3;
      sum += cost;
      most = std::max(most, cost);
    }
    const bool choice = item.kind == Item::Kind::kChoice;
    total += choice ? most : sum;
    if (!choice) {
      binding_.together[static_cast<size_t>(item.number)] = sum - most >= kWorthTogether * 1e3;
    }
  }
  return total * 1e-3;
}

// Extents as in a signature: free sizes are called n0, n1, ...
std::string shape_of(const Program& program, const InputSpec& spec) {
  std::string text = "(";
  for (size_t axis = 0; axis < spec.extents.size(); ++axis) {
    const auto slot = static_cast<size_t>(spec.extents[axis]);
    const size_t constants = program.constants.size();
    text += slot < constants ? std::to_string(program.constants[slot])
                             : "n" + std::to_string(slot - constants);
    text += axis + 1 < spec.extents.size() ? ", " : spec.extents.size() == 1 ? "," : "";
  }
  return text + ")";
}

}  // namespace

std::string explain(const Program& program, const Mismatch& mismatch, const Tensor* const* inputs) {
  if (mismatch.kind == Mismatch::Kind::kSizes) {
    return program.name +
           ": the plan was made for other sizes: these do not satisfy its guards, "
           "or do not fit 63 bits";
  }
  const InputSpec& spec = program.inputs[static_cast<size_t>(mismatch.input)];
  const Tensor* tensor = inputs[mismatch.input];
  std::string text = program.name + ": input " + std::to_string(mismatch.input);
  if (mismatch.kind == Mismatch::Kind::kDType) {
    text += std::string(" has dtype ") + kDTypes[tensor->dtype].name + ", the plan was made for " +
            kDTypes[spec.dtype].name;
  } else if (mismatch.kind == Mismatch::Kind::kLayout) {
    text += spec.written ? " is overwritten and must have the layout of the plan"
                         : " has other strides than the plan was made for";
  } else {
    text += " has shape " + shape_text(tensor->extents(), tensor->ndim) +
            ", the plan was made for " + shape_of(program, spec);
  }
  return text;
}

std::shared_ptr<const Binding> Binding::make(const std::shared_ptr<const Program>& program,
                                             const Tensor* const* inputs, Mismatch* mismatch) {
  auto binding = std::make_shared<Binding>();
  binding->program = program;
  Binder binder(*program, *binding, mismatch);
  if (!binder.match(inputs)) return nullptr;
  binder.place_temporaries();
  binder.bind_steps();
  binding->together.resize(static_cast<size_t>(program->group_count));
  binding->microseconds = binder.bind_costs(program->items);
  return binding;
}

void Binding::make_result(size_t index, const Tensor* const* inputs, const Tensor* const* results,
                          int device, Tensor* result) const {
  const OutputSpec& spec = program->outputs[index];
  const int rank = static_cast<int>(spec.extents.size());
  int64_t extents[kMaxRank];
  for (int axis = 0; axis < rank; ++axis) {
    extents[axis] = at(spec.extents[static_cast<size_t>(axis)]);
  }
  if (!spec.is_view) {
    result->make(spec.dtype, extents, rank, device);
    return;
  }
  int64_t strides[kMaxRank];
  for (int axis = 0; axis < rank; ++axis) {
    strides[axis] = at(spec.strides[static_cast<size_t>(axis)]);
  }
  const Tensor* viewed = spec.space == kInput ? inputs[spec.index] : results[spec.index];
  result->view(viewed->storage, viewed->dtype, extents, strides, rank,
               viewed->offset + at(spec.offset));
}

bool Binding::idle() const {
  return program->items.empty() && !program->writes_inputs &&
         std::all_of(program->outputs.begin(), program->outputs.end(),
                     [](const OutputSpec& spec) { return spec.is_view; });
}

}  // namespace gemel
