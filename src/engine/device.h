// A device is a table of functions and lanes: how its memory is allocated and released, how bytes
// are copied, how a kernel is launched, and which lanes the device has. Devices are registered at
// run time (Engine::register_device).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/completion.h"
#include "engine/lanes.h"

namespace gemel {

// The calling convention of machine-code kernels: buffers, integers, begin and end. The result is
// 0, or a positive status when the kernel failed.
using KernelFunction = int32_t (*)(void* const* buffers, const int64_t* integers, int64_t begin,
                                   int64_t end);

// One call of a kernel over [0, extent), in pieces of `chunk`. If the kernels of a device are not
// functions of this process, `function` is whatever the device's launch() understands.
struct KernelCall {
  KernelFunction function;
  void* const* buffers;
  const int64_t* integers;
  int64_t extent;
  int64_t chunk;
};

// Runs one piece of a kernel that is a function of this process: on this thread or, if its stack
// has no room for what kernels keep there, on a new one, which takes longer. kNoThread if the
// system makes no thread.
int32_t run_kernel(const KernelCall& call, int64_t begin, int64_t end) noexcept;
constexpr int32_t kNoThread = -1;

// The virtual functions defined here are those of the CPU; other devices override them.
class Device {
 public:
  Device(std::string name, std::string target) : name(std::move(name)), target(std::move(target)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual void* allocate(size_t bytes) noexcept;  // null when out of memory
  virtual void release(void* block, size_t bytes) noexcept;
  // Memory for the kernels of one operation. It may be given back as soon as they are launched, and
  // is used again only by what is launched later.
  virtual void* borrow(size_t bytes) noexcept { return allocate(bytes); }
  virtual void give_back(void* block, size_t bytes) noexcept { release(block, bytes); }
  // Copies between this device and the host, or within this device. Calls `done` when the bytes
  // have arrived.
  virtual void copy(void* to, const void* from, size_t bytes, Completion done);
  // Runs a kernel, or begins to run it. If several pieces fail, the status is that of the first one
  // in the order of the range, so that it is the same every time.
  virtual int32_t launch(const KernelCall& call);
  // Calls `done` when everything that this operation launched has ended. On the CPU that is as soon
  // as launch() has returned.
  virtual void finish(Completion done) { done(); }
  // Waits until nothing that this operation launched is running: called before it fails.
  virtual void settle() noexcept {}
  // Why it cannot be used at all; null if it can.
  virtual const char* unusable() const noexcept { return nullptr; }
  // Copies a few bytes of this device's memory to the host, after everything launched before. False
  // if that failed.
  virtual bool read(void* to, const void* from, size_t bytes);
  // What a negative status of launch() means; kernels return positive ones.
  virtual std::string explain(int32_t status) const;

  const std::string name;
  const std::string target;  // which machine code it runs
  // Devices with the same number run the same machine code; it is part of the keys of prepared
  // calls.
  int machine = 0;
  // Its memory is host memory and any thread may do its work, so a call does small work itself.
  bool on_host = false;
  int lane = -1;             // the lane of its operations
  int incoming = kCopyLane;  // the lane of copies from the host to it
  int outgoing = kCopyLane;  // the lane of copies from it to the host
};

}  // namespace gemel
