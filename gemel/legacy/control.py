"""MXNet's loops and conditionals. In files, their programs are graphs inside of their nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gemel import np, npx
from gemel.legacy.declare import legacy

#: A program inside of a node, as a function of its variables.
Program = Callable[..., list[Any]]


def _outputs(settings: dict[str, Any]) -> int:
    return int(settings["num_outputs"])


@legacy("_foreach", outputs=_outputs)
def foreach(
    *data: Any,
    programs: list[Program],
    in_data_locs: Any,
    in_state_locs: Any,
    remain_locs: Any,
    num_out_data: int,
    num_outputs: int,
) -> list[Any]:
    """The program's outputs for each element of the first axis of the data, then the last states.

    The inputs are data, states and others; the settings say which variables they stand for.
    """
    places = (*in_data_locs, *in_state_locs, *remain_locs)
    count = len(in_data_locs)
    states, others = data[count : count + len(in_state_locs)], data[count + len(in_state_locs) :]

    def body(elements: Any, states: Any) -> Any:
        given = dict(zip(places, (*elements, *states, *others), strict=True))
        found = programs[0](*(given[place] for place in range(len(given))))
        return found[:num_out_data], found[num_out_data:]

    outputs, last = npx.foreach(body, list(data[:count]), list(states))
    return [*outputs, *last]


@legacy("_while_loop", outputs=_outputs)
def while_loop(
    *data: Any,
    programs: list[Program],
    cond_input_locs: Any,
    func_input_locs: Any,
    func_var_locs: Any,
    max_iterations: int,
    num_out_data: int,
    num_outputs: int,
) -> list[Any]:
    """Run the second program while the first one's result is not 0: its outputs, last variables.

    The settings say which inputs the variables of both programs stand for, and which of them
    change with each step.
    """
    changing = [func_input_locs[place] for place in func_var_locs]

    def given(variables: Any, places: Any) -> list[Any]:
        now = dict(zip(changing, variables, strict=True))
        return [now.get(place, data[place]) for place in places]

    def test(*variables: Any) -> Any:
        return programs[0](*given(variables, cond_input_locs))[0].reshape(()) != 0

    def step(*variables: Any) -> Any:
        found = programs[1](*given(variables, func_input_locs))
        return found[:num_out_data], found[num_out_data:]

    first = [data[place] for place in changing]
    outputs, last = npx.while_loop(test, step, first, max_iterations)
    if not outputs and num_out_data:  # no step ran, so run one for the shapes of its outputs
        made, _ = step(*first)
        outputs = [np.zeros((max_iterations, *each.shape), dtype=each.dtype) for each in made]
    return [*outputs, *last]


@legacy("_cond", outputs=_outputs)
def cond(
    *data: Any,
    programs: list[Program],
    cond_input_locs: Any,
    then_input_locs: Any,
    else_input_locs: Any,
    num_outputs: int,
) -> list[Any]:
    """The second program if the first one's result is not 0, else the third."""
    test, then, otherwise = programs
    chosen = test(*(data[place] for place in cond_input_locs))[0].reshape(()) != 0
    found: list[Any] = npx.cond(
        chosen,
        lambda *given: then(*(given[place] for place in then_input_locs)),
        lambda *given: otherwise(*(given[place] for place in else_input_locs)),
        list(data),
    )
    return found
