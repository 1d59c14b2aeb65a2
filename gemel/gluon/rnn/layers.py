"""Recurrent layers over whole sequences: `RNN`, `LSTM`, `GRU`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import np, npx
from gemel.errors import ArgumentError, ShapeError, unknown_name
from gemel.gluon.block import Tensor
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.inputs import of_array, of_input
from gemel.gluon.parameter import ParameterDict
from gemel.gluon.rnn.cells import GRUCell, LSTMCell, LSTMPCell, RNNCell
from gemel.gluon.rnn.combined import BidirectionalCell, DropoutCell, HybridSequentialRNNCell
from gemel.ops.recurrent import GATES
from gemel.ranges import check_flag, check_number, check_probability, counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.gluon.rnn.cells import RecurrentCell

LAYOUTS = ("TNC", "NTC")


class _Layer(HybridBlock):
    """Base class of recurrent layers.

    A layer is compiled, whether it is hybridized or not: as one operation it takes a half or a
    third of the time of its steps one by one.

    The parameters of layer n are called ``l{n}_i2h_weight`` (gates * hidden_size, inputs),
    ``l{n}_h2h_weight``, ``l{n}_i2h_bias``, ``l{n}_h2h_bias`` and, with a projection,
    ``l{n}_h2r_weight``; those of the backward direction begin with ``r{n}``.
    """

    #: The number of state arrays, and the mode of `npx.rnn`.
    _states = 1
    _mode = ""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: Any = "float32",
        use_sequence_length: bool = False,
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        **settings: Any,
    ) -> None:
        if layout not in LAYOUTS:
            raise unknown_name("layout of a recurrent layer", layout, LAYOUTS)
        name = type(self).__name__
        check_probability(name, "dropout", dropout)
        super().__init__(**settings)
        self._active = True
        self._hidden_size = counted(name, "hidden_size", hidden_size)
        self._num_layers = counted(name, "num_layers", num_layers)
        self._layout = layout
        self._dropout = dropout
        self._directions = ("l", "r") if bidirectional else ("l",)
        self._use_sequence_length = use_sequence_length
        self._projection_size = projection_size
        initializers = {
            "i2h_weight": i2h_weight_initializer,
            "h2h_weight": h2h_weight_initializer,
            "i2h_bias": i2h_bias_initializer,
            "h2h_bias": h2h_bias_initializer,
            "h2r_weight": h2r_weight_initializer,
        }
        for side in self._sides():
            inputs = input_size if side[1:] == "0" else self._width * len(self._directions)
            for name, shape in self._shapes(inputs).items():
                made = self.params.get(
                    f"{side}_{name}", shape=shape, dtype=dtype, init=initializers[name]
                )
                setattr(self, f"{side}_{name}", made)

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Forget the layer's program. It is compiled with ``active=False``, too."""
        check_flag("hybridize", "active", active)
        super().hybridize(True, **flags)

    @property
    def _width(self) -> int:
        """The number of elements of h."""
        return self._projection_size or self._hidden_size

    def _sides(self) -> list[str]:
        """The prefixes of the parameters' names: l0, r0, l1, ..."""
        return [f"{d}{n}" for n in range(self._num_layers) for d in self._directions]

    def _shapes(self, inputs: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters of one direction of a layer."""
        rows = GATES[self._mode] * self._hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "i2h_weight": (rows, inputs),
            "h2h_weight": (rows, self._width),
            "i2h_bias": (rows,),
            "h2h_bias": (rows,),
        }
        if self._projection_size:
            shapes["h2r_weight"] = (self._projection_size, self._hidden_size)
        return shapes

    @of_input
    def infer_shape(self, inputs: Tensor, *others: Any) -> None:
        """The first layer's weights have as many columns as an input has values."""
        self._check(inputs)
        for direction in self._directions:
            weight = self._reg_params[f"{direction}0_i2h_weight"]
            weight.shape = (weight.shape[0], int(inputs.shape[2]))  # type: ignore[index]

    def _check(self, inputs: Tensor) -> None:
        if len(inputs.shape) != 3:
            raise ShapeError(
                f"{self.name}: inputs {list(inputs.shape)} must have three axes, {self._layout}"
            )

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """(layers * directions, batch, width) and layout of each state: h, and an LSTM's c."""
        count = self._num_layers * len(self._directions)
        widths = [self._width, self._hidden_size][: self._states]
        return [{"shape": (count, batch_size, n), "__layout__": "LNC"} for n in widths]

    def begin_state(
        self, batch_size: int = 0, func: Callable[..., Any] = np.zeros, **settings: Any
    ) -> list[Any]:
        """The states before the first step; `func(shape=..., **settings)` makes each, in the dtype
        of the parameters unless `settings` say another.
        """
        dtype = next(iter(self._reg_params.values())).dtype
        if dtype != "float32":  # otherwise `func` makes it by default
            settings = {"dtype": dtype, **settings}
        return [func(shape=info["shape"], **settings) for info in self.state_info(batch_size)]

    @of_array
    def forward(
        self, inputs: Tensor, states: Any = None, sequence_length: Tensor | None = None
    ) -> Any:
        """The outputs (time, batch, directions * width), or (batch, time, ...) in layout "NTC".

        Given `states` (an array or a list of them), the result is (outputs, [states at the end]).
        With `sequence_length` (batch,) each sequence ends there, or with the inputs; what is behind
        becomes 0.
        """
        self._check(inputs)
        if self._use_sequence_length and sequence_length is None:
            raise ShapeError(f"{self.name}: use_sequence_length needs a sequence_length")
        x = inputs if self._layout == "TNC" else inputs.swapaxes(0, 1)
        if states is None:
            begin = self.begin_state(1, dtype=x.dtype, device=getattr(x, "device", None))
        else:
            begin = list(states) if isinstance(states, (list, tuple)) else [states]
        if len(begin) != self._states:
            raise ShapeError(f"{self.name}: {self._states} states are required, not {len(begin)}")
        outputs, *ends = npx.rnn(
            x,
            self._row(),
            begin[0],
            begin[1] if self._states == 2 else None,
            sequence_length,
            mode=self._mode,
            state_size=self._hidden_size,
            num_layers=self._num_layers,
            bidirectional=len(self._directions) == 2,
            state_outputs=True,
            p=self._dropout,
            use_sequence_length=sequence_length is not None,
            projection_size=self._projection_size,
            **self._clips(),
        )
        outputs = outputs if self._layout == "TNC" else outputs.swapaxes(0, 1)
        return outputs if states is None else (outputs, ends)

    def _row(self) -> list[Any]:
        """The parameters in the order of `npx.rnn`: all weights, then all biases."""
        weights = ["i2h_weight", "h2h_weight"] + ["h2r_weight"] * bool(self._projection_size)
        names = [f"{side}_{name}" for side in self._sides() for name in weights]
        names += [f"{side}_{name}_bias" for side in self._sides() for name in ("i2h", "h2h")]
        return [self._reg_params[name].data() for name in names]

    def _clips(self) -> dict[str, Any]:
        return {}

    def unfuse(self) -> HybridSequentialRNNCell:
        """The same network as cells, which share this layer's parameters."""
        stack = HybridSequentialRNNCell(prefix=self.prefix)
        for layer in range(self._num_layers):
            cells = [self._cell(f"{direction}{layer}") for direction in self._directions]
            stack.add(cells[0] if len(cells) == 1 else BidirectionalCell(cells[0], cells[1]))
            if self._dropout and layer < self._num_layers - 1:
                stack.add(DropoutCell(self._dropout))
        return stack

    def _cell(self, side: str) -> RecurrentCell:
        own = {
            name.removeprefix(f"{side}_"): parameter
            for name, parameter in self._reg_params.items()
            if name.startswith(f"{side}_")
        }
        settings: dict[str, Any] = {"prefix": f"{self.prefix}{side}_", "params": ParameterDict(own)}
        if self._mode == "gru":
            return GRUCell(self._hidden_size, **settings)
        if self._projection_size:
            return LSTMPCell(self._hidden_size, self._projection_size, **settings)
        if self._mode == "lstm":
            return LSTMCell(self._hidden_size, **settings)
        return RNNCell(self._hidden_size, self._mode.removeprefix("rnn_"), **settings)

    def __repr__(self) -> str:
        first = self._reg_params["l0_i2h_weight"].shape
        inputs = first[1] if first is not None else -1
        parts = [f"{inputs} -> {self._hidden_size}", self._layout]
        parts += [f"num_layers={self._num_layers}"] if self._num_layers > 1 else []
        parts += [f"dropout={self._dropout}"] if self._dropout else []
        parts += ["bidirectional"] if len(self._directions) == 2 else []
        return f"{type(self).__name__}({', '.join(parts)})"


class RNN(_Layer):
    """h = activation(x @ i2h.T + h @ h2h.T + biases) over whole sequences (Elman, 1988).

    `activation` is "relu" or "tanh". `num_layers` layers of `hidden_size` units are stacked, with
    `dropout` between them; `bidirectional` layers also read backwards and pass on both results.
    `layout` is "TNC" or "NTC". States are (layers * directions, batch, width) in either layout.
    With `input_size=0` the first input determines it.

    >>> layer = gluon.rnn.RNN(4)
    >>> layer.initialize()
    >>> outputs, (h,) = layer(np.ones((5, 2, 3)), layer.begin_state(batch_size=2))
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        **settings: Any,
    ) -> None:
        if activation not in ("relu", "tanh"):
            raise unknown_name("activation of RNN", activation, ("relu", "tanh"))
        self._mode = f"rnn_{activation}"
        super().__init__(hidden_size, num_layers, layout, dropout, bidirectional, **settings)


class LSTM(_Layer):
    """Long short-term memory over whole sequences; its states are h and c.

    With `projection_size`, h is c's output times ``h2r_weight`` (Sak et al., 2014).
    `state_clip_min` and `state_clip_max` limit c. The other settings are those of `RNN`.
    Hochreiter and Schmidhuber, Long short-term memory, Neural computation 9, 1997.
    """

    _states = 2
    _mode = "lstm"

    def __init__(
        self,
        *arguments: Any,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        **settings: Any,
    ) -> None:
        self._limits = {
            "lstm_state_clip_min": state_clip_min,
            "lstm_state_clip_max": state_clip_max,
            "lstm_state_clip_nan": state_clip_nan,
        }
        super().__init__(*arguments, **settings)
        limits = [each for each in (state_clip_min, state_clip_max) if each is not None]
        for limit in limits:
            check_number("LSTM", "state_clip_min or state_clip_max", limit)
        if limits != sorted(limits):
            raise ArgumentError(
                f"LSTM: state_clip_min={limits[0]} is above state_clip_max={limits[1]}"
            )

    def _clips(self) -> dict[str, Any]:
        return self._limits


class GRU(_Layer):
    """Gated recurrent units over whole sequences; the settings are those of `RNN`.

    The reset gate acts on the product of h and its weight, as cuDNN has it. Cho et al., Learning
    phrase representations using RNN encoder-decoder for statistical machine translation, 2014.
    """

    _mode = "gru"


__all__ = ["GRU", "LSTM", "RNN"]
