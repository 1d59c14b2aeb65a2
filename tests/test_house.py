"""The rules of the source tree: C++ includes, where Python may be used, file lengths, pages."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)

#: The folders that the files of a folder may include from: itself and the folders below it.
BELOW = {
    "memory": {"memory"},
    "compiler": {"memory", "compiler"},
    "engine": {"memory", "engine"},
    "cuda": {"memory", "engine", "cuda"},
    "program": {"memory", "engine", "program"},
    "capi": {"memory", "engine", "program", "capi"},
    "python": {"memory", "compiler", "engine", "cuda", "program", "python"},
}
#: Headers of Python and of libraries that talk to Python.
PYTHON = re.compile(r"Python\.h|structmember\.h|pythread\.h|frameobject\.h|nanobind/.*|cpython/.*")


def sources() -> list[Path]:
    return sorted(path for path in SOURCES.rglob("*") if path.suffix in {".h", ".cc"})


def included(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text())


def test_every_folder_has_its_place() -> None:
    assert sources()
    assert {path.relative_to(SOURCES).parts[0] for path in sources()} <= set(BELOW)


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(SOURCES)))
def test_includes_point_down(path: Path) -> None:
    allowed = BELOW[path.relative_to(SOURCES).parts[0]]
    ours = [name for name in included(path) if (SOURCES / name).exists()]
    assert not [name for name in ours if name.split("/")[0] not in allowed]
    local = [name for name in included(path) if (path.parent / name).exists()]
    assert not set(local) - set(ours), "includes must name the folder"


def test_python_stays_in_its_folder() -> None:
    elsewhere = [path for path in sources() if "python" not in path.relative_to(SOURCES).parts]
    found = {path.name: name for path in elsewhere for name in included(path) if PYTHON.match(name)}
    assert not found
    # Names count too, since a declaration needs no header.
    named = re.compile(r"\bPy(?:Object|Gil\w*|_\w+|Err_\w+)\b|\bnanobind\b")
    assert not [path.name for path in elsewhere if named.search(path.read_text())]


def test_few_files_include_nanobind() -> None:
    files = [p.name for p in sources() if any(i.startswith("nanobind") for i in included(p))]
    assert files == ["module.cc", "module_machine.cc", "module_machine.h"]


def test_the_c_interface_is_plain_c(tmp_path: Path) -> None:
    """The header alone compiles as C and as C++."""
    header = SOURCES / "capi" / "gemel.h"
    assert header.exists()
    assert set(included(header)) <= {"stddef.h", "stdint.h", "stdbool.h"}
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    program = tmp_path / "only.c"
    program.write_text(f'#include "{header}"\nint main(void) {{ return 0; }}\n')
    options = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
    subprocess.run([compiler, *options, str(program)], check=True)
    cxx = [shutil.which("c++") or "c++", "-x", "c++", "-std=c++20", *options[1:], str(program)]
    subprocess.run(cxx, check=True)


def test_the_root_holds_what_belongs_there() -> None:
    """No file that an experiment or a test left behind is part of the project."""
    git = shutil.which("git") or pytest.skip("no git")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("the sources are not in a repository")
    files = {name for name in listed.stdout.splitlines() if "/" not in name}
    pages = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"}
    tools = {".clang-format", ".gitignore", ".pre-commit-config.yaml"}
    assert files == pages | tools | {"CMakeLists.txt", "Makefile", "pyproject.toml"}


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = {p.name for base in (ROOT, ROOT / "gemel") for p in base.iterdir() if p.is_dir()}


def is_there(named: str) -> bool:
    """Whether a page's `folder/file`, `folder/module` or `folder/module.name` exists."""
    for base in (ROOT, ROOT / "gemel"):
        if any((base / f"{named}{suffix}").exists() for suffix in ("", ".py", ".h", ".cc")):
            return True
        module = base / f"{named.rpartition('.')[0]}.py"
        if module.is_file() and re.search(rf"\b{named.rpartition('.')[2]}\b", module.read_text()):
            return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_name_what_is_there(page: Path) -> None:
    text = page.read_text()
    places = re.findall(r"`([\w.]+(?:/[\w.-]+)+)/?`", text)
    ours = [name for name in places if name.split("/")[0] in FOLDERS - {"build"}]
    assert not [name for name in ours if not is_there(name)]
    links = re.findall(r"\]\((?!\w+:)([^)#]+)", text)
    assert not [link for link in links if not (page.parent / link).exists()]
    numbers = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    assert set(re.findall(r"\bdecisions? (\d{4})\b", text)) <= numbers


def modules(folder: Path) -> set[str]:
    """The modules and packages of a package."""
    found = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    return found | {path.parent.name for path in folder.glob("*/*.py")}


def test_the_layout_has_a_place_for_each_module() -> None:
    rows = re.findall(
        r"^\| .*?\| `(.*?)` \|", (ROOT / "docs/internals/layout.md").read_text(), re.M
    )
    named = {name.strip("/") for row in rows for name in row.split()}
    assert not modules(ROOT / "gemel") - named


def test_a_package_that_lists_its_modules_lists_all() -> None:
    listing = 0
    for path in sorted((ROOT / "gemel").rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        known, named = modules(path.parent), set(re.findall(r"`(\w+)/?`", text))
        if 2 * len(known & named) > len(known):
            assert not known - named, path
            listing += 1
    assert listing


LONGEST = 500


@pytest.mark.parametrize("folder", ["src", "gemel"])
def test_no_file_is_long(folder: str) -> None:
    paths = [p for p in (ROOT / folder).rglob("*") if p.suffix in {".h", ".cc", ".py"}]
    lengths = {str(p.relative_to(ROOT)): p.read_text().count("\n") for p in paths}
    assert lengths
    assert not {name: length for name, length in lengths.items() if length > LONGEST}


def asks_for_names(path: Path) -> list[int]:
    """The lines that compare an operation's name, or look something up by it."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = node.args if node.func.attr in ("get", "startswith", "endswith") else []
            asked = [*asked, node.func.value] if asked else []
        else:
            continue
        if any(re.search(r"\bop\.name$", ast.unparse(each)) for each in asked):
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("folder", ["passes", "runtime"])
def test_no_pass_asks_what_an_operation_is_called(folder: str, tmp_path: Path) -> None:
    paths = sorted((ROOT / "gemel" / folder).glob("*.py"))
    assert paths and not {path.name: lines for path in paths if (lines := asks_for_names(path))}
    asking = tmp_path / "asking.py"
    asking.write_text('node.op.name == "add"\nKNOWN[op.name]\nKNOWN.get(a.op.name)\nf"{op.name}"\n')
    assert asks_for_names(asking) == [1, 2, 3]


def compiler(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / "gemel" / folder).rglob("*.py"))


def test_each_class_of_the_compiler_has_its_own_name() -> None:
    trees = [ast.parse(path.read_text()) for path in compiler("codegen", "ir", "passes", "runtime")]
    names = Counter(n.name for tree in trees for n in tree.body if isinstance(n, ast.ClassDef))
    assert names
    assert not {name: count for name, count in names.items() if count > 1}


def reaches_into_others(path: Path, known: set[str]) -> list[str]:
    """The private attributes that a file asks other objects for, if no class of its own has them.
    `known` are attributes that may be asked for anywhere."""
    tree = ast.parse(path.read_text())
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    asked = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    outside = (n for n in asked if ast.unparse(n.value) not in ("self", "cls", "super()"))
    private = (n.attr for n in outside if re.match(r"_[a-z]", n.attr))
    return [name for name in private if name not in own | known]


def test_the_compiler_calls_what_is_public(tmp_path: Path) -> None:
    core = (ROOT / "gemel" / "_core.pyi").read_text()
    known = {"_core", "_replace", *re.findall(r"\b(_[a-z]\w*)", core)}
    paths = compiler("codegen", "passes", "runtime")
    assert paths and not {p.name: found for p in paths if (found := reaches_into_others(p, known))}
    reaching = tmp_path / "reaching.py"
    reaching.write_text("self._own()\nother._part()\nself.other._part\nstep._replace(a=1)\n")
    assert reaches_into_others(reaching, known) == ["_part", "_part"]
