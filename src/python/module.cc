// The module gemel._core. The only file that includes nanobind: what is called often (arrays,
// operations, plans) are raw types of their own; here are the rest and the functions.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>

#include "engine/simulated.h"
#include "memory/memory.h"
#include "python/array.h"
#include "python/call_site.h"
#include "python/callback.h"
#include "python/copy.h"
#include "python/dlpack.h"
#include "python/op_type.h"
#include "python/plan_type.h"
#include "python/state.h"
#include "python/trace_python.h"
#include "python/waits.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gemel {
namespace {

constexpr int kMaxOutCodes = 4;

struct Configuration {
  int workers = -1;
  bool serial = false;
  int64_t queue_operations = 0;
  int64_t queue_bytes = 0;
  int64_t ahead_bytes = 0;
};
Configuration configuration;

using BufferTuple = std::tuple<int, int, int64_t>;
using PatchTuple = std::tuple<int, int, bool>;
using SiteTuple = std::tuple<int, std::vector<int>, std::vector<int>, std::vector<int>>;
using FailureTuple = std::optional<std::tuple<std::string, std::string>>;

FailureText failure_from(const FailureTuple& failure) {
  if (!failure) return {};
  return {std::get<0>(*failure), std::get<1>(*failure)};
}

BufferReference buffer_from(const BufferTuple& buffer) {
  return {std::get<0>(buffer), std::get<1>(buffer), std::get<2>(buffer), 0};
}

// Python errors set by the raw types, as C++ exceptions for nanobind.
nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

struct Buffer {
  Py_buffer view;
  Buffer(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view, flags) != 0) throw nb::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

Kernel load_object(nb::object code) {
  Buffer bytes(code, PyBUF_SIMPLE);
  try {
    std::shared_ptr<Object> object =
        Object::load(bytes.view.buf, static_cast<size_t>(bytes.view.len));
    return {object, object->kernel()};
  } catch (const std::runtime_error& error) {
    throw nb::value_error(error.what());
  }
}

PlanStep make_step(const Kernel& kernel, const std::vector<BufferTuple>& buffers,
                   std::vector<int64_t> integers, int64_t extent, int64_t chunk,
                   const std::vector<PatchTuple>& scalars, const FailureTuple& failure) {
  PlanStep step;
  step.kernel = kernel;
  for (const BufferTuple& buffer : buffers) step.buffers.push_back(buffer_from(buffer));
  step.integers = std::move(integers);
  step.extent = extent;
  step.chunk = chunk < 1 ? 1 : chunk;
  for (const PatchTuple& patch : scalars) {
    step.patches.push_back({std::get<0>(patch), std::get<1>(patch), std::get<2>(patch)});
  }
  step.failure = failure_from(failure);
  return step;
}

std::vector<PlanItem> items_from(nb::iterable list) {
  std::vector<PlanItem> items;
  for (nb::handle entry : list) {
    PlanItem item;
    if (nb::isinstance<PlanBranch>(entry)) {
      item.branch = std::make_shared<PlanBranch>(nb::cast<const PlanBranch&>(entry));
    } else {
      item.step = nb::cast<const PlanStep&>(entry);
    }
    items.push_back(std::move(item));
  }
  return items;
}

PlanBranch make_branch(const BufferTuple& predicate, nb::iterable then, nb::iterable otherwise) {
  return {buffer_from(predicate), items_from(then), items_from(otherwise)};
}

ElementwiseKernel make_elementwise(const Kernel& kernel, const std::vector<int>& codes,
                                   double nanoseconds, const FailureTuple& failure,
                                   std::string name) {
  if (codes.empty() || codes.size() > kMaxOutCodes) {
    throw nb::value_error("an elementwise kernel has one to four results");
  }
  ElementwiseKernel elementwise{kernel, {}, nanoseconds, failure_from(failure), std::move(name)};
  for (int code : codes) {
    if (code < 0 || code >= kDTypes) throw nb::value_error("unknown dtype code");
    elementwise.out_codes.push_back(static_cast<uint8_t>(code));
  }
  return elementwise;
}

void check_shape(const std::vector<int64_t>& shape, size_t strides) {
  if (shape.size() != strides || shape.size() > kMaxRank) {
    throw nb::value_error("shape and strides must have the same length, at most 32");
  }
  for (int64_t extent : shape) {
    if (extent < 0) throw nb::value_error("an extent is negative");
  }
}

std::vector<int64_t> contiguous_for(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  contiguous_strides(shape.data(), static_cast<int>(shape.size()), strides.data());
  return strides;
}

int checked_code(int code) {
  if (code < 0 || code >= kDTypes) throw nb::value_error("unknown dtype code");
  return code;
}

InputSpec input_from(nb::handle object) {
  using Described = std::tuple<int, std::vector<int64_t>, std::optional<std::vector<int64_t>>>;
  auto [code, shape, strides] = nb::cast<Described>(object);
  InputSpec spec;
  spec.code = checked_code(code);
  spec.strides = strides ? *strides : contiguous_for(shape);
  check_shape(shape, spec.strides.size());
  spec.contiguous =
      is_contiguous(shape.data(), spec.strides.data(), static_cast<int>(shape.size()));
  spec.shape = std::move(shape);
  return spec;
}

OutputSpec output_from(nb::handle object) {
  OutputSpec spec;
  auto kind = nb::cast<std::string>(object[0]);
  if (kind == "new") {
    spec.code = checked_code(nb::cast<int>(object[1]));
    spec.shape = nb::cast<std::vector<int64_t>>(object[2]);
    check_shape(spec.shape, spec.shape.size());
    return spec;
  }
  if (kind != "view") throw nb::value_error("an output is ('new', ...) or ('view', ...)");
  spec.is_view = true;
  spec.space = nb::cast<int>(object[1]);
  spec.index = nb::cast<int>(object[2]);
  spec.shape = nb::cast<std::vector<int64_t>>(object[3]);
  spec.strides = nb::cast<std::vector<int64_t>>(object[4]);
  spec.offset = nb::cast<int64_t>(object[5]);
  check_shape(spec.shape, spec.strides.size());
  return spec;
}

// Results are made in order, so a view can only be of an input or of an earlier output.
void check_view(const PlanProgram& program, const OutputSpec& spec, size_t at) {
  if (!spec.is_view) return;
  size_t bound = spec.space == kInput ? program.inputs.size() : at;
  if (spec.space < kInput || spec.space > kOutput || spec.index < 0 ||
      static_cast<size_t>(spec.index) >= bound) {
    throw nb::value_error("a view output must be of an input or of an earlier output");
  }
}

ConstantBuffer constant_from(nb::handle object) {
  if (!is_array(object.ptr())) throw nb::type_error("the constants of a plan are arrays");
  Array* array = as_array(object.ptr());
  if (!wait_for(array)) throw nb::python_error();
  if (!array->contiguous) throw nb::value_error("the constants of a plan must be contiguous");
  array->storage->retain();
  std::shared_ptr<Storage> storage(array->storage, [](Storage* held) { held->release(); });
  return {std::move(storage), array->offset * kItemSize[array->code]};
}

std::shared_ptr<PlanProgram> make_program(std::string name, nb::iterable inputs,
                                          nb::iterable outputs, nb::iterable steps,
                                          int64_t workspace, nb::iterable constants, int scalars,
                                          int random, const std::vector<int>& writes,
                                          double microseconds, const std::vector<SiteTuple>& sites,
                                          const std::vector<int>& overwrites,
                                          const std::vector<int>& accumulates) {
  auto program = std::make_shared<PlanProgram>();
  program->name = std::move(name);
  for (nb::handle input : inputs) program->inputs.push_back(input_from(input));
  for (nb::handle output : outputs) {
    program->outputs.push_back(output_from(output));
    check_view(*program, program->outputs.back(), program->outputs.size() - 1);
  }
  program->items = items_from(steps);
  if (workspace < 0 || scalars < 0 || random < 0) throw nb::value_error("a count is negative");
  program->workspace = static_cast<size_t>(workspace);
  for (nb::handle constant : constants) program->constants.push_back(constant_from(constant));
  program->scalars = scalars;
  program->random = random;
  for (int index : writes) {
    if (index < 0 || static_cast<size_t>(index) >= program->inputs.size()) {
      throw nb::value_error("`writes` names an input which does not exist");
    }
    program->inputs[static_cast<size_t>(index)].written = true;
    program->writes_inputs = true;
  }
  for (const std::vector<int>* list : {&overwrites, &accumulates}) {
    for (int index : *list) {
      InputSpec& input = program->inputs.at(static_cast<size_t>(index));
      input.fails = true;
      input.read = list == &accumulates;
    }
  }
  program->microseconds = microseconds;
  for (const auto& [item, skipped, failed, written] : sites) {
    program->sites.push_back({item, skipped, failed, written});
  }
  program->resolve();
  return program;
}

nb::capsule in_capsule(std::shared_ptr<PlanProgram> program) {
  return nb::capsule(new std::shared_ptr<PlanProgram>(std::move(program)), [](void* held) noexcept {
    delete static_cast<std::shared_ptr<PlanProgram>*>(held);
  });
}

nb::object make_empty(const std::vector<int64_t>& shape, int code, int device) {
  check_shape(shape, shape.size());
  return checked(as_object(new_array_with_memory(checked_code(code), shape.data(),
                                                 static_cast<int>(shape.size()), device)));
}

nb::object from_buffer(nb::object object, int code, const std::vector<int64_t>& shape, int device) {
  Buffer source(object, PyBUF_C_CONTIGUOUS);
  nb::object result = make_empty(shape, code, device);
  Array* array = as_array(result.ptr());
  int64_t bytes = array->size * kItemSize[code];
  if (source.view.len != bytes) {
    std::string text = "the buffer has " + std::to_string(source.view.len) + " bytes, the array " +
                       std::to_string(bytes);
    throw nb::value_error(text.c_str());
  }
  if (bytes > 0) std::memcpy(array_data(array), source.view.buf, static_cast<size_t>(bytes));
  return result;
}

Array* checked_array(nb::handle object, const char* who) {
  if (is_array(object.ptr())) return as_array(object.ptr());
  throw nb::type_error((std::string(who) + " needs an array").c_str());
}

nb::object to_bytes(nb::object object) {
  Array* array = checked_array(object, "to_bytes");
  const int64_t size = array->size * kItemSize[array->code];
  nb::object bytes = checked(PyBytes_FromStringAndSize(nullptr, size));
  if (!read_elements(array, PyBytes_AS_STRING(bytes.ptr()))) throw nb::python_error();
  return bytes;
}

void read_into(nb::object object, nb::object target) {
  Array* array = checked_array(object, "read_into");
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  if (buffer.view.len != array->size * kItemSize[array->code]) {
    throw nb::value_error("read_into: the buffer has another size than the array");
  }
  if (!read_elements(array, static_cast<char*>(buffer.view.buf))) throw nb::python_error();
}

void apply_configuration() {
  WithoutGil released;
  Engine::get().configure(configuration.workers, configuration.serial,
                          configuration.queue_operations, configuration.queue_bytes,
                          configuration.ahead_bytes);
}

void configure(std::optional<int> workers, std::optional<bool> serial,
               std::optional<int64_t> queue_operations, std::optional<int64_t> queue_bytes,
               std::optional<int64_t> ahead_bytes) {
  if (workers) configuration.workers = *workers;
  if (serial) configuration.serial = *serial;
  if (queue_operations) configuration.queue_operations = *queue_operations;
  if (queue_bytes) configuration.queue_bytes = *queue_bytes;
  if (ahead_bytes) configuration.ahead_bytes = *ahead_bytes;
  apply_configuration();
}

int checked_device(int device) {
  if (Engine::device(device) == nullptr) throw nb::value_error("there is no such device");
  return device;
}

nb::object copy_to(nb::object array, int device) {
  return checked(copy_to_device(checked_array(array, "copy_to_device"), checked_device(device)));
}

void copy_between(nb::object source, nb::object target) {
  Array* from = checked_array(source, "copy_across");
  Array* to = checked_array(target, "copy_across");
  const bool fits = from->code == to->code && from->size == to->size && to->contiguous;
  if (!fits) throw nb::value_error("copy_across needs a contiguous target of the same spec");
  if (!copy_across(from, to)) throw nb::python_error();
}

using ResultTuple = std::tuple<int, std::vector<int64_t>>;

nb::object call_python(nb::object function, std::string name, nb::iterable inputs,
                       const std::vector<ResultTuple>& results, nb::iterable targets, int device) {
  Callback callback{function.ptr(), std::move(name), {}, {}, {}, checked_device(device)};
  for (nb::handle input : inputs) callback.inputs.push_back(checked_array(input, "call_python"));
  for (nb::handle target : targets)
    callback.targets.push_back(checked_array(target, "call_python"));
  for (const ResultTuple& result : results) {
    check_shape(std::get<1>(result), std::get<1>(result).size());
    callback.results.push_back({checked_code(std::get<0>(result)), std::get<1>(result)});
  }
  return checked(issue_callback(callback));
}

// Nothing is pending on a device that is not there.
void wait_device(int device) {
  if (Engine::device(device) == nullptr) return;
  if (!Engine::get().device_idle(device)) {
    TracedWait traced(trace::WaitKind::kDevice);
    WithoutGil released;
    Engine::get().wait_device(device, interrupted_by_signal);
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

nb::list unseen_failures() {
  nb::list texts;
  const Unseen unseen = Engine::get().take_unseen();
  for (const FailurePointer& failure : unseen.failures) {
    texts.append(failure->type + ": " + failure_text(*failure));
  }
  if (unseen.more > 0) texts.append("and " + std::to_string(unseen.more) + " more");
  return texts;
}

void wait_all() {
  FailurePointer failure;
  {
    std::optional<TracedWait> traced;
    if (Engine::get().counters().pending > 0) traced.emplace(trace::WaitKind::kAll);
    WithoutGil released;
    failure = Engine::get().wait_all(interrupted_by_signal);
  }
  if (PyErr_Occurred()) throw nb::python_error();
  if (failure == nullptr) return;
  raise_failure(failure);
  throw nb::python_error();
}

nb::dict counters() {
  Counters engine = Engine::get().counters();
  memory::Statistics pool = memory::statistics();
  nb::dict result;
  result["operations"] = engine.issued;
  result["inline"] = engine.inlined;
  result["queued"] = engine.queued;
  result["pending"] = engine.pending;
  result["tiles"] = engine.tiles;
  result["allocations"] = pool.allocations;
  result["bytes_in_use"] = pool.bytes_in_use;
  result["peak_bytes"] = pool.peak_bytes;
  result["bytes_cached"] = pool.bytes_cached;
  result["table_hits"] = table_counters.hits;
  result["table_misses"] = table_counters.misses;
  result["table_entries"] = elementwise_table().size() + general_table_size();
  return result;
}

void clear_tables() {
  elementwise_table().clear();
  clear_general_table();
}

void define_plan_parts(nb::module_& module) {
  nb::class_<Kernel>(module, "Kernel").def_prop_ro("address", [](const Kernel& kernel) {
    return reinterpret_cast<uintptr_t>(kernel.function);
  });
  nb::class_<PlanStep>(module, "Step")
      .def(nb::new_(&make_step), "kernel"_a, "buffers"_a, "integers"_a, "extent"_a, "chunk"_a,
           "scalars"_a = std::vector<PatchTuple>(), "failure"_a = nb::none());
  nb::class_<PlanBranch>(module, "Branch")
      .def(nb::new_(&make_branch), "predicate"_a, "then"_a, "otherwise"_a);
  nb::class_<ViewSpec>(module, "View")
      .def(nb::new_([](std::vector<int64_t> shape, std::vector<int64_t> strides, int64_t offset) {
             check_shape(shape, strides.size());
             return ViewSpec{std::move(shape), std::move(strides), offset};
           }),
           "shape"_a, "strides"_a, "offset"_a = 0);
  nb::class_<ElementwiseKernel>(module, "Elementwise")
      .def(nb::new_(&make_elementwise), "kernel"_a, "out_codes"_a,
           "nanoseconds_per_element"_a = 1.0, "failure"_a = nb::none(), "name"_a = "elementwise");
  module.def("load_object", &load_object, "code"_a);
}

void define_arrays(nb::module_& module) {
  module.def("empty", &make_empty, "shape"_a, "code"_a, "device"_a = 0);
  module.def("from_buffer", &from_buffer, "object"_a, "code"_a, "shape"_a, "device"_a = 0);
  module.def("to_bytes", &to_bytes, "array"_a);
  module.def("read_into", &read_into, "array"_a, "buffer"_a);
  module.def(
      "to_dlpack",
      [](nb::object array, bool versioned) {
        return checked(to_dlpack(checked_array(array, "to_dlpack"), versioned));
      },
      "array"_a, "versioned"_a);
  module.def(
      "from_dlpack", [](nb::object capsule) { return checked(from_dlpack(capsule.ptr())); },
      "capsule"_a);
  module.def("exports", export_count);
  module.def("copy_to_device", &copy_to, "array"_a, "device"_a);
  module.def("copy_across", &copy_between, "source"_a, "target"_a);
  module.def("simulate_gpu", [](int device, const std::string& name, double bytes_per_second,
                                double latency_seconds) {
    simulate_gpu(device, name, {bytes_per_second, latency_seconds});
  });
  module.def("call_python", &call_python, "function"_a, "name"_a, "inputs"_a, "results"_a,
             "targets"_a = nb::tuple(), "device"_a = 0);
  module.def("set_array_class",
             [](nb::object type) { return checked(set_array_class(type.ptr())); });
  module.def("set_dtypes", [](nb::object list) { set_dtypes(list.ptr()); });
  module.def("set_devices", [](nb::object list) { set_devices(list.ptr()); });
  module.def("set_exception_types", [](nb::dict types) { set_exception_types(types.ptr()); });
  module.def(
      "set_operator",
      [](const std::string& name, nb::object operation) {
        return checked(set_operator(name.c_str(), operation.ptr()));
      },
      "name"_a, "operation"_a.none());
  module.def("set_symbol_types", [](nb::tuple types) { checked(set_symbol_types(types.ptr())); });
}

void define_state(nb::module_& module) {
  module.def("recording", [] { return thread_flags.recording; });
  module.def("training", [] { return thread_flags.training; });
  module.def(
      "set_tracing", [](int depth) { thread_flags.tracing = depth; }, nb::arg("depth"),
      "Say how many traces are in progress on this thread.");
  module.def("forget_call_sites", forget_call_sites,
             "Make every call site ask its fallback again.");
  module.def("set_recording",
             [](bool value) { return std::exchange(thread_flags.recording, value); });
  module.def("set_training",
             [](bool value) { return std::exchange(thread_flags.training, value); });
  module.def("random_seed", [](int64_t seed) { random_stream = {seed, 0}; });
  module.def(
      "set_random_state", [](int64_t seed, int64_t number) { random_stream = {seed, number}; },
      nb::arg("seed"), nb::arg("number"),
      "Go on in another stream, from the call with that number.");
  module.def("random_reserve", [](int64_t count) {
    int64_t first = random_stream.next_call;
    random_stream.next_call += count;
    return std::make_tuple(random_stream.seed, first);
  });
  module.def("random_state",
             [] { return std::make_tuple(random_stream.seed, random_stream.next_call); });
}

void define_engine(nb::module_& module) {
  module.def("configure", &configure, nb::kw_only(), "workers"_a = nb::none(),
             "serial"_a = nb::none(), "queue_operations"_a = nb::none(),
             "queue_bytes"_a = nb::none(), "ahead_bytes"_a = nb::none());
  module.def("set_workers", [](int workers) {
    configuration.workers = workers;
    apply_configuration();
  });
  module.def("workers", [] { return Engine::get().workers(); });
  module.def("set_priority",
             [](int priority) { return std::exchange(thread_flags.priority, priority); });
  module.def("wait_all", &wait_all);
  module.def("wait_device", &wait_device, "device"_a);
  module.def("unseen_failures", &unseen_failures);
  module.def("set_share", [](int device, int threads) {
    Engine::get().set_share(checked_device(device), threads);
  });
  module.def("trace_start", &start_trace, "capacity"_a = 1'000'000);
  module.def("trace_stop", &stop_trace);
  module.def("tracing", &trace::active);
  module.def("trace_take", [] { return checked(take_trace()); });
  module.def("trace_thread", &trace::this_thread);
  module.def("drain_for_fork", [] {
    WithoutGil released;
    Engine::get().drain_for_fork();
  });
  module.def("reopen", [] { Engine::get().reopen(); });
  module.def("lane_link", [](int lane) { return Engine::get().lane(lane).link; });
  module.def("counters", &counters);
  module.def("clear_tables", &clear_tables);
  module.def("reset_peak", [] { memory::reset_peak(); });
  module.def("trim_memory", [] { memory::trim(); });
}

}  // namespace

std::shared_ptr<PlanProgram> program_from(PyObject* arguments, PyObject* keywords) {
  try {
    static nb::object* factory = new nb::object(nb::cpp_function(
        [](std::string name, nb::iterable inputs, nb::iterable outputs, nb::iterable steps,
           int64_t workspace, nb::iterable constants, int scalars, int random,
           const std::vector<int>& writes, double microseconds, const std::vector<SiteTuple>& sites,
           const std::vector<int>& overwrites, const std::vector<int>& accumulates) {
          try {
            auto program =
                make_program(std::move(name), inputs, outputs, steps, workspace, constants, scalars,
                             random, writes, microseconds, sites, overwrites, accumulates);
            return in_capsule(std::move(program));
          } catch (const std::bad_cast&) {
            throw nb::type_error("Plan: an argument is not of the form the stub file describes");
          }
        },
        "name"_a, "inputs"_a, "outputs"_a, "steps"_a, "workspace"_a = 0,
        "constants"_a = nb::tuple(), "scalars"_a = 0, "random"_a = 0,
        "writes"_a = std::vector<int>(), "microseconds"_a = 1.0,
        "sites"_a = std::vector<SiteTuple>(), "overwrites"_a = std::vector<int>(),
        "accumulates"_a = std::vector<int>()));
    nb::object made = checked(PyObject_Call(factory->ptr(), arguments, keywords));
    return *static_cast<std::shared_ptr<PlanProgram>*>(nb::cast<nb::capsule>(made).data());
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return nullptr;
}

ElementwisePointer elementwise_from(PyObject* object) {
  if (nb::isinstance<ElementwiseKernel>(object)) {
    return std::make_shared<const ElementwiseKernel>(
        nb::cast<const ElementwiseKernel&>(nb::handle(object)));
  }
  PyErr_SetString(PyExc_TypeError, "_kernel must return an Elementwise");
  return nullptr;
}

const ViewSpec* view_from(PyObject* object) {
  if (!nb::isinstance<ViewSpec>(object)) return nullptr;
  return nb::inst_ptr<ViewSpec>(nb::handle(object));
}

}  // namespace gemel

NB_MODULE(_core, module) {
  using namespace gemel;
  // Kernels and views may outlive the module: Python keeps types alive until after it is gone.
  nb::set_leak_warnings(false);
  if (!make_array_type(module.ptr()) || !make_op_type(module.ptr()) ||
      !make_plan_type(module.ptr()) || !make_call_site_type(module.ptr()) ||
      !install_exit_hooks(module.ptr())) {
    throw nb::python_error();
  }
  install_fork_hooks();
  define_plan_parts(module);
  define_arrays(module);
  define_state(module);
  define_engine(module);
}
