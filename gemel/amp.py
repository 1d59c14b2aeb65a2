"""Automatic mixed precision: products in bfloat16 or float16, everything else in float32.

Within `autocast`, programs (hybridized blocks, and the results of `gemel.compile` and
`Trainer.compile`) compute matrix products, convolutions, recurrent layers and attention from
two-byte factors, and sum the products in float32. Parameters, gradients, inputs and results stay
float32. Operations that are called one by one, outside a program, keep their dtypes. The details
are in docs/mixed-precision.md.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gemel.dtype import DType, as_dtype, bfloat16, float16, float32
from gemel.errors import (
    ArgumentError,
    DTypeError,
    GemelError,
    UnknownNameError,
    name_call,
    unknown_name,
)
from gemel.gluon import scaling
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.scaling import LossScaler
from gemel.gluon.trainer import Trainer
from gemel.ir import precision
from gemel.ir.late import load
from gemel.ir.methods import REGISTRY
from gemel.ir.op import Op
from gemel.ir.precision import LOW, WIDE, WIDEST, Precision, scope
from gemel.legacy.declare import load as mxnets
from gemel.symbol.node import nodes_of

#: An operation, one of its parameters, and the values of it for which the operation is float32.
Condition = tuple[str, str, Sequence[Any]]


# --- where it is in force -------------------------------------------------------------------


def autocast(
    target_dtype: Any = "bfloat16",
    *,
    target_precision_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Condition] | None = None,
) -> scope:
    """A scope, or a decorator, within which programs compute products in `target_dtype`.

    It applies to this thread: to programs that are called in the scope and, inside a function that
    is being compiled, to the operations in the scope. ``"float32"`` switches it off for a part.
    `target_precision_ops` names further operations to compute in the dtype, and `fp32_ops`
    operations to keep in float32. `conditional_fp32_ops` has triples (operation, parameter,
    values): the operation stays in float32 for these values of the parameter. Raises `DTypeError`
    for other dtypes, `UnknownNameError` for unknown names, and `ArgumentError` for anything but
    such lists.

    >>> net = gluon.nn.Dense(2, in_units=3)
    >>> net.initialize()
    >>> net.hybridize()
    >>> with amp.autocast("bfloat16"):
    ...     y = net(np.ones((4, 3)))
    >>> y.dtype
    dtype('float32')
    """
    names = target_precision_ops, fp32_ops, conditional_fp32_ops
    return scope(_precision("autocast", target_dtype, *names))


def init(
    target_dtype: Any = "bfloat16",
    target_precision_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Condition] | None = None,
    fp32_ops: Iterable[str] | None = None,
    layout_optimization: bool = False,
) -> None:
    """Switch `autocast` on for the whole process, on all threads; ``"float32"`` ends that.

    As in MXNet, except that MXNet's default `target_dtype` is float16. An `autocast` scope
    overrides it. `layout_optimization` has no effect. Raises the same errors as `autocast`.
    """
    names = target_precision_ops, fp32_ops, conditional_fp32_ops
    precision.set_default(_precision("init", target_dtype, *names))


def _precision(
    name: str,
    target_dtype: Any,
    low: Iterable[str] | None,
    wide: Iterable[str] | None,
    conditional: Iterable[Condition] | None,
    excluded: Iterable[str] | None = None,
) -> Precision | None:
    dtype = _low_dtype(name, target_dtype)
    if dtype is None:
        return None
    for given in (low, wide, conditional, excluded):
        if isinstance(given, str):
            raise ArgumentError(f"{name}: {given!r} is a string; give a list of names")
        if not isinstance(given, (Iterable, type(None))):
            raise ArgumentError(f"{name}: {given!r} is not a list of names")
    conditions = tuple(_condition(name, each) for each in conditional or ())
    named = [frozenset(map(_operation, each or ())) for each in (low, wide)]
    return Precision(dtype, named[0], named[1], conditions, tuple(excluded or ()))


def _condition(name: str, given: Any) -> tuple[str, str, tuple[str, ...]]:
    """Check a condition for float32; the values of the parameter become text."""
    whole = isinstance(given, (tuple, list)) and len(given) == 3
    if not whole or not isinstance(given[2], (tuple, list)):
        raise ArgumentError(
            f"{name}: {given!r} in conditional_fp32_ops must be a triple: an operation, one of "
            "its parameters, and a list of that parameter's values"
        )
    op, parameter, values = _operation(given[0]), given[1], given[2]
    known = _operations()[op].parameters
    if parameter not in known:
        raise unknown_name(f"parameter of {op}", parameter, known)
    return op, parameter, tuple(map(str, values))


def _low_dtype(name: str, target_dtype: Any) -> DType | None:
    """The dtype of products; None for float32. Raises `DTypeError`."""
    try:
        dtype = as_dtype(target_dtype)
    except DTypeError as error:
        name_call(error, name)
        raise
    if dtype not in (bfloat16, float16, float32):
        raise DTypeError(
            f"{name}: target_dtype is {dtype}; use 'bfloat16' or 'float16', or 'float32' to "
            "switch mixed precision off"
        )
    return None if dtype is float32 else dtype


def _operation(name: str) -> str:
    """gemel's name of an operation, which may be given by its MXNet or ONNX name."""
    known = _operations()
    if name in known:
        return name
    of_mxnet = mxnets().get(name)
    names = {name} if of_mxnet is None else {name, *of_mxnet.names}
    for op in known.values():
        if not names.isdisjoint((op.name, *op.aliases, *op.names.values())):
            return op.name
    if of_mxnet is None:
        raise unknown_name("operation", name, known)
    raise UnknownNameError(
        f"{name} is not one operation but is composed of several; name those instead. "
        "compiled.graph(x) lists them: for example matmul for FullyConnected"
    )


def _operations() -> dict[str, Op]:
    load()
    return {name: op for name, op in REGISTRY.items() if isinstance(op, Op)}


# --- training -------------------------------------------------------------------------------


def init_trainer(trainer: Trainer, target_dtype: Any = None) -> None:
    """Enable loss scaling for a trainer; for float16 the scale adapts itself.

    bfloat16 has the range of float32 and needs no scaling: its scale is 1. The default
    `target_dtype` is that of `init` or of the enclosing scope. Called again, it begins anew. Raises
    `GemelError` if no mixed precision is active, and for a trainer whose store updates the
    parameters.
    """
    if not isinstance(trainer, Trainer):
        raise ArgumentError(f"init_trainer: {type(trainer).__name__} is not a gluon.Trainer")
    current = precision.current()
    if target_dtype is None and current is None:
        raise GemelError(
            "init_trainer: no mixed precision is active; call amp.init first, or give target_dtype"
        )
    given = current.dtype if current and target_dtype is None else target_dtype
    dtype = _low_dtype("init_trainer", given)
    if trainer._wants_store:
        raise GemelError(
            "init_trainer: with a scaled loss the trainer must check the gradients before the "
            "update, but here the store does the update; create the Trainer with "
            "update_on_kvstore=False"
        )
    dynamic = dtype is float16
    if trainer._amp_loss_scaler is not None:
        scaling.scale_steps(trainer, 1.0)  # the scale of the last loss is none of the trainer's own
    trainer._amp_loss_scaler = LossScaler() if dynamic else LossScaler(1.0, dynamic=False)
    trainer._amp_original_scale = trainer._scale


def _scaler(name: str, trainer: Trainer) -> LossScaler:
    if not isinstance(trainer, Trainer):
        raise ArgumentError(f"{name}: {type(trainer).__name__} is not a gluon.Trainer")
    if trainer._amp_loss_scaler is None:
        raise GemelError(f"{name}: the trainer does not scale losses; call amp.init_trainer first")
    return trainer._amp_loss_scaler


@contextmanager
def scale_loss(loss: Any, trainer: Trainer) -> Iterator[Any]:
    """A context that yields the loss, or the list of losses, times the trainer's scale, for
    `backward`.

    The next step divides the gradients by the scale. If they have overflowed, the parameters keep
    their values and the scale is halved. Raises `GemelError` before `init_trainer`.

    >>> net = gluon.nn.Dense(1, in_units=2)
    >>> net.initialize()
    >>> trainer = gluon.Trainer(net.collect_params(), "sgd")
    >>> amp.init_trainer(trainer, "float16")
    >>> with autograd.record():
    ...     loss = net(np.ones((1, 2)))
    ...     with amp.scale_loss(loss, trainer) as scaled:
    ...         scaled.backward()
    >>> trainer.step(1)
    """
    _scaler("scale_loss", trainer)
    if isinstance(loss, (list, tuple)):
        yield scaling.scaled(trainer, loss)
    else:
        yield scaling.scaled(trainer, [loss])[0]


def unscale(trainer: Trainer) -> None:
    """Divide the gradients by the scale now, for example to clip them; the step then does not
    divide.

    Raises `GemelError` before `init_trainer`.
    """
    _scaler("unscale", trainer)
    scaling.unscale(trainer)


# --- converting -----------------------------------------------------------------------------


def convert_hybrid_block(
    block: HybridBlock,
    target_dtype: Any = "bfloat16",
    target_dtype_ops: Iterable[str] | None = None,
    fp32_ops: Iterable[str] | None = None,
    conditional_fp32_ops: Iterable[Condition] | None = None,
    excluded_sym_names: Iterable[str] | None = None,
    ctx: Any = None,
    device: Any = None,
) -> HybridBlock:
    """A hybridized copy of a network that computes products in `target_dtype` wherever it is
    called.

    Its parameters are float32 copies; their rounded values are kept from call to call (see
    `GEMEL_KEEP_BYTES`). The lists are those of `autocast`; `excluded_sym_names` names blocks, steps
    or nodes of a symbol that stay in float32. The copy is on `device` (or `ctx`) if one is given.
    Raises `DTypeError`, `UnknownNameError` for operations and parts that there are not, and
    `ArgumentError` for anything but a `HybridBlock`.

    >>> net = gluon.nn.Dense(2, in_units=3)
    >>> net.initialize()
    >>> amp.convert_hybrid_block(net, "bfloat16")(np.ones((4, 3))).shape
    (4, 2)
    """
    if not isinstance(block, HybridBlock):
        raise ArgumentError(
            f"convert_hybrid_block: {type(block).__name__} is not a HybridBlock; only "
            "HybridBlocks can be converted"
        )
    names = target_dtype_ops, fp32_ops, conditional_fp32_ops, excluded_sym_names
    wanted = _precision("convert_hybrid_block", target_dtype, *names)
    if wanted is not None:
        _check_excluded(block, wanted)
    made = copy.deepcopy(block)
    made._own.precision = Precision(float32) if wanted is None else wanted
    place = device if device is not None else ctx
    if place is not None:
        made.reset_ctx(place)
    made.hybridize()
    return made


def _check_excluded(block: HybridBlock, wanted: Precision) -> None:
    """Raise `UnknownNameError` for an excluded name that the network has no block, node of a symbol
    or step for."""
    names: list[str] = []
    prefixes: list[str] = []

    def visit(part: Any) -> None:
        names.append(part.name)
        prefixes.append(part.prefix)
        names.extend(node.name for node in nodes_of(getattr(part, "_symbol_heads", ())))

    block.apply(visit)
    for each in wanted.excluded:
        alone = wanted._replace(excluded=(each,))
        if not any(map(alone.excludes, names)) and not _is_step(each, prefixes):
            raise unknown_name("excluded part of the network", each, names)


def _is_step(name: str, prefixes: list[str]) -> bool:
    """Whether a block's operation may have this name: its prefix, an operation and a number."""
    rests = (name.removeprefix(each) for each in prefixes if name.startswith(each))
    return any(rest.rstrip("0123456789") in _operations() for rest in rests)


# --- what is computed how -------------------------------------------------------------------


def _named(way: str, target_dtype: Any) -> list[str]:
    if _low_dtype("list", target_dtype) is None:
        raise DTypeError("list: target_dtype must be 'bfloat16' or 'float16'")
    return sorted(name for name, op in _operations().items() if op.precision == way)


def list_lp16_ops(target_dtype: Any = "bfloat16") -> list[str]:
    """The operations computed in float16 or bfloat16: sums of products."""
    return _named(LOW, target_dtype)


def list_fp32_ops(target_dtype: Any = "bfloat16") -> list[str]:
    """The operations computed in float32; only a product that reads their result rounds it.
    Operations composed of products are expanded, and those products are computed in
    `target_dtype`."""
    return _named(WIDE, target_dtype)


def list_widest_type_cast(target_dtype: Any = "bfloat16") -> list[str]:
    """The operations computed in the widest dtype of their inputs, float32: they compute little, or
    only move elements. If a product reads their result rounded, all other readers do too."""
    return _named(WIDEST, target_dtype)


def list_conditional_fp32_ops(target_dtype: Any = "bfloat16") -> list[tuple[str, str, list[str]]]:
    """The operations that are float32 only for some parameters: none, unless given to `init`."""
    _low_dtype("list", target_dtype)
    current = precision.current()
    return [(op, name, list(values)) for op, name, values in current.conditional] if current else []


__all__ = [
    "LossScaler",
    "autocast",
    "convert_hybrid_block",
    "init",
    "init_trainer",
    "list_conditional_fp32_ops",
    "list_fp32_ops",
    "list_lp16_ops",
    "list_widest_type_cast",
    "scale_loss",
    "unscale",
]
