#include "program/meeting.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "program/error.h"

namespace gemel {
namespace {

// The open meetings; there are few at a time. The lock of a single meeting is never acquired while
// this lock is held.
std::mutex& all_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::vector<Meeting*>& all_open() {
  static auto* meetings = new std::vector<Meeting*>;
  return *meetings;
}
std::atomic<int> open_count{0};

int lane_of_meetings() {
  static const int lane = Engine::get().add_lane({.name = "meetings", .ended_outside = true});
  return lane;
}

FailurePointer called_off(const std::string& why) {
  return std::make_shared<const Failure>("DeviceError", why);
}

}  // namespace

class MeetingOperation final : public Operation {
 public:
  MeetingOperation(std::shared_ptr<Meeting> meeting, int rank, Place from, Place to)
      : meeting_(std::move(meeting)), rank_(rank), from_(from), to_(to) {
    from_.storage->retain();
  }
  // If its array has failed, the operation is destroyed without having been started. Then nobody
  // has to wait for it.
  ~MeetingOperation() override {
    if (!started_) {
      const FailurePointer reason = from_.storage->failure();
      meeting_->fail(reason != nullptr ? reason : called_off(meeting_->name_ + ": called off"));
    }
    from_.storage->release();
  }
  void start(Completion done) override {
    started_ = true;
    // When arrive() returns, the operation may have been destroyed.
    const std::shared_ptr<Meeting> meeting = meeting_;
    meeting->arrive(rank_, {from_, to_, std::move(done)});
  }
  std::string name() const override { return meeting_->name_; }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const int rank_;
  const Place from_;
  const Place to_;
  bool started_ = false;
};

namespace {

class MeetingLaunch final : public Launch {
 public:
  MeetingLaunch(std::shared_ptr<Meeting> meeting, int rank, const Tensor& given,
                const Tensor& taken)
      : meeting_(std::move(meeting)), rank_(rank), given_(given), taken_(taken) {
    reads = reads_;
    writes = writes_;
    reads_[read_count++] = given.storage;
    writes_[write_count++] = taken.storage;
    device = taken.device();
    lane = lane_of_meetings();
    microseconds = 50;
    only_later = true;
  }
  // Never called: this work is always done later.
  FailurePointer run(PartialFailures&) override { return nullptr; }
  std::unique_ptr<Operation> later() override {
    const Place from{given_.storage, given_.offset * item_size(given_.dtype)};
    const Place to{taken_.storage, taken_.offset * item_size(taken_.dtype)};
    return std::make_unique<MeetingOperation>(meeting_, rank_, from, to);
  }

 private:
  std::shared_ptr<Meeting> meeting_;
  int rank_;
  const Tensor& given_;
  const Tensor& taken_;
  Storage* reads_[1];
  Storage* writes_[1];
};

}  // namespace

Meeting::Meeting(int parties, std::string name)
    : name_(std::move(name)),
      came_(static_cast<size_t>(parties)),
      arrivals_(static_cast<size_t>(parties)) {}

std::shared_ptr<Meeting> Meeting::make(int parties, std::string name) {
  if (parties < 1) throw Error("ValueError", name + ": a meeting has one party at least");
  return std::shared_ptr<Meeting>(new Meeting(parties, std::move(name)));
}

Meeting::~Meeting() { set_open(false); }

void Meeting::join(int rank, const Tensor& given, const Tensor& taken, Front& front) {
  if (Engine::get().serial()) {
    throw Error("RuntimeError", name_ + ": devices cannot meet with GEMEL_ENGINE=serial");
  }
  {
    const std::lock_guard guard(mutex_);
    const auto size = static_cast<size_t>(given.bytes());
    const auto place = static_cast<size_t>(rank);
    if (rank < 0 || place >= came_.size() || came_[place]) {
      throw Error("ValueError", name_ + ": rank " + std::to_string(rank) + " of " +
                                    std::to_string(came_.size()) + " cannot come (again)");
    }
    const bool fits = static_cast<size_t>(taken.bytes()) == size * came_.size();
    if (!fits || (joined_ > 0 && size != bytes_)) {
      throw Error("ShapeError", name_ + ": the devices bring arrays of different sizes");
    }
    bytes_ = size;
    came_[place] = true;
    if (joined_ == 0) began_ = std::chrono::steady_clock::now();
    ++joined_;
  }
  MeetingLaunch work(shared_from_this(), rank, given, taken);
  launch(work, front);
  // Marked as open only after launch(): while a meeting is open, no thread waits for room in the
  // queue.
  const std::lock_guard guard(mutex_);
  set_open(joined_ < static_cast<int>(came_.size()) && failure_ == nullptr);
}

bool Meeting::open() const {
  const std::lock_guard guard(mutex_);
  return !called_off_ && joined_ < static_cast<int>(came_.size());
}

void Meeting::arrive(int rank, Arrival arrival) {
  std::vector<std::optional<Arrival>> finished;
  {
    const std::lock_guard guard(mutex_);
    if (failure_ == nullptr) {
      arrivals_[static_cast<size_t>(rank)] = std::move(arrival);
      if (++arrived_ < static_cast<int>(arrivals_.size())) return;
      deliver();
      finished = std::move(arrivals_);
    }
  }
  if (finished.empty()) arrival.done(failure_);
  for (std::optional<Arrival>& one : finished) one->done();
}

// All parties have arrived.
void Meeting::deliver() {
  if (bytes_ == 0) return;
  for (const std::optional<Arrival>& receiver : arrivals_) {
    auto* to = static_cast<char*>(receiver->to.address());
    for (const std::optional<Arrival>& sender : arrivals_) {
      std::memcpy(to, sender->from.address(), bytes_);
      to += bytes_;
    }
  }
}

void Meeting::fail(const FailurePointer& failure, bool over) {
  std::vector<std::optional<Arrival>> waiting(came_.size());
  {
    const std::lock_guard guard(mutex_);
    called_off_ |= over;
    if (failure_ != nullptr || arrivals_.empty()) return;
    failure_ = failure;
    waiting.swap(arrivals_);
    set_open(false);
  }
  for (std::optional<Arrival>& one : waiting) {
    if (one) one->done(failure);
  }
}

// `mutex_` is held, or nobody else knows this meeting any more.
void Meeting::set_open(bool open) {
  if (open == open_) return;
  open_ = open;
  const std::lock_guard guard(all_mutex());
  if (open) {
    all_open().push_back(this);
  } else {
    std::erase(all_open(), this);
  }
  open_count.store(static_cast<int>(all_open().size()));
}

bool Meeting::any_open() noexcept { return open_count.load(std::memory_order_relaxed) > 0; }

void Meeting::fail_open(const std::string& why, std::chrono::seconds age) {
  std::vector<std::shared_ptr<Meeting>> found;
  {
    const std::lock_guard guard(all_mutex());
    for (Meeting* meeting : all_open()) {
      // Skips a meeting that is being destroyed.
      if (auto held = meeting->weak_from_this().lock()) found.push_back(std::move(held));
    }
  }
  const auto now = std::chrono::steady_clock::now();
  for (const std::shared_ptr<Meeting>& meeting : found) {
    if (now - meeting->began_ >= age) meeting->fail(called_off(meeting->name_ + ": " + why), true);
  }
}

}  // namespace gemel
