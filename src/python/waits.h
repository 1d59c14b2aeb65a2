// Waiting for the engine from Python: the GIL is dropped meanwhile, Ctrl-C ends it.
//
// When the interpreter goes, a thread that comes for the GIL is ended by unwinding its stack. That
// must not pass through C++, where it would drop objects without the GIL, or abort: such a thread
// sleeps for ever where it stands, the process ends without it. From the exit on, other threads
// than the one that exits do not even come so far: they stop at the engine's door.

#pragma once

#include <utility>

#include "engine/trace.h"
#include "python/origins.h"
#include "python/state.h"

namespace gemel {

[[noreturn]] void sleep_for_ever();

// Calls what may run Python code, or wait for the GIL.
template <typename Call>
auto into_python(Call&& call) {
  try {
    return call();
  } catch (...) {  // Python throws nothing: this is the end of the thread
    sleep_for_ever();
  }
}

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// For threads which may not have it.
class GilHeld {
 public:
  GilHeld();
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

// From now on all threads but this one, and those inside operations, stop when they wait or issue.
void stop_other_threads();

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
