// A library with the functions that gemel calls in llvmlite's. It "compiles" a text to the same
// text in brackets, after the processor; refuses what begins with '!'; and complains, by an exit,
// if two threads use one machine at the same time or something is disposed of twice.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

struct Machine {
  std::string cpu;
  std::atomic<bool> busy{false};
};

std::atomic<int> alive{0};  // contexts, modules, machines, messages and results

template <typename Object>
Object* made(Object* object) {
  ++alive;
  return object;
}

template <typename Object>
void disposed(Object* object) {
  if (--alive < 0) std::abort();
  delete object;
}

const char* told(const char* text) {
  ++alive;
  return strdup(text);
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED void LLVMPY_InitializeAllTargetInfos() {}
EXPORTED void LLVMPY_InitializeAllTargets() {}
EXPORTED void LLVMPY_InitializeAllTargetMCs() {}
EXPORTED void LLVMPY_InitializeAllAsmPrinters() {}
EXPORTED int stand_in_alive() { return alive.load(); }

EXPORTED void LLVMPY_DisposeString(const char* text) {
  if (--alive < 0) std::abort();
  std::free(const_cast<char*>(text));
}

EXPORTED void* LLVMPY_ContextCreate() { return made(new int(0)); }
EXPORTED void LLVMPY_ContextDispose(int* context) { disposed(context); }

EXPORTED void* LLVMPY_ParseAssembly(void*, const char* text, const char** refused) {
  if (text[0] != '!') return made(new std::string(text));
  *refused = told("expected no mark");
  return nullptr;
}

EXPORTED int LLVMPY_VerifyModule(std::string* module, const char** refused) {
  if (module->find('?') == std::string::npos) return 0;
  *refused = told("expected no question");
  return 1;
}

EXPORTED void LLVMPY_DisposeModule(std::string* module) { disposed(module); }

EXPORTED void* LLVMPY_GetTargetFromTriple(const char* triple, const char** refused) {
  if (std::strcmp(triple, "none") != 0) return &alive;
  *refused = told("no such target");
  return nullptr;
}

EXPORTED void* LLVMPY_CreateTargetMachine(void*, const char*, const char* cpu, const char*, int,
                                          const char*, const char*, int, int, const char*) {
  return made(new Machine{cpu});
}

EXPORTED void LLVMPY_DisposeTargetMachine(Machine* machine) { disposed(machine); }

EXPORTED void* LLVMPY_TargetMachineEmitToMemory(Machine* machine, std::string* module, int,
                                                const char**) {
  if (machine->busy.exchange(true)) {
    std::fprintf(stderr, "broken: two threads use one machine\n");
    std::_Exit(1);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  auto* bytes = made(new std::string(machine->cpu + "[" + *module + "]"));
  machine->busy = false;
  return bytes;
}

EXPORTED const char* LLVMPY_GetBufferStart(std::string* bytes) { return bytes->data(); }
EXPORTED size_t LLVMPY_GetBufferSize(std::string* bytes) { return bytes->size(); }
EXPORTED void LLVMPY_DisposeMemoryBuffer(std::string* bytes) { disposed(bytes); }
