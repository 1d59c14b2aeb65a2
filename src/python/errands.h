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

// The arrays of all parties of a meeting, as one new array.
Reference join_meeting(Meeting& meeting, int rank, int parties, PyObject* array);
// A tuple of new arrays, which `results` describes. An errand over the sequence `inputs` of arrays
// fills them.
Reference issue_errand(Desk& desk, uint64_t number, const std::string& name, PyObject* inputs,
                       PyObject* results, int device);
// The next errand; waits without the GIL.
std::shared_ptr<Errand> take_errand(Desk& desk, double seconds);
// A tuple of the memory of the parts, valid only until the errand ends.
Reference memories(const std::vector<Errand::Part>& parts, bool writable);
// None, or the reason why the errand cannot be done.
Reference failure_of(const Errand& errand);
// Without a failure (type, message) the errand has succeeded.
void end_errand(Errand& errand, const std::optional<std::tuple<std::string, std::string>>& failure);
void close_desk(Desk& desk, const std::string& type, const std::string& message);
// The tuple has the members of Courier::State: problem, open, waiting, name, missing, sums,
// seconds, worked.
std::tuple<std::string, uint64_t, double, std::string, std::vector<int>, uint64_t, double, double>
state_of(Courier& courier);
void close_courier(Courier& courier, const std::string& type, const std::string& message);

}  // namespace gemel
