#include "python/copy.h"

#include "python/describe.h"
#include "python/op_type.h"

namespace gemel {
namespace {

// What the memory moves on one core, to know which copies are small enough to be made at once.
constexpr double kBytesPerMicrosecond = 8000;

// The device at the end of the link, and the lane of that link.
struct Way {
  Device* carrier;
  int lane;
};

Way way_between(int source, int target) {
  Device* from = Engine::device(source);
  Device* to = Engine::device(target);
  return from->on_host ? Way{to, to->incoming} : Way{from, from->outgoing};
}

class CopyOperation final : public Operation {
 public:
  void start(Completion done) override {
    carrier->copy(static_cast<char*>(to.storage->data()) + to.bytes,
                  static_cast<const char*>(from.storage->data()) + from.bytes, bytes,
                  std::move(done));
  }
  std::string name() const override { return "copy"; }
  std::string detail() const override { return specs; }

  Device* carrier = nullptr;
  Place from;
  Place to;
  size_t bytes = 0;
  std::string specs;
};

// The array itself when it is contiguous, else a contiguous copy on its device.
Reference contiguous(Array* array) {
  PyObject* object = as_object(array);
  if (array->contiguous) return Reference(Py_NewRef(object));
  PyObject* operation = find_operator("copy");
  if (operation == nullptr) return {};
  Reference copy(
      as_object(new_array(array->code, array->shape(), array->ndim, array->storage->device())));
  if (!copy || !call_into(reinterpret_cast<OpObject*>(operation), as_array(copy.get()),
                          Arguments{&object, 1, nullptr})) {
    return {};
  }
  return copy;
}

Place place_of(Array* array) { return {array->storage, array->offset * kItemSize[array->code]}; }

bool issue_copy(Array* source, Array* target) {
  auto operation = std::make_unique<CopyOperation>();
  operation->from = place_of(source);
  operation->to = place_of(target);
  operation->bytes = static_cast<size_t>(source->size * kItemSize[source->code]);
  operation->reads.push_back(source->storage);
  operation->writes.push_back(target->storage);
  // What is not overwritten keeps its meaning, and its failure.
  if (operation->bytes != target->storage->bytes()) operation->reads.push_back(target->storage);
  operation->device = target->storage->device();
  const Way way = way_between(source->storage->device(), operation->device);
  operation->carrier = way.carrier;
  operation->lane = way.lane;
  operation->microseconds = static_cast<double>(operation->bytes) / kBytesPerMicrosecond;
  operation->specs = describe(source);
  operation->origin = current_origin();
  return issue_operation(std::move(operation));
}

}  // namespace

bool copy_across(Array* source, Array* target) {
  Reference dense = contiguous(source);
  if (!dense) return false;
  if (source->size == 0) return true;
  target->storage->bump_version();
  if (!issue_copy(as_array(dense.get()), target)) return false;
  Storage* const touched[] = {as_array(dense.get())->storage, target->storage};
  return settle_exports(touched, 2);
}

PyObject* copy_to_device(Array* source, int device) {
  Reference target(as_object(new_array(source->code, source->shape(), source->ndim, device)));
  if (!target || !copy_across(source, as_array(target.get()))) return nullptr;
  return target.take();
}

Reference in_memory(Array* array) {
  if (!Engine::on_host(array->storage->device())) return Reference(copy_to_device(array, 0));
  return Reference(Py_NewRef(as_object(array)));
}

}  // namespace gemel
