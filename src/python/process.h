// What happens when a process exits (unseen errors are shown) and when it forks.

#pragma once

namespace gemel {

bool install_exit_hooks();  // false with a Python error set
void install_fork_hooks();

}  // namespace gemel
