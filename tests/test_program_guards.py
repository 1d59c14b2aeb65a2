"""Files keep what a trace asked about sizes: other answers are refused, or warned about before."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from struct import pack, unpack_from
from typing import Any
from zlib import crc32

import numpy
import pytest

import gemel
from gemel import _core, np, npx
from gemel.errors import ExportError, ExportWarning, ShapeError
from gemel.export.program import HEAD, MAGIC
from gemel.gluon import SymbolBlock, nn, rnn


def saved(thing: Any, folder: Path) -> Any:
    path = folder / "model.gemel"
    gemel.save(thing, path)
    return gemel.load(path)


def rows(n: int, columns: int = 3) -> Any:
    return np.arange(1, n * columns + 1, dtype="float32").reshape(n, columns)


def branch(question: Any) -> Any:
    return lambda x: x * 2 if question(x) else x * 3


#: Programs, by what they ask, and the batch sizes whose answer differs from that of 5.
ASKED: dict[str, tuple[Any, set[int]]] = {
    "more than one": (branch(lambda x: x.shape[0] > 1), {1}),
    "at least two": (branch(lambda x: x.shape[0] >= 2), {1}),
    "one": (branch(lambda x: x.shape[0] == 1), {1}),
    "a sum that is one": (branch(lambda x: x.shape[0] - 1 == 1), {2}),
    "another than one": (branch(lambda x: x.shape[0] != 1), {1}),
    "a number": (branch(lambda x: x.shape[0] == 5), {1, 2, 4, 6, 7}),
    "another number": (branch(lambda x: x.shape[0] == 4), {4}),
    "parity": (branch(lambda x: x.shape[0] % 2), {2, 4, 6}),
    "a quotient": (branch(lambda x: x.shape[0] // 3 == 1), {1, 2, 6, 7}),
    "two extents": (branch(lambda x: x.shape[0] > x.shape[1]), {1, 2}),
    "elements": (branch(lambda x: x.size <= 15), {6, 7}),
    "its text": (branch(lambda x: str(x.shape[0]) == "5"), {1, 2, 4, 6, 7}),
    "a member": (branch(lambda x: x.shape[0] in (5, 6)), {1, 2, 4, 6, 7}),
    "its smaller one": (lambda x: x * min(x.shape[0], 2), {1, 2}),
    "rounds": (lambda x: sum(x[i] * i for i in range(x.shape[0])), {1, 2, 4, 6, 7}),
    "nothing": (lambda x: npx.softmax(x + np.ones((1, 3))).sum(axis=0) + x.mean(axis=0), set()),
}


@pytest.mark.parametrize("name", ASKED)
def test_other_answers_are_refused(name: str, tmp_path: Path) -> None:
    function, others = ASKED[name]
    compiled = gemel.compile(function)
    compiled(rows(5))
    loaded = saved(compiled, tmp_path)
    for batch in (1, 2, 4, 5, 6, 7):
        if batch in others:
            with pytest.raises(
                ShapeError, match=rf"where .*data\.shape\[0\].*float32\[{batch}, 3\]"
            ):
                loaded(rows(batch))
        else:
            numpy.testing.assert_allclose(loaded(rows(batch)), function(rows(batch)), rtol=1e-6)


def test_the_refusal_says_rule_and_remedy(tmp_path: Path) -> None:
    def twice(x: Any) -> Any:
        return x * 2 if x.shape[0] > 1 else x * 3

    compiled = gemel.compile(twice)
    compiled(rows(5))
    with pytest.raises(
        ShapeError,
        match=r"^twice: was saved for float32 of 2 axes where 1 < data\.shape\[0\], not for "
        r"float32\[1, 3\]; call it on such arguments before gemel\.save",
    ):
        saved(compiled, tmp_path)(rows(1))


@pytest.mark.parametrize("first", [1, 5])
def test_a_file_is_for_all_it_was_called_on(first: int, tmp_path: Path) -> None:
    function = branch(lambda x: x.shape[0] > 1)
    compiled = gemel.compile(function)
    compiled(rows(first))
    compiled(rows(6 - first))
    loaded = saved(compiled, tmp_path)
    for batch in (1, 2, 5):
        assert (loaded(rows(batch)) == function(rows(batch))).all()
    assert len(json.loads(program_of(tmp_path / "model.gemel"))["programs"]) == 2


def test_guards_seen_for_length_one_only(tmp_path: Path) -> None:
    """Length 1 is traced as length 2 would be, unless the two lengths give different programs."""
    compiled = gemel.compile(branch(lambda x: x.shape[0] > 1))
    compiled(rows(1))
    loaded = saved(compiled, tmp_path)
    assert (loaded(rows(1)) == rows(1) * 3).all()
    with pytest.raises(ShapeError, match=r"where data\.shape\[0\] == 1"):
        loaded(rows(2))


def test_an_axis_of_one_place_is_not_free(tmp_path: Path) -> None:
    compiled = gemel.compile(lambda x: x * x.shape[1])
    compiled(rows(4, 1))
    loaded = saved(compiled, tmp_path)
    assert (loaded(rows(2, 1)) == rows(2, 1)).all()
    with pytest.raises(ShapeError, match=r"where data\.shape\[1\] == 1"):
        loaded(rows(4, 3))


def test_length_zero_is_not_taken_for_some(tmp_path: Path) -> None:
    compiled = gemel.compile(branch(lambda x: x.shape[0] > 0))
    compiled(rows(4))
    with pytest.raises(ShapeError, match=r"where 1 <= data\.shape\[0\]"):
        saved(compiled, tmp_path)(np.ones((0, 3)))
    compiled(np.ones((0, 3)))
    assert saved(compiled, tmp_path)(np.ones((0, 3))).shape == (0, 3)


def test_numbers_that_were_asked_for(tmp_path: Path) -> None:
    compiled = gemel.compile(lambda x, n: x * 2 if str(n) == "0.0" else x * 3)
    compiled(rows(4), 0.0)
    loaded = saved(compiled, tmp_path)
    assert (loaded(rows(4), 0.0) == rows(4) * 2).all()
    with pytest.raises(ShapeError, match="where number 0 is 0"):
        loaded(rows(4), -0.0)


def test_loaded_programs_check_sizes_again_when_traced(tmp_path: Path) -> None:
    compiled = gemel.compile(branch(lambda x: x.shape[0] > 1))
    compiled(rows(5))
    compiled(rows(1))
    loaded = saved(compiled, tmp_path)
    loaded.hybridize()
    assert (loaded(rows(5)) == rows(5) * 2).all()
    assert (loaded(rows(1)) == rows(1) * 3).all()
    again = saved(loaded, tmp_path)
    assert (again(rows(4)) == rows(4) * 2).all() and (again(rows(1)) == rows(1) * 3).all()


def program_of(path: Path) -> bytes:
    content = path.read_bytes()
    (length,) = unpack_from("<Q", content, len(MAGIC) + 2)
    return content[HEAD : HEAD + length]


def test_files_of_before_are_read_as_before(tmp_path: Path) -> None:
    """Old files hold all questions about length 1, even operations', and none about fixed axes."""
    compiled = gemel.compile(lambda x: x + 1)
    compiled(rows(5))
    path = tmp_path / "model.gemel"
    gemel.save(compiled, path)
    content, program = path.read_bytes(), program_of(path)
    held = json.loads(program)
    for each in held["programs"]:
        del each["least"], each["fixed"]
        one = [[[["n0_0"], 1]], "==", [[[], 1]], False, "not n0_0 == 1"]
        each["guards"] = [one]
    old = json.dumps(held).encode()
    head = MAGIC + pack("<HQI", 1, len(old), crc32(old))
    path.write_bytes(head + old + content[HEAD + len(program) :])
    assert (gemel.load(path)(rows(1)) == rows(1) + 1).all()


def test_plans_without_python_refuse(tmp_path: Path) -> None:
    """The image that `gemel.h` loads has the guards, and requires free extents to be 2 or more."""
    compiled = gemel.compile(branch(lambda x: x.shape[0] > 1))
    compiled(rows(5))
    plan = _core.Plan(compiled.image(rows(5)))
    assert (plan(rows(7))[0] == rows(7) * 2).all()
    with pytest.raises(TypeError, match="do not satisfy its guards"):
        plan(rows(1))
    odd = gemel.compile(branch(lambda x: x.shape[0] % 2))
    plan = _core.Plan(odd.image(rows(5)))
    with pytest.raises(TypeError, match="do not satisfy its guards"):
        plan(rows(4))


# --- MXNet's files --------------------------------------------------------------------------


def exported(function: Any, folder: Path, *arrays: Any) -> Any:
    net = nn.HybridLambda(function)
    net.hybridize()
    net(*arrays)
    files = net.export(folder / "net")
    names = ["data"] if len(arrays) == 1 else [f"data{i}" for i in range(len(arrays))]
    return SymbolBlock.imports(files[0], names, files[1])


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("more than one", r"where 1 < data\.shape\[0\], and MXNet's files cannot"),
        ("a number", r"where data\.shape\[0\] == 5, and"),
        ("parity", r"where not \(data\.shape\[0\] % 2\) == 0, and"),
        ("two extents", r"where data\.shape\[1\] < data\.shape\[0\], and"),
        ("rounds", r"where data\.shape\[0\] == 5 and"),
    ],
)
def test_mxnets_files_are_warned_of(name: str, rule: str, tmp_path: Path) -> None:
    function = ASKED[name][0]
    with pytest.warns(ExportWarning, match=rule) as told:
        found = exported(function, tmp_path, rows(5))
    assert len(told) == 1 and told[0].filename == __file__
    numpy.testing.assert_allclose(found(rows(5)), function(rows(5)), rtol=1e-6)


def test_mxnets_files_are_for_the_one_that_was_seen(tmp_path: Path) -> None:
    with pytest.warns(ExportWarning, match=r"where data\.shape\[0\] == 1, and"):
        found = exported(branch(lambda x: x.shape[0] > 1), tmp_path, rows(1))
    assert (found(rows(1)) == rows(1) * 3).all()


def test_batches_of_two_arguments(tmp_path: Path) -> None:
    def asks(x: Any, y: Any) -> Any:
        return x * 2 if x.shape[0] == y.shape[0] else x * y.sum(axis=0)

    with pytest.warns(ExportWarning, match=r"where data0\.shape\[0\] == data1\.shape\[0\], and"):
        exported(asks, tmp_path, rows(5), rows(5))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if x.shape[1] > 1 else x * 3,  # asks nothing about the batch
        lambda x: npx.softmax(x + np.ones((1, 3))).sum(axis=0) + x.mean(axis=0),
        lambda x: np.concatenate([x[:2], x[2:5]], axis=0),
        lambda x: np.einsum("ij,ij->i", x, x),
        lambda x: x.reshape(3, 5),  # MXNet itself refuses other batches
    ],
)
def test_no_warning_for_other_questions(function: Any, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        exported(function, tmp_path, rows(5))
        exported(lambda x, y: np.concatenate([x + y, y], axis=1), tmp_path, rows(5), rows(5))


def test_no_warning_for_a_batch_that_two_arguments_share(tmp_path: Path) -> None:
    """The size that the reshape leaves to be found was computed from both, as if they differed."""

    def function(x: Any, lengths: Any) -> Any:
        shown = np.arange(4)[None, :, None] < lengths.reshape(-1, 1, 1)
        return np.dot(np.where(shown, x, -1).reshape(x.shape[0], 4, -1), np.ones((3, 2)))

    x, lengths = rows(5, 12).reshape(5, 4, 3), np.array([1, 2, 3, 4, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        found = exported(function, tmp_path, x, lengths)
    for batch in 5, 2, 1:
        given = x[:batch], lengths[:batch]
        assert (found(*given) == function(*given)).all()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.shape[1],
        lambda x: np.arange(x.shape[1])[:, None] + x,
        lambda x: x[..., : x.shape[1] - 1],
        lambda x: x.reshape(x.shape[0], x.shape[2], 1, x.shape[1]),
    ],
    ids=["a number", "arange", "a slice", "reshape"],
)
def test_sizes_that_a_file_holds_as_numbers(function: Any, tmp_path: Path) -> None:
    """It was silent that files give other results for other sizes."""
    x = np.arange(60, dtype="float32").reshape(5, 3, 4)
    with pytest.warns(ExportWarning, match=r"only where data\.shape\[1\] == 3; use") as told:
        found = exported(function, tmp_path, x)
    assert len(told) == 1 and told[0].filename == __file__
    assert (found(x[:2]) == function(x[:2])).all()


def test_sizes_of_results_of_recurrent_layers(tmp_path: Path) -> None:
    """They were plain numbers, and files of `o * o.shape[1]` silently held them."""
    layer = rnn.LSTM(2, layout="NTC")
    layer.initialize()
    x = np.arange(60, dtype="float32").reshape(5, 3, 4) / 60

    def function(x: Any) -> Any:
        return layer(x) * layer(x).shape[1]

    with pytest.warns(ExportWarning, match=r"only where data\.shape\[1\] == 3; use"):
        found = exported(function, tmp_path, x)
    numpy.testing.assert_allclose(found(x[:2]), function(x[:2]), rtol=1e-6)
    layer = rnn.LSTM(2)
    layer.initialize()
    with pytest.raises(ExportError, match="a number depends on the batch size"):
        exported(lambda x: layer(x) * layer(x).shape[0], tmp_path, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        found = exported(lambda x: layer(x)[: layer(x).shape[0] - 1], tmp_path, x)
    for length in (2, 5, 7):
        x = np.ones((length, 3, 4))
        numpy.testing.assert_allclose(found(x), layer(x)[:-1], rtol=1e-6)


def test_a_number_of_the_batch_that_stands_in_a_file(tmp_path: Path) -> None:
    """A reshape can leave one size open; it has to be the batch, not the size beside it."""

    def turned(x: Any) -> Any:
        return np.transpose(x, (2, 1, 0)).reshape(x.shape[2] * x.shape[1], x.shape[0])

    x = np.arange(60, dtype="float32").reshape(5, 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        found = exported(turned, tmp_path, x)
    assert (found(x[:2]) == turned(x[:2])).all()


@pytest.mark.parametrize("kind", [rnn.LSTM, rnn.GRU, rnn.RNN])
def test_files_of_recurrent_layers_are_for_any_number_of_steps(kind: Any, tmp_path: Path) -> None:
    net = kind(5, num_layers=2, input_size=3, bidirectional=True)
    net.initialize()
    net.hybridize()
    net(np.ones((4, 2, 3)))
    gemel.save(net, tmp_path / "net")
    loaded = gemel.load(tmp_path / "net")
    draw = numpy.random.default_rng(0)
    for steps, rows in ((4, 2), (7, 2), (2, 5), (1, 1)):
        x = np.array(draw.standard_normal((steps, rows, 3)).astype("float32"))
        numpy.testing.assert_allclose(loaded(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError):
        loaded(np.ones((4, 2, 6))).wait_to_read()
