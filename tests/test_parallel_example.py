"""The comparison of the three ways runs to its end, and its replay computes what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import surroundings

from gemel import cpu, device, gpu, np, npx, profiler

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_three_splits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found = subprocess.run(
        [sys.executable, EXAMPLES / "three_splits.py", "--quick"],
        env=surroundings({}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "both orders are as idle as the formula says" in found.stdout.splitlines()[-1]
    assert found.stdout.count("as expected") == 13 and not os.listdir(tmp_path)


@pytest.fixture
def replaying(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    device.simulate(2, gigabytes_per_second=10, microseconds=0)
    import replay

    yield replay
    npx.waitall()
    device.simulate(0)


def test_a_replayed_step(replaying: Any) -> None:
    """Two products run side by side on two devices; then the first result is copied."""
    a, b = (np.ones((200, 200), device=gpu(number)) for number in (0, 1))
    np.dot(a, a), np.dot(b, b)
    npx.waitall()
    profiler.set_state("run")
    x, y = np.dot(a, a), np.dot(b, b)
    z = np.dot(x.as_in_ctx(gpu(1)), y)
    profiler.set_state("stop")
    trace = profiler.recording()
    link = replaying.Link(gigabytes_per_second=1.0, microseconds=100.0)
    step = replaying.replay(trace, 2, link)
    (one, two, three) = (o for o in trace.finished() if not o.copies)
    (copy,) = (o for o in trace.finished() if o.copies)
    assert copy.bytes == 160_000 and step.moved == {(gpu(0).code, False): 160_000}
    cost = one.microseconds
    assert cost == two.microseconds == three.microseconds > 0
    assert step.times[copy.number] == pytest.approx((cost, cost + 100 + 160))
    assert step.whole == pytest.approx(2 * cost + 260)
    assert step.busy == pytest.approx({gpu(0).code: cost, gpu(1).code: 2 * cost})
    assert step.idle == pytest.approx(1 - 3 * cost / 2 / step.whole)
    assert step.waited[gpu(1).code] == pytest.approx({"links": 260.0, "other devices": 0.0})
    assert step.waited[gpu(0).code] == pytest.approx({"links": 0, "other devices": 260.0 + cost})
    assert step.kept[gpu(1).code] == 320_000  # y and the copy of x, until z has been computed
    assert replaying.replay(trace, 2, replaying.FREE).whole == pytest.approx(2 * cost)
    assert z.device == gpu(1) and cpu(0) not in (z.device, x.device)


def test_one_copy_at_a_time_in_each_direction(replaying: Any) -> None:
    x = np.ones((1000,), device=gpu(0))
    npx.waitall()
    profiler.set_state("run")
    kept = [x.as_in_ctx(cpu(0)), x.as_in_ctx(cpu(0)), kept_in := np.ones(10).as_in_ctx(gpu(0))]
    profiler.set_state("stop")
    link = replaying.Link(gigabytes_per_second=1.0, microseconds=1.0)
    step = replaying.replay(profiler.recording(), 2, link)
    assert len(kept) == 3 and kept_in.size == 10
    assert step.whole == pytest.approx(2 * (1 + 4))
