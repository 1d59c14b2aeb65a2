#include "python/front.h"

#include "python/origins.h"

namespace gemel {
namespace {

class PythonFront final : public Front {
 public:
  void issue(std::unique_ptr<Operation> operation) override {
    if (!issue_operation(std::move(operation))) throw PythonError{};
  }
  Origin origin() override { return current_origin(); }
  void wait_until_idle(Storage* storage) override {
    bool finished;
    {
      WithoutGil released;
      finished = Engine::get().wait_idle(storage, interrupted_by_signal);
    }
    if (finished) return;
    if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw PythonError{};
  }
};

}  // namespace

Front& python_front() {
  static PythonFront front;
  return front;
}

void wait_for(Storage* storage) {
  if (!wait_for_storage(storage)) throw PythonError{};
}

}  // namespace gemel
