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
  const Unseen unseen = Engine::get().take_unseen();
  if (unseen.failures.empty()) return;
  PySys_WriteStderr("gemel: %zu operation(s) failed and nobody looked at the results:\n",
                    unseen.failures.size() + unseen.more);
  for (const FailurePointer& failure : unseen.failures) {
    // PySys_WriteStderr cuts long texts; this one does not.
    std::string line = "  " + failure->type + ": " + failure_text(*failure) + "\n";
    PySys_FormatStderr("%s", line.c_str());
  }
  if (unseen.more > 0) {
    PySys_WriteStderr("  and %llu more\n", static_cast<unsigned long long>(unseen.more));
  }
  const char* mode = std::getenv("GEMEL_UNSEEN_ERRORS");
  must_fail = mode == nullptr || std::strcmp(mode, "warn") != 0;
}

// Whether the program ends because of Ctrl-C. At a prompt, an earlier one says nothing.
bool ended_by_interrupt() {
  PyObject* last = PySys_GetObject("last_type");
  return last == PyExc_KeyboardInterrupt && PySys_GetObject("ps1") == nullptr;
}

PyObject* at_exit(PyObject*, PyObject*) {
  const bool abandon = ended_by_interrupt();
  stop_other_threads();
  {
    WithoutGil released;
    Engine::get().shut_down(abandon, interrupted_by_signal);
  }
  print_unseen();
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* before_fork(PyObject*, PyObject*) {
  {
    WithoutGil released;
    Engine::get().drain_for_fork();
  }
  Py_RETURN_NONE;
}

PyObject* after_fork(PyObject*, PyObject*) {
  Engine::get().reopen();
  Py_RETURN_NONE;
}

// Runs after the interpreter has gone. Python's own atexit cannot set the exit code.
void end_process() {
  if (!must_fail) return;
  std::fflush(nullptr);
  _exit(kUnseenErrorsExitCode);
}

PyMethodDef at_exit_method = {"shut_down", at_exit, METH_NOARGS, nullptr};
PyMethodDef before_fork_method = {"before_fork", before_fork, METH_NOARGS, nullptr};
PyMethodDef after_fork_method = {"after_fork", after_fork, METH_NOARGS, nullptr};

}  // namespace

bool install_exit_hooks(PyObject*) {
  Reference function(PyCFunction_New(&at_exit_method, nullptr));
  Reference module(PyImport_ImportModule("atexit"));
  if (!function || !module) return false;
  Reference done(PyObject_CallMethod(module.get(), "register", "O", function.get()));
  return done && Py_AtExit(end_process) == 0;
}

// Python's own forks wait for what is pending, before they take the import lock: a callback may
// import. Of others (from C code) the engine learns when no thread may wait for the GIL any more.
bool install_fork_hooks() {
  pthread_atfork([] { Engine::get().before_fork(); }, [] { Engine::get().after_fork_parent(); },
                 [] { Engine::get().after_fork_child(); });
  Reference before(PyCFunction_New(&before_fork_method, nullptr));
  Reference after(PyCFunction_New(&after_fork_method, nullptr));
  Reference module(PyImport_ImportModule("os"));
  Reference function(module ? PyObject_GetAttrString(module.get(), "register_at_fork") : nullptr);
  Reference none(PyTuple_New(0));
  if (!before || !after || !function || !none) return false;
  Reference hooks(Py_BuildValue("{sOsOsO}", "before", before.get(), "after_in_parent", after.get(),
                                "after_in_child", after.get()));
  Reference done(hooks ? PyObject_Call(function.get(), none.get(), hooks.get()) : nullptr);
  return static_cast<bool>(done);
}

}  // namespace gemel
