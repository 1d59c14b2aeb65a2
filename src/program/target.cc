#include "program/target.h"

#include <cstdint>
#include <sstream>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace gemel {
namespace {

#if defined(__x86_64__)
constexpr std::string_view kArchitecture = "x86_64";

// The parts of a thread's state that the system saves when it switches threads: vectors of 32 and
// of 64 bytes, and tile registers.
constexpr uint32_t kSaved32 = 0x6, kSaved64 = 0xe6, kSavedTiles = 0x600e6;

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers told(uint32_t leaf, uint32_t part = 0) {
  Registers found;
  // All registers remain 0 if the processor does not know the leaf.
  __get_cpuid_count(leaf, part, &found.a, &found.b, &found.c, &found.d);
  return found;
}

uint32_t saved_by_system() {
  if ((told(1).c >> 27 & 1) == 0) return 0;  // the instruction that asks is not allowed
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// One of LLVM's features: the bit that says whether the processor has it, and the state that the
// system has to save.
struct Feature {
  std::string_view name;
  uint32_t leaf;
  uint32_t Registers::* part;
  int bit;
  uint32_t saved;
  uint32_t subleaf = 0;
};

constexpr Feature kFeatures[] = {
    {"fma", 1, &Registers::c, 12, kSaved32},
    {"movbe", 1, &Registers::c, 22, 0},
    {"popcnt", 1, &Registers::c, 23, 0},
    {"avx", 1, &Registers::c, 28, kSaved32},
    {"f16c", 1, &Registers::c, 29, kSaved32},
    {"bmi", 7, &Registers::b, 3, 0},
    {"avx2", 7, &Registers::b, 5, kSaved32},
    {"bmi2", 7, &Registers::b, 8, 0},
    {"avx512f", 7, &Registers::b, 16, kSaved64},
    {"avx512dq", 7, &Registers::b, 17, kSaved64},
    {"avx512cd", 7, &Registers::b, 28, kSaved64},
    {"avx512bw", 7, &Registers::b, 30, kSaved64},
    {"avx512vl", 7, &Registers::b, 31, kSaved64},
    {"avx512vnni", 7, &Registers::c, 11, kSaved64},
    {"avx512bf16", 7, &Registers::a, 5, kSaved64, 1},
    {"amx-bf16", 7, &Registers::d, 22, kSavedTiles},
    {"amx-tile", 7, &Registers::d, 24, kSavedTiles},
    {"amx-int8", 7, &Registers::d, 25, kSavedTiles},
    {"lzcnt", 0x80000001, &Registers::c, 5, 0},
};

bool has(std::string_view name) {
  for (const Feature& feature : kFeatures) {
    if (feature.name != name) continue;
    const bool there = (told(feature.leaf, feature.subleaf).*feature.part >> feature.bit & 1) != 0;
    if (!there || (saved_by_system() & feature.saved) != feature.saved) return false;
    return feature.saved != kSavedTiles || tiles_allowed();
  }
  return false;
}
#else
#if defined(__aarch64__)
constexpr std::string_view kArchitecture = "aarch64";
#else
// Unknown architecture: the loader checks each object.
constexpr std::string_view kArchitecture = "";
#endif

bool has(std::string_view) { return false; }
#endif

}  // namespace

bool tiles_allowed() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr long kRequestState = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
#else
  return false;
#endif
}

std::string lacking(const std::string& target) {
  std::istringstream words(target);
  std::string word;
  words >> word;  // the triple, whose first part is the architecture
  const std::string architecture = word.substr(0, word.find('-'));
  if (!kArchitecture.empty() && !word.empty() && architecture != kArchitecture) return architecture;
  while (words >> word) {
    if (word[0] != '+' && word[0] != '-') continue;
    std::istringstream features(word);
    while (std::getline(features, word, ',')) {
      if (word[0] == '+' && !has(std::string_view(word).substr(1))) return word.substr(1);
    }
  }
  return "";
}

}  // namespace gemel
