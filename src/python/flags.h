// What each thread has switched on, the random stream, and counters.

#pragma once

#include <cstdint>

namespace gemel {

struct ThreadFlags {
  bool recording = false;
  bool training = false;
  int tracing = 0;  // the number of traces in progress
  // The innermost trace is of a function: its effects on arrays belong to the trace.
  bool capturing = false;
  int device = 0;    // where new arrays are made
  int priority = 0;  // of operations issued by this thread
  int mixing = -1;   // the mixed precision in which programs are computed; -1: the default
};
inline thread_local ThreadFlags thread_flags;

// The mixed precision of threads that do not set their own; 0 means none. The meaning of other
// numbers is known only to Python. Guarded by the GIL.
inline int default_mixing = 0;
inline int mixing() { return thread_flags.mixing < 0 ? default_mixing : thread_flags.mixing; }

// The number of capturing threads, so that capturing() usually need not read thread-local flags.
// Guarded by the GIL.
inline int capturing_threads = 0;
inline bool capturing() { return capturing_threads != 0 && thread_flags.capturing; }

// The random stream: one seed, and the number of the next random call. Guarded by the GIL.
struct RandomState {
  int64_t seed = 0;
  int64_t next_call = 0;
};
inline RandomState random_stream;

// Hits and misses of the caches of prepared calls. Guarded by the GIL.
struct CacheCounters {
  uint64_t hits = 0;
  uint64_t misses = 0;
};
inline CacheCounters cache_counters;

}  // namespace gemel
