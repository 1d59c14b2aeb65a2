"""A plan that fails in one place: what fails with it, what stays valid, what the message says."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import core_kernels as kernels
import pytest
from core_fakes import array as core_array
from core_fakes import checked_copy, installed, loop_step, plan, step, vector

import gemel
from gemel import _core, autograd, gluon, np, npx
from gemel.runtime.image import OUTPUT, WRITTEN
from gemel.tracing.updates import Update

#: The calling thread computes few elements itself and hands many to the engine.
SMALL, LARGE = 4, 1 << 18


def queued() -> int:
    return int(_core.counters()["queued"])


@pytest.fixture(params=["inline", "queued", "serial"])
def size(request: pytest.FixtureRequest) -> Iterator[int]:
    """Elements per array, so that work of this size runs in the way the test asks for."""
    _core.configure(serial=request.param == "serial")
    large = request.param == "queued"
    before = queued()
    yield LARGE if large else SMALL
    if large:
        assert queued() > before
    npx.waitall()
    _core.configure(serial=False)


@pytest.fixture(params=["imperative", "compiled"])
def compiled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "compiled")


def bad(size: int, position: int | None = None) -> Any:
    """Positions, the last of which is out of range."""
    return np.concatenate([np.zeros((size - 1,), "int64"), np.array([position or size])])


def good(size: int) -> Any:
    return np.zeros((size,), "int64")


def line_of(function: Any, text: str) -> int:
    """The number of the function's line that contains a text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


def fails(array: Any, message: str = "out of bounds") -> str:
    """Check that an array fails with the same message each time; returns the message."""
    with pytest.raises(IndexError, match=message) as first:
        array.wait_to_read()
    with pytest.raises(IndexError) as second:
        array.tolist()
    assert str(first.value) == str(second.value)
    return str(first.value)


# --- outputs ----------------------------------------------------------------------------------


def test_only_what_needs_the_failed_value_fails(size: int, compiled: bool) -> None:
    def forward(x: Any, positions: Any) -> Any:
        before = x * 2
        taken = before.take(positions, axis=0) + 1  # here
        return before.sum(), taken.sum(), (taken * x).reshape(2, -1), before - x

    call = gemel.compile(forward) if compiled else forward
    x = np.ones((size,))
    for _ in range(2):
        total, lost, also, rest = call(x, bad(size))
        message = fails(lost, f"take: .* axis 0 with size {size}")
        assert fails(also) == message
        line = line_of(forward, "# here")
        if compiled:
            assert f"(traced at {__file__}:{line}) (issued at {__file__}:" in message
        else:
            assert message.endswith(f"(issued at {__file__}:{line})")
        assert total.item() == 2 * size
        assert (rest == x).all().item()
        found = call(x, good(size))
        assert found[1].item() == 3 * size
        assert (found[2] == 3).all().item()


def test_work_after_the_failure_is_done(size: int) -> None:
    """Results computed after the failure are right, even in memory that might have been shared."""

    def forward(x: Any, positions: Any) -> Any:
        lost = x.take(positions, axis=0)
        lost = np.stack([lost, lost * 3]).sum(axis=0)
        kept = np.stack([x, x * 3]).transpose(1, 0).reshape(-1) + 1
        return lost, kept.sum(), lost.max()

    lost, kept, most = gemel.compile(forward)(np.ones((size,)), bad(size))
    assert kept.item() == 6 * size
    assert fails(lost) == fails(most)


def test_two_failures_reach_their_own_outputs(size: int, compiled: bool) -> None:
    def forward(x: Any, first: Any, second: Any) -> Any:
        a = x.take(first, axis=0)
        b = x.reshape(2, -1).take(second, axis=1)
        return b.sum(), a.sum(), (a.sum() + b.sum()), x.sum()

    call = gemel.compile(forward) if compiled else forward
    x = np.ones((size,))
    b, a, both, neither = call(x, bad(size), bad(size))
    of_a, of_b = fails(a, f"axis 0 with size {size}"), fails(b, f"axis 1 with size {size // 2}")
    assert of_a != of_b
    assert fails(both) in (of_a, of_b)
    assert neither.item() == size
    b, a, both, neither = call(x, good(size), bad(size))
    assert a.item() == size and neither.item() == size
    assert fails(b) == fails(both)


def test_an_index_made_from_a_failed_value_is_not_looked_at(size: int) -> None:
    def forward(x: Any, positions: Any) -> Any:
        first = positions.take(positions, axis=0)
        return x.take(first, axis=0).sum(), x.sum()

    call = gemel.compile(forward)
    lost, total = call(np.ones((size,)), bad(size))
    assert f":{line_of(forward, 'positions.take')})" in fails(lost)
    assert total.item() == size


def test_a_block_s_outputs(size: int) -> None:
    class Net(gluon.HybridBlock):
        def forward(self, x: Any, positions: Any) -> Any:
            return x.take(positions, axis=0).sum(), x.sum()

    net = Net()
    net.hybridize()
    lost, total = net(np.ones((size,)), bad(size))
    assert f"(traced at {__file__}:{line_of(Net.forward, 'take')})" in fails(lost)
    assert total.item() == size


def test_a_failure_in_a_branch(size: int) -> None:
    def forward(x: Any, positions: Any) -> Any:
        def risky(x: Any, positions: Any) -> Any:
            return x.take(positions, axis=0)  # here

        found = npx.cond(x.sum() > 0, risky, lambda x, _: x * 5, [x, positions])
        return found.sum(), x * 2

    call = gemel.compile(forward)
    x = np.ones((size,))
    lost, double = call(x, bad(size))
    assert f"(traced at {__file__}:{line_of(forward, '# here')})" in fails(lost)
    assert (double == 2).all().item()
    other, double = call(-x, bad(size))  # the other branch looks nothing up
    assert other.item() == -5 * size
    assert call(x, good(size))[0].item() == size


def test_only_what_is_lost_together_shares_a_kernel() -> None:
    def apart(x: Any, positions: Any) -> Any:
        double = x * 2
        return double, x.take(positions, axis=0) + double

    def together(x: Any, positions: Any) -> Any:
        double = x * 2
        return x.take(positions, axis=0) + double

    arguments = np.ones((SMALL,)), good(SMALL)
    assert gemel.compile(apart).graph(*arguments, optimized=True).count("fused") == 2
    assert gemel.compile(together).graph(*arguments, optimized=True).count("fused") == 1


# --- what is overwritten ----------------------------------------------------------------------


def parameter(*shape: int) -> Any:
    found = gluon.Parameter("state", shape=shape, grad_req="null", init="ones")
    found.initialize()
    return found


def test_updates_that_need_a_failed_value_leave_their_targets(size: int) -> None:
    last, mean, table, count = parameter(size), parameter(1), parameter(size), parameter(1)

    def forward(x: Any, positions: Any) -> Any:
        taken = x.take(positions, axis=0)
        last.set_data(taken * 2)
        mean.set_data(mean.data() * 0.5 + taken.mean() * 0.5)
        table.set_data(table.data().take(positions, axis=0) + 1)
        count.set_data(count.data() + 1)
        return x.sum()

    call = gemel.compile(forward)
    x = np.full((size,), 3.0)
    assert call(x, bad(size)).item() == 3 * size
    with pytest.raises(IndexError):
        npx.waitall()
    states = [last, mean, table, count]
    assert [state.data()[0].item() for state in states] == [1, 1, 1, 2]
    assert all((state.data() == state.data()[0]).all().item() for state in states)
    assert call(x, good(size)).item() == 3 * size
    assert [state.data()[0].item() for state in states] == [6, 2, 2, 3]


def test_running_statistics_are_not_poisoned(size: int) -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.norm = gluon.nn.BatchNorm()

        def forward(self, x: Any, positions: Any) -> Any:
            return self.norm(x.take(positions, axis=0))

    net = Net()
    net.initialize()
    x, few = np.ones((size, 2)), np.zeros((size,), "int64")
    with autograd.train_mode():
        net(x, few)
    net.hybridize()
    held = net.norm.running_mean.data()
    before = held.tolist()
    with autograd.train_mode():
        fails(net(x, bad(size)))
        assert held.tolist() == before
        net(x, few).wait_to_read()
    assert held.tolist() != before


def test_arrays_written_by_a_failing_step_fail_and_recover(size: int) -> None:
    from gemel.ops.indexing import scatter

    def step(arrays: Any, _: Any) -> Any:
        target, other, values, positions = arrays
        new = scatter.apply((values, positions), {"axis": 0, "shape": target.shape})[0]
        return [new, other + 1]

    update = Update(step)
    target, other, values = np.ones((size,)), np.ones((size,)), np.ones((size,))
    update([target, other, values, bad(size)], [])
    fails(target)
    assert (other == 2).all().item()
    target[...] = 7
    assert (target == 7).all().item()
    update([target, other, values, good(size)], [])
    assert target[0].item() == size and target[1].item() == 0
    assert (other == 3).all().item()


def test_a_bad_batch_in_training_leaves_the_weights(size: int) -> None:
    class Net(gluon.HybridBlock):
        def __init__(self) -> None:
            super().__init__()
            self.table = gluon.Parameter("table", shape=(size, 2))

        def forward(self, positions: Any) -> Any:
            return self.table.data().take(positions, axis=0) * 2

    net = Net()
    net.initialize(gemel.init.One())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})

    def train(positions: Any) -> Any:
        with autograd.record():
            loss = (net(positions) ** 2).mean()
        loss.backward()
        trainer.step(1)
        return loss

    fails(train(bad(size)))
    with pytest.raises(IndexError, match="out of bounds"):
        train(bad(size))
        npx.waitall()
    assert (net.table.data() == 1).all().item()
    train(good(size)).wait_to_read()
    assert net.table.data()[0, 0].item() < 1 and net.table.data()[1, 0].item() == 1


# --- what is said -----------------------------------------------------------------------------


def test_waitall_raises_the_first_and_lists_the_others(size: int) -> None:
    def forward(x: Any, first: Any, second: Any) -> Any:
        return x.take(first, axis=0).sum(), x.reshape(2, -1).take(second, axis=1).sum()

    npx.waitall()
    held = gemel.compile(forward)(np.ones((size,)), bad(size), bad(size))
    with pytest.raises(IndexError) as caught:
        npx.waitall()
    message = str(caught.value)
    assert message.count("out of bounds") == 2
    first, others = message.split("\nalso IndexError: ")
    assert f"axis 0 with size {size}" in first
    assert f"axis 1 with size {size // 2}" in others
    npx.waitall()
    fails(held[0])


def test_a_failure_that_reaches_no_array_is_reported(size: int) -> None:
    state = parameter(size)

    def forward(x: Any, positions: Any) -> Any:
        state.set_data(x.take(positions, axis=0) + state.data())
        return x + 1

    npx.waitall()
    found = gemel.compile(forward)(np.ones((size,)), bad(size))
    with pytest.raises(IndexError, match="traced at"):
        npx.waitall()
    assert (found == 2).all().item() and (state.data() == 1).all().item()


def test_failed_outputs_are_healed_by_overwriting(size: int) -> None:
    call = gemel.compile(lambda x, positions: (x.take(positions, axis=0), x + 1))
    lost, _ = call(np.ones((size,)), bad(size))
    spread = lost * 2
    fails(spread)
    lost[...] = 5
    assert (lost == 5).all().item()
    fails(spread)


# --- plans made by hand -----------------------------------------------------------------------


@pytest.fixture
def fakes() -> Iterator[Any]:
    yield from installed()


SPEC = (kernels.FLOAT32, (2,))
#: An array that is overwritten in place.
TARGET = (*SPEC, None, WRITTEN)


def by_hand(microseconds: float, **options: Any) -> Any:
    """Copies of both inputs, which fail if an element is negative; then their sum."""
    kernel = _core.load_object(kernels.refuses_negative())
    steps = [
        step(kernel, [(0, i, 0), (1, i, 0)], [2], 2, 1, failure=("IndexError", f"negative {i}"))
        for i in (0, 1)
    ]
    steps.append(loop_step(vector("add", 6, 6), [(1, 0, 0), (1, 1, 0), (1, 2, 0)], 2))
    outputs = [SPEC] * 3 + [(kernels.FLOAT32, (1,), (1,), 1, OUTPUT, 2)]
    return plan("by_hand", [SPEC, SPEC], outputs, steps, microseconds=microseconds, **options)


@pytest.mark.parametrize("microseconds", [0.1, 1e6])
def test_sites_of_a_plan_made_by_hand(fakes: Any, microseconds: float) -> None:
    made = by_hand(microseconds, sites=[(0, [2], [0, 2, 3], []), (1, [2], [1, 2, 3], [])])
    fine, wrong = core_array([1.0, 2.0]), core_array([1.0, -2.0])
    a, b, total, view = made(fine, wrong)
    assert a.tolist() == [1, 2]
    for lost in (b, total, view):
        fails(lost, "negative 1")
    a, b, total, view = made(wrong, wrong)
    fails(b, "negative 1")
    for lost in (a, total, view):
        fails(lost, "negative 0")
    assert [x.tolist() for x in made(fine, fine)] == [[1, 2], [1, 2], [2, 4], [4]]


@pytest.mark.parametrize("microseconds", [0.1, 1e6])
def test_inputs_written_in_one_storage_fail_together(fakes: Any, microseconds: float) -> None:
    kernel = _core.load_object(kernels.refuses_negative())
    failure = ("IndexError", "negative")
    copying = step(kernel, [(0, 2, 0), (0, 0, 0)], [2], 2, 1, failure=failure)
    copied = plan(
        "views", [TARGET, TARGET, SPEC], [], [copying], microseconds=microseconds,
        sites=[(0, [], [], [0])],
    )  # fmt: skip
    whole = core_array([1.0, 2.0, 3.0, 4.0])
    apart = core_array([5.0, 6.0])
    copied(whole[:2], apart, core_array([1.0, -1.0]))
    fails(whole, "negative")
    assert apart.tolist() == [5, 6]
    both = core_array([1.0, 2.0, 3.0, 4.0])
    copied(both[:2], both[2:], core_array([-1.0, 1.0]))
    fails(both[2:], "negative")
    copied(apart, apart, core_array([1.0, 1.0]))  # the failed calls released what they had acquired
    assert apart.tolist() == [1, 1]
    with pytest.raises(IndexError):
        checked_copy(microseconds)(core_array([1.0, -1.0]))[0].tolist()


def test_malformed_sites_are_refused(fakes: Any) -> None:
    wrong: list[Any] = [
        [(3, [], [], [])],
        [(-1, [], [], [])],
        [(1, [1], [], [])],
        [(0, [3], [], [])],
        [(0, [], [4], [])],
        [(0, [], [], [0])],  # input 0 is not written
        [(0, [], [], [2])],
        [(0, [], [], []), (0, [], [], [])],
    ]
    for sites in wrong:
        with pytest.raises(ValueError, match="the plan's image is damaged"):
            by_hand(1.0, sites=sites)
