#include "capi/gemel.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "program/error.h"
#include "program/plan.h"

using namespace gemel;

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

// Runs the body of a call: what it throws becomes its status.
template <typename Body>
gemel_status guarded(Body&& body) noexcept {
  try {
    Engine::get();  // which registers the CPUs
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

class PlainFront final : public Front {
 public:
  void issue(std::unique_ptr<Operation> operation) override {
    Engine::get().issue(std::move(operation));
  }
  Origin origin() override { return {}; }
  void wait_until_idle(Storage* storage) override { Engine::get().wait_idle(storage); }
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

void check_host(const Tensor& tensor, size_t bytes) {
  require(Engine::on_host(tensor.device()), "the array is not on a CPU");
  require(bytes == static_cast<size_t>(tensor.bytes()), "the array has another number of bytes");
}

// Copies in or out, in its turn.
class Transfer final : public Operation {
 public:
  Transfer(void* to, const void* from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  void start(Completion done) override {
    std::memcpy(to_, from_ == nullptr ? reads[0]->data() : from_, bytes_);
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
  std::vector<Storage*> found;
  for (int i = 0; i < count; ++i) {
    require(arrays[i] != nullptr, "an array is null");
    found.push_back(arrays[i]->tensor.storage);
  }
  return found;
}

PlanScalar scalar_of(double value) {
  const bool fits = value >= -0x1p63 && value < 0x1p63;
  return {fits ? static_cast<int64_t>(value) : 0, value};
}

// One call of a plan: what fits, and the results it makes.
struct PlanCall {
  PlanCall(const std::shared_ptr<const Program>& program, gemel_array* const* arrays,
           const double* given) {
    for (size_t i = 0; i < program->inputs.size(); ++i) {
      require(arrays != nullptr && arrays[i] != nullptr, "an input is null");
      inputs.push_back(&arrays[i]->tensor);
      require(inputs[i]->device() == inputs[0]->device(), "the inputs are on several devices");
    }
    Mismatch mismatch;
    binding = Binding::make(program, inputs.data(), &mismatch);
    if (binding == nullptr) throw Error("TypeError", explain(*program, mismatch, inputs.data()));
    if (!inputs.empty()) device = inputs[0]->device();
    for (size_t i = 0; i < program->outputs.size(); ++i) {
      made.push_back(std::make_unique<gemel_array>());
      outputs.push_back(&made[i]->tensor);
      binding->make_result(i, inputs.data(), outputs.data(), device, &made[i]->tensor);
    }
    require(program->scalars == 0 || given != nullptr, "the scalars are null");
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
    raise(run_plan({*binding, places.data(), scalars.data(), {seed, 0}}, this_thread_alone(),
                   &sites));
    if (!sites.empty()) raise(sites.front().failure);
  }

  void give(gemel_array** results) {
    for (size_t i = 0; i < made.size(); ++i) results[i] = made[i].release();
  }

  std::shared_ptr<const Binding> binding;
  std::vector<const Tensor*> inputs;
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
    const Tensor& tensor = array->tensor;
    check_host(tensor, bytes);
    auto transfer = std::make_unique<Transfer>(tensor.data(), data, bytes);
    transfer->writes.push_back(tensor.storage);
    tensor.storage->bump_version();
    Engine::get().issue(std::move(transfer));
    wait_for(tensor);
  });
}

gemel_status gemel_array_read(gemel_array* array, void* data, size_t bytes) noexcept {
  return guarded([&] {
    check_host(array->tensor, bytes);
    Tensor ended;  // what is waited for: nobody else writes it
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
    auto loaded = std::make_unique<gemel_plan>();
    loaded->program = Program::read({static_cast<const char*>(image), bytes}, {}, {});
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
    PlanCall call(plan->program, inputs, scalars);
    call.run_by_engine(seed);
    call.give(results);
  });
}

gemel_status gemel_plan_run_here(gemel_plan* plan, gemel_array* const* inputs,
                                 const double* scalars, int64_t seed,
                                 gemel_array** results) noexcept {
  return guarded([&] {
    PlanCall call(plan->program, inputs, scalars);
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
  return guarded([&] { *lane = Engine::get().add_lane({.name = name, .own_thread = true}); });
}

gemel_status gemel_push(const char* name, gemel_function function, void* context,
                        void (*drop)(void*), gemel_array* const* reads, int read_count,
                        gemel_array* const* writes, int write_count, int lane) noexcept {
  return guarded([&] {
    require(function != nullptr, "there is no function to push");
    auto operation = std::make_unique<Pushed>(name, function, context);
    operation->reads = storages(reads, read_count);
    operation->writes = storages(writes, write_count);
    for (Storage* storage : operation->writes) storage->bump_version();
    operation->lane = lane;
    operation->drop_with(drop);  // from here on nothing fails
    Engine::get().issue(std::move(operation));
  });
}

gemel_status gemel_wait(gemel_array* array) noexcept {
  return guarded([&] { wait_for(array->tensor); });
}

gemel_status gemel_wait_all(void) noexcept {
  return guarded([&] { raise(Engine::get().wait_all()); });
}

void gemel_shutdown(void) noexcept { Engine::get().shut_down(); }
