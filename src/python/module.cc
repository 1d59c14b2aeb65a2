// The module gemel._core. Only this file and module_machine.cc include nanobind. Types used often
// (arrays, operations, plans) are raw CPython types elsewhere; here are the others, and the
// functions.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <stdexcept>

#include "memory/memory.h"
#include "python/array.h"
#include "python/call_site.h"
#include "python/callback.h"
#include "python/dlpack.h"
#include "python/errands.h"
#include "python/flags.h"
#include "python/history.h"
#include "python/module_machine.h"
#include "python/op_type.h"
#include "python/origins.h"
#include "python/plan_type.h"
#include "python/process.h"
#include "python/steps.h"
#include "python/tape.h"
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

using FailureTuple = std::optional<std::tuple<std::string, std::string>>;

// Turns Python errors set by the raw types into C++ exceptions for nanobind.
nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}
nb::object checked(Reference object) { return checked(object.take()); }

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

int checked_code(int code) {
  if (code < 0 || code >= kDTypeCount) throw nb::value_error("unknown dtype code");
  return code;
}

ElementwiseKernel make_elementwise(const Kernel& kernel, const std::vector<int>& codes,
                                   double nanoseconds, const FailureTuple& failure,
                                   std::string name, const std::vector<int>& limits) {
  if (codes.empty() || codes.size() > kMaxOutCodes) {
    throw nb::value_error("an elementwise kernel has one to four results");
  }
  if (limits.size() > kMaxOperands) throw nb::value_error("more limits than operands");
  ElementwiseKernel elementwise{kernel, {}, nanoseconds, {}, std::move(name), {}};
  if (failure) elementwise.failure = {std::get<0>(*failure), std::get<1>(*failure)};
  for (int code : codes) elementwise.out_codes.push_back(static_cast<uint8_t>(checked_code(code)));
  for (int code : limits) {
    if (code != kAnyNumber) checked_code(code % kNatural);
    elementwise.limits.push_back(static_cast<uint8_t>(code));
  }
  return elementwise;
}

void check_shape(const std::vector<int64_t>& shape) {
  for (int64_t extent : shape) {
    if (extent < 0) throw nb::value_error("an extent is negative");
  }
}

nb::object make_empty(const std::vector<int64_t>& shape, int code, int device) {
  check_shape(shape);
  Reference array = new_array(checked_code(code), shape.data(), static_cast<int>(shape.size()),
                              checked_device(device));
  tensor_of(array).materialize();
  return checked(std::move(array));
}

nb::object from_buffer(nb::object object, int code, const std::vector<int64_t>& shape, int device) {
  Buffer source(object, PyBUF_C_CONTIGUOUS);
  const int host = Engine::on_host(checked_device(device)) ? device : 0;
  nb::object result = make_empty(shape, code, host);
  const Tensor& tensor = tensor_of(result.ptr());
  const int64_t bytes = tensor.bytes();
  if (source.view.len != bytes) {
    std::string text = "the buffer has " + std::to_string(source.view.len) + " bytes, the array " +
                       std::to_string(bytes);
    throw nb::value_error(text.c_str());
  }
  if (bytes > 0) std::memcpy(tensor.data(), source.view.buf, static_cast<size_t>(bytes));
  return host == device ? result : checked(copy_to_device(result.ptr(), device));
}

nb::object to_bytes(nb::object array) {
  const Tensor& tensor = checked_tensor(array.ptr(), "to_bytes");
  nb::object bytes = checked(PyBytes_FromStringAndSize(nullptr, tensor.bytes()));
  read_elements(array.ptr(), PyBytes_AS_STRING(bytes.ptr()));
  return bytes;
}

void read_into(nb::object array, nb::object target) {
  const Tensor& tensor = checked_tensor(array.ptr(), "read_into");
  Buffer buffer(target, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE);
  if (buffer.view.len != tensor.bytes()) {
    throw nb::value_error("read_into: the buffer has another size than the array");
  }
  read_elements(array.ptr(), static_cast<char*>(buffer.view.buf));
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

nb::object copy_to(nb::object array, int device) {
  checked_tensor(array.ptr(), "copy_to_device");
  return checked(copy_to_device(array.ptr(), checked_device(device)));
}

void copy_between(nb::object source, nb::object target) {
  const Tensor& from = checked_tensor(source.ptr(), "copy_across");
  const Tensor& to = checked_tensor(target.ptr(), "copy_across");
  const bool fits = from.dtype == to.dtype && from.size == to.size && to.contiguous;
  if (!fits) throw nb::value_error("copy_across needs a contiguous target of the same spec");
  copy_across(source.ptr(), to);
}

nb::object call_python(nb::object function, std::string name, nb::iterable inputs,
                       nb::object described, nb::iterable targets, int device) {
  const std::vector<ResultSpec> results = result_specs_from(described.ptr());
  Callback callback{function.ptr(), std::move(name), {}, {}, &results, checked_device(device)};
  for (nb::handle input : inputs) {
    checked_tensor(input.ptr(), "call_python");
    callback.inputs.push_back(input.ptr());
  }
  for (nb::handle target : targets) {
    checked_tensor(target.ptr(), "call_python");
    callback.targets.push_back(target.ptr());
  }
  return checked(issue_callback(callback));
}

// Nothing is pending on a device that does not exist.
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

// Called without the GIL.
std::string described(const Failure& failure) {
  GilHeld held;
  return failure_text(failure);
}

void wait_all() {
  FailurePointer failure;
  {
    std::optional<TracedWait> traced;
    if (Engine::get().counters().pending > 0) traced.emplace(trace::WaitKind::kAll);
    WithoutGil released;
    failure = Engine::get().wait_all(interrupted_by_signal, described);
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
  result["table_hits"] = cache_counters.hits;
  result["table_misses"] = cache_counters.misses;
  result["table_entries"] = prepared_calls();
  result["code_objects"] = kept_code();
  return result;
}

void define_plan_parts(nb::module_& module) {
  nb::class_<Kernel>(module, "Kernel").def_prop_ro("address", [](const Kernel& kernel) {
    return reinterpret_cast<uintptr_t>(kernel.function);
  });
  nb::class_<KeeperOwner>(module, "Keeper").def(nb::init<>());
  nb::class_<SortedRows>(module, "SortedRows")
      .def(nb::init<int64_t, int64_t, int64_t, bool, bool, int64_t>(), "before"_a, "length"_a,
           "after"_a, "descending"_a = false, "positions"_a = false, "first"_a = -1);
  nb::class_<ElementwiseKernel>(module, "Elementwise")
      .def(nb::new_(&make_elementwise), "kernel"_a, "out_codes"_a,
           "nanoseconds_per_element"_a = 1.0, "failure"_a = nb::none(), "name"_a = "elementwise",
           "limits"_a = std::vector<int>());
  module.def("load_object", &load_object, "code"_a);
  nb::class_<Meeting>(module, "Meeting")
      .def(nb::new_(&Meeting::make), "parties"_a, "name"_a)
      .def(
          "join",
          [](Meeting& meeting, int rank, int parties, nb::object array) {
            return checked(join_meeting(meeting, rank, parties, array.ptr()));
          },
          "rank"_a, "parties"_a, "array"_a)
      .def_prop_ro("open", &Meeting::open);
  nb::class_<Errand>(module, "Errand")
      .def_ro("number", &Errand::number)
      .def_prop_ro("inputs", [](Errand& e) { return checked(memories(e.inputs, false)); })
      .def_prop_ro("outputs", [](Errand& e) { return checked(memories(e.outputs, true)); })
      .def_prop_ro("failure", [](Errand& e) { return checked(failure_of(e)); })
      .def("end", &end_errand, "failure"_a = nb::none());
  nb::class_<Desk>(module, "Desk")
      .def(nb::new_([] { return Desk::make(); }))
      .def(
          "issue",
          [](Desk& desk, uint64_t number, const std::string& name, nb::object inputs,
             nb::object results, int device) {
            return checked(issue_errand(desk, number, name, inputs.ptr(), results.ptr(), device));
          },
          "number"_a, "name"_a, "inputs"_a, "results"_a, "device"_a = 0)
      .def("take", &take_errand, "seconds"_a)
      .def("close", &close_desk, "type"_a, "message"_a);
  nb::class_<Courier>(module, "Courier")
      .def(nb::init<int, const std::vector<int>&>())
      .def("number", &Courier::number)
      .def_prop_ro("desk", &Courier::desk)
      .def_prop_ro("state", &state_of)
      .def("close", &close_courier);
}

void define_arrays(nb::module_& module) {
  module.def("empty", &make_empty, "shape"_a, "code"_a, "device"_a = 0);
  module.def("from_buffer", &from_buffer, "object"_a, "code"_a, "shape"_a, "device"_a = 0);
  module.def("to_bytes", &to_bytes, "array"_a);
  module.def("read_into", &read_into, "array"_a, "buffer"_a);
  module.def(
      "to_dlpack",
      [](nb::object array, bool versioned, bool copied) {
        return checked(to_dlpack(array.ptr(), versioned, copied));
      },
      "array"_a, "versioned"_a, "copied"_a = false);
  module.def(
      "from_dlpack",
      [](nb::object capsule, int device, std::optional<bool> copy) {
        return checked(from_dlpack(capsule.ptr(), checked_device(device), copy));
      },
      "capsule"_a, "device"_a = 0, "copy"_a = nb::none());
  module.def("exports", &Storage::all_exports);
  module.def("copy_to_device", &copy_to, "array"_a, "device"_a);
  module.def("copy_across", &copy_between, "source"_a, "target"_a);
  module.def("call_python", &call_python, "function"_a, "name"_a, "inputs"_a, "results"_a,
             "targets"_a = nb::tuple(), "device"_a = 0);
  module.def("set_array_class",
             [](nb::object type) { return checked(set_array_class(type.ptr())); });
  module.def("set_call_class", [](nb::object type) { return checked(set_call_class(type.ptr())); });
  module.def("set_source_of", [](nb::object function) { set_source_function(function.ptr()); });
  module.def("set_dtypes", [](nb::object list) { set_dtypes(list.ptr()); });
  module.def("set_devices", [](nb::object list) { set_devices(list.ptr()); });
  module.def("set_exception_types", [](nb::dict types) { set_exception_types(types.ptr()); });
  module.def("set_file_namer", [](nb::callable function) { set_file_namer(function.ptr()); });
  module.def("program_line", [] { return shown_line(current_origin()); });
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
      "set_tracing",
      [](int depth, bool captures) {
        thread_flags.tracing = depth;
        capturing_threads += static_cast<int>(captures) - static_cast<int>(thread_flags.capturing);
        thread_flags.capturing = captures;
      },
      "depth"_a, "captures"_a);
  module.def("capturing", capturing);
  module.def("forget_call_sites", forget_call_sites);
  module.def("set_recording",
             [](bool value) { return std::exchange(thread_flags.recording, value); });
  module.def("set_training",
             [](bool value) { return std::exchange(thread_flags.training, value); });
  module.def("set_device", [](int code) { thread_flags.device = checked_device(code); });
  module.def("set_mixing", [](int value) { return std::exchange(thread_flags.mixing, value); });
  module.def("set_default_mixing", [](int value) { default_mixing = value; });
  module.def("random_seed", [](int64_t seed) { random_stream = {seed, 0}; });
  module.def(
      "set_random_state", [](int64_t seed, int64_t number) { random_stream = {seed, number}; },
      "seed"_a, "number"_a, "Go on in another stream, from the call with that number.");
  module.def("random_reserve", [](int64_t count) {
    const int64_t first = std::exchange(random_stream.next_call, random_stream.next_call + count);
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
  module.def("trace_settle", [] { return checked(settle_trace()); });
  module.def("tracing", &trace::active);
  module.def("trace_take", [] { return checked(take_trace()); });
  module.def("trace_thread", &trace::this_thread);
  module.def("drain_for_fork", [] {
    call_off_meetings();
    // Closed with the GIL held: no thread is between finding room and issuing with the GIL.
    Engine::get().close_for_fork();
    WithoutGil released;
    Engine::get().drain_for_fork();
  });
  module.def("reopen", [] { Engine::get().reopen(); });
  module.def("lane_link", [](int lane) { return Engine::get().lane(lane).link; });
  module.def("counters", &counters);
  module.def("clear_tables", &clear_prepared_calls);
  module.def("reset_peak", [] { memory::reset_peak(); });
  module.def("trim_memory", [] { memory::trim(); });
}

}  // namespace

int checked_device(long device) {
  const bool small = device >= 0 && device <= INT_MAX;
  if (small && Engine::device(static_cast<int>(device)) != nullptr) {
    return static_cast<int>(device);
  }
  if (PyErr_Occurred()) throw PythonError{};
  throw Error("ValueError", "there is no device " + std::to_string(device));
}

ElementwisePointer elementwise_from(PyObject* object) {
  if (!nb::isinstance<ElementwiseKernel>(object)) {
    throw Error("TypeError", "_kernel must return an Elementwise");
  }
  return std::make_shared<const ElementwiseKernel>(
      nb::cast<const ElementwiseKernel&>(nb::handle(object)));
}

const SortedRows* sorted_rows_from(PyObject* object) {
  return nb::isinstance<SortedRows>(object) ? nb::cast<SortedRows*>(nb::handle(object)) : nullptr;
}

std::vector<ResultSpec> result_specs_from(PyObject* described) {
  using Described = std::vector<std::tuple<int, std::vector<int64_t>>>;
  std::vector<ResultSpec> results;
  for (const auto& [code, shape] : nb::cast<Described>(nb::handle(described))) {
    check_shape(shape);
    results.push_back({checked_code(code), shape});
  }
  return results;
}

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

}  // namespace gemel

// The core has one state for the whole process, so it serves one interpreter, once.
extern "C" NB_EXPORT PyObject* PyInit__core();
NB_MODULE(_core_parts, module) {
  using namespace gemel;
  static bool imported = false;
  if (std::exchange(imported, true)) {
    throw std::runtime_error("gemel was imported before: keep it in sys.modules, or start afresh");
  }
  // Kernels and views may outlive the module: Python keeps their types alive for longer.
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const PythonError&) {
    } catch (const Error&) {
      set_error_in_flight();
    }
  });
  if (!make_array_type(module.ptr()) || !make_history_type(module.ptr()) ||
      !make_tape_types(module.ptr()) || !add_step_functions(module.ptr()) ||
      !make_op_type(module.ptr()) || !make_plan_type(module.ptr()) ||
      !make_call_site_type(module.ptr()) || !install_exit_hooks()) {
    throw nb::python_error();
  }
  install_fork_hooks();
  define_plan_parts(module);
  define_arrays(module);
  define_state(module);
  define_engine(module);
  define_machine(module);
}

PyObject* PyInit__core() {
  // For a subinterpreter, Python 3.13 calls this in the main one first, then refuses by itself.
  if (PyInterpreterState_Get() == PyInterpreterState_Main()) return PyInit__core_parts();
  PyErr_SetString(PyExc_ImportError, "gemel serves the main interpreter only; use threads");
  return nullptr;
}
