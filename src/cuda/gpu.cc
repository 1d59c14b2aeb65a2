#include "cuda/gpu.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <stdexcept>

#include "cuda/arrivals.h"
#include "cuda/blocks.h"
#include "cuda/driver.h"
#include "cuda/kernel.h"
#include "engine/engine.h"

namespace gemel::cuda {
namespace {

constexpr size_t kScratchBytes = size_t{32} << 20;  // for partial results of reductions
constexpr size_t kCounterBytes = size_t{1} << 16;   // for counting the blocks that have left them
constexpr size_t kMostArguments = 4096;             // bytes; more is refused by older GPUs

// Throws what the driver says. Only while a GPU is being set up.
void require(const Driver& driver, const char* action, Result result) {
  if (result != kSuccess) throw std::runtime_error(driver.explain(action, result));
}

constexpr const char* kForked = "a forked child cannot use a GPU that its parent has used";

// Set in the child of a fork after which it cannot use the GPUs of its parent.
std::atomic<bool> forked_child{false};

void mark_forked_children() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { forked_child.store(true); });
  (void)once;
}

Stream new_stream(const Driver& driver) {
  Stream stream = nullptr;
  require(driver, "create a stream", driver.create_stream(&stream, kNonBlockingStream));
  return stream;
}

Context context_of(const Driver& driver, int gpu) {
  Context context = nullptr;
  require(driver, "open", driver.retain_context(&context, gpu));
  require(driver, "use", driver.set_current(context));
  return context;
}

// Kernels run in the order of one stream. So an operation is started as soon as those before it
// have been (`ordered`), and the GPU does not wait for the host in between. Copies have a stream
// for each direction. Memory of storages can be used on any stream at once, what kernels borrow
// only on theirs.
class Gpu final : public Device {
 public:
  Gpu(const Driver& driver, int gpu, const std::string& name, int number)
      : Device(name, "cuda"),
        driver_(driver),
        gpu_(gpu),
        context_(context_of(driver, gpu)),
        kernels_(new_stream(driver)),
        arriving_(new_stream(driver)),
        leaving_(new_stream(driver)),
        blocks_(driver, new_stream(driver)),
        ended_(driver, context_, kernels_),
        arrived_(driver, context_, arriving_),
        left_(driver, context_, leaving_) {
    require(driver, "describe", driver.device_attribute(&multiprocessors_, kMultiprocessors, gpu));
    const Description description = cuda::describe(gpu);
    machine = description.capability;
    mark_forked_children();
    keep_freed_memory();
    prepare_scratch();
    Engine& engine = Engine::get();
    lane = engine.add_lane({.name = name, .own_thread = true, .ordered = true});
    incoming = engine.add_lane({.name = "copies to " + name, .own_thread = true, .link = number});
    outgoing = engine.add_lane({.name = "copies from " + name, .own_thread = true, .link = number});
  }

  void* allocate(size_t bytes) noexcept override {
    return enter() ? blocks_.allocate(bytes) : nullptr;
  }

  void release(void* block, size_t bytes) noexcept override {
    if (block != nullptr && enter()) blocks_.release(block, bytes);
  }

  void* borrow(size_t bytes) noexcept override {
    Address block = 0;
    if (!enter() || driver_.allocate(&block, bytes, kernels_) != kSuccess) return nullptr;
    return reinterpret_cast<void*>(block);
  }

  void give_back(void* block, size_t) noexcept override {
    if (enter()) driver_.release(reinterpret_cast<Address>(block), kernels_);
  }

  void copy(void* to, const void* from, size_t bytes, Completion done) override {
    if (!enter()) return done(forked());
    const bool in = is_ours(to);
    Arrivals& arrivals = in ? arrived_ : left_;
    const Result result =
        driver_.copy(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                     in ? arriving_ : leaving_);
    if (result != kSuccess) return done(arrivals.failure("copy", result));
    arrivals.add(std::move(done));
  }

  int32_t launch(const KernelCall& call) override;

  void finish(Completion done) override {
    if (!enter()) return done(forked());
    ended_.add(std::move(done));
  }

  const char* unusable() const noexcept override { return forked_child ? kForked : nullptr; }

  bool read(void* to, const void* from, size_t bytes) override {
    return enter() &&
           driver_.copy(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                        kernels_) == kSuccess &&
           driver_.wait_for_stream(kernels_) == kSuccess;
  }

  std::string explain(int32_t status) const override {
    return status == kRefused ? "this kernel is not for a GPU"
                              : driver_.explain(name.c_str(), -status);
  }

 private:
  static constexpr int32_t kRefused = INT32_MIN;

  // Makes its context that of this thread. False in a forked child, which cannot use the GPU.
  bool enter() const noexcept {
    thread_local Context current = nullptr;
    if (forked_child.load(std::memory_order_relaxed)) return false;
    if (current == context_) return true;
    if (driver_.set_current(context_) != kSuccess) return false;
    current = context_;
    return true;
  }

  // Whether a GPU has this memory.
  bool is_ours(const void* memory) const {
    unsigned kind = 0;
    const Result known =
        driver_.attribute_of(&kind, kMemoryType, reinterpret_cast<Address>(memory));
    return known == kSuccess && kind == kMemoryOfGpu;
  }

  FailurePointer forked() const {
    return std::make_shared<const Failure>("DeviceError", name + ": " + kForked);
  }

  // The pool gives nothing back to the driver by itself, which would take longer than any kernel.
  void keep_freed_memory() {
    Pool pool = nullptr;
    uint64_t all = UINT64_MAX;
    require(driver_, "find its memory pool", driver_.memory_pool(&pool, gpu_));
    require(driver_, "set its memory pool", driver_.set_pool(pool, kReleaseThreshold, &all));
    // Otherwise a storage could get memory that kernels still use, and would have to wait for them.
    int none = 0;
    require(driver_, "set its memory pool", driver_.set_pool(pool, kReuseAcrossStreams, &none));
  }

  void prepare_scratch() {
    scratch_ = static_cast<char*>(allocate(kScratchBytes + kCounterBytes));
    if (scratch_ == nullptr) throw std::runtime_error(name + ": out of memory");
    require(driver_, "clear",
            driver_.fill(reinterpret_cast<Address>(scratch_), 0, kScratchBytes + kCounterBytes,
                         kernels_));
    void* status = nullptr;
    require(driver_, "reserve", driver_.allocate_host(&status, sizeof(int32_t), 0));
    status_ = static_cast<volatile int32_t*>(status);
    *status_ = 0;
  }

  const Driver& driver_;
  const int gpu_;
  const Context context_;
  const Stream kernels_, arriving_, leaving_;
  Blocks blocks_;
  Arrivals ended_, arrived_, left_;
  int multiprocessors_ = 0;
  char* scratch_ = nullptr;  // partial results, then counters, which are 0 between kernels
  volatile int32_t* status_ = nullptr;  // set by a kernel that fails
};

// What every kernel gets after its buffers and integers; `print_cuda` declares the same.
struct Surroundings {
  char* scratch;
  char* counters;
  volatile int32_t* status;
  int32_t across;
  int32_t along;
};

int32_t Gpu::launch(const KernelCall& call) {
  Kernel* kernel = Kernel::of(call.function);
  if (kernel == nullptr || !enter()) return kRefused;
  const Form& form = kernel->form;
  const size_t room = sizeof(void*) * static_cast<size_t>(form.buffers + form.integers);
  if (room + sizeof(Surroundings) > kMostArguments) return kRefused;
  const Grid grid = grid_of(form, call.integers, multiprocessors_, kScratchBytes);
  if (grid.x == 0) return 0;
  Result result = kSuccess;
  const Function function = kernel->on(gpu_, &result);
  if (function == nullptr) return -result;
  alignas(8) char arguments[kMostArguments];
  const size_t buffer_bytes = sizeof(void*) * static_cast<size_t>(form.buffers);
  std::memcpy(arguments, call.buffers, buffer_bytes);
  std::memcpy(arguments + buffer_bytes, call.integers, room - buffer_bytes);
  const Surroundings around{scratch_, scratch_ + kScratchBytes, status_, grid.across, grid.along};
  std::memcpy(arguments + room, &around, sizeof around);
  size_t size = room + sizeof around;
  void* extra[] = {kBufferPointer, arguments, kBufferSize, &size, kEnd};
  result = driver_.launch(function, static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1,
                          static_cast<unsigned>(grid.threads), 1, 1, 0, kernels_, nullptr, extra);
  if (result != kSuccess) return -result;
  if (!form.checks) return 0;
  // Only after the kernel is known whether an index was out of range.
  result = driver_.wait_for_stream(kernels_);
  if (result != kSuccess) return -result;
  const int32_t status = *status_;
  *status_ = 0;
  return status;
}

}  // namespace

Description describe(int gpu) {
  const Driver* driver = Driver::get();
  if (driver == nullptr) throw std::runtime_error("there is no GPU");
  char name[256] = "";
  int major = 0, minor = 0;
  Description found;
  require(*driver, "describe", driver->device_name(name, sizeof name, gpu));
  require(*driver, "describe", driver->device_attribute(&major, kCapabilityMajor, gpu));
  require(*driver, "describe", driver->device_attribute(&minor, kCapabilityMinor, gpu));
  require(*driver, "describe",
          driver->device_attribute(&found.multiprocessors, kMultiprocessors, gpu));
  found.name = name;
  found.capability = 10 * major + minor;
  return found;
}

Memory memory_of(int gpu) {
  const Driver* driver = Driver::get();
  if (driver == nullptr) throw std::runtime_error("there is no GPU");
  context_of(*driver, gpu);
  Memory memory;
  require(*driver, "ask for its memory", driver->memory_info(&memory.free, &memory.total));
  return memory;
}

void register_gpu(int gpu, int device, const std::string& name) {
  if (Engine::device(device) != nullptr) return;
  const Driver* driver = Driver::get();
  if (driver == nullptr || gpu >= kMostGpus) throw std::runtime_error("there is no such GPU");
  Engine::get().register_device(device, std::make_unique<Gpu>(*driver, gpu, name, device));
}

}  // namespace gemel::cuda
