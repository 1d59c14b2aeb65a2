// What a program keeps from run to run: values that depend on inputs which rarely change, like
// panels of weights. A run that finds them made of the same contents need not make them again.

#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace gemel {

// Contents that something was made of: of which storage, how often written, from which byte on.
struct Source {
  uint64_t storage;
  uint64_t contents;
  int64_t place;
  bool operator==(const Source&) const = default;
};

// Nobody waits here: whoever comes while another thread looks makes the values for itself. So a
// fork cannot find the lock taken for ever.
class Keeper {
 public:
  using Memory = std::shared_ptr<char>;

  // What was made of these for this place, null if there is no such. A place is any address.
  Memory find(const void* place, std::span<const Source> sources);
  // In place of what was kept for the place.
  void keep(const void* place, std::span<const Source> sources, Memory memory);
  // The program's owner is gone; bound to sizes it may be remembered for some time.
  void drop();

 private:
  struct Entry {
    const void* place;
    std::vector<Source> sources;
    Memory memory;
  };

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace gemel
