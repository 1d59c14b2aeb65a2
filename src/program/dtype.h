// The one table of dtypes. A tag is a byte: dtypes count up from 0, Python scalars down from 254.

#pragma once

#include <cstdint>
#include <iterator>

namespace gemel {

enum class Kind : uint8_t { kBoolean, kUnsigned, kSigned, kFloating, kComplex };

struct DType {
  const char* name;
  int64_t size;  // bytes
  Kind kind;
  const char* format;  // the format character of Python's struct module; null if there is none
  uint8_t exchange;    // the type code of DLPack
};

// The order is that of the codes, which files and the Python side rely on.
inline constexpr DType kDTypes[] = {
    {"bool", 1, Kind::kBoolean, "?", 6},          {"uint8", 1, Kind::kUnsigned, "B", 1},
    {"int8", 1, Kind::kSigned, "b", 0},           {"int32", 4, Kind::kSigned, "i", 0},
    {"int64", 8, Kind::kSigned, "q", 0},          {"float16", 2, Kind::kFloating, "e", 2},
    {"float32", 4, Kind::kFloating, "f", 2},      {"float64", 8, Kind::kFloating, "d", 2},
    {"uint32", 4, Kind::kUnsigned, "I", 1},       {"uint64", 8, Kind::kUnsigned, "Q", 1},
    {"int16", 2, Kind::kSigned, "h", 0},          {"uint16", 2, Kind::kUnsigned, "H", 1},
    {"bfloat16", 2, Kind::kFloating, nullptr, 4}, {"complex64", 8, Kind::kComplex, "Zf", 5},
    {"complex128", 16, Kind::kComplex, "Zd", 5},
};
inline constexpr int kDTypeCount = static_cast<int>(std::size(kDTypes));
enum Code : uint8_t {
  kBool,
  kUInt8,
  kInt8,
  kInt32,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64,
  kUInt32,
  kUInt64,
  kInt16,
  kUInt16,
  kBFloat16,
  kComplex64,
  kComplex128
};

enum Tag : uint8_t { kScalarFloat = 252, kScalarInt = 253, kScalarBool = 254 };
static_assert(kDTypeCount <= kScalarFloat);

inline int64_t item_size(int code) { return kDTypes[code].size; }

// Ranks the kinds: boolean, integer, floating, complex.
inline int kind_rank(int code) {
  const Kind kind = kDTypes[code].kind;
  if (kind == Kind::kComplex) return 3;
  return kind == Kind::kBoolean ? 0 : kind == Kind::kFloating ? 2 : 1;
}

// Whether results of dtype `from` may be written in place into arrays of dtype `to`: the kind may
// only become wider.
inline bool keeps_kind(int from, int to) { return kDTypes[from].kind <= kDTypes[to].kind; }

// Whether an integer dtype can hold this number.
inline bool holds(int code, int64_t number) {
  const DType& dtype = kDTypes[code];
  if (dtype.kind == Kind::kUnsigned) {
    return number >= 0 && (dtype.size == 8 || number >> (8 * dtype.size) == 0);
  }
  const int64_t beyond = number >> (8 * dtype.size - 1);
  return beyond == 0 || beyond == -1;
}

// Whether no integer dtype can hold all values of both integer dtypes; their common dtype is
// float64.
inline bool meet_in_floating(int a, int b) {
  const bool signs_differ =
      (kDTypes[a].kind == Kind::kSigned) != (kDTypes[b].kind == Kind::kSigned);
  return signs_differ && (a == kUInt64 || b == kUInt64);
}

}  // namespace gemel
