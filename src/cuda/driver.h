// NVIDIA's driver for GPUs. It is opened when it is first asked for, and its functions are called
// through a table, so gemel is built without CUDA and runs where there is no GPU.
//
// Names and numbers: CUDA Driver API, https://docs.nvidia.com/cuda/cuda-driver-api.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace gemel::cuda {

using Result = int;  // CUresult
constexpr Result kSuccess = 0;
constexpr Result kNotReady = 600;
using Address = unsigned long long;  // CUdeviceptr

using Context = struct OpaqueContext*;
using Stream = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using Pool = struct OpaquePool*;

// CUdevice_attribute
constexpr int kMultiprocessors = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

// CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_DEVICE
constexpr int kMemoryType = 2;
constexpr unsigned kMemoryOfGpu = 2;
constexpr int kNumberOfGpu = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

constexpr unsigned kNonBlockingStream = 1;
// CU_EVENT_BLOCKING_SYNC, so that waiting threads sleep, and CU_EVENT_DISABLE_TIMING.
constexpr unsigned kEventToWaitFor = 1 | 2;
// CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
constexpr int kReuseAcrossStreams = 3;
constexpr int kReleaseThreshold = 4;

// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kMostSharedBytes = 8;

// The last arguments of cuLaunchKernel: all arguments of the kernel lie in one buffer.
inline void* const kBufferPointer = reinterpret_cast<void*>(1);
inline void* const kBufferSize = reinterpret_cast<void*>(2);
inline void* const kEnd = nullptr;

struct Driver {
  Result (*init)(unsigned flags);
  Result (*error_name)(Result, const char**);
  Result (*error_string)(Result, const char**);
  Result (*device_count)(int*);
  Result (*device_name)(char*, int length, int device);
  Result (*device_attribute)(int*, int attribute, int device);
  Result (*retain_context)(Context*, int device);
  Result (*current)(Context*);
  Result (*set_current)(Context);
  Result (*memory_info)(size_t* free, size_t* total);
  Result (*memory_pool)(Pool*, int device);
  Result (*set_pool)(Pool, int attribute, void* value);
  Result (*allocate)(Address*, size_t, Stream);
  Result (*release)(Address, Stream);
  Result (*allocate_host)(void**, size_t, unsigned flags);
  Result (*attribute_of)(void* value, int attribute, Address);
  Result (*copy)(Address to, Address from, size_t, Stream);
  Result (*copy_to_peer)(Address to, Context, Address from, Context, size_t, Stream);
  Result (*fill)(Address, unsigned char, size_t, Stream);
  Result (*create_stream)(Stream*, unsigned flags);
  Result (*wait_for_stream)(Stream);
  Result (*create_event)(Event*, unsigned flags);
  Result (*record)(Event, Stream);
  Result (*query)(Event);
  Result (*wait_for_event)(Event);
  Result (*load)(Module*, const void* image);
  Result (*unload)(Module);
  Result (*find)(Function*, Module, const char* name);
  Result (*set_attribute)(Function, int attribute, int value);
  Result (*resident_blocks)(int*, Function, int threads, size_t shared_bytes);
  Result (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream,
                   void** parameters, void** extra);

  // Null when there is no driver, or it finds no GPU. Found out once per process.
  static const Driver* get();
  // What went wrong: "launch: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access ...)".
  std::string explain(const char* action, Result result) const;
};

// The number of GPUs; 0 without a driver.
int count_gpus();

// Whether this process was forked after the driver had been opened: then it can use no GPU.
bool is_forked_child() noexcept;
constexpr const char* kForked = "a forked child cannot use a GPU that its parent has used";

constexpr int kMostGpus = 8;
// The contexts of the GPUs that this process uses; null for others.
extern Context contexts[kMostGpus];

// Makes a context that of this thread. The context of another library is restored afterwards.
class Inside {
 public:
  Inside(const Driver& driver, Context context) noexcept;
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  explicit operator bool() const noexcept { return entered_; }  // false in a forked child

 private:
  const Driver& driver_;
  Context before_ = nullptr;
  bool entered_ = false;
};

}  // namespace gemel::cuda
