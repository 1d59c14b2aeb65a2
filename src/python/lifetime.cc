// The ends of a process: exit with errors nobody has seen, and fork.

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "python/state.h"
#include "python/waits.h"

namespace gemel {
namespace {

constexpr int kUnseenErrorsExitCode = 70;  // EX_SOFTWARE
bool must_fail = false;

void print_unseen() {
  auto failures = Engine::get().unseen();
  if (failures.empty()) return;
  PySys_WriteStderr("gemel: %zu operation(s) failed and nobody looked at the results:\n",
                    failures.size());
  for (const FailurePointer& failure : failures) {
    // PySys_WriteStderr cuts long texts; this one does not.
    std::string line = "  " + failure->type + ": " + failure_text(*failure) + "\n";
    PySys_FormatStderr("%s", line.c_str());
  }
  const char* mode = std::getenv("GEMEL_UNSEEN_ERRORS");
  must_fail = mode == nullptr || std::strcmp(mode, "warn") != 0;
}

PyObject* at_exit(PyObject*, PyObject*) {
  {
    WithoutGil released;
    Engine::get().shut_down();
  }
  print_unseen();
  Py_RETURN_NONE;
}

// Runs after the interpreter has gone. Python's own atexit cannot set the exit code.
void end_process() {
  if (!must_fail) return;
  std::fflush(nullptr);
  _exit(kUnseenErrorsExitCode);
}

PyMethodDef at_exit_method = {"shut_down", at_exit, METH_NOARGS, nullptr};

// The thread that forks usually holds the GIL; what is pending may need it to finish.
void before_fork() {
  Engine& engine = Engine::get();
  if (engine.counters().pending == 0 || !Py_IsInitialized() || !PyGILState_Check()) {
    engine.before_fork();
    return;
  }
  WithoutGil released;
  engine.before_fork();
}

}  // namespace

bool install_exit_hooks(PyObject*) {
  Reference function(PyCFunction_New(&at_exit_method, nullptr));
  Reference module(PyImport_ImportModule("atexit"));
  if (!function || !module) return false;
  Reference done(PyObject_CallMethod(module.get(), "register", "O", function.get()));
  return done && Py_AtExit(end_process) == 0;
}

void install_fork_hooks() {
  pthread_atfork(
      before_fork, [] { Engine::get().after_fork_parent(); },
      [] { Engine::get().after_fork_child(); });
}

}  // namespace gemel
