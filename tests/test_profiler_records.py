"""The profiler's pure parts, on records made by hand."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from gemel.profiler import table
from gemel.profiler.annotations import Mark, Notes, Slice, labels
from gemel.profiler.graph import StepGraph
from gemel.profiler.perfetto import trace_events
from gemel.profiler.records import Trace, device_name, link_device
from gemel.profiler.svg import BEND, HEIGHT, WIDTH, _Layout
from gemel.profiler.sync import sync_points

SVG = "{http://www.w3.org/2000/svg}"
DATA = "read after write"


def operation(number: int, **given: Any) -> tuple[Any, ...]:
    """The core's record of an operation; it is issued at 10 * number and runs for 5 units."""
    told = {
        "name": "add",
        "detail": "float32[2] -> float32[2]",
        "device": 0,
        "lane": 0,
        "thread": 1,
        "issue_thread": 0,
        "issued": 10 * number,
        "started": 10 * number + 2,
        "finished": 10 * number + 7,
        "bytes": 8,
        "inlined": False,
        "failed": False,
        "microseconds": 0.5,
        "file": "step.py",
        "line": number,
    }
    assert given.keys() <= told.keys()
    return (number, *{**told, **given}.values())


def trace(operations: list[Any], edges: Any = (), waits: Any = (), counters: Any = ()) -> Trace:
    found = Trace()
    found.add(
        {
            "operations": operations,
            "steps": [],
            "edges": list(edges),
            "waits": list(waits),
            "counters": list(counters),
            "threads": {0: "main", 1: "worker 0"},
            "dropped": 0,
        }
    )
    return found


def graph(operations: list[Any], edges: Any = ()) -> StepGraph:
    found = StepGraph()
    found.fill(trace(operations, edges), {})
    return found


# --- traces -----------------------------------------------------------------------------------


def properly_nested(slices: list[dict[str, Any]]) -> bool:
    """Whether slices of a track overlap only if one lies within the other."""
    nanoseconds = [
        (e["tid"], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000)) for e in slices
    ]
    return not any(
        first[0] == second[0] and first[1] < second[1] < first[2] < second[2]
        for first in nanoseconds
        for second in nanoseconds
    )


def test_tasks_that_overlap_get_rows_of_their_own():
    slices = [
        Slice("a", "task", "", 0, 0, 100),
        Slice("inside a", "task", "", 0, 10, 90),
        Slice("outlasts a", "task", "", 0, 50, 150),
        Slice("after a", "task", "", 0, 100, 120),
    ]
    waits = [(0, 80, 95, "array", 1, "step.py", 3)]  # ends after "inside a"
    document = trace_events(trace([operation(1)], waits=waits), Notes(), slices)
    events = document["traceEvents"]
    drawn = [e for e in events if e["ph"] == "X"]
    assert properly_nested(drawn)
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    placed = {e["name"]: tracks[e["tid"]] for e in drawn}
    assert placed["a"] == placed["inside a"] == placed["after a"] == "issue: main"
    assert placed["outlasts a"] == placed["wait for add #1"] == "issue: main (2)"


def test_every_event_lies_on_a_track_with_a_name():
    waits = [(7, 30, 40, "all", 0, "step.py", 3)]  # of a thread that issues nothing
    notes = Notes()
    notes.marks.append(Mark("epoch", "", "t", 8, 35))
    found = trace([operation(1, thread=1500, issue_thread=1600)], waits=waits)
    slices = [Slice("load", "task", "", 9, 20, 30)]
    events = trace_events(found, notes, slices)["traceEvents"]
    tracks = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len(set(tracks.values())) == len(tracks)
    told = {e["name"]: tracks[e["tid"]] for e in events if e["ph"] in "Xi"}
    assert told == {
        "add": "thread 1500",
        "issue add": "issue: thread 1600",
        "wait for all": "issue: thread 7",
        "load": "issue: thread 9",
        "epoch": "issue: thread 8",
    }


def test_a_slice_says_when_and_where_its_operation_was_issued():
    found = trace([operation(1), operation(2, lane=24, started=40, finished=50)], [(1, 2, DATA)])
    events = trace_events(found, Notes(), labels={2: "forward"})["traceEvents"]
    first, second = [e for e in events if e["ph"] == "X"]
    assert (first["args"]["lane"], second["args"]["lane"]) == (0, 24)
    assert first["args"]["issued us"] == 0 and second["args"]["issued us"] == 0.01
    assert second["args"]["queued us"] == pytest.approx(0.02)  # ready when issued: 1 was done
    assert second["args"]["issued at"] == "step.py:2"
    assert second["args"]["scope"] == "forward" and "scope" not in first["args"]
    (start,) = [e for e in events if e["ph"] == "s"]
    (end,) = [e for e in events if e["ph"] == "f"]
    assert start["name"] == end["name"] == DATA and end["bp"] == "e"
    assert first["ts"] <= start["ts"] <= first["ts"] + first["dur"]
    assert end["ts"] == second["ts"]


def test_labels_are_the_scopes_of_the_issuing_thread():
    slices = [
        Slice("inner", "scope", "", 0, 15, 25),
        Slice("outer", "scope", "", 0, 5, 35),
        Slice("elsewhere", "scope", "", 3, 0, 100),
        Slice("no scope", "task", "", 0, 0, 100),
    ]
    found = trace([operation(n) for n in (1, 2, 3, 4)] + [operation(5, issue_thread=3)])
    assert labels(found.operations, slices) == {
        1: "outer",
        2: "outer/inner",
        3: "outer",
        5: "elsewhere",
    }


def test_a_part_of_a_trace_keeps_the_edges_into_it():
    whole = trace(
        [operation(n) for n in (1, 2, 3)],
        [(1, 2, DATA), (2, 3, DATA)],
        [(0, 5, 8, "all", 0, "", 0), (0, 25, 28, "all", 0, "", 0)],
        [(5, 1, 1), (25, 1, 1)],
    )
    part = Trace()
    part.extend(whole, since=20)
    assert [o.number for o in part.operations] == [2, 3]
    assert len(part.edges) == 2
    assert [w.started for w in part.waits] == [s.time for s in part.samples] == [25]


# --- reports ----------------------------------------------------------------------------------


def test_rows_of_the_table():
    found = trace(
        [operation(1), operation(2, finished=42), operation(3, name="exp", device=16, started=37)],
        counters=[(10, 1, 5 << 20), (20, 2, 1 << 20)],
    )
    add, exp = table.rows(found, "name")
    assert (add.times, add.total, add.minimum, add.maximum) == (2, 0.025, 0.005, 0.02)
    assert (add.bytes, add.share, exp.device) == (16, 1, device_name(16))
    assert "at most 5.0 MiB; queue: at most 2 operations" in table.text(found)


@pytest.mark.parametrize(
    ("order", "ascending", "names"),
    [
        ("count", None, ["add", "exp"]),
        ("times", True, ["exp", "add"]),
        ("avg", False, ["add", "exp"]),
        ("max", True, ["exp", "add"]),
        ("min", None, ["exp", "add"]),
        ("name", None, ["add", "exp"]),
        ("name", False, ["exp", "add"]),
    ],
)
def test_orders_of_the_table_are_mxnets_too(order, ascending, names):
    found = trace(
        [operation(1), operation(2, finished=42), operation(3, name="exp", started=30, finished=38)]
    )
    assert [row.name for row in table.rows(found, order, ascending)] == names
    lines = table.text(found, order, ascending).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == names


def test_sync_points_are_grouped_by_line_and_kind():
    waits = [
        (0, 0, 3000, "array", 1, "step.py", 3),
        (0, 5000, 6000, "array", 2, "step.py", 3),
        (0, 5000, 15000, "all", 0, "step.py", 9),
    ]
    report = sync_points(trace([operation(1), operation(2, name="exp")], waits=waits))
    assert [(p.line, p.times, p.total, p.longest) for p in report] == [(9, 1, 10, 10), (3, 2, 4, 3)]
    assert dict(report[1].waited_for) == {"add": 1, "exp": 1}
    assert "2 lines waited for the engine" in str(report)
    assert "step.py:3: 2 times, 0.004 ms, longest 0.003 ms" in str(report)
    assert "step.py:9: once, 0.010 ms, longest 0.010 ms" in str(report)
    assert "1 line waited" in str(sync_points(trace([operation(1)], waits=waits[2:])))


# --- graphs -----------------------------------------------------------------------------------


def random_graph(seed: int, count: int = 24) -> StepGraph:
    draw = random.Random(seed)
    operations = []
    for number in range(1, count + 1):
        lane = draw.choice((0, 0, 16, 17, 24, 25, 32, 40))
        device = lane if 16 <= lane < 24 else lane - 8 if 24 <= lane < 32 else 0
        name = "copy" if lane >= 24 else draw.choice(("add", "an operation with a long name"))
        span = draw.randrange(1, 50)
        operations.append(
            operation(number, name=name, device=device, lane=lane, finished=10 * number + 2 + span)
        )
    edges = [
        (before, after, DATA)
        for after in range(2, count + 1)
        for before in range(1, after)
        if draw.random() < 0.15
    ]
    return graph(operations, edges)


def reachable(edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """All pairs that are connected by a path."""
    found = set(edges)
    while True:
        more = {(a, d) for a, b in found for c, d in edges if b == c} - found
        if not more:
            return found
        found |= more


@pytest.mark.parametrize("seed", range(6))
def test_reduced_edges_are_the_fewest_with_the_same_paths(seed):
    g = random_graph(seed)
    whole = {(e.before, e.after) for e in g.edges}
    reduced = {(e.before, e.after) for e in g.reduced_edges()}
    paths = reachable(whole)
    assert reduced <= whole and reachable(reduced) == paths
    assert all(reachable(reduced - {edge}) != paths for edge in reduced)
    for node in g.nodes:
        ancestors = {before for before, after in paths if after == node.number}
        assert {other.number for other in g.ancestors(node)} == ancestors


@pytest.mark.parametrize("seed", range(6))
def test_the_critical_path_is_the_longest(seed):
    g = random_graph(seed, count=14)
    arriving = {n.number: [e.before for e in g.edges if e.after == n.number] for n in g.nodes}
    span = {n.number: n.duration for n in g.nodes}

    def longest(number: int) -> int:
        return span[number] + max(map(longest, arriving[number]), default=0)

    path = g.critical_path()
    assert sum(node.duration for node in path) == max(map(longest, span))
    for before, after in zip(path, path[1:], strict=False):
        assert before.number in arriving[after.number]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_drawn_over_a_node(seed):
    g = random_graph(seed)
    layout = _Layout(g)
    places = [(n, b.x, b.x + (WIDTH if n > 0 else BEND), b.y) for n, b in layout.boxes.items()]
    for i, (_, left, right, y) in enumerate(places):
        for _, other_left, other_right, other_y in places[:i]:
            assert right <= other_left or other_right <= left or abs(y - other_y) >= HEIGHT
    for route in layout.routes.values():  # so the arrows bend between the layers only
        steps = [layout.layers[number] for number in route]
        assert steps == list(range(steps[0], steps[0] + len(steps)))


@pytest.mark.parametrize("seed", range(6))
def test_copies_lie_before_the_column_of_their_gpu(seed):
    g = random_graph(seed)
    layout = _Layout(g)
    for node in g.copies():
        end = link_device(node.lane) or node.device
        left, _ = layout.columns[end, True]
        assert layout.boxes[node.number].x + WIDTH < left
        for device in layout.names:
            start, width = layout.columns[device, True]
            box = layout.boxes[node.number]
            assert box.x + WIDTH <= start or start + width <= box.x


def test_any_name_gives_a_drawing_that_can_be_read():
    g = graph([operation(1, name='<&">\x00\x1b' + "x" * 90, detail="a & b -> " + "y" * 90)])
    root = ElementTree.fromstring(g.to_svg())
    (node,) = [e for e in root.iter(f"{SVG}g") if e.get("class") == "node"]
    name, specs = [e.text or "" for e in node.iter(f"{SVG}text")]
    assert name.startswith('<&">  xx') and len(name) == 22
    assert len(specs) == 30
    ElementTree.fromstring(graph([]).to_svg())
