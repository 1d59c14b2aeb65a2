"""What all optimizers share: settings, counts, multipliers, and the common form of an update."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from math import inf, isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from gemel import autograd, np
from gemel._core import Array
from gemel.errors import ArgumentError, OperandError, unknown_keyword
from gemel.optimizer.fused import Fused, is_narrow
from gemel.process.tracebacks import warn
from gemel.ranges import FlagsChecked, check_number, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gemel.np import ndarray

#: A new weight and new states: arrays, or the symbols that stand for them in a trace.
Moved = tuple[Any, list[Any]]

#: Settings that are run-time values of a program, so that changing them needs no new program.
_RUN_TIME = {"lr", "wd", "rescale_grad", "num_update", "begin_num_update"}

#: Settings that are numbers whenever they are set, and their names in the constructor.
_NUMBERS = {"lr": "learning_rate"} | {n: n for n in ("wd", "rescale_grad", "clip_gradient")}


class Optimizer(FlagsChecked):
    """Base class: learning rate, weight decay, gradient scaling and clipping, counts of updates.

    `wd` is the weight decay. `rescale_grad` multiplies every gradient (besides the 1 / batch size
    of `Trainer.step`); `clip_gradient` then limits each value to [-c, c]. `lr_scheduler` is any
    callable that takes the number of the update (from 1) and returns the learning rate; a
    `learning_rate` given with it becomes its `base_lr`. `begin_num_update` is where counting
    starts. `multi_precision` keeps a float32 copy of float16 and bfloat16 weights, which is what is
    updated. `param_idx2name` and `param_dict` say which name or Parameter an index means; `sym`,
    `aggregate_num` and `use_fused_step` are accepted for old code: all parameters given together
    are one program.

    A subclass defines the update of a weight in one of two ways. The first becomes part of a
    compiled program: `create_states(weight)`, `rates(index)` and `advance(...)`. The second is
    MXNet's and runs as Python: `create_state(index, weight)`, and `update(index, weight, grad,
    state)` or `step(indices, weights, grads, states)`, which write in place.
    """

    #: Whether an update reads a whole parameter, for example its norm. If so, parts of the
    #: parameter on several devices cannot be updated separately.
    needs_whole = False

    def __init__(
        self,
        learning_rate: float | None = None,
        wd: float = 0.0,
        rescale_grad: float = 1.0,
        clip_gradient: float | None = None,
        lr_scheduler: Any = None,
        param_idx2name: dict[Any, str] | None = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: dict[Any, Any] | None = None,
        sym: Any = None,
        aggregate_num: int | None = None,
        use_fused_step: bool | None = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            raise unknown_keyword(type(self), name)
        self._settings: tuple[Any, ...] | None = None
        self.lr = learning_rate
        self.wd = wd
        self.rescale_grad = rescale_grad
        self.clip_gradient = clip_gradient
        self.lr_scheduler = lr_scheduler
        self.multi_precision = multi_precision
        for name, value in (("param_idx2name", param_idx2name), ("param_dict", param_dict)):
            if not isinstance(value, (Mapping, type(None))):
                raise OperandError(
                    f"{type(self).__name__}: {name} is {value!r}; it must be a dictionary"
                )
        self.idx2name = dict(param_idx2name or {})
        self.param_dict = param_dict or {}
        counted(type(self).__name__, "begin_num_update", begin_num_update, 0)
        self.begin_num_update = begin_num_update
        # Last, because it changes the scheduler: settings that are refused leave it as it is.
        if learning_rate is None and lr_scheduler is None:
            self.lr = 0.01
        elif learning_rate is not None and hasattr(lr_scheduler, "base_lr"):
            if lr_scheduler.base_lr != learning_rate:
                warn(
                    f"the base_lr of the lr_scheduler, {lr_scheduler.base_lr}, is replaced by "
                    f"the learning_rate of {type(self).__name__}, {learning_rate}; give the rate "
                    "you want as learning_rate"
                )
            lr_scheduler.base_lr = learning_rate
        #: The update count of the parameter that was updated most often.
        self.num_update = begin_num_update
        self._all_index_update_counts: dict[int, dict[Any, int]] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self._fused = Fused(self)
        self.set_lr_mult({})
        self.set_wd_mult({})

    # --- learning rates and weight decays ---------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The current learning rate, from the scheduler if there is one."""
        if self.lr_scheduler is not None:
            rate = self.lr_scheduler(self.num_update)
            if not (isinstance(rate, Real) or hasattr(rate, "item")):
                raise OperandError(
                    f"{type(self).__name__}: its lr_scheduler returned {rate!r} for update "
                    f"{self.num_update}; it must return a number"
                )
            return float(rate)
        return float(self.lr)  # type: ignore[arg-type] # a number where there is no scheduler

    def set_learning_rate(self, lr: float) -> None:
        """Change the learning rate. Raises `ArgumentError` if there is a scheduler."""
        if self.lr_scheduler is not None:
            raise ArgumentError(
                "set_learning_rate: an lr_scheduler sets the learning rate; change the "
                "scheduler instead"
            )
        check_number("set_learning_rate", "lr", lr)
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: dict[Any, float]) -> None:
        """Multiply the learning rate of some parameters, by name or index."""
        self.lr_mult: dict[Any, float] = _factors("set_lr_mult", args_lr_mult)

    def set_wd_mult(self, args_wd_mult: dict[Any, float]) -> None:
        """Multiply the weight decay of some parameters, by name or index.

        Where `param_idx2name` was given, only names ending in _weight and _gamma decay by default.
        """
        names = self.idx2name.values()
        self.wd_mult = {n: 0.0 for n in names if not n.endswith(("_weight", "_gamma"))}
        self.wd_mult.update(_factors("set_wd_mult", args_wd_mult))

    def _name(self, index: Any) -> str:
        parameter = self.param_dict.get(index)
        return str(self.idx2name.get(index, index) if parameter is None else parameter.name)

    def _mults(self, index: Any) -> tuple[float, float]:
        """The factors of the learning rate and of the weight decay for a parameter."""
        parameter = self.param_dict.get(index)
        if parameter is not None and not self.lr_mult and not self.wd_mult:
            return parameter.lr_mult, parameter.wd_mult
        name = self.idx2name.get(index)
        rate, decay = (m.get(index, m.get(name, 1.0)) for m in (self.lr_mult, self.wd_mult))
        if parameter is None:
            return rate, decay
        return rate * parameter.lr_mult, decay * parameter.wd_mult

    def _get_lrs(self, indices: Iterable[Any]) -> list[float]:
        rate = self.learning_rate
        return [rate * self._mults(index)[0] for index in indices]

    def _get_lr(self, index: Any) -> float:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices: Iterable[Any]) -> list[float]:
        return [self.wd * self._mults(index)[1] for index in indices]

    def _get_wd(self, index: Any) -> float:
        return self._get_wds([index])[0]

    # --- counts -----------------------------------------------------------------------------

    def _set_current_context(self, device_id: int) -> None:
        """Select a device: each device counts the updates of its own copies of the parameters."""
        self._index_update_count = self._all_index_update_counts.setdefault(device_id, {})

    def _update_count(self, index: Any) -> None:
        """Count one more update of a parameter, or of each in a list."""
        counts = self._index_update_count
        for one in index if isinstance(index, (list, tuple)) else [index]:
            counts[one] = count = counts.get(one, self.begin_num_update) + 1
            if count > self.num_update:
                self.num_update = count

    def _begin_step(self, indices: Iterable[Any]) -> None:
        """Move the schedule to the next step before these parameters are updated in turn, so that
        all get the same learning rate, whatever their own counts are."""
        for counts in self._all_index_update_counts.values():
            most = max((counts.get(index, self.begin_num_update) for index in indices), default=-1)
            self.num_update = max(self.num_update, most + 1)

    # --- an update as a pure function -------------------------------------------------------

    def create_states(self, weight: ndarray) -> list[ndarray]:
        """The initial state arrays for one parameter."""
        return []

    def rates(self, index: Any) -> tuple[float, ...]:
        """The numbers that scale the update of parameter `index`, which is already counted.

        They are run-time values of the program; their number never changes.
        """
        return (self._get_lr(index),)

    def alike(self, index: Any) -> tuple[Any, ...]:
        """A key: parameters with equal keys have the same rates and the same weight decay."""
        parameter = self.param_dict.get(index)
        if parameter is None or self.lr_mult or self.wd_mult:
            return (*self._mults(index), self._index_update_count[index])
        return parameter.lr_mult, parameter.wd_mult, self._index_update_count[index]

    def constants(self) -> tuple[Any, ...]:
        """All other settings that `advance` reads; changing them needs another program."""
        if self._settings is None:
            simple = (Real, str, tuple, type(None))
            self._settings = tuple(
                (name, value)
                for name, value in vars(self).items()
                if name[0] != "_" and name not in _RUN_TIME and isinstance(value, simple)
            )
        return self._settings

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _NUMBERS:
            _check_setting(type(self).__name__, name, value)
        elif name == "lr_scheduler" and not (value is None or callable(value)):
            raise OperandError(
                f"{type(self).__name__}: lr_scheduler must be a function of the number of updates, "
                f"as those of gemel.lr_scheduler, not {value!r}"
            )
        object.__setattr__(self, name, value)
        if name[0] != "_" and name not in _RUN_TIME:
            object.__setattr__(self, "_settings", None)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        object.__setattr__(self, "_settings", None)

    def advance(self, weight: Any, grad: Any, states: list[Any], rates: Any, decay: Any) -> Moved:
        """The new weight and states. A pure function: it writes to none of its arguments.

        `grad` is rescaled but not clipped; `rates` is the result of `rates(index)`; `decay` is the
        weight decay, or None.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define how to update a weight (implement step)"
        )

    def _clipped(self, grad: Any) -> Any:
        return limited(grad, self.clip_gradient)

    # --- an update of arrays in place, as MXNet spells it -------------------------------------

    def create_state(self, index: Any, weight: ndarray) -> Any:
        """The state for a parameter: None, an array, or a tuple."""
        with autograd.pause():
            states = self.create_states(weight)
        return (states[0] if len(states) == 1 else tuple(states)) if states else None

    def create_state_multi_precision(self, index: Any, weight: ndarray) -> Any:
        """Like `create_state`; with `multi_precision` a float16 or bfloat16 weight gets (float32
        copy, its state). Raises `OperandError` for what is none of gemel's arrays."""
        check_array_type("create_state_multi_precision: the weight", type(weight))
        if self._has_master(weight):
            master = weight.detach().astype("float32")
            return master, self.create_state(index, master)
        if is_narrow(weight):
            warn(
                f"{type(self).__name__}: states in {weight.dtype} are inaccurate; use "
                "multi_precision=True to keep them and a copy of the weights in float32"
            )
        return self.create_state(index, weight)

    def _has_master(self, weight: ndarray) -> bool:
        return bool(self.multi_precision) and is_narrow(weight)

    def _relaid(self, state: Any, weight: ndarray, master: bool) -> Any:
        """Convert a state of `create_state_multi_precision` after its weight has changed to float16
        or bfloat16, so that it needs a `master`, or from that."""
        if type(self).create_state_multi_precision is not Optimizer.create_state_multi_precision:
            return state  # only the subclass knows the structure
        return (weight.detach().astype("float32"), state) if master else state[1]

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Update one parameter in place, or those in lists."""
        self.step(*_in_lists(index, weight, grad, state))

    def step(
        self, indices: list[Any], weights: list[Any], grads: list[Any], states: list[Any]
    ) -> None:
        """Update parameters in place, as one program."""
        self._run(indices, weights, grads, states, [None] * len(indices))

    def _run(self, indices: list[Any], *arrays: list[Any]) -> None:
        with self._counting(indices):
            self._fused(indices, *arrays)

    @contextmanager
    def _counting(self, indices: list[Any]) -> Iterator[None]:
        """Count the updates done in this block; if the block fails, nothing is counted."""
        number = self.num_update
        self._update_count(indices)
        try:
            yield
        except BaseException:
            for index in indices:
                self._index_update_count[index] -= 1
            self.num_update = number
            raise

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """`update`, with the states of `create_state_multi_precision`."""
        indices, weights, grads, states = _in_lists(index, weight, grad, state)
        if not (self.multi_precision or by_hand(type(self))):
            self.step(indices, weights, grads, states)
            return
        rest, copies = self._apart(weights, states)
        if not by_hand(type(self)):
            self._run(indices, weights, grads, rest, copies)
            return
        with autograd.pause():
            for i, w, g, s, copy in zip(indices, weights, grads, rest, copies, strict=True):
                if copy is None:
                    self.update(i, w, g, s)
                else:
                    self.update(i, copy, g.astype("float32"), s)
                    w[...] = copy.astype(w.dtype)

    def _apart(self, weights: list[Any], states: list[Any]) -> tuple[list[Any], list[Any]]:
        """Separate the states from the float32 copies of the weights, None if there is no copy."""
        masters = [self._has_master(w) for w in weights]
        pairs = list(zip(states, masters, strict=True))
        for state, has in pairs:
            if has and not (isinstance(state, (list, tuple)) and len(state) == 2):
                raise ArgumentError(
                    f"{type(self).__name__}: with multi_precision the state of a narrow weight is "
                    "a pair: its float32 copy and the state of that; give what "
                    "create_state_multi_precision(index, weight) returned"
                )
        return [s[1] if has else s for s, has in pairs], [s[0] if has else None for s, has in pairs]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "param_dict": {}, "_fused": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._fused = Fused(self)
        self._index_update_count = self._all_index_update_counts[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(learning_rate={self.learning_rate}, wd={self.wd})"


def limited(array: Any, limit: float | None) -> Any:
    """The array with its values limited to [-limit, limit]; unchanged if limit is None or not
    positive."""
    return array if limit is None or limit <= 0 else np.clip(array, -limit, limit)


def _factors(name: str, given: Any) -> dict[Any, float]:
    """Factors by the names or indices of parameters. Raises `OperandError` and `ArgumentError`."""
    if not isinstance(given, Mapping):
        raise OperandError(
            f"{name}: {given!r} is not a dictionary of numbers by the names of parameters"
        )
    for key, factor in given.items():
        check_number(name, f"the factor of {key!r}", factor)
    return dict(given)


def _check_setting(name: str, setting: str, value: Any) -> None:
    """Raise `OperandError` for a setting that is no number, and `ArgumentError` for one that would
    make every parameter infinite or NaN."""
    if value is None and setting in ("lr", "clip_gradient"):
        return
    shown = _NUMBERS[setting]
    if not (isinstance(value, Real) or hasattr(value, "item")):
        raise OperandError(f"{name}: {shown} must be a number, not {value!r}")
    unlimited = setting == "clip_gradient" and value == inf
    if isinstance(value, Real) and not isfinite(value) and not unlimited:
        raise ArgumentError(f"{name}: {shown} is {value!r}, which would make all parameters NaN")


def check_array_type(what: str, kind: type) -> None:
    """Raise `OperandError` unless this is the type of gemel's arrays."""
    if not issubclass(kind, Array):
        raise OperandError(f"{what} is of {kind!r}; give gemel's arrays")


def by_hand(kind: type[Optimizer]) -> bool:
    """Whether a class defines its update in MXNet's way, by overriding `update` or `step`."""
    return kind.update is not Optimizer.update or kind.step is not Optimizer.step


def _in_lists(*values: Any) -> tuple[list[Any], ...]:
    """Put the index, weight, gradient and state of a single parameter into lists; lists are
    returned as they are. Raises `ArgumentError` if they are not of the same length, `OperandError`
    for weights and gradients that are not gemel's arrays."""
    if not isinstance(values[0], (list, tuple)):
        values = tuple([value] for value in values)
    count = len(values[0])
    if not all(isinstance(value, (list, tuple)) and len(value) == count for value in values):
        raise ArgumentError(
            f"update: with a list of {count} indices, give lists of {count} weights, gradients and "
            "states"
        )
    for name, arrays in (("weight", values[1]), ("gradient", values[2])):
        for kind in {*map(type, arrays)}:  # few, however many arrays there are
            check_array_type(f"update: the {name}", kind)
    return tuple(map(list, values))
