#include "cuda/kernel.h"

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

Function Kernel::on(int gpu, Result* error) {
  Function found = functions_[gpu].load(std::memory_order_acquire);
  if (found != nullptr) return found;
  std::lock_guard<std::mutex> guard(mutex_);
  const Driver& driver = *Driver::get();
  *error = kSuccess;
  if (modules_[gpu] == nullptr) *error = driver.load(&modules_[gpu], code_.data());
  if (*error == kSuccess) *error = driver.find(&found, modules_[gpu], "kernel");
  if (*error == kSuccess && form.shared > 0) {
    *error = driver.set_attribute(found, kMostSharedBytes, form.shared);
  }
  if (*error != kSuccess) return nullptr;
  functions_[gpu].store(found, std::memory_order_release);
  return found;
}

}  // namespace gemel::cuda
