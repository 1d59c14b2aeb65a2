// General operations: prepared for the exact specs of their inputs, as a plan or as a view.

#include <span>
#include <unordered_map>

#include "python/op_type.h"
#include "python/plan_type.h"

namespace gemel {
namespace {

constexpr size_t kTableEntries = 4096;

using Words = std::span<const int64_t>;

struct WordsHash {
  using is_transparent = void;
  size_t operator()(Words words) const {
    uint64_t hash = words.size();
    for (int64_t word : words) hash = mix(hash, static_cast<uint64_t>(word));
    return hash;
  }
};

struct WordsEqual {
  using is_transparent = void;
  bool operator()(Words a, Words b) const {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
};

// What Python returned for a key: a Plan, or a View (whose spec it owns).
struct Prepared {
  Reference object;
  const ViewSpec* view = nullptr;
};

using GeneralTable = std::unordered_map<std::vector<int64_t>, Prepared, WordsHash, WordsEqual>;

GeneralTable& table() {
  static auto* instance = new GeneralTable;
  return *instance;
}

constexpr int kMaxWords = 2 + kMaxOperands * (1 + 2 * kMaxRank);

Words make_key(int64_t* words, OpObject* op, const Operands& operands, uint32_t parameters) {
  int64_t* next = words;
  *next++ = static_cast<int64_t>(op->id) << 32 | parameters;
  for (int i = 0; i < operands.count; ++i) {
    Array* array = operands.arrays[i];
    int ndim = array == nullptr ? 0 : array->ndim;
    *next++ = ndim << 8 | operands.tags[i];
    for (int d = 0; d < 2 * ndim; ++d) *next++ = array->dims[d];
  }
  return Words(words, static_cast<size_t>(next - words));
}

// Asks Python; `found` stays null when it answered None.
bool prepare(OpObject* op, const Arguments& arguments, Words key, const Prepared** found) {
  Reference inputs(inputs_tuple(arguments));
  Reference parameters(parameters_dict(arguments));
  if (!inputs || !parameters) return false;
  Prepared prepared;
  prepared.object = Reference(PyObject_CallMethod(reinterpret_cast<PyObject*>(op), "_prepare",
                                                  "(OO)", inputs.get(), parameters.get()));
  if (!prepared.object) return false;
  if (prepared.object.get() == Py_None) return true;
  if (!is_plan(prepared.object.get())) {
    prepared.view = view_from(prepared.object.get());
    if (prepared.view == nullptr) {
      PyErr_SetString(PyExc_TypeError, "_prepare must return a Plan, a View or None");
      return false;
    }
  }
  if (table().size() >= kTableEntries) table().clear();
  std::vector<int64_t> owned(key.begin(), key.end());
  *found = &table().insert_or_assign(std::move(owned), std::move(prepared)).first->second;
  return true;
}

PyObject* make_view(const ViewSpec& view, Array* input) {
  return as_object(new_view(input->storage, input->code, view.shape.data(), view.strides.data(),
                            static_cast<int>(view.shape.size()), input->offset + view.offset));
}

// A plan takes its arrays first, then the run-time scalars.
PyObject* run_plan_object(PyObject* plan, const Operands& operands, const Arguments& arguments) {
  PyObject* ordered[kMaxOperands];
  int next = 0;
  for (int i = 0; i < operands.count; ++i) {
    if (operands.arrays[i] != nullptr) ordered[next++] = arguments.values[i];
  }
  for (int i = 0; i < operands.count; ++i) {
    if (operands.arrays[i] == nullptr) ordered[next++] = arguments.values[i];
  }
  return call_plan_unpacked(plan, ordered, operands.count);
}

bool record_result(OpObject* op, const Arguments& arguments, PyObject* result) {
  auto* self = reinterpret_cast<PyObject*>(op);
  if (!PyTuple_Check(result)) return record_call(self, arguments, &result, 1);
  return record_call(self, arguments, &PyTuple_GET_ITEM(result, 0),
                     static_cast<int>(PyTuple_GET_SIZE(result)));
}

}  // namespace

PyObject* call_general(OpObject* op, const Operands& operands, const Arguments& arguments,
                       uint32_t parameters) {
  int64_t words[kMaxWords];
  Words key = make_key(words, op, operands, parameters);
  auto at = table().find(key);
  const Prepared* found = at == table().end() ? nullptr : &at->second;
  ++(found != nullptr ? table_counters.hits : table_counters.misses);
  if (found == nullptr && !prepare(op, arguments, key, &found)) return nullptr;
  if (found == nullptr) return call_in_python(reinterpret_cast<PyObject*>(op), arguments);
  // Running may call Python, which may empty the table.
  Reference keep(Py_NewRef(found->object.get()));
  PyObject* result = found->view != nullptr ? make_view(*found->view, operands.first)
                                            : run_plan_object(keep.get(), operands, arguments);
  if (result == nullptr || !thread_flags.recording || !operands.tracked) return result;
  if (record_result(op, arguments, result)) return result;
  Py_DECREF(result);
  return nullptr;
}

size_t general_table_size() { return table().size(); }
void clear_general_table() { table().clear(); }

}  // namespace gemel
