#include "program/launch.h"

#include <algorithm>
#include <new>

namespace gemel {
namespace {

bool materialize_new(const Launch& work) {
  for (int i = work.known_writes; i < work.write_count; ++i) {
    Storage* storage = work.writes[i];
    if (storage->data() == nullptr && storage->materialize() == nullptr) return false;
  }
  return true;
}

const FailurePointer* failure_of(const Storage* storage, const PartialFailures& partial) {
  for (const auto& [failed, reason] : partial) {
    if (failed == storage) return &reason;
  }
  return nullptr;
}

// Releases what was acquired, each storage with its own failure.
[[gnu::cold]] void release_failed(Launch& work, FailurePointer failure, PartialFailures& partial,
                                  Front& front) {
  Engine& engine = Engine::get();
  if (failure != nullptr) {
    for (int i = 0; i < work.write_count; ++i) partial.emplace_back(work.writes[i], failure);
  }
  locate(partial, front.origin());  // the origin is looked up only now, since failures are rare
  for (const auto& [storage, reason] : partial) {
    if (storage == nullptr) engine.report(reason);
  }
  for (int i = 0; i < work.write_count; ++i) {
    Storage** write = &work.writes[i];
    const FailurePointer* reason = failure_of(*write, partial);
    // No other code knows the new results, so acquiring them cannot fail.
    const bool acquired = i < work.known_writes ||
                          (reason != nullptr && engine.acquire_inline(nullptr, 0, write, 1, 0));
    if (acquired) {
      engine.release_inline(nullptr, 0, write, 1, reason == nullptr ? nullptr : *reason);
    }
  }
  engine.release_inline(work.reads, work.read_count, nullptr, 0);
}

bool run_here(Launch& work, Front& front) {
  Engine& engine = Engine::get();
  if (!engine.acquire_inline(work.reads, work.read_count, work.writes, work.known_writes,
                             work.microseconds)) {
    return false;
  }
  if (!materialize_new(work)) {
    // Hands the work over instead: the engine then reports the missing memory as it always does.
    engine.release_inline(work.reads, work.read_count, work.writes, work.known_writes);
    return false;
  }
  PartialFailures partial;
  FailurePointer failure;
  try {
    failure = work.run(partial);
  } catch (const std::bad_alloc&) {  // what was acquired must be released
    failure = std::make_shared<const Failure>("MemoryError", "out of memory");
  }
  if (failure == nullptr && partial.empty()) {
    engine.release_inline(work.reads, work.read_count, work.writes, work.known_writes);
  } else {
    release_failed(work, std::move(failure), partial, front);
  }
  return true;
}

void hand_over(Launch& work, Front& front) {
  std::unique_ptr<Operation> operation = work.later();
  operation->reads.assign(work.reads, work.reads + work.read_count);
  operation->writes.assign(work.writes, work.writes + work.write_count);
  operation->microseconds = work.microseconds;
  operation->workspace = work.workspace;
  operation->device = work.device;
  operation->lane = work.lane;
  operation->origin = front.origin();
  front.issue(std::move(operation));
}

bool any_exported(Storage* const* storages, int count) {
  return std::any_of(storages, storages + count, [](Storage* s) { return s->exported(); });
}

// Once its writes are there, the work has ended, so its reads are over too. Waiting until the
// exported storages are idle instead could mean waiting for the operation this thread is in.
void settle(const Launch& work, Front& front) {
  for (int i = 0; i < work.write_count; ++i) front.wait_until_written(work.writes[i]);
  if (work.write_count > 0) return;
  for (int i = 0; i < work.read_count; ++i) front.wait_until_idle(work.reads[i]);
}

}  // namespace

void launch(Launch& work, Front& front) {
  // Other devices always do their work themselves, even work that reads nothing.
  const bool later = work.only_later || !Engine::on_host(work.device);
  if (later || !run_here(work, front)) hand_over(work, front);
  // Inside an operation, the wait could be for that very operation.
  if (Storage::all_exports() == 0 || inside_operation()) return;
  const bool shared =
      any_exported(work.reads, work.read_count) || any_exported(work.writes, work.known_writes);
  if (shared) settle(work, front);
}

FailurePointer located(const FailurePointer& failure, const Origin& origin) {
  return std::make_shared<const Failure>(failure->type, failure->message, origin, failure->payload);
}

void locate(PartialFailures& partial, const Origin& origin) {
  std::vector<std::pair<FailurePointer, FailurePointer>> known;
  for (auto& [storage, failure] : partial) {
    const auto same = [&](const auto& pair) { return pair.first == failure; };
    auto found = std::find_if(known.begin(), known.end(), same);
    if (found == known.end()) {
      found = known.insert(known.end(), {failure, located(failure, origin)});
    }
    failure = found->second;
  }
}

}  // namespace gemel
