// A device is a table: how its memory is taken and given back, how bytes are copied, how a kernel
// is launched, and which lanes it has. Tables are registered at run time (Engine::register_device).

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/completion.h"
#include "engine/lanes.h"

namespace gemel {

// The calling convention of machine-code kernels: buffers, integers, begin, end -> 0, or a positive
// status.
using KernelFunction = int32_t (*)(void* const* buffers, const int64_t* integers, int64_t begin,
                                   int64_t end);

// One call of a kernel over [0, extent), in pieces of `chunk`. On a device whose kernels are no
// functions of this process, `function` is whatever its `launch` understands.
struct KernelCall {
  KernelFunction function;
  void* const* buffers;
  const int64_t* integers;
  int64_t extent;
  int64_t chunk;
};

// The functions given here are the CPU's; another device overrides them.
class Device {
 public:
  Device(std::string name, std::string target) : name(std::move(name)), target(std::move(target)) {}
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual void* allocate(size_t bytes) noexcept;  // null when out of memory
  virtual void release(void* block, size_t bytes) noexcept;
  // Between this device and the host, or within it; `done` when the bytes have arrived.
  virtual void copy(void* to, const void* from, size_t bytes, Completion done);
  // Runs, or begins to run, a kernel: its status, the first one in the order of the range, so that
  // it is the same every time.
  virtual int32_t launch(const KernelCall& call);
  // `done` when what was launched by this operation has ended: here, when launch has returned.
  virtual void finish(Completion done) { done(); }
  virtual void synchronize() {}

  const std::string name;
  const std::string target;  // what machine code it runs
  // Its memory is the host's and any thread may do its work: small work is done by the call itself.
  bool on_host = false;
  int lane = -1;             // where its operations run
  int incoming = kCopyLane;  // copies from the host to it
  int outgoing = kCopyLane;  // copies from it to the host
};

}  // namespace gemel
