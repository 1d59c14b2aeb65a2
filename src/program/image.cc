// Reading the image of a plan. Whatever the bytes are, a program that has been read refers only to
// things that exist.

#include <algorithm>
#include <cstring>
#include <utility>

#include "program/checksum.h"
#include "program/error.h"
#include "program/program.h"
#include "program/target.h"

namespace gemel {
namespace {

constexpr int64_t kMagic = 0x006E616C706D6567;  // "gemplan"
constexpr int64_t kVersion = 3;
constexpr int64_t kHeaderWords = 5;
constexpr int64_t kUnchecked = -1;                    // in place of a checksum
constexpr int kDeepest = 64;                          // nesting of items
constexpr int64_t kConditionalLoop = 5, kResult = 6;  // kinds of items

[[noreturn]] void refuse(const std::string& what) {
  throw Error("ValueError", "the plan's image is damaged: " + what);
}

class Reader {
 public:
  Reader(std::span<const char> image, Program& program, std::vector<Kernel> kernels,
         std::vector<Captured> captured)
      : image_(image),
        program_(program),
        given_kernels_(std::move(kernels)),
        given_captured_(std::move(captured)) {}

  void read() {
    read_header();
    program_.name = text();
    program_.target = text();
    read_sizes();
    read_arrays();
    program_.scalars = static_cast<int>(number(0, kMost));
    program_.random = static_cast<int>(number(0, kMost));
    for (int64_t left = count(); left > 0; --left) {
      program_.temporaries.push_back({slot(), word(), word()});
    }
    for (int64_t left = count(); left > 0; --left) read_captured();
    for (int64_t left = count(); left > 0; --left) read_kernel();
    program_.items = items(0);
    for (int64_t left = count(); left > 0; --left) read_site();
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 24;
  static constexpr int64_t kMostKept = int64_t{1} << 48;

  // --- numbers ---

  int64_t word() {
    if (at_ >= words_) refuse("it ends too early");
    int64_t value;
    std::memcpy(&value, image_.data() + 8 * at_++, sizeof value);
    return value;
  }
  int64_t number(int64_t least, int64_t end) {
    const int64_t value = word();
    if (value < least || value >= end) refuse("a number is out of range");
    return value;
  }
  // Every entry of a list takes at least one word.
  int64_t count() { return number(0, words_ + 1); }
  Slot slot() { return static_cast<Slot>(number(0, static_cast<int64_t>(slots_))); }
  std::vector<Slot> slots(int64_t length) {
    std::vector<Slot> found;
    for (int64_t i = 0; i < length; ++i) found.push_back(slot());
    return found;
  }
  std::vector<int> places(size_t end) {
    std::vector<int> found;
    for (int64_t left = count(); left > 0; --left) {
      found.push_back(static_cast<int>(number(0, static_cast<int64_t>(end))));
    }
    return found;
  }

  // A length of -1 means that there is nothing.
  struct Blob {
    const char* data;
    int64_t length;
  };
  Blob blob() {
    const int64_t offset = word();
    const int64_t length = word();
    if (length == -1) return {nullptr, -1};
    const bool inside = offset >= 0 && length >= 0 && offset <= bytes_ && length <= bytes_ - offset;
    if (!inside) refuse("a text or blob lies outside");
    return {image_.data() + 8 * words_ + offset, length};
  }
  std::string text() {
    const Blob found = blob();
    return found.length < 0 ? "" : std::string(found.data, static_cast<size_t>(found.length));
  }

  // --- parts ---

  void read_header() {
    const auto size = static_cast<int64_t>(image_.size());
    if (size < 8 * kHeaderWords) refuse("it is shorter than its header");
    words_ = kHeaderWords;
    if (word() != kMagic) refuse("it does not begin like one");
    const int64_t version = word();
    if (version != kVersion) {
      throw Error("ValueError", "the plan's image has version " + std::to_string(version) +
                                    ", this library reads version " + std::to_string(kVersion));
    }
    const int64_t words = word();
    bytes_ = word();
    const bool fits = words >= kHeaderWords && words <= size / 8 && bytes_ == size - 8 * words;
    if (!fits) refuse("its length is not what its header says");
    const int64_t checksum = word();
    const auto rest = image_.subspan(8 * kHeaderWords);
    if (checksum != kUnchecked && checksum != crc32(rest)) refuse("its checksum is another");
    words_ = words;
  }

  void read_sizes() {
    for (int64_t left = count(); left > 0; --left) program_.constants.push_back(word());
    program_.free_sizes = static_cast<int>(number(0, kMost));
    slots_ = program_.constants.size() + static_cast<size_t>(program_.free_sizes);
    for (int64_t left = count(); left > 0; --left) {
      const auto operation = static_cast<Arithmetic>(number(0, 7));
      const Slot left_operand = slot();
      program_.sizes.push_back({operation, left_operand, slot()});
      ++slots_;
    }
    for (int64_t left = count(); left > 0; --left) {
      const auto relation = static_cast<Relation>(number(0, 3));
      const Slot left_operand = slot();
      const Slot right_operand = slot();
      program_.guards.push_back({relation, left_operand, right_operand, number(0, 2) != 0});
    }
  }

  void read_arrays() {
    for (int64_t left = count(); left > 0; --left) {
      InputSpec spec;
      spec.dtype = static_cast<int>(number(0, kDTypeCount));
      const int64_t flags = number(0, 16);
      spec.strided = (flags & InputSpec::kStrided) != 0;
      spec.written = (flags & InputSpec::kWritten) != 0;
      spec.fails = (flags & InputSpec::kFails) != 0;
      spec.read = (flags & InputSpec::kRead) != 0;
      const int64_t rank = number(0, kMaxRank + 1);
      spec.extents = slots(rank);
      if (spec.strided) spec.strides = slots(rank);
      for (const std::vector<Slot>* list : {&spec.extents, &spec.strides}) {
        for (Slot known : *list) check_known(known);
      }
      program_.writes_inputs |= spec.written;
      program_.inputs.push_back(std::move(spec));
    }
    for (int64_t left = count(); left > 0; --left) read_output();
  }

  // The extents and strides of an input must be constants or free sizes.
  void check_known(Slot slot) const {
    const size_t known = program_.constants.size() + static_cast<size_t>(program_.free_sizes);
    if (static_cast<size_t>(slot) >= known) refuse("an input's size is computed");
  }

  void read_output() {
    OutputSpec spec;
    spec.is_view = number(0, 2) == 1;
    spec.dtype = static_cast<int>(number(0, kDTypeCount));
    spec.space = static_cast<int>(number(0, 2));
    // Results are made in order, so a view can only be of an input or of an earlier output.
    const size_t known = spec.space == kInput ? program_.inputs.size() : program_.outputs.size();
    spec.index = static_cast<int>(number(0, spec.is_view ? static_cast<int64_t>(known) : 1));
    const int64_t rank = number(0, kMaxRank + 1);
    spec.extents = slots(rank);
    if (spec.is_view) {
      spec.strides = slots(rank);
      spec.offset = slot();
    }
    program_.outputs.push_back(std::move(spec));
  }

  void read_captured() {
    const Blob data = blob();
    if (data.length < 0) {
      if (next_captured_ == given_captured_.size()) refuse("it closes over more arrays than given");
      program_.captured.push_back(std::move(given_captured_[next_captured_++]));
      return;
    }
    Storage* made = Storage::create(static_cast<size_t>(data.length), 0);
    std::shared_ptr<Storage> storage(made, [](Storage* held) { held->release(); });
    if (data.length > 0 && made->materialize() == nullptr) throw std::bad_alloc();
    if (data.length > 0) std::memcpy(made->data(), data.data, static_cast<size_t>(data.length));
    program_.captured.push_back({std::move(storage), 0});
  }

  // This processor would not refuse code for another one: running it would crash the process.
  void check_target() {
    if (std::exchange(checked_, true)) return;
    const std::string missing = lacking(program_.target);
    if (missing.empty()) return;
    throw Error("DeviceError", program_.name + ": the image's kernels were made for \"" +
                                   program_.target + "\"; this machine has no " + missing +
                                   ": make the image with GEMEL_TARGET=avx2 or generic");
  }

  void read_kernel() {
    keys_.push_back(text());
    const Blob code = blob();
    if (code.length < 0) {
      if (next_kernel_ == given_kernels_.size()) refuse("it has more kernels than given");
      program_.kernels.push_back(std::move(given_kernels_[next_kernel_++]));
      return;
    }
    check_target();
    try {
      std::shared_ptr<Object> object = Object::load(code.data, static_cast<size_t>(code.length));
      program_.kernels.push_back({object, object->kernel()});
    } catch (const std::runtime_error& error) {
      throw Error("ValueError", program_.name + ": " + error.what());
    }
  }

  BufferReference buffer() {
    const size_t sizes[] = {program_.inputs.size(),      program_.outputs.size(),
                            program_.temporaries.size(), program_.captured.size(),
                            program_.windows.size(),     program_.kept.offsets.size()};
    BufferReference found;
    found.space = static_cast<int>(number(0, 6));
    found.index = static_cast<int>(number(0, static_cast<int64_t>(sizes[found.space])));
    found.offset = slot();
    if (found.space == kWindow && !open_[static_cast<size_t>(found.index)]) {
      refuse("a window is used outside of its loop");
    }
    const size_t arrays = sizes[kInput] + sizes[kOutput];
    const size_t workspace = arrays + sizes[kCaptured];
    const size_t before[] = {0, sizes[kInput], workspace, arrays, workspace + 2, workspace + 1};
    const bool together = found.space == kTemporary || found.space == kKept;
    const int within = together ? 0 : found.index;
    found.base = static_cast<int>(before[found.space]) + within;
    return found;
  }

  std::vector<Item> items(int depth) {
    if (depth > kDeepest) refuse("items lie too deep inside each other");
    std::vector<Item> found;
    for (int64_t left = count(); left > 0; --left) found.push_back(item(depth));
    return found;
  }

  Item item(int depth) {
    Item found;
    const int64_t kind = number(0, kResult + 1);
    if (kind == kResult) return read_result();
    const bool conditional = kind == kConditionalLoop;
    found.kind = conditional ? Item::Kind::kLoop : static_cast<Item::Kind>(kind);
    if (found.kind == Item::Kind::kKept) return read_kept();
    if (found.kind == Item::Kind::kStep) {
      found.number = next_number();
      found.step = static_cast<int>(program_.steps.size());
      program_.steps.push_back(step());
      return found;
    }
    if (found.kind == Item::Kind::kTogether) {
      found.number = program_.group_count++;
      for (int64_t left = count(); left > 0; --left) found.branches.push_back(items(depth + 1));
      return found;
    }
    found.number = next_number();
    ++inside_;
    if (found.kind == Item::Kind::kLoop) {
      read_loop(found, depth, conditional);
    } else {
      found.step = static_cast<int>(program_.predicates.size());
      program_.predicates.push_back(buffer());
      found.branches.push_back(items(depth + 1));
      found.branches.push_back(items(depth + 1));
    }
    --inside_;
    return found;
  }

  Item read_result() {
    Item found;
    found.kind = Item::Kind::kResult;
    found.number = -1;
    found.step = static_cast<int>(number(0, static_cast<int64_t>(program_.outputs.size())));
    if (inside_ > 0) refuse("a result is there inside a choice or a loop");
    if (program_.outputs[static_cast<size_t>(found.step)].is_view) {
      refuse("a result that is there is a view");
    }
    return found;
  }

  Item read_kept() {
    if (!program_.steps.empty() || program_.kept.bytes > 0 || inside_ > 0) {
      refuse("what is kept does not come first");
    }
    KeptSpec& kept = program_.kept;
    kept.inputs = places(program_.inputs.size());
    kept.captured = places(program_.captured.size());
    for (int input : kept.inputs) {
      if (program_.inputs[static_cast<size_t>(input)].written)
        refuse("what is kept is overwritten");
    }
    for (int64_t left = count(); left > 0; --left) {
      kept.offsets.push_back(static_cast<int64_t>(kept.bytes));
      kept.bytes += static_cast<size_t>(number(1, kMostKept) + 63) / 64 * 64;
    }
    Item found;
    found.kind = Item::Kind::kKept;
    found.number = -1;
    ++inside_;
    found.branches.push_back(items(1));
    --inside_;
    kept.kind = described(kept);
    return found;
  }

  // Everything that determines the kept values. All sizes in it are constants, the same for all
  // calls.
  std::string described(const KeptSpec& kept) const {
    std::string text;
    const auto add = [&](int64_t value) { text += std::to_string(value) + ' '; };
    const auto add_size = [&](Slot slot) {
      if (static_cast<size_t>(slot) >= program_.constants.size())
        refuse("what is kept has free sizes");
      add(program_.constants[static_cast<size_t>(slot)]);
    };
    for (const std::vector<int>* list : {&kept.inputs, &kept.captured}) {
      for (int index : *list) add(index);
      text += ';';
    }
    for (int64_t offset : kept.offsets) add(offset);
    add(static_cast<int64_t>(kept.bytes));
    for (const Step& step : program_.steps) {
      text += keys_[static_cast<size_t>(step.kernel)] + ';';
      for (const BufferReference& buffer : step.buffers) {
        add(buffer.space);
        add(buffer.index);
        add_size(buffer.offset);
      }
      for (Slot slot : step.integers) add_size(slot);
      add_size(step.extent);
    }
    return text;
  }

  void read_loop(Item& found, int depth, bool conditional) {
    found.step = static_cast<int>(program_.loops.size());
    LoopSpec loop;
    loop.rounds = slot();
    std::vector<Window> windows;  // their sources are outside the loop, not each other
    for (int64_t left = count(); left > 0; --left) {
      const BufferReference source = buffer();
      const Slot step = slot();
      const int64_t period = number(-static_cast<int64_t>(windows.size()), kMost);
      const int first = period < 0 ? static_cast<int>(-1 - period) : -1;
      windows.push_back({source, step, std::max<int64_t>(period, 0), first});
    }
    loop.first_window = static_cast<int>(program_.windows.size());
    loop.window_count = static_cast<int>(windows.size());
    program_.windows.insert(program_.windows.end(), windows.begin(), windows.end());
    open_.resize(program_.windows.size(), true);
    if (conditional) {
      loop.condition = static_cast<int>(program_.predicates.size());
      program_.predicates.push_back(buffer());
    }
    program_.loops.push_back(loop);
    found.branches.push_back(items(depth + 1));
    if (conditional) found.branches.push_back(items(depth + 1));
    std::fill_n(open_.begin() + loop.first_window, loop.window_count, false);
  }

  // Sites do not count what is inside a choice or a loop, or kept.
  int next_number() { return inside_ > 0 ? -1 : program_.item_count++; }

  Step step() {
    Step found;
    found.kernel = static_cast<int>(number(0, static_cast<int64_t>(program_.kernels.size())));
    for (int64_t left = count(); left > 0; --left) found.buffers.push_back(buffer());
    found.integers = slots(count());
    found.extent = slot();
    found.chunk = slot();
    for (int64_t left = count(); left > 0; --left) {
      const auto position = number(0, static_cast<int64_t>(found.integers.size()));
      const auto source = number(-1 - program_.random, program_.scalars);
      found.patches.push_back(
          {static_cast<int>(position), static_cast<int>(source), number(0, 2) != 0});
    }
    found.cost = slot();
    found.failure.type = text();
    found.failure.message = text();
    found.label = text();
    found.label_sizes = slots(count());
    return found;
  }

  void read_site() {
    Site site;
    const auto items = static_cast<size_t>(program_.item_count);
    site.item = static_cast<int>(number(0, program_.item_count));
    for (const Site& other : program_.sites) {
      if (other.item == site.item) refuse("two sites speak of one item");
    }
    site.skipped = places(items);
    site.outputs = places(program_.outputs.size());
    site.inputs = places(program_.inputs.size());
    for (int later : site.skipped) {
      if (later <= site.item) refuse("a site skips what has run");
    }
    for (int input : site.inputs) {
      if (!program_.inputs[static_cast<size_t>(input)].written) refuse("a site fails what is read");
    }
    program_.sites.push_back(std::move(site));
  }

  std::span<const char> image_;
  Program& program_;
  std::vector<Kernel> given_kernels_;
  std::vector<Captured> given_captured_;
  std::vector<std::string> keys_;  // of the kernels
  size_t next_kernel_ = 0;
  size_t next_captured_ = 0;
  int64_t words_ = 0;
  int64_t bytes_ = 0;
  int64_t at_ = 0;
  size_t slots_ = 0;
  bool checked_ = false;    // whether the target of the image's kernels has been checked
  int inside_ = 0;          // how many choices and loops the current item is inside of
  std::vector<bool> open_;  // for each window: whether what is being read is inside its loop
};

}  // namespace

std::shared_ptr<const Program> Program::read(std::span<const char> image,
                                             std::vector<Kernel> kernels,
                                             std::vector<Captured> captured,
                                             std::shared_ptr<Keeper> keeper) {
  auto program = std::make_shared<Program>();
  program->keeper = std::move(keeper);
  Reader(image, *program, std::move(kernels), std::move(captured)).read();
  return program;
}

}  // namespace gemel
