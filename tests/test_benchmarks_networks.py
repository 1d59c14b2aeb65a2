"""The networks that the benchmark compares with torch: they run, and wrong ones are reported."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent))

from benchmarks import memory, networks, networks_worker
from benchmarks.driver import agree
from benchmarks.networks import NETWORKS, Network
from benchmarks.operations import Input

BENCHMARKS = Path(networks.__file__).parent


def classes(file: str) -> list[str]:
    tree = ast.parse((BENCHMARKS / file).read_text())
    return [each.name for each in tree.body if isinstance(each, ast.ClassDef)]


def test_both_libraries_define_the_same_networks_in_the_same_order() -> None:
    found = classes("networks_gemel.py")
    assert found == classes("networks_torch.py")
    names = [each.name for each in NETWORKS]
    assert names == [name for name in found if name in names]


def tiny(given: Input) -> Input:
    """Two examples (or nodes, edges), and numbers below two."""
    return Input("", (min(2, given.shape[0]), *given.shape[1:]), min(2, given.limit))


@pytest.mark.parametrize("network", NETWORKS, ids=lambda each: each.name)
def test_all_ways_of_training_have_the_same_losses(network: Network) -> None:
    target = tiny(network.target) if network.target else None
    small = network._replace(inputs=tuple(map(tiny, network.inputs)), target=target)
    case = networks_worker.Gemel(small)
    found = {}
    for way, step in case.ways.items():
        case.begin(way)
        case.reset()
        found[way] = [step(), step()]
    if target:
        case.folder.cleanup()  # else the collector warns of it, in whatever test runs then
        first, second = found["hybridized"]
        assert first != second and len(found) == len(networks.TRAINING)
        assert all(agree(losses, [first, second], 1e-3) for losses in found.values())
    else:
        assert all(numpy.isfinite(each.asnumpy()).all() for each in case.inference())


def answers(ms: float, loss: float, ways: Iterable[str] = networks.WAYS) -> dict[str, Any]:
    return {way: [1000 * ms, loss] for way in ways}


def test_the_table_has_ratios_and_reports_other_losses(capsys: pytest.CaptureFixture[str]) -> None:
    torch = [answers(4, 1.0, networks.GROUPS)]
    right = {"gemel": [answers(1, 1.0001), answers(3, 1.0001)], "torch": torch}
    assert not networks.compare(1, {NETWORKS[0]: right})
    printed = capsys.readouterr().out
    assert printed.count(" 0.50 |") == len(networks.WAYS)
    assert "inference: median 0.50 of torch's time; 0 of 1 above 1" in printed
    wrong = {"gemel": [answers(1, 1.0001), answers(3, 1.01)], "torch": torch}
    missing: dict[str, Any] = {"gemel": [], "torch": torch}
    assert networks.compare(1, dict(zip(NETWORKS, (right, wrong, missing), strict=False)))
    printed = capsys.readouterr().out
    assert "ViT FAILED: other figures than torch's: " + ", ".join(networks.WAYS) in printed
    assert "Bert FAILED: no answer from gemel" in printed


def test_memory_is_compared_and_other_losses_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch = [[200.0, 3.0, 2.0], [210.0, 3.0, 2.0]]
    ways = {("gemel", way): [[150.0, 3.0, 2.0], [100.0, 3.0, 2.0]] for way in memory.TRAINING}
    right = {**ways, ("torch", "step"): torch}
    wrong = {**right, ("gemel", "compiled"): [[100.0, 3.0, 2.5]]}
    assert not memory.compare({"GPT": right})
    assert "median 0.50 of torch's memory; 0 of 1 above 1" in capsys.readouterr().out
    assert memory.compare(
        {"GPT": right, "ViT": wrong, "Bert": {**right, ("gemel", "compiled"): []}}
    )
    assert capsys.readouterr().out.count("FAILED") == 2


def test_a_larger_network_has_a_larger_batch() -> None:
    network = memory.larger(NETWORKS[0], 4)
    assert [each.shape for each in network.inputs] == [(32, 128)]
    assert network.target is not None and network.target.shape == (32, 128)
    assert network.inputs[0].limit == NETWORKS[0].inputs[0].limit
