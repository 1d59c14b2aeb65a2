#include "program/object.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace gemel {
namespace {

// The parts of the ELF format that we need (System V ABI, chapter 4). <elf.h> exists on Linux only.
struct FileHeader {
  unsigned char identity[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_offset, section_offset;
  uint32_t flags;
  uint16_t header_size, program_entry_size, program_count, section_entry_size, section_count,
      names_index;
};
struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t alignment, entry_size;
};
struct Symbol {
  uint32_t name;
  unsigned char info, other;
  uint16_t section;
  uint64_t value, size;
};
struct Relocation {
  uint64_t offset, info;
  int64_t addend;
};
static_assert(sizeof(FileHeader) == 64 && sizeof(SectionHeader) == 64);
static_assert(sizeof(Symbol) == 24 && sizeof(Relocation) == 24);

constexpr uint16_t kRelocatable = 1;
constexpr uint16_t kX86 = 62;
constexpr uint16_t kArm = 183;
constexpr uint32_t kSymbols = 2;
constexpr uint32_t kRelocations = 4;  // with addends
constexpr uint32_t kNoBits = 8;
constexpr uint32_t kPlainRelocations = 9;  // without addends
constexpr uint32_t kUnwind = 0x70000001;
constexpr uint64_t kWritable = 1;
constexpr uint64_t kLoaded = 2;
constexpr uint64_t kExecutable = 4;
constexpr uint64_t kThreadLocal = 0x400;
constexpr uint16_t kUndefined = 0;
constexpr uint16_t kAbsolute = 0xfff1;
constexpr uint64_t kMostBytes = uint64_t{1} << 28;
constexpr uint64_t kMostAlignment = 4096;
constexpr size_t kStubBytes = 16;

#if defined(__x86_64__)
constexpr uint16_t kHost = kX86;
#elif defined(__aarch64__)
constexpr uint16_t kHost = kArm;
#else
constexpr uint16_t kHost = 0;
#endif

struct Known {
  const char* name;
  void* address;
};
const Known kKnown[] = {
    {"memcpy", reinterpret_cast<void*>(&std::memcpy)},
    {"memset", reinterpret_cast<void*>(&std::memset)},
    {"memmove", reinterpret_cast<void*>(&std::memmove)},
};
constexpr size_t kKnownCount = sizeof(kKnown) / sizeof(kKnown[0]);

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error("malformed kernel object: " + why);
}

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

// --- relocations; the numbers are those of the machines' ELF supplements ---

namespace {

template <typename Word>
void store(unsigned char* place, size_t room, Word value) {
  if (room < sizeof(Word)) refuse("relocation outside its section");
  std::memcpy(place, &value, sizeof(Word));
}

int64_t in_range(uint64_t value, int bits) {
  const int64_t number = static_cast<int64_t>(value);
  const int64_t most = int64_t{1} << (bits - 1);
  if (number < -most || number >= most) refuse("relocation out of reach");
  return number;
}

// Puts the lowest `bits` bits of value at bit `shift` of the instruction.
void patch(unsigned char* place, size_t room, int shift, int bits, uint64_t value) {
  uint32_t instruction = 0;
  if (room < sizeof(instruction)) refuse("relocation outside its section");
  std::memcpy(&instruction, place, sizeof(instruction));
  const uint32_t mask = ((uint32_t{1} << bits) - 1) << shift;
  instruction = (instruction & ~mask) | ((static_cast<uint32_t>(value) << shift) & mask);
  std::memcpy(place, &instruction, sizeof(instruction));
}

uint64_t aligned(uint64_t value, int shift) {
  if ((value & ((uint64_t{1} << shift) - 1)) != 0) refuse("misaligned relocation");
  return value >> shift;
}

void patch_page(unsigned char* place, size_t room, uint64_t address, uint64_t target) {
  const uint64_t distance = (target & ~uint64_t{0xfff}) - (address & ~uint64_t{0xfff});
  const int64_t pages = in_range(distance, 33) >> 12;
  patch(place, room, 29, 2, static_cast<uint64_t>(pages) & 3);
  patch(place, room, 5, 19, static_cast<uint64_t>(pages) >> 2);
}

}  // namespace

void relocate_x86_64(uint32_t kind, unsigned char* place, size_t room, uint64_t address,
                     uint64_t target) {
  switch (kind) {
    case 1:  // R_X86_64_64
      return store<uint64_t>(place, room, target);
    case 2:  // R_X86_64_PC32
    case 4:  // R_X86_64_PLT32: our functions are always near
      return store<int32_t>(place, room, static_cast<int32_t>(in_range(target - address, 32)));
    case 10:  // R_X86_64_32
      if (target > UINT32_MAX) refuse("relocation out of reach");
      return store<uint32_t>(place, room, static_cast<uint32_t>(target));
    case 11:  // R_X86_64_32S
      return store<int32_t>(place, room, static_cast<int32_t>(in_range(target, 32)));
    case 24:  // R_X86_64_PC64
      return store<uint64_t>(place, room, target - address);
  }
  refuse("relocation of kind " + std::to_string(kind));
}

void relocate_aarch64(uint32_t kind, unsigned char* place, size_t room, uint64_t address,
                      uint64_t target) {
  const uint64_t low = target & 0xfff;
  switch (kind) {
    case 257:  // R_AARCH64_ABS64
      return store<uint64_t>(place, room, target);
    case 260:  // R_AARCH64_PREL64
      return store<uint64_t>(place, room, target - address);
    case 261:  // R_AARCH64_PREL32
      return store<int32_t>(place, room, static_cast<int32_t>(in_range(target - address, 32)));
    case 275:  // R_AARCH64_ADR_PREL_PG_HI21
      return patch_page(place, room, address, target);
    case 277:  // R_AARCH64_ADD_ABS_LO12_NC
    case 278:  // R_AARCH64_LDST8_ABS_LO12_NC
      return patch(place, room, 10, 12, low);
    case 284:  // R_AARCH64_LDST16_ABS_LO12_NC
    case 285:  // R_AARCH64_LDST32_ABS_LO12_NC
    case 286:  // R_AARCH64_LDST64_ABS_LO12_NC
      return patch(place, room, 10, 12, aligned(low, static_cast<int>(kind) - 283));
    case 299:  // R_AARCH64_LDST128_ABS_LO12_NC
      return patch(place, room, 10, 12, aligned(low, 4));
    case 282:  // R_AARCH64_JUMP26
    case 283:  // R_AARCH64_CALL26
      return patch(place, room, 0, 26,
                   aligned(static_cast<uint64_t>(in_range(target - address, 28)), 2));
  }
  refuse("relocation of kind " + std::to_string(kind));
}

// --- the file ---

namespace {

// A file in memory. Every access is checked, and no check can overflow.
class File {
 public:
  File(const void* data, size_t bytes) : data_(static_cast<const char*>(data)), bytes_(bytes) {}

  const char* range(uint64_t offset, uint64_t bytes) const {
    if (offset > bytes_ || bytes > bytes_ - offset) refuse("truncated");
    return data_ + offset;
  }
  template <typename Record>
  Record record(uint64_t offset, uint64_t index) const {
    if (index > bytes_ / sizeof(Record)) refuse("truncated");
    Record result;
    const uint64_t relative = index * sizeof(Record);
    if (relative > UINT64_MAX - offset) refuse("truncated");
    std::memcpy(&result, range(offset + relative, sizeof(Record)), sizeof(Record));
    return result;
  }
  // The zero-terminated string at `index` of a string table.
  std::string text(const SectionHeader& table, uint64_t index) const {
    const char* strings = range(table.offset, table.size);
    if (index >= table.size) refuse("name outside its string table");
    const size_t room = table.size - index;
    const size_t length = strnlen(strings + index, room);
    if (length == room) refuse("name without an end");
    return {strings + index, length};
  }

 private:
  const char* data_;
  size_t bytes_;
};

struct Section {
  SectionHeader header;
  std::string name;
  bool placed = false;
  uint64_t start = 0;  // in the mapping
};

// An object that is being loaded.
class Loading {
 public:
  Loading(const void* code, size_t bytes) : file_(code, bytes) { read_sections(); }

  uint64_t place();  // returns how many bytes it needs
  void fill(char* mapping);
  uint64_t kernel() const;  // the offset of `kernel` in the mapping

 private:
  void read_sections();
  void write_stubs(char* mapping) const;
  void relocate(const Section& table, char* mapping) const;
  uint64_t symbol_address(const Section& symbols, uint64_t index, uint64_t base) const;
  void check_symbols(const Section& symbols) const;
  const Section& section(uint64_t index) const {
    if (index >= sections_.size()) refuse("section number out of range");
    return sections_[index];
  }
  std::string symbol_name(const Section& symbols, const Symbol& symbol) const {
    return file_.text(section(symbols.header.link).header, symbol.name);
  }
  static uint64_t count(const Section& table, uint64_t size) {
    if (table.header.entry_size != size) refuse("unexpected entry size");
    return table.header.size / size;
  }

  File file_;
  std::vector<Section> sections_;
  uint64_t stubs_ = 0;
};

void Loading::read_sections() {
  const auto header = file_.record<FileHeader>(0, 0);
  if (std::memcmp(header.identity, "\177ELF\2\1", 6) != 0) refuse("not a little-endian ELF64 file");
  if (header.type != kRelocatable) refuse("not a relocatable object");
  if (header.machine != kHost) refuse("made for machine " + std::to_string(header.machine));
  if (header.section_entry_size != sizeof(SectionHeader)) refuse("unexpected section header size");
  for (uint64_t index = 0; index < header.section_count; ++index) {
    sections_.push_back({file_.record<SectionHeader>(header.section_offset, index), "", false, 0});
  }
  const Section names = section(header.names_index);
  for (Section& each : sections_) each.name = file_.text(names.header, each.header.name);
}

uint64_t Loading::place() {
  uint64_t end = 0;
  for (Section& each : sections_) {
    const SectionHeader& header = each.header;
    const bool unwind = header.type == kUnwind || each.name == ".eh_frame";  // kernels do not throw
    if (!(header.flags & kLoaded) || unwind || header.size == 0) continue;
    const bool constant = each.name.rfind(".data.rel.ro", 0) == 0;  // written only by the loader
    if ((header.flags & kThreadLocal) || ((header.flags & kWritable) && !constant)) {
      refuse("kernels keep no state, but there is a section " + each.name);
    }
    const uint64_t alignment = header.alignment == 0 ? 1 : header.alignment;
    if ((alignment & (alignment - 1)) != 0 || alignment > kMostAlignment) refuse("alignment");
    if (header.size > kMostBytes || end > kMostBytes) refuse("too big");
    if (header.type != kNoBits) file_.range(header.offset, header.size);
    each.start = round_up(end, alignment);
    each.placed = true;
    end = each.start + header.size;
  }
  stubs_ = round_up(end, kStubBytes);
  return stubs_ + kKnownCount * kStubBytes;
}

// Library functions may be too far away for a call. So the call goes to a jump next to the code.
void Loading::write_stubs(char* mapping) const {
  const unsigned char x86[] = {0xff, 0x25, 0, 0, 0, 0};                 // jmp *0(%rip)
  const unsigned char arm[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6};  // ldr x16, #8; br x16
  for (size_t index = 0; index < kKnownCount; ++index) {
    char* stub = mapping + stubs_ + index * kStubBytes;
    const size_t bytes = kHost == kX86 ? sizeof(x86) : sizeof(arm);
    std::memcpy(stub, kHost == kX86 ? x86 : arm, bytes);
    std::memcpy(stub + bytes, &kKnown[index].address, sizeof(void*));
  }
}

void Loading::fill(char* mapping) {
  for (const Section& each : sections_) {
    const SectionHeader& header = each.header;
    if (each.placed && header.type != kNoBits) {
      std::memcpy(mapping + each.start, file_.range(header.offset, header.size), header.size);
    }
  }
  write_stubs(mapping);
  for (const Section& each : sections_) {
    if (each.header.type == kSymbols) check_symbols(each);
    const bool relocations = each.header.type == kRelocations;
    if (!relocations && each.header.type != kPlainRelocations) continue;
    if (!section(each.header.info).placed) continue;
    if (!relocations) refuse("relocations without addends");
    relocate(each, mapping);
  }
}

void Loading::relocate(const Section& table, char* mapping) const {
  const Section& target = section(table.header.info);
  const Section& symbols = section(table.header.link);
  if (symbols.header.type != kSymbols) refuse("relocations without symbols");
  if (target.header.type == kNoBits) refuse("relocation of an empty section");
  const uint64_t base = reinterpret_cast<uint64_t>(mapping);
  const uint64_t entries = count(table, sizeof(Relocation));
  for (uint64_t index = 0; index < entries; ++index) {
    const auto entry = file_.record<Relocation>(table.header.offset, index);
    const uint32_t kind = static_cast<uint32_t>(entry.info);
    if (kind == 0) continue;
    if (entry.offset > target.header.size) refuse("relocation outside its section");
    const uint64_t symbol = symbol_address(symbols, entry.info >> 32, base);
    const uint64_t value = symbol + static_cast<uint64_t>(entry.addend);
    const uint64_t place = target.start + entry.offset;
    auto* bytes = reinterpret_cast<unsigned char*>(mapping + place);
    const size_t room = target.header.size - entry.offset;
    (kHost == kX86 ? relocate_x86_64 : relocate_aarch64)(kind, bytes, room, base + place, value);
  }
}

uint64_t Loading::symbol_address(const Section& symbols, uint64_t index, uint64_t base) const {
  if (index >= count(symbols, sizeof(Symbol))) refuse("symbol number out of range");
  const auto symbol = file_.record<Symbol>(symbols.header.offset, index);
  if (symbol.section == kAbsolute) return symbol.value;
  if (symbol.section == kUndefined) {
    const std::string name = symbol_name(symbols, symbol);
    for (size_t known = 0; known < kKnownCount; ++known) {
      if (name == kKnown[known].name) return base + stubs_ + known * kStubBytes;
    }
    throw std::runtime_error("kernel object needs the symbol '" + name +
                             "', which kernels may not use");
  }
  const Section& home = section(symbol.section);
  if (!home.placed || symbol.value > home.header.size) refuse("symbol outside the loaded sections");
  return base + home.start + symbol.value;
}

// Checks all symbols, even unused ones: an object with a foreign symbol was not made by our
// compiler.
void Loading::check_symbols(const Section& symbols) const {
  const uint64_t symbol_count = count(symbols, sizeof(Symbol));
  for (uint64_t index = 1; index < symbol_count; ++index) {
    const auto symbol = file_.record<Symbol>(symbols.header.offset, index);
    if (symbol.section == kUndefined) symbol_address(symbols, index, 0);
  }
}

uint64_t Loading::kernel() const {
  for (const Section& symbols : sections_) {
    if (symbols.header.type != kSymbols) continue;
    const uint64_t symbol_count = count(symbols, sizeof(Symbol));
    for (uint64_t index = 1; index < symbol_count; ++index) {
      const auto symbol = file_.record<Symbol>(symbols.header.offset, index);
      if (symbol.section == kUndefined || symbol_name(symbols, symbol) != "kernel") continue;
      const Section& home = section(symbol.section);
      const bool code = home.placed && (home.header.flags & kExecutable);
      if (!code || symbol.value >= home.header.size) refuse("`kernel` is no function");
      return home.start + symbol.value;
    }
  }
  refuse("no function `kernel`");
}

}  // namespace

std::unique_ptr<Object> Object::load(const void* code, size_t bytes) {
  Loading loading(code, bytes);
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t mapped = round_up(loading.place(), page);
  const uint64_t kernel = loading.kernel();
  void* mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::runtime_error("no memory for a kernel's code");
  std::unique_ptr<Object> object(new Object);
  object->mapping_ = mapping;
  object->mapped_bytes_ = mapped;
  loading.fill(static_cast<char*>(mapping));
  if (mprotect(mapping, mapped, PROT_READ | PROT_EXEC) != 0) {
    throw std::runtime_error("the system refuses to make a kernel executable");
  }
  char* start = static_cast<char*>(mapping);
  __builtin___clear_cache(start, start + mapped);
  object->kernel_ = reinterpret_cast<KernelFunction>(start + kernel);
  return object;
}

Object::~Object() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

}  // namespace gemel
