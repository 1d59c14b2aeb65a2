#include "program/elementwise.h"

#include <algorithm>
#include <cstring>

#include "program/error.h"
#include "program/small_array.h"

namespace gemel {
namespace {

constexpr int kMaxIntegers = kMaxRank * (kMaxOperands + 1) + kMaxOperands;
// The number of elements in one tile of a large call. That is about 20 us of work, so that sharing
// tiles costs little and a waiting thread is never held up by a long tile.
constexpr int64_t kTileElements = 65536;
constexpr int64_t kTurnedRows = 16;

// Everything a kernel needs except the memory, which is allocated when the operation starts.
struct Work {
  const ElementwiseKernel* kernel;
  Device* device;
  int place_count = 0;
  Place places[kMaxOperands];
  int64_t extent = 0;
  int64_t chunk = 0;
};

FailurePointer run_work(const Work& work, const int64_t* integers) {
  // There are no elements: only a failure of the operands had to be passed on.
  if (work.extent == 0) return nullptr;
  void* buffers[kMaxOperands];
  for (int i = 0; i < work.place_count; ++i) buffers[i] = work.places[i].address();
  const KernelCall call{work.kernel->kernel.function, buffers, integers, work.extent, work.chunk};
  const int32_t status = work.device->launch(call);
  if (status == 0) return nullptr;
  if (status < 0) return make_failure({"DeviceError", work.device->explain(status)});
  return make_failure(work.kernel->failure);
}

class ElementwiseOperation final : public Operation {
 public:
  ElementwiseOperation(const Work& todo, const int64_t* given, size_t count)
      : work(todo), integers(count) {
    std::copy_n(given, count, integers.data());
  }
  void start(Completion done) override {
    FailurePointer failure = run_work(work, integers.data());
    if (failure != nullptr) return done(located(failure, origin));
    work.device->finish(std::move(done));
  }
  std::string name() const override { return kernel->name; }
  std::string detail() const override;

  const ElementwiseCall* call = nullptr;  // valid only until issue() has returned
  ElementwisePointer kernel;
  Work work;
  SmallArray<int64_t, 16> integers;
};

std::string ElementwiseOperation::detail() const {
  const Operands& operands = *call->operands;
  std::string text;
  for (int i = 0; i < operands.count; ++i) {
    const Tensor* tensor = operands.tensors[i];
    if (tensor != nullptr) text += (text.empty() ? "" : ", ") + describe(*tensor);
  }
  return text + " -> " + describe(kernel->out_codes[0], call->shape, call->ndim);
}

class ElementwiseLaunch final : public Launch {
 public:
  ElementwiseLaunch(const ElementwiseCall& call, const ElementwisePointer& kernel)
      : call_(call), kernel_(kernel) {
    const Loop& loop = call.loop;
    const int64_t inner = loop.size > 0 ? loop.size / loop.extents[0] : 1;
    work_.kernel = kernel.get();
    work_.extent = loop.size > 0 ? loop.extents[0] : 0;
    work_.chunk = inner >= kTileElements ? 1 : kTileElements / inner;
    // Transposed operands are read several rows at a time, so the chunks are whole groups of rows.
    if (loop.rank > 1 && work_.chunk > kTurnedRows) work_.chunk -= work_.chunk % kTurnedRows;
    microseconds = static_cast<double>(loop.size) * kernel->nanoseconds_per_element * 1e-3;
    reads = reads_;
    writes = writes_;
    device = call.device();
    work_.device = Engine::device(device);
    for (int i = 0; i < call.operands->count; ++i) {
      const Tensor* tensor = call.operands->tensors[i];
      if (tensor == nullptr) continue;
      add_place(*tensor);
      reads_[read_count++] = tensor->storage;
    }
  }

  void add_result(const Tensor& tensor) {
    add_place(tensor);
    writes_[write_count++] = tensor.storage;
  }

  void add_target(const Tensor& tensor) {
    // The rest of the storage keeps its contents and its failure.
    if (!tensor.whole()) reads_[read_count++] = tensor.storage;
    add_result(tensor);
    known_writes = 1;
    tensor.storage->bump_version();
  }

  // The extents, then the strides of each operand, then the scalars. New results are contiguous.
  void add_integers(int contiguous_results) {
    const Loop& loop = call_.loop;
    int64_t* next = integers_;
    for (int d = 0; d < loop.rank; ++d) *next++ = loop.extents[d];
    for (int i = 0; i < loop.operands; ++i) {
      for (int d = 0; d < loop.rank; ++d) *next++ = loop.strides[i][d];
    }
    for (int i = 0; i < contiguous_results; ++i) {
      result_strides(loop, next);
      next += loop.rank;
    }
    for (int i = 0; i < call_.operands->count; ++i) {
      if (call_.operands->tensors[i] == nullptr) *next++ = call_.operands->scalars[i];
    }
    integer_count_ = next - integers_;
  }

  FailurePointer run(PartialFailures&) override { return run_work(work_, integers_); }

  std::unique_ptr<Operation> later() override {
    auto operation = std::make_unique<ElementwiseOperation>(work_, integers_,
                                                            static_cast<size_t>(integer_count_));
    operation->call = &call_;
    operation->kernel = kernel_;
    return operation;
  }

 private:
  void add_place(const Tensor& tensor) {
    work_.places[work_.place_count++] = {tensor.storage, tensor.offset * item_size(tensor.dtype)};
  }

  const ElementwiseCall& call_;
  const ElementwisePointer& kernel_;
  Work work_;
  Storage* reads_[kMaxOperands];
  Storage* writes_[kMaxOperands];
  int64_t integer_count_ = 0;
  int64_t integers_[kMaxIntegers];
};

}  // namespace

// Whether every array, including the target, is dense and has the shape of the first one.
bool ElementwiseCall::find_even() {
  if (operands->first == nullptr) return false;  // only scalars, written into a target
  const Tensor& first = *operands->first;
  const auto like_first = [&first](const Tensor& tensor) {
    return tensor.contiguous && tensor.ndim == first.ndim &&
           std::equal(first.extents(), first.extents() + first.ndim, tensor.extents());
  };
  if (!first.contiguous || (target != nullptr && !like_first(*target))) return false;
  for (int i = 0; i < operands->count; ++i) {
    const Tensor* tensor = operands->tensors[i];
    if (tensor == nullptr || tensor == &first) continue;
    if (!like_first(*tensor)) return false;
  }
  return true;
}

bool ElementwiseCall::prepare() {
  even = find_even();
  if (even) {
    ndim = operands->first->ndim;
    std::copy_n(operands->first->extents(), ndim, shape);
    loop.rank = 1;
    loop.moved = -1;
    loop.operands = operands->array_count + (target != nullptr);
    loop.size = loop.extents[0] = operands->first->size;
    for (int i = 0; i < loop.operands; ++i) loop.strides[i][0] = 1;
    return true;
  }
  OperandLayout layouts[kMaxOperands];
  int count = 0;
  for (int i = 0; i < operands->count; ++i) {
    const Tensor* tensor = operands->tensors[i];
    if (tensor != nullptr) layouts[count++] = tensor->layout();
  }
  if (!broadcast_shapes(layouts, count, shape, &ndim)) return false;
  if (target != nullptr) {
    layouts[count++] = target->layout();
    int64_t joint[kMaxRank];
    int joint_ndim;
    if (!broadcast_shapes(layouts, count, joint, &joint_ndim) || joint_ndim != target->ndim ||
        std::memcmp(joint, target->extents(), sizeof(int64_t) * joint_ndim) != 0) {
      return false;
    }
    ndim = joint_ndim;
    std::memcpy(shape, joint, sizeof(int64_t) * ndim);
  }
  build_loop(layouts, count, shape, ndim, &loop);
  lines_last(&loop, operands->array_count);
  return true;
}

int ElementwiseCall::inner_class(int array) const {
  const int64_t* strides = loop.strides[array];
  const int found = stride_class(strides[loop.rank - 1]);
  // An operand with stride 1 along the loop above is transposed in panels, if that pays.
  const bool across = found == kStrided && array < operands->array_count && loop.rank > 1 &&
                      strides[loop.rank - 2] == 1;
  const bool many =
      across && std::min(loop.extents[loop.rank - 2], loop.extents[loop.rank - 1]) >= kFewLines;
  return many ? kAcross : found;
}

// The machine code, the operation and its parameters, then one byte for each operand, then two bits
// for each operand (its stride class). The target comes last.
ElementwiseKey ElementwiseCall::key(uint32_t operation, uint32_t parameters) const {
  static_assert(kMaxInputs <= 11);
  ElementwiseKey key;
  key.words[1] = operands->tag_words[0];
  key.words[2] = operands->tag_words[1];
  key.words[0] = static_cast<uint64_t>(Engine::machine(device())) << 56 |
                 static_cast<uint64_t>(operation) << 40 | static_cast<uint64_t>(parameters) << 8 |
                 static_cast<uint64_t>(loop.rank) << 1 | (target != nullptr);
  uint64_t classes = operands->arrays;  // if all arrays are dense
  if (!even) {
    classes = 0;
    int array = 0;
    for (int i = 0; i < operands->count; ++i) {
      if (operands->tensors[i] == nullptr) continue;
      classes |= static_cast<uint64_t>(inner_class(array++)) << 2 * i;
    }
  }
  if (target != nullptr) {
    key.words[2] |= (target->dtype + uint64_t{1}) << 24;
    classes |= static_cast<uint64_t>(inner_class(operands->array_count)) << 22;
  }
  key.words[2] |= classes << 32;
  return key;
}

void ElementwiseCall::check_numbers(const ElementwiseKernel& kernel) const {
  for (size_t i = 0; i < kernel.limits.size(); ++i) {
    if (kernel.limits[i] == kAnyNumber) continue;
    const uint8_t code = kernel.limits[i] % kNatural;
    if (code != kernel.limits[i] && operands->scalars[i] < 0) {
      throw Error(kernel.failure.type, kernel.failure.message);
    }
    if (holds(code, operands->scalars[i])) continue;
    throw Error("OverflowError", kernel.name + ": " + std::to_string(operands->scalars[i]) +
                                     " is out of bounds for " + kDTypes[code].name);
  }
}

bool ElementwiseCall::settled() const {
  const Tensor* const* begin = operands->tensors;
  return std::all_of(begin, begin + operands->count,
                     [](const Tensor* tensor) { return tensor == nullptr || tensor->settled(); });
}

void ElementwiseCall::launch(const ElementwisePointer& kernel, const Tensor* const* results,
                             Front& front) const {
  if (loop.size == 0 && settled()) return;
  ElementwiseLaunch work(*this, kernel);
  const int count = target != nullptr ? 0 : static_cast<int>(kernel->out_codes.size());
  for (int i = 0; i < count; ++i) work.add_result(*results[i]);
  if (target != nullptr) work.add_target(*target);
  work.add_integers(count);
  gemel::launch(work, front);
}

}  // namespace gemel
