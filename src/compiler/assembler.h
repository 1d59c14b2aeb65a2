// Threads that turn assembly into objects while the thread that writes the assembly goes on.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "compiler/llvm.h"

namespace gemel::llvm {

// What became of one task: an object, or why there is none.
struct Outcome {
  std::string object;
  std::string refused;
};

// The first task is left to the thread that waits for the outcomes: to hand it over takes longer
// than a small task. The longest waiting task is begun first, so that no thread is left alone with
// a long one at the end. No thread outlives the assembler.
class Assembler {
 public:
  // At most so many `threads` besides the one that calls.
  Assembler(std::shared_ptr<Library> library, int threads);
  ~Assembler();  // what waits is not begun
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;

  // Gives a task. Its length only orders it among others.
  void give(std::string assembly, Target target, int length);

  // The outcomes of all tasks, in the order in which they were given. The calling thread helps.
  std::vector<Outcome> finish();

 private:
  struct Task {
    std::string assembly;
    Target target;
    Outcome outcome;
  };

  void start();
  void run();
  Task* next();
  void end();

  const std::shared_ptr<Library> library_;
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;                          // stay where they are
  std::vector<std::pair<int, ptrdiff_t>> waiting_;  // a heap of lengths and negative places
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gemel::llvm
