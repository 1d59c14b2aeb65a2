"""Blocks as programs use them: attributes, copies, hooks, shared and constant parameters."""

from __future__ import annotations

import copy
import json
import pickle
import threading
import warnings
from typing import Any

import numpy
import pytest

import gemel
from gemel import autograd, gluon, init, nd, np, npx
from gemel.errors import (
    ArgumentError,
    AxisError,
    DeferredInitializationError,
    OperandError,
    ParameterFileError,
    ShapeError,
    TraceError,
    UninitializedError,
    UnknownKeywordError,
    UnknownNameError,
)
from gemel.gluon import Parameter, SymbolBlock, nn
from gemel.gluon.block import BlockError
from gemel.gluon.structure import and_around

# ---- attributes


class Mixed(nn.Block):
    """A block as users write them, with layers, arrays and lists of them as attributes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.body = nn.HybridSequential()
        self.body.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Conv1D(2, 1))
        self.scale = Parameter(shape=(1,), init="ones")
        self.table = np.ones((2, 2))
        self.several = [nn.Dense(2), {"inner": nn.Dense(3)}]
        self.fixed = self.params.get_constant("fixed", [1.0, 2.0])

    def forward(self, x: Any) -> Any:
        """The first layer's result, scaled."""
        return self.body[0](x) * self.scale.data()


PLAIN = (bool, int, float, str, type(None), type, init.Initializer)


def walked(value: Any, found: list[Any]) -> None:
    """Collect all arrays, parameters and blocks that are reachable through attributes."""
    if isinstance(value, (np.ndarray, Parameter)):
        found.append(value)
    elif isinstance(value, nn.Block):
        found.append(value)
        for each in vars(value).values():
            walked(each, found)
    elif isinstance(value, dict):
        for each in value.values():
            walked(each, found)
    elif isinstance(value, (list, tuple)):
        for each in value:
            walked(each, found)
    else:
        assert isinstance(value, PLAIN), f"a walk meets {value!r}"


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_walk_over_attributes_meets_what_is_the_users(hybrid: bool) -> None:
    net = Mixed()
    with pytest.warns(UserWarning, match=r"Mixed.several holds dense\d+, which is not part of"):
        net.initialize()
    if hybrid:
        net.body.hybridize()
    with net.register_forward_hook(lambda *_: None):
        net(np.ones((2, 3)))
    found: list[Any] = []
    walked(net, found)
    kinds = {type(each).__name__ for each in found}
    assert {"Dense", "HybridSequential", "Parameter", "Constant", "ndarray"} <= kinds
    assert any(each is net.several[1]["inner"].weight for each in found)


def test_blocks_in_a_list_may_be_parts_of_a_child(recwarn: pytest.WarningsRecorder) -> None:
    class Listed(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.body = [], nn.HybridSequential()
            for _ in range(2):
                self.parts.append(nn.Dense(2, in_units=2))
                self.body.add(self.parts[-1])

    Listed().initialize()
    assert not recwarn.list


def test_a_walk_by_dir() -> None:
    """The way d2l moves hand-made parameters: it walks lists, and replaces arrays by new ones."""

    def to_device(block: Any) -> None:
        for name in dir(block):
            value = getattr(block, name)
            if isinstance(value, np.ndarray):
                setattr(block, name, value.as_in_ctx(npx.cpu()))
                getattr(block, name).attach_grad()
            if isinstance(value, nn.Block):
                to_device(value)
            if isinstance(value, list):
                for element in value:
                    to_device(element)

    net = Mixed()
    net.several.pop()
    to_device(net)
    assert net.table.grad.tolist() == [[0, 0], [0, 0]]


class Averages(gluon.HybridBlock):
    """Keeps a running mean of its inputs in an attribute, or in a parameter."""

    def __init__(self, in_parameter: bool) -> None:
        super().__init__()
        self.mean = np.zeros(3)
        self.weights = None
        if in_parameter:
            self.mean = Parameter("mean", shape=(3,), init="zeros", grad_req="null")

    def forward(self, x: Any) -> Any:
        self.weights = x * 2  # read in the same call only
        if isinstance(self.mean, Parameter):
            self.mean.data()[:] = self.mean.data() * 0.5 + x.mean(axis=0)
            return self.weights + self.mean.data()
        self.mean = self.mean * 0.5 + x.mean(axis=0)
        return self.weights + self.mean


def test_arrays_that_forward_replaces_are_no_state_of_a_program() -> None:
    """It was silent that only the trace replaces them."""
    x, seen = np.ones((2, 3)), {}
    for in_parameter in (False, True):
        for hybridized in (False, True):
            net = Averages(in_parameter)
            net.initialize()
            net.hybridize(hybridized)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                seen[in_parameter, hybridized] = [net(x).sum().item() for _ in range(3)]
            told = ["forward replaces the array self.mean" in str(w.message) for w in caught]
            assert told == [True] * (hybridized and not in_parameter)
    assert seen[True, True] == seen[True, False] == seen[False, False] != seen[False, True]


def test_mxnet_s_names_of_attributes() -> None:
    net = nn.HybridSequential(prefix="net_")
    with net._scope:
        dense = nn.Dense(2, in_units=3)
    net._children[dense.name] = dense  # like d2l's own Sequential
    assert dense.name == "net_dense0"
    assert net._prefix == "net_"
    assert list(net._children.values()) == [dense]
    assert dense._reg_params["weight"] is dense.weight
    assert dense._params["net_dense0_weight"] is dense.weight
    assert dense._children == {} and dense._forward_hooks == {}
    net.initialize()
    net.hybridize()
    before = net(np.ones((1, 3)))
    dense.cast("float64")
    assert net(np.ones((1, 3), dtype="float64")).dtype != before.dtype


def test_d2l_s_sequential() -> None:
    class MySequential(nn.Block):
        def add(self, block: Any) -> None:
            self._children[block.name] = block

        def forward(self, x: Any) -> Any:
            for block in self._children.values():
                x = block(x)
            return x

    net = MySequential()
    net.add(nn.Dense(4, activation="relu"))
    net.add(nn.Dense(2))
    net.initialize()
    assert net(np.ones((3, 5))).shape == (3, 2)
    assert len(net.collect_params()) == 4


def test_scopes_of_two_threads() -> None:
    """The names of a thread's blocks depend only on the scopes of that thread."""
    outer = nn.Sequential(prefix="outer_")
    made: list[Any] = []
    with outer.name_scope():
        thread = threading.Thread(target=lambda: made.append(nn.Dense(1)))
        thread.start()
        thread.join()
        assert nn.Dense(1).name == "outer_dense0"
    assert made[0].name.startswith("dense")


def test_a_network_shares_the_parameters_of_another() -> None:
    """MXNet 1's way: ``Net(params=other.collect_params())``; names in the scopes match blocks."""

    class Net(gluon.HybridBlock):
        def __init__(self, depth: int = 2, **settings: Any) -> None:
            super().__init__(**settings)
            with self.name_scope():
                self.scale = self.params.get("scale", shape=(1,), init="ones")
                self.inner = nn.HybridSequential()
                with self.inner.name_scope():
                    self.inner.add(*(nn.Dense(3) for _ in range(depth)))

        def forward(self, x: Any) -> Any:
            return self.inner(x) * self.scale.data()

    net = Net()
    net.initialize()
    x = np.ones((2, 3))
    expected = net(x)
    assert net.collect_params().prefix == net.prefix
    for other in (Net(params=net.collect_params()), Net(prefix="b_", params=net.collect_params())):
        theirs = other.collect_params()
        assert all(theirs[place] is each for place, each in net.collect_params().items())
        assert other(x).tolist() == expected.tolist()
    deeper = Net(3, params=net.collect_params(".*weight"))
    assert deeper.inner[1].weight is net.inner[1].weight
    assert deeper.inner[1].bias is not net.inner[1].bias
    assert deeper.inner[2].weight.name == f"{deeper.inner[2].name}_weight"
    own = Net(params=net.params)
    assert own.scale is net.scale and own.inner[0].weight is not net.inner[0].weight


# ---- copies


def test_copies_share_what_the_original_shared() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=3))
    net.add(net[0], nn.Dense(3, params=net[0].params))
    net.initialize()
    net.hybridize()
    x = np.ones((2, 3))
    expected = net(x).tolist()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert other[1] is other[0]
        assert other[2].weight is other[0].weight is not net[0].weight
        assert other(x).tolist() == expected
        with autograd.record():
            loss = other(x).sum()
        loss.backward()
        trainer = gluon.Trainer(other.collect_params(), "sgd", {"learning_rate": 1.0})
        trainer.step(1)
        assert other(x).tolist() != expected
        assert net(x).tolist() == expected
    shallow = copy.copy(net)
    shallow.add(nn.Dense(1))
    shallow[-1].initialize()
    assert len(net) == 3 and shallow[0] is net[0]
    assert shallow(x).shape == (2, 1)


def test_copies_of_attributes_belong_to_no_block() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=1))
    net.initialize()
    for copied in (copy.deepcopy(vars(net[0])), pickle.loads(pickle.dumps(vars(net)))):
        copied["_children"]["more"] = nn.Dense(1)
        assert set(copied["_reg_params"]) <= {"weight", "bias"}
    assert len(net) == 1 and not net[0]._children


def test_a_copy_before_its_shapes_are_known() -> None:
    net = nn.Dense(2)
    net.initialize(init.One())
    other = copy.deepcopy(net)
    assert other(np.ones((1, 3))).tolist() == [[3, 3]]
    assert net.weight.shape == (2, -1)
    assert net(np.ones((1, 4))).tolist() == [[4, 4]]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_copy_of_a_called_block_can_be_saved(way: Any, tmp_path: Any) -> None:
    net = nn.Dense(2)
    net.initialize()
    net.hybridize()
    x = np.ones((2, 3))
    expected = net(x).tolist()
    symbol, parameters = way(way(net)).export(tmp_path / "net")
    assert SymbolBlock.imports(symbol, ["data"], parameters)(x).tolist() == expected


# ---- hooks


def test_hooks_on_operations() -> None:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(2, 3, activation="relu"), nn.MaxPool2D())
    net.initialize()
    x = np.array(numpy.random.default_rng(0).standard_normal((2, 1, 6, 6)), dtype="float32")
    expected = net(x)
    net.hybridize()
    seen: list[Any] = []
    net.register_op_hook(lambda name, kind, array: seen.append((name, kind, array.shape)))
    for batch in (2, 1):
        seen.clear()
        assert net(x[:batch]).tolist() == expected[:batch].tolist()
        kinds = [(kind, shape) for _, kind, shape in seen]
        assert kinds[0] == ("convolution", (batch, 2, 4, 4))
        assert kinds[-1] == ("pooling", (batch, 2, 2, 2))
        assert len({name for name, *_ in seen}) == len(seen)


def test_a_hook_that_is_forgotten_stays() -> None:
    net = nn.Dense(1, in_units=1)
    net.initialize()
    seen: list[int] = []
    for number in range(3):
        net.register_forward_hook(lambda *_, number=number: seen.append(number))
    net(np.ones((1, 1)))
    assert seen == [0, 1, 2]


# ---- parameters


def test_share_parameters() -> None:
    def make() -> Any:
        net = nn.HybridSequential()
        net.add(nn.Dense(3, in_units=2), nn.Dense(1, in_units=3))
        return net

    first, second = make(), make()
    first.initialize()
    assert second.share_parameters(first.collect_params()) is second
    x = np.ones((2, 2))
    assert second(x).tolist() == first(x).tolist()
    assert second[1].bias is first[1].bias
    with pytest.raises(UnknownNameError, match=r"did you mean '0.weight'"):
        second.share_parameters({"0.weigth": first[0].weight})


def test_d2l_s_fixed_hidden_layer() -> None:
    class FixedHidden(nn.Block):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.rand_weight = self.params.get_constant(
                "rand_weight", np.random.uniform(size=(20, 20))
            )
            self.dense = nn.Dense(20, activation="relu")

        def forward(self, x: Any) -> Any:
            x = self.dense(x)
            x = npx.relu(np.dot(x, self.rand_weight.data()) + 1)
            x = self.dense(x)
            while np.abs(x).sum() > 1:
                x /= 2
            return x.sum()

    net = FixedHidden()
    net.initialize()
    before = net.rand_weight.data().tolist()
    assert 0 <= float(net(np.random.uniform(size=(2, 20)))) <= 1
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = net(np.random.uniform(size=(2, 20)))
    loss.backward()
    trainer.step(1)
    assert net.rand_weight.data().tolist() == before


def test_constants_of_mxnet_2_in_a_hybridized_block() -> None:
    class Shifted(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.shift = gluon.Constant(np.array([1.0, 2.0]))

        def forward(self, x: Any) -> Any:
            return x + self.shift.data()

    net = Shifted()
    net.initialize()
    for _ in range(2):
        assert net(np.ones(2)).tolist() == [2, 3]
        net.hybridize()


def test_files_without_repetitions(tmp_path: Any) -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=3))
    net.add(nn.Dense(3, params=net[0].params))
    net.initialize()
    path = str(tmp_path / "p")
    net.save_parameters(path)
    assert len(npx.load(path)) == 4
    net.save_parameters(path, deduplicate=True)
    assert len(npx.load(path)) == 2
    before = net[0].weight.data().tolist()
    net.initialize(init.Zero(), force_reinit=True)
    net.load_parameters(path)
    assert net[1].weight.data().tolist() == before


def test_whose_dtype_counts(tmp_path: Any) -> None:
    path = str(tmp_path / "p")
    net = nn.Dense(2, in_units=2)
    net.initialize()
    net.cast("float64")
    net.save_parameters(path)
    other = nn.Dense(2, in_units=2)
    other.load_parameters(path, cast_dtype=True)
    assert str(other.weight.data().dtype) == "float32"
    other.load_parameters(path, cast_dtype=True, dtype_source="saved")
    assert str(other.weight.data().dtype) == "float64"
    other = nn.Dense(3, in_units=2)
    with pytest.raises(ValueError, match="shape"):
        other.load_parameters(path, cast_dtype=True, dtype_source="saved")
    assert str(other.weight.dtype) == "float32", "nothing has changed"
    with pytest.raises(UnknownNameError, match="current"):
        other.load_dict({}, dtype_source="curent")


def test_a_network_and_its_structure(tmp_path: Any) -> None:
    def make(*more: Any) -> Any:
        net = nn.HybridSequential()
        net.add(nn.Dense(3), nn.BatchNorm(), *more)
        return net

    net, prefix = make(), str(tmp_path / "net")
    net.initialize()
    expected = net(np.ones((2, 4)))
    net.save(prefix)
    other = make()
    other.load(prefix)
    assert other(np.ones((2, 4))).tolist() == expected.tolist()
    with pytest.raises(ParameterFileError, match="other blocks than this HybridSequential"):
        make(nn.Dense(1)).load(prefix)


def test_infer_type() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Dense(1))
    net.infer_type(np.ones((1, 3), dtype="float64"))
    assert {str(p.dtype) for p in net.collect_params().values()} == {"float64"}
    assert net[0].weight.shape == (2, 3)


# ---- summary


def test_summary(capsys: Any) -> None:
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(4), nn.BatchNorm(), nn.Dense(4, in_units=4))
    net.add(net[2])
    net.summary(np.ones((2, 3)))
    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if "(" in line}
    assert rows["Input"][1:] == ["(2,", "3)", "0", "0", "24"]
    # 8 dot products of 3 numbers, each with a bias: 2 * 2 * 4 * 3 + 8 operations.
    assert rows["0"] == ["0", "(Dense)", "(2,", "4)", "16", "56", "96"]
    assert [line.split()[4] for line in printed.splitlines() if line.startswith("2 (")] == [
        "20",
        "0",
    ]
    assert "Parameters: 52, shared ones once (44 trained, 8 not)" in printed
    assert "of parameters" in printed
    with pytest.raises(UninitializedError):  # the summary computed nothing
        net[0].weight.data()
    net.initialize()
    net.hybridize()
    net.summary(np.ones((2, 3)))
    assert capsys.readouterr().out == printed


def test_summary_of_what_looks_at_values(capsys: Any) -> None:
    class Looks(nn.Block):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(2)

        def forward(self, x: Any) -> Any:
            return self.dense(x if float(x.sum()) > 0 else -x)

    net = Looks()
    net.initialize()
    net.summary(np.ones((1, 3)))
    printed = capsys.readouterr().out
    assert "FLOPs: not known" in printed
    assert "(1, 2)" in printed
    assert net._forward_hooks == {} == net.dense._forward_pre_hooks


# ---- what is refused


class Shifted(nn.HybridBlock):
    def __init__(self, factor: float, *others: Any, shift: float = 0.0) -> None:
        super().__init__()


def test_missing_arguments() -> None:
    for make, told in (
        (lambda: nn.Conv2D(8), "Conv2D: missing argument 'kernel_size'"),
        (lambda: nn.Conv2D(kernel_size=3), "Conv2D: missing argument 'channels'"),
        (lambda: Shifted(shift=3), "Shifted: missing argument 'factor'"),
    ):
        with pytest.raises(OperandError, match=told):
            make()
    for block in (Shifted(1, 2, 3), nn.Conv2D(8, kernel_size=3), nn.HybridLambda("relu")):
        assert type(copy.deepcopy(block)) is type(block)


class Counting(type):
    def __call__(cls, *others: Any, tag: str = "", **settings: Any) -> Any:
        made = cls.__new__(cls, *others, tag=tag, **settings)
        made.__init__(len(others), **settings)
        return made


class Counted(nn.HybridBlock, metaclass=Counting):
    def __init__(self, count: int, shift: float = 0.0) -> None:
        super().__init__()
        self.count = count


class Made(nn.HybridBlock):
    def __new__(cls, factor: float, shift: float) -> Any:
        return super().__new__(cls, factor)

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.shift = shift


def test_classes_that_are_made_in_ways_of_their_own() -> None:
    """What `__new__` gets need not be what `__init__` gets."""
    assert Counted(1, 2, tag="a", shift=3).count == 2
    assert Made(1, shift=2).shift == 2


def test_unknown_keywords() -> None:
    for make, near in (
        (lambda: nn.Dense(3, in_unit=4), "in_units"),
        (lambda: nn.Conv2D(3, 3, stride=2), "strides"),
        (lambda: nn.BatchNorm(eps=1e-3), "epsilon"),
        (lambda: nn.MaxPool2D(poolsize=2), "pool_size"),
        (lambda: nn.Sequential(prefx="a"), "prefix"),
        (lambda: nn.Embedding(3, 4, weight_init="ones"), "weight_initializer"),
        (lambda: nn.Conv2D(out_channels=8), "channels"),
        (lambda: nn.Dense(out_features=8), "units"),
        (lambda: gluon.data.DataLoader([1, 2], batchsize=1), "batch_size"),
        (lambda: Shifted(factors=3), "factor"),
    ):
        with pytest.raises(UnknownKeywordError, match=f"did you mean '{near}'"):
            make()
        with pytest.raises(TypeError):
            make()


CONV = r"\(batch, 3, height, width\)"
#: Layer, a shape it has seen, another shape that it refuses, and the message.
SHAPES: list[tuple[Any, tuple[int, ...], tuple[int, ...], str]] = [
    (lambda: nn.Dense(4), (2, 3), (2, 5), r"which takes \(batch, 3\)"),
    (lambda: nn.Dense(4, flatten=False), (2, 3), (2, 5), r"which takes \(\.\.\., 3\)"),
    (lambda: nn.Conv2D(4, 3), (1, 3, 8, 8), (1, 4, 8, 8), CONV),
    (lambda: nn.Conv2D(4, 3), (1, 3, 8, 8), (3, 8, 8), CONV),
    (lambda: nn.Conv2DTranspose(4, 3), (1, 3, 8, 8), (1, 4, 8, 8), CONV),
    (lambda: nn.BatchNorm(), (2, 3), (2, 5), "which takes 3 elements along axis 1"),
    (lambda: nn.LayerNorm(), (2, 3), (2, 5), "which takes 3 elements along axis -1"),
    (lambda: nn.GroupNorm(), (2, 3, 4), (2, 5, 4), "which takes 3 elements along axis 1"),
    (lambda: nn.MaxPool2D(), (1, 3, 8, 8), (3, 8, 8), "which takes 4 axes"),
    (lambda: nn.PixelShuffle2D(2), (1, 4, 2, 2), (1, 3, 2, 2), "4 must divide its channels"),
]


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize(("make", "first", "wrong", "match"), SHAPES, ids=lambda v: "")
def test_wrong_shapes(make: Any, first: Any, wrong: Any, match: str, hybrid: bool) -> None:
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Identity(), make())
    net.initialize()
    expected = net(np.ones(first))
    if hybrid:
        net.hybridize()
    with pytest.raises(ShapeError, match=match) as caught:
        net(np.ones(wrong))
    assert caught.value.layer == "net.1"
    numpy.testing.assert_allclose(net(np.ones(first)).asnumpy(), expected.asnumpy(), rtol=1e-5)


def test_a_wrong_first_input_leaves_the_shapes_open() -> None:
    for make, wrong, right in (
        (lambda: nn.Conv2D(2, 3), (3, 8), (1, 3, 8, 8)),
        (lambda: nn.Dense(2), (3,), (3, 4)),
        (lambda: nn.BatchNorm(axis=3), (3, 8), (1, 3, 8, 8)),
        (lambda: nn.LayerNorm(axis=2), (3, 8), (1, 3, 8, 8)),
    ):
        net = make()
        net.initialize()
        with pytest.raises((ShapeError, AxisError)):
            net(np.ones(wrong))
        assert net(np.ones(right)) is not None


class OldDense(nn.HybridBlock):
    """A layer as written for MXNet 1, which infers shapes itself."""

    def __init__(self, units: int, flatten: bool, **settings: Any) -> None:
        super().__init__(**settings)
        self._units, self._flatten = units, flatten
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(units, 0), allow_deferred_init=True)
            self.gamma = self.params.get("gamma", shape=(0,), init="ones")
            self.inner = nn.Dense(3)

    def hybrid_forward(self, F: Any, x: Any, weight: Any, gamma: Any) -> Any:
        """Two products, after each example was scaled along its first axis."""
        x = x * F.reshape(gamma, (1, -1, 1))
        how = {"num_hidden": self._units, "flatten": self._flatten, "no_bias": True}
        return self.inner(F.FullyConnected(x, weight, **how))


@pytest.mark.parametrize("hybrid", [False, True], ids=["imperative", "hybridized"])
@pytest.mark.parametrize(("flatten", "columns", "inside"), [(True, 20, 6), (False, 5, 24)])
def test_undeclared_shapes_are_inferred(
    flatten: bool, columns: int, inside: int, hybrid: bool
) -> None:
    net = OldDense(6, flatten)
    net.initialize("normal")
    if hybrid:
        net.hybridize()
    assert net(np.ones((2, 4, 5))).shape == (2, 3)
    found = [p.shape for p in net.collect_params().values()]
    assert found == [(6, columns), (4,), (3, inside), (3,)]
    assert net(np.ones((7, 4, 5))).shape == (7, 3)
    if hybrid:
        assert net._own.compiled.traces == 1, "the batch stays free"


def test_shapes_that_several_would_fit() -> None:
    class Ambiguous(nn.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.row = self.params.get("row", shape=(0,))

        def forward(self, x: Any) -> Any:
            return x.sum() * self.row.data()

    net = Ambiguous()
    net.initialize()
    with pytest.raises(BlockError, match=r"ambiguous\d+_row cannot be inferred.*infer_shape"):
        net(np.ones((2, 3, 4)))
    assert net.row.shape == (-1,)
    assert net(np.ones((2, 3))).shape == (3,)


class Looking(nn.HybridBlock):
    def __init__(self, look: Any) -> None:
        super().__init__()
        self.look = look

    def forward(self, x: Any) -> Any:
        return self.look(x)


@pytest.mark.parametrize(
    ("look", "what"),
    [
        (lambda x: x.asnumpy(), r"asnumpy\(\)"),
        (lambda x: x.sum().item(), r"item\(\)"),
        (lambda x: x if x.sum() > 0 else -x, r"bool\(\)"),
        (lambda x: x * float(x[0]), r"float\(\)"),
        (lambda x: [x] * int(x[0]), r"int\(\)"),
    ],
    ids=lambda v: "",
)
def test_values_in_a_trace(look: Any, what: str) -> None:
    """The error names the file, the line and the remedy."""
    net = nn.HybridSequential(prefix="net_")
    net.add(Looking(look))
    net.hybridize()
    place = rf"{what} at \S*test_blocks\.py:{look.__code__.co_firstlineno}"
    with pytest.raises(TraceError, match=rf"{place} needs.*use npx\.cond.*\(in net\.0\)"):
        net(np.ones(2))


@pytest.mark.parametrize("compiled", [False, True])
def test_errors_say_sizes_in_numbers(compiled: bool) -> None:
    """Also the sizes in a list, which are symbolic in a trace."""
    net = nn.HybridSequential(prefix="net_")
    net.add(gluon.rnn.LSTM(3, prefix="lstm_"))
    net.hybridize(compiled)
    net.initialize()
    with pytest.raises(ShapeError, match=r"inputs \[4, 5\] must have three axes"):
        net(np.ones((4, 5)))
    layer = gluon.rnn.LSTM(3, input_size=4)
    layer.initialize()
    layer.hybridize(compiled)
    with pytest.raises(ShapeError, match=r"states \[1, 7, 3\] must be \[1, 5, 3\]"):
        layer(np.ones((4, 5, 4)), layer.begin_state(7))


def test_a_lambda_needs_a_function() -> None:
    for kind in (nn.Lambda, nn.HybridLambda):
        with pytest.raises(
            ArgumentError, match="3 is not a function; give a function, or the name"
        ):
            kind(3)


@pytest.mark.parametrize("kind", [nn.Sequential, nn.HybridSequential])
def test_a_block_cannot_contain_itself(kind) -> None:
    outer, middle, inner = kind(), kind(), kind()
    outer.add(middle)
    middle.add(inner)
    with pytest.raises(BlockError, match=r"sequential\d+ cannot contain itself"):
        outer.add(outer)
    with pytest.raises(BlockError, match=rf"cannot contain {outer.name}, which contains it"):
        inner.add(outer)
    with pytest.raises(BlockError, match=rf"cannot contain {outer.name}, which contains it"):
        inner.again = outer
    assert not hasattr(inner, "again") and list(inner) == []
    # Blocks that were removed or replaced are no longer inside.
    outer.register_child(nn.Dense(2), "0")
    del middle._children["0"]
    middle.add(outer)
    inner.add(middle)
    assert [len(block) for block in (inner, middle, outer)] == [1, 1, 1]


@pytest.mark.parametrize("remove", [
    lambda children: children.clear(), lambda children: children.pop("0"),
    lambda children: children.popitem(), lambda children: children.update({"0": nn.Dense(2)}),
])  # fmt: skip
def test_children_that_left_in_any_way_may_become_parents(remove) -> None:
    outer, inner = nn.HybridSequential(), nn.HybridSequential()
    outer.add(inner)
    remove(outer._children)
    inner.add(outer)
    assert list(inner) == [outer]


def test_blocks_in_many_others() -> None:
    inner = around = nn.HybridSequential()
    for _ in range(20):  # more than a million ways lead upwards
        one, other, both = nn.HybridSequential(), nn.HybridSequential(), nn.HybridSequential()
        one.add(around)
        other.add(around)
        both.add(one, other)
        around = both
    assert len({id(block) for block in and_around(inner)}) == len(and_around(inner)) == 61
    for _ in range(1500):  # more than Python's stack holds
        deeper = nn.HybridSequential()
        inner.add(deeper)
        inner = deeper
    with pytest.raises(BlockError, match="which contains it"):
        inner.add(around)


@pytest.mark.parametrize("hybrid", [False, True])
def test_lists_of_ndarrays_give_ndarrays(hybrid) -> None:
    layer = nn.Dense(2, in_units=3)
    layer.initialize()
    layer.hybridize(hybrid)
    rows = nd.ones((2, 3))
    for given in (list(rows), [rows[0].tolist(), rows[1]]):
        assert type(layer(given)) is type(rows)


def test_a_plain_block_among_hybrid_ones() -> None:
    with pytest.raises(
        BlockError, match=r"HybridConcatenate can only contain HybridBlocks.*Lambda"
    ):
        nn.HybridConcatenate(nn.Dense(2), nn.Lambda("tanh"))
    net = nn.Sequential()
    net.add(nn.Dense(2), nn.Lambda("tanh"), nn.Concatenate(nn.Lambda("relu"), nn.Dense(2)))
    with pytest.warns(UserWarning, match=r"1 \(Lambda\), 2\.0 \(Lambda\)") as found:
        net.hybridize(static_alloc=True, static_shape=True)
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.hybridize(active=False)


# ---- initializers


def test_registered_initializers() -> None:
    @init.register
    @init.alias("seven")
    class Sevens(init.Initializer):
        def __init__(self, more: float = 0) -> None:
            super().__init__(more=more)
            self.more = more

        def _init_weight(self, name: str, array: Any) -> None:
            array[:] = 7 + self.more

        def _init_bias(self, name: str, array: Any) -> None:
            array[:] = 1

    for name in ("sevens", "Seven", Sevens, Sevens(), Sevens().dumps()):
        net = nn.Dense(1, in_units=2, weight_initializer=name)
        net.initialize()
        assert net.weight.data().tolist() == [[7, 7]]
    assert json.loads(Sevens(2).dumps()) == ["sevens", {"more": 2}]
    assert init.create(Sevens(2).dumps()) == Sevens(2) != Sevens()
    bias = np.zeros(2)
    Sevens()("x_bias", bias)
    assert bias.tolist() == [1, 1]
    net = nn.Dense(1, in_units=2, bias_initializer=None)
    net.initialize(Sevens())
    assert net.bias.data().tolist() == [7], "in a network names decide nothing"


def test_an_initializer_fills_the_array() -> None:
    class Returns(init.Initializer):
        def _init_weight(self, name: str, array: Any) -> Any:
            return np.ones(array.shape)

    net = nn.Dense(2, in_units=3, weight_initializer=Returns())
    with pytest.raises(ArgumentError, match=r"Returns\._init_weight returned a ndarray"):
        net.initialize()


def test_an_initializer_may_be_called_itself() -> None:
    class Noted(init.Initializer):
        def __call__(self, name: str, array: Any) -> None:
            names.append(str(name))
            array[:] = 3

    names: list[str] = []
    net = nn.Dense(2, in_units=2, prefix="d_")
    net.initialize(Noted())
    assert names == ["d_weight"]
    assert net.weight.data().tolist() == [[3, 3], [3, 3]]
    assert net.bias.data().tolist() == [0, 0]


def test_mixed_and_load(tmp_path: Any) -> None:
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(2, in_units=2), nn.Dense(2, in_units=2))
    net.initialize(init.Mixed([".*dense0", ".*"], [init.One(), "zeros"]))
    assert net[0].weight.data().sum() == 4
    assert net[1].weight.data().sum() == 0
    with pytest.raises(UnknownNameError, match="net_dense1_weight matches none"):
        net.initialize(init.Mixed([".*dense0"], ["ones"]), force_reinit=True)
    with pytest.raises(ValueError, match="2 patterns"):
        init.Mixed(["a", "b"], ["ones"])
    path = str(tmp_path / "p")
    npx.save(path, {"arg:net_dense1_weight": np.full((2, 2), 5.0)})
    for given in (path, tmp_path / "p"):
        net.initialize(init.Load(given, default_init="ones"), force_reinit=True)
        assert net[1].weight.data().sum() == 20
    assert net[0].weight.data().sum() == 4
    with pytest.raises(ShapeError, match="shape"):
        nn.Dense(3, in_units=1, prefix="net_dense1_").initialize(init.Load(path, "ones"))


#: Initializer, standard deviation, largest magnitude (0: unbounded).
SHAPE = (300, 40, 2)
FANS = (40 * 2 + 300 * 2) / 2, 40 * 2, 300 * 2
RANDOM: list[tuple[Any, float, float]] = [
    (init.Uniform(0.5), 0.5 / 3**0.5, 0.5),
    (init.Normal(2.0), 2.0, 0),
    (init.TruncNorm(0, 2.0), 2 * 0.8796256610342398, 4.0),
    (init.Xavier(), (3 / FANS[0]) ** 0.5 / 3**0.5, (3 / FANS[0]) ** 0.5),
    (init.Xavier("gaussian", "in", 2), (2 / FANS[1]) ** 0.5, 0),
    (init.Xavier("uniform", "out", 2), (2 / FANS[2]) ** 0.5 / 3**0.5, (2 / FANS[2]) ** 0.5),
    (init.MSRAPrelu(), (2 / (1 + 0.25**2) / FANS[0]) ** 0.5, 0),
    (init.MSRAPrelu("in", 0), (2 / FANS[1]) ** 0.5, 0),
]


@pytest.mark.parametrize(("made", "deviation", "most"), RANDOM, ids=lambda v: "")
def test_distributions(made: Any, deviation: float, most: float) -> None:
    np.random.seed(0)
    array = np.zeros(SHAPE)
    made("weight", array)
    values = array.asnumpy().astype("float64")
    assert abs(values.mean()) < 4 * deviation / values.size**0.5
    assert values.std() == pytest.approx(deviation, rel=0.02)
    if most:
        assert 0.98 * most < abs(values).max() <= most * 1.000001
    else:  # normal: the share of numbers within one deviation
        assert (abs(values) < deviation).mean() == pytest.approx(0.6827, abs=0.015)
    again = np.zeros(SHAPE)
    np.random.seed(0)
    init.create(made.dumps())("weight", again)
    assert (again == array).all()


@pytest.mark.parametrize("kind", ["uniform", "normal"])
@pytest.mark.parametrize("shape", [(3, 8), (8, 3), (4, 2, 3), (5, 5)])
def test_orthogonal(shape: tuple[int, ...], kind: str) -> None:
    array = np.zeros(shape)
    init.Orthogonal(2.0, kind)("weight", array)
    rows = array.asnumpy().reshape(shape[0], -1)
    product = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    numpy.testing.assert_allclose(product, 4 * numpy.eye(len(product)), atol=1e-5)


def test_bilinear_enlarges_images() -> None:
    net = nn.Conv2DTranspose(1, 4, 2, 1, in_channels=1, weight_initializer=init.Bilinear())
    net.initialize()
    y = net(np.ones((1, 1, 5, 5))).asnumpy()
    numpy.testing.assert_allclose(y[0, 0, 1:-1, 1:-1], 1)
    with pytest.raises(ShapeError, match="4 dimensions"):
        init.Bilinear()("weight", np.zeros((2, 2)))


def test_lstm_bias() -> None:
    array = np.ones(8)
    init.LSTMBias(2.0)("weight", array)
    assert array.tolist() == [0, 0, 2, 2, 0, 0, 0, 0]


class Scaled(gluon.HybridBlock):
    """A block with compiled functions among its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = np.array([2.0])
        self.times = gemel.compile(self.timed)
        self.doubled = doubled

    def timed(self, x):
        return x * self.scale

    def forward(self, x):
        return self.times(x) + self.doubled(x)


@gemel.compile
def doubled(x):
    return x * 2


@pytest.mark.parametrize("way", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_compiled_functions_are_copied_with_what_holds_them(way) -> None:
    block = Scaled()
    assert block(np.ones(1)).tolist() == [4.0]
    other = way(block)
    assert other.doubled is doubled
    other.scale[:] = 10
    assert other(np.ones(1)).tolist() == [12.0]
    assert block(np.ones(1)).tolist() == [4.0]
    assert copy.deepcopy(gemel.compile(lambda x: x + 1, fold=False))(np.ones(1)).tolist() == [2.0]


def test_a_trainer_says_why_it_is_not_copied() -> None:
    trainer = gluon.Trainer(nn.Dense(1, in_units=1).collect_params(), "sgd")
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="save_states"):
            way(trainer)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    ("make", "bad", "good"),
    [
        (lambda: nn.Conv2D(4, 3), (2, 3, 2, 2), (2, 1, 8, 8)),
        (lambda: nn.Conv2D(4, 3, groups=2), (2, 3, 8, 8), (2, 4, 8, 8)),
        (lambda: _in_order(nn.Dense(3), nn.Conv2D(4, 3)), (2, 4), None),
        (lambda: _in_order(nn.Dense(3), _in_order(nn.Dense(2), _Refusing())), (2, 4), (1, 5)),
    ],
)
def test_a_first_call_that_fails_finds_no_shapes(make, bad, good, hybrid):
    net = make()
    net.initialize()
    net.hybridize(hybrid)
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    before = {name: p.shape for name, p in net.collect_params().items()}
    for _ in range(2):
        with pytest.raises((ValueError, ShapeError)):
            net(np.ones(bad))
        assert {name: p.shape for name, p in net.collect_params().items()} == before
        with pytest.raises(DeferredInitializationError):
            next(p for p in net.collect_params().values() if not p.is_shape_known).data()
    if good is None:
        return
    with autograd.record():
        found = net(np.ones(good))
    found.backward()
    trainer.step(1)
    with pytest.raises((ValueError, ShapeError)):
        net(np.ones(bad))
    assert all(p.is_shape_known for p in net.collect_params().values())


def test_a_failing_call_keeps_shapes_of_earlier_calls():
    net = _in_order(nn.Dense(3), nn.Dense(2))
    net.initialize()
    net(np.ones((1, 5)))
    values = [p.data().asnumpy() for p in net.collect_params().values()]
    with pytest.raises(ShapeError, match="takes"):
        net(np.ones((1, 4)))
    assert all(
        (p.data() == v).all() for p, v in zip(net.collect_params().values(), values, strict=True)
    )


class _Refusing(nn.HybridLambda):
    """Refuses two examples, with an error of the user's."""

    def __init__(self):
        super().__init__(self._once)

    def _once(self, x):
        if x.shape[0] == 2:
            raise ValueError("not these")
        return x


def _in_order(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    return net


def test_parameters_that_cannot_be_shared() -> None:
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.Dense(2))
    before = dict(net.collect_params())
    good = Parameter("w", shape=(2, 3))
    for shared, kind, message in [
        (5, OperandError, "5 is not a Parameter"),
        ({"0.weight": good, "0.bias": 5}, OperandError, "5 is not a Parameter"),
        ({"0.weight": good, "2.bias": good}, UnknownNameError, r"unknown parameter '2\.bias'"),
        ({"0.bias": good}, ShapeError, r"0\.bias has shape \(2,\); it cannot be w"),
        ({"1.weight": Parameter("w", shape=(3, 3))}, ShapeError, r"1\.weight has shape"),
    ]:
        with pytest.raises(kind, match=message):
            net.share_parameters(shared)
        assert all(p is before[name] for name, p in net.collect_params().items())
    net.share_parameters({"0.weight": good, "1.weight": good})
    assert net[0].weight is net[1].weight is good


def test_a_cast_that_fails_changes_nothing() -> None:
    net = nn.Dense(2, in_units=3)
    net.initialize()
    with pytest.raises(gemel.errors.GradientError, match="floating dtype"):
        net.cast("int32")
    assert net.weight.dtype == net.weight.data().dtype == "float32"


def test_files_that_are_none(tmp_path: Any) -> None:
    net = nn.Dense(2, in_units=3)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    methods = [net.save_parameters, net.load_parameters, net.collect_params().save]
    methods += [net.collect_params().load, trainer.save_states, trainer.load_states]
    for method in methods:
        for path in (5, None, ""):
            with pytest.raises(ArgumentError, match="is not the path of a file"):
                method(path)
    with pytest.raises(OperandError, match="5 is not a dictionary of arrays"):
        net.load_dict(5)
    with pytest.raises(ParameterFileError, match="weight is a list, not an array"):
        net.load_dict({"weight": [1], "bias": np.ones(2)})
    with pytest.raises(FileNotFoundError, match=r"none-model\.json does not exist"):
        net.load(tmp_path / "none")
    (tmp_path / "a-model.json").write_text("{")
    with pytest.raises(ParameterFileError, match="describes a network with other blocks"):
        net.load(tmp_path / "a")


def test_arguments_that_are_none() -> None:
    net = nn.Dense(2, in_units=3)
    for call, message in [
        (lambda: net.collect_params("("), r"'\(' is not a regular expression"),
        (lambda: net.collect_params(5), "5 is not a regular expression"),
        (lambda: net.register_forward_hook(5), "hook of a block: 5 is not a function"),
        (lambda: net.register_forward_pre_hook(5), "hook of a block: 5 is not a function"),
        (lambda: gluon.Trainer(net.collect_params(), "sgd").compile(5), "5 is not a function"),
        (lambda: gluon.utils.clip_global_norm(5, 1.0), "not 5"),
        (lambda: gluon.utils.clip_global_norm([5], 1.0), r"not \[5\]"),
        (lambda: gluon.utils.clip_global_norm([np.ones(2)], "a"), "max_norm is 'a'"),
        (lambda: gluon.utils.clip_global_norm([np.ones(2)], -1), "max_norm is -1"),
    ]:
        with pytest.raises((ArgumentError, OperandError), match=message):
            call()
    assert gluon.utils.clip_global_norm([np.ones(4)], float("inf")) == 2


@pytest.mark.parametrize(
    "use",
    [
        lambda p, x: x @ p,
        lambda p, x: p + x,
        lambda p, x: 2 * p,
        lambda p, x: -p,
        lambda p, x: p[0],
        lambda p, x: p > 0,
        lambda p, x: np.exp(p),
        lambda p, x: np.concatenate([x, p]),
        lambda p, x: numpy.asarray(p),
        lambda p, x: gemel.compile(lambda x: x * p)(x),
    ],
)
def test_a_parameter_in_place_of_its_array(use: Any) -> None:
    weight = Parameter("w", shape=(3, 3))
    weight.initialize()
    with pytest.raises(OperandError, match=r"Parameter w .* compute with its array: .*data\(\)"):
        use(weight, np.ones((3, 3)))
    assert weight == weight and weight in [weight] and {weight: 1}[weight]
