#include "python/process.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "program/meeting.h"
#include "python/failures.h"
#include "python/waits.h"

namespace gemel {
namespace {

constexpr int kUnseenErrorsExitCode = 70;  // EX_SOFTWARE
bool must_fail = false;

void print_unseen() {
  const Unseen unseen = Engine::get().take_unseen();
  if (unseen.failures.empty()) return;
  PySys_WriteStderr("gemel: %zu operation(s) failed and nobody looked at the results:\n",
                    unseen.failures.size() + unseen.more);
  for (const FailurePointer& failure : unseen.failures) {
    // PySys_WriteStderr truncates long texts; PySys_FormatStderr does not.
    std::string line = "  " + failure->type + ": " + failure_text(*failure) + "\n";
    PySys_FormatStderr("%s", line.c_str());
  }
  if (unseen.more > 0) {
    PySys_WriteStderr("  and %llu more\n", static_cast<unsigned long long>(unseen.more));
  }
  const char* mode = std::getenv("GEMEL_UNSEEN_ERRORS");
  must_fail = mode == nullptr || std::strcmp(mode, "warn") != 0;
}

// Whether Ctrl-C ends the program. In an interactive session an earlier Ctrl-C says nothing about
// that.
bool ended_by_interrupt() {
  PyObject* last = PySys_GetObject("last_type");
  return last == PyExc_KeyboardInterrupt && PySys_GetObject("ps1") == nullptr;
}

PyObject* at_exit(PyObject*, PyObject*) {
  const bool abandon = ended_by_interrupt();
  stop_other_threads();
  Meeting::fail_open("the program has ended before all devices had come");
  {
    WithoutGil released;
    Engine::get().shut_down(abandon, interrupted_by_signal);
  }
  print_unseen();
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

// Runs after the interpreter has been finalized, because Python's own atexit cannot set the exit
// code.
void end_process() {
  if (!must_fail) return;
  std::fflush(nullptr);
  _exit(kUnseenErrorsExitCode);
}

PyMethodDef at_exit_method = {"shut_down", at_exit, METH_NOARGS, nullptr};

}  // namespace

bool install_exit_hooks() {
  Reference function(PyCFunction_New(&at_exit_method, nullptr));
  Reference module(PyImport_ImportModule("atexit"));
  if (!function || !module) return false;
  Reference done(PyObject_CallMethod(module.get(), "register", "O", function.get()));
  return done && Py_AtExit(end_process) == 0;
}

// Python's own forks have already waited for pending operations (gemel/process/forking.py). Forks
// from C code have not, and the forking thread may hold the GIL, so nothing may wait here.
void install_fork_hooks() {
  pthread_atfork([] { Engine::get().before_fork(); }, [] { Engine::get().after_fork_parent(); },
                 [] { Engine::get().after_fork_child(); });
}

}  // namespace gemel
