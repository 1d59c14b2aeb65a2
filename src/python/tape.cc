#include "python/tape.h"

#include <structmember.h>

#include <memory>

namespace gemel {

PyTypeObject* saved_type = nullptr;
PyTypeObject* call_type = nullptr;

namespace {

constexpr size_t kMostRecorded = 8192;

PyTypeObject* call_class = nullptr;   // a class derived from Call in Python
PyObject* source_function = nullptr;  // from an array to where its contents come from

// --- what is kept ---

Reference detached_from(const Tensor& tensor) {
  Reference result = blank_array();
  tensor_of(result).view(tensor.storage, tensor.dtype, tensor.extents(), tensor.strides(),
                         tensor.ndim, tensor.offset);
  return result;
}

void unlink(Saved* saved) {
  if (saved->history == nullptr) return;
  if (saved->previous != nullptr) {
    saved->previous->next = saved->next;
  } else {
    saved->history->saved = saved->next;
  }
  if (saved->next != nullptr) saved->next->previous = saved->previous;
  saved->history = nullptr;
  saved->next = saved->previous = nullptr;
}

Reference save(PyObject* array) {
  Saved* saved = PyObject_New(Saved, saved_type);
  if (saved == nullptr) throw PythonError{};
  saved->array = nullptr;
  saved->history = nullptr;
  saved->next = saved->previous = nullptr;
  saved->version = tensor_of(array).storage->version();
  Reference made(reinterpret_cast<PyObject*>(saved));
  saved->array = detached_from(tensor_of(array)).take();
  History* history = history_of(array);
  saved->history = history;
  saved->next = history->saved;
  if (saved->next != nullptr) saved->next->previous = saved;
  history->saved = saved;
  return made;
}

void free_saved(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  unlink(as_saved(self));
  Py_CLEAR(as_saved(self)->array);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef saved_members[] = {
    {"array", T_OBJECT, offsetof(Saved, array), 0, "The array, without history."},
    {"version", T_ULONGLONG, offsetof(Saved, version), 0, "The version it had."},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot saved_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(free_saved)},
    {Py_tp_members, saved_members},
    {Py_tp_doc, const_cast<char*>("An array that will be read again, and its version.")},
    {0, nullptr}};

// --- calls ---

int init_call(PyObject* self, PyObject* arguments, PyObject*) {
  PyObject *kind, *sources;
  if (!PyArg_ParseTuple(arguments, "OO!", &kind, &PyTuple_Type, &sources)) return -1;
  Py_XSETREF(as_call(self)->kind, Py_NewRef(kind));
  Py_XSETREF(as_call(self)->sources, Py_NewRef(sources));
  Py_XSETREF(as_call(self)->reads, PyTuple_New(0));
  Py_XSETREF(as_call(self)->values, PyTuple_New(0));
  return 0;
}

int traverse_call(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_call(self)->kind);
  Py_VISIT(as_call(self)->sources);
  Py_VISIT(as_call(self)->values);
  Py_VISIT(as_call(self)->variables);
  return 0;
}

int clear_call(PyObject* self) {
  Py_CLEAR(as_call(self)->kind);
  Py_CLEAR(as_call(self)->sources);
  Py_CLEAR(as_call(self)->reads);
  Py_CLEAR(as_call(self)->values);
  Py_CLEAR(as_call(self)->variables);
  return 0;
}

void free_call(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_TRASHCAN_BEGIN(self, free_call);
  clear_call(self);
  type->tp_free(self);
  Py_DECREF(type);
  Py_TRASHCAN_END;
}

PyMemberDef call_members[] = {
    {"kind", T_OBJECT, offsetof(Call, kind), READONLY, "What it has in common with others."},
    {"sources", T_OBJECT, offsetof(Call, sources), 0, "Per input, where it came from."},
    {"reads", T_OBJECT, offsetof(Call, reads), 0, "Which inputs and outputs are kept."},
    {"values", T_OBJECT, offsetof(Call, values), 0, "What is kept: a Saved, or a number."},
    {"variables", T_OBJECT, offsetof(Call, variables), 0, "Outputs whose gradients are wanted."},
    {"freed", T_BOOL, offsetof(Call, freed), 0, "Whether what it kept has been given back."},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot call_slots[] = {{Py_tp_init, slot<init_call>()},
                            {Py_tp_dealloc, reinterpret_cast<void*>(free_call)},
                            {Py_tp_traverse, reinterpret_cast<void*>(traverse_call)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_call)},
                            {Py_tp_members, call_members},
                            {Py_tp_doc, const_cast<char*>("A recorded call.")},
                            {0, nullptr}};

// --- recording a call like one before ---

struct Recorded {
  Reference kind;
  Reference reads;
  std::vector<int> places;  // of each kept value: the number of an input, or -1 for the output
  bool floating;            // whether the output's dtype is floating
};
using RecordedPointer = std::shared_ptr<const Recorded>;

Cache<RecordedPointer>& recorded() {
  static auto* cache = new Cache<RecordedPointer>(kMostRecorded);
  return *cache;
}

// Where the contents of a tracked array come from. For views, and for variables that have been
// written to, Python has to say.
Reference source_of(PyObject* array) {
  const History* history = as_array(array)->history;
  const bool written = history->variable != nullptr && history->variable != history->source;
  if (!written && history->base.same_layout(tensor_of(array))) return borrowed(history->source);
  return owned(into_python([&] { return PyObject_CallOneArg(source_function, array); }));
}

// Whether a source belongs to a step whose tape has been freed. Later steps treat it as a constant.
bool is_over(PyObject* source) {
  if (!PyTuple_Check(source)) return false;
  PyObject* call = PyTuple_GET_ITEM(source, 0);
  return PyObject_TypeCheck(call, call_class) && as_call(call)->freed;
}

Reference sources_of(const Arguments& arguments, uint64_t wanted) {
  Reference sources = owned(PyTuple_New(arguments.count));
  for (Py_ssize_t i = 0; i < arguments.count; ++i) {
    const bool tracked = (wanted >> i & 1) != 0;
    Reference source = tracked ? source_of(arguments.values[i]) : borrowed(Py_None);
    if (is_over(source.get())) source = borrowed(Py_None);
    PyTuple_SET_ITEM(sources.get(), i, source.take());
  }
  return sources;
}

Reference kept_values(const Recorded& like, const Arguments& arguments, PyObject* result) {
  Reference values = owned(PyTuple_New(static_cast<Py_ssize_t>(like.places.size())));
  for (size_t i = 0; i < like.places.size(); ++i) {
    PyObject* value = like.places[i] < 0 ? result : arguments.values[like.places[i]];
    Reference kept = is_array(value) ? save(value) : borrowed(value);
    PyTuple_SET_ITEM(values.get(), static_cast<Py_ssize_t>(i), kept.take());
  }
  return values;
}

}  // namespace

bool record_like_before(Words key, const Arguments& arguments, uint64_t wanted, PyObject* result) {
  const RecordedPointer* found = recorded().find(key);
  if (found == nullptr) return false;
  const RecordedPointer like = *found;
  Reference sources = sources_of(arguments, wanted);
  Reference made = owned(call_class->tp_alloc(call_class, 0));
  Call* call = as_call(made.get());
  call->kind = Py_NewRef(like->kind.get());
  call->reads = Py_NewRef(like->reads.get());
  call->sources = sources.take();
  if (like->floating) {
    Reference index = owned(PyLong_FromLong(0));
    Reference source = owned(PyTuple_Pack(2, made.get(), index.get()));
    owned(track(result, source.get()));
  }
  // After tracking, so that what is kept of the result is watched by its history.
  call->values = kept_values(*like, arguments, result).take();
  return true;
}

void remember_recorded(Words key, PyObject* found) {
  PyObject *kind, *reads, *floating;
  if (found == Py_None || recorded().find(key) != nullptr) return;
  if (!PyArg_ParseTuple(found, "OO!O", &kind, &PyTuple_Type, &reads, &floating))
    throw PythonError{};
  auto made = std::make_shared<Recorded>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); ++i) {
    const char* side;
    int index;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(reads, i), "si", &side, &index)) throw PythonError{};
    made->places.push_back(side[0] == 'i' ? index : -1);
  }
  made->kind = borrowed(kind);
  made->reads = borrowed(reads);
  made->floating = PyObject_IsTrue(floating) == 1;
  recorded().insert(key, std::move(made));
}

void forget_recorded() { recorded().clear(); }

PyObject* save_array(PyObject* array, PyObject*) { return save(array).take(); }

PyObject* take_saved(PyObject* self, PyObject*) {
  auto* history = reinterpret_cast<History*>(self);
  Reference list = owned(PyList_New(0));
  while (history->saved != nullptr) {
    Saved* saved = history->saved;
    check(PyList_Append(list.get(), reinterpret_cast<PyObject*>(saved)));
    unlink(saved);
  }
  return list.take();
}

void leave_saved(History* history) {
  while (history->saved != nullptr) unlink(history->saved);
}

void set_source_function(PyObject* function) { Py_XSETREF(source_function, Py_NewRef(function)); }

PyObject* set_call_class(PyObject* type) {
  auto* derived = reinterpret_cast<PyTypeObject*>(type);
  if (!PyType_Check(type) || !PyType_IsSubtype(derived, call_type) ||
      derived->tp_basicsize != static_cast<Py_ssize_t>(sizeof(Call))) {
    throw Error("TypeError", "the class of calls must derive from Call and have empty __slots__");
  }
  PyObject* previous = reinterpret_cast<PyObject*>(call_class);
  Py_INCREF(type);
  call_class = derived;
  return previous;
}

bool make_tape_types(PyObject* module) {
  PyType_Spec saved_spec = {"gemel._core.Saved", sizeof(Saved), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, saved_slots};
  PyType_Spec call_spec = {"gemel._core.Call", sizeof(Call), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                           call_slots};
  PyObject* saved = PyType_FromSpec(&saved_spec);
  PyObject* call = PyType_FromSpec(&call_spec);
  if (saved == nullptr || call == nullptr) return false;
  saved_type = reinterpret_cast<PyTypeObject*>(saved);
  call_type = call_class = reinterpret_cast<PyTypeObject*>(call);
  Py_INCREF(call);  // call_class owns one reference
  return PyModule_AddObjectRef(module, "Saved", saved) == 0 &&
         PyModule_AddObjectRef(module, "Call", call) == 0;
}

}  // namespace gemel
