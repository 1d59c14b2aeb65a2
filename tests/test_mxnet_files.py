"""MXNet's symbol files: gemel reads what MXNet 1.9.1 wrote, and writes the same format.

The files in references/mxnet_files hold small networks and what MXNet computed with them; `make.py`
there writes them. Whether MXNet loads gemel's files is checked by hand (decision 0033).
"""

from __future__ import annotations

import cProfile
import json
import pstats
import random
from math import inf
from pathlib import Path
from typing import Any

import numpy
import pytest

from gemel import np, npx, onnx, sym
from gemel.errors import ExportError, GemelError, ParameterFileError, SymbolFileError
from gemel.gluon import SymbolBlock, nn
from gemel.ir.declare import op
from gemel.spec import Spec

FILES = Path(__file__).parent / "references" / "mxnet_files"
CASES = sorted(path.stem for path in FILES.glob("*.io"))


def listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def imported(case: str) -> tuple[SymbolBlock, list[Any], list[Any]]:
    """A reference network, its inputs, and the outputs MXNet computed."""
    held: Any = npx.load(FILES / f"{case}.io")
    symbol = FILES / f"{case}-symbol.json"
    names = sym.load(symbol).list_inputs()
    inputs = [name for name in names if name.startswith("data") or name in "ab"]
    block = SymbolBlock.imports(symbol, inputs, FILES / f"{case}-0000.params")
    outputs = [held[f"y{place}"] for place in range(sum(name[0] == "y" for name in held))]
    return block, [held[f"x{place}"] for place in range(len(inputs))], outputs


def test_there_are_references() -> None:
    assert len(CASES) >= 14


@pytest.mark.parametrize("case", CASES)
def test_networks_of_mxnet(case: str, tmp_path: Path) -> None:
    block, inputs, outputs = imported(case)
    imperative = listed(block(*inputs))
    block.hybridize()
    compiled = listed(block(*inputs))
    files = block.export(tmp_path / "again")
    again = SymbolBlock.imports(files[0], block._inputs, files[1])
    for found in (imperative, compiled, listed(again(*inputs))):
        assert len(found) == len(outputs)
        for x, want in zip(found, outputs, strict=True):
            assert x.shape == want.shape and x.dtype == want.dtype
            numpy.testing.assert_allclose(x.asnumpy(), want.asnumpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("case", ["mlp", "lenet", "embedding", "branches", "gru", "loops"])
def test_text_is_written_as_mxnet_writes_it(case: str) -> None:
    """Reading a file written by MXNet and writing it again gives the same bytes."""
    text = (FILES / f"{case}-symbol.json").read_text()
    found = sym.load_json(text).tojson()
    if '"is_np_shape"' not in text:  # written in MXNet 1's own mode
        found = found.replace(
            '{\n    "is_np_shape": ["int", 1], \n    "mxnet_version": ["int", 10901]\n  }',
            '{"mxnet_version": ["int", 10901]}',
        )
    assert found == text


def mlp() -> Any:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(256, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    return net


def test_the_mlp(tmp_path: Path) -> None:
    net = mlp()
    net(np.ones((1, 512)))
    names = net.export(tmp_path / "models" / "deep" / "my_mlp")
    assert names == (
        str(tmp_path / "models/deep/my_mlp-symbol.json"),
        str(tmp_path / "models/deep/my_mlp-0000.params"),
    )
    text = Path(names[0]).read_text()
    assert text.startswith('{\n  "nodes": [\n    {\n      "op": "null", \n      "name": "data", \n')
    graph = json.loads(text)
    assert [node["op"] for node in graph["nodes"] if node["op"] != "null"] == [
        *("FullyConnected", "Activation") * 2,
        "FullyConnected",
    ]
    assert [node["name"] for node in graph["nodes"]][:5] == [
        *("data", "net_dense0_weight", "net_dense0_bias", "net_dense0_fwd", "net_dense0_relu_fwd"),
    ]
    assert graph["nodes"][3]["attrs"] == {
        "flatten": "True",
        "no_bias": "False",
        "num_hidden": "256",
    }
    assert graph["nodes"][1]["attrs"]["__shape__"] == "(256, 512)"
    assert graph["arg_nodes"] == [0, 1, 2, 5, 6, 9, 10] and graph["heads"] == [[11, 0, 0]]
    assert graph["attrs"] == {"is_np_shape": ["int", 1], "mxnet_version": ["int", 10901]}
    weights = 4 * (512 * 256 + 256 + 256 * 128 + 128 + 128 * 2 + 2)
    assert weights < Path(names[1]).stat().st_size < weights + 600


def test_counted_names() -> None:
    """Blocks of one kind are numbered throughout the process, as in the seed's second network."""
    first, second = (int(nn.Dense(1).name.removeprefix("dense")) for _ in range(2))
    assert second == first + 1


def test_batch_norms_have_auxiliary_states(tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(2))
    net.initialize()
    net.hybridize()
    net(np.ones((2, 3)))
    files = net.export(tmp_path / "net", epoch=12)
    held: Any = npx.load(files[1])
    kinds = {name.split(":")[0] for name in held if "running" in name}
    assert kinds == {"aux"} and files[1].endswith("-0012.params")
    graph = json.loads(Path(files[0]).read_text())
    norm = next(node for node in graph["nodes"] if node["op"] == "BatchNorm")
    assert [version for _, _, version in norm["inputs"]] == [0, 0, 0, 1, 1]
    rows = graph["node_row_ptr"]
    counts = [b - a for a, b in zip(rows, rows[1:], strict=False)]
    assert sorted(counts)[-2:] == [2, 3], "dropout has two outputs, batch_norm three"


# --- what cannot be written -----------------------------------------------------------------


def test_it_must_have_been_called(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"call net.hybridize\(\) and then net\(x\) once"):
        mlp().export(tmp_path / "net")
    net = mlp()
    net(np.ones((1, 4)))
    net.cast("float64")  # drops the program, but not the record of what it was called on
    net.export(tmp_path / "net")
    assert (tmp_path / "net-symbol.json").exists()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x * np.ones((x.shape[0] * 2, 1))[1::2], "depends on the batch size"),
        (lambda x: x.sum(axis=0) / x.shape[0], "depends on the batch size"),
        (lambda x: np.where(x > 0, x.shape[0] + 1, x), "depends on the batch size"),
        (lambda x: np.arange(x.shape[0]), "depends on the batch size"),
        (lambda x: x[: x.shape[0] // 2], "depends on the batch size"),
        (lambda x: np.linalg.qr(x)[1], "MXNet has no operation for qr"),
        (lambda x: npx.index_update(x, np.array([[0, 2]]), x[:2]), r"for choice \(.*files\.py:"),
        (lambda x: x * (2**53 + 1), "a number is 9007199254740993, and MXNet's files"),
        (lambda x: np.full(3, 1j) + x, "a number is 1j, and MXNet's files"),
    ],
)
def test_functions_mxnet_cannot_express(function: Any, message: str, tmp_path: Path) -> None:
    net = nn.HybridLambda(function)
    net.hybridize()
    net(np.ones((3, 3)))
    with pytest.raises(ExportError, match=message):
        net.export(tmp_path / "net")
    assert not list(tmp_path.iterdir())


@op()
def of_ones_own(x: Any) -> Any:
    """An operation that no file knows."""
    return x * 2


@of_ones_own.spec
def _(x: Spec) -> Spec:
    return x


@pytest.mark.parametrize("write", [lambda net, path: net.export(path), onnx.export])
def test_save_is_no_advice_for_operations_from_outside(write: Any, tmp_path: Path) -> None:
    net = nn.HybridLambda(of_ones_own)
    net.hybridize()
    net(np.ones((3, 3)))
    with pytest.raises(ExportError, match=r"by other operations$"):
        write(net, tmp_path / "net")


OTHER_BATCHES: dict[str, Any] = {
    "as many as were seen": lambda x: x[:5],
    "fewer": lambda x: x[:4],
    "more": lambda x: x[:100],
    "the last": lambda x: x[-5:],
    "every second": lambda x: x[::2],
    "every second of as many": lambda x: x[:5:2],
    "backwards": lambda x: x[::-2],
    "backwards from a place": lambda x: x[4::-1],
    "all columns": lambda x: x[1:, :4],
    "ones for each": lambda x: x * np.ones((x.shape[0], 1)) + np.zeros(x.shape),
    "a diagonal": np.diag,
    "a trace": np.trace,
    "singular values": lambda x: np.linalg.svd(x, full_matrices=False)[1],
    "eigenvalues": lambda x: np.linalg.eigh(x.T @ x)[0],
    "a logarithm of a determinant": lambda x: np.linalg.slogdet(x.T @ x)[1],
}


@pytest.mark.parametrize("name", OTHER_BATCHES)
def test_another_batch_than_the_one_seen(name: str, tmp_path: Path) -> None:
    function = OTHER_BATCHES[name]
    net = nn.HybridLambda(function)
    net.hybridize()
    arrays = numpy.random.default_rng(2).normal(size=(9, 4)).astype("float32")
    net(np.array(arrays[:5]))
    symbol, parameters = net.export(tmp_path / "net")
    found = SymbolBlock.imports(symbol, ["data"], parameters)
    for batch in (5, 7, 9):
        x = np.array(arrays[:batch])
        wanted = function(x).asnumpy()
        assert found(x).shape == wanted.shape
        numpy.testing.assert_allclose(found(x).asnumpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("calls", [[(0, 4)], [(3, 4), (0, 4)], [(3, 4), (3, 1)], [(1, 4)]], ids=str)
def test_files_are_for_more_than_the_call_with_least(calls: Any, tmp_path: Path) -> None:
    net = nn.HybridLambda(lambda x: x.reshape(x.shape[0], x.shape[1], 1) * 2)
    net.hybridize()
    for shape in calls:
        net(np.ones(shape))
    symbol, parameters = net.export(tmp_path / "net")
    found = SymbolBlock.imports(symbol, ["data"], parameters)
    for batch in (0, 1, 5):
        assert found(np.ones((batch, 4))).shape == (batch, 4, 1)


OTHER_SIZES: dict[str, Any] = {
    "an axis in two": lambda x: x.reshape(x.shape[0], 2, 2, x.shape[2], x.shape[3]),
    "an axis in three": lambda x: x.reshape(x.shape[0], 2, 1, 2, x.shape[2], x.shape[3]),
    "one more": lambda x: x.reshape(x.shape[0], 1, 4, 1, x.shape[2], x.shape[3], 1),
    "one less": lambda x: x[:, :1].reshape(x.shape[0], x.shape[2], x.shape[3]),
    "two joined": lambda x: x.reshape(x.shape[0], 4 * x.shape[2], x.shape[3]),
    "three joined": lambda x: x.reshape(4 * x.shape[0] * x.shape[2], x.shape[3]),
    "joined and in two": lambda x: x.reshape(4 * x.shape[0], x.shape[2], 1, x.shape[3], 1),
    "in two and joined": lambda x: x.reshape(x.shape[0], 2, 2, x.shape[2] * x.shape[3]),
    "PixelShuffle2D": nn.PixelShuffle2D(2),
    "numbers": lambda x: np.full((2, x.shape[3], x.shape[0]), 3.0) + x.sum(),
    "group_norm": lambda x: npx.group_norm(x, np.ones(4), np.zeros(4), num_groups=2),
    "upsampling": lambda x: npx.upsampling(x, 2),
}


@pytest.mark.parametrize("name", OTHER_SIZES)
def test_other_sizes_than_those_seen(name: str, tmp_path: Path) -> None:
    function = OTHER_SIZES[name]
    net = nn.HybridLambda(function)
    net.hybridize()
    net(np.ones((2, 4, 6, 8)))
    symbol, parameters = net.export(tmp_path / "net")
    found = SymbolBlock.imports(symbol, ["data"], parameters)
    for shape in ((2, 4, 6, 8), (3, 4, 8, 6), (1, 4, 12, 2), (5, 4, 1, 3), (0, 4, 5, 7)):
        x = np.random.normal(size=shape)
        wanted = function(x).asnumpy()
        assert found(x).shape == wanted.shape
        numpy.testing.assert_allclose(found(x).asnumpy(), wanted, rtol=1e-4, atol=1e-5)


#: Functions of floats and whole numbers.
NUMBERS: dict[str, Any] = {
    "where of floats": lambda x, n: np.where(x > 0, 2.5, 2.0),
    "where of whole numbers": lambda x, n: np.where(x > 0, 2, 3),
    "where of a whole number": lambda x, n: np.where(x > 0, 2, 3.5),
    "where by whole numbers": lambda x, n: np.where(n, 2.5, 2),
    "where of bools and a float": lambda x, n: np.where(x > 0, x > 1, 2.5),
    "where of two dtypes": lambda x, n: np.where(x > 0, x, n),
    "where of True": lambda x, n: np.where(True, n, 2),
    "bits of bools": lambda x, n: (x > 0) | 2,
    "bools and True": lambda x, n: [(x > 0) + True, (x > 0) * True, np.minimum(True, x > 0)],
    "powers of bools": lambda x, n: np.power(x > 0, True),
    "a histogram": lambda x, n: np.histogram(x, 5, (-2, 2)),
    "quotients": lambda x, n: [n // 2, 20 // n, n // n, (n * 9999999 + 1) // 3, x // 0.1, 1 // x],
    "quotients by zero": lambda x, n: [1.5 // n, x // (x * 0)],
    "quotients by infinity": lambda x, n: [
        x // inf,
        x // -inf,
        x // (x * inf),
        inf // n,
        -inf // n,
    ],
    "quotients of infinity": lambda x, n: [
        x[..., ::-1] // (x * -inf),
        (x * inf) // 2.0,
        5 // (x * inf),
    ],
    "beside -0.0": lambda x, n: [x / -0.0, x // -0.0, np.copysign(x, -0.0), n * -0.0, 3.0 - n],
    "along no axis": lambda x, n: [n.sum(axis=()), x.max(axis=()), np.all(n, axis=())],
    "a rest": lambda x, n: np.fmod(n, 3),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_the_dtype_of_the_result(name: str, tmp_path: Path) -> None:
    net = nn.HybridLambda(NUMBERS[name])
    net.hybridize()
    x, n = np.array([[0.5, -1.0, 2.5]]), np.array([[0, 7, -5]], dtype="int32")
    wanted = listed(net(x, n))
    symbol, parameters = net.export(tmp_path / "net")
    found = listed(SymbolBlock.imports(symbol, ["data0", "data1"], parameters)(x, n))
    for one, two in zip(found, wanted, strict=True):
        assert one.dtype == two.dtype
        numpy.testing.assert_array_equal(one.asnumpy(), two.asnumpy())
        if name == "beside -0.0":
            assert (np.signbit(one) == np.signbit(two)).all()


# --- parameters -----------------------------------------------------------------------------


def test_parameters_must_fit(tmp_path: Path) -> None:
    symbol, params = FILES / "mlp-symbol.json", FILES / "mlp-0000.params"
    held: Any = npx.load(params)
    name = next(name for name in held if "bias" in name)
    npx.save(tmp_path / "less", {n: x for n, x in held.items() if n != name})
    npx.save(tmp_path / "more", {**held, "arg:other": np.ones(2)})
    npx.save(tmp_path / "wrong", {**held, name: np.ones((77,))})
    bare = name.removeprefix("arg:")
    for file, pattern in (("less", bare), ("more", "other"), ("wrong", f"{bare} has shape")):
        with pytest.raises(ParameterFileError, match=pattern):
            SymbolBlock.imports(symbol, "data", tmp_path / file)
    assert SymbolBlock.imports(symbol, "data", tmp_path / "more", ignore_extra=True)
    block = SymbolBlock.imports(symbol, "data", tmp_path / "less", allow_missing=True)
    with pytest.raises(GemelError, match=bare):
        block(np.ones((3, 2, 3)))
    with pytest.raises(GemelError, match="unknown input of the symbol 'dat'"):
        SymbolBlock.imports(symbol, "dat", params)


# --- bad files ------------------------------------------------------------------------------

GOOD = json.loads((FILES / "mlp-symbol.json").read_text())
LOOPS = json.loads((FILES / "loops-symbol.json").read_text())
#: The index of a loop among LOOPS' nodes.
LOOP = next(i for i, node in enumerate(LOOPS["nodes"]) if node["op"] == "_foreach")


def changed(path: str, value: Any, good: Any = GOOD) -> Any:
    """The good graph with one field changed, or removed if the value is `...`."""
    graph = json.loads(json.dumps(good))
    *way, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    held = graph
    for part in way:
        held = held[part]
    if value is ...:
        del held[last]
    else:
        held[last] = value
    return graph


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("nodes", ..., "'nodes' is missing"),
        ("nodes", {}, "'nodes' is a dict, not a list"),
        ("nodes/3", 7, r"nodes\[3\]: is a int"),
        ("nodes/3/op", ..., r"nodes\[3\]: 'op' is missing"),
        ("nodes/3/op", "FullyConected", "did you mean 'FullyConnected'"),
        ("nodes/3/op", "__import__", "unknown operation"),
        ("nodes/3/op", "gemel:nothing", r"nodes\[3\].*nothing"),
        ("nodes/3/name", 5, r"nodes\[3\]: 'name' is 5, not text"),
        ("nodes/3/inputs", ..., "'inputs' is missing"),
        ("nodes/3/inputs/0", [99, 0, 0], r"inputs\[0\] names node 99"),
        ("nodes/3/inputs/0", [3, 0, 0], "only the 3 before it"),
        ("nodes/3/inputs/0", [-1, 0, 0], "names node -1"),
        ("nodes/3/inputs/0", [0, 4, 0], "names output 4 of data, which has 1"),
        ("nodes/3/inputs/0", [0], r"is \[0\], not \[node, output, version\]"),
        ("nodes/3/inputs/0", [0, 1e300, 0], "not .node, output, version."),
        ("nodes/3/attrs", [], "'attrs' is a list"),
        ("nodes/3/attrs/flatten", True, r"attrs\['flatten'\] is True, not text"),
        ("nodes/3/attrs/num_hiden", "3", "did you mean 'num_hidden'"),
        ("nodes/0/inputs", [[0, 0, 0]], "names node 0"),
        ("nodes/3/subgraphs", [{}], "has subgraphs"),
        ("heads", ..., "'heads' is missing"),
        ("heads", [], "'heads' is empty"),
        ("heads/0", [10**30, 0, 0], r"heads\[0\] names node 1000"),
    ],
)
def test_bad_graphs_name_the_field(path: str, value: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad-symbol.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(SymbolFileError, match=message) as caught:
        sym.load(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("subgraphs", ..., "_foreach lacks its subgraphs"),
        ("subgraphs", {"nodes": []}, "'subgraphs' is a dict, not a list"),
        ("subgraphs/0", 5, r"subgraphs\[0\]: is a int"),
        ("subgraphs/0/nodes", ..., r"subgraphs\[0\]: 'nodes' is missing"),
        ("subgraphs/0/heads", [], r"subgraphs\[0\]: 'heads' is empty"),
        ("subgraphs/0/heads/0", [99, 0, 0], r"heads\[0\] names node 99"),
        ("subgraphs/0/nodes/0/name", "data1-0", "one name to two variables"),
        ("attrs/in_data_locs", "[9]", "the places"),
        ("attrs/in_data_locs", "zero", "not numbers"),
        ("attrs/remain_locs", "[]", "the places"),
        ("attrs/num_outputs", "many", "'many'"),
        ("attrs/num_outputs", ..., "num_outputs"),
    ],
)
def test_bad_loops_name_the_field(path: str, value: Any, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad-symbol.json"
    file.write_text(json.dumps(changed(f"nodes/{LOOP}/{path}", value, LOOPS)))
    with pytest.raises(SymbolFileError, match=message):
        sym.load(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON, or is truncated"),
        (b'{"nodes": [', "line 1, column"),
        (b"[]", "contains a list"),
        (b"\xff\xfe\x00", "is not text at byte 0"),
        (b"[" * 100000, "nested too deeply"),
        (b'{"nodes": [], "heads": [[0, 0, ' + b"9" * 5000 + b"]]}", "number that is too long"),
    ],
)
def test_bad_texts(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad-symbol.json"
    file.write_bytes(content)
    with pytest.raises(SymbolFileError, match=message):
        sym.load(file)


def test_files_from_strangers(tmp_path: Path) -> None:
    """Whatever bytes are changed, reading gives a network or one of gemel's errors."""
    generator = random.Random(7)
    text = (FILES / "classic-symbol.json").read_text()
    file = tmp_path / "fuzzed-symbol.json"
    for _ in range(300):
        place = generator.randrange(len(text))
        kind = generator.randrange(3)
        new = text[:place] + ("", chr(generator.randrange(32, 127)), "9" * 40)[kind]
        file.write_text(new + text[place + generator.randrange(1, 4) :])
        try:
            block = SymbolBlock.imports(file, "data")
            block.initialize()
            block(np.ones((1, 2, 6, 6)))
        except (GemelError, OverflowError, MemoryError):
            pass


def test_old_files() -> None:
    """Old files have settings under `param` or `attr`, no versions and no auxiliary inputs."""
    graph = json.loads((FILES / "classic-symbol.json").read_text())
    for node in graph["nodes"]:
        node["param"] = node.pop("attrs", {})
        node["backward_source_id"] = -1
        node["inputs"] = [entry[:2] for entry in node["inputs"]]
    norm = next(node for node in graph["nodes"] if node["op"] == "BatchNorm")
    norm["inputs"] = norm["inputs"][:3]
    graph.pop("attrs"), graph.pop("node_row_ptr")
    symbol = sym.load_json(json.dumps(graph))
    assert symbol.list_auxiliary_states() == ["norm_moving_mean", "norm_moving_var"]


def test_inputs_nothing_reads(tmp_path: Path) -> None:
    """Unused inputs are not in the file, but may still be named if no other input is missing."""
    net = nn.HybridLambda(lambda x, y: x * 2)
    net.hybridize()
    x = np.ones((2, 3))
    net(x, x)
    symbol, params = net.export(tmp_path / "net")
    block = SymbolBlock.imports(symbol, ["data0", "data1"], params)
    assert np.all(block(x, np.ones(7)) == 2)
    block.hybridize()
    assert np.all(block(x, np.ones(7)) == 2)
    with pytest.raises(GemelError, match="unknown input of the symbol 'dta'"):
        SymbolBlock.imports(symbol, ["dta"], params)


def test_an_export_can_be_profiled(tmp_path: Path) -> None:
    """Exporting and `cProfile` both ask the interpreter to report calls."""

    def afterwards() -> None:
        pass

    net = nn.Dense(3)
    net.initialize(), net.hybridize(), net(np.ones((2, 4)))
    profile = cProfile.Profile()
    profile.enable()
    net.export(tmp_path / "net")
    afterwards()
    profile.disable()
    calls = {function: count for (_, _, function), (count, *_) in stats_of(profile).items()}
    assert calls["afterwards"] == 1


def stats_of(profile: cProfile.Profile) -> dict[tuple[str, int, str], tuple[int, ...]]:
    return pstats.Stats(profile).stats  # type: ignore[attr-defined,no-any-return]
