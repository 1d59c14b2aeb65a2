"""`KVStore.explain`: what the planner says of a store's values."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gemel import device, kvstore, np
from gemel.errors import ArgumentError, DeviceError, UnknownNameError
from gemel.links import Link, Node, Topology


@pytest.fixture
def simulated() -> Iterator[None]:
    before = device.num_gpus()
    device.simulate(4, 12, 10)
    yield
    device.simulate(before)


def test_the_simulated_links_and_the_values_of_the_store(simulated: None) -> None:
    store = kvstore.create("device")
    for key, count in (("small", 10), ("large", 4_000_000)):
        store.init(key, np.zeros((count,)))
    text = store.explain()
    assert "simulated: 4 GPUs, 1 host, 4 links" in text
    # Four pieces at once: each link carries 3/4 of the bytes there and back, with 10 us twice.
    seconds = 2 * (0.75 * 16e6 / 12e9 + 2 * 10e-6)
    row = next(line for line in text.splitlines() if line.strip().startswith("16 MB"))
    assert "pieces" in row and f"{seconds * 1e3:.2f} ms" in row
    assert "0 to 1" in text.splitlines()[-1]  # the small value travels with the large one


def test_other_links_and_sizes() -> None:
    store = kvstore.create("local")
    assert "ring both ways" in store.explain("p3", [160_000_000])
    nodes = [Node("a", "gpu"), Node("b", "gpu"), Node("c", "host")]
    links = [Link("a", "c", 1.0), Link("b", "c", 1.0)]
    assert "mine: 2 GPUs" in store.explain(Topology("mine", nodes, links))
    assert "256 MB" in store.explain("dgx2")  # without keys and sizes it shows a range of sizes


def test_explain_without_simulated_gpus() -> None:
    if device.num_gpus():
        pytest.skip("GPUs are simulated")
    with pytest.raises(DeviceError, match="simulate"):
        kvstore.create("device").explain()
    with pytest.raises(UnknownNameError, match="dgx2"):
        kvstore.create("device").explain("dgx")


@pytest.mark.parametrize(
    ("topology", "sizes", "words"),
    [
        ("p3", 5, "int 5, given as sizes, is not a list"),
        ("p3", ["4096"], r"list \['4096'\], given as sizes"),
        ("p3", "4096", "str '4096', given as sizes"),
        ("p3", [-1], r"list \[-1\], given as sizes, .* finite and not below 0"),
        ("p3", [4096, float("nan")], "given as sizes, is not a list"),
        ("p3", [float("inf")], "given as sizes, is not a list"),
        (5, [4096], "int 5 is not a topology; give a gemel.topology.Topology or the name"),
    ],
)
def test_explain_of_something_else(topology: object, sizes: object, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        kvstore.create("device").explain(topology, sizes)
