"""`gemel.save` and `gemel.load`: a program and its weights in one file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, np, npx
from gemel.errors import ExportError, GemelError, ShapeError, SymbolFileError
from gemel.gluon import nn


def saved(thing: Any, folder: Path) -> Any:
    path = folder / "model.gemel"
    gemel.save(thing, path)
    return gemel.load(path)


def mlp() -> Any:
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(128, activation="relu"), nn.Dense(2))
    net.initialize()
    net.hybridize()
    return net


def test_the_mlp_fits_where_the_seed_has_it(tmp_path: Path) -> None:
    """The seed's `ls -lh` shows 651K, in KiB: 642.5 KiB of weights, and the program."""
    net = mlp()
    x = np.random.normal(size=(1, 512))
    want = net(x)
    found = saved(net, tmp_path)
    weights = 4 * (512 * 256 + 256 + 256 * 128 + 128 + 128 * 2 + 2)
    assert weights < (tmp_path / "model.gemel").stat().st_size < min(651 * 1024, weights + 6000)
    assert np.allclose(found(x), want)
    assert found(np.ones((7, 512))).shape == (7, 2), "one example leaves the batch free"


def test_blocks_without_a_program_say_why(tmp_path: Path) -> None:
    class Text(nn.HybridBlock):
        def forward(self, x: Any) -> Any:
            return x, "text"

    net, hooked = Text(), nn.HybridSequential()
    hooked.add(nn.Dense(2))
    hooked.initialize()
    hooked[0].register_forward_hook(lambda *_: None)
    for each in net, hooked:
        with pytest.raises(ExportError, match=r"save: .* has not been called since hybridize"):
            gemel.save(each, tmp_path / "none")
        each.hybridize()
    with pytest.warns(UserWarning, match="it returned a str"):
        net(np.ones((2, 2)))
    hooked(np.ones((2, 2)))
    for write in (gemel.save, lambda net, path: net.export(path)):
        with pytest.raises(ExportError, match=r"not compiled as a whole: .* it returned a str"):
            write(net, tmp_path / "none")
        with pytest.raises(ExportError, match="hooks inside it have to be called: detach them"):
            write(hooked, tmp_path / "none")
    net.hybridize()
    with pytest.raises(ExportError, match="has not been called since hybridize"):
        gemel.save(net, tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_in_a_process_without_the_class(tmp_path: Path) -> None:
    class Own(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.scale = gluon.Parameter("scale", shape=(3,), init="ones")

        def forward(self, x: Any) -> Any:
            return (np.sort(x) * self.scale.data())[:, ::-1] + x.shape[0] * 0

    net = Own()
    net.initialize()
    net.hybridize()
    net(np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]]))
    gemel.save(net, tmp_path / "own.gemel")
    program = (
        f"import gemel; from gemel import np; net = gemel.load({str(tmp_path / 'own.gemel')!r}); "
        "print(net(np.array([[1.0, 3.0, 2.0]])).tolist(), list(net.collect_params()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[[3.0, 2.0, 1.0]] ['scale']\n"


def test_loaded_programs_train(tmp_path: Path) -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(3, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.5), nn.Dense(2))
    net.initialize()
    net.hybridize()
    x = np.random.normal(size=(4, 2, 6, 6))
    net(x)
    for each in (net, saved(net, tmp_path)):
        before = {n: p.data().asnumpy() for n, p in each.collect_params().items()}
        trainer = gluon.Trainer(each.collect_params(), "sgd", {"learning_rate": 0.01})
        gemel.np.random.seed(1)
        with autograd.record():
            loss = (each(x) ** 2).mean()
        loss.backward()
        trainer.step(1)
        after = {n: p.data().asnumpy() for n, p in each.collect_params().items()}
        assert all((before[name] != after[name]).any() for name in before), "a weight has not moved"
    again = saved(each, tmp_path) if each._own.compiled else None
    assert again is None or again(x).shape == (4, 2)


def test_compiled_functions(tmp_path: Path) -> None:
    """Nested arguments and results, numbers given at run time, several kinds of arguments."""

    def function(pair: Any, factor: float, mode: str = "sum") -> Any:
        a, b = pair["a"], pair["b"]
        found = (a + b) * factor if mode == "sum" else a - b
        return {"found": found, "parts": [found.sum(), (a.max(), np.concatenate([a, b]))]}

    compiled = gemel.compile(function)
    pair = {"a": np.ones((2, 3)), "b": np.ones((2, 3)) * 2}
    compiled(pair, 2.5, "sum")
    compiled(pair, 2.5, "difference")
    loaded = saved(compiled, tmp_path)
    other = {"a": np.ones((4, 3)), "b": np.zeros((4, 3))}
    for hybridized in (False, True):
        loaded.hybridize(hybridized)
        for mode in ("sum", "difference"):
            want, found = function(other, 3.5, mode), loaded(other, 3.5, mode)
            assert np.allclose(found["found"], want["found"])
            assert isinstance(found["parts"][1], tuple) and found["parts"][1][1].shape == (8, 3)
    kinds = r"\{'a': float32 of 2 axes, 'b': float32 of 2 axes\}, a number, '%s'"
    had = r"\{'a': float32\[4, 3\], 'b': float32\[4, 3\]\}, a number, 'product'$"
    told = rf"was saved for {kinds % 'sum'} or {kinds % 'difference'}, not for {had}"
    with pytest.raises(ShapeError, match=told):
        loaded(other, 3.5, "product")
    with pytest.raises(ShapeError, match=r"not for \[\(2\)\], None$"):
        loaded([(2,)], None)
    with pytest.raises(ShapeError, match=r"not for no arguments$"):
        loaded()


def test_names_that_meet(tmp_path: Path) -> None:
    """Two parameters of the same name, and arrays that several programs close over."""

    class Twice(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.first = gluon.Parameter("weight", shape=(3,), init="ones")
            self.second = gluon.Parameter("weight", shape=(3,), init=gemel.init.Constant(2))
            self.last = gluon.Parameter("last", shape=(3,), init="zeros", grad_req="null")

        def forward(self, x: Any) -> Any:
            self.last.data()[...] = x.sum(axis=0)
            return x * self.first.data() + self.second.data()

    net = Twice()
    net.initialize()
    net.hybridize()
    x = np.ones((2, 3))
    net(x)
    loaded = saved(net, tmp_path)
    assert (loaded(x) == 3).all()
    requests = {name: p.grad_req for name, p in loaded.params.items()}
    assert requests == {"weight": "write", "weight_1": "write", "last": "null"}
    assert loaded.params["last"].data().tolist() == [2, 2, 2]
    tables = {"a": np.ones(3), "b": np.ones(3) * 5}
    compiled = gemel.compile(lambda x, name: x + tables[name] + tables[name])
    wants = [compiled(x, name) for name in tables]
    loaded = saved(compiled, tmp_path)
    for name, want in zip(tables, wants, strict=True):
        assert (loaded(x, name) == want).all()
    assert len(loaded.params) == 2, "each is loaded once"


def test_control_flow_and_random_numbers(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        y = npx.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, x)
        return npx.foreach(lambda a, s: (a + s, a + s), y, np.zeros((3,)))[0]

    compiled = gemel.compile(function)
    x = np.ones((4, 3))
    compiled(x)
    loaded = saved(compiled, tmp_path)
    for given in (x, -x):
        assert np.allclose(loaded(given), function(given))
    noisy = gemel.compile(lambda x: x + np.random.uniform(size=(3,)))
    noisy(x)
    loaded = saved(noisy, tmp_path)
    assert not np.allclose(loaded(x), loaded(x)), "each call draws new numbers"


def test_arrays_that_forward_overwrites(tmp_path: Path) -> None:
    class Counting(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.count = gluon.Parameter("count", shape=(1,), init="zeros", grad_req="null")

        def forward(self, x: Any) -> Any:
            count = self.count.data()
            count[...] = count + 1
            return x + count

    net = Counting()
    net.initialize()
    net.hybridize()
    net(np.zeros((2, 1)))
    loaded = saved(net, tmp_path)
    loaded(np.zeros((2, 1)))
    assert loaded(np.zeros((3, 1))).tolist() == [[3.0]] * 3
    with pytest.raises(ExportError, match="overwrites count"):
        net.export(tmp_path / "net")


def test_dtypes_and_constants(tmp_path: Path) -> None:
    table = np.array([[1, 2], [3, 4]], dtype="int32")
    compiled = gemel.compile(lambda x: table[x].astype("float16") + 2)
    x = np.array([1, 0])
    want = compiled(x)
    found = saved(compiled, tmp_path)(x)
    assert found.dtype == want.dtype
    numpy.testing.assert_array_equal(found.asnumpy(), want.asnumpy())


# --- what cannot be --------------------------------------------------------------------------


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "x.gemel"
    for thing, message in (
        (np.ones(3), "npx.save"),
        (nn.Sequential(), "derive it from HybridBlock"),
        (mlp(), "call net.hybridize"),
        (gemel.compile(lambda x: x), "call .* once"),
    ):
        with pytest.raises(ExportError, match=message):
            gemel.save(thing, path)
    assert not path.exists()


def small(folder: Path) -> bytes:
    compiled = gemel.compile(lambda x: np.tanh(x) + np.array([1.0, 2.0]))
    compiled(np.ones((3, 2)))
    gemel.save(compiled, folder / "good.gemel")
    return (folder / "good.gemel").read_bytes()


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    good = small(tmp_path)
    file = tmp_path / "bad.gemel"
    for place in [*range(0, 40), *range(40, len(good), 37), len(good) - 1]:
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(GemelError, match=r"bad\.gemel"):
            gemel.load(file)
    for length in (0, 5, 20, 100, len(good) // 2, len(good) - 1):
        file.write_bytes(good[:length])
        with pytest.raises(GemelError, match=r"bad\.gemel"):
            gemel.load(file)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gemel:tanh", "gemel:tahn", "unknown operation 'tahn'; did you mean"),
        ('"programs":', '"programms":', "KeyError: 'programs'"),
        ("n0_0", "n9_0", "extent n9_0"),
        ('"numbers":0', '"numbers":[]', "cannot be read"),
        ('"numbers":0', '"numbers":999999999999', "1 arrays and 0 numbers, not 1 and 999999999999"),
        ('{"tuple":["array"]}', '{"tuple":["array","number"]}', "and 1 numbers, not 1 and 0"),
        ('"held":[]', '"held":[[0,"0x1p+0"]]', r"holds numbers \[0\] of 0"),
        ('"least":1', '"least":Infinity', "OverflowError"),
        ('"fixed":[]', '"fixed":[[0,0]]', "not enough values"),
        ('[[["n0_1"],1]]', '[[["n7_1"],1]]', "KeyError: 'n7_1'"),
        ('"==",[[[],2]]', '"==",[[[]]]', "not enough values"),
        ('"==",[[[],2]]', '"~",[[[],2]]', "KeyError: '~'"),
        (',"n0_1 == 2"]', "]", "IndexError"),
        ('"results":"array"', '"results":{"list":["array","array"]}', "has 1 results, where 2"),
        ('"results":"array"', '"results":"number"', "has 1 results, where 1 arrays"),
        ('"updates":[]', '"updates":["none"]', "has 1 results, where 2 arrays"),
        ('"results":"array","updates":[]', '"results":{"list":[]},"updates":["none"]', "lack none"),
    ],
)
def test_sealed_nonsense(old: str, new: str, message: str, tmp_path: Path) -> None:
    """The checksum is right, but the program is wrong."""
    from struct import pack
    from zlib import crc32

    good = small(tmp_path)
    head, length = 20, int.from_bytes(good[8:16], "little")
    program = good[head : head + length].replace(old.encode(), new.encode())
    sealed = good[:8] + pack("<QI", len(program), crc32(program)) + program + good[head + length :]
    (tmp_path / "bad.gemel").write_bytes(sealed)
    with pytest.raises(SymbolFileError, match=message):
        gemel.load(tmp_path / "bad.gemel")


@pytest.mark.parametrize("hybridized", [False, True])
def test_detached_values_stay_detached(tmp_path: Path, hybridized: bool) -> None:
    class Cut(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return np.sin(x.detach()) * 3 + x

    net, x = Cut(), np.array([2.0, 1.0])
    net.hybridize()
    net(x)
    found = saved(net, tmp_path)
    found.hybridize(hybridized)
    x.attach_grad()
    with autograd.record():
        y = found(x)
    y.backward()
    assert x.grad.tolist() == [1, 1]


def _softmax_of_written(x: Any) -> Any:
    y = x * 1
    y[:, 0] = 9
    return npx.softmax(y)


def _before_and_after_a_write(x: Any) -> Any:
    y = x * 1
    before = npx.softmax(y)
    y += x
    return npx.softmax(y) - before


def _through_a_view(x: Any) -> Any:
    y = x * 1
    view = y[:, :2]
    before = npx.softmax(view)
    view[:] = x[:, 2:]
    return np.clip(y, 0, 1) + np.concatenate([before, npx.relu(view)], axis=1)


def _written_by_out(x: Any) -> Any:
    y = x * 1
    before = y + 1
    np.clip(x, 0, 1, out=y)
    return before * y


def _written_in_rounds(x: Any) -> Any:
    def step(row: Any, state: Any) -> Any:
        mine = row * 1
        mine[0] = state[1]
        return npx.softmax(mine), state + npx.relu(row)

    return npx.foreach(step, x, x[0])[0]


def _by_its_own_row(x: Any) -> Any:
    y = x * 1
    y *= y[0]
    return y


def _by_its_own_parts(x: Any) -> Any:
    y = np.concatenate([np.pad(x, ((1, 0), (0, 0)), mode="edge"), x])
    y *= y[1]
    y -= y[:, :1]
    return y


class Loops(gluon.HybridBlock):
    """Loops over the first axis, in which layers and arrays from outside take part."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = gluon.rnn.GRUCell(4, input_size=3), gluon.nn.Dense(2, in_units=4)
        self.scale = np.array([1.0, 2.0, 3.0, 4.0])

    def forward(self, x: Any, count: Any) -> Any:
        def step(element: Any, states: Any) -> Any:
            output, states = self.cell(element, states)
            return self.head(output * self.scale), states

        def more(i: Any, y: Any) -> Any:
            return y, (i + 1, y * 1.5)

        outputs, _ = npx.foreach(step, x, [np.zeros((x.shape[1], 4))])
        _, (_, grown) = npx.while_loop(lambda i, y: i < count, more, (np.zeros(()), outputs), 6)
        return grown


def test_files_have_loops_of_any_length(tmp_path: Path) -> None:
    net = Loops()
    net.initialize()
    net.hybridize()
    draw = numpy.random.default_rng(0)

    def given(length: int, batch: int) -> Any:
        return np.array(draw.normal(size=(length, batch, 3)).astype("float32"))

    count = np.array(3.0)
    net(given(5, 2), count)
    gemel.save(net, tmp_path / "net.gemel")
    for compiled in (False, True):
        loaded = gemel.load(tmp_path / "net.gemel")
        loaded.hybridize(compiled)
        for shape in ((5, 2), (9, 3), (1, 2), (2, 1), (30, 4)):
            x = given(*shape)
            x.attach_grad()
            found = []
            for each in (net, loaded):
                with autograd.record():
                    y = each(x, count)
                    loss = (y * y).sum()
                loss.backward()
                found.append((y.asnumpy(), x.grad.asnumpy()))
            for one, other in zip(*found, strict=True):
                numpy.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


WRITING = [
    _by_its_own_row,
    _by_its_own_parts,
    _softmax_of_written,
    _before_and_after_a_write,
    _through_a_view,
    _written_by_out,
    _written_in_rounds,
]


@pytest.mark.parametrize("function", WRITING)
@pytest.mark.parametrize("way", ["saved", "exported"])
def test_calls_read_what_was_written_before_them(function: Any, way: str, tmp_path: Path) -> None:
    class Writing(gluon.HybridBlock):
        def forward(self, x: Any) -> Any:
            return function(x)

    x = np.array([[1.0, -2.0, 0.5, 3.0], [-1.0, 0.25, 2.0, -4.0]])
    net = Writing()
    net.hybridize()
    net(x)
    if way == "saved":
        found = saved(net, tmp_path)(x)
    else:
        try:
            files = net.export(str(tmp_path / "model"))
        except ExportError:
            pytest.skip("MXNet has no operation for it")
        found = gluon.SymbolBlock.imports(files[0], ["data"], files[1])(x)
    numpy.testing.assert_allclose(found.asnumpy(), function(x).asnumpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.split(x, x.shape[0])[1],
        lambda x: np.tile(x, x.shape[0]),
        lambda x: np.tile(x, (x.shape[0], 1)),
    ],
)
def test_sizes_of_arguments_say_how_many(function: Any, tmp_path: Path) -> None:
    net, x = nn.HybridLambda(function), np.array([[1.0, 2.0], [3.0, 4.0]])
    net.hybridize()
    net(x)
    assert (saved(net, tmp_path)(x) == function(x)).all()


def test_recurrent_networks_saved_again_after_one_example(tmp_path: Path) -> None:
    net = gluon.rnn.GRU(4, layout="NTC")
    net.initialize()
    net.hybridize()
    net(np.ones((1, 3, 5)))
    again = saved(net, tmp_path)
    again.hybridize()
    again(np.ones((1, 3, 5)))
    x = np.random.normal(size=(4, 6, 5))
    assert np.allclose(saved(again, tmp_path)(x), net(x), atol=1e-6)
