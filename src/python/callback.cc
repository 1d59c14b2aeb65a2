#include "python/callback.h"

#include <cstring>

#include "python/describe.h"
#include "python/state.h"
#include "python/waits.h"

namespace gemel {
namespace {

// A view of a storage's memory; the GIL is held.
PyObject* memory_of(Storage* storage, int access) {
  static char nothing[8];
  const bool empty = storage->bytes() == 0;
  auto* data = empty ? nothing : static_cast<char*>(storage->data());
  return PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(storage->bytes()), access);
}

Reference memories(const std::vector<Storage*>& storages, int access) {
  Reference views(PyTuple_New(static_cast<Py_ssize_t>(storages.size())));
  for (size_t i = 0; views && i < storages.size(); ++i) {
    PyObject* view = memory_of(storages[i], access);
    if (view == nullptr) return {};
    PyTuple_SET_ITEM(views.get(), static_cast<Py_ssize_t>(i), view);
  }
  return views;
}

// The Python error that is set, as a failure; clears it.
FailurePointer failure_from_error(const std::string& name, const Origin& origin) {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  // Ctrl-C is meant for the program, not for the operation that happened to run: say it again.
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Reference kept_type(type), kept_value(value), kept_traceback(traceback);
  Reference text(value == nullptr ? nullptr : PyObject_Str(value));
  const char* message = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (message == nullptr) {
    PyErr_Clear();
    message = "an error without a message";
  }
  const char* full = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  const char* dot = std::strrchr(full, '.');
  return std::make_shared<Failure>(dot == nullptr ? full : dot + 1, name + ": " + message, origin);
}

// The GIL is held, the storages have memory and nobody else touches them.
FailurePointer call(PyObject* function, const std::string& name, const Origin& origin,
                    const std::vector<Storage*>& inputs, const std::vector<Storage*>& outputs) {
  Reference readable = memories(inputs, PyBUF_READ);
  Reference writable = memories(outputs, PyBUF_WRITE);
  if (!readable || !writable) return failure_from_error(name, origin);
  Reference done(into_python([&] {
    return PyObject_CallFunctionObjArgs(function, readable.get(), writable.get(), nullptr);
  }));
  return done ? nullptr : failure_from_error(name, origin);
}

// Runs and dies on threads which may take the GIL: that is what the Python lane is for.
class CallbackOperation final : public Operation {
 public:
  explicit CallbackOperation(PyObject* function) : function_(Py_NewRef(function)) {}
  ~CallbackOperation() override {
    GilHeld held;
    Py_DECREF(function_);
  }
  void start(Completion done) override {
    FailurePointer failure;
    {
      GilHeld held;
      failure = call(function_, label, origin, inputs, outputs);
    }
    done(std::move(failure));
  }
  std::string name() const override { return label; }
  std::string detail() const override { return specs; }

  std::string label;
  std::string specs;
  std::vector<Storage*> inputs;
  std::vector<Storage*> outputs;

 private:
  PyObject* function_;
};

std::vector<Storage*> storages_of(const std::vector<Array*>& arrays) {
  std::vector<Storage*> storages;
  for (Array* array : arrays) storages.push_back(array->storage);
  return storages;
}

std::string specs_of(const std::vector<Array*>& inputs) {
  std::string text;
  for (Array* array : inputs) text += (text.empty() ? "" : ", ") + describe(array);
  return text;
}

struct Prepared {
  std::vector<Storage*> inputs;
  std::vector<Storage*> targets;
  std::vector<Storage*> outputs;  // targets, then results
};

bool hand_over(const Callback& callback, const Prepared& prepared) {
  auto operation = std::make_unique<CallbackOperation>(callback.function);
  operation->label = callback.name;
  operation->specs = specs_of(callback.inputs);
  operation->inputs = prepared.inputs;
  operation->outputs = prepared.outputs;
  operation->reads = prepared.inputs;
  operation->reads.insert(operation->reads.end(), prepared.targets.begin(), prepared.targets.end());
  operation->writes = prepared.outputs;
  operation->microseconds = 10;
  operation->device = callback.device;
  operation->lane = kPythonLane;
  operation->origin = current_origin();
  return issue_operation(std::move(operation));
}

bool materialize_all(const std::vector<Storage*>& storages) {
  for (Storage* storage : storages) {
    if (storage->materialize() == nullptr) return false;
  }
  return true;
}

// Costs nothing as far as the engine is concerned: the GIL is here already.
bool run_now(const Callback& callback, const Prepared& prepared) {
  Engine& engine = Engine::get();
  const int reads = static_cast<int>(prepared.inputs.size());
  const int outputs = static_cast<int>(prepared.outputs.size());
  // The results are nobody else's yet; what is overwritten must have its old content.
  for (Storage* target : prepared.targets) {
    for (Storage* input : prepared.inputs) {
      if (input == target) return false;
    }
  }
  if (!engine.acquire_inline(prepared.inputs.data(), reads, prepared.outputs.data(), outputs,
                             1e-3)) {
    return false;
  }
  FailurePointer failure;
  if (materialize_all(prepared.outputs)) {
    const InsideOperation inside;
    failure =
        call(callback.function, callback.name, current_origin(), prepared.inputs, prepared.outputs);
  } else {
    failure = std::make_shared<Failure>("MemoryError", callback.name + ": out of memory",
                                        current_origin());
  }
  engine.release_inline(prepared.inputs.data(), reads, prepared.outputs.data(), outputs,
                        std::move(failure));
  return true;
}

}  // namespace

PyObject* issue_callback(const Callback& callback) {
  Reference results(PyTuple_New(static_cast<Py_ssize_t>(callback.results.size())));
  if (!results) return nullptr;
  Prepared prepared{storages_of(callback.inputs), storages_of(callback.targets), {}};
  prepared.outputs = prepared.targets;
  for (size_t i = 0; i < callback.results.size(); ++i) {
    const ResultSpec& spec = callback.results[i];
    Array* made = new_array(spec.code, spec.shape.data(), static_cast<int>(spec.shape.size()),
                            callback.device);
    if (made == nullptr) return nullptr;
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), as_object(made));
    prepared.outputs.push_back(made->storage);
  }
  for (Storage* target : prepared.targets) target->bump_version();
  if (!run_now(callback, prepared) && !hand_over(callback, prepared)) return nullptr;
  std::vector<Storage*> touched = prepared.inputs;
  touched.insert(touched.end(), prepared.targets.begin(), prepared.targets.end());
  if (!settle_exports(touched.data(), static_cast<int>(touched.size()))) return nullptr;
  return results.take();
}

}  // namespace gemel
