// The ends of a process: exit with errors nobody has seen, and fork.

#pragma once

namespace gemel {

bool install_exit_hooks();  // false with a Python error set
void install_fork_hooks();

}  // namespace gemel
