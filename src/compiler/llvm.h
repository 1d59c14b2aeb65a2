// LLVM's code generator, in a library with the functions that llvmlite has for Python ("LLVMPY_").
// It is opened when it is first needed and called through a table, so gemel is built without LLVM.

#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace gemel::llvm {

// What code is generated for.
struct Target {
  std::string triple, cpu, features, relocation;
  int level = 1;  // of optimisation

  bool operator<(const Target& other) const {
    return std::tie(triple, cpu, features, relocation, level) <
           std::tie(other.triple, other.cpu, other.features, other.relocation, other.level);
  }
};

// LLVM's own objects.
using Context = struct OpaqueContext*;
using Module = struct OpaqueModule*;
using TargetKind = struct OpaqueTargetKind*;
using Machine = struct OpaqueMachine*;
using Bytes = struct OpaqueBytes*;

struct Functions {
  void (*initialize_infos)();
  void (*initialize_targets)();
  void (*initialize_codes)();
  void (*initialize_printers)();
  void (*dispose_message)(const char*);
  Context (*create_context)();
  void (*dispose_context)(Context);
  Module (*parse)(Context, const char* assembly, const char** refused);
  int (*verify)(Module, const char** refused);
  void (*dispose_module)(Module);
  TargetKind (*kind_of)(const char* triple, const char** refused);
  Machine (*create_machine)(TargetKind, const char* triple, const char* cpu, const char* features,
                            int level, const char* relocation, const char* code_model,
                            int print_fences, int jit, const char* abi);
  void (*dispose_machine)(Machine);
  Bytes (*generate)(Machine, Module, int object, const char** refused);
  const char* (*begin)(Bytes);
  size_t (*size)(Bytes);
  void (*dispose_bytes)(Bytes);
};

class Library {
 public:
  explicit Library(std::string path) : path_(std::move(path)) {}
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Opens the library on a thread, which takes some hundredths of a second.
  void open_soon();
  // Waits until that thread has done so. It takes no lock, which a fork could find taken.
  void settle() const;

  // The object for LLVM assembly. Any number of threads may call this at the same time. Throws
  // std::runtime_error with LLVM's message, or if there is no such library or it lacks a function.
  std::string object_of(const std::string& assembly, const Target& target);

 private:
  void open();
  void find_all(void* library);
  // A machine serves one thread at a time; those that do not are kept.
  Machine take(const Target& target);
  void give_back(const Target& target, Machine machine);
  std::string told(const char* message) const;
  std::string generated(Module module, const Target& target);

  const std::string path_;
  std::mutex opening_;
  std::atomic<bool> is_open_{false};
  std::atomic<bool> opens_soon_{false};  // a thread is about to open it
  Functions functions_;
  std::mutex mutex_;
  std::map<Target, std::vector<Machine>> idle_;
};

}  // namespace gemel::llvm
