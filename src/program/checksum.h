// CRC-32 (ISO 3309, as in zlib and PNG), of which images of plans have one.

#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace gemel {

namespace checksum_internal {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Table k has the remainder of a byte that is followed by k bytes of zeros.
constexpr Tables tables() {
  Tables found{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320U : 0);
    found[0][byte] = rest;
  }
  for (size_t k = 1; k < found.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = found[k - 1][byte];
      found[k][byte] = before >> 8 ^ found[0][before & 0xFF];
    }
  }
  return found;
}

inline constexpr Tables kTables = tables();

}  // namespace checksum_internal

inline uint32_t crc32(std::span<const char> data) {
  const auto& tables = checksum_internal::kTables;
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(data[at]); };
  uint32_t rest = ~uint32_t{0};
  size_t at = 0;
  // Eight bytes at a time: their look-ups do not wait for each other.
  for (; at + 8 <= data.size(); at += 8) {
    uint32_t next = 0;
    for (size_t k = 0; k < 8; ++k) {
      const uint32_t own = k < 4 ? rest >> 8 * k & 0xFF : 0;
      next ^= tables[7 - k][byte(at + k) ^ own];
    }
    rest = next;
  }
  for (; at < data.size(); ++at) rest = rest >> 8 ^ tables[0][(rest ^ byte(at)) & 0xFF];
  return ~rest;
}

}  // namespace gemel
