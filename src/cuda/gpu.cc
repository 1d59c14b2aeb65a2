#include "cuda/gpu.h"

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
constexpr size_t kKeptShare = 4;         // a quarter of all memory may be kept for later arrays
constexpr size_t kMostArguments = 4096;  // bytes; more is refused by older GPUs

// Throws what the driver says. Only while a GPU is being set up.
void require(const Driver& driver, const char* action, Result result) {
  if (result != kSuccess) throw std::runtime_error(driver.explain(action, result));
}

Stream new_stream(const Driver& driver) {
  Stream stream = nullptr;
  require(driver, "create a stream", driver.create_stream(&stream, kNonBlockingStream));
  return stream;
}

void refuse_forked_children() {
  if (is_forked_child()) throw std::runtime_error(kForked);
}

Context context_of(const Driver& driver, int gpu) {
  if (contexts[gpu] == nullptr) {
    require(driver, "open", driver.retain_context(&contexts[gpu], gpu));
  }
  return contexts[gpu];
}

size_t total_memory(const Driver& driver) {
  size_t free = 0, total = 0;
  require(driver, "ask for its memory", driver.memory_info(&free, &total));
  return total;
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
        blocks_(driver, new_stream(driver), total_memory(driver) / kKeptShare),
        ended_(driver, context_, kernels_),
        arrived_(driver, context_, arriving_),
        left_(driver, context_, leaving_) {
    const Description description = cuda::describe(gpu);
    multiprocessors_ = description.multiprocessors;
    machine = description.capability;
    keep_freed_memory();
    prepare_scratch();
    Engine& engine = Engine::get();
    lane = engine.add_lane({.name = name, .own_thread = true, .ordered = true});
    incoming = engine.add_lane({.name = "copies to " + name, .own_thread = true, .link = number});
    outgoing = engine.add_lane({.name = "copies from " + name, .own_thread = true, .link = number});
  }

  void* allocate(size_t bytes) noexcept override {
    const Inside inside(driver_, context_);
    return inside ? blocks_.allocate(bytes) : nullptr;
  }

  void release(void* block, size_t bytes) noexcept override {
    const Inside inside(driver_, context_);
    if (block != nullptr && inside) blocks_.release(block, bytes);
  }

  void* borrow(size_t bytes) noexcept override {
    const Inside inside(driver_, context_);
    if (!inside) return nullptr;
    Address block = 0;
    Result result = driver_.allocate(&block, bytes, kernels_);
    if (result != kSuccess) {
      // What is kept may be enough, and what running kernels have borrowed.
      blocks_.trim();
      driver_.wait_for_stream(kernels_);
      result = driver_.allocate(&block, bytes, kernels_);
    }
    return result == kSuccess ? reinterpret_cast<void*>(block) : nullptr;
  }

  void give_back(void* block, size_t) noexcept override {
    const Inside inside(driver_, context_);
    if (inside) driver_.release(reinterpret_cast<Address>(block), kernels_);
  }

  void copy(void* to, const void* from, size_t bytes, Completion done) override {
    const Inside inside(driver_, context_);
    if (!inside) return done(forked());
    const int target = gpu_of(to), source = gpu_of(from);
    const auto at = [](const void* memory) { return reinterpret_cast<Address>(memory); };
    const bool in = target == gpu_;
    Arrivals& arrivals = in ? arrived_ : left_;
    const Stream stream = in ? arriving_ : leaving_;
    const bool peers = target >= 0 && source >= 0 && target != source;
    const Result result = peers ? driver_.copy_to_peer(at(to), contexts[target], at(from),
                                                       contexts[source], bytes, stream)
                                : driver_.copy(at(to), at(from), bytes, stream);
    if (result != kSuccess) return done(arrivals.failure("copy", result));
    arrivals.add(std::move(done));
  }

  int32_t launch(const KernelCall& call) override;

  void finish(Completion done) override {
    if (is_forked_child()) return done(forked());
    ended_.add(std::move(done));
  }

  void settle() noexcept override {
    const Inside inside(driver_, context_);
    if (inside) driver_.wait_for_stream(kernels_);
  }

  const char* unusable() const noexcept override { return is_forked_child() ? kForked : nullptr; }

  bool read(void* to, const void* from, size_t bytes) override {
    const Inside inside(driver_, context_);
    return inside &&
           driver_.copy(reinterpret_cast<Address>(to), reinterpret_cast<Address>(from), bytes,
                        kernels_) == kSuccess &&
           driver_.wait_for_stream(kernels_) == kSuccess;
  }

  std::string explain(int32_t status) const override {
    if (status == kOfProcessors) return name + ": this kernel is for processors";
    if (status == kTooMany) return name + ": the kernel has more than 4096 bytes of arguments";
    return status == kInForkedChild ? name + ": " + kForked
                                    : driver_.explain(name.c_str(), -status);
  }

 private:
  // Why launch() refuses a kernel; other negative statuses are the driver's.
  static constexpr int32_t kOfProcessors = INT32_MIN;
  static constexpr int32_t kTooMany = INT32_MIN + 1;
  static constexpr int32_t kInForkedChild = INT32_MIN + 2;

  // The GPU that has this memory; -1 for memory of the host.
  int gpu_of(const void* memory) const {
    const auto address = reinterpret_cast<Address>(memory);
    unsigned kind = 0;
    int gpu = -1;
    if (driver_.attribute_of(&kind, kMemoryType, address) != kSuccess) return -1;
    if (kind != kMemoryOfGpu) return -1;
    return driver_.attribute_of(&gpu, kNumberOfGpu, address) == kSuccess ? gpu : -1;
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
  int32_t shift;
};

int32_t Gpu::launch(const KernelCall& call) {
  Kernel* kernel = Kernel::of(call.function);
  if (kernel == nullptr) return kOfProcessors;
  const Inside inside(driver_, context_);
  if (!inside) return kInForkedChild;
  const Form& form = kernel->form;
  const size_t room = sizeof(void*) * static_cast<size_t>(form.buffers + form.integers);
  if (room + sizeof(Surroundings) > kMostArguments) return kTooMany;
  Result result = kSuccess;
  const Loaded* const loaded = kernel->on(gpu_, &result);
  if (loaded == nullptr) return -result;
  const Grid grid = grid_of(form, call.integers, multiprocessors_, loaded->resident, kScratchBytes);
  if (grid.x == 0) return 0;
  alignas(8) char arguments[kMostArguments];
  const size_t buffer_bytes = sizeof(void*) * static_cast<size_t>(form.buffers);
  std::memcpy(arguments, call.buffers, buffer_bytes);
  std::memcpy(arguments + buffer_bytes, call.integers, room - buffer_bytes);
  const Surroundings around{scratch_,  scratch_ + kScratchBytes, status_, grid.across, grid.along,
                            grid.shift};
  std::memcpy(arguments + room, &around, sizeof around);
  size_t size = room + sizeof around;
  void* extra[] = {kBufferPointer, arguments, kBufferSize, &size, kEnd};
  result = driver_.launch(loaded->function, static_cast<unsigned>(grid.x),
                          static_cast<unsigned>(grid.y), 1, static_cast<unsigned>(grid.threads), 1,
                          1, static_cast<unsigned>(form.shared), kernels_, nullptr, extra);
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
  refuse_forked_children();
  const Inside inside(*driver, context_of(*driver, gpu));
  Memory memory;
  require(*driver, "ask for its memory", driver->memory_info(&memory.free, &memory.total));
  return memory;
}

void register_gpu(int gpu, int device, const std::string& name) {
  if (Engine::device(device) != nullptr) return;
  const Driver* driver = Driver::get();
  if (driver == nullptr || gpu >= kMostGpus) throw std::runtime_error("there is no such GPU");
  refuse_forked_children();
  const Inside inside(*driver, context_of(*driver, gpu));
  Engine::get().register_device(device, std::make_unique<Gpu>(*driver, gpu, name, device));
}

}  // namespace gemel::cuda
