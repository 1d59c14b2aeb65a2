#include "python/errands.h"

#include "python/array.h"
#include "python/failures.h"
#include "python/plan_type.h"
#include "python/waits.h"

namespace gemel {

Reference join_meeting(Meeting& meeting, int rank, int parties, PyObject* array) {
  checked_tensor(array, "Meeting.join");
  Reference given = dense(array);
  const Tensor& tensor = tensor_of(given);
  std::vector<int64_t> extents{parties};
  extents.insert(extents.end(), tensor.extents(), tensor.extents() + tensor.ndim);
  Reference taken = new_array(tensor.dtype, extents.data(), tensor.ndim + 1, tensor.device());
  meeting.join(rank, tensor, tensor_of(taken), python_front());
  return taken;
}

Reference issue_errand(Desk& desk, uint64_t number, const std::string& name, PyObject* inputs,
                       PyObject* described, int device) {
  const std::vector<ResultSpec> results = result_specs_from(described);
  checked_device(device);
  Reference items = owned(PySequence_Fast(inputs, "Desk.issue: the inputs are a sequence"));
  std::vector<Reference> held;
  std::vector<Tensor*> given;
  std::vector<Tensor*> made;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* input = PySequence_Fast_GET_ITEM(items.get(), i);
    checked_tensor(input, "Desk.issue");
    held.push_back(dense(input));
    given.push_back(&tensor_of(held.back()));
  }
  Reference arrays = owned(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (size_t i = 0; i < results.size(); ++i) {
    const ResultSpec& spec = results[i];
    Reference array =
        new_array(spec.code, spec.shape.data(), static_cast<int>(spec.shape.size()), device);
    made.push_back(&tensor_of(array));
    PyTuple_SET_ITEM(arrays.get(), static_cast<Py_ssize_t>(i), array.take());
  }
  desk.issue(number, name, given, made, python_front());
  return arrays;
}

std::shared_ptr<Errand> take_errand(Desk& desk, double seconds) {
  const WithoutGil released;
  return desk.take(std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
}

Reference memories(const std::vector<Errand::Part>& parts, bool writable) {
  Reference views = owned(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
  for (size_t i = 0; i < parts.size(); ++i) {
    PyObject* view = PyMemoryView_FromMemory(static_cast<char*>(parts[i].data),
                                             static_cast<Py_ssize_t>(parts[i].bytes),
                                             writable ? PyBUF_WRITE : PyBUF_READ);
    PyTuple_SET_ITEM(views.get(), static_cast<Py_ssize_t>(i), owned(view).take());
  }
  return views;
}

Reference failure_of(const Errand& errand) {
  if (errand.failure == nullptr) return borrowed(Py_None);
  const std::string text = failure_text(*errand.failure);
  return owned(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
}

void end_errand(Errand& errand, const std::optional<std::tuple<std::string, std::string>>& told) {
  FailurePointer failure;
  if (told) failure = std::make_shared<const Failure>(std::get<0>(*told), std::get<1>(*told));
  const WithoutGil released;
  errand.end(failure);
}

void close_desk(Desk& desk, const std::string& type, const std::string& message) {
  const FailurePointer failure = std::make_shared<const Failure>(type, message);
  const WithoutGil released;
  desk.close(failure);
}

std::tuple<std::string, uint64_t, double, std::string, std::vector<int>, uint64_t, double, double>
state_of(Courier& courier) {
  Courier::State told = courier.state();
  return {std::move(told.problem), told.open, told.waiting, std::move(told.name),
          std::move(told.missing), told.sums, told.seconds, told.worked};
}

void close_courier(Courier& courier, const std::string& type, const std::string& message) {
  const FailurePointer failure = std::make_shared<const Failure>(type, message);
  const WithoutGil released;
  courier.close(failure);
}

}  // namespace gemel
