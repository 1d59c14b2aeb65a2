// The ends of operations on a stream.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/driver.h"
#include "engine/completion.h"

namespace gemel::cuda {

// Ends operations when what they have put on a stream has happened. A thread waits for that: an
// event at the end of the stream serves all operations that were added before it.
class Arrivals {
 public:
  Arrivals(const Driver& driver, Context context, Stream stream)
      : driver_(driver), context_(context), stream_(stream) {}

  // Calls `done` when everything that is on the stream by now has happened.
  void add(Completion done);

  FailurePointer failure(const char* action, Result result) const;

 private:
  void run();
  Result wait_for(Event event) const;

  const Driver& driver_;
  const Context context_;
  const Stream stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Completion> waiting_;
  bool started_ = false;
  bool asleep_ = false;
};

}  // namespace gemel::cuda
