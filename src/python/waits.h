// Waiting for the engine from Python: the GIL is dropped meanwhile, Ctrl-C ends it.

#pragma once

#include "engine/trace.h"
#include "python/origins.h"
#include "python/state.h"

namespace gemel {

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  // A daemon thread ends here, by unwinding, when the interpreter has gone.
  ~WithoutGil() noexcept(false) { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// For Engine::wait: true when a signal handler raised; the error stays set for this thread.
bool interrupted_by_signal();
// Records a wait, when tracing is on, from its making to its end. Made while the GIL is held.
class TracedWait {
 public:
  explicit TracedWait(trace::WaitKind kind, const Storage* storage = nullptr);
  ~TracedWait();
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;

 private:
  trace::WaitRecord record_;
};

// Waits for one storage; false with a Python error set.
bool wait_for_storage(Storage* storage, trace::WaitKind kind = trace::WaitKind::kArray);
// Hands an operation over without holding the GIL across anything that may block. False with a
// Python error set (Ctrl-C) when waiting for room was interrupted; it has been issued nevertheless.
bool issue_operation(std::unique_ptr<Operation> operation);

}  // namespace gemel
