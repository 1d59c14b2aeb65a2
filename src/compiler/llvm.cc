#include "compiler/llvm.h"

#include <dlfcn.h>

#include <chrono>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "memory/signals.h"

namespace gemel::llvm {
namespace {

template <typename FunctionPointer>
void find(void* library, const char* name, FunctionPointer* found) {
  *found = reinterpret_cast<FunctionPointer>(dlsym(library, name));
  if (*found == nullptr) throw std::runtime_error(std::string("the library has no ") + name);
}

// An object of LLVM's, which is disposed of where the result goes out of scope.
template <typename Object>
auto owned(Object* object, void (*dispose)(Object*)) {
  return std::unique_ptr<Object, void (*)(Object*)>(object, dispose);
}

}  // namespace

Library::~Library() {
  settle();
  for (const auto& [target, machines] : idle_) {
    for (const Machine machine : machines) functions_.dispose_machine(machine);
  }
}

void Library::open_soon() {
  if (is_open_ || opens_soon_.exchange(true)) return;
  const SignalsBlocked blocked;
  try {
    std::thread([this] {
      try {
        open();
      } catch (const std::runtime_error&) {  // which the first task will report
      }
      opens_soon_ = false;  // the last that this thread does with the library
    }).detach();
  } catch (const std::system_error&) {  // no thread is to be had
    opens_soon_ = false;
  }
}

void Library::settle() const {
  while (opens_soon_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Library::open() {
  if (is_open_) return;
  std::lock_guard<std::mutex> guard(opening_);
  if (is_open_) return;
  void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(std::string("its library cannot be opened: ") + dlerror());
  }
  find_all(library);
  functions_.initialize_infos();
  functions_.initialize_targets();
  functions_.initialize_codes();
  functions_.initialize_printers();
  is_open_ = true;
}

void Library::find_all(void* library) {
  find(library, "LLVMPY_InitializeAllTargetInfos", &functions_.initialize_infos);
  find(library, "LLVMPY_InitializeAllTargets", &functions_.initialize_targets);
  find(library, "LLVMPY_InitializeAllTargetMCs", &functions_.initialize_codes);
  find(library, "LLVMPY_InitializeAllAsmPrinters", &functions_.initialize_printers);
  find(library, "LLVMPY_DisposeString", &functions_.dispose_message);
  find(library, "LLVMPY_ContextCreate", &functions_.create_context);
  find(library, "LLVMPY_ContextDispose", &functions_.dispose_context);
  find(library, "LLVMPY_ParseAssembly", &functions_.parse);
  find(library, "LLVMPY_VerifyModule", &functions_.verify);
  find(library, "LLVMPY_DisposeModule", &functions_.dispose_module);
  find(library, "LLVMPY_GetTargetFromTriple", &functions_.kind_of);
  find(library, "LLVMPY_CreateTargetMachine", &functions_.create_machine);
  find(library, "LLVMPY_DisposeTargetMachine", &functions_.dispose_machine);
  find(library, "LLVMPY_TargetMachineEmitToMemory", &functions_.generate);
  find(library, "LLVMPY_GetBufferStart", &functions_.begin);
  find(library, "LLVMPY_GetBufferSize", &functions_.size);
  find(library, "LLVMPY_DisposeMemoryBuffer", &functions_.dispose_bytes);
}

std::string Library::object_of(const std::string& assembly, const Target& target) {
  open();
  const auto context = owned(functions_.create_context(), functions_.dispose_context);
  const char* message = nullptr;
  const auto module =
      owned(functions_.parse(context.get(), assembly.c_str(), &message), functions_.dispose_module);
  std::string refused = told(message);
  if (refused.empty() && module != nullptr) {
    message = nullptr;
    const bool is_bad = functions_.verify(module.get(), &message) != 0;
    refused = told(message);
    if (!is_bad) return generated(module.get(), target);
    if (refused.empty()) refused = "it is not well formed";
  }
  throw std::runtime_error(refused.empty() ? "LLVM IR parsing error" : refused);
}

std::string Library::generated(Module module, const Target& target) {
  const Machine machine = take(target);
  const char* message = nullptr;
  const auto bytes =
      owned(functions_.generate(machine, module, 1, &message), functions_.dispose_bytes);
  give_back(target, machine);
  const std::string refused = told(message);
  if (bytes == nullptr) throw std::runtime_error(refused);
  return {functions_.begin(bytes.get()), functions_.size(bytes.get())};
}

Machine Library::take(const Target& target) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<Machine>& idle = idle_[target];
    if (!idle.empty()) {
      const Machine found = idle.back();
      idle.pop_back();
      return found;
    }
  }
  const char* message = nullptr;
  const TargetKind kind = functions_.kind_of(target.triple.c_str(), &message);
  const std::string refused = told(message);
  if (kind == nullptr) throw std::runtime_error(refused);
  return functions_.create_machine(kind, target.triple.c_str(), target.cpu.c_str(),
                                   target.features.c_str(), target.level, target.relocation.c_str(),
                                   "small", 0, 0, "");
}

void Library::give_back(const Target& target, Machine machine) {
  std::lock_guard<std::mutex> guard(mutex_);
  idle_[target].push_back(machine);
}

// A message of LLVM, which is freed; empty if there is none.
std::string Library::told(const char* message) const {
  if (message == nullptr) return {};
  std::string text = message;
  functions_.dispose_message(message);
  return text;
}

}  // namespace gemel::llvm
