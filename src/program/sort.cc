#include "program/sort.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <string>

#include "program/error.h"
#include "program/sort_first.h"

namespace gemel {
namespace {

constexpr int64_t kFew = 48;     // up to this many elements insertion sort is faster
constexpr int64_t kSome = 4096;  // up to this many, the buckets stay in the first-level cache
// The first elements of a row are found in one scan of it if at most one in kShare is wanted, and
// of more than a few (`kMostFirst`, or less if keys are short) one in kShareOfMany.
constexpr int64_t kShare = 4, kShareOfMany = 64;
constexpr int64_t kTogether = 32;   // elements that are compared at once
constexpr double kEach = 1.0;       // nanoseconds for each byte of a key, and for the key itself
constexpr double kTile = 20'000;    // nanoseconds of work that are worth waking another thread
constexpr int64_t kLine = 64;       // bytes of a cache line
constexpr int64_t kLines = 4;       // with fewer cache lines of rows, threads divide a line
constexpr int64_t kRoom = 1 << 24;  // bytes for rows that are sorted together

struct Range {  // of rows
  int64_t begin, end;
};

// --- keys: unsigned numbers of the order of the elements ---
// `number` of a key increases with the key, in proportion to the value of the element.

template <typename Bits>
constexpr Bits kTop = Bits{1} << (8 * sizeof(Bits) - 1);

struct Unsigned {
  template <typename Bits>
  static Bits key(Bits bits, bool) {
    return bits;
  }
  template <typename Bits>
  static Bits bits(Bits key) {
    return key;
  }
  template <typename Bits>
  static double number(Bits key) {
    return static_cast<double>(key);
  }
};

struct Signed {
  template <typename Bits>
  static Bits key(Bits bits, bool) {
    return bits ^ kTop<Bits>;
  }
  template <typename Bits>
  static Bits bits(Bits key) {
    return key ^ kTop<Bits>;
  }
  template <typename Bits>
  static double number(Bits key) {
    return static_cast<double>(key);
  }
};

// `kInfinity` has the bits of infinity; larger magnitudes are NaN. When sorting positions, both
// zeros are equal.
template <uint64_t kInfinity>
struct Floating {
  template <typename Bits>
  static Bits key(Bits bits, bool positions) {
    const Bits size = bits & static_cast<Bits>(~kTop<Bits>);
    if (size > static_cast<Bits>(kInfinity)) return static_cast<Bits>(~Bits{0});
    if (positions && size == 0) return kTop<Bits>;
    const bool negative = (bits & kTop<Bits>) != 0;
    return static_cast<Bits>(negative ? ~bits : bits | kTop<Bits>);
  }
  template <typename Bits>
  static Bits bits(Bits key) {
    if (key == static_cast<Bits>(~Bits{0})) {  // a quiet NaN
      return static_cast<Bits>(kInfinity | (kInfinity & -kInfinity) >> 1);
    }
    return static_cast<Bits>((key & kTop<Bits>) != 0 ? key ^ kTop<Bits> : ~key);
  }
  template <typename Bits>
  static auto number(Bits key) {
    using Number = std::conditional_t<sizeof(Bits) == 4, float, double>;
    return std::bit_cast<Number>(bits(key));
  }
};

// --- sorting ---

template <typename Bits>
Bits key_of(Bits key) {
  return key;
}
template <typename Bits>
Bits key_of(const Placed<Bits>& element) {
  return element.key;
}

template <typename Element>
void shift_into_place(Element* elements, int64_t count) {
  for (int64_t i = 1; i < count; ++i) {
    const Element element = elements[i];
    int64_t at = i;
    for (; at > 0 && key_of(elements[at - 1]) > key_of(element); --at) {
      elements[at] = elements[at - 1];
    }
    elements[at] = element;
  }
}

template <typename Element>
Element* sort_by_digits(Element* elements, Element* spare, int64_t count) {
  using Bits = decltype(key_of(*elements));
  constexpr int kDigits = sizeof(Bits);
  uint32_t counts[kDigits][256] = {};
  for (int64_t i = 0; i < count; ++i) {
    const Bits key = key_of(elements[i]);
    for (int digit = 0; digit < kDigits; ++digit) ++counts[digit][key >> 8 * digit & 0xff];
  }
  for (int digit = 0; digit < kDigits; ++digit) {
    uint32_t* places = counts[digit];
    // All keys have the same digit here.
    if (places[key_of(elements[0]) >> 8 * digit & 0xff] == count) continue;
    uint32_t place = 0;
    for (int value = 0; value < 256; ++value) place += std::exchange(places[value], place);
    for (int64_t i = 0; i < count; ++i) {
      spare[places[key_of(elements[i]) >> 8 * digit & 0xff]++] = elements[i];
    }
    std::swap(elements, spare);
  }
  return elements;
}

// The number of pairs of elements that share a bucket. Each pair counts twice, and each element
// with itself.
int64_t pairs_in(const uint16_t* counts, int64_t buckets) {
  uint32_t pairs = 0;  // at most kSome squared
  for (int64_t b = 0; b < buckets; ++b) pairs += uint32_t{counts[b]} * counts[b];
  return pairs;
}

// Turns counts, whose number is a multiple of four, into the positions where the buckets begin.
// Multiplying by a word with a one in each part gives the running sums of the parts.
void add_up(uint16_t* counts, int64_t buckets) {
  constexpr uint64_t kOnes = 0x0001000100010001;
  uint64_t before = 0;
  for (int64_t b = 0; b < buckets; b += 4) {
    uint64_t word = 0;
    for (int part = 0; part < 4; ++part) word |= uint64_t{counts[b + part]} << 16 * part;
    const uint64_t sums = word * kOnes;
    const uint64_t begins = (sums << 16) + before * kOnes;
    for (int part = 0; part < 4; ++part) {
      counts[b + part] = static_cast<uint16_t>(begins >> 16 * part);
    }
    before += sums >> 48;
  }
}

// As sort_by_digits, for few elements whose numbers are distributed evenly enough. Each element
// goes to the bucket of its number, so only a few have to be shifted after that. Null if too many
// would share a bucket, or if there is no bucket for an element (infinity, NaN).
template <typename Order, typename Element, typename Bits>
Element* sort_by_buckets(Element* elements, Element* spare, int64_t count, Bits turned) {
  Bits least = key_of(elements[0]), greatest = least;
  for (int64_t i = 1; i < count; ++i) {
    least = std::min(least, key_of(elements[i]));
    greatest = std::max(greatest, key_of(elements[i]));
  }
  const auto number = [turned](Bits key) { return Order::number(static_cast<Bits>(key ^ turned)); };
  const auto first = number(least);
  const auto buckets = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  const auto scale = static_cast<decltype(number(least))>(buckets - 1) / (number(greatest) - first);
  if (!std::isfinite(scale)) return nullptr;

  uint16_t bucket[kSome];
  for (int64_t i = 0; i < count; ++i) {
    bucket[i] =
        static_cast<uint16_t>(static_cast<int32_t>((number(key_of(elements[i])) - first) * scale));
  }
  uint16_t places[kSome];
  std::fill_n(places, buckets, uint16_t{0});
  for (int64_t i = 0; i < count; ++i) ++places[bucket[i]];
  if (pairs_in(places, buckets) > 4 * count) return nullptr;
  add_up(places, buckets);
  for (int64_t i = 0; i < count; ++i) spare[places[bucket[i]]++] = elements[i];
  shift_into_place(spare, count);
  return spare;
}

// `spare` has room for as many elements. Returns where the sorted elements are: one of the two
// arrays.
template <typename Order, typename Element, typename Bits>
Element* sort_row(Element* elements, Element* spare, int64_t count, Bits turned) {
  if (count <= kFew) {
    shift_into_place(elements, count);
    return elements;
  }
  if constexpr (sizeof(Bits) >= 4) {  // smaller keys have at most two digits
    if (count <= kSome) {
      Element* sorted = sort_by_buckets<Order>(elements, spare, count, turned);
      if (sorted != nullptr) return sorted;
    }
  }
  return sort_by_digits(elements, spare, count);
}

// Calls `each(i, c)` for all i below `length` and all c below `count`: a simple loop if there is
// one c, which is faster by a third.
template <typename Each>
void for_each(int64_t length, int64_t count, Each each) {
  if (count == 1) {
    for (int64_t i = 0; i < length; ++i) each(i, 0);
    return;
  }
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t c = 0; c < count; ++c) each(i, c);
  }
}

// Sorts some rows. Elements are loaded by `load(bits, place in the row)`; what is stored at place i
// is `result(sorted[i])`. Rows whose elements lie between each other's (`after` > 1) are sorted a
// cache line of results at a time, so that each line is read and written once.
template <typename Order, typename Element, typename Bits, typename Result, typename Load,
          typename Store>
void sort_rows(const SortedRows& rows, Range range, const Bits* from, Result* to, Bits turned,
               Load load, Store result) {
  constexpr int64_t line = kLine / std::max(sizeof(Bits), sizeof(Result));
  const int64_t pitch = rows.length + line;  // each row begins in another set of the cache
  const int64_t held = std::max<int64_t>(1, kRoom / (pitch * sizeof(Element)));
  const int64_t most = std::min({line, rows.after, held});
  const auto room = std::make_unique_for_overwrite<Element[]>((most + 1) * pitch);
  Element* sorted[line];
  for (int64_t c = 0; c < most; ++c) sorted[c] = &room[c * pitch];
  Element* spare = &room[most * pitch];
  for (int64_t row = range.begin, count = 0; row < range.end; row += count) {
    const int64_t block = row / rows.after, column = row % rows.after;
    count = std::min({most, rows.after - column, range.end - row});
    const Bits* source = from + block * rows.length * rows.after + column;
    for_each(rows.length, count,
             [&](int64_t i, int64_t c) { sorted[c][i] = load(source[i * rows.after + c], i); });
    Result* target = to + block * rows.wanted() * rows.after + column;
    for (int64_t c = 0; c < count; ++c) {
      Element* found = sort_row<Order>(sorted[c], spare, rows.length, turned);
      if (found == spare) std::swap(sorted[c], spare);
    }
    for_each(rows.wanted(), count,
             [&](int64_t i, int64_t c) { target[i * rows.after + c] = result(sorted[c][i]); });
  }
}

template <typename Bits, typename Order>
void sort_elements(const SortedRows& rows, Range range, const char* source, char* target) {
  const auto* from = reinterpret_cast<const Bits*>(source);
  auto* to = reinterpret_cast<Bits*>(target);
  const Bits turned = rows.descending ? static_cast<Bits>(~Bits{0}) : Bits{0};
  const auto key = [turned](Bits bits, int64_t) {
    return static_cast<Bits>(Order::key(bits, false) ^ turned);
  };
  const auto element = [turned](Bits key) { return Order::bits(static_cast<Bits>(key ^ turned)); };
  sort_rows<Order, Bits>(rows, range, from, to, turned, key, element);
}

template <typename Bits, typename Order>
void sort_positions(const SortedRows& rows, Range range, const char* source, char* target) {
  const auto* from = reinterpret_cast<const Bits*>(source);
  auto* to = reinterpret_cast<int64_t*>(target);
  const Bits turned = rows.descending ? static_cast<Bits>(~Bits{0}) : Bits{0};
  const auto placed = [turned](Bits bits, int64_t i) {
    const auto key = static_cast<Bits>(Order::key(bits, true) ^ turned);
    return Placed<Bits>{key, static_cast<uint32_t>(i)};
  };
  const auto position = [](const Placed<Bits>& element) { return int64_t{element.position}; };
  sort_rows<Order, Placed<Bits>>(rows, range, from, to, turned, placed, position);
}

// As sort_positions, but only for the first few positions of each row. The row is read once, and
// most elements are skipped in groups.
template <typename Bits, typename Order, typename Found>
void first_positions(const SortedRows& rows, Range range, const char* source, char* target) {
  const auto* from = reinterpret_cast<const Bits*>(source);
  auto* to = reinterpret_cast<int64_t*>(target);
  const Bits turned = rows.descending ? static_cast<Bits>(~Bits{0}) : Bits{0};
  for (int64_t row = range.begin; row < range.end; ++row) {
    const int64_t begin = row / rows.after * rows.length * rows.after + row % rows.after;
    const int64_t goal = row / rows.after * rows.wanted() * rows.after + row % rows.after;
    Found found(rows.wanted());
    Bits keys[kTogether];
    for (int64_t start = 0; start < rows.length; start += kTogether) {
      const int64_t count = std::min(kTogether, rows.length - start);
      const Bits* here = from + begin + start * rows.after;
      Bits least = static_cast<Bits>(~Bits{0});
      for (int64_t i = 0; i < count; ++i) {
        keys[i] = static_cast<Bits>(Order::key(here[i * rows.after], true) ^ turned);
        least = std::min(least, keys[i]);
      }
      if (!found.takes(least)) continue;
      for (int64_t i = 0; i < count; ++i) {
        if (found.takes(keys[i])) found.put(keys[i], start + i);
      }
    }
    const Placed<Bits>* sorted = found.sorted();
    for (int64_t i = 0; i < rows.wanted(); ++i) to[goal + i * rows.after] = sorted[i].position;
  }
}

// Whether a scan finds the first positions: few of a row's are wanted. For keys of few bytes,
// sorting by digits is cheap, so fewer elements are worth a scan.
bool takes_few(const SortedRows& rows, size_t bytes) {
  const int64_t few = std::min<int64_t>(kMostFirst, 8 * static_cast<int64_t>(bytes));
  const int64_t wanted = rows.wanted(), share = wanted <= few ? kShare : kShareOfMany;
  return rows.positions && wanted > 0 && wanted * share <= rows.length;
}

using Sort = void (*)(const SortedRows&, Range, const char*, char*);

#if defined(__x86_64__)
// The same compiled for processors with AVX2, which handle eight keys or buckets at once.
template <Sort kSort>
[[gnu::flatten, gnu::target("avx2")]] void by_eight(const SortedRows& rows, Range range,
                                                    const char* source, char* target) {
  kSort(rows, range, source, target);
}

// The fastest version for this processor. Small keys are sorted by digits, one at a time, so AVX2
// does not help.
template <typename Bits, Sort kSort>
Sort fitting() {
  if constexpr (sizeof(Bits) >= 4) {
    if (__builtin_cpu_supports("avx2")) return &by_eight<kSort>;
  }
  return kSort;
}
#else
template <typename Bits, Sort kSort>
Sort fitting() {
  return kSort;
}
#endif

template <typename Bits, typename Order>
Sort either(const SortedRows& rows) {
  if (takes_few(rows, sizeof(Bits))) {
    return rows.wanted() <= kMostFirst
               ? fitting<Bits, first_positions<Bits, Order, First<Bits>>>()
               : fitting<Bits, first_positions<Bits, Order, Nearest<Bits>>>();
  }
  return rows.positions ? fitting<Bits, sort_positions<Bits, Order>>()
                        : fitting<Bits, sort_elements<Bits, Order>>();
}

Sort sort_of(int code, const SortedRows& rows) {
  switch (code) {
    case kBool:
    case kUInt8:
      return either<uint8_t, Unsigned>(rows);
    case kUInt16:
      return either<uint16_t, Unsigned>(rows);
    case kUInt32:
      return either<uint32_t, Unsigned>(rows);
    case kUInt64:
      return either<uint64_t, Unsigned>(rows);
    case kInt8:
      return either<uint8_t, Signed>(rows);
    case kInt16:
      return either<uint16_t, Signed>(rows);
    case kInt32:
      return either<uint32_t, Signed>(rows);
    case kInt64:
      return either<uint64_t, Signed>(rows);
    case kFloat16:
      return either<uint16_t, Floating<0x7C00>>(rows);
    case kBFloat16:
      return either<uint16_t, Floating<0x7F80>>(rows);
    case kFloat32:
      return either<uint32_t, Floating<0x7F800000>>(rows);
    case kFloat64:
      return either<uint64_t, Floating<0x7FF0000000000000>>(rows);
    default:
      throw Error("DTypeError", std::string("sort: ") + kDTypes[code].name + " has no order");
  }
}

// --- as work of the engine ---

struct Part {
  Storage* storage;
  int64_t begin;  // bytes
  char* data() const { return static_cast<char*>(storage->data()) + begin; }
};

Part part_of(const Tensor& tensor) {
  return {tensor.storage, tensor.offset * item_size(tensor.dtype)};
}

struct Work {
  SortedRows rows;
  Sort sort;
  int64_t together;  // rows in one tile
  Part source, target;

  FailurePointer run() const {
    Tiles tiles{*this};
    const int64_t count = rows.before * rows.after;
    Engine::get().parallel((count + together - 1) / together, &sort_tile, &tiles);
    if (!tiles.full) return nullptr;
    return std::make_shared<const Failure>("MemoryError", "sort: out of memory");
  }

 private:
  struct Tiles {
    const Work& work;
    std::atomic<bool> full{false};
  };

  static void sort_tile(void* context, int64_t tile) {
    auto* tiles = static_cast<Tiles*>(context);
    const Work& work = tiles->work;
    const int64_t begin = tile * work.together;
    const int64_t end = std::min(begin + work.together, work.rows.before * work.rows.after);
    try {
      work.sort(work.rows, {begin, end}, work.source.data(), work.target.data());
    } catch (const std::bad_alloc&) {
      tiles->full = true;
    }
  }
};

// The estimated time in nanoseconds on one core.
double cost_of(const SortedRows& rows, int dtype, int64_t elements) {
  const auto bytes = static_cast<size_t>(item_size(dtype));
  const double passes = takes_few(rows, bytes) ? 1.0 : static_cast<double>(bytes + 1);
  return kEach * static_cast<double>(elements) * passes;
}

// Rows whose elements lie between each other's come by cache lines, unless there are few lines.
int64_t rows_together(const SortedRows& rows, int dtype) {
  const double row = std::max(1.0, cost_of(rows, dtype, rows.length));
  const auto together = std::max<int64_t>(1, static_cast<int64_t>(kTile / row));
  const int64_t line = kLine / (rows.positions ? item_size(kInt64) : item_size(dtype));
  return rows.after < kLines * line ? together : (together + line - 1) / line * line;
}

class SortOperation final : public Operation {
 public:
  SortOperation(const Work& work, std::string specs) : work_(work), specs_(std::move(specs)) {}
  void start(Completion done) override {
    const FailurePointer failure = work_.run();
    done(failure == nullptr ? nullptr : located(failure, origin));
  }
  std::string name() const override { return work_.rows.positions ? "argsort" : "sort"; }
  std::string detail() const override { return specs_; }

 private:
  const Work work_;
  const std::string specs_;
};

class SortLaunch final : public Launch {
 public:
  SortLaunch(const Work& work, const Tensor& source) : work_(work), source_(source) {
    storages_[0] = work.source.storage;
    storages_[1] = work.target.storage;
    reads = &storages_[0];
    writes = &storages_[1];
    read_count = write_count = 1;
    microseconds = cost_of(work.rows, source.dtype, source.size) / 1e3;
    device = source.device();
  }
  FailurePointer run(PartialFailures&) override { return work_.run(); }
  std::unique_ptr<Operation> later() override {
    return std::make_unique<SortOperation>(work_, describe(source_));
  }

 private:
  const Work& work_;
  const Tensor& source_;
  Storage* storages_[2];
};

}  // namespace

void launch_sort(const SortedRows& rows, const Tensor& source, const Tensor& target, Front& front) {
  if ((source.size == 0 || target.size == 0) && source.settled()) return;
  const Work work{rows, sort_of(source.dtype, rows), rows_together(rows, source.dtype),
                  part_of(source), part_of(target)};
  SortLaunch launched(work, source);
  launch(launched, front);
}

}  // namespace gemel
