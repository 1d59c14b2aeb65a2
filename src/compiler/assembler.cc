#include "compiler/assembler.h"

#include <algorithm>
#include <stdexcept>
#include <system_error>

#include "memory/signals.h"

namespace gemel::llvm {

Assembler::Assembler(std::shared_ptr<Library> library, int threads)
    : library_(std::move(library)), most_(static_cast<size_t>(std::max(threads, 0))) {}

Assembler::~Assembler() {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    waiting_.clear();
  }
  end();
}

void Assembler::give(std::string assembly, Target target, int length) {
  size_t waiting;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto place = static_cast<ptrdiff_t>(tasks_.size());
    tasks_.push_back({std::move(assembly), std::move(target), {}});
    waiting_.emplace_back(length, -place);
    std::push_heap(waiting_.begin(), waiting_.end());
    waiting = waiting_.size();
  }
  changed_.notify_one();
  if (threads_.size() < most_ && waiting > threads_.size() + 1) start();
}

std::vector<Outcome> Assembler::finish() {
  end();
  std::vector<Outcome> found;
  for (Task& task : tasks_) found.push_back(std::move(task.outcome));
  return found;
}

void Assembler::start() {
  const SignalsBlocked blocked;
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error&) {
    // No thread is to be had; the one that waits does the work.
  }
}

// Accepts no more tasks; the calling thread does what is left.
void Assembler::end() {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  run();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Assembler::run() {
  while (Task* task = next()) {
    try {
      task->outcome.object = library_->object_of(task->assembly, task->target);
    } catch (const std::exception& error) {
      task->outcome.refused = error.what();
    }
  }
}

// The longest task; null if there will be no more.
Assembler::Task* Assembler::next() {
  std::unique_lock<std::mutex> guard(mutex_);
  changed_.wait(guard, [this] { return closed_ || !waiting_.empty(); });
  if (waiting_.empty()) return nullptr;
  std::pop_heap(waiting_.begin(), waiting_.end());
  Task* task = &tasks_[static_cast<size_t>(-waiting_.back().second)];
  waiting_.pop_back();
  return task;
}

}  // namespace gemel::llvm
