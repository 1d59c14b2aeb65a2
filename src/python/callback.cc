#include "python/callback.h"

#include "python/array.h"
#include "python/failures.h"
#include "python/waits.h"

namespace gemel {
namespace {

using Storages = std::vector<Storage*>;

// One argument for a function: a range of bytes of a storage, or a number.
struct Part {
  Storage* storage;  // null for a number
  size_t begin = 0;
  size_t bytes = 0;
  PyObject* number = nullptr;
};
using Parts = std::vector<Part>;

Part part_of(PyObject* value) {
  if (!is_array(value)) return {nullptr, 0, 0, value};
  const Tensor& tensor = tensor_of(value);
  if (!tensor.contiguous) return {tensor.storage, 0, tensor.storage->bytes()};
  const auto begin = static_cast<size_t>(tensor.offset * item_size(tensor.dtype));
  return {tensor.storage, begin, static_cast<size_t>(tensor.bytes())};
}

Parts parts_of(const std::vector<PyObject*>& values) {
  Parts parts;
  parts.reserve(values.size());
  for (PyObject* value : values) parts.push_back(part_of(value));
  return parts;
}

Reference memory(const Part& part, int access) {
  static char nothing[8];
  if (part.storage == nullptr) return borrowed(part.number);
  char* data = part.bytes == 0 ? nothing : static_cast<char*>(part.storage->data()) + part.begin;
  return owned(PyMemoryView_FromMemory(data, static_cast<Py_ssize_t>(part.bytes), access));
}

Reference memories(const Parts& parts, int access) {
  Reference views = owned(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
  for (size_t i = 0; i < parts.size(); ++i) {
    PyTuple_SET_ITEM(views.get(), static_cast<Py_ssize_t>(i), memory(parts[i], access).take());
  }
  return views;
}

// The GIL is held, the storages have memory, and nothing else uses them.
FailurePointer call(PyObject* function, const std::string& name, const Parts& inputs,
                    const Parts& outputs) {
  drop_now();
  try {
    Reference readable = memories(inputs, PyBUF_READ);
    Reference writable = memories(outputs, PyBUF_WRITE);
    owned(into_python([&] {
      return PyObject_CallFunctionObjArgs(function, readable.get(), writable.get(), nullptr);
    }));
    return nullptr;
  } catch (const PythonError&) {
    return failure_from_error(name);
  }
}

// Runs only on threads that may take the GIL; the Python lane exists for that.
class CallbackOperation final : public Operation {
 public:
  CallbackOperation(PyObject* function, Parts given, Parts made)
      : inputs(std::move(given)), outputs(std::move(made)), function_(Py_NewRef(function)) {
    for (const Part& part : inputs) Py_XINCREF(part.number);
  }
  ~CallbackOperation() override {
    for (const Part& part : inputs) drop_later(part.number);
    drop_later(function_);
  }
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
  const Parts inputs;
  const Parts outputs;

 private:
  PyObject* function_;
};

class CallbackLaunch final : public Launch {
 public:
  // `results` are the new arrays.
  CallbackLaunch(const Callback& callback, const std::vector<PyObject*>& results)
      : callback_(callback),
        inputs_(parts_of(callback.inputs)),
        outputs_(parts_of(callback.targets)) {
    for (const Part& part : inputs_) {
      if (part.storage != nullptr) reads_.push_back(part.storage);
    }
    for (const Part& part : outputs_) reads_.push_back(part.storage);
    known_writes = static_cast<int>(outputs_.size());
    for (PyObject* result : results) outputs_.push_back(part_of(result));
    for (const Part& part : outputs_) writes_.push_back(part.storage);
    reads = reads_.data();
    read_count = static_cast<int>(reads_.size());
    writes = writes_.data();
    write_count = static_cast<int>(writes_.size());
    // Targets are both read and written, and no storage can be acquired inline both ways.
    only_later = known_writes > 0;
    microseconds = 1e-3;  // counts as nothing for the engine, since this thread has the GIL already
    device = callback.device;
    lane = kPythonLane;
  }

  FailurePointer run(PartialFailures&) override {
    const InsideOperation inside({reads_.data(), reads_.size()}, callback_.name.c_str());
    return call(callback_.function, callback_.name, inputs_, outputs_);
  }

  std::unique_ptr<Operation> later() override {
    auto operation = std::make_unique<CallbackOperation>(callback_.function, inputs_, outputs_);
    operation->label = callback_.name;
    for (PyObject* input : callback_.inputs) {
      if (!is_array(input)) continue;
      operation->specs += (operation->specs.empty() ? "" : ", ") + describe(tensor_of(input));
    }
    microseconds = 10;
    return operation;
  }

 private:
  const Callback& callback_;
  Parts inputs_;
  Parts outputs_;  // targets, then results
  Storages reads_;
  Storages writes_;
};

constexpr size_t kMostSteps = 1024;
// What is pending is waited for if it takes no longer than these microseconds: handing a function
// over to the Python lane, whose thread has to get the GIL from this one, takes as long, and all
// that needs its results would be handed over, too.
constexpr double kShortWait = 50.0;

void wait_briefly(const std::vector<PyObject*>& inputs) {
  if (inside_operation() || trace::active()) return;
  for (PyObject* input : inputs) {
    if (!is_array(input)) continue;
    Storage* storage = tensor_of(input).storage;
    if (Engine::ready(storage)) continue;
    if (Engine::get().backlog() > kShortWait) return;
    python_front().wait_until_written(storage);
  }
}

}  // namespace

struct NumpyStep {
  NumpyStep(PyObject* called, PyObject* described)
      : function(Py_NewRef(called)), rows(sorted_rows_from(called)), waits(described == Py_None) {
    if (!waits) results = result_specs_from(described);
  }
  NumpyStep(const NumpyStep&) = delete;
  NumpyStep& operator=(const NumpyStep&) = delete;
  ~NumpyStep() { drop_later(function); }

  PyObject* const function;
  const SortedRows* const rows;
  const bool waits;
  std::vector<ResultSpec> results;
};

Reference issue_callback(const Callback& callback) {
  const std::vector<ResultSpec>& specs = *callback.results;
  Reference results = owned(PyTuple_New(static_cast<Py_ssize_t>(specs.size())));
  std::vector<PyObject*> made;
  if (callback.targets.empty()) wait_briefly(callback.inputs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const ResultSpec& spec = specs[i];
    Reference result = new_array(spec.code, spec.shape.data(), static_cast<int>(spec.shape.size()),
                                 callback.device);
    made.push_back(result.get());
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), result.take());
  }
  for (PyObject* target : callback.targets) tensor_of(target).storage->bump_version();
  CallbackLaunch work(callback, made);
  launch(work, python_front());
  return results;
}

Cache<StepPointer>& steps() {
  static auto* cache = new Cache<StepPointer>(kMostSteps);
  return *cache;
}

StepPointer step_from(PyObject* pair) {
  return std::make_shared<NumpyStep>(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
}

PyObject* call_step(const StepPointer& step, PyObject* name, const Operands& operands,
                    const Arguments& arguments) {
  if (step->waits) {
    const auto count = static_cast<size_t>(arguments.count);
    return owned(into_python([&] {
             return PyObject_Vectorcall(step->function, arguments.values, count, nullptr);
           }))
        .take();
  }
  if (step->rows != nullptr) {
    const ResultSpec& spec = step->results[0];
    Reference result = new_array(spec.code, spec.shape.data(), static_cast<int>(spec.shape.size()),
                                 operands.first->device());
    launch_sort(*step->rows, *operands.first, tensor_of(result), python_front());
    return result.take();
  }
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) throw PythonError{};
  Callback callback{step->function, text, {}, {}, &step->results, operands.first->device()};
  callback.inputs.assign(arguments.values, arguments.values + arguments.count);
  Reference results = issue_callback(callback);
  if (PyTuple_GET_SIZE(results.get()) > 1) return results.take();
  return Py_NewRef(PyTuple_GET_ITEM(results.get(), 0));
}

}  // namespace gemel
