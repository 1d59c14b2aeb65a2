#include "python/plan_launch.h"

#include <algorithm>
#include <cstring>

#include "python/describe.h"
#include "python/op_type.h"

namespace gemel {
namespace {

// "float32[2, 3], float32[3] -> float32[2, 3]", of many inputs the first ones.
std::string describe_program(const PlanProgram& program) {
  constexpr size_t kMost = 4;
  std::string text;
  for (size_t i = 0; i < program.inputs.size() && i < kMost; ++i) {
    const InputSpec& spec = program.inputs[i];
    text += (i > 0 ? ", " : "") + describe(spec.code, spec.shape.data(), spec.shape.size());
  }
  if (program.inputs.size() > kMost) {
    text += ", ... " + std::to_string(program.inputs.size() - kMost) + " more";
  }
  const char* separator = " -> ";
  for (size_t i = 0; i < program.outputs.size() && i < kMost; ++i) {
    const OutputSpec& spec = program.outputs[i];
    if (spec.is_view) continue;
    text += std::string(separator) + describe(spec.code, spec.shape.data(), spec.shape.size());
    separator = ", ";
  }
  return text;
}

class PlanOperation final : public Operation {
 public:
  void start(Completion done) override {
    Device* on = Engine::device(device);
    done(run_plan({on, program.get(), places.data(), scalars.data(), seed, first_call, origin},
                  &partial));
  }
  std::string name() const override { return program->name; }
  std::string detail() const override { return describe_program(*program); }

  std::shared_ptr<const PlanProgram> program;
  std::vector<Place> places;
  std::vector<PlanScalar> scalars;
  int64_t seed = 0;
  int64_t first_call = 0;
};

bool mismatch(const PlanProgram& program, size_t index, const std::string& what) {
  std::string text = program.name + ": input " + std::to_string(index) + " " + what;
  PyErr_SetString(PyExc_TypeError, text.c_str());
  return false;
}

// Strides of dimensions with one position do not matter.
bool strides_match(const InputSpec& spec, Array* array) {
  if (spec.contiguous && array->contiguous) return true;
  for (int axis = 0; axis < array->ndim; ++axis) {
    if (array->shape()[axis] > 1 && array->strides()[axis] != spec.strides[axis]) return false;
  }
  return true;
}

// An uninitialised array with the declared strides.
Array* array_like(const InputSpec& spec, int device) {
  int ndim = static_cast<int>(spec.shape.size());
  if (spec.contiguous) return new_array(spec.code, spec.shape.data(), ndim, device);
  int64_t low, high;
  element_range({ndim, spec.shape.data(), spec.strides.data()}, &low, &high);
  int64_t size = high - low;
  Array* whole = new_array(spec.code, &size, 1, device);
  if (whole == nullptr) return nullptr;
  Array* view =
      new_view(whole->storage, spec.code, spec.shape.data(), spec.strides.data(), ndim, -low);
  Py_DECREF(whole);
  return view;
}

}  // namespace

PlanLaunch::PlanLaunch(const std::shared_ptr<const PlanProgram>& program, int device)
    : program_(program),
      device_(device),
      input_count_(program->inputs.size()),
      inputs_(input_count_),
      scalars_(static_cast<size_t>(program->scalars)),
      places_(input_count_ + program->outputs.size()),
      reads_(input_count_ + program->constants.size()),
      writes_(input_count_ + program->outputs.size()) {}

PlanLaunch::~PlanLaunch() = default;

bool PlanLaunch::take_arguments(PyObject* const* values, Py_ssize_t count) {
  if (count != static_cast<Py_ssize_t>(input_count_) + program_->scalars) {
    PyErr_Format(PyExc_TypeError, "%s takes %zd arrays and %d scalars, %zd arguments were given",
                 program_->name.c_str(), static_cast<Py_ssize_t>(input_count_), program_->scalars,
                 count);
    return false;
  }
  for (size_t i = 0; i < input_count_; ++i) {
    if (!take_input(i, values[i])) return false;
  }
  for (size_t i = 0; i < static_cast<size_t>(program_->scalars); ++i) {
    if (!take_scalar(i, values[input_count_ + i])) return false;
  }
  if (device_ < 0) device_ = 0;
  return !program_->writes_inputs || separate_written();
}

bool PlanLaunch::take_input(size_t index, PyObject* value) {
  if (!is_array(value)) {
    return mismatch(*program_, index,
                    std::string("is a ") + Py_TYPE(value)->tp_name + ", not an array");
  }
  Array* array = as_array(value);
  inputs_[index] = array;
  if (!check_spec(index, array)) return false;
  const InputSpec& spec = program_->inputs[index];
  if (strides_match(spec, array)) return true;
  if (spec.written) {
    return mismatch(*program_, index, "is overwritten and must have the layout of the plan");
  }
  return replace_by_copy(index);
}

bool PlanLaunch::check_spec(size_t index, Array* array) {
  const InputSpec& spec = program_->inputs[index];
  if (array->code != spec.code) {
    return mismatch(*program_, index,
                    std::string("has dtype ") + kDTypeNames[array->code] +
                        ", the plan was made for " + kDTypeNames[spec.code]);
  }
  if (array->ndim != spec.shape.size() ||
      std::memcmp(array->dims, spec.shape.data(), sizeof(int64_t) * array->ndim) != 0) {
    return mismatch(*program_, index,
                    "has shape " + shape_text(array->dims, array->ndim) +
                        ", the plan was made for " +
                        shape_text(spec.shape.data(), spec.shape.size()));
  }
  int device = array->storage->device();
  if (device_ < 0) device_ = device;
  if (device != device_) {
    return mismatch(*program_, index,
                    "is on device " + std::to_string(device) + ", the others are on device " +
                        std::to_string(device_));
  }
  return true;
}

bool PlanLaunch::replace_by_copy(size_t index) {
  Array* array = inputs_[index];
  const InputSpec& spec = program_->inputs[index];
  PyObject* operation = find_operator("copy");
  if (operation == nullptr) return false;
  Reference copy(as_object(array_like(spec, array->storage->device())));
  if (!copy) return false;
  PyObject* source = as_object(array);
  if (!call_into(reinterpret_cast<OpObject*>(operation), as_array(copy.get()),
                 Arguments{&source, 1, nullptr})) {
    return false;
  }
  inputs_[index] = as_array(copy.get());
  copies_.push_back(std::move(copy));
  return true;
}

// No input may lie in a storage which the plan overwrites through another input.
bool PlanLaunch::separate_written() {
  for (size_t i = 0; i < input_count_; ++i) {
    if (!program_->inputs[i].written) continue;
    for (size_t j = 0; j < input_count_; ++j) {
      if (j == i || inputs_[j]->storage != inputs_[i]->storage) continue;
      if (program_->inputs[j].written) continue;
      if (!replace_by_copy(j)) return false;
    }
  }
  return true;
}

bool PlanLaunch::take_scalar(size_t index, PyObject* value) {
  PlanScalar& scalar = scalars_[index];
  if (PyFloat_CheckExact(value)) {
    scalar.floating = PyFloat_AS_DOUBLE(value);
    bool fits = scalar.floating >= -0x1p63 && scalar.floating < 0x1p63;
    scalar.integer = fits ? static_cast<int64_t>(scalar.floating) : 0;
    return true;
  }
  if (!PyLong_CheckExact(value) && !PyBool_Check(value)) {
    PyErr_Format(PyExc_TypeError, "%s: scalar %zd is a %s, not a bool, an int or a float",
                 program_->name.c_str(), static_cast<Py_ssize_t>(index), Py_TYPE(value)->tp_name);
    return false;
  }
  scalar.integer = PyLong_AsLongLong(value);
  if (scalar.integer == -1 && PyErr_Occurred()) return false;
  scalar.floating = static_cast<double>(scalar.integer);
  return true;
}

Array* PlanLaunch::make_result(const OutputSpec& spec, PyObject** results) {
  int ndim = static_cast<int>(spec.shape.size());
  if (!spec.is_view) return new_array(spec.code, spec.shape.data(), ndim, device_);
  Array* viewed = spec.space == kInput ? inputs_[spec.index] : as_array(results[spec.index]);
  return new_view(viewed->storage, viewed->code, spec.shape.data(), spec.strides.data(), ndim,
                  viewed->offset + spec.offset);
}

bool PlanLaunch::make_results(PyObject** results) {
  for (size_t i = 0; i < program_->outputs.size(); ++i) {
    Array* result = make_result(program_->outputs[i], results);
    if (result == nullptr) {
      while (i > 0) Py_DECREF(results[--i]);
      return false;
    }
    results[i] = as_object(result);
    places_[input_count_ + i] = {result->storage, result->offset * kItemSize[result->code]};
  }
  return true;
}

void PlanLaunch::list_storages() {
  for (size_t i = 0; i < input_count_; ++i) {
    Array* input = inputs_[i];
    places_[i] = {input->storage, input->offset * kItemSize[input->code]};
    const InputSpec& spec = program_->inputs[i];
    if (spec.written) {
      writes_[write_count_++] = input->storage;
      input->storage->bump_version();
    }
    if (!spec.written || spec.read) reads_[read_count_++] = input->storage;
  }
  // Arrays the program closes over are read anew by every run.
  for (const ConstantBuffer& constant : program_->constants) {
    reads_[read_count_++] = constant.storage.get();
  }
  update_count_ = write_count_;
  for (size_t i = 0; i < program_->outputs.size(); ++i) {
    if (!program_->outputs[i].is_view) writes_[write_count_++] = places_[input_count_ + i].storage;
  }
}

namespace {

// The line is looked for only when something has failed.
void locate(PartialFailures* partial) {
  const Origin origin = current_origin();
  std::vector<std::pair<FailurePointer, FailurePointer>> located;
  for (auto& [storage, failure] : *partial) {
    auto known = std::find_if(located.begin(), located.end(),
                              [&](const auto& pair) { return pair.first == failure; });
    if (known == located.end()) {
      auto made = std::make_shared<const Failure>(failure->type, failure->message, origin);
      known = located.insert(known, {failure, std::move(made)});
    }
    failure = known->second;
  }
}

}  // namespace

bool PlanLaunch::hand_over() {
  auto operation = std::make_unique<PlanOperation>();
  operation->program = program_;
  operation->places.assign(places_.data(),
                           places_.data() + input_count_ + program_->outputs.size());
  operation->scalars.assign(scalars_.data(), scalars_.data() + program_->scalars);
  operation->seed = seed_;
  operation->first_call = first_call_;
  operation->reads.assign(reads_.data(), reads_.data() + read_count_);
  operation->writes.assign(writes_.data(), writes_.data() + write_count_);
  for (size_t i = 0; i < input_count_; ++i) {
    const InputSpec& spec = program_->inputs[i];
    if (spec.written && !spec.fails) operation->updates.push_back(places_[i].storage);
  }
  operation->microseconds = program_->microseconds;
  operation->workspace = program_->workspace;
  operation->device = device_;
  operation->origin = current_origin();
  return issue_operation(std::move(operation));
}

bool PlanLaunch::launch() {
  Engine& engine = Engine::get();
  // Other devices do their work themselves, also what reads nothing.
  if (!Engine::on_host(device_) ||
      !engine.acquire_inline(reads_.data(), read_count_, writes_.data(), update_count_,
                             program_->microseconds)) {
    return hand_over();
  }
  bool memory = true;
  for (int i = update_count_; i < write_count_ && memory; ++i) {
    memory = writes_[i]->data() != nullptr || writes_[i]->materialize() != nullptr;
  }
  if (!memory) {
    // The engine reports missing memory as it does for all work.
    engine.release_inline(reads_.data(), read_count_, writes_.data(), update_count_);
    return hand_over();
  }
  PartialFailures partial;
  FailurePointer failure = run_plan(make_run(), &partial);
  if (failure != nullptr) {
    for (int i = 0; i < write_count_; ++i) partial.emplace_back(writes_[i], failure);
  }
  if (!partial.empty()) locate(&partial);
  for (const auto& [storage, reason] : partial) {
    if (storage == nullptr) engine.report(reason);
  }
  release(partial);
  return true;
}

// Gives back what launch() has acquired, each storage with its own failure.
void PlanLaunch::release(const PartialFailures& partial) {
  Engine& engine = Engine::get();
  if (partial.empty()) {
    engine.release_inline(reads_.data(), read_count_, writes_.data(), update_count_);
    return;
  }
  for (int i = 0; i < write_count_; ++i) {
    FailurePointer failure;
    for (const auto& [storage, reason] : partial) {
      if (storage == writes_[i]) failure = reason;
    }
    // Nobody else knows of the new results: acquiring them cannot fail.
    const bool acquired =
        i < update_count_ ||
        (failure != nullptr && engine.acquire_inline(nullptr, 0, &writes_[i], 1, 0));
    if (acquired) engine.release_inline(nullptr, 0, &writes_[i], 1, std::move(failure));
  }
  engine.release_inline(reads_.data(), read_count_, nullptr, 0);
}

bool PlanLaunch::settle() {
  return settle_exports(reads_.data(), read_count_) && settle_exports(writes_.data(), write_count_);
}

bool PlanLaunch::run(PyObject** results) {
  if (!make_results(results)) return false;
  if (program_->random > 0) {
    seed_ = random_stream.seed;
    first_call_ = random_stream.next_call;
    random_stream.next_call += program_->random;
  }
  list_storages();
  // A plan of views alone has nothing to run.
  const bool idle = program_->items.empty() && write_count_ == 0;
  if ((idle || launch()) && settle()) return true;
  for (size_t i = 0; i < program_->outputs.size(); ++i) Py_DECREF(results[i]);
  return false;
}

}  // namespace gemel
