// Sums over the arrays of several processes, by a thread of its own that sleeps on their sockets.
//
// Every process issues the same sums; a sum is known by its tag and its turn, so they may start in
// any order anywhere, and nobody has to be asked. What comes before its sum has started here is
// kept. Elements are added up in the order of ranks, whatever travels together.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "program/desk.h"

namespace gemel {

class CourierWork;  // program/courier_work.h

class Courier {
 public:
  // What is told of it, from any thread.
  struct State {
    std::string problem;       // why nothing goes on, if so: it is to be closed then
    uint64_t open = 0;         // sums that are issued and have not ended
    double waiting = 0;        // seconds since the oldest sum that is open has started here
    std::string name;          // of that one
    std::vector<int> missing;  // ranks whose part of it is not here
    uint64_t sums = 0;         // that have ended well
    double seconds = 0;        // that these were open, together
    double worked = 0;         // seconds of a core its thread has taken
  };

  // Takes over a connected stream socket for each rank; -1 for its own.
  Courier(int rank, const std::vector<int>& sockets);
  ~Courier();  // closes the sockets: others see that it is gone

  // The next turn of a tag, whose errand is to be issued to the desk by this number. Items are
  // float (4 bytes) or double (8).
  uint64_t number(uint64_t tag, const std::string& name, int item_bytes, int priority);
  std::shared_ptr<Desk> desk();
  State state() const;
  // What is open and what comes from now on fails with this; the sockets stay as they are.
  void close(const FailurePointer& failure);

 private:
  std::unique_ptr<CourierWork> work_;
};

}  // namespace gemel
