#include "cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

namespace gemel::cuda {
namespace {

template <typename FunctionPointer>
bool find(void* library, const char* name, FunctionPointer* found) {
  *found = reinterpret_cast<FunctionPointer>(dlsym(library, name));
  return *found != nullptr;
}

bool find_all(void* library, Driver* driver) {
  return find(library, "cuInit", &driver->init) &&
         find(library, "cuGetErrorName", &driver->error_name) &&
         find(library, "cuGetErrorString", &driver->error_string) &&
         find(library, "cuDeviceGetCount", &driver->device_count) &&
         find(library, "cuDeviceGetName", &driver->device_name) &&
         find(library, "cuDeviceGetAttribute", &driver->device_attribute) &&
         find(library, "cuDevicePrimaryCtxRetain", &driver->retain_context) &&
         find(library, "cuCtxGetCurrent", &driver->current) &&
         find(library, "cuCtxSetCurrent", &driver->set_current) &&
         find(library, "cuMemGetInfo_v2", &driver->memory_info) &&
         find(library, "cuDeviceGetMemPool", &driver->memory_pool) &&
         find(library, "cuMemPoolSetAttribute", &driver->set_pool) &&
         find(library, "cuMemAllocAsync", &driver->allocate) &&
         find(library, "cuMemFreeAsync", &driver->release) &&
         find(library, "cuMemHostAlloc", &driver->allocate_host) &&
         find(library, "cuPointerGetAttribute", &driver->attribute_of) &&
         find(library, "cuMemcpyAsync", &driver->copy) &&
         find(library, "cuMemcpyPeerAsync", &driver->copy_to_peer) &&
         find(library, "cuMemsetD8Async", &driver->fill) &&
         find(library, "cuStreamCreate", &driver->create_stream) &&
         find(library, "cuStreamSynchronize", &driver->wait_for_stream) &&
         find(library, "cuEventCreate", &driver->create_event) &&
         find(library, "cuEventRecord", &driver->record) &&
         find(library, "cuEventQuery", &driver->query) &&
         find(library, "cuEventSynchronize", &driver->wait_for_event) &&
         find(library, "cuModuleLoadData", &driver->load) &&
         find(library, "cuModuleUnload", &driver->unload) &&
         find(library, "cuModuleGetFunction", &driver->find) &&
         find(library, "cuFuncSetAttribute", &driver->set_attribute) &&
         find(library, "cuOccupancyMaxActiveBlocksPerMultiprocessor", &driver->resident_blocks) &&
         find(library, "cuLaunchKernel", &driver->launch);
}

std::atomic<bool> forked_child{false};

const Driver* opened() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  static Driver driver;
  int count = 0;
  const bool usable = find_all(library, &driver) && driver.init(0) == kSuccess &&
                      driver.device_count(&count) == kSuccess && count > 0;
  if (!usable || pthread_atfork(nullptr, nullptr, [] { forked_child.store(true); }) != 0) {
    return nullptr;
  }
  return &driver;
}

}  // namespace

const Driver* Driver::get() {
  static const Driver* const driver = opened();
  return driver;
}

std::string Driver::explain(const char* action, Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  error_name(result, &name);
  error_string(result, &text);
  return std::string(action) + ": " + (name == nullptr ? std::to_string(result) : name) + " (" +
         (text == nullptr ? "unknown" : text) + ")";
}

int count_gpus() {
  const Driver* driver = Driver::get();
  int count = 0;
  if (driver != nullptr) driver->device_count(&count);
  return count;
}

bool is_forked_child() noexcept { return forked_child.load(std::memory_order_relaxed); }

Context contexts[kMostGpus] = {};

Inside::Inside(const Driver& driver, Context context) noexcept : driver_(driver) {
  if (is_forked_child()) return;
  driver.current(&before_);
  entered_ = before_ == context || driver.set_current(context) == kSuccess;
  if (before_ == context) before_ = nullptr;
}

Inside::~Inside() {
  if (before_ != nullptr) driver_.set_current(before_);
}

}  // namespace gemel::cuda
