#include "capi/gemel.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "program/error.h"
#include "program/plan.h"

using namespace gemel;

static_assert(GEMEL_COMPLEX128 + 1 == kDTypeCount, "the header has a number for each dtype");

struct gemel_array {
  Tensor tensor;
};
struct gemel_plan {
  std::shared_ptr<const Program> program;
};
struct gemel_completion {
  Completion done;
};

namespace {

thread_local std::string last_error;
// The lanes created through this interface, one bit each; other lanes cannot be used here.
std::atomic<uint64_t> own_lanes{0};
static_assert(kMostLanes <= 64);

// Runs the body of a call and turns its exceptions into the status.
template <typename Body>
gemel_status guarded(Body&& body) noexcept {
  try {
    Engine::get();  // registers the CPU devices
    body();
    return GEMEL_OK;
  } catch (const Error& error) {
    last_error = error.type() + ": " + error.what();
  } catch (const std::bad_alloc&) {
    last_error = "MemoryError: out of memory";
  } catch (const std::exception& error) {
    last_error = std::string("RuntimeError: ") + error.what();
  }
  return GEMEL_FAILED;
}

void require(bool given, const char* what) {
  if (!given) throw Error("ValueError", what);
}

const Tensor& tensor_of(const gemel_array* array) {
  require(array != nullptr, "an array is null");
  return array->tensor;
}

class PlainFront final : public Front {
 public:
  void issue(std::unique_ptr<Operation> operation) override {
    Engine::get().issue(std::move(operation));
  }
  Origin origin() override { return {}; }
  void wait_until_idle(Storage* storage) override { Engine::get().wait_idle(storage); }
  void wait_until_written(Storage* storage) override { Engine::get().wait(storage); }
};

void raise(const FailurePointer& failure) {
  if (failure == nullptr) return;
  failure->seen.store(true);
  throw Error(failure->type, failure->message);
}

void wait_for(const Tensor& tensor) {
  Engine::get().wait(tensor.storage);
  raise(tensor.storage->failure());
}

void check_host(const Tensor& tensor, const void* data, size_t bytes) {
  require(data != nullptr || bytes == 0, "there is no memory to copy from or to");
  require(Engine::on_host(tensor.device()), "the array is not on a CPU");
  require(bytes == static_cast<size_t>(tensor.bytes()), "the array has another number of bytes");
}

// Copies into or out of an array, in its turn.
class Transfer final : public Operation {
 public:
  Transfer(void* to, const void* from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  void start(Completion done) override {
    if (bytes_ > 0) std::memcpy(to_, from_ == nullptr ? reads[0]->data() : from_, bytes_);
    done();
  }

 private:
  void* to_;
  const void* from_;
  size_t bytes_;
};

class Pushed final : public Operation {
 public:
  Pushed(const char* name, gemel_function function, void* context)
      : name_(name), function_(function), context_(context) {}
  ~Pushed() override {
    if (drop_ != nullptr) drop_(context_);
  }
  void start(Completion done) override {
    function_(context_, new gemel_completion{std::move(done)});
  }
  std::string name() const override { return name_; }
  void drop_with(void (*drop)(void*)) { drop_ = drop; }

 private:
  std::string name_;
  gemel_function function_;
  void* context_;
  void (*drop_)(void*) = nullptr;
};

std::vector<Storage*> storages(gemel_array* const* arrays, int count) {
  require(count == 0 || (count > 0 && arrays != nullptr), "there are no arrays, or less than none");
  std::vector<Storage*> found;
  for (int i = 0; i < count; ++i) found.push_back(tensor_of(arrays[i]).storage);
  return found;
}

PlanScalar scalar_of(double value) {
  const bool fits = value >= -0x1p63 && value < 0x1p63;
  return {fits ? static_cast<int64_t>(value) : 0, value};
}

std::vector<const Tensor*> inputs_of(const Program& program, gemel_array* const* arrays) {
  require(arrays != nullptr || program.inputs.empty(), "there are no inputs");
  std::vector<const Tensor*> tensors;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    tensors.push_back(&tensor_of(arrays[i]));
    require(tensors[i]->device() == tensors[0]->device(), "the inputs are on several devices");
    for (size_t j = 0; j < i; ++j) {
      const bool written = program.inputs[i].written || program.inputs[j].written;
      require(!written || tensors[i]->storage != tensors[j]->storage,
              "an array that is overwritten is given twice");
    }
  }
  return tensors;
}

const std::shared_ptr<const Program>& program_of(const gemel_plan* plan) {
  require(plan != nullptr, "the plan is null");
  return plan->program;
}

// One call of a plan: its inputs, the binding that fits, and the results it makes.
struct PlanCall {
  PlanCall(const std::shared_ptr<const Program>& program, gemel_array* const* arrays,
           const double* given, gemel_array** results)
      : inputs(inputs_of(*program, arrays)) {
    require(results != nullptr || program->outputs.empty(), "there is no room for the results");
    require(given != nullptr || program->scalars == 0, "there are no scalars");
    Mismatch mismatch;
    binding = Binding::make(program, inputs.data(), &mismatch);
    if (binding == nullptr) throw Error("TypeError", explain(*program, mismatch, inputs.data()));
    if (!inputs.empty()) device = inputs[0]->device();
    for (size_t i = 0; i < program->outputs.size(); ++i) {
      made.push_back(std::make_unique<gemel_array>());
      outputs.push_back(&made[i]->tensor);
      binding->make_result(i, inputs.data(), outputs.data(), device, &made[i]->tensor);
    }
    for (int i = 0; i < program->scalars; ++i) scalars.push_back(scalar_of(given[i]));
  }

  void run_by_engine(int64_t seed) {
    PlainFront front;
    launch_plan(binding, inputs.data(), outputs.data(), scalars.data(), {seed, 0}, device, front);
  }

  void run_here(int64_t seed) {
    std::vector<char*> places;
    for (const Tensor* input : inputs) {
      wait_for(*input);
      places.push_back(input->data());
    }
    for (const auto& result : made) {
      result->tensor.materialize();
      places.push_back(result->tensor.data());
    }
    std::vector<SiteFailure> sites;
    raise(run_plan({*binding, places.data(), nullptr, scalars.data(), {seed, 0}},
                   this_thread_alone(), &sites));
    if (!sites.empty()) raise(sites.front().failure);
  }

  void give(gemel_array** results) {
    for (size_t i = 0; i < made.size(); ++i) results[i] = made[i].release();
  }

  const std::vector<const Tensor*> inputs;
  std::shared_ptr<const Binding> binding;
  std::vector<const Tensor*> outputs;
  std::vector<std::unique_ptr<gemel_array>> made;
  std::vector<PlanScalar> scalars;
  int device = 0;
};

}  // namespace

int gemel_abi(void) noexcept { return GEMEL_ABI; }

const char* gemel_error(void) noexcept { return last_error.c_str(); }

gemel_status gemel_array_create(int dtype, int rank, const int64_t* extents, int device,
                                gemel_array** array) noexcept {
  return guarded([&] {
    require(array != nullptr && (extents != nullptr || rank <= 0), "a pointer is null");
    require(dtype >= 0 && dtype < kDTypeCount, "there is no such dtype");
    require(Engine::device(device) != nullptr, "there is no such device");
    require(rank >= 0 && (rank == 0 || std::all_of(extents, extents + rank,
                                                   [](int64_t extent) { return extent >= 0; })),
            "the rank or an extent is negative");
    auto made = std::make_unique<gemel_array>();
    made->tensor.make(dtype, extents, rank, device);
    made->tensor.materialize();
    *array = made.release();
  });
}

gemel_status gemel_array_write(gemel_array* array, const void* data, size_t bytes) noexcept {
  return guarded([&] {
    const Tensor& tensor = tensor_of(array);
    check_host(tensor, data, bytes);
    if (bytes == 0) return;
    auto transfer = std::make_unique<Transfer>(tensor.data(), data, bytes);
    transfer->writes.push_back(tensor.storage);
    tensor.storage->bump_version();
    Engine::get().issue(std::move(transfer));
    wait_for(tensor);
  });
}

gemel_status gemel_array_read(gemel_array* array, void* data, size_t bytes) noexcept {
  return guarded([&] {
    check_host(tensor_of(array), data, bytes);
    Tensor ended;  // written by the transfer only, so it is what the call waits for
    ended.make(kBool, nullptr, 0, 0);
    auto transfer = std::make_unique<Transfer>(data, nullptr, bytes);
    transfer->reads.push_back(array->tensor.storage);
    transfer->writes.push_back(ended.storage);
    Engine::get().issue(std::move(transfer));
    wait_for(ended);
  });
}

gemel_dtype gemel_array_dtype(const gemel_array* array) noexcept {
  return static_cast<gemel_dtype>(array->tensor.dtype);
}
int gemel_array_rank(const gemel_array* array) noexcept { return array->tensor.ndim; }
const int64_t* gemel_array_extents(const gemel_array* array) noexcept {
  return array->tensor.extents();
}
size_t gemel_array_bytes(const gemel_array* array) noexcept {
  return static_cast<size_t>(array->tensor.bytes());
}
void* gemel_array_data(gemel_array* array) noexcept { return array->tensor.data(); }
void gemel_array_release(gemel_array* array) noexcept { delete array; }

gemel_status gemel_plan_load(const void* image, size_t bytes, gemel_plan** plan) noexcept {
  return guarded([&] {
    require(plan != nullptr && (image != nullptr || bytes == 0), "a pointer is null");
    auto loaded = std::make_unique<gemel_plan>();
    loaded->program =
        Program::read({static_cast<const char*>(image), bytes}, {}, {}, std::make_shared<Keeper>());
    for (const OutputSpec& output : loaded->program->outputs) {
      require(!output.is_view, "the plan's results are views; arrays here are dense");
    }
    *plan = loaded.release();
  });
}

const char* gemel_plan_name(const gemel_plan* plan) noexcept { return plan->program->name.c_str(); }
int gemel_plan_inputs(const gemel_plan* plan) noexcept {
  return static_cast<int>(plan->program->inputs.size());
}
int gemel_plan_outputs(const gemel_plan* plan) noexcept {
  return static_cast<int>(plan->program->outputs.size());
}
int gemel_plan_scalars(const gemel_plan* plan) noexcept { return plan->program->scalars; }
void gemel_plan_release(gemel_plan* plan) noexcept { delete plan; }

gemel_status gemel_plan_run(gemel_plan* plan, gemel_array* const* inputs, const double* scalars,
                            int64_t seed, gemel_array** results) noexcept {
  return guarded([&] {
    PlanCall call(program_of(plan), inputs, scalars, results);
    call.run_by_engine(seed);
    call.give(results);
  });
}

gemel_status gemel_plan_run_here(gemel_plan* plan, gemel_array* const* inputs,
                                 const double* scalars, int64_t seed,
                                 gemel_array** results) noexcept {
  return guarded([&] {
    PlanCall call(program_of(plan), inputs, scalars, results);
    call.run_here(seed);
    call.give(results);
  });
}

void gemel_complete(gemel_completion* done, const char* message) noexcept {
  const std::unique_ptr<gemel_completion> ended(done);
  ended->done(message == nullptr ? nullptr
                                 : std::make_shared<const Failure>("RuntimeError", message));
}

gemel_status gemel_lane_create(const char* name, int* lane) noexcept {
  return guarded([&] {
    require(name != nullptr && lane != nullptr, "a pointer is null");
    *lane = Engine::get().add_lane({.name = name, .own_thread = true});
    own_lanes.fetch_or(uint64_t{1} << *lane);
  });
}

gemel_status gemel_push(const char* name, gemel_function function, void* context,
                        void (*drop)(void*), gemel_array* const* reads, int read_count,
                        gemel_array* const* writes, int write_count, int lane) noexcept {
  return guarded([&] {
    require(name != nullptr && function != nullptr, "there is no name, or no function to push");
    const bool known = lane >= 0 && lane < kMostLanes && (own_lanes.load() >> lane & 1) != 0;
    require(lane == -1 || known, "there is no such lane");
    auto operation = std::make_unique<Pushed>(name, function, context);
    operation->reads = storages(reads, read_count);
    operation->writes = storages(writes, write_count);
    for (Storage* storage : operation->writes) storage->bump_version();
    operation->lane = lane;
    operation->drop_with(drop);  // set last, when nothing can fail any more
    Engine::get().issue(std::move(operation));
  });
}

gemel_status gemel_wait(gemel_array* array) noexcept {
  return guarded([&] { wait_for(tensor_of(array)); });
}

gemel_status gemel_wait_all(void) noexcept {
  return guarded([&] { raise(Engine::get().wait_all()); });
}

void gemel_shutdown(void) noexcept { Engine::get().shut_down(); }
