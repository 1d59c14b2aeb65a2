#include "python/state.h"

#include <frameobject.h>

#include <optional>
#include <string>
#include <unordered_map>

namespace gemel {

thread_local ThreadFlags thread_flags;
RandomState random_stream;
TableCounters table_counters;

namespace {

PyObject* exception_types = nullptr;

// Whether a code object belongs to this package. Holds a strong reference to each code object it
// has seen, so that an Origin may outlive the frame and workers never touch a reference count. The
// table is bounded by the text of the program.
std::unordered_map<PyObject*, bool>& known_code() {
  static auto* table = new std::unordered_map<PyObject*, bool>;
  return *table;
}

// The package's directory with a trailing separator, found once the module knows its own file.
const std::string& package_directory() {
  static auto* directory = new std::string;
  if (!directory->empty()) return *directory;
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = PyDict_GetItemString(modules, "gemel._core");
  Reference file(module == nullptr ? nullptr : PyObject_GetAttrString(module, "__file__"));
  const char* text = file ? PyUnicode_AsUTF8(file.get()) : nullptr;
  PyErr_Clear();
  if (text != nullptr) {
    std::string path(text);
    *directory = path.substr(0, path.find_last_of("/\\") + 1);
  }
  return *directory;
}

bool is_inside_package(PyObject* code) {
  auto& table = known_code();
  auto found = table.find(code);
  if (found != table.end()) return found->second;
  const char* name = PyUnicode_AsUTF8(reinterpret_cast<PyCodeObject*>(code)->co_filename);
  if (name == nullptr) PyErr_Clear();
  const std::string& directory = package_directory();
  bool inside = name != nullptr && !directory.empty() &&
                std::string_view(name).substr(0, directory.size()) == directory;
  Py_INCREF(code);
  table.emplace(code, inside);
  return inside;
}

int instruction_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti * 2;
#endif
}

PyObject* exception_type(const std::string& name) {
  if (exception_types != nullptr) {
    PyObject* found = PyDict_GetItemString(exception_types, name.c_str());
    if (found != nullptr) return found;
  }
  PyObject* builtins = PyEval_GetBuiltins();
  PyObject* found = builtins == nullptr ? nullptr : PyDict_GetItemString(builtins, name.c_str());
  return found != nullptr && PyExceptionClass_Check(found) ? found : PyExc_RuntimeError;
}

}  // namespace

Origin current_origin() {
  Origin origin;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    auto* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(frame));
    bool inside = is_inside_package(code);
    Py_DECREF(code);  // the table keeps it
    if (!inside) {
      origin.code = code;
      origin.instruction = instruction_of(frame);
      Py_DECREF(frame);
      break;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  return origin;
}

void set_exception_types(PyObject* types) {
  Py_INCREF(types);
  Py_XDECREF(exception_types);
  exception_types = types;
}

std::string failure_text(const Failure& failure) {
  if (failure.origin.code == nullptr) return failure.message;
  auto* code = static_cast<PyCodeObject*>(failure.origin.code);
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) PyErr_Clear();
  int line = PyCode_Addr2Line(code, failure.origin.instruction);
  return failure.message + " (issued at " + (file == nullptr ? "?" : file) + ":" +
         std::to_string(line) + ")";
}

void raise_failure(const FailurePointer& failure) {
  failure->seen.store(true);
  std::string text = failure_text(*failure);
  PyErr_SetString(exception_type(failure->type), text.c_str());
}

void raise_named(const char* type, const std::string& message) {
  PyErr_SetString(exception_type(type), message.c_str());
}

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
