// The threads that make objects, with a stand-in for LLVM (stand_in_llvm.cc). Outcomes are in
// order, whichever thread had a task; refusals reach their tasks only; the longest waiting task is
// begun first; what waits when an assembler ends is not begun. The exit status is 1 when a promise
// is broken.

#include "compiler/assembler.h"

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using gemel::llvm::Assembler;
using gemel::llvm::Library;
using gemel::llvm::Outcome;
using gemel::llvm::Target;

const Target kOne{"triple", "one", "", "pic"};
const Target kOther{"triple", "other", "", "pic"};

std::shared_ptr<Library> opened() { return std::make_shared<Library>(STAND_IN); }

// How many objects of the stand-in are alive.
int alive() {
  void* library = dlopen(STAND_IN, RTLD_NOW);
  return reinterpret_cast<int (*)()>(dlsym(library, "stand_in_alive"))();
}

std::string refusal(Library& library, const std::string& assembly, const Target& target = kOne) {
  try {
    library.object_of(assembly, target);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

void test_library() {
  const auto library = opened();
  check(library->object_of("add", kOne) == "one[add]", "an object");
  check(library->object_of("add", kOther) == "other[add]", "an object for another target");
  check(refusal(*library, "!add") == "expected no mark", "what is not parsed is refused");
  check(refusal(*library, "add?") == "expected no question", "what is not well formed is refused");
  check(refusal(*library, "add", {"none", "one", "", "pic"}) == "no such target",
        "an unknown target is refused");
  Library missing("/there/is/no/such/library.so");
  missing.open_soon();
  missing.settle();
  check(!refusal(missing, "add").empty(), "a missing library is told");
  check(!refusal(missing, "add").empty(), "and again");
  Library other("libm.so.6");
  check(refusal(other, "add").find("has no LLVMPY_") != std::string::npos,
        "a library without the functions is told");
}

void test_outcomes(int threads, int count) {
  const auto library = opened();
  library->open_soon();
  Assembler assembler(library, threads);
  for (int i = 0; i < count; ++i) {
    const std::string text = (i % 7 == 3 ? "!" : "") + std::to_string(i);
    assembler.give(text, i % 2 == 0 ? kOne : kOther, i % 5);
  }
  const std::vector<Outcome> found = assembler.finish();
  check(static_cast<int>(found.size()) == count, "one outcome each");
  for (int i = 0; i < count; ++i) {
    const std::string head = i % 2 == 0 ? "one[" : "other[";
    const bool bad = i % 7 == 3;
    check(found[i].object == (bad ? "" : head + std::to_string(i) + "]"), "objects are in order");
    check(found[i].refused == (bad ? "expected no mark" : ""), "refusals are in order");
  }
}

void test_end() {
  const auto library = opened();
  for (int round = 0; round < 50; ++round) {
    Assembler assembler(library, 3);
    for (int i = 0; i < 20; ++i) assembler.give("add", kOne, i);
  }
}

void test_many_callers() {
  const auto library = opened();
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&library] {
      for (int j = 0; j < 20; ++j) {
        check(library->object_of("add", kOne) == "one[add]", "an object from any thread");
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace

int main() {
  test_library();
  for (int threads = -1; threads < 5; ++threads) {
    for (int count : {0, 1, 2, 50}) test_outcomes(threads, count);
  }
  test_end();
  test_many_callers();
  check(alive() == 0, "all that is made is disposed of");
  return failures == 0 ? 0 : 1;
}
