"""Short runs leave out only cases of long tables, and all parts together leave out none."""

from __future__ import annotations

import pytest
from drawing import LONG, Part, drawn, part_of

TABLE = [f"test_x.py::test_long[{case}-float32]" for case in range(10 * LONG)]
ERRORS = [f"test_x.py::test_refused[{case}]" for case in range(10 * LONG)]
OTHERS = [f"test_x.py::test_short[{case}]" for case in range(LONG)] + ["test_x.py::test_one"]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_case_of_a_table_is_in_one_part(count: int) -> None:
    parts = [
        drawn(dict.fromkeys(TABLE, False), Part(number, count)) for number in range(1, count + 1)
    ]
    assert [sum(runs) for runs in zip(*parts, strict=True)] == [1] * len(TABLE)
    least = len(TABLE) / count / 2
    assert all(sum(part) > least for part in parts), "parts have about the same size"


def test_short_tables_are_in_every_part() -> None:
    for number in (1, 2, 3):
        runs = drawn(dict.fromkeys([*OTHERS, *TABLE], False), Part(number, 3))
        assert all(runs[: len(OTHERS)]) and not all(runs)


def test_whole_tables_are_in_every_part() -> None:
    runs = drawn(dict.fromkeys(TABLE, False) | dict.fromkeys(ERRORS, True), Part(1, 3))
    assert all(runs[len(TABLE) :]) and not all(runs)


def test_a_case_stays_in_its_part() -> None:
    """Other tests do not change a case's part, so a failure in a short run can be repeated."""
    first = drawn(dict.fromkeys(TABLE, False), Part(2, 3))
    assert drawn(dict.fromkeys(TABLE[::-1], False), Part(2, 3)) == first[::-1]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "", "1/0"])
def test_other_texts_name_no_part(text: str) -> None:
    with pytest.raises(ValueError):
        part_of(text)


def test_a_part_is_named_by_two_numbers() -> None:
    assert part_of("2/3") == (2, 3)
