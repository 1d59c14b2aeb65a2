#include "program/kept.h"

#include <algorithm>
#include <utility>

namespace gemel {
namespace {

// Whether some storage has been written between the first sources and the others.
bool older(const std::vector<Source>& first, const std::vector<Source>& others) {
  return std::ranges::any_of(first, [&](const Source& one) {
    return std::ranges::any_of(others, [&](const Source& other) {
      return one.storage == other.storage && one.contents < other.contents;
    });
  });
}

}  // namespace

Keeper::Memory Keeper::find(const void* place, const std::string& kind,
                            std::span<const Source> sources) {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  for (auto set = sets_.begin(); set != sets_.end(); ++set) {
    if (set->place != place || set->kind != kind) continue;
    if (!std::ranges::equal(set->sources, sources)) return nullptr;
    Memory found = set->memory;
    std::rotate(set, set + 1, sets_.end());
    return found;
  }
  return nullptr;
}

void Keeper::keep(const void* place, const std::string& kind, std::span<const Source> sources,
                  Memory memory) {
  Set made{place, kind, {sources.begin(), sources.end()}, std::move(memory)};
  std::vector<Set> dropped;  // destroyed after the lock is released
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || closed_) return;
  // Values made from contents that no longer exist are useless, whatever their kind.
  const auto useless = [&](const Set& set) {
    return set.place == place && (set.kind == kind || older(set.sources, made.sources));
  };
  const auto left = std::stable_partition(sets_.begin(), sets_.end(),
                                          [&](const Set& set) { return !useless(set); });
  std::move(left, sets_.end(), std::back_inserter(dropped));
  sets_.erase(left, sets_.end());
  const auto here = [&](const Set& set) { return set.place == place; };
  if (std::ranges::count_if(sets_, here) >= kMostSets) {
    const auto oldest = std::ranges::find_if(sets_, here);
    dropped.push_back(std::move(*oldest));
    sets_.erase(oldest);
  }
  sets_.push_back(std::move(made));
  lock.unlock();
}

void Keeper::close() {
  std::vector<Set> dropped;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  closed_ = true;
  sets_.swap(dropped);
  lock.unlock();
}

}  // namespace gemel
