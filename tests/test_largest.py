"""Work saved where a row's largest element was subtracted; the results stay the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from test_codegen import F32, RUNNABLE, apply, reduce_run, reduced

from gemel.codegen.language.lane import Lane, Recorder
from gemel.codegen.language.largest import spared
from gemel.codegen.language.program import INNER, OUTER

Body = Callable[[Recorder, Any], list[tuple[Any, bool]]]


def powers(r: Recorder, x: Any) -> Any:
    return Lane(r).exp(x - r.reduce("max", x))


def softmax(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    e = powers(r, x)
    return [(e / r.reduce("sum", e), True)]


def logarithm(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    """log(sum(exp(x))): the largest element is added again."""
    return [(r.reduce("max", x) + Lane(r).log(r.reduce("sum", powers(r, x))), False)]


def only_powers(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    """Only its own element sees a NaN."""
    return [(powers(r, x), True)]


def with_largest(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    return [*softmax(r, x), (r.reduce("max", x), False)]


def hidden(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    """The sum sees no NaN."""
    e = powers(r, x)
    return [(e / r.reduce("sum", Lane(r).where(e > 0, e, 0)), True)]


def other(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    """The largest element of something else is not a bound."""
    e = Lane(r).exp(x - r.reduce("max", x * 0.5))
    return [(e / r.reduce("sum", e), True)]


def twice(r: Recorder, x: Any) -> list[tuple[Any, bool]]:
    """Another maximum in the last sweep; it would hide the NaN of the first sweep."""
    e = powers(r, x)
    return [(e / r.reduce("max", e), True)]


@pytest.mark.parametrize(
    ("body", "bounded", "carried"),
    [
        (softmax, True, True),
        (logarithm, True, True),
        (only_powers, True, False),
        (with_largest, True, False),
        (hidden, True, False),
        (twice, True, False),
        (other, False, False),
    ],
)
def test_which_checks_are_left_out(body: Body, bounded: bool, carried: bool) -> None:
    program, _ = reduced(body, F32, INNER, (3, 4), 1)
    code = spared(program).code
    names = [step.name for step in code]
    assert ("exp_falling" in names, "exp" in names) == (bounded, not bounded)
    assert any(step.attribute == "most" for step in code) is carried
    assert spared(spared(program)) == spared(program)


def test_another_program_is_itself() -> None:
    program, _ = reduced(lambda r, x: [(r.reduce("max", x), False)], F32, INNER, (3, 4), 1)
    assert spared(program) is program


@pytest.mark.parametrize("kind", ("float32", "float64"))
@pytest.mark.parametrize("target", RUNNABLE)
def test_bits_of_exponentials(kind: str, target: str) -> None:
    """Without the check for an upper bound, `exp` gives the same for all numbers up to 0."""
    limits = numpy.finfo(kind)
    some = -numpy.abs(numpy.random.default_rng(3).standard_normal(3000)) * 60
    ends = [0.0, -0.0, -numpy.inf, numpy.nan, limits.min, -limits.tiny, -87.5, -103.9, -104.5, -745]
    x = numpy.array([*ends, *some], kind)
    plain = apply(lambda xp, a: xp.exp(a), target, x)
    falling = apply(
        lambda xp, a: a.recorder.append("exp_falling", a.dtype, (a,)),
        target,
        x,
    )
    numpy.testing.assert_array_equal(plain, falling)
    assert plain[2] == 0
    assert numpy.isnan(falling[3])


@pytest.mark.parametrize("target", RUNNABLE)
@pytest.mark.parametrize("lanes", (OUTER, INNER))
@pytest.mark.parametrize("body", (softmax, logarithm, with_largest, hidden))
def test_nan_is_kept(body: Body, lanes: str, target: str) -> None:
    """NaN where NumPy has it, for rows with a NaN or infinity at any place, alone or among
    numbers."""
    for length in (1, 3, 17, 40, 150):
        x = numpy.random.default_rng(4).standard_normal((41, length)).astype("float32")
        for row, value in enumerate((numpy.nan, -numpy.nan, numpy.inf, -numpy.inf)):
            x[row, 0] = x[4 + row, -1] = x[8 + row, length // 2] = value
            x[12 + row] = value
            x[20 + row, :2] = value
        with numpy.errstate(all="ignore"):
            wide = x.astype("float64")
            largest = wide.max(1)
            e = numpy.exp(wide - largest[:, None])
            total = e.sum(1)
            kept = numpy.where(e > 0, e, 0).sum(1)
            expected = {
                softmax: [e / total[:, None]],
                logarithm: [largest + numpy.log(total)],
                with_largest: [e / total[:, None], largest],
                hidden: [e / kept[:, None]],
            }[body]
        for got, wanted in zip(reduce_run(body, x, lanes, 1, target), expected, strict=True):
            numpy.testing.assert_allclose(got, wanted, rtol=4e-6, atol=2e-6)
