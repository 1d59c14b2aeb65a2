// The object loader: objects made by the compiler load and run; truncated, corrupt or foreign ones
// throw.
//
//   object_test FILE.o ...
//
// Every file must load, unless its name contains "foreign". Then copies of it that are truncated or
// have changed bytes must load or throw, but never crash. Without files, only the built-in checks
// run.

#include "program/object.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"

namespace {

using Relocate = void (*)(uint32_t, unsigned char*, size_t, uint64_t, uint64_t);

// The instruction or word at address 0x10000 after it has been relocated.
uint32_t relocated(Relocate relocate, uint32_t kind, uint32_t before, uint64_t target) {
  unsigned char place[8] = {};
  std::memcpy(place, &before, sizeof(before));
  relocate(kind, place, sizeof(place), 0x10000, target);
  uint32_t after = 0;
  std::memcpy(&after, place, sizeof(after));
  return after;
}

void check_relocations() {
  using gemel::relocate_aarch64;
  using gemel::relocate_x86_64;
  check(relocated(relocate_x86_64, 2, 0, 0x10010) == 0x10, "PC32");
  check(relocated(relocate_x86_64, 4, 0, 0xfffc) == 0xfffffffc, "PLT32 backwards");
  // adrp x0, +3 pages; add x0, x0, #0x123; ldr of each size; b and bl.
  check(relocated(relocate_aarch64, 275, 0x90000000, 0x13123) == 0xf0000000, "ADRP");
  check(relocated(relocate_aarch64, 275, 0x90000000, 0xf000) == 0xf0ffffe0, "ADRP backwards");
  check(relocated(relocate_aarch64, 277, 0x91000000, 0x13123) == 0x91048c00, "ADD");
  check(relocated(relocate_aarch64, 278, 0x39400000, 0x13123) == 0x39448c00, "LDST8");
  check(relocated(relocate_aarch64, 284, 0x79400000, 0x13122) == 0x79424400, "LDST16");
  check(relocated(relocate_aarch64, 285, 0xb9400000, 0x13124) == 0xb9412400, "LDST32");
  check(relocated(relocate_aarch64, 286, 0xf9400000, 0x13128) == 0xf9409400, "LDST64");
  check(relocated(relocate_aarch64, 299, 0x3dc00000, 0x13120) == 0x3dc04800, "LDST128");
  check(relocated(relocate_aarch64, 283, 0x94000000, 0x10008) == 0x94000002, "CALL26");
  check(relocated(relocate_aarch64, 282, 0x14000000, 0xfffc) == 0x17ffffff, "JUMP26 backwards");
  for (const Relocate relocate : {relocate_x86_64, relocate_aarch64}) {
    const bool arm = relocate == relocate_aarch64;
    try {
      relocated(relocate, arm ? 283 : 4, 0, uint64_t{1} << 40);
      check(false, "a target out of reach is refused");
    } catch (const std::runtime_error&) {
    }
    try {
      relocated(relocate, 9999, 0, 0);
      check(false, "an unknown kind of relocation is refused");
    } catch (const std::runtime_error&) {
    }
  }
}

// The loader gets exactly these bytes, on the heap, so that a sanitizer notices any access outside.
std::string load(const std::vector<char>& bytes) {
  const std::vector<char> exact(bytes.begin(), bytes.end());
  try {
    const auto object = gemel::Object::load(exact.data(), exact.size());
    return object->kernel() != nullptr ? "" : "no kernel";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

void torture(const std::vector<char>& whole) {
  for (size_t length = 0; length < whole.size(); ++length) {
    load({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)});
  }
  std::mt19937 random(1);
  const unsigned char extremes[] = {0, 1, 0x7f, 0x80, 0xff};
  for (size_t position = 0; position < whole.size(); ++position) {
    std::vector<char> changed = whole;
    for (const unsigned char value : extremes) {
      changed[position] = static_cast<char>(value);
      load(changed);
    }
  }
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<char> changed = whole;
    for (unsigned count = 1 + random() % 16; count > 0; --count) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    load(changed);
  }
}

}  // namespace

int main(int count, char** arguments) {
  check_relocations();
  check(!load({}).empty(), "an empty file is refused");
  check(!load({'\177', 'E', 'L', 'F'}).empty(), "a file of four bytes is refused");
  for (int index = 1; index < count; ++index) {
    std::ifstream file(arguments[index], std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    const std::string error = load(bytes);
    const bool foreign = std::strstr(arguments[index], "foreign") != nullptr;
    const std::string told = std::string(arguments[index]) + ": " + error;
    check(foreign == !error.empty(), told.c_str());
    if (foreign) std::printf("%s: %s\n", arguments[index], error.c_str());
    torture(bytes);
  }
  if (failures == 0) std::printf("object loader: all right\n");
  return failures == 0 ? 0 : 1;
}
