#include "python/waits.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "program/meeting.h"
#include "python/failures.h"
#include "python/flags.h"
#include "python/origins.h"

namespace gemel {
namespace {

std::atomic<bool> exiting{false};
std::atomic<std::thread::id> exits;

// At the exit of the process, a thread other than the exiting one goes no further than here. The
// GIL is not held.
void stop_at_exit() {
  if (!exiting.load(std::memory_order_acquire) || inside_operation()) return;
  if (exits.load() != std::this_thread::get_id()) sleep_for_ever();
}

}  // namespace

void stop_other_threads() {
  exits.store(std::this_thread::get_id());
  exiting.store(true);
}

GilLeft::~GilLeft() {
  into_python([this] {
    PyEval_RestoreThread(state_);
    return 0;
  });
}

WithoutGil::~WithoutGil() { stop_at_exit(); }

GilHeld::GilHeld() : state_(into_python(PyGILState_Ensure)) {}

namespace {

// How long a thread waits for a meeting that only other threads can complete.
constexpr std::chrono::seconds kPatience{60};

bool is_only_thread() {
  PyThreadState* first = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
  return first != nullptr && PyThreadState_Next(first) == nullptr;
}

}  // namespace

void call_off_meetings() {
  if (!Meeting::any_open()) return;
  Meeting::fail_open(
      "a result was waited for before all devices had come: run the forward of every device, and "
      "the backward of every device, before waiting for a result of one",
      is_only_thread() ? std::chrono::seconds{0} : kPatience);
}

bool interrupted_by_signal() {
  stop_at_exit();
  GilHeld held;
  call_off_meetings();
  return PyErr_CheckSignals() != 0;
}

TracedWait::TracedWait(trace::WaitKind kind, const Storage* storage) {
  if (!trace::active()) return;
  record_.kind = kind;
  record_.thread = trace::this_thread();
  if (storage != nullptr) record_.operation = trace::writer_of(storage);
  record_.origin = current_origin();
  record_.started = trace::now();
}

TracedWait::~TracedWait() {
  if (record_.started == 0) return;
  record_.finished = trace::now();
  trace::waited(record_);
}

namespace {

// While a meeting is open, this many operations may be pending, whatever the bound of the queue.
constexpr uint64_t kMostForMeetings = 1 << 16;

[[noreturn]] void throw_interrupted() {
  if (!PyErr_Occurred()) PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw PythonError{};
}

// The operations that fill the queue may be waiting for the next one that is issued.
bool needs_no_room() {
  const Engine& engine = Engine::get();
  return !engine.serial() && Meeting::any_open() && engine.counters().pending < kMostForMeetings;
}

// What ends the wait for room.
bool interrupted_or_needed() { return needs_no_room() || interrupted_by_signal(); }

class PythonFront final : public Front {
 public:
  // The GIL must not be held during anything that may block.
  void issue(std::unique_ptr<Operation> operation) override {
    Engine& engine = Engine::get();
    operation->priority = thread_flags.priority;
    if (!engine.may_block()) {
      engine.issue(std::move(operation));
      return;
    }
    if (needs_no_room()) {
      const InsideOperation no_room_needed;
      engine.issue(std::move(operation));
      return;
    }
    std::optional<TracedWait> traced;
    if (!engine.serial()) traced.emplace(trace::WaitKind::kQueue);
    bool patient;
    {
      WithoutGil released;
      stop_at_exit();
      patient = engine.issue(std::move(operation), interrupted_or_needed);
    }
    if (!patient && PyErr_Occurred()) throw PythonError{};
  }
  Origin origin() override { return current_origin(); }
  void wait_until_idle(Storage* storage) override {
    wait([&] { return Engine::get().wait_idle(storage, interrupted_by_signal); });
  }
  void wait_until_written(Storage* storage) override {
    if (Engine::ready(storage)) return;
    // Counted with the GIL: what other threads issue once it is dropped is not waited for.
    const uint64_t writes = Engine::writes_issued(storage);
    wait([&] { return Engine::get().wait(storage, writes, interrupted_by_signal); });
  }

 private:
  template <typename Wait>
  static void wait(Wait&& until) {
    bool finished;
    {
      WithoutGil released;
      finished = until();
    }
    if (!finished) throw_interrupted();
  }
};

}  // namespace

void wait_for(Storage* storage, trace::WaitKind kind) {
  Engine& engine = Engine::get();
  if (!Engine::ready(storage)) {
    bool finished;
    TracedWait traced(kind, storage);
    const uint64_t writes = Engine::writes_issued(storage);
    {
      WithoutGil released;
      finished = engine.wait(storage, writes, interrupted_by_signal);
    }
    if (!finished) throw_interrupted();
  }
  const FailurePointer failure = storage->failure();
  if (failure == nullptr) return;
  raise_failure(failure);
  throw PythonError{};
}

Front& python_front() {
  static PythonFront front;
  return front;
}

}  // namespace gemel
