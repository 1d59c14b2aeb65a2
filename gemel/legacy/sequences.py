"""Sequences and recurrent layers, under MXNet's names."""

from __future__ import annotations

from typing import Any

from gemel import np, npx
from gemel.extent import same_for_all
from gemel.ir.current import current_trace
from gemel.ir.methods import call
from gemel.legacy.declare import Shapes, Written, legacy, same, written
from gemel.ops.recurrent import GATES

same(npx.sequence_mask, "SequenceMask", "sequence_mask", "_npx_sequence_mask", inputs=2, optional=1)
same(npx.sequence_last, "SequenceLast", "sequence_last", inputs=2, optional=1)
same(npx.sequence_reverse, "SequenceReverse", "sequence_reverse", inputs=2, optional=1)
same(
    npx.ctc_loss,
    "CTCLoss",
    "ctc_loss",
    "_contrib_ctc_loss",
    "_contrib_CTCLoss",
    inputs=4,
    optional=2,
)


def _states(settings: dict[str, Any]) -> int:
    if not settings.get("state_outputs"):
        return 1
    return 3 if settings["mode"] == "lstm" else 2


rnn = same(npx.rnn, "RNN", "rnn", "_npx_rnn", inputs=5, optional=2, outputs=_states)


@written("rnn")
def _(data: Any, parameters: Any, **given: Any) -> Written:
    if isinstance(parameters, (list, tuple)):
        rows = [call("reshape", each, shape=(-1,)) for each in parameters]
        parameters = call("concatenate", *rows, axis=0)
    inputs = [data, parameters, _for_batch(given.pop("state"), data)]
    cell, lengths = given.pop("state_cell"), given.pop("sequence_length")
    inputs += [_for_batch(cell, data)] if cell is not None else []
    inputs += [lengths] if given["use_sequence_length"] else []
    kept = {name: value for name, value in given.items() if value is not None}
    if given["lstm_state_clip_min"] is None:
        del kept["lstm_state_clip_nan"]
    return Written("RNN", tuple(inputs), kept, _states(kept))


def _for_batch(state: Any, data: Any) -> Any:
    """A state for one example, repeated for the batch, as MXNet does not broadcast it."""
    if same_for_all(state.shape[1], data.shape[1]) or state.shape[1] > 1:
        return state
    layers, _, width = state.shape
    found = call("broadcast_to", state, shape=(layers, data.shape[1], width))
    axes = {"lhs_axes": (1,), "rhs_axes": (1,)}
    trace = current_trace()
    assert trace is not None
    trace.notes.note(found, Written("broadcast_like", (state, data), axes))
    return found


@rnn.infer
def _(
    shapes: Shapes,
    state_size: int,
    num_layers: int,
    mode: str,
    bidirectional: bool = False,
    projection_size: int | None = None,
    **_: Any,
) -> Shapes:
    _, batch, width = shapes["data"]
    directions = 2 if bidirectional else 1
    out = projection_size or state_size
    count = 0
    for _layer in range(num_layers):
        rows = GATES[mode] * state_size
        count += directions * (rows * (width + out + 2) + (projection_size or 0) * state_size)
        width = out * directions
    layers = num_layers * directions
    return {
        "parameters": (count,),
        "state": (layers, batch, out),
        "state_cell": (layers, batch, state_size),
    }


@legacy("_rnn_param_concat", "_npi_rnn_param_concat", axes={"data": "..."})
def rnn_param_concat(*data: Any, dim: int = 0) -> Any:
    """The parameters of recurrent layers as one row."""
    return np.concatenate([each.reshape(-1) for each in data], axis=0)
