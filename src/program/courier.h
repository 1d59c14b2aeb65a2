// A courier sums arrays over several processes. Its own thread sleeps on their sockets.
//
// Every process issues the same sums. A sum is identified by its tag and its turn, so sums may
// start in any order in any process, without asking the others. Data that arrives before its sum
// has started here is kept. Elements are added in the order of ranks, whatever data travels
// together, so the result is always the same.

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
  // The state of a courier; may be asked for on any thread.
  struct State {
    std::string problem;       // if not empty: why it cannot go on; it has to be closed
    uint64_t open = 0;         // sums that have been issued and have not ended
    double waiting = 0;        // since the oldest open sum started here, in seconds
    std::string name;          // of that sum
    std::vector<int> missing;  // ranks whose part of that sum has not arrived
    uint64_t sums = 0;         // sums that have ended successfully
    double seconds = 0;        // how long these were open, in total
    double worked = 0;         // CPU time that its thread has used, in seconds
  };

  // Who sends first, the thread that brings a sum or the courier's own.
  enum class Sender { kEither, kBringer, kOwn };

  // Takes ownership of one connected stream socket for each rank; -1 for its own. `kEither`: if all
  // cores compute, its own thread might have to wait for one, so it does not send first.
  Courier(int rank, const std::vector<int>& sockets, Sender sender = Sender::kEither);
  ~Courier();  // closes the sockets, which tells the others that it is gone

  // Returns the number of the next sum with this tag. Its errand has to be issued to the desk with
  // this number. Items are float (4 bytes) or double (8 bytes).
  uint64_t number(uint64_t tag, const std::string& name, int item_bytes, int priority);
  std::shared_ptr<Desk> desk();
  State state() const;
  // Open sums and later ones fail with this. The sockets stay open.
  void close(const FailurePointer& failure);

 private:
  std::unique_ptr<CourierWork> work_;
};

}  // namespace gemel
