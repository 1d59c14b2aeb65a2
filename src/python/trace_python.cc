#include "python/trace_python.h"

#include "engine/trace.h"
#include "python/failures.h"
#include "python/origins.h"
#include "python/waits.h"

namespace gemel {
namespace {

constexpr const char* kEdgeNames[] = {"read after write", "write after read", "write after write"};
constexpr const char* kWaitNames[] = {"array", "export", "all", "device", "queue"};

PyObject* describe(const trace::OperationRecord& record) {
  return Py_BuildValue(
      "(KssiiiiLLLLOOdsi)", static_cast<unsigned long long>(record.number), record.name.c_str(),
      record.detail.c_str(), record.device, record.lane, record.thread, record.issue_thread,
      static_cast<long long>(record.issued), static_cast<long long>(record.started),
      static_cast<long long>(record.finished), static_cast<long long>(record.bytes),
      record.inlined ? Py_True : Py_False, record.failed ? Py_True : Py_False, record.microseconds,
      file_of(record.origin), line_of(record.origin));
}

PyObject* describe(const trace::StepRecord& record) {
  return Py_BuildValue("(KsiLL)", static_cast<unsigned long long>(record.operation),
                       record.label.c_str(), record.thread, static_cast<long long>(record.started),
                       static_cast<long long>(record.finished));
}

PyObject* describe(const trace::Edge& edge) {
  return Py_BuildValue("(KKs)", static_cast<unsigned long long>(edge.before),
                       static_cast<unsigned long long>(edge.after),
                       kEdgeNames[static_cast<int>(edge.kind)]);
}

PyObject* describe(const trace::WaitRecord& record) {
  return Py_BuildValue("(iLLsKsi)", record.thread, static_cast<long long>(record.started),
                       static_cast<long long>(record.finished),
                       kWaitNames[static_cast<int>(record.kind)],
                       static_cast<unsigned long long>(record.operation), file_of(record.origin),
                       line_of(record.origin));
}

PyObject* describe(const trace::CounterRecord& record) {
  return Py_BuildValue("(LLL)", static_cast<long long>(record.time),
                       static_cast<long long>(record.pending),
                       static_cast<long long>(record.bytes));
}

template <typename Record>
bool put(PyObject* dictionary, const char* key, const std::vector<Record>& records) {
  Reference list(PyList_New(static_cast<Py_ssize_t>(records.size())));
  for (size_t i = 0; list && i < records.size(); ++i) {
    PyObject* item = describe(records[i]);
    if (item == nullptr) return false;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), item);
  }
  return list && PyDict_SetItemString(dictionary, key, list.get()) == 0;
}

bool put_threads(PyObject* dictionary) {
  Reference names(PyDict_New());
  if (!names) return false;
  for (const auto& [number, name] : trace::thread_names()) {
    Reference key(PyLong_FromLong(number));
    Reference value(PyUnicode_FromString(name.c_str()));
    if (!key || !value || PyDict_SetItem(names.get(), key.get(), value.get()) != 0) return false;
  }
  return PyDict_SetItemString(dictionary, "threads", names.get()) == 0;
}

}  // namespace

void start_trace(size_t capacity) {
  trace::start(capacity);
  Engine::get().set_tracing(true);
}

void stop_trace() {
  Engine::get().set_tracing(false);
  trace::stop();
}

// No wait of the program, so the trace does not have it.
PyObject* settle_trace() {
  bool settled;
  {
    WithoutGil released;
    settled = Engine::get().wait_all_quietly(interrupted_by_signal);
  }
  return settled ? Py_NewRef(Py_None) : nullptr;
}

PyObject* take_trace() {
  const trace::Recording recording = trace::take();
  Reference found(PyDict_New());
  Reference dropped(PyLong_FromUnsignedLongLong(recording.dropped));
  const bool complete =
      found && dropped && put(found.get(), "operations", recording.operations) &&
      put(found.get(), "steps", recording.steps) && put(found.get(), "edges", recording.edges) &&
      put(found.get(), "waits", recording.waits) &&
      put(found.get(), "counters", recording.counters) && put_threads(found.get()) &&
      PyDict_SetItemString(found.get(), "dropped", dropped.get()) == 0;
  return complete ? found.take() : nullptr;
}

}  // namespace gemel
