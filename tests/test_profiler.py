"""The profiler: traces, tables, sync points, graphs."""

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

import gemel
from gemel import _core, cpu, np, npx, profiler
from gemel.errors import ArgumentError, UnknownNameError

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def stopped():
    npx.waitall()
    yield
    profiler.set_state("stop")
    profiler.set_config(filename="profile.json", capacity=1_000_000)


def recorded(work, tmp_path) -> dict:
    """The contents of the trace file of some work."""
    profiler.set_config(filename=str(tmp_path / "trace.json"))
    profiler.set_state("run")
    work()
    with open(profiler.dump(), encoding="utf-8") as file:
        return json.load(file)


def slow() -> np.ndarray:
    """Products that take far longer than reaching the next line."""
    x = np.ones((1000, 1000))
    y = x
    for _ in range(6):
        y = np.dot(y, x) / 1000
    return y


def products() -> None:
    x = np.ones((500, 500))
    y = np.dot(x, x)
    z = np.dot(y, x) + 1
    assert z[0, 0].item() == 250001


# engine.md 35
def test_a_slice_for_every_operation(tmp_path):
    events = recorded(products, tmp_path)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X" and e["cat"] == "operation"]
    names = [e["name"] for e in slices]
    assert names.count("matmul") == 2 and names.count("full") == 1 and "add" in names
    (first, second) = [e for e in slices if e["name"] == "matmul"]
    assert first["args"]["specs"] == "float32[500, 500], float32[500, 500] -> float32[500, 500]"
    assert first["args"]["bytes"] == 1_000_000
    assert "test_profiler.py" in first["args"]["issued at"]
    assert first["ts"] + first["dur"] <= second["ts"]
    assert all(e["args"]["queued us"] >= 0 for e in slices)


def test_arrows_start_and_end_in_slices(tmp_path):
    events = recorded(products, tmp_path)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    for arrow in (*starts.values(), *ends.values()):
        assert any(
            s["tid"] == arrow["tid"] and s["ts"] <= arrow["ts"] <= s["ts"] + s["dur"]
            for s in slices
        )
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)


def test_tracks_have_names_and_proper_nesting(tmp_path):
    events = recorded(products, tmp_path)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["tid"] for e in slices} <= names.keys()
    for track in names:
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == track)
        open_ends: list[float] = []
        for start, end in spans:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_counters_of_queue_and_memory(tmp_path):
    events = recorded(products, tmp_path)["traceEvents"]
    depth = [e["args"]["operations"] for e in events if e["name"] == "queue depth"]
    held = [e["args"]["bytes"] for e in events if e["name"] == "memory"]
    assert max(depth) >= 1 and min(depth) >= 0
    assert max(held) - min(held) >= 1_000_000


def test_every_lane_has_a_track(two_gpus, tmp_path):
    def work() -> None:
        x = np.ones((300, 300)).as_in_ctx(two_gpus[0])
        y = np.dot(x, x).as_in_ctx(cpu(0)).as_in_ctx(two_gpus[1])
        assert (y + 1)[0, 0].item() == 301

    events = recorded(work, tmp_path)["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    ran = {(e["name"], names[e["tid"]]) for e in events if e["ph"] == "X"}
    assert {
        ("copy", "copies to gpu(0)"),
        ("matmul", "gpu(0)"),
        ("copy", "copies from gpu(0)"),
        ("copy", "copies to gpu(1)"),
        ("add", "gpu(1)"),
        ("copy", "copies from gpu(1)"),
    } <= ran


def test_annotations(tmp_path):
    def work() -> None:
        domain = profiler.Domain("loader")
        with profiler.scope("forward"), profiler.Task("read", domain):
            products()
        counter = profiler.Counter("batches", domain, 3)
        counter += 2
        counter -= 1
        profiler.Marker("epoch").mark("thread")
        frame = profiler.Frame(domain, "image")
        frame.start()
        frame.stop()
        frame.stop()  # not started again: has no effect

    events = recorded(work, tmp_path)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    scopes = {e["name"]: e for e in slices if e["cat"].startswith(("scope", "task", "frame"))}
    assert set(scopes) == {"forward", "read", "image"}
    product = next(e for e in slices if e["name"] == "matmul")
    forward = scopes["forward"]
    assert forward["ts"] <= product["ts"] <= forward["ts"] + forward["dur"]
    values = [e["args"]["value"] for e in events if e["name"] == "loader.batches"]
    assert values == [3, 5, 4]
    assert [e["s"] for e in events if e["name"] == "epoch"] == ["t"]
    with pytest.raises(UnknownNameError, match="did you mean 'process'"):
        profiler.Marker("x").mark("proces")


def test_readings_that_json_lacks(tmp_path) -> None:
    def work() -> None:
        counter = profiler.Counter("loss", value=2)
        for value in (float("nan"), float("inf"), -float("inf"), np.array(0.5), numpy.float32(3)):
            counter.set_value(value)

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON")

    recorded(work, tmp_path)
    text = (tmp_path / "trace.json").read_text(encoding="utf-8")
    events = json.loads(text, parse_constant=refuse)["traceEvents"]
    assert [e["args"]["value"] for e in events if e["name"] == "loss"] == [2, 0.5, 3]
    counter = profiler.Counter("loss", value=4)
    for wrong in ("x", None, "5", 1j, np.ones(3), 10**400, [1]):
        for change in (counter.set_value, counter.increment, counter.decrement):
            with pytest.raises(ArgumentError, match=r"^Counter 'loss': .* is no number"):
                change(wrong)
    assert counter.value == 4


def test_the_table():
    profiler.set_state("run")
    products()
    table = profiler.dumps()
    lines = table.splitlines()
    assert lines[1].split()[:3] == ["matmul", "cpu(0)", "2"]
    rows = {row["name"]: row for row in json.loads(profiler.dumps(format="json", reset=True))}
    assert rows["matmul"]["times"] == 2
    assert rows["matmul"]["minimum"] <= rows["matmul"]["mean"] <= rows["matmul"]["maximum"]
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)
    assert "matmul" not in profiler.dumps()
    with pytest.raises(UnknownNameError, match="total"):
        profiler.dumps(sort_by="totl")


# engine.md 36
def test_sync_points_name_the_lines():
    profiler.set_state("run")
    for _ in range(3):
        slow()[0, 0].item()  # blocks here
    npx.waitall()
    (point,) = [p for p in profiler.sync_points() if "blocks here" in p.source]
    assert point.times == 3
    assert point.kind == "array"
    assert point.total >= point.longest > 0
    assert [name for name, _ in point.waited_for] == ["divide"]
    assert "blocks here" in str(profiler.sync_points())
    assert "3 times" in str(profiler.sync_points())


def test_no_sync_points():
    profiler.set_state("run")
    assert str(profiler.sync_points()) == "no line waited for the engine"


def test_the_profiler_s_own_waits_are_none_of_the_program_s():
    profiler.set_state("run")
    slow()
    profiler.dumps()
    with profiler.graph():
        slow()
    slow()
    assert profiler.sync_points() == []


def test_a_thread_that_only_waits_has_a_track(tmp_path):
    def work() -> None:
        thread = threading.Thread(target=slow().wait_to_read)
        thread.start()
        thread.join()

    events = recorded(work, tmp_path)["traceEvents"]
    tracks = {e["tid"] for e in events if e["name"] == "thread_name"}
    waits = [e for e in events if e["ph"] == "X" and e["cat"] == "wait"]
    assert waits and {e["tid"] for e in waits} <= tracks


def test_kinds_of_waits():
    profiler.set_state("run")
    slow()
    npx.waitall()
    slow()
    npx.synchronize(cpu(0))
    memoryview(slow())
    assert {p.kind for p in profiler.sync_points()} == {"all", "device", "export"}


def test_pause_and_resume():
    profiler.set_state("run")
    np.ones(3) + 1
    profiler.pause()
    np.ones(3) * 2
    profiler.resume()
    np.ones(3) - 3
    names = [o.name for o in profiler.recording().operations]
    assert "add" in names and "subtract" in names and "multiply" not in names


def test_resuming_what_goes_on_loses_nothing():
    profiler.set_state("run")
    x = np.ones(3)
    profiler.resume()
    x + 1
    assert len(profiler.recording().edges) == 1


def test_scopes_name_what_is_issued_in_them():
    with profiler.scope("step"), profiler.graph() as g:
        x = np.ones(3)
        with profiler.scope("forward"):
            x = x * 2
            thread = threading.Thread(target=lambda: x - 1)
            thread.start()
            thread.join()
    assert {n.name: n.label for n in g.nodes} == {
        "full": "step",
        "multiply": "step/forward",
        "subtract": "",
    }


def test_records_have_the_scopes_they_were_issued_in():
    profiler.set_state("run")
    with profiler.scope("step"), profiler.scope("loss"):
        np.ones(3)
        assert [o.label for o in profiler.recording().operations] == ["step/loss"]
    np.ones(3)
    assert [o.label for o in profiler.recording().operations] == ["step/loss", ""]


def test_threads_may_start_and_stop_recordings_at_the_same_time():
    """None is left open: the last end also ends the core's trace."""

    def toggle() -> None:
        for _ in range(30):
            profiler.set_state("run")
            np.ones(3)
            profiler.pause()
            profiler.resume()
            profiler.set_state("stop")

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(toggle) for _ in range(4)]:
            each.result()
    assert not _core.tracing()
    profiler.set_state("run")
    np.ones(3)
    profiler.set_state("stop")
    assert len(profiler.recording().operations) == 1 and not _core.tracing()
    assert "gemel-sampler" not in [t.name for t in threading.enumerate()]


def test_annotations_outside_of_a_recording_are_not_in_it(tmp_path):
    def work() -> None:
        profiler.pause()
        with profiler.scope("paused"), profiler.graph():
            profiler.Marker("in a pause").mark()
        profiler.resume()
        profiler.Marker("after it").mark()

    events = recorded(work, tmp_path)["traceEvents"]
    with profiler.scope("later"), open(profiler.dump(), encoding="utf-8") as file:
        events += json.load(file)["traceEvents"]
    assert {e["name"] for e in events} & {"paused", "in a pause", "after it", "later"} == {
        "after it"
    }


def test_capacity():
    profiler.set_config(capacity=5)
    profiler.set_state("run")
    for _ in range(20):
        np.ones(3)
    assert len(profiler.recording().operations) == 5
    assert profiler.recording().dropped == 15
    assert "15 operations were not recorded" in profiler.dumps()


@pytest.mark.parametrize("capacity", ["many", -1, 2.5, None, True, 1 << 63])
def test_invalid_capacities(capacity):
    with pytest.raises(ArgumentError, match="is not a valid number of operations"):
        profiler.set_config(capacity=capacity)


@pytest.mark.parametrize("filename", ["", 5, None, ["a"]])
def test_invalid_filenames(filename):
    """Nothing is set if one of the settings is wrong."""
    profiler.set_config(capacity=7, filename="kept.json")
    with pytest.raises(ArgumentError, match="is not the path of a file"):
        profiler.set_config(capacity=8, filename=filename)
    with pytest.raises(ArgumentError, match="is not a valid number"):
        profiler.set_config(filename="other.json", capacity=-1)
    kept = profiler._profiler
    assert (kept.filename, kept.recorder.capacity) == ("kept.json", 7)


def test_configuration_errors():
    profiler.set_config(profile_all=True, aggregate_stats=1, profile_process="server")
    with pytest.raises(UnknownNameError, match="did you mean 'filename'"):
        profiler.set_config(filenam="x")
    with pytest.raises(UnknownNameError, match="run"):
        profiler.set_state("on")
    with pytest.raises(UnknownNameError, match="order of the table"):
        profiler.dumps(sort_by=["total"])
    with pytest.raises(UnknownNameError, match="scope of a marker"):
        profiler.Marker("x").mark(["process"])
    assert gemel.profiler is profiler


# --- graphs ---------------------------------------------------------------------------------


def diamond() -> None:
    x = np.ones((300, 300))
    a, b = np.dot(x, x), x * 2
    c = a + b
    c += 1


def test_a_graph_has_the_real_dependencies():
    with profiler.graph() as g:
        diamond()
    (make,), (dot,), (double,) = g.named("full"), g.named("matmul"), g.named("multiply")
    join, bump = g.named("add")
    assert g.before(join) == [dot, double]
    assert g.before(bump) == [join]
    assert g.ancestors(bump) == [make, dot, double, join]
    assert {(e.before, e.after) for e in g.reduced_edges()} == {
        (make.number, dot.number),
        (make.number, double.number),
        (dot.number, join.number),
        (double.number, join.number),
        (join.number, bump.number),
    }
    assert g.critical_path()[-1] == bump
    assert g.node(bump.number) == bump
    with pytest.raises(ArgumentError, match="none of its 5 operations is number -1"):
        g.node(-1)
    for question in (g.before, g.ancestors):
        with pytest.raises(ArgumentError, match="graph: 5 is no operation"):
            question(5)
        with pytest.raises(ArgumentError, match="none of its 5 operations is number 0"):
            question(bump._replace(number=0))


def test_writes_after_reads_are_edges_too():
    x = np.ones((400, 400))
    with profiler.graph() as g:
        np.dot(x, x)
        x += 1
    (edge,) = g.edges
    assert edge.kind == "write after read"
    assert g.before(g.named("add")[0]) == []
    assert g.before(g.named("add")[0], data_only=False) == g.named("matmul")


def test_the_drawing(tmp_path, two_gpus):
    with profiler.graph() as g:
        x = np.ones((300, 300))
        for place in two_gpus:
            y = x.as_in_ctx(place)
            np.dot(y, y).as_in_ctx(cpu(0))
    g.save(tmp_path / "step.svg")
    root = ElementTree.parse(tmp_path / "step.svg").getroot()
    groups = [e.get("class") or "" for e in root.iter(f"{SVG}g")]
    assert sum(c.split()[0] == "node" for c in groups if c) == len(g.nodes) == 7
    assert groups.count("node copy") == len(g.copies()) == 4
    assert groups.count("device") == 3
    edges = [e for e in root.iter(f"{SVG}path") if (e.get("class") or "").startswith("edge")]
    assert len(edges) == len(g.reduced_edges()) == 6
    titles = [e.text for e in root.iter(f"{SVG}text") if e.get("class") == "title"]
    assert titles == ["cpu(0)", "gpu(0, simulated)", "gpu(1, simulated)"]
    g.save(tmp_path / "step.json")
    assert len(json.loads((tmp_path / "step.json").read_text())["nodes"]) == 7
    with pytest.raises(UnknownNameError, match=r"\.svg"):
        g.save(tmp_path / "step.png")
    with pytest.raises(ArgumentError, match="graph: path=5 is not the path of a file"):
        g.save(5)
    assert g._repr_svg_().startswith("<svg")


def test_boxes_do_not_overlap():
    from gemel.profiler.svg import HEIGHT, WIDTH, _Layout

    with profiler.graph() as g:
        for _ in range(3):
            diamond()
    boxes = list(_Layout(g).boxes.values())
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert abs(a.x - b.x) >= WIDTH or abs(a.y - b.y) >= HEIGHT


def test_a_graph_inside_a_recording():
    profiler.set_state("run")
    np.ones(3) + 1
    with profiler.graph() as g:
        np.ones(3) * 2
    np.ones(3) - 1
    names = [o.name for o in profiler.recording().operations]
    assert [n.name for n in g.nodes] == ["full", "multiply"]
    assert names == ["full", "add", "full", "multiply", "full", "subtract"]


def test_graphs_and_recordings_take_nothing_from_each_other():
    with profiler.graph() as outer:
        np.ones(3) + 1
        with profiler.graph() as inner:
            np.ones(3) * 2
        profiler.set_state("run")
        np.ones(3) - 1
        names = [o.name for o in profiler.recording().operations]
        profiler.set_state("stop")
        np.ones(3) / 2
    assert [n.name for n in inner.nodes] == ["full", "multiply"]
    assert names == ["full", "subtract"]
    all_of_it = ["add", "multiply", "subtract", "divide"]
    assert [n.name for n in outer.nodes if n.name != "full"] == all_of_it
    assert not _core.tracing()


def test_a_graph_of_a_block_that_fails():
    with pytest.raises(KeyError), profiler.graph() as g:
        np.ones(3) + 1
        raise KeyError
    assert [n.name for n in g.nodes] == ["full", "add"]
    assert not _core.tracing()


def test_failed_operations_are_drawn():
    with profiler.graph() as g:
        bad = np.arange(3)[np.array([9])]
    assert [n.name for n in g.nodes if n.failed] == ["gather"]
    assert 'class="node failed"' in g.to_svg()
    with pytest.raises(IndexError):
        bad.asnumpy()
