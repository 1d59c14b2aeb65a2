// Why an operation did not deliver, and where it was issued.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gemel {

// A place in a program only the front end can read: it derives from this, and keeps each at least
// while `users` is not 0. Origins come and go on any thread, without a lock and without Python.
struct OriginPlace {
  std::atomic<uint32_t> users{0};
};

// Where an operation was issued: a place, and a position within it. Empty when unknown.
class Origin {
 public:
  Origin() = default;
  Origin(OriginPlace* place, int position) : place_(place), position_(position) { enter(); }
  Origin(const Origin& other) noexcept : place_(other.place_), position_(other.position_) {
    enter();
  }
  Origin(Origin&& other) noexcept
      : place_(std::exchange(other.place_, nullptr)), position_(other.position_) {}
  Origin& operator=(Origin other) noexcept {
    std::swap(place_, other.place_);
    std::swap(position_, other.position_);
    return *this;
  }
  ~Origin() {
    if (place_ != nullptr) place_->users.fetch_sub(1, std::memory_order_release);
  }
  OriginPlace* place() const noexcept { return place_; }
  int position() const noexcept { return position_; }

 private:
  void enter() const noexcept {
    if (place_ != nullptr) place_->users.fetch_add(1, std::memory_order_relaxed);
  }

  OriginPlace* place_ = nullptr;
  int position_ = 0;
};

// Shared by every storage it reaches; never changes.
struct Failure {
  std::string type;  // name of the exception class, e.g. "IndexError"
  std::string message;
  Origin origin;
  // Whatever the front end wants back when somebody waits, e.g. a Python exception. Its deleter may
  // run on any thread.
  std::shared_ptr<void> payload;
  mutable std::atomic<bool> seen{false};  // set by whoever raises it

  Failure(std::string type_name, std::string text, Origin where = {},
          std::shared_ptr<void> kept = nullptr)
      : type(std::move(type_name)),
        message(std::move(text)),
        origin(std::move(where)),
        payload(std::move(kept)) {}
};
using FailurePointer = std::shared_ptr<const Failure>;

// What to say of a failure: its message, or what a front end knows besides.
using DescribeFunction = std::string (*)(const Failure&);
inline std::string message_of(const Failure& failure) { return failure.message; }

}  // namespace gemel
