// Python as a front end of the engine: how it hands operations over and how it waits. Waiting drops
// the GIL, and Ctrl-C ends it. Once the program exits, all threads other than the exiting one sleep
// for ever when they try to issue or wait.

#pragma once

#include "engine/trace.h"
#include "program/launch.h"
#include "python/wall.h"

namespace gemel {

// For work that the exit of the program waits for, as compiling (gemel/process/forking.py): the
// thread goes on after it, and lets go of what it holds.
class GilLeft {
 public:
  GilLeft() : state_(PyEval_SaveThread()) {}
  ~GilLeft();
  GilLeft(const GilLeft&) = delete;
  GilLeft& operator=(const GilLeft&) = delete;

 private:
  PyThreadState* state_;
};

// For waits for the engine, which end here once the program exits.
class WithoutGil {
 public:
  WithoutGil() = default;
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  GilLeft left_;
};

// Takes the GIL, on threads that may not hold it.
class GilHeld {
 public:
  GilHeld();
  ~GilHeld() { PyGILState_Release(state_); }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

// From now on, all threads except this one and those inside operations sleep for ever when they
// wait or issue.
void stop_other_threads();

// For Engine::wait: true when a signal handler raised; the error remains set in this thread.
bool interrupted_by_signal();
// Fails the meetings that cannot take place, because a party is missing and the only thread that
// could still join is this one, which waits. If there are other threads, they get a minute.
void call_off_meetings();
// Records a wait from construction to destruction, if tracing is on. Must be created with the GIL
// held.
class TracedWait {
 public:
  explicit TracedWait(trace::WaitKind kind, const Storage* storage = nullptr);
  ~TracedWait();
  TracedWait(const TracedWait&) = delete;
  TracedWait& operator=(const TracedWait&) = delete;

 private:
  trace::WaitRecord record_;
};

// Waits until the storage's contents are ready; throws their failure.
void wait_for(Storage* storage, trace::WaitKind kind = trace::WaitKind::kArray);
// Needs the GIL, like everything here. Throws PythonError.
Front& python_front();

}  // namespace gemel
