#include "python/waits.h"

#include <optional>

namespace gemel {

bool interrupted_by_signal() {
  PyGILState_STATE state = PyGILState_Ensure();
  bool interrupted = PyErr_CheckSignals() != 0;
  PyGILState_Release(state);
  return interrupted;
}

TracedWait::TracedWait(trace::WaitKind kind, const Storage* storage) {
  if (!trace::active()) return;
  record_.kind = kind;
  record_.thread = trace::this_thread();
  if (storage != nullptr) record_.operation = trace::writer_of(storage);
  record_.origin = current_origin();
  record_.started = trace::now();
}

TracedWait::~TracedWait() {
  if (record_.started == 0) return;
  record_.finished = trace::now();
  trace::waited(record_);
}

bool wait_for_storage(Storage* storage, trace::WaitKind kind) {
  Engine& engine = Engine::get();
  if (!engine.ready(storage)) {
    bool finished;
    TracedWait traced(kind, storage);
    {
      WithoutGil released;
      finished = engine.wait(storage, interrupted_by_signal);
    }
    if (!finished) {
      if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
      return false;
    }
  }
  if (!storage->failed()) return true;
  FailurePointer failure = storage->failure();
  if (failure == nullptr) return true;
  raise_failure(failure);
  return false;
}

bool issue_operation(std::unique_ptr<Operation> operation) {
  Engine& engine = Engine::get();
  operation->priority = thread_flags.priority;
  if (!engine.may_block()) return engine.issue(std::move(operation));
  std::optional<TracedWait> traced;
  if (!engine.serial()) traced.emplace(trace::WaitKind::kQueue);
  bool patient;
  {
    WithoutGil released;
    patient = engine.issue(std::move(operation), interrupted_by_signal);
  }
  if (!patient && !PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
  return patient;
}

}  // namespace gemel
