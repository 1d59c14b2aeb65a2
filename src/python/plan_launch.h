// One call of a plan: its arguments checked, its results made, run here or handed over.

#pragma once

#include "program/plan.h"
#include "program/small_array.h"
#include "python/array.h"
#include "python/state.h"
#include "python/waits.h"

namespace gemel {

class PlanLaunch {
 public:
  PlanLaunch(const std::shared_ptr<const PlanProgram>& program, int device);
  ~PlanLaunch();

  // Arrays, then scalars; false with a Python error set (TypeError naming what differs).
  bool take_arguments(PyObject* const* values, Py_ssize_t count);
  // New references in `results`; false with a Python error set.
  bool run(PyObject** results);

 private:
  bool take_input(size_t index, PyObject* value);
  bool take_scalar(size_t index, PyObject* value);
  bool check_spec(size_t index, Array* array);
  bool replace_by_copy(size_t index);
  bool separate_written();
  bool make_results(PyObject** results);
  Array* make_result(const OutputSpec& spec, PyObject** results);
  void list_storages();
  bool launch();
  void release(const PartialFailures& partial);
  bool hand_over();
  bool settle();
  PlanRun make_run() {
    Device* device = Engine::device(device_);
    return {device, program_.get(), places_.data(), scalars_.data(), seed_, first_call_, {}};
  }

  static constexpr size_t kInside = 24;
  const std::shared_ptr<const PlanProgram>& program_;
  int device_;  // -1 until an input says
  size_t input_count_;
  SmallArray<Array*, kInside> inputs_;
  std::vector<Reference> copies_;
  SmallArray<PlanScalar, 8> scalars_;
  SmallArray<Place, 2 * kInside> places_;
  SmallArray<Storage*, kInside> reads_;
  SmallArray<Storage*, 2 * kInside> writes_;  // overwritten inputs, then new results
  int read_count_ = 0;
  int write_count_ = 0;
  int update_count_ = 0;
  int64_t seed_ = 0;
  int64_t first_call_ = 0;
};

}  // namespace gemel
