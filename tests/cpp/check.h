// How a test without Python reports a broken promise, and how much it does under a sanitizer.

#pragma once

#include <cstdio>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // memory accesses take ten times as long
#else
constexpr bool kSanitized = false;
#endif

inline int failures = 0;

inline void check(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "broken: %s\n", what);
  ++failures;
}
