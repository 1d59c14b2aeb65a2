// What the threads of the front end have switched on, the random stream, and what is counted.

#pragma once

#include <cstdint>

namespace gemel {

struct ThreadFlags {
  bool recording = false;
  bool training = false;
  int tracing = 0;         // how many traces are in progress
  bool capturing = false;  // the innermost is of a function: what it does to arrays is its own
  int priority = 0;        // of what is issued
  int mixing = -1;         // the mixed precision programs are computed in; -1: the default
};
inline thread_local ThreadFlags thread_flags;

// The mixed precision on threads that say nothing else; 0 is none, and what others are is Python's
// business. Guarded by the GIL.
inline int default_mixing = 0;
inline int mixing() { return thread_flags.mixing < 0 ? default_mixing : thread_flags.mixing; }

// How many threads are capturing, so that asking costs others no look at their own flags. Guarded
// by the GIL.
inline int capturing_threads = 0;
inline bool capturing() { return capturing_threads != 0 && thread_flags.capturing; }

// The random stream: one seed, and the number of the next random call. Guarded by the GIL.
struct RandomState {
  int64_t seed = 0;
  int64_t next_call = 0;
};
inline RandomState random_stream;

// How often the caches of prepared calls knew the answer. Guarded by the GIL.
struct CacheCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
};
inline CacheCounters cache_counters;

}  // namespace gemel
