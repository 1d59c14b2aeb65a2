#include "python/callback.h"

#include "python/array.h"
#include "python/failures.h"
#include "python/waits.h"

namespace gemel {
namespace {

using Storages = std::vector<Storage*>;

Reference memories(Storage* const* storages, size_t count, int access) {
  static char nothing[8];
  Reference views = owned(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    Storage* storage = storages[i];
    auto* data = storage->bytes() == 0 ? nothing : static_cast<char*>(storage->data());
    const auto bytes = static_cast<Py_ssize_t>(storage->bytes());
    PyTuple_SET_ITEM(views.get(), static_cast<Py_ssize_t>(i),
                     owned(PyMemoryView_FromMemory(data, bytes, access)).take());
  }
  return views;
}

// The GIL is held, the storages have memory and nobody else touches them.
FailurePointer call(PyObject* function, const std::string& name, const Storages& inputs,
                    const Storages& outputs) {
  drop_now();
  try {
    Reference readable = memories(inputs.data(), inputs.size(), PyBUF_READ);
    Reference writable = memories(outputs.data(), outputs.size(), PyBUF_WRITE);
    owned(into_python([&] {
      return PyObject_CallFunctionObjArgs(function, readable.get(), writable.get(), nullptr);
    }));
    return nullptr;
  } catch (const PythonError&) {
    return failure_from_error(name);
  }
}

// Runs on threads which may take the GIL: that is what the Python lane is for.
class CallbackOperation final : public Operation {
 public:
  explicit CallbackOperation(PyObject* function) : function_(Py_NewRef(function)) {}
  ~CallbackOperation() override { drop_later(function_); }
  void start(Completion done) override {
    FailurePointer failure;
    {
      GilHeld held;
      failure = call(function_, label, inputs, outputs);
      Py_CLEAR(function_);
    }
    done(failure == nullptr ? nullptr : located(failure, origin));
  }
  std::string name() const override { return label; }
  std::string detail() const override { return specs; }

  std::string label;
  std::string specs;
  Storages inputs;
  Storages outputs;

 private:
  PyObject* function_;
};

Storages storages_of(const std::vector<PyObject*>& arrays) {
  Storages storages;
  for (PyObject* array : arrays) storages.push_back(tensor_of(array).storage);
  return storages;
}

class CallbackLaunch final : public Launch {
 public:
  // `results` are the new ones.
  CallbackLaunch(const Callback& callback, const Storages& results)
      : callback_(callback),
        inputs_(storages_of(callback.inputs)),
        outputs_(storages_of(callback.targets)) {
    reads_ = inputs_;
    reads_.insert(reads_.end(), outputs_.begin(), outputs_.end());
    known_writes = static_cast<int>(outputs_.size());
    outputs_.insert(outputs_.end(), results.begin(), results.end());
    writes_ = outputs_;
    reads = reads_.data();
    read_count = static_cast<int>(reads_.size());
    writes = writes_.data();
    write_count = static_cast<int>(writes_.size());
    // What is overwritten is read as well: no step may take both at once.
    only_later = known_writes > 0;
    microseconds = 1e-3;  // nothing, as far as the engine is concerned: the GIL is here already
    device = callback.device;
    lane = kPythonLane;
  }

  FailurePointer run(PartialFailures&) override {
    const InsideOperation inside;
    return call(callback_.function, callback_.name, inputs_, outputs_);
  }

  std::unique_ptr<Operation> later() override {
    auto operation = std::make_unique<CallbackOperation>(callback_.function);
    operation->label = callback_.name;
    for (PyObject* array : callback_.inputs) {
      operation->specs += (operation->specs.empty() ? "" : ", ") + describe(tensor_of(array));
    }
    operation->inputs = inputs_;
    operation->outputs = outputs_;
    microseconds = 10;
    return operation;
  }

 private:
  const Callback& callback_;
  Storages inputs_;
  Storages outputs_;  // targets, then results
  Storages reads_;
  Storages writes_;
};

}  // namespace

Reference issue_callback(const Callback& callback) {
  Reference results = owned(PyTuple_New(static_cast<Py_ssize_t>(callback.results.size())));
  Storages made;
  for (size_t i = 0; i < callback.results.size(); ++i) {
    const ResultSpec& spec = callback.results[i];
    Reference result = new_array(spec.code, spec.shape.data(), static_cast<int>(spec.shape.size()),
                                 callback.device);
    made.push_back(tensor_of(result).storage);
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), result.take());
  }
  for (PyObject* target : callback.targets) tensor_of(target).storage->bump_version();
  CallbackLaunch work(callback, made);
  launch(work, python_front());
  return results;
}

}  // namespace gemel
