"""What notebooks contain besides Python: shell commands and magics.

A cell becomes Python with as many lines. `!command` runs in a shell, also in `found = !command`,
with `{expression}` and `$name` replaced. Of the magics, those that change what the program computes
are done, those for Jupyter's display and editing do nothing, and all others are an error that names
them.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

from gemel.errors import ArgumentError

#: Magics whose argument, or whose cell, is Python, and their options that take a value. What a
#: cell's `%%capture` names is no statement (`captured`).
TIMED = {"time": "", "timeit": "nrp", "prun": "lsTD", "capture": ""}
#: Magics for the display, the editor and the installation of packages, which do nothing here.
IGNORED = (
    *("matplotlib", "config", "load_ext", "reload_ext", "unload_ext", "autoreload", "aimport"),
    *("precision", "pprint", "xmode", "colors", "automagic", "autosave", "gui", "pinfo", "pinfo2"),
    *("pdb", "tensorboard", "who", "whos", "lsmagic", "history", "reset_selective"),
)
#: Cells for the display.
SHOWN = ("html", "HTML", "javascript", "js", "latex", "markdown", "svg", "SVG")
SHELLS = ("bash", "sh", "system", "sx", "script")
#: Commands that install packages, which are skipped: notebooks install MXNet and what it needs.
INSTALLERS = ("pip", "pip3", "conda", "mamba", "apt", "apt-get")
#: `names = !command` or `names = %magic`.
ASSIGNED = re.compile(r"([\w\s,.*\[\]'\"]+=\s*)([!%])(?![!%=])(.*)")


class Shell:
    """What `get_ipython()` returns in a notebook: the methods of IPython's shell that translated
    lines call. They have it under a name of their own, because the notebook may import IPython's
    `get_ipython`, which finds none."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.user_ns = scope

    def system(self, command: str) -> None:
        """`!command`: run a command in a shell and print its output."""
        shell(filled(command, self.user_ns))

    def getoutput(self, command: str) -> list[str]:
        """`found = !command`: the lines that a command prints."""
        return lines(filled(command, self.user_ns))

    def run_line_magic(self, name: str, line: str) -> Any:
        """`%name line`. Raises `ArgumentError` for magics that are not done."""
        if name in TIMED:
            return self._run(statement(name, line))
        return perform(name, filled(line, self.user_ns))

    def magic(self, line: str) -> Any:
        """`%line`, as old notebooks write it."""
        return self.run_line_magic(*magic(line))

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """A cell after `%%name line`. Raises `ArgumentError` for magics that are not done."""
        if name in TIMED:
            source = f"%%{name} {line}\n{cell}"
            with captured(source, self.user_ns):
                self._run(plain(source))
        else:
            perform_cell(name, line, cell)

    def _run(self, text: str) -> None:
        exec(compile(text, "<magic>", "exec"), self.user_ns)


def enter(scope: dict[str, Any]) -> None:
    """Give a notebook's names the shell that translated lines call."""
    if "_gemel" not in scope:
        found = Shell(scope)
        scope.update(_gemel=found, get_ipython=lambda: found)


class Captured(NamedTuple):
    """What a cell has printed."""

    stdout: str
    stderr: str

    def __str__(self) -> str:
        return self.stdout

    def show(self) -> None:
        """Print it."""
        print(self.stdout, end="")
        print(self.stderr, end="", file=sys.stderr)


@contextmanager
def captured(source: str, scope: dict[str, Any]) -> Iterator[bool]:
    """Runs a cell: what one that begins with `%%capture name` prints is not shown, but kept under
    that name, if there is one. Gives whether this is such a cell."""
    line = source.lstrip().partition("\n")[0]
    name, rest = magic(line)
    if not line.startswith("%%") or name != "capture":
        yield False
        return
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as errors:
        yield True
    kept = [word for word in rest.split() if not word.startswith("-")]
    scope.update(dict.fromkeys(kept[:1], Captured(printed.getvalue(), errors.getvalue())))


# --- translation ----------------------------------------------------------------------------


def plain(source: str) -> str:
    """A cell's source as Python: magics and shell commands are translated, and no line is added."""
    lines = source.splitlines()
    first = next((index for index, line in enumerate(lines) if line.strip()), 0)
    indent = re.match(r"\s*", "".join(lines[first : first + 1]))[0]  # type: ignore[index]
    lines = [line.removeprefix(indent) for line in lines]
    if lines and lines[first].startswith("%%"):
        name, rest = magic(lines[first])
        if name not in TIMED:
            body = "\n".join(lines[first + 1 :]) + "\n"
            return "\n" * first + f"_gemel.run_cell_magic({name!r}, {rest!r}, {body!r})\n"
        lines[first] = "" if name == "capture" else statement(name, rest)
    while True:
        text = "\n".join(lines) + "\n"
        try:
            ast.parse(text)
            return text
        except SyntaxError as error:
            # A magic is recognized by a syntax error, because `% 2` may continue the line before.
            index = (error.lineno or 0) - 1
            line = lines[index].strip() if 0 <= index < len(lines) else ""
            assigned = ASSIGNED.fullmatch(line)
            if not assigned and not line.startswith(("%", "!", "?")) and not line.endswith("?"):
                return text
            start = lines[index][: lines[index].index(line)]
            lines[index] = line
            lines[index] = start + translated(continued(lines, index))


def continued(lines: list[str], index: int) -> str:
    """A line with those that continue it after a backslash, which become empty."""
    whole = lines[index]
    for later in range(index + 1, len(lines)):
        if not whole.endswith("\\"):
            break
        whole = whole[:-1].rstrip() + " " + lines[later].strip()
        lines[later] = ""
    return whole


def magic(line: str) -> tuple[str, str]:
    """The name and the arguments of a magic."""
    name, *rest = line.lstrip("%").split(maxsplit=1) or [""]
    return name, "".join(rest).strip()


def translated(line: str) -> str:
    """Translate a line of a notebook that is not Python."""
    assigned = ASSIGNED.fullmatch(line)
    if assigned:
        names, mark, rest = assigned.groups()
        return names + translated(f"!!{rest}" if mark == "!" else f"%{rest}")
    if line.startswith("!"):
        done = "getoutput" if line.startswith("!!") else "system"
        return f"_gemel.{done}({line.lstrip('!')!r})"
    if not line.startswith("%"):
        return "pass"  # a question for help
    name, rest = magic(line)
    if name not in TIMED:
        return f"_gemel.run_line_magic({name!r}, {rest!r})"
    return statement(name, rest) or "pass"


def statement(name: str, rest: str) -> str:
    """The Python after a magic of TIMED, without options such as -n 10."""
    valued = rf"-[{TIMED[name]}]\s*\S+(\s+|$)|" if TIMED[name] else ""
    return re.sub(rf"^({valued}-[a-zA-Z]+(\s+|$))+", "", rest)


# --- shell commands -------------------------------------------------------------------------


def filled(command: str, scope: dict[str, Any]) -> str:
    """A command with `{expression}` and `$name` replaced by their values, if they have any."""

    def value(found: re.Match[str]) -> str:
        try:
            return str(eval(found[1] or found[2], scope))
        except Exception:  # as in IPython it is for the shell: ${HOME}, awk '{print}'
            return found[0]

    return re.sub(r"(?<!\$)\{([^{}]+)\}|\$([A-Za-z_]\w*)", value, command)


def shell(command: str) -> None:
    """Run a command in a shell and print its output; those that install packages are skipped."""
    words = command.split()
    if "install" in words and words[0] in INSTALLERS:
        print(f"gemel run: skipped !{command}", file=sys.stderr)
        return
    print(output(command), end="")


def lines(command: str) -> list[str]:
    """The lines that a command prints."""
    return output(command).splitlines()


def output(command: str) -> str:
    """What a command prints."""
    sys.stdout.flush()
    found = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return found.stdout.decode(errors="replace")


# --- magics ---------------------------------------------------------------------------------


def perform(name: str, rest: str) -> Any:
    """Do what a magic of one line says. Raises `ArgumentError` for those that are not done."""
    if name in DONE:
        return DONE[name](rest)
    if name in INSTALLERS:
        return shell(f"{name} {rest}")
    if name not in IGNORED:
        raise ArgumentError(
            f"gemel run: %{name} is not done; write it in Python, or take it out (done: "
            f"{', '.join(f'%{each}' for each in (*DONE, *TIMED))})"
        )
    return None


def environment(rest: str) -> Any:
    """`%env NAME=value` or `%env NAME value` sets a variable; `%env NAME` and `%env` show them."""
    name, given, value = re.fullmatch(r"([^\s=]*)(\s*=\s*|\s+)?(.*)", rest).groups()  # type: ignore[union-attr]
    if not name:
        return dict(os.environ)
    if not given:
        return os.environ.get(name)
    os.environ[name] = value
    return None


def change_folder(rest: str) -> None:
    """`%cd folder`."""
    os.chdir(os.path.expanduser(rest.strip("'\"") or "~"))


DONE: dict[str, Callable[[str], Any]] = {
    "env": environment,
    "set_env": environment,
    "cd": change_folder,
    "pwd": lambda rest: os.getcwd(),
    "system": lines,
    "sx": lines,
}


def perform_cell(name: str, rest: str, body: str) -> None:
    """Do what the magic of a whole cell says. Raises `ArgumentError` for those that are not
    done."""
    if name in SHELLS:
        command = rest if name == "script" else name if name in ("bash", "sh") else "sh"
        found = subprocess.run(
            command, shell=True, input=body.encode(), stdout=subprocess.PIPE, stderr=2
        )
        print(found.stdout.decode(errors="replace"), end="")
        found.check_returncode()
    elif name in ("writefile", "file"):
        append = rest.startswith("-a ")
        with open(rest.removeprefix("-a ").strip("'\" "), "a" if append else "w") as file:
            file.write(body)
    elif name not in SHOWN:
        done = ", ".join(f"%%{each}" for each in ("writefile", *SHELLS, *TIMED))
        raise ArgumentError(
            f"gemel run: the cell %%{name} is not done; write it in Python, or take it out (done: "
            f"{done})"
        )


__all__ = ["enter", "plain"]
