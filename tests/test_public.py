"""What is public is what is declared: namespaces, methods, operators and their stubs."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import sys
from pathlib import Path

import numpy
import pytest
from programs import run

import gemel
from gemel import np, npx
from gemel.ir.array_methods import ArrayMethods
from gemel.ir.graph import Entry
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.ir.public import NAMESPACES, OPERATORS, function, publish

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from stubs import stubs

OPS = [op for op in REGISTRY.values() if isinstance(op, Op)]


@pytest.mark.parametrize("path", stubs())
def test_stubs_say_what_is_declared(path: str) -> None:
    """If this fails, run `make stubs`."""
    kept = (Path(gemel.__file__).parent / path).read_text()
    assert without_imports(kept) == without_imports(stubs()[path])


def without_imports(text: str) -> str:
    """The stub without its imports, which the formatter sorts."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    return ast.unparse(tree)


@pytest.mark.parametrize(
    ("name", "module"), [("np", np), ("np.fft", np.fft), ("np.linalg", np.linalg), ("npx", npx)]
)
def test_namespaces_hold_what_is_declared(name: str, module: object) -> None:
    for public, value in NAMESPACES[name].items():
        assert getattr(module, public) is value
        assert public in module.__all__  # type: ignore[attr-defined]


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_operations_are_where_they_say(op: Op) -> None:
    for name in (op.name, *op.aliases) if op.public else ():
        found = NAMESPACES[op.public][name]
        assert found is op or found.__name__ == op.name, "the operation or its facade"


def test_methods_are_the_operations() -> None:
    x = np.array([[1.0, 4.0], [9.0, 16.0]])
    assert x.sqrt().tolist() == np.sqrt(x).tolist()
    assert x.sum(0).tolist() == x.sum(axis=0).tolist() == [10, 20]
    assert x.take(np.array([1]), axis=1).tolist() == [[4], [16]]
    assert gemel.compile(lambda v: v.sqrt().sum(axis=1))(x).tolist() == [3, 7]
    assert ArrayMethods.sum is np.sum, "on the class it is the operation itself"
    with pytest.raises(TypeError, match="sum"):
        x.sum(axes=0)


#: An operator with the array on the left, on the right, and in place.
@pytest.mark.parametrize("name", [n for n in OPERATORS if hasattr(numpy.ndarray, f"__r{n}__")])
def test_operators_mean_the_same_for_arrays_and_symbols(name: str) -> None:
    if name == "matmul":
        left, right = numpy.array([[1, 2], [3, 4]]), numpy.array([[5, 6], [7, 8]])
    else:
        left, right = numpy.array([6, 5, 4]), numpy.array([1, 2, 3])
    expected = getattr(left, f"__{name}__")(right)
    a, b = np.array(left), np.array(right)

    def forwards(x: Entry, y: Entry) -> Entry:
        return getattr(x, f"__{name}__")(y)

    def swapped(x: Entry, y: Entry) -> Entry:
        return getattr(y, f"__r{name}__")(x)

    def in_place(x: Entry, y: Entry) -> Entry:
        x = x.astype("float32") if name == "truediv" else x.copy()
        return getattr(x, f"__i{name}__")(y)

    for way in (forwards, swapped, in_place):
        for call in (way, gemel.compile(way)):
            numpy.testing.assert_allclose(call(a, b).asnumpy(), expected, err_msg=way.__name__)


def test_signatures_are_those_people_call() -> None:
    common = "*, out: Any = None, where: Any = True, casting: Any = 'same_kind', order: Any = 'K'"
    assert (
        str(inspect.signature(np.exp))
        .replace(": 'Any'", ": Any")
        .startswith(f"(x: Any, /, {common}")
    )
    own = ["x", "axis", "dtype", "keepdims"]
    assert list(inspect.signature(np.sum).parameters) == [*own, "out", "initial", "where"]
    reshape = list(inspect.signature(np.reshape).parameters)
    assert reshape == ["a", "shape", "order", "newshape", "copy"]


def test_a_name_is_public_once() -> None:
    with pytest.raises(ValueError, match=r"np\.zeros is declared twice"):

        @function(public="np")
        def zeros() -> None: ...

    with pytest.raises(ValueError, match=r"np\.tanh is declared twice"):
        publish(np.exp, "exponential", "np", aliases=("tanh",))
    assert "exponential" not in NAMESPACES["np"]


@pytest.mark.parametrize("namespace", sorted(NAMESPACES))
def test_public_functions_are_pickled_by_name(namespace: str) -> None:
    home = importlib.import_module(f"gemel.{namespace}")
    for name in NAMESPACES[namespace]:
        value = getattr(home, name)
        assert pickle.loads(pickle.dumps(value)) is value, name


def test_families_most_programs_do_not_use_are_imported_when_asked_for() -> None:
    found = run(
        """
        import gemel
        from gemel import gluon, np, npx
        from gemel.ir.array_methods import ArrayMethods
        from gemel.ir.late import load
        from gemel.ir.public import LateMethod

        def late():
            names = ("sorting", "solving", "convolution", "statistics")
            return [name for name in names if "gemel.ops." + name in sys.modules]

        net = gluon.nn.Dense(3)
        net.initialize()
        net(np.ones((2, 4))).sum().item()
        before, methods = late(), set(vars(ArrayMethods))
        x = np.array([[3.0, 1.0]])
        right = x.cumsum(1).tolist() == [[3, 4]] and np.sort(x).tolist() == [[1, 3]]
        load()
        left = [n for n, value in vars(ArrayMethods).items() if isinstance(value, LateMethod)]
        same = set(vars(ArrayMethods)) == methods
        tell(before=before, after=len(late()), right=right, left=left, same=same)
        """
    )
    expected = {"before": [], "after": 4, "right": True, "left": [], "same": True}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "asks",
    ["np.linalg.norm(x)", "npx.topk(x)", "gluon.nn.Conv2D(1, 3)", "x.clip(0, 1)", "dir(np)",
     "gemel.compile(lambda v: v.cumsum())(x)", "numpy.sort(x)", "x.sort()", "x.imag",
     "pickle.loads(pickle.dumps(np.sort))"],
)  # fmt: skip
def test_each_first_use_of_a_lazy_name_works(asks: str) -> None:
    head = "import pickle, numpy, gemel\nfrom gemel import gluon, np, npx\nx = np.ones((4,))\n"
    assert run(f"{head}{asks}\ntell(done=True)")["done"]


def test_families_are_imported_until_the_name_is_found() -> None:
    found = run(
        """
        from gemel import np, npx

        def late():
            names = ("convolution", "fourier", "sorting")
            return [name for name in names if "gemel.ops." + name in sys.modules]

        stages = [late()]
        npx.convolution
        stages.append(late())
        np.fft
        stages.append(late())
        dir(np)
        tell(stages=[*stages, late()])
        """
    )
    every = ["convolution", "fourier", "sorting"]
    assert found["stages"] == [[], every[:1], every[:2], every]


def test_a_family_that_another_thread_is_importing_is_waited_for(tmp_path: Path) -> None:
    """A name may be there before what belongs to it: the thread that asks gets all of it."""
    (tmp_path / "slow_family.py").write_text(
        "import sys\n"
        "from gemel.ir.declare import elementwise\n"
        "@elementwise(public='np')\n"
        "def slowly(xp, x):\n"
        "    'The same numbers.'\n"
        "    return x\n"
        "begun, go_on = sys.events\n"
        "begun.set()\n"
        "go_on.wait(60)\n"
        "@slowly.facade\n"
        "def _(x, more=1):\n"
        "    return slowly(x)\n"
    )
    found = run(
        f"""
        import threading
        from gemel import np
        from gemel.ir.late import later

        sys.path.insert(0, {str(tmp_path)!r})
        sys.events = begun, go_on = threading.Event(), threading.Event()
        later("slow_family", "never_there")
        got = []
        threads = [threading.Thread(target=lambda: got.append(np.slowly)) for _ in range(3)]
        threads[0].start()
        begun.wait(60)
        for thread in threads[1:]:
            thread.start()
        threads[1].join(0.2)
        early = len(got)
        go_on.set()
        for thread in threads:
            thread.join(60)
        whole = [float(each(np.ones(()), more=2)) for each in got]
        tell(early=early, whole=whole)
        """
    )
    assert (found["early"], found["whole"]) == (0, [1.0, 1.0, 1.0])
