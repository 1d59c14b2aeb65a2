#include "python/dispatch.h"

#include <cstring>

#include "python/describe.h"
#include "python/state.h"
#include "python/waits.h"

namespace gemel {
namespace {

constexpr size_t kTableEntries = 4096;
constexpr int kMaxIntegers = kMaxRank * (kMaxOperands + 1) + kMaxOperands;

bool collect_scalar(PyObject* object, Operands* operands, int at) {
  operands->arrays[at] = nullptr;
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    operands->scalars[at] = PyLong_AsLongLongAndOverflow(object, &overflow);
    operands->tags[at] = kScalarInt;
    return overflow == 0;
  }
  if (PyFloat_CheckExact(object)) {
    double value = PyFloat_AS_DOUBLE(object);
    std::memcpy(&operands->scalars[at], &value, sizeof value);
    operands->tags[at] = kScalarFloat;
    return true;
  }
  if (PyBool_Check(object)) {
    operands->scalars[at] = object == Py_True;
    operands->tags[at] = kScalarBool;
    return true;
  }
  return false;
}

struct Launch;

// Everything a kernel needs but the memory, which is taken when the operation starts.
class ElementwiseOperation final : public Operation {
 public:
  void start(Completion done) override {
    void* buffers[kMaxOperands];
    for (int i = 0; i < place_count; ++i) {
      buffers[i] = static_cast<char*>(places[i].storage->data()) + places[i].bytes;
    }
    const int32_t status = Engine::device(device)->launch(
        {kernel->kernel.function, buffers, integers.data(), extent, chunk});
    done(status == 0 ? nullptr : make_failure(kernel->failure, origin));
  }
  std::string name() const override { return kernel->name; }
  std::string detail() const override;

  const Launch* launch = nullptr;  // valid until issue() has returned
  ElementwisePointer kernel;
  int place_count = 0;
  Place places[kMaxOperands];
  std::vector<int64_t> integers;
  int64_t extent = 0;
  int64_t chunk = 0;
};

// One call on its way to the kernel, on the stack.
struct Launch {
  const ElementwiseCall& call;
  const ElementwisePointer& kernel;
  int place_count = 0;
  Place places[kMaxOperands];
  int integer_count = 0;
  int64_t integers[kMaxIntegers];
  int read_count = 0;
  Storage* reads[kMaxOperands];
  int write_count = 0;
  Storage* writes[kMaxOperands];

  Launch(const ElementwiseCall& elementwise_call, const ElementwisePointer& elementwise_kernel)
      : call(elementwise_call), kernel(elementwise_kernel) {}

  double microseconds() const {
    return static_cast<double>(call.loop.size) * kernel->nanoseconds_per_element * 1e-3;
  }
  int64_t chunk() const {
    const Loop& loop = call.loop;
    int64_t inner = loop.size / loop.extents[0];
    return inner >= kTileElements ? 1 : kTileElements / inner;
  }
  void add_place(Array* array) {
    places[place_count++] = {array->storage, array->offset * kItemSize[array->code]};
  }
  void add_inputs() {
    for (int i = 0; i < call.operands->count; ++i) {
      Array* array = call.operands->arrays[i];
      if (array == nullptr) continue;
      add_place(array);
      reads[read_count++] = array->storage;
    }
  }
  void add_result(Array* array) {
    add_place(array);
    writes[write_count++] = array->storage;
  }
  void add_integers(int contiguous_results);
  // What outside shares must be as this call leaves it when it returns.
  bool settle() { return settle_exports(reads, read_count) && settle_exports(writes, write_count); }
};

// Extents, then strides by operand, then the scalars; new results are contiguous.
void Launch::add_integers(int contiguous_results) {
  const Loop& loop = call.loop;
  int64_t* next = integers;
  for (int d = 0; d < loop.rank; ++d) *next++ = loop.extents[d];
  for (int i = 0; i < loop.operands; ++i) {
    for (int d = 0; d < loop.rank; ++d) *next++ = loop.strides[i][d];
  }
  for (int i = 0; i < contiguous_results; ++i) {
    contiguous_strides(loop.extents, loop.rank, next);
    next += loop.rank;
  }
  for (int i = 0; i < call.operands->count; ++i) {
    if (call.operands->arrays[i] == nullptr) *next++ = call.operands->scalars[i];
  }
  integer_count = static_cast<int>(next - integers);
}

std::string ElementwiseOperation::detail() const {
  const Operands& operands = *launch->call.operands;
  std::string text;
  for (int i = 0; i < operands.count; ++i) {
    Array* array = operands.arrays[i];
    if (array != nullptr) text += (text.empty() ? "" : ", ") + describe(array);
  }
  return text + " -> " +
         describe(kernel->out_codes[0], launch->call.shape, static_cast<size_t>(launch->call.ndim));
}

// Runs the kernel on this thread. The storages have been acquired and have memory.
FailurePointer run_here(Launch* launch) {
  void* buffers[kMaxOperands];
  for (int i = 0; i < launch->place_count; ++i) {
    buffers[i] = static_cast<char*>(launch->places[i].storage->data()) + launch->places[i].bytes;
  }
  Device* device = Engine::device(launch->writes[0]->device());
  int32_t status = device->launch({launch->kernel->kernel.function, buffers, launch->integers,
                                   launch->call.loop.extents[0], launch->chunk()});
  return status == 0 ? nullptr : make_failure(launch->kernel->failure, current_origin());
}

bool hand_over(Launch* launch) {
  auto operation = std::make_unique<ElementwiseOperation>();
  operation->kernel = launch->kernel;
  operation->place_count = launch->place_count;
  std::memcpy(operation->places, launch->places, sizeof(Place) * launch->place_count);
  operation->integers.assign(launch->integers, launch->integers + launch->integer_count);
  operation->launch = launch;
  operation->extent = launch->call.loop.extents[0];
  operation->chunk = launch->chunk();
  operation->reads.assign(launch->reads, launch->reads + launch->read_count);
  operation->writes.assign(launch->writes, launch->writes + launch->write_count);
  operation->microseconds = launch->microseconds();
  operation->device = launch->writes[0]->device();
  operation->origin = current_origin();
  return issue_operation(std::move(operation));
}

bool materialize_all(Launch* launch) {
  for (int i = 0; i < launch->write_count; ++i) {
    if (launch->writes[i]->data() == nullptr && launch->writes[i]->materialize() == nullptr) {
      return false;
    }
  }
  return true;
}

// Nobody else knows of new results, so acquiring them cannot fail; only failures need it.
void fail_new_results(Launch* launch, FailurePointer failure) {
  Engine& engine = Engine::get();
  if (engine.acquire_inline(nullptr, 0, launch->writes, launch->write_count, 0)) {
    engine.release_inline(nullptr, 0, launch->writes, launch->write_count, std::move(failure));
  }
}

bool launch_new(Launch* launch) {
  Engine& engine = Engine::get();
  if (!engine.acquire_inline(launch->reads, launch->read_count, nullptr, 0,
                             launch->microseconds())) {
    return hand_over(launch);
  }
  if (!materialize_all(launch)) {
    // The engine reports missing memory as it does for all work.
    engine.release_inline(launch->reads, launch->read_count, nullptr, 0);
    return hand_over(launch);
  }
  FailurePointer failure = run_here(launch);
  engine.release_inline(launch->reads, launch->read_count, nullptr, 0);
  if (failure != nullptr) fail_new_results(launch, std::move(failure));
  return true;
}

bool launch_into(Launch* launch) {
  Engine& engine = Engine::get();
  launch->writes[0]->bump_version();
  if (!engine.acquire_inline(launch->reads, launch->read_count, launch->writes, 1,
                             launch->microseconds())) {
    return hand_over(launch);
  }
  FailurePointer failure = run_here(launch);
  engine.release_inline(launch->reads, launch->read_count, launch->writes, 1, std::move(failure));
  return true;
}

void release_all(PyObject** objects, int count) {
  for (int i = 0; i < count; ++i) Py_CLEAR(objects[i]);
}

}  // namespace

ElementwiseTable& elementwise_table() {
  static auto* table = new ElementwiseTable(kTableEntries);
  return *table;
}

bool collect_operands(PyObject* const* objects, Py_ssize_t count, Operands* operands) {
  if (count > kMaxOperands - 4) return false;  // room for results
  operands->count = static_cast<int>(count);
  for (int i = 0; i < operands->count; ++i) {
    if (!is_array(objects[i])) {
      if (!collect_scalar(objects[i], operands, i)) return false;
      continue;
    }
    Array* array = as_array(objects[i]);
    operands->arrays[i] = array;
    operands->tags[i] = array->code;
    ++operands->array_count;
    operands->tracked |= is_tracked(array);
    if (operands->first == nullptr) {
      operands->first = array;
    } else if (array->storage->device() != operands->first->storage->device()) {
      return false;
    }
  }
  return true;
}

bool ElementwiseCall::prepare() {
  OperandLayout layouts[kMaxOperands];
  int count = 0;
  bool same = target == nullptr && operands->first->contiguous;
  for (int i = 0; i < operands->count; ++i) {
    Array* array = operands->arrays[i];
    if (array == nullptr) continue;
    layouts[count++] = array->layout();
    same = same && array->contiguous && array->ndim == operands->first->ndim &&
           std::memcmp(array->dims, operands->first->dims, sizeof(int64_t) * array->ndim) == 0;
  }
  if (same) {
    ndim = operands->first->ndim;
    std::memcpy(shape, operands->first->dims, sizeof(int64_t) * ndim);
    loop.rank = 1;
    loop.operands = count;
    loop.size = loop.extents[0] = operands->first->size;
    for (int i = 0; i < count; ++i) loop.strides[i][0] = 1;
    return true;
  }
  if (!broadcast_shapes(layouts, count, shape, &ndim)) return false;
  if (target != nullptr) {
    layouts[count++] = target->layout();
    int64_t joint[kMaxRank];
    int joint_ndim;
    if (!broadcast_shapes(layouts, count, joint, &joint_ndim) || joint_ndim != target->ndim ||
        std::memcmp(joint, target->dims, sizeof(int64_t) * joint_ndim) != 0) {
      return false;
    }
    ndim = joint_ndim;
    std::memcpy(shape, joint, sizeof(int64_t) * ndim);
  }
  build_loop(layouts, count, shape, ndim, &loop);
  return true;
}

ElementwiseKey ElementwiseCall::key(uint32_t operation, uint32_t parameters) const {
  ElementwiseKey key;
  key.words[0] = static_cast<uint64_t>(operation) << 40 | static_cast<uint64_t>(parameters) << 16 |
                 static_cast<uint64_t>(loop.rank) << 1 | (target != nullptr);
  int array = 0;
  for (int i = 0; i < operands->count; ++i) {
    uint64_t byte = 0x80 | operands->tags[i];
    if (operands->arrays[i] != nullptr) byte |= static_cast<uint64_t>(inner_class(array++)) << 4;
    key.words[1 + (i >> 3)] |= byte << (8 * (i & 7));
  }
  if (target != nullptr) {
    uint64_t byte = 0x80 | target->code | static_cast<uint64_t>(inner_class(array)) << 4;
    key.words[2] |= byte << 56;  // collect_operands leaves this place free
  }
  return key;
}

bool run_elementwise(const ElementwiseCall& call, const ElementwisePointer& kernel,
                     PyObject** results) {
  int count = static_cast<int>(kernel->out_codes.size());
  int device = call.operands->first->storage->device();
  Launch launch(call, kernel);
  launch.add_inputs();
  for (int i = 0; i < count; ++i) {
    Array* result = new_array(kernel->out_codes[i], call.shape, call.ndim, device);
    if (result == nullptr) {
      release_all(results, i);
      return false;
    }
    results[i] = as_object(result);
    launch.add_result(result);
  }
  if (call.loop.size == 0) return true;
  launch.add_integers(count);
  if (launch_new(&launch) && launch.settle()) return true;
  release_all(results, count);
  return false;
}

bool run_elementwise_into(const ElementwiseCall& call, const ElementwisePointer& kernel) {
  if (call.loop.size == 0) return true;
  Launch launch(call, kernel);
  launch.add_inputs();
  Array* target = call.target;
  // What is not overwritten of a storage keeps its meaning, and its failure.
  bool whole = target->contiguous && static_cast<size_t>(target->size) * kItemSize[target->code] ==
                                         target->storage->bytes();
  if (!whole) launch.reads[launch.read_count++] = target->storage;
  launch.add_result(target);
  launch.add_integers(0);
  return launch_into(&launch) && launch.settle();
}

}  // namespace gemel
