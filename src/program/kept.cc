#include "program/kept.h"

#include <algorithm>
#include <utility>

namespace gemel {

Keeper::Memory Keeper::find(const void* place, std::span<const Source> sources) {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return nullptr;
  for (const Entry& entry : entries_) {
    if (entry.place == place && std::ranges::equal(entry.sources, sources)) return entry.memory;
  }
  return nullptr;
}

void Keeper::keep(const void* place, std::span<const Source> sources, Memory memory) {
  Entry made{place, {sources.begin(), sources.end()}, std::move(memory)};
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (Entry& entry : entries_) {
    if (entry.place != place) continue;
    std::swap(entry, made);
    lock.unlock();  // what was kept goes without it
    return;
  }
  entries_.push_back(std::move(made));
}

void Keeper::drop() {
  std::vector<Entry> dropped;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  entries_.swap(dropped);
  lock.unlock();
}

}  // namespace gemel
