"""`python -m gemel topology`, and how schedules grow with the number of machines."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from gemel import __version__, config, topology
from gemel.__main__ import main
from gemel.errors import TopologyError, UnknownNameError
from gemel.topology.growth import Growth, counts_up_to, plot


def said(capsys: Any, *arguments: str) -> str:
    assert main(["topology", *arguments]) == 0
    return str(capsys.readouterr().out)


def test_it_lists_topologies(capsys: Any) -> None:
    lines = said(capsys).splitlines()
    assert len(lines) == len(topology.NAMES) == 28
    assert "p3: 8 GPUs, 2 hosts, 4 switches, 29 links" in lines


def test_it_explains(capsys: Any) -> None:
    text = said(capsys, "--explain", "p3")
    assert text.rstrip() == topology.Planner(topology.p3()).explain()
    text = said(capsys, "--explain", "pcie4-one-switch", "--bytes", "160MB")
    table = text.split("all schedules for 160 MB:\n")[1].splitlines()
    rows = {row[:16].strip(): row[16:].split()[:4] for row in table[1:]}
    assert rows["one device"] == ["60", "ms", "60", "ms"]
    assert rows["cpu"] == ["80", "ms", "80", "ms"]
    assert rows["pieces"] == ["15", "ms", "15", "ms"]


def test_it_draws(capsys: Any) -> None:
    assert said(capsys, "--draw", "p3").rstrip() == topology.p3().drawing()


def test_help_names_it(capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert "topology" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["topology", "--help"])
    text = capsys.readouterr().out
    for option in ("--explain", "--draw", "--bytes", "--machines", "--network"):
        assert option in text


def test_version_defaults_and_what_is_missing(capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"gemel {__version__}\n"
    with pytest.raises(SystemExit):
        main(["-h"])
    text = capsys.readouterr().out
    assert all(f"{each.name} " in text and each.doc in text for each in config.ALL)
    for command, defaults in (("launch", "(3) (2) (60.0) (replace)"), ("serve", "(9700) (10.0)")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = capsys.readouterr().out
        assert all(each in text for each in defaults.split())
    for command in ("run", "launch"):
        with pytest.raises(SystemExit):
            main([command])
        assert capsys.readouterr().err.endswith("arguments are required: file\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--explain", "p33"], "unknown topology 'p33'; did you mean 'p3'"),
        (["--bytes", "much"], "'much' is not a number of bytes"),
        (["--bytes", "0"], "--bytes 0: such a tensor has nothing to sum; give at least 1 byte"),
        (["--explain", "p3", "--bytes", "0.4KB", "--bytes", "0MB"], "--bytes 0MB: such a tensor"),
        (["--machines", "1"], "give 2 or more"),
        (["--machines", "99999999"], "--machines 99999999: give 2 or more, and at most 4096"),
        (["--explain", "99999999xp3-25gbe"], "99999999 times p3; at most 128 machines"),
        (["--draw", f"{'9' * 5000}xp3-25gbe"], "unknown topology"),
        (["--network", "foo"], "--network foo: it is for --machines"),
        (["--explain", "p3", "--network", "10gbe"], "--network 10gbe: it is for --machines"),
        (["--draw", "p3", "--bytes", "1MB"], "--bytes 1MB: a drawing has no sizes"),
        (["--machines", "9", "--network", "isdn"], "unknown network 'isdn'"),
        (["--wrong"], "unrecognized arguments"),
    ],
)
def test_wrong_use_is_reported(arguments: list[str], message: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        main(["topology", *arguments])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_it_is_a_command_of_the_module() -> None:
    command = [sys.executable, "-m", "gemel", "topology", "--explain", "p3"]
    found = subprocess.run(
        command, text=True, capture_output=True, timeout=120, env=dict(os.environ)
    )
    assert found.returncode == 0, found.stderr
    assert "ring both ways" in found.stdout


def test_importing_gemel_loads_no_topology() -> None:
    program = "import sys, gemel; print([m for m in sys.modules if m in "
    program += "('gemel.topology', 'gemel.links', 'gemel.machines')])"
    found = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, timeout=120
    )
    assert found.stdout.strip() == "[]", found.stderr


# --- growth


def test_many_machines(capsys: Any) -> None:
    text = said(capsys, "--machines", "120", "--bytes", "100MB")
    table = text.split("\n\n")[1].splitlines()
    assert [row.split()[0] for row in table[1:]] == ["2", "4", "8", "16", "32", "40", "120"]
    assert "crossings:" in text
    assert "hierarchical overtakes pieces, the fastest now" in text


def test_times_on_many_machines_are_those_of_arithmetic() -> None:
    found = topology.growth(1e8, [8, 40])
    rate = 25e9 / 8
    for place, count in enumerate(found.machines):
        message = 20e-6 + 1e-6
        one = 2 * (20e-6 + (count - 1) * (1e8 / rate + 1e-6))
        assert found.seconds["one device"][place] == pytest.approx(one)
        ring = 2 * (count - 1) * (message + 1e8 / count / rate)
        assert found.seconds["ring"][place] == pytest.approx(ring)
        pieces = 2 * (20e-6 + (count - 1) * (1e8 / count / rate + 1e-6))
        assert found.seconds["pieces"][place] == pytest.approx(pieces)
        assert math.isnan(found.seconds["hierarchical"][place])  # there is only one rack


def test_crossings_are_where_one_overtakes_another() -> None:
    nan = math.nan
    found = Growth(1.0, (2, 4, 8), {"a": (1, 2, 4), "b": (2, 2.5, 3), "c": (nan, nan, 1)})
    rows = topology.crossings(found)
    assert [tuple(row) for row in rows] == [(4, 8, "a", "b", False), (4, 8, "a", "c", True)]
    assert str(rows[1]) == "4 to 8 machines: c overtakes a, the fastest now"
    lines = plot(found, width=20, height=5).splitlines()
    assert lines[0].strip().startswith("4 s |") and lines[0].endswith("a")
    assert lines[4].strip().startswith("1 s |a") and lines[4].endswith("c")
    assert lines[-1] == "a: a; b: b; c: c"
    assert plot(Growth(0.0, (2,), {"a": (0.0,)})) == "(nothing to plot)"


def test_counts() -> None:
    assert counts_up_to(2) == [2]
    assert counts_up_to(5) == [2, 4, 5]
    assert counts_up_to(1000) == [2, 4, 8, 16, 32, 40, 120, 360, 1000]
    with pytest.raises(TopologyError, match="2 or more"):
        topology.growth(1e6, [1])
    with pytest.raises(TopologyError, match="2 or more"):
        topology.growth(1e6, [])
    with pytest.raises(TopologyError, match="at most 4096"):
        topology.growth(1e6, [2, 5000])
    with pytest.raises(TopologyError, match="at most 4096"):
        topology.fleet(5000)
    with pytest.raises(UnknownNameError):
        topology.growth(1e6, [2], network="modem")


@pytest.mark.slow
def test_a_thousand_machines_take_less_than_ten_seconds() -> None:
    """In the processor's time, because other programs may run at the same time."""
    begin = time.process_time()
    found = topology.growth(1e8, counts_up_to(1000))
    assert time.process_time() - begin < 10
    assert found.machines[-1] == 1000
    assert all(column[-1] > 0 for column in found.seconds.values())


def test_a_reader_that_wants_no_more() -> None:
    command = [sys.executable, "-m", "gemel", "topology", "--explain", "p3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141
