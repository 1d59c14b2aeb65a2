"""The kernel cache on disk: shared, checked, never needed; what a warm start does not load."""

from __future__ import annotations

import ast
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import finish, run, start

import gemel
from gemel.codegen import schedules
from gemel.runtime import cache
from gemel.runtime.files import FOLDERS, _sources, evict, fingerprint, load, sealed, store

PACKAGE = Path(gemel.__file__).parent

#: A first inference of a hybridized network, with weights that need no random numbers.
INFERENCE = """
import gemel
from gemel import np
from gemel.gluon import nn
loaded = [m for m in ("numpy", "llvmlite") if m in sys.modules]
net = nn.HybridSequential()
net.add(nn.Dense(6, activation="relu", in_units=4), nn.Dense(3, in_units=6))
net.initialize("ones")
net.hybridize()
y = net(np.ones((2, 4)))
values = y.tolist()
from gemel.runtime import cache
tell(
    values=values,
    counters=cache.counters,
    lowered="gemel.runtime.lower" in sys.modules,
    at_import=loaded,
    after=[m for m in ("numpy", "llvmlite", "hashlib", "inspect") if m in sys.modules],
)
"""
RIGHT = [[24.0] * 3] * 2


KINDS = ("kernel", "plan", "call")


def kernels(folder: Path) -> list[Path]:
    return files(folder, "kernel")


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.rglob(f"*.{kind}"))


def forget_plans(folder: Path) -> None:
    """Delete everything but the kernels."""
    for path in [*files(folder, "plan"), *files(folder, "call")]:
        path.unlink()


def others(folder: Path) -> list[Path]:
    """Files that do not belong in a cache."""
    return [p for p in folder.rglob("*") if p.is_file() and p.suffix[1:] not in KINDS]


@pytest.fixture
def warm(tmp_path: Path) -> Path:
    """A cache folder that holds what INFERENCE needs."""
    folder = tmp_path / "cache"
    found = run(INFERENCE, GEMEL_CACHE=str(folder))
    assert found["values"] == RIGHT
    assert found["counters"]["compiled"] > 0
    assert found["counters"]["loaded"] == 0
    assert len(kernels(folder)) == found["counters"]["compiled"]
    assert files(folder, "plan")
    return folder


def test_a_second_process_compiles_lowers_and_imports_nothing(warm: Path) -> None:
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["values"] == RIGHT
    assert not found["lowered"]
    assert found["counters"]["compiled"] == 0
    assert found["counters"]["loaded"] == len(kernels(warm))
    assert found["at_import"] == []
    assert found["after"] == []
    assert found["stderr"] == ""


def test_import_alone_loads_little() -> None:
    heavy = ["numpy", "llvmlite", "inspect", "dataclasses", "json", "pathlib", "ast", "hashlib"]
    program = "import sys; before = set(sys.modules); import gemel; from gemel import np, gluon\n"
    program += f"print([m for m in {heavy} if m in sys.modules and m not in before])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    found = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True
    )
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def cut_to_the_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def one_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def foreign(path: Path) -> None:
    path.write_bytes(b"\x7fELF" + path.read_bytes()[4:])


def world_writable(path: Path) -> None:
    path.chmod(0o666)


def sound_but_no_object(path: Path) -> None:
    path.write_bytes(sealed(path.stem, b"not an object"))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut_short, "checksum is wrong"),
        (cut_to_the_header, "not a file of the cache"),
        (emptied, "not a file of the cache"),
        (one_bit, "checksum is wrong"),
        (foreign, "not a file of the cache"),
        (world_writable, "others may write it"),
        (sound_but_no_object, "malformed kernel object"),
    ],
)
def test_damaged_files_are_rebuilt_with_a_warning(warm: Path, damage: Any, why: str) -> None:
    count = len(kernels(warm))
    forget_plans(warm)
    for path in kernels(warm):
        damage(path)
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["values"] == RIGHT
    assert found["counters"]["compiled"] == count
    assert found["counters"]["loaded"] == 0
    assert "RuntimeWarning" in found["stderr"]
    assert "is not used and will be rebuilt" in found["stderr"]
    assert why in found["stderr"]
    again = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert again["values"] == RIGHT
    assert again["counters"]["compiled"] == 0
    assert again["stderr"] == ""


def of_another_name(path: Path) -> None:
    path.write_bytes(sealed("0" * 64, path.read_bytes()[48:]))


def no_image(path: Path) -> None:
    path.write_bytes(sealed(path.stem, bytes(8) + b"no image at all"))


def too_many_kernels(path: Path) -> None:
    path.write_bytes(sealed(path.stem, (1 << 40).to_bytes(8, "little") + bytes(64)))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (cut_short, "checksum is wrong"),
        (emptied, "not a file of the cache"),
        (one_bit, "checksum is wrong"),
        (of_another_name, "checksum is wrong"),
        (world_writable, "others may write it"),
        (no_image, "image is damaged"),
        (too_many_kernels, "it is truncated"),
    ],
)
def test_damaged_plans_are_made_again(warm: Path, damage: Any, why: str) -> None:
    for path in files(warm, "plan"):
        damage(path)
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["values"] == RIGHT
    assert found["lowered"]
    assert found["counters"]["compiled"] == 0
    assert found["counters"]["loaded"] == len(kernels(warm))
    assert why in found["stderr"]
    again = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert not again["lowered"]
    assert again["stderr"] == ""


def test_a_plan_has_its_kernels_with_it(warm: Path) -> None:
    count = len(kernels(warm))
    for path in kernels(warm):
        path.unlink()
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["values"] == RIGHT
    assert found["counters"] == {"compiled": 0, "loaded": count, "found": 0}
    assert found["stderr"] == ""
    forget_plans(warm)
    assert run(INFERENCE, GEMEL_CACHE=str(warm))["counters"]["compiled"] == count


def test_a_plan_that_is_made_takes_the_kernels_there_are(warm: Path) -> None:
    forget_plans(warm)
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["lowered"]
    assert found["counters"]["compiled"] == 0


@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away"
)
def test_files_of_another_user_are_rebuilt(warm: Path) -> None:
    forget_plans(warm)
    for path in kernels(warm):
        os.chown(path, 12345, 12345)
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["values"] == RIGHT
    assert found["counters"]["loaded"] == 0
    assert "belongs to another user" in found["stderr"]


def test_files_and_folders_belong_to_their_user_alone(warm: Path) -> None:
    for path in kernels(warm):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not others(warm)


def test_processes_at_once_share_the_cache(tmp_path: Path) -> None:
    folder = str(tmp_path)
    together = [start(INFERENCE, GEMEL_CACHE=folder) for _ in range(3)]
    found = [finish(process) for process in together]
    assert [f["values"] for f in found] == [RIGHT] * 3
    assert [f["stderr"] for f in found] == [""] * 3
    assert not others(tmp_path)
    assert run(INFERENCE, GEMEL_CACHE=folder)["counters"]["compiled"] == 0


def test_a_process_that_died_while_writing_does_no_harm(warm: Path) -> None:
    forget_plans(warm)
    path = kernels(warm)[0]
    (path.parent / f"{path.name}.4242").write_bytes(b"half")
    path.unlink()
    found = run(INFERENCE, GEMEL_CACHE=str(warm))
    assert found["values"] == RIGHT
    assert found["counters"]["compiled"] == 1


@pytest.mark.parametrize("place", ["/proc/gemel", "/dev/null/gemel", "a file"])
def test_a_folder_that_cannot_be_written_only_costs_speed(place: str, tmp_path: Path) -> None:
    if place == "a file":
        (tmp_path / "file").write_text("no folder")
        place = str(tmp_path / "file")
    found = run(INFERENCE, GEMEL_CACHE=place)
    assert found["values"] == RIGHT
    assert found["counters"]["compiled"] > 0
    assert found["stderr"] == ""


def test_a_home_that_cannot_be_written_only_costs_speed() -> None:
    found = run(INFERENCE, GEMEL_CACHE=None, XDG_CACHE_HOME=None, HOME="/proc")
    assert found["values"] == RIGHT
    assert found["stderr"] == ""


def test_a_cache_that_is_only_read(warm: Path) -> None:
    for folder in (warm, *(p for p in warm.iterdir())):
        folder.chmod(0o500)
    try:
        found = run(INFERENCE, GEMEL_CACHE=str(warm))
    finally:
        for folder in (warm, *(p for p in warm.iterdir())):
            folder.chmod(0o700)
    assert found["values"] == RIGHT
    assert found["counters"]["compiled"] == 0


def test_home_is_where_the_cache_is(tmp_path: Path) -> None:
    run(INFERENCE, GEMEL_CACHE=None, XDG_CACHE_HOME=None, HOME=str(tmp_path))
    assert kernels(tmp_path / ".cache" / "gemel")
    run(INFERENCE, GEMEL_CACHE=None, XDG_CACHE_HOME=str(tmp_path / "other"), HOME=str(tmp_path))
    assert kernels(tmp_path / "other" / "gemel")


def test_no_compiler_is_needed(tmp_path: Path) -> None:
    found = run(INFERENCE, GEMEL_CACHE=str(tmp_path), PATH="", CC=None, CXX=None)
    assert found["values"] == RIGHT
    assert found["counters"]["compiled"] > 0


def test_the_cache_is_bounded(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / f"{number}.kernel"
        path.write_bytes(bytes(8192))
        read = 9 if number == 1 else number
        os.utime(path, ns=(read * 10**9, number * 10**9))
    evict(str(tmp_path), 20_000)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["1.kernel", "5.kernel"], "the files used last stay"
    evict(str(tmp_path / "gone"), 0)


def test_storing_keeps_the_cache_below_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each folder may hold its share of the bytes."""
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    monkeypatch.setenv("GEMEL_CACHE_BYTES", str(FOLDERS * 20_000))
    for number in range(16, 64):
        store(f"ab{number:02x}" + "0" * 60, "kernel", bytes(8000))
    assert len(kernels(tmp_path)) == 48
    newest = "ab0f" + "0" * 60  # storing one name in 16 checks the size of its folder
    store(newest, "kernel", bytes(8000))
    assert sum(path.stat().st_size for path in kernels(tmp_path)) <= 20_000
    assert load(newest, "kernel", bytes) == bytes(8000)


def test_files_left_by_a_killed_process_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every start may get the same process number."""
    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    opened: list[str] = []
    open_ = os.open

    def noted(path: str, *others: Any) -> int:
        opened.append(path)
        return open_(path, *others)

    def killed(*paths: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", noted)
        patched.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            store("ab" * 32, "kernel", b"code")
    assert not others(tmp_path)
    Path(opened[0]).write_bytes(b"part")
    store("ab" * 32, "kernel", b"code")
    assert load("ab" * 32, "kernel", bytes) == b"code"


def test_a_full_disk_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files stands for the full disk."""
    import resource

    monkeypatch.setenv("GEMEL_CACHE", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
    try:
        store("ab" * 32, "kernel", b"code" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def imported(path: Path) -> Iterator[Path]:
    """The files of gemel that a file imports at run time."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):  # imports for type checkers only
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body.clear()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("gemel"):
            continue
        *_, names = (node.module or "").partition("gemel.")
        for name in node.names:
            one, whole = (PACKAGE.joinpath(*names.split("."), each) for each in (name.name, ""))
            found = [p.with_suffix(".py") for p in (one, whole) if p.with_suffix(".py").exists()]
            yield from found or [p / "__init__.py" for p in (one, whole) if p.is_dir()][:1]


def test_a_kernel_s_name_holds_all_sources_its_code_depends_on() -> None:
    modules = ["gemel.codegen.schedules", *schedules.EMITTERS.values()]
    left = [PACKAGE.parent / f"{module.replace('.', '/')}.py" for module in modules]
    reached = {*left}
    while left:
        new = {*imported(left.pop())} - reached
        reached |= new
        left += new
    assert len(reached) > 30
    files = {Path(path) for place in cache.SOURCES for path in _sources(place)}
    assert reached <= files
    assert {p for p in files if PACKAGE / "codegen" not in p.parents} <= reached


def test_a_fingerprint_tells_versions_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if an installer gave all files one time: versions or lengths of files then differ."""
    monkeypatch.setattr("gemel.runtime.files.PACKAGE", str(tmp_path))
    (tmp_path / "ops").mkdir()
    for name in ("ops/some.py", "one.py"):
        (tmp_path / name).write_text("1")
        os.utime(tmp_path / name, (0, 0))
    found = []
    for version, text in (("0.1.0", "1"), ("0.1.1", "1"), ("0.1.1", "12")):
        monkeypatch.setattr(gemel, "__version__", version)
        (tmp_path / "one.py").write_text(text)
        os.utime(tmp_path / "one.py", (0, 0))
        monkeypatch.setattr("gemel.runtime.files._fingerprints", {})
        found.append(fingerprint("ops", "one.py"))
    assert len({*found}) == 3


def test_the_name_holds_the_target_and_the_program() -> None:
    from gemel import _core
    from gemel.codegen.language.program import OUTER, Program
    from gemel.codegen.target import TARGETS
    from gemel.runtime.backend import Backend, native_code
    from gemel.runtime.cache import kernel_name

    programs = [Program(rank, 0, OUTER, (), (), 0, ()) for rank in (1, 2)]
    backends = [Backend(target, native_code, _core.load_object) for target in TARGETS.values()]
    names = {kernel_name(program, backend) for program in programs for backend in backends}
    assert len(names) == 2 * len(TARGETS)


#: Runs much of gemel for the portable target, and keeps every object.
EVERYTHING = """
from gemel import autograd, gluon, np, npx
from gemel.gluon import nn
np.random.seed(1)
net = nn.HybridSequential()
net.add(nn.Dense(9, activation="tanh"), nn.BatchNorm(), nn.Dropout(0.2), nn.Dense(5))
net.initialize()
net.hybridize()
loss = gluon.loss.SoftmaxCrossEntropyLoss()
trainer = gluon.Trainer(net.collect_params(), "adam", {})
x, label = np.random.normal(0, 1, (8, 6)), np.array([0, 1, 2, 3, 4, 0, 1, 2])
with autograd.record():
    value = loss(net(x), label)
value.backward()
trainer.step(8)
for dtype in ("float16", "float32", "float64", "int32", "int64", "uint8", "bool"):
    a = (np.arange(12).reshape(3, 4) - 5).astype(dtype)
    b = (np.arange(12).reshape(3, 4) % 3).astype(dtype)
    if dtype != "bool":
        for f in (np.floor_divide, np.remainder, np.power, np.subtract, np.maximum):
            f(a, b), f(a, 2)
        a.sum(axis=0), a.max(axis=1), a.argmax(axis=1), np.matmul(a, b.T), a.mean()
    for f in (np.exp, np.log, np.tanh, np.sqrt, np.floor, npx.sigmoid, npx.gelu, np.sin, np.cos):
        f(a)
    np.where(a > b, a, b), a.any(axis=0), np.concatenate([a, b]), a[np.array([0, 2])]
    np.random.uniform(0, 1, (3,)), np.random.normal(0, 1, (3,)), np.random.permutation(5)
npx.waitall()
tell(done=True)
"""


def undefined_symbols(code: bytes) -> set[str]:
    """The names that an ELF64 object refers to but does not define."""
    from struct import iter_unpack, unpack_from

    (table,) = unpack_from("<Q", code, 40)
    size, count = unpack_from("<HH", code, 58)
    sections = [unpack_from("<IIQQQQIIQQ", code, table + i * size) for i in range(count)]
    found = set()
    for section in sections:
        if section[1] != 2:  # SHT_SYMTAB
            continue
        names = sections[section[6]]
        symbols = code[section[4] : section[4] + section[5]]
        for name, _, _, index, _, _ in iter_unpack("<IBBHQQ", symbols):
            if index == 0 and name:
                begin = names[4] + name
                found.add(code[begin : code.index(b"\0", begin)].decode())
    return found


def test_portable_objects_need_only_what_the_loader_has(tmp_path: Path) -> None:
    from gemel.runtime.files import HEADER

    assert run(EVERYTHING, GEMEL_CACHE=str(tmp_path), GEMEL_TARGET="generic")["done"]
    objects = [path.read_bytes()[HEADER:] for path in kernels(tmp_path)]
    assert len(objects) > 100
    assert all(code[:4] == b"\x7fELF" for code in objects)
    needed = set().union(*(undefined_symbols(code) for code in objects))
    assert needed <= {"memcpy", "memset", "memmove"}
