// The one way of all work to the engine: an elementwise call, a plan, a copy or a callback, done
// here and now when that is quickest, else handed over.

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace gemel {

using PartialFailures = std::vector<std::pair<Storage*, FailurePointer>>;

// What differs between front ends.
class Front {
 public:
  virtual ~Front() = default;
  // Hands over. Throws when the wait for room in the queue was interrupted: it has been issued all
  // the same.
  virtual void issue(std::unique_ptr<Operation> operation) = 0;
  // Where the call comes from.
  virtual Origin origin() = 0;
  // Waits until nothing is pending on the storage; throws when interrupted.
  virtual void wait_until_idle(Storage* storage) = 0;
  // The same until everything issued so far that writes the storage has ended.
  virtual void wait_until_written(Storage* storage) = 0;
};

// One unit of work on the stack of the call that issues it. `Storage*`s may be listed twice.
class Launch {
 public:
  virtual ~Launch() = default;
  // Does the work. `partial` as in Operation; failures have no origin yet.
  virtual FailurePointer run(PartialFailures& partial) = 0;
  // The same, to be done later: an operation whose reads, writes, cost and origin are filled in by
  // launch().
  virtual std::unique_ptr<Operation> later() = 0;

  Storage** reads = nullptr;
  int read_count = 0;
  // First those others know (targets), then new results.
  Storage** writes = nullptr;
  int write_count = 0;
  int known_writes = 0;
  double microseconds = 0;
  size_t workspace = 0;
  int device = 0;
  int lane = -1;            // the device's own
  bool only_later = false;  // never by this call
};

// Throws what `front` throws; what fails otherwise becomes a failure of what is written.
void launch(Launch& work, Front& front);

// The failure, with where it was issued; and all of several, each once.
FailurePointer located(const FailurePointer& failure, const Origin& origin);
void locate(PartialFailures& partial, const Origin& origin);

}  // namespace gemel
