// What code was compiled for, and whether this machine can run it.

#pragma once

#include <string>

namespace gemel {

// The first thing this machine lacks for code of a target, or an empty text. The text of a target
// has LLVM's triple and its features, each with a + before it. Other words require nothing.
std::string lacking(const std::string& target);

// Asks the system to let this process use the tile registers of AMX, which it saves for those that
// have asked only; whether it does.
bool tiles_allowed();

}  // namespace gemel
