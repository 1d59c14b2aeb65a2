// Loader of ELF64 relocatable objects (x86-64, aarch64) holding one function, `kernel`.
//
// One mapping, written first and made executable afterwards; never both. Every offset found in the
// file is checked against its bounds: a truncated or corrupt object throws, it does not crash.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device.h"

namespace gemel {

class Object {
 public:
  // Copies what it needs out of `code`. Throws std::runtime_error saying what is wrong: a malformed
  // object, another architecture, an unknown relocation, or a symbol outside the fixed table
  // {memcpy, memset, memmove}, which it names.
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

// One relocation, on any host. `place` holds `room` bytes, which will run at `address`; `target` is
// symbol plus addend. Throws std::runtime_error when the kind is unknown, or the value does not
// fit.
void relocate_x86_64(uint32_t kind, unsigned char* place, size_t room, uint64_t address,
                     uint64_t target);
void relocate_aarch64(uint32_t kind, unsigned char* place, size_t room, uint64_t address,
                      uint64_t target);

}  // namespace gemel
