#include "python/origins.h"

#include <frameobject.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "python/failures.h"

namespace gemel {
namespace {

PyObject* file_namer = nullptr;

// A code object that occurred in a frame. It is kept as long as origins refer to it, and a little
// longer.
struct CodePlace : OriginPlace {
  Reference code;
  bool inside = false;  // whether it belongs to this package
};

using Table = std::unordered_map<PyObject*, std::unique_ptr<CodePlace>>;

// Guarded by the GIL.
Table& places() {
  static auto* table = new Table;
  return *table;
}

constexpr size_t kFirstSweep = 256;
size_t next_sweep = kFirstSweep;

// Drops the code objects that only this table refers to and that no origin needs. Notebook cells,
// for example, are compiled again each time they run.
void sweep() {
  std::vector<std::unique_ptr<CodePlace>> dropped;  // destroying one may run any code
  for (auto entry = places().begin(); entry != places().end();) {
    CodePlace& place = *entry->second;
    const bool used = place.users.load(std::memory_order_acquire) > 0;
    if (used || Py_REFCNT(place.code.get()) > 1) {
      ++entry;
      continue;
    }
    dropped.push_back(std::move(entry->second));
    entry = places().erase(entry);
  }
  next_sweep = std::max(kFirstSweep, 2 * places().size());
}

// The package's directory with a trailing separator. It is found once the module has its __file__.
const std::string& package_directory() {
  static auto* directory = new std::string;
  if (!directory->empty()) return *directory;
  PyObject* modules = PyImport_GetModuleDict();
  PyObject* module = PyDict_GetItemString(modules, "gemel._core");
  Reference file(module == nullptr ? nullptr : PyObject_GetAttrString(module, "__file__"));
  const char* text = file ? PyUnicode_AsUTF8(file.get()) : nullptr;
  PyErr_Clear();
  if (text != nullptr) {
    std::string path(text);
    *directory = path.substr(0, path.find_last_of("/\\") + 1);
  }
  return *directory;
}

bool is_inside_package(PyCodeObject* code) {
  const char* name = PyUnicode_AsUTF8(code->co_filename);
  if (name == nullptr) PyErr_Clear();
  const std::string& directory = package_directory();
  return name != nullptr && !directory.empty() &&
         std::string_view(name).substr(0, directory.size()) == directory;
}

CodePlace* place_of(PyCodeObject* code) {
  auto* key = reinterpret_cast<PyObject*>(code);
  auto found = places().find(key);
  if (found != places().end()) return found->second.get();
  if (places().size() >= next_sweep) sweep();
  auto place = std::make_unique<CodePlace>();
  place->code = Reference(Py_NewRef(key));
  place->inside = is_inside_package(code);
  return places().emplace(key, std::move(place)).first->second.get();
}

int instruction_of(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti * 2;
#endif
}

PyCodeObject* code_of(const Origin& origin) {
  auto* place = static_cast<CodePlace*>(origin.place());
  return place == nullptr ? nullptr : reinterpret_cast<PyCodeObject*>(place->code.get());
}

}  // namespace

Origin current_origin() {
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    CodePlace* place = place_of(code);
    Py_DECREF(code);  // the table holds a reference
    if (!place->inside) {
      Origin origin(place, instruction_of(frame));
      Py_DECREF(frame);
      return origin;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  return {};
}

const char* file_of(const Origin& origin) {
  PyCodeObject* code = code_of(origin);
  if (code == nullptr) return "";
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) PyErr_Clear();
  return file == nullptr ? "?" : file;
}

int line_of(const Origin& origin) {
  PyCodeObject* code = code_of(origin);
  return code == nullptr ? 0 : PyCode_Addr2Line(code, origin.position());
}

void set_file_namer(PyObject* function) { Py_XSETREF(file_namer, Py_NewRef(function)); }

std::string shown_line(const Origin& origin) {
  const int line = line_of(origin);
  if (line == 0) return "";
  const char* file = file_of(origin);
  Reference name(file_namer == nullptr ? nullptr : PyObject_CallFunction(file_namer, "s", file));
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  PyErr_Clear();
  return std::string(text == nullptr ? file : text) + ":" + std::to_string(line);
}

size_t kept_code() { return places().size(); }

}  // namespace gemel
