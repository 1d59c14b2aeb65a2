// Python as a front end of the engine: how it hands over, and how it waits. The GIL is dropped
// meanwhile, Ctrl-C ends it. From the exit of the program on, other threads than the one that exits
// stop at the engine's door.

#pragma once

#include "engine/trace.h"
#include "program/launch.h"
#include "python/wall.h"

namespace gemel {

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
// Meetings that cannot take place fail: somebody is missing, and who could still come is this
// thread, which waits. Where there are other threads, they get a minute.
void call_off_meetings();
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

// Until the storage's contents are there; throws what made them fail.
void wait_for(Storage* storage, trace::WaitKind kind = trace::WaitKind::kArray);
// Needs the GIL, as everything here does. Throws PythonError.
Front& python_front();

}  // namespace gemel
