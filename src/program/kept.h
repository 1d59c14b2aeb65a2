// Values that programs keep from run to run because they depend on inputs that rarely change, such
// as packed panels of weights. A run that finds values made from the same contents need not compute
// them again.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gemel {

// The contents that a value was made from: which storage, its count of writes, and from which byte
// on.
struct Source {
  uint64_t storage;
  uint64_t contents;
  int64_t place;
  bool operator==(const Source&) const = default;
};

// Sets of values of one graph, shared by its programs for different sizes. No thread waits here: if
// another thread holds the lock, a run computes the values itself. So it does no harm when a child
// process finds the lock held after a fork.
class Keeper {
 public:
  using Memory = std::shared_ptr<char>;
  // For each place. Other sizes may need other panels, and two sizes may alternate.
  static constexpr int kMostSets = 2;

  // The values made from these sources at this place, or null. A place is any address; `kind` says
  // how the values are made.
  Memory find(const void* place, const std::string& kind, std::span<const Source> sources);
  // Replaces the values of the same kind, or else those of the least recently used kind if there
  // are too many.
  void keep(const void* place, const std::string& kind, std::span<const Source> sources,
            Memory memory);
  // The owner is gone: nothing is kept from now on. Programs may outlive it by some time.
  void close();

 private:
  struct Set {
    const void* place;
    std::string kind;
    std::vector<Source> sources;
    Memory memory;
  };

  std::mutex mutex_;
  std::vector<Set> sets_;  // the most recently used one is last
  bool closed_ = false;
};

// Its destructor closes the keeper.
class KeeperOwner {
 public:
  KeeperOwner() : keeper(std::make_shared<Keeper>()) {}
  ~KeeperOwner() { keeper->close(); }
  KeeperOwner(const KeeperOwner&) = delete;
  KeeperOwner& operator=(const KeeperOwner&) = delete;

  const std::shared_ptr<Keeper> keeper;
};

}  // namespace gemel
