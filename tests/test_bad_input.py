"""Every function refuses arguments it can make no sense of, with an error that says so.

The functions are those of the namespace. With `GEMEL_EXAMPLES` all ways to call them are tried;
otherwise a few.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from numpy_cases import Refused, on_gemel, outcome

import gemel
from gemel import gluon, image, nd, np, npx, recordio, sym
from gemel.errors import PUBLIC, CallError, GemelError
from gemel.gluon import nn
from gemel.gluon.data.vision import transforms
from gemel.ir.late import load
from gemel.ir.protocols import NAMESPACES

#: Functions that read or write files or settings, or that call a given function.
OTHERS = {
    *("from_dlpack", "fromfile", "fromfunction", "fromstring", "genfromtxt", "get_printoptions"),
    *("load", "loadtxt", "save", "savetxt", "savez", "savez_compressed", "set_printoptions"),
}


def is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, (type, gemel.dtype.DType))


FUNCTIONS = {
    name: getattr(np, name)
    for name in np.__all__
    if is_function(getattr(np, name)) and name not in OTHERS
}
X = numpy.arange(6.0, dtype="float32").reshape(2, 3)
BAD: dict[str, Any] = {
    "None": None,
    "text": "abc",
    "object": object(),
    "texts": numpy.array(["a", "b"]),
    "large": 2**70,
    "ragged": [[1, 2], [3]],
    "nothing": numpy.zeros((2, 0), "float32"),
    "objects": numpy.array([None, 1]),
    "set": {1, 2},
    "function": len,
    "Nones": [None],
    "negative": -5,
    "time": numpy.datetime64("2020-01-01"),
}
Call = Callable[[Any, Any], Any]


def calls() -> dict[str, Call]:
    """Wrong ways to call a function; each takes the function and what converts NumPy's arrays."""
    many = bool(os.environ.get("GEMEL_EXAMPLES"))
    found: dict[str, Call] = {}
    for name, bad in list(BAD.items())[: None if many else 5]:
        found[f"({name})"] = lambda f, on, bad=bad: f(on(bad))
        found[f"(x, {name})"] = lambda f, on, bad=bad: f(on(X), on(bad))
        if many:
            found[f"({name}, x)"] = lambda f, on, bad=bad: f(on(bad), on(X))
    for axis in (7, "x", (0, 0), *([1.5, object(), [None], 2**70] if many else [])):
        found[f"(x, axis={axis!r:.12})"] = lambda f, on, axis=axis: f(on(X), axis=axis)
        found[f"(x, x, axis={axis!r:.12})"] = lambda f, on, axis=axis: f(on(X), on(X), axis=axis)
    found["(x, nonsense=1)"] = lambda f, on: f(on(X), nonsense=1)
    return found


CALLS = calls()
#: Functions that give a result where NumPy refuses.
ANSWERED: dict[str, str] = {
    "clip": "without bounds: the standard's",
    "expand_dims": "MXNet's default axis",
    "pad": "nothing is added by default",
    "compress": "a condition is flattened",
    "diag": "a diagonal as far away as one likes",
    "diagonal": "a diagonal as far away as one likes",
    "trace": "a diagonal as far away as one likes",
    "tril": "a diagonal as far away as one likes",
    "triu": "a diagonal as far away as one likes",
    "eye": "a diagonal as far away as one likes",
    "tri": "a diagonal as far away as one likes",
    "where": "None is left out",
    "nan_to_num": "it copies anyway",
    "from_dlpack": "the second argument is a device",
    "histogram_bin_edges": "not looked at where the bins are given",
    "may_share_memory": "lists share none",
    "shares_memory": "lists share none",
    "logical_and": "any number is true or not",
    "logical_or": "any number is true or not",
    "logical_xor": "any number is true or not",
    "sinc": "NumPy's has no out",
    "broadcast_shapes": "of shapes given as arrays",
    "ndindex": "nothing to go through",
    **dict.fromkeys(
        ("array2string", "array_repr", "array_str", "copy", "gradient"), "a number is an array"
    ),
    **dict.fromkeys(("poly", "polyder", "polyint", "polyval", "roots"), "a number is an array"),
    "finfo": "of the array's dtype",
    "einsum": "letters",
    "diff": "NumPy takes for ever where nothing is left to subtract",
}


def made(value: Any) -> Any:
    """NumPy arrays converted to gemel's if gemel has the dtype; everything else unchanged."""
    held = isinstance(value, numpy.ndarray) and value.dtype.kind in "buif"
    return on_gemel(value) if held else value


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_refuses(name: str) -> None:
    """With a typed error, where NumPy refuses too; but gemel takes a number like 2**70 as inf."""
    function, twin = FUNCTIONS[name], getattr(numpy, name, None)
    for label, call in CALLS.items():
        found = outcome(lambda call=call: call(function, made))
        if twin is None or name in ANSWERED or isinstance(found, Refused) or "large" in label:
            continue
        try:
            with numpy.errstate(all="ignore"):
                call(twin, lambda value: value)
        except Exception as error:
            pytest.fail(f"{name}{label} gave {found!r}; NumPy raises {error!r}")


#: The namespaces whose functions name themselves.
NAMING = ("np", "np.linalg", "np.random", "np.fft", "npx", "npx.image", "npx.random")
#: Wrong calls, of which the errors come from what the functions are composed of.
UNNAMED: dict[str, Call] = {
    "(text)": lambda f, x: f("a"),
    "(x, text)": lambda f, x: f(x, "a"),
    "([text, x])": lambda f, x: f(["a", x]),
    "(ragged)": lambda f, x: f([[1, 2], [3]]),
    "(Nones)": lambda f, x: f([None]),
    "(x, axis=7)": lambda f, x: f(x, axis=7),
    "(x, dtype=text)": lambda f, x: f(x, dtype="a"),
    "(x, where=text)": lambda f, x: f(x, where="a"),
    "(device=text)": lambda f, x: f(device="a"),
}


@pytest.mark.parametrize("namespace", NAMING)
def test_every_function_names_itself(namespace: str) -> None:
    for name, function in NAMESPACES[namespace].items():
        if not is_function(function) or name in (*OTHERS, "set_np", "reset_np"):
            continue
        for label, call in UNNAMED.items():
            try:
                call(function, on_gemel(X))
            except CallError as error:
                if "Python scalar" in str(error):
                    continue  # raised by the core, which knows no functions of Python's
                words = set(re.findall(r"\w+", str(error)))
                assert words & {name, function.__name__}, f"{namespace}.{name}{label}: {error}"
            except Exception:
                continue  # too few arguments, or an unknown keyword


@pytest.mark.parametrize("namespace", NAMING)
def test_functions_have_code_of_their_own(namespace: str) -> None:
    """By which an error finds its name; those that a decorator wraps had one code, of the last."""
    load()
    functions = NAMESPACES[namespace]
    for name, function in functions.items():
        known = PUBLIC.get(getattr(function, "__code__", None), name)
        assert known == name or functions.get(known) is function, f"{namespace}.{name}: {known}"


HUGE: dict[str, Callable[[], Any]] = {
    "zeros": lambda: np.zeros((2**40, 2**40)),
    "ones": lambda: np.ones((2**31, 2**31, 2**31)),
    "full": lambda: np.full((2**62,), 1.0),
    "empty": lambda: np.empty((2**63,)),
    "arange": lambda: np.arange(2**62),
    "arange of small steps": lambda: np.arange(0, 1e300, 1e-10),
    "linspace": lambda: np.linspace(0, 1, 2**62),
    "eye": lambda: np.eye(2**40),
    "tri": lambda: np.tri(2**40),
    "identity": lambda: np.identity(2**35),
    "indices": lambda: np.indices((2**40, 2**40)),
    "broadcast_to": lambda: np.broadcast_to(np.zeros((1, 1)), (2**40, 2**40)) + 1,
    "repeat": lambda: np.repeat(np.zeros((2**10,)), 2**55),
    "tile": lambda: np.tile(np.zeros((2**10,)), (2**30, 2**30)),
    "outer": lambda: np.outer(*[np.broadcast_to(np.zeros(1), (2**31,))] * 2),
    "multiply": lambda: (
        np.broadcast_to(np.zeros((1, 1)), (2**31, 1))
        * np.broadcast_to(np.zeros((1, 1)), (1, 2**31))
    ),
    "kron": lambda: np.kron(*[np.broadcast_to(np.zeros(1), (2**31,))] * 2),
    "pad": lambda: np.pad(np.zeros(3), 2**61),
    "diag": lambda: np.diag(np.zeros(3), 2**40),
    "one_hot": lambda: npx.one_hot(np.array([1, 2], dtype="int64"), 2**60),
    "resize": lambda: np.resize(np.zeros(3), (2**40, 2**40)),
    "vander": lambda: np.vander(np.zeros(2**10), 2**55),
    "random": lambda: np.random.uniform(size=(2**40, 2**40)),
    "normal": lambda: np.random.normal(size=(2**62,)),
}


@pytest.mark.parametrize("name", HUGE)
def test_huge_shapes_are_refused_before_memory_is_taken(name: str) -> None:
    with pytest.raises((GemelError, MemoryError, OverflowError, ValueError)):
        HUGE[name]().wait_to_read()
    # An operand of the call may have failed as well: no other test shall see that.
    with contextlib.suppress(Exception):
        npx.waitall()


SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda np, x: x + np.ones((4,)),
    "matmul": lambda np, x: np.matmul(x, x),
    "dot": lambda np, x: np.dot(x, np.ones((2, 3))),
    "concatenate": lambda np, x: np.concatenate([x, np.ones((2, 4))], axis=0),
    "stack": lambda np, x: np.stack([x, np.ones((3, 2))]),
    "reshape": lambda np, x: np.reshape(x, (4, 2)),
    "broadcast_to": lambda np, x: np.broadcast_to(x, (2, 4)),
    "split": lambda np, x: np.split(x, 4),
    "squeeze": lambda np, x: np.squeeze(x, 0),
    "take": lambda np, x: np.take(x, np.array([9], dtype="int64"), axis=1),
    "mask": lambda np, x: x[np.array([True, False, True])],
    "position": lambda np, x: x[5],
    "positions": lambda np, x: x[:, np.array([0, 7], dtype="int64")],
    "too many": lambda np, x: x[0, 0, 0],
    "float": lambda np, x: x[1.0],
    "text": lambda np, x: x["a"],
    "assigned": lambda np, x: x.__setitem__(slice(None), np.ones((4,))),
    "assigned text": lambda np, x: x.__setitem__(0, "a"),
    "assigned None in integers": lambda np, x: x.astype("int32").__setitem__(0, None),
    "too large": lambda np, x: x.astype("uint8") + 300,
    "too small": lambda np, x: x.astype("uint8").__setitem__(0, -1),
    "in place": lambda np, x: x.astype("int32").__iadd__(0.5),
    "in place, wider": lambda np, x: np.ones((3,), dtype="float32").__iadd__(np.ones((2, 3))),
    "max of nothing": lambda np, x: np.max(x[:0]),
    "argmax of nothing": lambda np, x: np.argmax(x[:, :0], axis=1),
    "clip": lambda np, x: np.clip(x, np.ones((4,)), 2),
    "where": lambda np, x: np.where(x > 0, x, np.ones((4,))),
    "moveaxis": lambda np, x: np.moveaxis(x, 0, 5),
    "swapaxes": lambda np, x: np.swapaxes(x, 0, 2),
    "inverse": lambda np, x: np.linalg.inv(x),
    "cholesky": lambda np, x: np.linalg.cholesky(-np.eye(3)),
    "len": lambda np, x: len(x[0, 0]),
    "bool": lambda np, x: bool(x),
    "float of many": lambda np, x: float(x),
    "index of float": lambda np, x: [1, 2][x[0, 0]],
    "einsum": lambda np, x: np.einsum("ij,jk->ik", x, x),
    "tensordot": lambda np, x: np.tensordot(x, x, axes=1),
    "dtype": lambda np, x: x.astype("float33"),
    "where of x alone": lambda np, x: np.where(x > 0, x),
    "where of y alone": lambda np, x: np.where(x > 0, y=x),
    "casting": lambda np, x: np.sin(x, casting="anyhow"),
    "casting beside out": lambda np, x: np.add(x, 1, out=x, casting="anyhow"),
    "vecdot of a number": lambda np, x: np.vecdot(x, 1.0),
    "cross of a number": lambda np, x: np.linalg.cross(np.ones((2, 3)), 1.0),
    "dirichlet of a number": lambda np, x: np.random.dirichlet(1.0),
    "shift": lambda np, x: x << 1,
    "bitwise": lambda np, x: x & 1,
    "minus bool": lambda np, x: (x > 0) - (x > 1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_what_numpy_refuses_is_refused(name: str) -> None:
    """With a typed error, raised by the call or by the wait for the result."""
    call = SHAPES[name]
    assert isinstance(outcome(lambda: call(numpy, X.copy())), Refused)
    assert isinstance(outcome(lambda: call(np, on_gemel(X))), Refused)


def test_positions_that_are_out_of_range_write_nothing() -> None:
    """The failed array names the call; its neighbours in memory are unchanged."""
    whole = np.zeros((5, 4))
    part = whole[1:4]
    part[np.array([0, 7, 1], dtype="int64")] = 1.0
    with pytest.raises(IndexError, match="assign"):
        part.asnumpy()
    found = np.take(np.arange(4.0), np.array([9], dtype="int64"))
    with pytest.raises(IndexError, match=r"take.*size 4"):
        found.asnumpy()


#: Computations on an array without elements that depends on a failed operation.
BEHIND_NOTHING: dict[str, Callable[[Any], Any]] = {
    "a sum": lambda x: x + 1,
    "a chain": lambda x: np.exp(x * 2) - x,
    "broadcasting": lambda x: x + np.ones((4, 1)),
    "a comparison": lambda x: x > 0,
    "sort": np.sort,
    "argsort": np.argsort,
    "a copy": lambda x: np.array(x),
    "another dtype": lambda x: x.astype("float64"),
    "a sum of all": lambda x: (x * 2).sum(),
    "a target": lambda x: np.add(x, 1, out=np.zeros((1, 0))),
    "another device": lambda x: x.copyto(npx.cpu(1)),
}


@pytest.mark.parametrize("name", BEHIND_NOTHING)
def test_a_failure_reaches_what_has_no_elements(name: str) -> None:
    found = BEHIND_NOTHING[name](np.take(np.zeros((3, 0)), np.array([5]), axis=0))
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 3"):
        found.asnumpy()
    with contextlib.suppress(IndexError):
        npx.waitall()


def test_variance_about_a_mean_of_another_shape() -> None:
    x = np.ones((2, 3))
    with pytest.raises(gemel.errors.ShapeError, match="must have the shape of np"):
        np.var(x, axis=1, mean=np.ones((4, 2, 3)))
    with pytest.raises(gemel.errors.ShapeError):
        np.std(x, axis=1, mean=np.ones((2, 2)))


def test_copyto_refuses_other_targets() -> None:
    for place in (numpy.zeros(3), "cpu", 1):
        with pytest.raises(TypeError, match="neither a device nor"):
            np.ones(3).copyto(place)


def test_a_parameter_names_the_way_to_its_array() -> None:
    parameter = gluon.Parameter("w", shape=(2,))
    for name in ("asnumpy", "T", "sum"):
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'; .*data\(\)\.{name}$"):
            getattr(parameter, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        parameter.nothing  # noqa: B018


SIZES: dict[str, Callable[[Any], Any]] = {
    "Conv2D": lambda n: repr(nn.Conv2D(n, n + 1, strides=n, padding=n, in_channels=n)),
    "Conv2DTranspose": lambda n: repr(nn.Conv2DTranspose(n, n + 1, output_padding=n - 1)),
    "MaxPool2D": lambda n: nn.MaxPool2D(n + 1, n)(np.ones((1, 1, 4, 4))).shape,
    "PixelShuffle2D": lambda n: nn.PixelShuffle2D(n + 1)(np.ones((1, 4, 2, 2))).shape,
    "ReflectionPad2D": lambda n: nn.ReflectionPad2D(n)(np.ones((1, 1, 4, 4))).shape,
    "Resize": lambda n: transforms.Resize(n + 2)(np.zeros((6, 6, 3), dtype="uint8")).shape,
    "RandomCrop": lambda n: transforms.RandomCrop(n, pad=n)(np.ones((6, 6, 3))).shape,
    "roi_pooling": lambda n: (
        npx.roi_pooling(np.ones((1, 2, 4, 4)), np.array([[0, 0, 0, 3, 3]]), n + 1, 1.0).shape
    ),
    "tensordot": lambda n: np.tensordot(np.ones((2, 3)), np.ones((3, 2)), n).shape,
    "tensordot of axes": lambda n: np.tensordot(np.ones((2, 3)), np.ones((3, 2)), (n, n - 1)).shape,
    "flip": lambda n: np.flip(np.arange(6).reshape(2, 3), n).tolist(),
    "histogram": lambda n: np.histogram(np.arange(4.0), n + 1)[0].tolist(),
    "apply_over_axes": lambda n: np.apply_over_axes(np.sum, np.ones((2, 3)), n).shape,
    "while_loop": lambda n: (
        npx.while_loop(
            lambda i: i < 2, lambda i: ([i], [i + 1]), [np.array([0.0])], max_iterations=n + 2
        )[0][0].shape
    ),
    "nd.sum": lambda n: nd.sum(nd.ones((2, 3)), axis=n).tolist(),
    "nd.reshape": lambda n: nd.reshape(nd.ones((2, 3)), shape=n + 5).shape,
    "nd.split_v2": lambda n: len(nd.split_v2(nd.ones((2, 3)), n + 1)),
    "nd.broadcast_axis": lambda n: nd.broadcast_axis(nd.ones((1, 3)), axis=n - 1, size=n).shape,
    "sym": lambda n: sym.Convolution(sym.var("x"), num_filter=n, kernel=(n, n), name="c").tojson(),
}


@pytest.mark.parametrize("name", SIZES)
def test_whole_numbers_may_be_numpys(name: str) -> None:
    expected = SIZES[name](1)
    for number in (numpy.int64(1), numpy.uint8(1), numpy.array(1)):
        assert SIZES[name](number) == expected


ONE = np.array(1)
ARRAYS: dict[str, tuple[Callable[[], Any], Any]] = {
    "histogram": (lambda: np.histogram(np.arange(4.0), ONE + ONE)[0].tolist(), [2, 2]),
    "Generator.normal": (lambda: np.random.default_rng(1).normal(0.0, 1.0, ONE).shape, (1,)),
    "Generator.uniform": (lambda: np.random.default_rng(1).uniform(size=(ONE, 2)).shape, (1, 2)),
    "Generator.integers": (lambda: np.random.default_rng(1).integers(9, size=ONE).shape, (1,)),
    "zeros": (lambda: np.zeros((2, ONE)).shape, (2, 1)),
    "flip": (lambda: np.flip(np.arange(4).reshape(2, 2), ONE).tolist(), [[1, 0], [3, 2]]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_sizes_and_axes_may_be_arrays_without_dimensions(name: str) -> None:
    found, expected = ARRAYS[name]
    assert found() == expected


def test_sizes_in_numpys_arrays() -> None:
    assert nn.MaxPool2D(numpy.array([2, 2]))(np.ones((1, 1, 4, 4))).shape == (1, 1, 2, 2)
    assert np.flip(np.arange(4).reshape(2, 2), numpy.array([0, 1])).tolist() == [[3, 2], [1, 0]]


#: Calls whose errors came from within, or named another operation.
NAMED: dict[str, Callable[[], Any]] = {
    "nanargmin": lambda: np.nanargmin(np.ones((2, 2)), axis=(0, 1)),
    "zeros": lambda: np.zeros(2.5),
    "ones": lambda: np.ones(-1),
    "eye": lambda: np.eye(2.5),
    "tri": lambda: np.tri(-1),
    "choose": lambda: np.choose(np.array([0, 1]), []),
    "multinomial": lambda: np.random.multinomial(-1, [0.5, 0.5]).asnumpy(),
    "poisson": lambda: np.random.poisson(1e30).asnumpy(),
    "zipf": lambda: np.random.zipf(1.0).asnumpy(),
    "logseries": lambda: np.random.logseries(1.0).asnumpy(),
    "interp": lambda: np.interp([1.0], [1.0, 2.0], [1.0, 2.0], period=0),
    "cov: fweights": lambda: np.cov(np.ones((2, 3)), fweights=[-1, 2, 1]).asnumpy(),
    "cov: fweights must": lambda: np.cov(np.ones((2, 3)), fweights=[0.5, 1, 1]).asnumpy(),
    "cov: aweights": lambda: np.cov(np.ones((2, 3)), aweights=[-0.5, 1, 1]).asnumpy(),
    "norm of fft": lambda: np.fft.fft(np.ones(3), norm={}),  # type: ignore[arg-type]
    "fft2: s": lambda: np.fft.fft2(np.ones((2, 2)), s=0.5),
    "fftn: axes": lambda: np.fft.fftn(np.ones((2, 2)), axes=1),
    "exponential": lambda: np.random.exponential(size=-1),
    "chisquare": lambda: np.random.chisquare(np.array([1j])),
    "hypergeometric": lambda: np.random.hypergeometric(np.ones(2), 2.5, 1).asnumpy(),
    "tensorsolve": lambda: np.linalg.tensorsolve(np.ones(()), np.ones(2), axes=(0, 1)),
    "tensordot: axes": lambda: np.tensordot(np.ones((2, 2)), np.ones((2, 2)), axes=0.5),
    "tensordot: axes .1,.": lambda: np.tensordot(np.ones((2, 2)), np.ones((2, 2)), axes=(1,)),
    "dot: matmul": lambda: np.dot(np.ones((4, 3)), np.ones((4, 5))),
    "matvec: matmul": lambda: np.matvec(np.ones((4, 3)), np.ones(4)),
    "matvec: .*matrices": lambda: np.matvec(np.ones(3), np.ones(3)),
    "vecmat: .*matrices": lambda: np.vecmat(np.ones(()), np.ones((3, 3))),
    "batch_dot: matmul": lambda: npx.batch_dot(np.ones((2, 4, 3)), np.ones((2, 4, 3))),
    "attention: matmul": lambda: npx.attention(np.ones((4, 3)), np.ones((4, 5)), np.ones((4, 5))),
    "einsum: .* 'j' has": lambda: np.einsum("ij,jk,kl", *[np.ones((2, 3))] * 3, optimize=True),
    "einsum: optimize='fast'": lambda: np.einsum("i,i,i", *[[1.0]] * 3, optimize="fast"),
    "einsum: optimize=3": lambda: np.einsum("i,i,i", *[[1.0]] * 3, optimize=3),
    "power: takes 2 inputs": lambda: np.power(2.0, where="a"),  # type: ignore[arg-type]
    "sum: takes 1 input": lambda: np.sum(initial=1),  # type: ignore[call-arg]
    "^sum: .*'a' is not": lambda: np.sum(np.ones(2), initial="a"),
    "argsort: descending is 'a'": lambda: np.argsort(np.ones(2), descending="a"),
    "^sort: descending is .1,.;": lambda: np.sort(np.ones(2), descending=(1,)),
    "^topk: k '3' must be": lambda: npx.topk(np.ones(2), "3"),
    "^topk: k 1.0 must be": lambda: npx.topk(np.ones(2), 1.0),
    "^topk: k must be one whole number, not an array of shape .2.": lambda: npx.topk(
        np.ones(2), np.array([1, 2])
    ),
    "^topk: k None must be": lambda: npx.topk(np.ones(2), None),
    "^topk: is_ascend is 'no'": lambda: npx.topk(np.ones(2), is_ascend="no"),
    "^sort: order is 'f'": lambda: np.sort(np.ones(2), order="f"),
    "^argsort: order is 'f'": lambda: np.argsort(np.ones(2), order="f"),
    "^partition: order is 'f'": lambda: np.partition(np.ones(2), 1, order="f"),
    "^argpartition: order is 'f'": lambda: np.argpartition(np.ones(2), 1, order="f"),
    "kind of partition 'stable'": lambda: np.partition(np.ones(2), 1, kind="stable"),
    "kind of argpartition 'stable'": lambda: np.argpartition(np.ones(2), 1, kind="stable"),
    "max: keepdims is 'a'": lambda: np.max(np.ones(2), keepdims="a"),
    "var: ddof is 'a'": lambda: np.var(np.ones(2), ddof="a"),
    "^std: ddof is 'a'": lambda: np.std(np.ones(2), ddof="a"),
    "^std: ddof and correction": lambda: np.std(np.ones(2), ddof=1, correction=1),
    "sequence_last: axis 2 must": lambda: npx.sequence_last(np.ones((2, 3, 4)), axis=2),
    "sequence_mask: axis 2 must": lambda: npx.sequence_mask(np.ones((2, 3, 4)), axis=2),
    "sequence_reverse: axis -1 must": lambda: npx.sequence_reverse(np.ones((2, 3)), axis=-1),
    "var: correction is .1,.": lambda: np.var(np.ones(2), correction=(1,)),
    "nanvar: ddof is .1,.": lambda: np.nanvar(np.ones(2), ddof=(1,)),
    "^cov: ddof is 'a'": lambda: (np.polyfit, np.cov(np.ones((2, 2)), ddof="a")),
    "^set_np: dtype is 'a'": lambda: npx.set_np(dtype="a"),
    "^set_np_shape: active is 'a'": lambda: gemel.util.set_np_shape("a"),
    "einsum: optimize=.*, .0, 9": lambda: np.einsum_path(
        "i,i,i", *[[1.0]] * 3, optimize=["einsum_path", (0, 9)]
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_errors_name_the_function_that_was_called(name: str) -> None:
    with pytest.raises((GemelError, TypeError), match=name):
        NAMED[name]()


#: What NumPy's functions find wrong at the wait, and types of arguments.
GEMELS: dict[str, Callable[[], Any]] = {
    "bincount: .*deep": lambda: np.bincount(np.ones((1, 2), dtype="int32")),
    "digitize: .*monotonic": lambda: np.digitize(np.ones(3), np.array([1.0, 3.0, 2.0])).asnumpy(),
    "nanargmax: All-NaN": lambda: np.nanargmax(np.array([float("nan")])).asnumpy(),
    "nonzero: .*0d": lambda: np.nonzero(np.array(1.0)),
    "unravel_index: .*bounds": lambda: np.unravel_index(np.array([7]), (2, 3))[0].asnumpy(),
    "max: where may": lambda: np.max(np.ones(2), where=np.array([True, False])),
    "hanning: 2.5": lambda: np.hanning(2.5),  # type: ignore[arg-type]
    "quantile: q": lambda: np.quantile(np.ones(2), q="a"),
    "gradient: 2 distances": lambda: np.gradient(np.ones(2), 1, 2),
    "choice: 1.5": lambda: np.random.choice(1.5, 2),
    "insert: .*bounds": lambda: np.insert(np.ones(3), [7], 1),
    "delete: .*bounds": lambda: np.delete(np.ones(3), 7),
    "^packbits: Expected": lambda: np.packbits(np.ones(2)),
    "^packbits: 'order'": lambda: np.packbits(np.array([1]), bitorder="x"),
    "^packbits: axis 3": lambda: np.packbits(np.array([1]), axis=3),
    "^unpackbits: Expected": lambda: np.unpackbits(np.ones(2)),
    "^histogram2d: .*length": lambda: np.histogram2d(np.ones(2), np.ones(3)),
    "^histogramdd: .*bins": lambda: np.histogramdd(np.ones((1, 2)), bins=[1, 2, 3]),
    "^histogram_bin_edges: 'foo'": lambda: np.histogram_bin_edges(np.ones(2), "foo"),
    "^polyfit: .*deg": lambda: np.polyfit(np.ones(2), np.ones(2), -1),
    "^arange: from 0 to 1 by 0": lambda: np.arange(0, 1, 0),
    "^arange: from 0 to 1.5 by 0": lambda: np.arange(0, 1.5, 0.0),
    "^clip: .*twice": lambda: np.clip(np.ones(3), 0, a_min=1),
    "^reshape: missing": lambda: np.reshape(np.ones(1)),
    "^fill_diagonal: .*list": lambda: np.fill_diagonal([1], 2),
    "^uniform: takes 7": lambda: np.random.uniform(*range(11)),
    "^uniform: unknown keyword 'lo'; did": lambda: np.random.uniform(lo=2),
    "^uniform: low is given twice": lambda: np.random.uniform(1, low=2),
    "^gamma: shape is missing": lambda: np.random.gamma(),
    "^uniform: takes 8": lambda: nd.random.uniform(*range(9)),
    "^while_loop: max_iterations must": lambda: npx.while_loop(len, len, [np.ones(1)], 2.5),
    "^foreach: body must": lambda: npx.foreach(lambda x, s: x, np.ones(1), np.ones(1)),
    "^imag: .*float32": lambda: setattr(np.ones(1), "imag", 3),
    "^pad: mode 'edge' takes no foo": lambda: np.pad(np.ones(1), 1, "edge", foo=3),
    "^pad: .* no reflect_type": lambda: np.pad(np.ones(1), 1, "wrap", reflect_type="odd"),
    "^r_ and c_ accept": lambda: np.r_["0,2", np.ones(1)],
    "^result_type: needs": lambda: np.result_type(),
    "^exp: unknown keyword 'foo'": lambda: np.exp(np.ones(1), foo=3),  # type: ignore[call-arg]
    "^copyto: .*int": lambda: nd.ones(3).copyto(3),
    "^compile: 3": lambda: gemel.compile(3),  # type: ignore[call-overload]
    "^compile: passes=": lambda: gemel.compile(len, passes=3),  # type: ignore[call-overload]
    "^compile: recipes=": lambda: gemel.compile(len, recipes=3),  # type: ignore[call-overload]
    "^var: name is 3": lambda: sym.var(3),
    "^<Symbol a>.1.5": lambda: sym.var("a")[1.5],
    "^AttrScope: a is 3": lambda: gemel.AttrScope(a=3),  # type: ignore[arg-type]
    "from_dlpack: int": lambda: np.from_dlpack(3),
    "^savez: arr_0": lambda: np.savez("x", np.ones(1), arr_0=np.ones(1)),
}


@pytest.mark.parametrize("name", GEMELS)
def test_errors_are_gemels(name: str) -> None:
    """They were Python's bare ones."""
    with pytest.raises(GemelError, match=name):
        GEMELS[name]()


def test_numbers_at_the_end_of_what_there_is() -> None:
    x = np.array([1.5, -2.0])
    assert np.round(x, 400).tolist() == [1.5, -2.0]
    assert np.round(x, -400).tolist() == [0.0, 0.0]
    assert np.trim_zeros(np.array(0.0)).shape == ()


def recorded() -> tuple[Any, Any]:
    x = np.ones(2)
    x.attach_grad()
    with gemel.autograd.record():
        return (x * x).sum(), x


LAYER_SETTINGS = {
    "axis of batch norm": lambda: nn.BatchNorm(axis="a"),
    "axis of layer norm": lambda: nn.LayerNorm(axis=1.5),
    "axis of a concatenation": lambda: nn.HybridConcatenate(axis="a"),
    "axes of dropout": lambda: nn.Dropout(0.5, axes="a"),
    "alpha": lambda: nn.LeakyReLU("a"),
    "alpha of ELU": lambda: nn.ELU("a"),
    "beta": lambda: nn.Swish("a"),
    "no function": lambda: nn.Lambda("zz"),
    "no cell": lambda: gluon.rnn.ResidualCell(5),
    "no cells": lambda: gluon.rnn.BidirectionalCell(gluon.rnn.LSTMCell(2), nn.Dense(2)),
    "limits of c": lambda: gluon.rnn.LSTM(2, state_clip_min=3, state_clip_max=1),
    "limit of c": lambda: gluon.rnn.LSTM(2, state_clip_min="a"),
    "states": lambda: gluon.rnn.LSTM(2, input_size=2)(np.ones((1, 1, 2)), 5),
    "weights": lambda: nn.Dense(2, weight_initializer=5),
    "unknown weights": lambda: nn.Embedding(2, 2, weight_initializer="nurmal"),
    "gamma": lambda: nn.BatchNorm(gamma_initializer=5),
    "a rate's factor": lambda: gluon.Parameter("a", lr_mult="a"),
    "a decay's factor": lambda: nn.Dense(2).setattr("wd_mult", "a"),
    "apply": lambda: nn.HybridSequential().apply(5),
    "a summary of nothing": lambda: nn.Dense(2, in_units=2).summary(),
    "a summary of too much": lambda: nn.Dense(2, in_units=2).summary(1, 2),
    "a learning rate": lambda: gemel.optimizer.SGD(learning_rate="a"),
    "a clip": lambda: gemel.optimizer.SGD(clip_gradient="a"),
    "a scheduler": lambda: gemel.optimizer.SGD(lr_scheduler=5),
    "factors": lambda: gemel.optimizer.SGD().set_lr_mult("a"),
    "a factor": lambda: gemel.optimizer.LARS().set_wd_mult({"w": "a"}),
    "an array that is no count": lambda: nn.Dense(np.array(5.5)),
    "hybridize": lambda: nn.Dense(2).hybridize("a"),
    "hybridize a list": lambda: nn.Sequential().hybridize([]),
    "no parameter": lambda: gluon.ParameterDict().update({"b": 5}),
    "no parameters": lambda: gluon.ParameterDict({"b": 5}),
    "no dictionary": lambda: gluon.ParameterDict().update([5]),
    "shared parameters": lambda: gluon.ParameterDict("a", shared=5),
    "batch_axis": lambda: gluon.loss.L2Loss(batch_axis="a"),
    "classes": lambda: gluon.loss.SoftmaxCELoss(axis=1.5),
    "classes of distributions": lambda: gluon.loss.KLDivLoss(axis="a"),
    "sparse_label": lambda: gluon.loss.SoftmaxCELoss(sparse_label="no"),
    "from_logits": lambda: gluon.loss.KLDivLoss(from_logits="no"),
    "from_sigmoid": lambda: gluon.loss.SigmoidBCELoss(from_sigmoid=[]),
    "compute_full": lambda: gluon.loss.PoissonNLLLoss(compute_full="no"),
    "even_split": lambda: gluon.utils.split_data(np.ones((4, 2)), 2, even_split="no"),
    "update_on_kvstore": lambda: gluon.Trainer([], "sgd", update_on_kvstore="no"),
    "no such layer": lambda: nn.Sequential()[0],
    "no position": lambda: nn.HybridSequential()["a"],
    "a sequence": lambda: gluon.rnn.LSTMCell(2).unroll(3, 5),
    "a shape from a number": lambda: nn.Dense(2).infer_shape(5),
    "a shape from nothing": lambda: nn.Conv2D(2, 3).infer_shape(),
    "a shape from a list": lambda: nn.BatchNorm().infer_shape([np.ones((2, 3))]),
    "shapes of a deformable layer": lambda: nn.DeformableConvolution(2).infer_shape(None),
    "shapes of a recurrent layer": lambda: gluon.rnn.LSTM(2).infer_shape("a"),
    "shapes of a cell": lambda: gluon.rnn.GRUCell(2).infer_shape((2, 3)),
    "a dtype from a number": lambda: nn.Dense(2).infer_type(5),
    "a dtype from nothing": lambda: nn.Dense(2).infer_type(),
    "no name": lambda: gluon.ParameterDict("p_").get(5),
    "no name of a constant": lambda: gluon.ParameterDict("p_").get_constant(5, 1),
    "a size below nothing": lambda: gluon.Parameter("w", shape=(-5, 3)),
    "a new size below nothing": lambda: setattr(
        gluon.Parameter("w", shape=(2, 0)), "shape", (-2, 3)
    ),
    "no weight": lambda: gemel.optimizer.SGD().update(0, 5, np.ones(2), None),
    "no gradient": lambda: gemel.optimizer.LAMB().update([0], [np.ones(2)], [5], [None]),
    "no arrays": lambda: gemel.optimizer.Adam().update_multi_precision(0, 5, 5, None),
    "a weight of NumPy": lambda: gemel.optimizer.SGD().update(0, numpy.ones(2), np.ones(2), None),
    "no update": lambda: gemel.lr_scheduler.CosineScheduler(10)("a"),
    "ignore_stale_grad": lambda: gluon.Trainer([], "sgd").step(1, ignore_stale_grad="a"),
    "ignore_stale_grad of update": lambda: gluon.Trainer([], "sgd").update(1, "a"),
    "no address": lambda: gluon.utils.download(5),
    "no path": lambda: gluon.utils.download("file:///a", path=5),
    "no digest": lambda: gluon.utils.download("file:///a", __file__, sha1_hash=5),
    "verify_ssl": lambda: gluon.utils.download("file:///a", verify_ssl="a"),
    "no retries": lambda: gluon.utils.download("file:///a", retries="a"),
    "no file": lambda: gluon.utils.check_sha1(5, "a"),
    "no text": lambda: gluon.utils.check_sha1("a", 5),
    "a switch of the profiler": lambda: gemel.profiler.set_config(profile_all="a"),
    "no steps": lambda: gemel.topology.joined(None),
    "no list of steps": lambda: gemel.topology.joined([5]),
    "no file to save": lambda: np.save(5, np.ones(2)),
    "no file for several": lambda: np.savez(5, np.ones(2)),
    "no head": lambda: gemel.autograd.backward(5),
    "no variable": lambda: gemel.autograd.mark_variables("a"),
    "no gradients": lambda: gemel.autograd.mark_variables([np.ones(2)], [5]),
    "no request": lambda: gemel.autograd.mark_variables([np.ones(2)], None, 5),
    "retain_graph": lambda: gemel.autograd.backward(recorded()[0], retain_graph="a"),
    "create_graph": lambda: gemel.autograd.grad(*recorded(), create_graph="a"),
}


@pytest.mark.parametrize("case", [*LAYER_SETTINGS])
def test_settings_of_layers(case):
    with pytest.raises(GemelError):
        LAYER_SETTINGS[case]()


PICTURE = np.zeros((6, 5, 3), dtype="uint8")
PICTURES = {
    "no jitter": lambda: image.BrightnessJitterAug("a"),
    "no jitters": lambda: image.ColorJitterAug(0.1, "a", 0.1),
    "no flips": lambda: image.HorizontalFlipAug(None),
    "no size to crop": lambda: image.CenterCropAug(7),
    "no width to crop": lambda: image.RandomCropAug((7, "a")),
    "no short side": lambda: image.ResizeAug("a"),
    "no augmenters": lambda: image.SequentialAug(5),
    "none of augmenters": lambda: image.RandomOrderAug([5]),
    "resize of all": lambda: image.CreateAugmenter((3, 4, 4), resize="a"),
    "grey of all": lambda: image.CreateAugmenter((3, 4, 4), rand_gray="a"),
    "colours of all": lambda: image.CreateAugmenter((3, 4, 4), brightness="a"),
    "resizing that crops": lambda: image.CreateAugmenter((3, 4, 4), rand_resize=True),
    "a shape with boxes": lambda: image.CreateDetAugmenter(5),
    "crops with boxes": lambda: image.CreateDetAugmenter((3, 4, 4), rand_crop="a"),
    "a shape of batches": lambda: image.ImageIter(2, 5, imglist=[]),
    "no picture to resize": lambda: image.imresize(5, 2, 2),
    "no width": lambda: image.imresize(PICTURE, "a", 2),
    "no picture to crop": lambda: image.center_crop(5, (2, 2)),
    "a number to crop to": lambda: image.random_crop(PICTURE, 2),
    "no area": lambda: image.random_size_crop(PICTURE, (2, 2), "a", (0.5, 2)),
    "no ratio": lambda: image.random_size_crop(PICTURE, (2, 2), 0.5, 5),
    "no size to fit": lambda: image.scale_down((4, 4), 5),
    "no room": lambda: image.scale_down(5, (4, 4)),
    "a side of nothing": lambda: image.resize_short(None, 2),
    "a side that is none": lambda: image.resize_short(PICTURE, []),
    "no part": lambda: image.fixed_crop(PICTURE, 0, 0, 2, 2, 5),
    "no angles": lambda: image.random_rotate(np.zeros((3, 4, 4)), 5),
    "no header": lambda: recordio.pack(5, b""),
    "no record": lambda: recordio.unpack(5),
    "no record of a picture": lambda: recordio.unpack_img(None),
}


@pytest.mark.parametrize("case", [*PICTURES])
def test_pictures_and_records(case):
    with pytest.raises(GemelError):
        PICTURES[case]()


def test_parameters_that_contain_themselves():
    """They are refused, however they are given, and not walked for ever."""
    cyclic: list = []
    cyclic.append(cyclic)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    x = np.ones((3, 3))
    for each in (cyclic, deep, (cyclic,)):
        for call in (lambda v: x.reshape(v), lambda v: x.sum(axis=v), lambda v: np.transpose(x, v)):
            with pytest.raises(GemelError, match="contains itself, or is nested too deeply"):
                call(each)
    while deep:  # Python itself destroys nested lists one inside of the other
        deep = deep[0]
