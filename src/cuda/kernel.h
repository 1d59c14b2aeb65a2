// A kernel for GPUs: what the driver loads, and what its launch depends on.

#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "cuda/grid.h"
#include "engine/device.h"

namespace gemel::cuda {

// A kernel on one GPU: what the driver launches, and how many blocks fit on a multiprocessor.
struct Loaded {
  Function function = nullptr;
  int resident = 1;
};

class Kernel {
 public:
  // From a Form and the machine code that follows it. Throws std::runtime_error for other bytes.
  static std::shared_ptr<Kernel> load(const void* bytes, size_t size);
  // The function that stands for this kernel in a KernelCall: its address plus one, which no
  // function of this process has.
  KernelFunction function() const;
  // The kernel that a function stands for; null for a function of this process.
  static Kernel* of(KernelFunction function);

  ~Kernel();
  // The kernel on a GPU, whose context is current; it is loaded when it is first asked for. Null,
  // with `error` set, if that fails.
  const Loaded* on(int gpu, Result* error);

  const Form form;

 private:
  Kernel(const Form& form, std::string code) : form(form), code_(std::move(code)) {}

  const std::string code_;
  std::mutex mutex_;
  std::atomic<bool> ready_[kMostGpus] = {};
  Loaded loaded_[kMostGpus];
  Module modules_[kMostGpus] = {};
};

}  // namespace gemel::cuda
