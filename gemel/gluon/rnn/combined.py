"""Cells made of other cells: stacks, bidirectional cells, and modifiers."""

from __future__ import annotations

from typing import Any
from weakref import ref

from gemel import autograd, np, npx
from gemel.errors import PythonGivenError
from gemel.gluon.block import BlockError, Tensor
from gemel.gluon.nn.containers import BlockList
from gemel.gluon.rnn.cells import (
    HybridRecurrentCell,
    RecurrentCell,
    as_list,
    check_cells,
    in_rounds,
    merged,
    takes_symbols,
    time_major,
    within,
)
from gemel.ir.current import current_trace
from gemel.ranges import check_probability


class _Stack(BlockList, RecurrentCell):
    """A stack of cells: each receives the output of the previous one."""

    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """The last cell's output, and all cells' states."""
        found: list[Any] = []
        for cell, own in self._shares(states):
            inputs, new = cell(inputs, own)
            found += new
        return inputs, found

    @takes_symbols
    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """All steps of the first cell, then all of the next; see `RecurrentCell.unroll`."""
        self.reset()
        states = self._begun(begin_state, as_list(length, inputs, layout)[0])
        found: list[Any] = []
        cells = self._shares(states)
        after = [cell for cell, _ in cells[1:]]
        for number, (cell, own) in enumerate(cells):
            merge = merge_outputs
            if number < len(after):
                merge = True if _in_one(length, cell, after[number]) else None
            inputs, new = cell.unroll(length, inputs, own, layout, merge, valid_length)
            found += new
        return inputs, found

    def _shares(self, states: list[Any]) -> list[tuple[Any, list[Any]]]:
        """Each cell with its states."""
        shares, begin = [], 0
        for cell in self._children.values():
            end = begin + len(cell.state_info())  # type: ignore[attr-defined]
            shares.append((cell, list(states[begin:end])))
            begin = end
        if begin != len(states):
            raise BlockError(f"{self.name} has {begin} states; {len(states)} are given")
        return shares


class SequentialRNNCell(_Stack):
    """A stack of recurrent cells; `add` appends one."""


class HybridSequentialRNNCell(_Stack, HybridRecurrentCell):
    """A stack of recurrent hybrid cells; `add` appends one."""


class BidirectionalCell(HybridRecurrentCell):
    """One cell that reads forwards and one that reads backwards; their outputs are concatenated.

    It needs the whole sequence: use `unroll`. Schuster and Paliwal, Bidirectional recurrent neural
    networks, IEEE transactions on signal processing 45, 1997.
    """

    def __init__(
        self, l_cell: RecurrentCell, r_cell: RecurrentCell, output_prefix: str = "", **settings: Any
    ) -> None:
        super().__init__(**settings)
        check_cells(self, l_cell, r_cell)
        self.l_cell = l_cell
        self.r_cell = r_cell

    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """Not possible: the backward cell starts at the end of the sequence."""
        raise NotImplementedError(
            f"{self.name} cannot be stepped; use unroll, and put cells that work step by step "
            "(ZoneoutCell, dropout of states) around the inner cells"
        )

    @takes_symbols
    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """Run one cell over the sequence and the other over the reversed sequence."""
        self.reset()
        one = _in_one(length, self.l_cell, self.r_cell)
        steps = time_major(length, inputs, layout) if one else as_list(length, inputs, layout)
        states = self._begun(begin_state, steps[0])
        count = len(self.l_cell.state_info())
        forth, ends = self.l_cell.unroll(length, steps, states[:count], "TNC", one, valid_length)
        turned = _turned(steps, valid_length)
        back, others = self.r_cell.unroll(length, turned, states[count:], "TNC", one, valid_length)
        both = forth, _turned(back, valid_length)
        outputs: Any = (
            np.concatenate(both, axis=-1)
            if one
            else [np.concatenate(pair, axis=-1) for pair in zip(*both, strict=True)]
        )
        merge = valid_length is not None if merge_outputs is None else merge_outputs
        return merged(outputs, layout, merge), [*ends, *others]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(forward={self.l_cell!r}, backward={self.r_cell!r})"


def _whole(length: int, inputs: Any, layout: str) -> Any:
    """A sequence, given as a list or as an array in `layout`, as an array."""
    steps = as_list(length, inputs, layout)
    return merged(steps, layout, True) if isinstance(inputs, (list, tuple)) else inputs


def _masked(whole: Any, layout: str, valid_length: Tensor | None) -> Any:
    """A sequence with zeros after the valid length."""
    if valid_length is None:
        return whole
    return npx.sequence_mask(whole, valid_length, True, axis=layout.index("T"))


def _in_one(length: int, *cells: RecurrentCell) -> bool:
    """Whether sequences between these cells are one array: in programs that run the steps as loops,
    unless the numbers that dropout draws would depend on it."""
    return in_rounds(length) and all(cell._takes_either() for cell in cells)


def _turned(steps: Any, valid_length: Tensor | None) -> Any:
    """Reverse the valid steps; steps after the valid length keep their places."""
    if valid_length is None:
        return steps[::-1]
    count = len(steps)
    turned = npx.sequence_reverse(merged(steps, "TNC", True), within(valid_length, count), True)
    return merged(turned, "TNC", False) if isinstance(steps, list) else turned


class DropoutCell(HybridRecurrentCell):
    """In training, sets each value to 0 with probability `rate`; it has no states."""

    def __init__(self, rate: float, axes: tuple[int, ...] = (), **settings: Any) -> None:
        check_probability(type(self).__name__, "rate", rate)
        super().__init__(**settings)
        self._rate = rate
        self._axes = tuple(axes)

    def _alias(self) -> str:
        return "dropout"

    def _takes_either(self) -> bool:
        return False

    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """The shape of `inputs`."""
        return (
            npx.dropout(inputs, p=self._rate, axes=self._axes) if self._rate else inputs
        ), states

    @takes_symbols
    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """See `RecurrentCell.unroll`; but a sequence in one array is one step, and stays an array
        unless `merge_outputs` is False: `axes` are those of this array.
        """
        listed = isinstance(inputs, (list, tuple)) and not merge_outputs
        if listed or merge_outputs is False:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        outputs, states = self(_whole(length, inputs, layout), begin_state or [])
        return _masked(outputs, layout, valid_length), states

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rate={self._rate}, axes={self._axes})"


class ModifierCell(HybridRecurrentCell):
    """Base class of cells that wrap another cell and have its states."""

    def __init__(self, base_cell: RecurrentCell, **settings: Any) -> None:
        super().__init__(**settings)
        check_cells(self, base_cell)
        self.base_cell = base_cell

    @takes_symbols
    def unroll(self, *arguments: Any, **keywords: Any) -> tuple[Any, list[Any]]:
        """Like `RecurrentCell.unroll`, and clears what was kept from a trace."""
        found = super().unroll(*arguments, **keywords)
        if current_trace() is not None:
            self.reset()
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


class ResidualCell(ModifierCell):
    """Adds the inputs to a cell's outputs. He et al., Deep residual learning, CVPR 2016."""

    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """The shape of `inputs`."""
        output, states = self.base_cell(inputs, states)
        return output + inputs, states

    @takes_symbols
    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """The inputs plus the results of the inner cell, which may be bidirectional, for the
        sequence."""
        outputs, states = self.base_cell.unroll(
            length, inputs, begin_state, layout, merge_outputs, valid_length
        )
        whole = _masked(_whole(length, inputs, layout), layout, valid_length)
        if not isinstance(outputs, list):
            return outputs + whole, states
        pairs = zip(outputs, as_list(length, whole, layout), strict=True)
        return [output + x for output, x in pairs], states


class _Remembering(ModifierCell):
    """A modifier that keeps arrays between steps: only its inner cell is compiled.

    Programs contain it with whole sequences, such as `unroll`. A program of one step would keep
    nothing for the next one.
    """

    #: The trace in which it was reset, as a weak reference; None: outside of traces.
    _reset_in: Any = None
    _set_by_calls = ("_carried", "_shared", "_reset_in")

    def __init__(self, base_cell: RecurrentCell, **settings: Any) -> None:
        super().__init__(base_cell, **settings)
        #: Arrays that each step makes for the next one.
        self._carried: list[Any] = []
        #: Arrays that the first step makes for all.
        self._shared: dict[str, Any] = {}

    def _remembers(self) -> bool:
        """Whether the settings need anything to be kept."""
        raise NotImplementedError

    def _keeping(self) -> list[Any]:
        return [*([self] if self._remembers() else ()), *super()._keeping()]

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Compile the cell inside."""
        self.base_cell.hybridize(active, **flags)

    def reset(self) -> None:
        """Clear what was kept."""
        super().reset()
        self._carried, self._shared = [], {}
        trace = current_trace()
        self._reset_in = None if trace is None else ref(trace)

    def _go_on(self) -> None:
        """Clear what another trace has kept. Raises `PythonGivenError` in a trace that begins in
        the middle of a sequence, unless nothing is kept, as outside of training."""
        trace = current_trace()
        if self._reset_in is None:
            same = trace is None
        else:
            same = trace is not None and trace is self._reset_in()
        if same:
            return
        if trace is not None and not trace.shapes_only and autograd.is_training():
            raise PythonGivenError(
                f"{self.name} keeps arrays from step to step, so a program must contain the whole "
                "sequence: call unroll, or reset() before the first step, inside of the function"
            )
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        state = {**super().__getstate__(), "_reset_in": None}
        # What a trace has kept has no value outside of it.
        return state if self._reset_in is None else {**state, "_carried": [], "_shared": {}}


class ZoneoutCell(_Remembering):
    """In training, keeps values of the previous step with the given probabilities.

    Krueger et al., Zoneout: regularizing RNNs by randomly preserving hidden activations, ICLR 2017.
    """

    def __init__(
        self,
        base_cell: RecurrentCell,
        zoneout_outputs: float = 0.0,
        zoneout_states: float = 0.0,
        **settings: Any,
    ) -> None:
        rates = {"zoneout_outputs": zoneout_outputs, "zoneout_states": zoneout_states}
        for name, rate in rates.items():
            check_probability(type(self).__name__, name, rate)
        super().__init__(base_cell, **settings)
        self._rates = zoneout_outputs, zoneout_states

    def _remembers(self) -> bool:
        return bool(self._rates[0])

    def __repr__(self) -> str:
        out, state = self._rates
        return f"{type(self).__name__}(p_out={out}, p_state={state}, {self.base_cell!r})"

    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """The inner cell's results, with some values kept from the previous step."""
        self._go_on()
        output, new = self.base_cell(inputs, states)
        if self._remembers():
            (before,) = self._carried or [np.zeros_like(output)]
            output = _zoned(self._rates[0], output, before)
            self._carried = [output]
        new = [_zoned(self._rates[1], a, b) for a, b in zip(new, states, strict=True)]
        return output, new


def _zoned(rate: float, new: Tensor, old: Tensor) -> Tensor:
    """`old` with probability `rate` while training, else `new`."""
    return np.where(npx.dropout(np.ones_like(new), p=rate), new, old) if rate else new


class VariationalDropoutCell(_Remembering):
    """In training, applies dropout with masks that stay the same over a whole sequence.

    `drop_states` acts on h only. Gal and Ghahramani, A theoretically grounded application of
    dropout in recurrent neural networks, NeurIPS 2016.
    """

    def __init__(
        self,
        base_cell: RecurrentCell,
        drop_inputs: float = 0.0,
        drop_states: float = 0.0,
        drop_outputs: float = 0.0,
        **settings: Any,
    ) -> None:
        rates = {"drop_inputs": drop_inputs, "drop_states": drop_states}
        for name, rate in {**rates, "drop_outputs": drop_outputs}.items():
            check_probability(type(self).__name__, name, rate)
        super().__init__(base_cell, **settings)
        self._rates = {"inputs": drop_inputs, "states": drop_states, "outputs": drop_outputs}

    def _remembers(self) -> bool:
        return any(self._rates.values())

    @takes_symbols
    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: list[Any] | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Tensor | None = None,
    ) -> tuple[Any, list[Any]]:
        """See `RecurrentCell.unroll`; without dropout of states the cell inside, which may be
        bidirectional then, gets the whole sequence, and the outputs stay one array unless
        `merge_outputs` is False.
        """
        if self._rates["states"]:
            return super().unroll(length, inputs, begin_state, layout, merge_outputs, valid_length)
        axes = (layout.index("T"),)
        rates, whole = self._rates, _whole(length, inputs, layout)
        if rates["inputs"]:
            whole = npx.dropout(whole, p=rates["inputs"], axes=axes)
        outputs, states = self.base_cell.unroll(
            length, whole, begin_state, layout, True, valid_length
        )
        if rates["outputs"]:
            outputs = npx.dropout(outputs, p=rates["outputs"], axes=axes)
        return as_list(length, outputs, layout) if merge_outputs is False else outputs, states

    def __repr__(self) -> str:
        rates = ", ".join(f"p_{name}={rate}" for name, rate in self._rates.items())
        return f"{type(self).__name__}({rates}, {self.base_cell!r})"

    def forward(self, inputs: Tensor, states: list[Any]) -> tuple[Tensor, list[Any]]:
        """The inner cell's results with all masks applied."""
        self._go_on()
        if isinstance(states, (list, tuple)) and states:
            states = [self._masked("states", states[0]), *states[1:]]
        output, states = self.base_cell(self._masked("inputs", inputs), states)
        return self._masked("outputs", output), states

    def _masked(self, place: str, x: Tensor) -> Tensor:
        if not self._rates[place]:
            return x
        if place not in self._shared:
            self._shared[place] = npx.dropout(np.ones_like(x), p=self._rates[place])
        return x * self._shared[place]


__all__ = [
    "BidirectionalCell",
    "DropoutCell",
    "HybridSequentialRNNCell",
    "ModifierCell",
    "ResidualCell",
    "SequentialRNNCell",
    "VariationalDropoutCell",
    "ZoneoutCell",
]
