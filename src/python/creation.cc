#include "python/creation.h"

#include "python/flags.h"
#include "python/plan_type.h"

namespace gemel {
namespace {

constexpr size_t kMostCreations = 4096;
constexpr uint64_t kLarge = 1 << 8;  // in a key: an integer that not every dtype holds

struct Creation {
  BindingPointer binding;
  Reference sizes;  // an array whose extents are the free sizes of the program; null: it has none
};
using CreationPointer = std::shared_ptr<const Creation>;

Cache<CreationPointer>& creations() {
  static auto* cache = new Cache<CreationPointer>(kMostCreations);
  return *cache;
}

bool is_large(const Operands& operands, int index) {
  return operands.tags[index] == kScalarInt && operands.scalars[index] >> 7 != 0;
}

CallKey key_of(OpObject* op, const Operands& operands, uint32_t parameters) {
  CallKey key(static_cast<uint64_t>(op->owner) << 32 | parameters, true);
  key.add(static_cast<uint64_t>(thread_flags.device));
  for (int i = 0; i < operands.count; ++i) {
    key.add(static_cast<uint64_t>(operands.tags[i]) | (is_large(operands, i) ? kLarge : 0));
  }
  return key;
}

PyObject* run(const Creation& made, const Arguments& arguments) {
  PyObject* sizes = made.sizes.get();
  PlanCall call(&sizes, sizes == nullptr ? 0 : 1, arguments.values);
  return call.run(made.binding, thread_flags.device);
}

// Python gives the plan and None, or the array for `sizes`; None alone if it makes the call itself.
CreationPointer prepared(OpObject* op, const Arguments& arguments) {
  Reference inputs = inputs_tuple(arguments);
  Reference parameters = parameters_dict(arguments);
  Reference found = call_method(reinterpret_cast<PyObject*>(op), "_prepare", "(OO)", inputs.get(),
                                parameters.get());
  if (found.get() == Py_None) return nullptr;
  PyObject *plan, *sizes;
  if (!PyArg_ParseTuple(found.get(), "OO", &plan, &sizes)) throw PythonError{};
  auto made = std::make_shared<Creation>();
  if (sizes != Py_None) made->sizes = borrowed(sizes);
  PyObject* array = made->sizes.get();
  PlanCall call(&array, array == nullptr ? 0 : 1, nullptr);
  made->binding = call.bind_made(program_of(plan));
  return made;
}

}  // namespace

PyObject* call_creation(OpObject* op, const Operands& operands, const Arguments& arguments,
                        uint32_t parameters) {
  CallKey key = key_of(op, operands, parameters);
  if (const CreationPointer* known = creations().find(key)) {
    ++cache_counters.hits;
    return run(*CreationPointer(*known), arguments);
  }
  ++cache_counters.misses;
  const CreationPointer made = prepared(op, arguments);
  if (made == nullptr) return nullptr;
  if (creations().find(key) == nullptr) creations().insert(key, made);
  return run(*made, arguments);
}

void forget_creations() { creations().clear(); }

}  // namespace gemel
