// All work reaches the engine through launch(): elementwise calls, plans, copies and callbacks. The
// call does the work itself when that is quickest, otherwise it hands the work over.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace gemel {

using PartialFailures = std::vector<std::pair<Storage*, FailurePointer>>;

// The parts in which front ends differ.
class Front {
 public:
  virtual ~Front() = default;
  // Hands the operation over. Throws when the wait for room in the queue was interrupted; the
  // operation has been issued nevertheless.
  virtual void issue(std::unique_ptr<Operation> operation) = 0;
  // Where the call was made.
  virtual Origin origin() = 0;
  // Waits until nothing is pending on the storage; throws when interrupted.
  virtual void wait_until_idle(Storage* storage) = 0;
  // Waits until every operation issued so far that writes the storage has ended.
  virtual void wait_until_written(Storage* storage) = 0;
};

// One unit of work, on the stack of the call that issues it. The lists may name a storage twice.
class Launch {
 public:
  virtual ~Launch() = default;
  // Does the work. `partial` is as in Operation. Failures have no origin yet.
  virtual FailurePointer run(PartialFailures& partial) = 0;
  // The same work as an operation, for later. launch() fills in its reads, writes, cost and origin.
  virtual std::unique_ptr<Operation> later() = 0;

  Storage** reads = nullptr;
  int read_count = 0;
  // First the targets, which other code knows, then new results.
  Storage** writes = nullptr;
  int write_count = 0;
  int known_writes = 0;
  double microseconds = 0;
  size_t workspace = 0;
  int device = 0;
  int lane = -1;            // -1: the lane of the device
  bool only_later = false;  // the call never does this work itself
};

// Throws only what `front` throws; any other error becomes a failure of the written storages.
void launch(Launch& work, Front& front);

// A copy of the failure with the place where its operation was issued. locate() does this for all
// failures of a list, and keeps equal ones equal.
FailurePointer located(const FailurePointer& failure, const Origin& origin);
void locate(PartialFailures& partial, const Origin& origin);

}  // namespace gemel
