"""Rules that write operations of gemel's graphs in MXNet's terms, where a new name is not enough.

A rule returns the call as MXNet writes it, or entries that compute the same by other operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from gemel.dtype import DType, bool_
from gemel.errors import ExportError
from gemel.extent import Dim, same_for_all
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, Node, placeholder
from gemel.ir.methods import call
from gemel.ir.op_kinds import Elementwise
from gemel.legacy.declare import WRITERS, Written
from gemel.ops.shape import expand_dims
from gemel.spec import Spec, product
from gemel.symbol import regrouping
from gemel.symbol.noting import Notes
from gemel.symbol.sizes import as_seen, depends_on_batch, fixed, free
from gemel.symbol.slices import bounds, given_slices

Found = Written | tuple[Entry, ...] | None
RULES: dict[str, Callable[..., Found]] = {}


def rule(*names: str) -> Callable[[Callable[..., Found]], Callable[..., Found]]:
    """Declare the rule that writes nodes of these operations."""

    def declare(function: Callable[..., Found]) -> Callable[..., Found]:
        RULES.update(dict.fromkeys(names, function))
        return function

    return declare


def _notes() -> Notes:
    """The notes of the export in progress."""
    trace = current_trace()
    assert trace is not None
    notes: Notes = trace.notes
    return notes


# --- shapes ---------------------------------------------------------------------------------


def kept(source: tuple[Any, ...], target: tuple[Any, ...]) -> tuple[tuple[int, ...], list[int]]:
    """The codes of `npx.reshape` for a shape, and the axes whose code has to be replaced.

    Free extents that stay in place are copied (-2). Of the other free extents one becomes -1,
    preferably that of the batch. The rest are the axes in the second result.
    """
    codes: list[int] = []
    left: list[int] = []
    for place, extent in enumerate(target):
        if not isinstance(extent, Dim):
            codes.append(int(extent))
        elif place < len(source) and same_for_all(extent, source[place]):
            codes.append(-2)
        else:
            left.append(place)
            codes.append(-1)
    left.sort(key=lambda place: not depends_on_batch(target[place]))
    return tuple(codes), left[1:]


@rule("reshape")
def _(node: Node) -> Found:
    x, target = node.inputs[0], node.specs[0].shape
    codes, held = kept(x.shape, target)
    if held:
        found = regrouping.codes(x.shape, target)
        if isinstance(found, regrouping.Before):
            return (call("reshape", call("reshape", x, shape=found.shape), shape=target),)
        codes, held = (codes, held) if found is None else (found, [])
    for place in held:  # if it depends on the batch, `int` sets a guard
        extent = target[place]
        number = int(extent) if depends_on_batch(extent) else as_seen(extent)
        codes = (*codes[:place], number, *codes[place + 1 :])
    return Written("_npx_reshape", (x,), {"newshape": codes})


@rule("transpose")
def _(node: Node) -> Found:
    axes = node.params["axes"]
    if axes is not None and len(axes) > MOST_AXES:
        return (_moved(node.inputs[0], tuple(axes)),)
    return Written("_np_transpose", node.inputs, {} if axes is None else {"axes": axes})


#: The most axes that MXNet transposes.
MOST_AXES = 6


def _moved(x: Any, axes: tuple[int, ...]) -> Any:
    """A transposition, one axis at a time. Each step has four axes: those already in place, those
    the axis moves past, the axis itself, and the rest."""
    order = list(range(len(axes)))
    for place, axis in enumerate(axes):
        at = order.index(axis)
        if at == place:
            continue
        shape = tuple(x.shape)
        parts = shape[:place], shape[place:at], shape[at : at + 1], shape[at + 1 :]
        joined = tuple(product(part) for part in parts)
        x = call("transpose", call("reshape", x, shape=joined), axes=(0, 2, 1, 3))
        x = call("reshape", x, shape=(*parts[0], *parts[2], *parts[1], *parts[3]))
        order.insert(place, order.pop(at))
    return x


@rule("broadcast_to")
def _(node: Node) -> Found:
    x, target = node.inputs[0], node.specs[0].shape
    lead = len(target) - len(x.shape)
    codes = []
    for place, extent in enumerate(target):
        same = place >= lead and same_for_all(extent, x.shape[place - lead])
        if isinstance(extent, Dim) and not same:
            return _broadcast_like(x, target, place, extent)
        codes.append(-2 if same and isinstance(extent, Dim) else extent)
    return Written("_npi_broadcast_to", (x,), {"shape": tuple(codes)})


def _broadcast_like(x: Any, target: tuple[Any, ...], place: int, extent: Any) -> Found:
    """Broadcast along one axis to the free extent of an argument, then to the target shape.

    MXNet's files cannot express free extents otherwise, hence `broadcast_like`.
    """
    notes = _notes()
    source = notes.sources.get(repr(extent))
    if source is None:
        return None
    if len(x.shape) < len(target):
        x = call("reshape", x, shape=(*(1,) * (len(target) - len(x.shape)), *x.shape))
    shape = (*x.shape[:place], extent, *x.shape[place + 1 :])
    wide = placeholder(Spec(shape, x.dtype))
    axes = {"lhs_axes": (place,), "rhs_axes": (source[1],)}
    notes.note(wide, Written("broadcast_like", (x, source[0]), axes))
    return (call("broadcast_to", wide, shape=target),)


@rule("split")
def _(node: Node) -> Found:
    found: Found = WRITERS["split"](node.inputs[0], node.params["sections"], node.params["axis"])
    return found


@rule("concatenate")
def _(node: Node) -> Found:
    settings = {"axis": node.params["axis"], "num_args": len(node.inputs)}
    return Written("_npi_concatenate", node.inputs, settings)


@rule("basic_index")
def _(node: Node) -> Found:
    """A slice, `squeeze` for the axes of integers, and `expand_dims` for new axes.

    Unlike a reshape, these are right for all sizes.
    """
    (x,), notes, key = node.inputs, _notes(), node.params["key"]
    given = given_slices(notes.index_of(node), key)
    items = [(item, s) for item, s in zip(key, given, strict=True) if item[0] != "new"]
    slices = [item if item[0] == "slice" else ("slice", item[1], 1, 1) for item, _ in items]
    shape = [item[2] for item in slices]
    if items:
        found = [bounds(i, n, s) for i, n, (_, s) in zip(slices, x.shape, items, strict=True)]
        begin, end, step = zip(*found, strict=True)
        x = _noted("slice", x, shape, begin=begin, end=end, step=step)
    taken = tuple(axis for axis, (item, _) in enumerate(items) if item[0] == "int")
    if taken:
        shape = [extent for axis, extent in enumerate(shape) if axis not in taken]
        x = _noted("_np_squeeze", x, shape, axis=taken)
    for axis, item in enumerate(item for item in key if item[0] != "int"):
        if item[0] == "new":
            shape.insert(axis, 1)
            x = _noted("expand_dims", x, shape, axis=axis)
    return (x,)


def _noted(name: str, x: Any, shape: Sequence[Any], **settings: Any) -> Entry:
    """The result of a call of an MXNet operation that only changes the shape."""
    found = placeholder(Spec(tuple(shape), x.dtype))
    _notes().note(found, Written(name, (x,), settings))
    return found


@rule("narrow")
def _(node: Node) -> Found:
    (x,), along = node.inputs, node.params["axis"]
    spans = [(0, extent) for extent in x.shape]
    spans[along] = node.params["start"], node.params["length"]
    return (call("basic_index", x, key=tuple(("slice", *span, 1) for span in spans)),)


@rule("gather", "gather_inside")
def _(node: Node) -> Found:
    # Positions may count from the end. "wrap" is right for all positions that are in range.
    settings = {"axis": node.params["axis"], "mode": "wrap"}
    return Written("take", node.inputs, settings)


@rule("sort", "argsort")
def _(node: Node) -> Found:
    """Give `argsort` a dtype, because MXNet's positions are float32 by default."""
    assert node.op is not None
    settings = {"axis": node.params["axis"], "is_ascend": not node.params["descending"]}
    if node.op.name == "argsort":
        settings["dtype"] = node.specs[0].dtype
    return Written(node.op.names["mxnet"], node.inputs, settings)


@rule("top_positions")
def _(node: Node) -> Found:
    settings = {"axis": node.params["axis"], "k": node.params["count"], "dtype": "int64"}
    settings["is_ascend"] = not node.params["descending"]
    if free(node.params["count"]) or not node.params["count"]:
        return None
    return Written("topk", node.inputs, {**settings, "ret_typ": "indices"})


@rule("eigh")
def _(node: Node) -> Found:
    return Written("_npi_eigh", node.inputs, {"UPLO": "U" if node.params["upper"] else "L"}, 2)


@rule("take_along_axis")
def _(node: Node) -> Found:
    """One `pick` for each position along the axis: MXNet 1.9 has no `take_along_axis`."""
    (x, places), along = node.inputs, node.params["axis"]
    count = places.shape[along]
    if free(count) or not 0 < count <= MOST_PICKS or x.ndim != places.ndim:
        return None
    notes = _notes()
    picked = []
    for number in range(int(count)):
        place = call("narrow", places, axis=along, start=number, length=1)
        spec = Spec((*x.shape[:along], 1, *x.shape[along + 1 :]), x.dtype)
        row = call("reshape", place, shape=(*x.shape[:along], *x.shape[along + 1 :]))
        found = placeholder(spec)
        settings = {"axis": along, "mode": "wrap", "keepdims": True}
        notes.note(found, Written("pick", (x, row), settings))
        picked.append(found)
    return (call("concatenate", *picked, axis=along),) if len(picked) > 1 else (picked[0],)


#: The most positions along an axis that are picked one by one.
MOST_PICKS = 64


# --- numbers --------------------------------------------------------------------------------


@rule("cast")
def _(node: Node) -> Found:
    if node.inputs[0].node.is_number or node.inputs[0].dtype is node.specs[0].dtype:
        return node.inputs
    return Written("Cast", node.inputs, {"dtype": node.params["dtype"]})


@rule("floor_divide")
def _(node: Node) -> Found:
    """What remains without the remainder, divided: a quotient just below a whole number may have
    been rounded to it. Of whole numbers in float64, which MXNet's division is not."""
    dtype, divisor = node.specs[0].dtype, node.inputs[1].node
    size = divisor.is_number and isinstance(divisor.value, Dim)
    a, b = (_cast(each, dtype) for each in node.inputs)
    wide = dtype if dtype.is_floating else DType("float64")
    rest = call("remainder", a, b)
    whole = call("subtract", a, rest)
    found = call("rint", call("divide", _cast(whole, wide), _cast(b, wide)))
    if dtype.is_floating and not size and (not divisor.is_number or abs(divisor.value) == inf):
        # What remains of a number by the infinity of the other sign is that infinity.
        found = call("where", call("equal", call("absolute", rest), inf), -1, found)
    if not size and (not divisor.is_number or divisor.value == 0):
        by_zero = call("divide", a, b) if dtype.is_floating else 0
        found = call("where", call("equal", b, 0), by_zero, found)
    return (_cast(found, dtype),)


def _cast(x: Entry, dtype: DType) -> Entry:
    """An array in another dtype; numbers stay as they are."""
    return x if x.node.is_number or x.dtype is dtype else call("cast", x, dtype=dtype)


@rule("copy")
def _(node: Node) -> Found:
    return Written("_np_copy", node.inputs, {})


@rule("full")
def _(node: Node) -> Found:
    shape, dtype = node.specs[0].shape, node.specs[0].dtype
    value = node.inputs[0].node
    if not value.is_number:
        return None
    notes = _notes()
    extents = [extent for extent in shape if isinstance(extent, Dim)]
    if extents and all(repr(extent) in notes.sources for extent in extents):
        few = tuple(1 if isinstance(extent, Dim) else extent for extent in shape)
        return (
            call("broadcast_to", call("full", *node.inputs, shape=few, dtype=dtype), shape=shape),
        )
    return Written("_full", (), {"shape": shape, "dtype": dtype, "value": number_of(value)})


@rule("iota")
def _(node: Node) -> Found:
    shape, axis = node.params["shape"], node.params["axis"]
    stop = float(fixed(shape[axis], "export: the length of arange"))
    settings = {"start": 0.0, "stop": stop, "step": 1.0, "dtype": node.specs[0].dtype}
    if len(shape) == 1:
        return Written("_npi_arange", (), settings)
    row = call("iota", shape=(shape[axis],), axis=0, dtype=node.params["dtype"])
    lined = tuple(n if i == axis else 1 for i, n in enumerate(shape))
    return (call("broadcast_to", call("reshape", row, shape=lined), shape=shape),)


def _reduced(name: str) -> Callable[[Node], Found]:
    def write(node: Node) -> Found:
        if node.params["axis"] == ():  # along no axis: for MXNet that would be along all of them
            assert node.op is not None
            more = {**node.params, "axis": (-1,), "keepdims": False}
            return (call(node.op.name, expand_dims(node.inputs[0], -1), **more),)
        settings = {key: node.params[key] for key in ("axis", "keepdims")}
        given = {key: value for key, value in settings.items() if value not in ((), None)}
        return Written(name, node.inputs, {k: v for k, v in given.items() if v is not False})

    return write


for _op, _name in (
    ("sum", "_np_sum"),
    ("prod", "_np_prod"),
    ("max", "_np_max"),
    ("min", "_np_min"),
    ("mean", "_npi_mean"),
    ("any", "_np_any"),
    ("all", "_np_all"),
    ("argmax", "_npi_argmax"),
    ("argmin", "_npi_argmin"),
):
    RULES[_op] = _reduced(_name)


def _activation(name: str, **settings: Any) -> Callable[[Node], Found]:
    return lambda node: Written(name, node.inputs[:1], settings)


RULES["gelu"] = _activation("LeakyReLU", act_type="gelu")
RULES["softplus"] = _activation("Activation", act_type="softrelu")
RULES["softsign"] = _activation("Activation", act_type="softsign")
RULES["stop_gradient"] = RULES["detached"] = _activation("BlockGrad")


@rule("logical_and", "logical_or", "logical_xor")
def _(node: Node) -> Found:
    """Written with comparisons: MXNet's logical operations neither take nor give booleans."""
    assert node.op is not None
    a, b = (call("cast", call("not_equal", x, 0), dtype="float32") for x in node.inputs)
    if node.op.name == "logical_and":
        return (call("not_equal", call("multiply", a, b), 0),)
    return (
        call("not_equal", call("add", a, b), 0)
        if node.op.name == "logical_or"
        else call("not_equal", a, b),
    )


@rule("vector_norm")
def _(node: Node) -> Found:
    """A vector norm: without axes and `flag`, MXNet computes the norm of a matrix."""
    (x,), order, axis = node.inputs, node.params["ord"], node.params["axis"]
    if order not in (None, 2) or not x.dtype.is_floating:
        return None
    settings = {"ord": 2, "keepdims": node.params["keepdims"]}
    axes = (axis,) if isinstance(axis, int) else axis
    return Written("_npi_norm", (x,), {**settings, "axis": axes, "flag": -2 if axes is None else 1})


@rule("cumsum")
def _(node: Node) -> Found:
    return Written("_np_cumsum", node.inputs, {"axis": node.params["axis"]})


@rule("replace_special")
def _(node: Node) -> Found:
    x, *numbers = node.inputs
    if not all(each.node.is_number for each in numbers):
        return None
    values = (float(each.node.value) for each in numbers)
    named = zip(("nan", "posinf", "neginf"), values, strict=True)
    return Written("_npi_nan_to_num", (x,), {"copy": True, **dict(named)})


@rule("where")
def _(node: Node) -> Found:
    """With values of the result's dtype: MXNet takes two of one dtype alone."""
    (condition, *values), dtype = node.inputs, node.specs[0].dtype
    condition = _in_dtype(condition, bool_) if condition.node.is_number else condition
    return Written("_npi_where", (condition, *(_in_dtype(each, dtype) for each in values)), {})


def _in_dtype(x: Entry, dtype: DType) -> Entry:
    """An array in another dtype, or a number as an array of that dtype: MXNet does not type numbers
    weakly."""
    found: Entry = _cast(x, dtype)
    if x.node.is_number:
        found = call("full", x.node.value, shape=(), dtype=dtype)
    return found


def _as_computed(op: Elementwise, node: Node) -> tuple[Entry, ...]:
    """The inputs of an elementwise operation with numbers among them, in the dtypes in which it is
    computed: an array of bools and a whole number are whole numbers."""
    dtypes, _ = op.types(tuple(entry.spec for entry in node.inputs), node.params)
    return tuple(map(_in_dtype, node.inputs, dtypes))


#: Binary operations whose operand may be a number: the names with the number second and first.
SCALARS: dict[str, tuple[str, str]] = {
    **{
        f"_npi_{name}": (f"_npi_{name}_scalar",) * 2
        for name in ("add", "multiply", "maximum", "minimum", "hypot", "equal", "not_equal")
    },
    **{
        f"_npi_{name}": (f"_npi_{name}_scalar", f"_npi_r{name}_scalar")
        for name in ("subtract", "true_divide", "power", "mod", "arctan2", "copysign", "ldexp")
    },
    "_npi_less": ("_npi_less_scalar", "_npi_greater_scalar"),
    "_npi_less_equal": ("_npi_less_equal_scalar", "_npi_greater_equal_scalar"),
    "_npi_greater": ("_npi_greater_scalar", "_npi_less_scalar"),
    "_npi_greater_equal": ("_npi_greater_equal_scalar", "_npi_less_equal_scalar"),
}
#: Names of operations that MXNet 1.9 does not have.
LACKING = frozenset(
    ("_npi_fmax", "_npi_fmin", "_npi_fmod", "_npi_gcd", "_npi_logaddexp", "_npi_real", "_npi_imag")
    + ("_npi_conj", "_npi_bitwise_left_shift", "_npi_bitwise_right_shift", "_npx_digamma")
    + ("_npx_masked_softmax", "_npx_masked_log_softmax", "_npi_unravel_index", "_npi_qr")
    + ("_npi_triu", "_npx_slice_axis", "_npx_leaky_relu", "_npx_smooth_l1", "_npx_group_norm")
    + ("_npx_convolution", "_npx_deconvolution", "_npx_pooling", "_npx_batch_norm")
    + ("_npx_layer_norm", "_npx_instance_norm", "_npx_dropout", "_npi_clip", "_npi_around")
)


def as_call(node: Node) -> Found:
    """A node as a call of an MXNet operation; None if there is none."""
    op = node.op
    assert op is not None
    if op.name in RULES:
        return RULES[op.name](node)
    name = op.names.get("mxnet")
    if name is None or name in LACKING:
        return None
    numbers = [entry.node.is_number for entry in node.inputs]
    only_bools = all(entry.dtype is bool_ for entry in node.inputs)
    if name in SCALARS and numbers.count(True) == 1 and not only_bools:
        first = numbers[0]
        number, x = node.inputs[0 if first else 1].node, node.inputs[1 if first else 0]
        dtype = node.specs[0].dtype
        if dtype.is_floating and not x.dtype.is_floating:  # in MXNet the result would be float64
            x = call("cast", x, dtype=dtype)
        settings = {
            "scalar": number_of(number),
            "is_int": isinstance(number.value, int) or dtype.kind in "iu",
        }
        return Written(SCALARS[name][first], (x,), settings)
    settings = {
        key: value for key, value in node.params.items() if op.defaults.get(key, ...) != value
    }
    inputs = node.inputs
    if isinstance(op, Elementwise) and True in numbers and False in numbers:
        inputs = _as_computed(op, node)
    return Written(name, inputs, settings, len(node.entries))


def number_of(node: Node) -> float:
    """The value of a number's node. Raises `ExportError` if it depends on the batch, or no float64
    is equal to it."""
    value = fixed(node.value, "export: a number")
    if isinstance(value, complex) or float(value) != value == value:
        raise ExportError(
            f"export: a number is {value}, and MXNet's files hold float64 alone; use an array of "
            "it, or gemel.save"
        )
    return float(value)
