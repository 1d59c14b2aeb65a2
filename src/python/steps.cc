// A training loop asks this in each of its steps, of hundreds of calls, and waits for the answer.
//
// A source says where a gradient goes next: to an output of a call (the call and its index), to a
// variable (any other object), or nowhere (None).

#include "python/steps.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace gemel {
namespace {

constexpr int64_t kWhole = -1;  // a call with all its outputs, or a variable

struct Place {
  PyObject* object;
  int64_t index;
  bool operator==(const Place& other) const {
    return object == other.object && index == other.index;
  }
};
struct PlaceHash {
  size_t operator()(const Place& place) const {
    return std::hash<PyObject*>{}(place.object) ^ static_cast<size_t>(place.index) << 20;
  }
};
using Places = std::unordered_map<Place, int64_t, PlaceHash>;

bool of_call(PyObject* source) { return PyTuple_Check(source); }

int64_t number_of(PyObject* object) {
  const int64_t value = PyLong_AsLongLong(object);
  if (value == -1 && PyErr_Occurred()) throw PythonError{};
  return value;
}

Place place_of(PyObject* source) {
  if (!of_call(source)) return {source, kWhole};
  return {PyTuple_GET_ITEM(source, 0), number_of(PyTuple_GET_ITEM(source, 1))};
}

// A call of `autograd.Function` is an object of Python's.
Reference sources_of(PyObject* call) {
  if (is_call(call)) return borrowed(as_call(call)->sources);
  return owned(PyObject_GetAttrString(call, "sources"));
}

Reference attribute(PyObject* object, PyObject* name) {
  return owned(PyObject_GetAttr(object, name));
}

PyObject* interned(const char* text) { return owned(PyUnicode_InternFromString(text)).take(); }

// The order of axes that makes a transposed array dense; empty if it is dense already, or if none
// does.
std::vector<int> turned_axes(const Tensor& tensor) {
  if (tensor.contiguous) return {};
  std::vector<int> order(tensor.ndim);
  std::iota(order.begin(), order.end(), 0);
  const int64_t* strides = tensor.strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](int one, int other) { return strides[one] > strides[other]; });
  int64_t dense = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (strides[order[i]] != dense) return {};
    dense *= tensor.extents()[order[i]];
  }
  return order;
}

// The array, or a transposed dense one in the order of its memory.
Reference in_memory_order(PyObject* array) {
  const Tensor& tensor = tensor_of(array);
  const std::vector<int> order = turned_axes(tensor);
  if (order.empty()) return borrowed(array);
  std::vector<int64_t> extents, strides;
  for (const int axis : order) {
    extents.push_back(tensor.extents()[axis]);
    strides.push_back(tensor.strides()[axis]);
  }
  Reference result = blank_array();
  tensor_of(result).view(tensor.storage, tensor.dtype, extents.data(), strides.data(), tensor.ndim,
                         tensor.offset);
  return result;
}

// --- the functions ---

PyObject* turned(PyObject*, PyObject* array) {
  const std::vector<int> order = turned_axes(checked_tensor(array, "turned"));
  if (order.empty()) return Py_NewRef(Py_None);
  Reference result = owned(PyTuple_New(static_cast<Py_ssize_t>(order.size())));
  for (size_t i = 0; i < order.size(); ++i) {
    PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i),
                     owned(PyLong_FromLong(order[i])).take());
  }
  return result.take();
}

// Depth first, so that the order depends on the connections only: equal steps have equal orders.
PyObject* calls_before(PyObject*, PyObject* heads) {
  struct Visit {
    PyObject* call;
    bool ready;  // the calls before it are in the list
  };
  Reference order = owned(PyList_New(0));
  std::unordered_set<PyObject*> seen;
  std::vector<Visit> stack;
  const auto push = [&](PyObject* source) {
    if (of_call(source)) stack.push_back({PyTuple_GET_ITEM(source, 0), false});
  };
  for (Py_ssize_t i = PyList_GET_SIZE(heads); i-- > 0;) push(PyList_GET_ITEM(heads, i));
  while (!stack.empty()) {
    const Visit visit = stack.back();
    stack.pop_back();
    if (visit.ready) {
      check(PyList_Append(order.get(), visit.call));
      continue;
    }
    if (!seen.insert(visit.call).second) continue;
    stack.push_back({visit.call, true});
    const Reference sources = sources_of(visit.call);
    for (Py_ssize_t i = PyTuple_GET_SIZE(sources.get()); i-- > 0;)
      push(PyTuple_GET_ITEM(sources.get(), i));
  }
  return order.take();
}

PyObject* leading(PyObject*, PyObject* arguments) {
  PyObject *calls, *all_sources, *ends;
  if (!PyArg_ParseTuple(arguments, "O!O!O!", &PyList_Type, &calls, &PyList_Type, &all_sources,
                        &PyList_Type, &ends))
    return nullptr;
  std::unordered_set<PyObject*> lead;
  Places wanted;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ends); ++i)
    wanted.emplace(place_of(PyList_GET_ITEM(ends, i)), i);
  Reference masks = owned(PyList_New(PyList_GET_SIZE(calls)));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(calls); ++i) {
    PyObject* sources = PyList_GET_ITEM(all_sources, i);
    Reference mask = owned(PyTuple_New(PyTuple_GET_SIZE(sources)));
    bool any = false;
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(sources); ++j) {
      const Place place = place_of(PyTuple_GET_ITEM(sources, j));
      const bool leads = (place.index != kWhole && lead.count(place.object) != 0) ||
                         wanted.find(place) != wanted.end();
      PyTuple_SET_ITEM(mask.get(), j, Py_NewRef(leads ? Py_True : Py_False));
      any |= leads;
    }
    if (any) lead.insert(PyList_GET_ITEM(calls, i));
    PyList_SET_ITEM(masks.get(), i, mask.take());
  }
  return masks.take();
}

// The number of a source in the words of a step: of a target or an output; -1 for none of these.
int64_t word(PyObject* source, const Places& places) {
  const Place place = place_of(source);
  if (place.index != kWhole) {
    const auto call = places.find({place.object, kWhole});
    if (call != places.end()) return call->second << 16 | place.index;
  }
  const auto target = places.find(place);
  return target == places.end() ? -1 : target->second;
}

// What distinguishes a call from others of its kind: the layouts of transposed arrays it has saved.
void add_layouts(PyObject* values, std::vector<int64_t>& words) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values); ++i) {
    PyObject* saved = PyTuple_GET_ITEM(values, i);
    if (!is_saved(saved) || tensor_of(as_saved(saved)->array).contiguous) continue;
    words.insert(words.end(), {-1, static_cast<int64_t>(i)});
    for (const int axis : turned_axes(tensor_of(as_saved(saved)->array))) words.push_back(axis);
  }
}

PyObject* step_words(PyObject*, PyObject* arguments) {
  PyObject *calls, *all_sources, *masks, *ends, *heads;
  if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!", &PyList_Type, &calls, &PyList_Type, &all_sources,
                        &PyList_Type, &masks, &PyList_Type, &ends, &PyList_Type, &heads))
    return nullptr;
  static PyObject* const number = interned("number");
  static PyObject* const outputs = interned("outputs");
  Places places;
  places.reserve(static_cast<size_t>(PyList_GET_SIZE(calls) + PyList_GET_SIZE(ends)));
  bool marked = false;  // some target is the output of a call: then the key says which
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ends); ++i) {
    places[place_of(PyList_GET_ITEM(ends, i))] = -3 - i;
    marked |= of_call(PyList_GET_ITEM(ends, i));
  }
  std::vector<int64_t> words;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(calls); ++i) {
    PyObject* call = PyList_GET_ITEM(calls, i);
    PyObject* sources = PyList_GET_ITEM(all_sources, i);
    PyObject* kind = as_call(call)->kind;
    words.push_back(number_of(attribute(kind, number).get()));
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(sources); ++j) {
      PyObject* source = PyTuple_GET_ITEM(sources, j);
      const bool wanted = PyTuple_GET_ITEM(PyList_GET_ITEM(masks, i), j) == Py_True;
      words.push_back(wanted ? word(source, places) : source == Py_None ? -1 : -2);
    }
    const Py_ssize_t count = marked ? PyObject_Length(attribute(kind, outputs).get()) : 0;
    for (Py_ssize_t index = 0; index < count; ++index) {
      const auto target = places.find({call, index});
      words.push_back(target == places.end() ? -1 : target->second);
    }
    add_layouts(as_call(call)->values, words);
    places[{call, kWhole}] = i;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(heads); ++i)
    words.push_back(word(PyList_GET_ITEM(heads, i), places));
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(words.data()),
                                   static_cast<Py_ssize_t>(words.size() * sizeof(int64_t)));
}

// What a call saved for a port, if it was not written to since; else null.
PyObject* intact(PyObject* call, PyObject* port) {
  PyObject* reads = as_call(call)->reads;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(reads); ++i) {
    const int equal = PyObject_RichCompareBool(PyTuple_GET_ITEM(reads, i), port, Py_EQ);
    check(equal);
    if (equal == 0) continue;
    PyObject* saved = PyTuple_GET_ITEM(as_call(call)->values, i);
    if (!is_saved(saved)) return nullptr;
    PyObject* array = as_saved(saved)->array;
    return tensor_of(array).storage->version() == as_saved(saved)->version ? array : nullptr;
  }
  return nullptr;
}

// What a call saved for some ports, as a list; null if Python has to find it, or to say what is
// wrong.
Reference saved_for(PyObject* call, PyObject* ports) {
  Reference found = owned(PyList_New(PyTuple_GET_SIZE(ports)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(ports); ++i) {
    PyObject* array = intact(call, PyTuple_GET_ITEM(ports, i));
    if (array == nullptr) return Reference();
    PyList_SET_ITEM(found.get(), i, Py_NewRef(array));
  }
  return found;
}

PyObject* saved_of(PyObject*, PyObject* arguments) {
  PyObject *call, *ports;
  if (!PyArg_ParseTuple(arguments, "O!O!", call_type, &call, &PyTuple_Type, &ports)) return nullptr;
  Reference found = saved_for(call, ports);
  return found ? found.take() : Py_NewRef(Py_None);
}

PyObject* saved_arrays(PyObject*, PyObject* arguments) {
  PyObject *calls, *wanted;
  if (!PyArg_ParseTuple(arguments, "O!O!", &PyList_Type, &calls, &PyList_Type, &wanted))
    return nullptr;
  Reference found = owned(PyList_New(0));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(wanted); ++i) {
    Py_ssize_t position;
    PyObject* ports;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(wanted, i), "nO!", &position, &PyTuple_Type, &ports))
      return nullptr;
    PyObject* call = PyList_GetItem(calls, position);
    if (call == nullptr) return nullptr;
    Reference saved = saved_for(call, ports);
    if (!saved) saved = call_method(call, "arrays", "(O)", ports);
    for (Py_ssize_t j = 0; j < PyList_Size(saved.get()); ++j)
      check(PyList_Append(found.get(), in_memory_order(PyList_GET_ITEM(saved.get(), j)).get()));
  }
  return found.take();
}

// Operations one after another. Each is a tuple: what to call, names and values of its parameters,
// the positions of its inputs in `values`, and positions of what nobody reads after it.
PyObject* run_operations(PyObject*, PyObject* arguments) {
  PyObject *operations, *values;
  if (!PyArg_ParseTuple(arguments, "O!O!", &PyTuple_Type, &operations, &PyList_Type, &values))
    return nullptr;
  std::vector<PyObject*> given;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operations); ++i) {
    PyObject *function, *names, *parameters, *inputs, *over;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(operations, i), "OO!O!O!O!", &function, &PyTuple_Type,
                          &names, &PyTuple_Type, &parameters, &PyTuple_Type, &inputs, &PyTuple_Type,
                          &over))
      return nullptr;
    const Py_ssize_t count = PyTuple_GET_SIZE(inputs);
    given.clear();
    for (Py_ssize_t j = 0; j < count; ++j) {
      const Py_ssize_t position = number_of(PyTuple_GET_ITEM(inputs, j));
      given.push_back(PyList_GetItem(values, position));
      if (given.back() == nullptr) return nullptr;
    }
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(parameters); ++j)
      given.push_back(PyTuple_GET_ITEM(parameters, j));
    const Reference found = owned(into_python([&] {
      return PyObject_Vectorcall(function, given.data(), static_cast<size_t>(count), names);
    }));
    if (PyTuple_Check(found.get()) || PyList_Check(found.get())) {
      const Py_ssize_t end = PyList_GET_SIZE(values);
      check(PyList_SetSlice(values, end, end, found.get()));
    } else {
      check(PyList_Append(values, found.get()));
    }
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(over); ++j) {
      const Py_ssize_t position = number_of(PyTuple_GET_ITEM(over, j));
      check(PyList_SetItem(values, position, Py_NewRef(Py_None)));
    }
  }
  return Py_NewRef(Py_None);
}

PyMethodDef functions[] = {
    {"calls_before", method<calls_before>(), METH_O,
     "calls_before(heads)\n--\n\nThe calls that sources depend on, each after those before it."},
    {"leading", method<leading>(), METH_VARARGS,
     "leading(calls, sources, ends)\n--\n\nPer call and input, whether its gradient leads to an "
     "end."},
    {"step_words", method<step_words>(), METH_VARARGS,
     "step_words(calls, sources, masks, ends, heads)\n--\n\nWhat steps with the same gradient "
     "graph share."},
    {"saved_arrays", method<saved_arrays>(), METH_VARARGS,
     "saved_arrays(calls, wanted)\n--\n\nWhat calls saved, for pairs of a position and ports."},
    {"saved_of", method<saved_of>(), METH_VARARGS,
     "saved_of(call, ports)\n--\n\nWhat a call has saved, or None if something is missing."},
    {"run_operations", method<run_operations>(), METH_VARARGS,
     "run_operations(operations, values)\n--\n\nRuns operations, and adds results to the list."},
    {"turned", method<turned>(), METH_O,
     "turned(array)\n--\n\nThe order of axes that makes a transposed array dense, or None."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool add_step_functions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace gemel
