// Why an operation failed, and where it was issued.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace gemel {

// A place in a program that only the front end can interpret. The front end derives from this class
// and keeps each place at least as long as `users` is not 0. Origins are created and destroyed on
// any thread, without a lock and without Python.
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

// Shared by all storages that it reaches; immutable except for `seen`.
struct Failure {
  std::string type;  // name of the exception class, e.g. "IndexError"
  std::string message;
  Origin origin;
  // Whatever the front end wants back when a wait raises the failure, such as a Python exception.
  // Its deleter may run on any thread.
  std::shared_ptr<void> payload;
  mutable std::atomic<bool> seen{false};  // set when the failure is raised or listed

  Failure(std::string type_name, std::string text, Origin where = {},
          std::shared_ptr<void> kept = nullptr)
      : type(std::move(type_name)),
        message(std::move(text)),
        origin(std::move(where)),
        payload(std::move(kept)) {}
};
using FailurePointer = std::shared_ptr<const Failure>;

// How to describe a failure: by its message, or with what a front end knows in addition.
using DescribeFunction = std::string (*)(const Failure&);
inline std::string message_of(const Failure& failure) { return failure.message; }

}  // namespace gemel
