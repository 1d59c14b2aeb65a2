#include "cuda/kernel.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace gemel::cuda {

std::shared_ptr<Kernel> Kernel::load(const void* bytes, size_t size) {
  Form form;
  if (size <= sizeof form) throw std::runtime_error("these bytes are no kernel for a GPU");
  std::memcpy(&form, bytes, sizeof form);
  const bool sound = form.buffers >= 0 && form.integers > 0 && form.outer > 0 && form.inner >= 0 &&
                     form.outer + form.inner <= form.integers && form.rows >= 0 &&
                     form.shared >= 0 &&
                     (form.rows == 0 || (form.outer > 3 && form.columns > 0 && form.threads > 0));
  if (!sound) throw std::runtime_error("these bytes are no kernel for a GPU");
  const char* code = static_cast<const char*>(bytes) + sizeof form;
  return std::shared_ptr<Kernel>(new Kernel(form, std::string(code, size - sizeof form)));
}

KernelFunction Kernel::function() const {
  return reinterpret_cast<KernelFunction>(reinterpret_cast<uintptr_t>(this) | 1);
}

Kernel* Kernel::of(KernelFunction function) {
  const auto address = reinterpret_cast<uintptr_t>(function);
  return (address & 1) != 0 ? reinterpret_cast<Kernel*>(address - 1) : nullptr;
}

Kernel::~Kernel() {
  for (int gpu = 0; gpu < kMostGpus; ++gpu) {
    if (modules_[gpu] == nullptr) continue;
    const Driver& driver = *Driver::get();
    const Inside inside(driver, contexts[gpu]);
    if (inside) driver.unload(modules_[gpu]);
  }
}

const Loaded* Kernel::on(int gpu, Result* error) {
  Loaded& loaded = loaded_[gpu];
  if (ready_[gpu].load(std::memory_order_acquire)) return &loaded;
  std::lock_guard<std::mutex> guard(mutex_);
  const Driver& driver = *Driver::get();
  const int threads = form.threads > 0 ? form.threads : kThreads;
  *error = kSuccess;
  if (modules_[gpu] == nullptr) *error = driver.load(&modules_[gpu], code_.data());
  if (*error == kSuccess) *error = driver.find(&loaded.function, modules_[gpu], "kernel");
  if (*error == kSuccess && form.shared > 0) {
    *error = driver.set_attribute(loaded.function, kMostSharedBytes, form.shared);
  }
  if (*error == kSuccess) {
    *error = driver.resident_blocks(&loaded.resident, loaded.function, threads,
                                    static_cast<size_t>(form.shared));
  }
  if (*error != kSuccess) return nullptr;
  loaded.resident = std::max(loaded.resident, 1);
  ready_[gpu].store(true, std::memory_order_release);
  return &loaded;
}

}  // namespace gemel::cuda
