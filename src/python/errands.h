// Errands and meetings as Python sees them.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "program/courier.h"
#include "program/desk.h"
#include "program/meeting.h"
#include "python/callback.h"

namespace gemel {

// What all parties of a meeting bring, as one new array.
Reference join_meeting(Meeting& meeting, int rank, int parties, PyObject* array);
// A tuple of new arrays as `results` describes them, which an errand over a sequence of arrays
// fills.
Reference issue_errand(Desk& desk, uint64_t number, const std::string& name, PyObject* inputs,
                       PyObject* results, int device);
// The next; without the GIL meanwhile.
std::shared_ptr<Errand> take_errand(Desk& desk, double seconds);
// A tuple with the memory of the parts, which is only valid until the errand's end.
Reference memories(const std::vector<Errand::Part>& parts, bool writable);
// None, or why it cannot be done.
Reference failure_of(const Errand& errand);
// Without a text it is done.
void end_errand(Errand& errand, const std::optional<std::tuple<std::string, std::string>>& failure);
void close_desk(Desk& desk, const std::string& type, const std::string& message);
// problem, open, waiting, name, missing, sums, seconds, worked: see Courier::State.
std::tuple<std::string, uint64_t, double, std::string, std::vector<int>, uint64_t, double, double>
state_of(Courier& courier);
void close_courier(Courier& courier, const std::string& type, const std::string& message);

}  // namespace gemel
