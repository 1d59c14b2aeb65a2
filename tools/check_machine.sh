#!/bin/sh
# Stops with an error if this machine lacks something the build needs, and says how to install it.
# Usage: tools/check_machine.sh PYTHON CXX
set -eu

python="${1:-python3}"
compiler="${2:-c++}"

# stop MESSAGE DEBIAN-COMMAND FEDORA-COMMAND: print the message and the command of the package manager
# found here (both commands if there is none), and exit.
stop() {
  echo "gemel cannot be built here: $1" >&2
  if command -v apt-get >/dev/null 2>&1; then
    echo "  $2" >&2
  elif command -v dnf >/dev/null 2>&1; then
    echo "  $3" >&2
  else
    echo "  Debian, Ubuntu: $2" >&2
    echo "  Fedora: $3" >&2
  fi
  exit 1
}

case "$(uname -s)" in
  Linux) ;;
  *) echo "warning: gemel is tested on Linux only, this is $(uname -s)" >&2 ;;
esac

command -v "$python" >/dev/null 2>&1 ||
  stop "there is no $python" \
    "apt-get install python3 python3-venv python3-dev" "dnf install python3 python3-devel"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  stop "$("$python" --version 2>&1) is too old, 3.10 or newer is needed; then: make PYTHON=python3.11" \
    "apt-get install python3.11 python3.11-venv python3.11-dev" \
    "dnf install python3.11 python3.11-devel"

version="$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')"
package=python3
[ "$python" = python3 ] || package="$version"

"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
  stop "$python has no venv module" \
    "apt-get install $package-venv" "dnf install $package"

"$python" - <<'CHECK' ||
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
CHECK
  stop "the header files of $python are missing (Python.h)" \
    "apt-get install $package-dev" "dnf install $package-devel"

command -v "$compiler" >/dev/null 2>&1 ||
  stop "there is no C++ compiler ($compiler)" "apt-get install g++" "dnf install gcc-c++"

echo '#include <concepts>
#include <span>
template <std::integral T> T f(std::span<T> s) { return s[0]; }
int main() { int a[1] = {0}; return f(std::span<int>(a)); }' |
  "$compiler" -std=c++20 -x c++ -fsyntax-only - >/dev/null 2>&1 ||
  stop "$("$compiler" --version | head -n 1) does not know C++20; then: make CXX=g++-12" \
    "apt-get install g++-12" "dnf install gcc-c++"
