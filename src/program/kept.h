// What programs keep from run to run: values that depend on inputs which rarely change, like panels
// of weights. A run that finds them made of the same contents need not make them again.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gemel {

// Contents that something was made of: of which storage, how often written, from which byte on.
struct Source {
  uint64_t storage;
  uint64_t contents;
  int64_t place;
  bool operator==(const Source&) const = default;
};

// Sets of values of one graph, whose programs for different sizes share it. Nobody waits here:
// whoever comes while another thread looks makes the values for itself. So a fork cannot find the
// lock taken for ever.
class Keeper {
 public:
  using Memory = std::shared_ptr<char>;
  // For each place: other sizes may need other panels, and two take turns in serving a network.
  static constexpr int kMostSets = 2;

  // What was made of these for this place, null if there is no such. A place is any address; `kind`
  // says how values are made.
  Memory find(const void* place, const std::string& kind, std::span<const Source> sources);
  // In place of what was kept of this kind, or of the kind that was not asked for longest.
  void keep(const void* place, const std::string& kind, std::span<const Source> sources,
            Memory memory);
  // The owner is gone: nothing is kept any more. Programs may be remembered for some time.
  void close();

 private:
  struct Set {
    const void* place;
    std::string kind;
    std::vector<Source> sources;
    Memory memory;
  };

  std::mutex mutex_;
  std::vector<Set> sets_;  // the last one used comes last
  bool closed_ = false;
};

// Closes it when it goes.
class KeeperOwner {
 public:
  KeeperOwner() : keeper(std::make_shared<Keeper>()) {}
  ~KeeperOwner() { keeper->close(); }
  KeeperOwner(const KeeperOwner&) = delete;
  KeeperOwner& operator=(const KeeperOwner&) = delete;

  const std::shared_ptr<Keeper> keeper;
};

}  // namespace gemel
