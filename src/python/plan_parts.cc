// What Python gives beside the image of a plan.

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include "python/plan_type.h"
#include "python/waits.h"

namespace nb = nanobind;

namespace gemel {

KeeperPointer keeper_from(PyObject* object) {
  if (!nb::isinstance<KeeperOwner>(object)) throw Error("TypeError", "a plan's keeper is a Keeper");
  return nb::cast<KeeperPointer>(nb::handle(object));
}

std::vector<Kernel> kernels_from(PyObject* iterable) {
  std::vector<Kernel> kernels;
  if (iterable == nullptr) return kernels;
  Reference items = owned(PySequence_Fast(iterable, "the kernels of a plan are a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    nb::handle item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (!nb::isinstance<Kernel>(item)) throw Error("TypeError", "a plan's kernel is a Kernel");
    kernels.push_back(nb::cast<const Kernel&>(item));
  }
  return kernels;
}

std::vector<Captured> captured_from(PyObject* iterable) {
  std::vector<Captured> captured;
  if (iterable == nullptr) return captured;
  Reference items = owned(PySequence_Fast(iterable, "what a plan closes over is a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    const Tensor& tensor = checked_tensor(PySequence_Fast_GET_ITEM(items.get(), i), "Plan");
    wait_for(tensor.storage);
    if (!tensor.contiguous) {
      throw Error("ValueError", "Plan: the arrays a plan closes over must be contiguous");
    }
    tensor.storage->retain();
    std::shared_ptr<Storage> storage(tensor.storage, [](Storage* held) { held->release(); });
    captured.push_back({std::move(storage), tensor.offset * item_size(tensor.dtype)});
  }
  return captured;
}

}  // namespace gemel
