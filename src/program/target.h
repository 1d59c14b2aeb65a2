// What code was compiled for, and whether this machine is that.

#pragma once

#include <string>

namespace gemel {

// What this machine lacks for code of a target, whose text has LLVM's triple and, with a + before
// each, its features: the first of it, or nothing. Words that are neither ask for nothing.
std::string lacking(const std::string& target);

}  // namespace gemel
