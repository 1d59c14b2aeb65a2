#include "python/call_site.h"

#include <structmember.h>

#include <algorithm>
#include <functional>
#include <new>
#include <vector>

#include "python/flags.h"
#include "python/history.h"
#include "python/plan_call.h"
#include "python/plan_type.h"

namespace gemel {
namespace {

// What a plan depends on besides the sizes of the arrays. All of it is part of a call's key.
struct Mode {
  bool training;
  int mixing;
  PyTypeObject* kind;  // the class of the first array, or null; the results get the same class
  size_t numbers;

  Mode(bool is_training, PyObject* const* arrays, size_t count, size_t number_count)
      : training(is_training),
        mixing(gemel::mixing()),
        kind(count > 0 ? Py_TYPE(arrays[0]) : nullptr),
        numbers(number_count) {}

  bool operator==(const Mode&) const = default;
  bool has_word() const { return mixing < 1 << 14 && numbers < 1 << 16; }
  uint64_t word() const {
    const bool usual = kind == nullptr || kind == array_class;
    return static_cast<uint64_t>(mixing) << 18 | numbers << 2 | uint64_t{!usual} << 1 | training;
  }
};

// A plan, and the arrays that follow the arguments. The arguments are arrays first, then numbers.
// The entry serves all sizes that the plan fits, and all values of the numbers.
struct Known {
  Mode mode;
  Reference kind;  // keeps the class in `mode` alive
  bool apart;  // only for arguments that are separate variables, because gradients depend on that
  size_t arguments;
  ProgramPointer program;
  Reference parameters;  // a tuple of the arrays that follow the arguments
  Reference form;  // None: the result is one array; otherwise called with a tuple of the arrays
};

constexpr size_t kMostKnown = 64;
constexpr size_t kInsideValues = 32;

struct SiteObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* fallback;
  std::vector<Known> known;  // newest first
  uint32_t owner;            // changes when the known plans may no longer be valid
};

SiteObject* as_site(PyObject* object) { return reinterpret_cast<SiteObject*>(object); }

// All existing sites. Guarded by the GIL.
std::vector<SiteObject*>& sites() {
  static auto* all = new std::vector<SiteObject*>;
  return *all;
}

// Moves the known plans to `dropped`. The caller destroys them, since that may run any code.
void forget(SiteObject* site, std::vector<Known>& dropped) {
  std::ranges::move(site->known, std::back_inserter(dropped));
  site->known.clear();
  site->owner = new_owner();
}

// The arguments, followed by the parameters.
struct Values {
  SmallArray<PyObject*, kInsideValues> all;
  Reference parameters;  // held during the call, since another thread may replace them

  Values(PyObject* const* arguments, size_t count, const Known& known)
      : all(count + static_cast<size_t>(PyTuple_GET_SIZE(known.parameters.get()))),
        parameters(borrowed(known.parameters.get())) {
    std::copy_n(arguments, count, all.data());
    const auto extra = static_cast<size_t>(PyTuple_GET_SIZE(parameters.get()));
    if (extra > 0) std::copy_n(&PyTuple_GET_ITEM(parameters.get(), 0), extra, all.data() + count);
  }
};

// The function's result, made from the arrays that its plan returns. Takes over `found`.
PyObject* formed(PyObject* form, PyObject* found) {
  if (form == Py_None) return found;
  Reference arrays = owned(PyTuple_CheckExact(found) ? found : packed(&found, 1));
  if (form == reinterpret_cast<PyObject*>(&PyTuple_Type)) return arrays.take();
  Reference kept = borrowed(form);
  return into_python([&] { return PyObject_CallOneArg(kept.get(), arrays.get()); });
}

bool on_one_device(PyObject* const* values, size_t count) {
  return std::all_of(values, values + count, [&](PyObject* value) {
    return tensor_of(value).device() == tensor_of(values[0]).device();
  });
}

// Whether the arguments that the program overwrites are dense and share memory with no other input.
// This looks at the arguments as they were given, because a dense copy of a view shares no memory.
bool writes_apart(const Program& program, PyObject* const* given, size_t count, Values& values) {
  for (size_t i = 0; i < count; ++i) {
    if (!program.inputs[i].written) continue;
    const Tensor& target = tensor_of(given[i]);
    if (!target.contiguous) return false;
    for (size_t j = 0; j < program.inputs.size(); ++j) {
      const Tensor& other = tensor_of(j < count ? given[j] : values.all[j]);
      if (j != i && other.storage == target.storage) return false;
    }
  }
  return true;
}

// Whether the arguments share no memory with each other or with the parameters, and none was
// computed while recording.
bool are_apart(PyObject* const* given, size_t count, PyObject* parameters) {
  SmallArray<const Storage*, kInsideValues> storages(count);
  for (size_t i = 0; i < count; ++i) {
    if (is_computed(given[i])) return false;
    storages[i] = tensor_of(given[i]).storage;
  }
  const Storage** end = storages.data() + count;
  std::sort(storages.data(), end, std::less<>());
  if (std::adjacent_find(storages.data(), end) != end) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parameters); ++i) {
    const Storage* own = tensor_of(PyTuple_GET_ITEM(parameters, i)).storage;
    if (std::binary_search(storages.data(), end, own, std::less<>())) return false;
  }
  return true;
}

// Compiled functions take dense arrays, so this copies the others.
void make_dense(PyObject** values, size_t count, std::vector<Reference>& copies) {
  for (size_t i = 0; i < count; ++i) {
    if (tensor_of(values[i]).contiguous) continue;
    copies.push_back(copy_of(values[i]));
    values[i] = copies.back().get();
  }
}

bool is_number(PyObject* value) { return PyFloat_CheckExact(value); }

// Null when no known plan serves these arguments.
PyObject* run_known(SiteObject* site, const Mode& mode, PyObject* const* given, size_t count) {
  SmallArray<PyObject*, kInsideValues> values(count);
  std::vector<Reference> copies;
  std::copy_n(given, count, values.data());
  make_dense(values.data(), count, copies);
  CallKey key(static_cast<uint64_t>(site->owner) << 32 | mode.word(), true);
  for (size_t i = 0; i < count; ++i) key.add(tensor_of(values[i]));
  const BindingPointer* found = bindings().find(key);
  for (const Known& known : site->known) {
    const bool same = found == nullptr || (*found)->program == known.program;
    if (!same || known.arguments != count || known.mode != mode) continue;
    if (known.apart && !are_apart(given, count, known.parameters.get())) continue;
    Values all(values.data(), count, known);
    const size_t total = known.program->inputs.size();
    if (known.program->writes_inputs && !writes_apart(*known.program, given, count, all)) continue;
    PlanCall call(all.all.data(), total, given + count);
    Mismatch mismatch;
    const BindingPointer binding = found != nullptr ? *found : call.bind(known.program, &mismatch);
    if (binding == nullptr || !on_one_device(all.all.data(), total)) continue;
    if (found == nullptr) bindings().insert(key, binding);
    Reference form = borrowed(known.form.get());
    return formed(form.get(), call.run(binding));
  }
  return nullptr;
}

PyObject* call_site(PyObject* self, PyObject* const* values, size_t flags, PyObject* names) {
  Reference keep = borrowed(self);
  SiteObject* site = as_site(self);
  PyObject* const* end = values + PyVectorcall_NARGS(flags);
  PyObject* const* numbers = std::find_if_not(values, end, is_array);
  const ThreadFlags& flags_now = thread_flags;
  const bool plain = !flags_now.recording && flags_now.tracing == 0 && names == nullptr &&
                     !site->known.empty() && std::all_of(numbers, end, is_number);
  if (plain) {
    const auto count = static_cast<size_t>(numbers - values);
    const Mode mode(flags_now.training, values, count, static_cast<size_t>(end - numbers));
    PyObject* result = mode.has_word() ? run_known(site, mode, values, count) : nullptr;
    if (result != nullptr) return result;
  }
  Reference fallback = borrowed(site->fallback);
  return into_python([&] { return PyObject_Vectorcall(fallback.get(), values, flags, names); });
}

// add(generation, training, apart, arguments, numbers, plan, parameters, form)
PyObject* add(PyObject* self, PyObject* arguments) {
  unsigned generation, numbers;
  int training, apart;
  PyObject *arrays, *plan, *parameters, *form;
  if (!PyArg_ParseTuple(arguments, "IppO!IOO!O", &generation, &training, &apart, &PyTuple_Type,
                        &arrays, &numbers, &plan, &PyTuple_Type, &parameters, &form)) {
    return nullptr;
  }
  // If it has changed, another thread has replaced parameters since these were looked up.
  if (generation != as_site(self)->owner) Py_RETURN_NONE;
  for (PyObject* tuple : {arrays, parameters}) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
      checked_tensor(PyTuple_GET_ITEM(tuple, i), "CallSite.add");
    }
  }
  const auto count = static_cast<size_t>(PyTuple_GET_SIZE(arrays));
  PyObject* const* first = count > 0 ? &PyTuple_GET_ITEM(arrays, 0) : nullptr;
  const Mode mode(training != 0, first, count, numbers);
  PyObject* kind = mode.kind == nullptr ? Py_None : reinterpret_cast<PyObject*>(mode.kind);
  Known known{mode,          borrowed(kind),   apart != 0,
              count,         program_of(plan), borrowed(parameters),
              borrowed(form)};
  if (known.program->inputs.size() != known.arguments + PyTuple_GET_SIZE(parameters) ||
      static_cast<size_t>(known.program->scalars) != numbers) {
    throw Error("ValueError", "CallSite.add: the plan takes another number of arguments");
  }
  std::vector<Known>& all = as_site(self)->known;
  all.insert(all.begin(), std::move(known));
  if (all.size() <= kMostKnown) Py_RETURN_NONE;
  Known oldest = std::move(all.back());  // destroyed after it has been removed from the list
  all.pop_back();
  as_site(self)->owner = new_owner();
  Py_RETURN_NONE;
}

PyObject* clear(PyObject* self, PyObject*) {
  std::vector<Known> dropped;
  forget(as_site(self), dropped);
  Py_RETURN_NONE;
}

PyObject* new_site(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject* fallback;
  if (!PyArg_ParseTuple(arguments, "O", &fallback)) return nullptr;
  Reference self = owned(type->tp_alloc(type, 0));
  SiteObject* site = as_site(self.get());
  site->vectorcall = reinterpret_cast<vectorcallfunc>(slot<call_site>());
  site->fallback = Py_NewRef(fallback);
  new (&site->known) std::vector<Known>();
  site->owner = new_owner();
  sites().push_back(site);
  return self.take();
}

// The fallback is a bound method of the object that owns the site, so there is a cycle.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_site(self)->fallback);
  return 0;
}

int break_cycle(PyObject* self) {
  Py_CLEAR(as_site(self)->fallback);
  return 0;
}

void free_site(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  std::erase(sites(), as_site(self));
  as_site(self)->known.~vector();
  Py_CLEAR(as_site(self)->fallback);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {{"add", method<add>(), METH_VARARGS,
                          "add(generation, training, apart, arguments, numbers, plan, parameters, "
                          "form): run the plan for arrays it fits, the first of this class, so "
                          "many floats after them, and the parameters, in this thread's mixed "
                          "precision, unless the generation is over; if apart, only for arguments "
                          "that share no memory and were not recorded. Its only array is the "
                          "result where form is None; else form(arrays) is, which tuple needs no "
                          "call for."},
                         {"clear", method<clear>(), METH_NOARGS, "Forget every plan."},
                         {nullptr, nullptr, 0, nullptr}};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(SiteObject, vectorcall), READONLY, nullptr},
    {"generation", T_UINT, offsetof(SiteObject, owner), READONLY,
     "Another one whenever what is known may no longer hold."},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_new, slot<new_site>()},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(free_site)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(break_cycle)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_doc, const_cast<char*>("CallSite(fallback): calls a plan that fits its arguments, or "
                                  "else the fallback.")},
    {0, nullptr}};

PyType_Spec spec = {"gemel._core.CallSite", sizeof(SiteObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC, slots};

}  // namespace

void forget_call_sites() {
  std::vector<Known> dropped;
  for (SiteObject* site : sites()) forget(site, dropped);
}

bool make_call_site_type(PyObject* module) {
  PyObject* type = PyType_FromSpec(&spec);
  return type != nullptr && PyModule_AddObject(module, "CallSite", type) == 0;
}

}  // namespace gemel
