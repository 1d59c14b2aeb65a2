// Loads ELF64 relocatable objects (x86-64, aarch64) that contain one function, `kernel`.
//
// There is one mapping: it is first written and then made executable, and is never both. Every
// offset in the file is checked against its bounds, so a truncated or corrupt object throws instead
// of crashing.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace gemel {

class Object {
 public:
  // Copies what it needs from `code`. Throws std::runtime_error with the reason: a malformed
  // object, another architecture, an unknown relocation, or a symbol that is not in the fixed table
  // {memcpy, memset, memmove}.
  static std::unique_ptr<Object> load(const void* code, size_t bytes);

  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  KernelFunction kernel() const noexcept { return kernel_; }
  size_t mapped_bytes() const noexcept { return mapped_bytes_; }

 private:
  Object() = default;

  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  KernelFunction kernel_ = nullptr;
};

// Applies one relocation; works on any host. `place` has `room` bytes, which will run at `address`.
// `target` is the symbol plus the addend. Throws std::runtime_error when the kind is unknown or the
// value does not fit.
void relocate_x86_64(uint32_t kind, unsigned char* place, size_t room, uint64_t address,
                     uint64_t target);
void relocate_aarch64(uint32_t kind, unsigned char* place, size_t room, uint64_t address,
                      uint64_t target);

}  // namespace gemel
