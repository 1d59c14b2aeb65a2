"""`Legacy`: an operation of MXNet, declared once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import signature, unwrap
from itertools import zip_longest
from typing import Any, NamedTuple

from gemel import _core
from gemel.device import Device, as_device
from gemel.errors import (
    ArgumentError,
    OperandError,
    ShapeError,
    UnknownKeywordError,
    UnknownNameError,
    calls_itself,
    suggestion,
    unknown_name,
)
from gemel.ir.graph import Entry
from gemel.ops.layouts import array_of
from gemel.ops.shape import operand
from gemel.spec import Spec, plain

#: The operations by MXNet's names. The modules below fill it when they are imported.
TABLE: dict[str, Legacy] = {}
#: Rules that write calls of functions of `np` and `npx` as MXNet's operations, by function name.
WRITERS: dict[str, Callable[..., Written | None]] = {}
MODULES = (
    "layers",
    "ends",
    "sequences",
    "control",
    "arrange",
    "arithmetic",
    "numeric",
    "matrices",
    "drawn",
    "updates",
    "steps",
    "rare",
    "contrib",
)
#: The axes of images (`Legacy.axes`).
IMAGES = "N, C, height, width"
#: The shapes of some inputs, by their names.
Shapes = dict[str, Any]
#: Settings for the device of a created array. Calls use them; symbols run on the current device.
DEVICES = ("ctx", "device")
#: How settings that are numbers are annotated.
NUMERIC = ("int", "float", "int | None", "float | None")
#: Settings of MXNet that do not change the result or only repeat what is known.
IGNORED = frozenset(
    ("cudnn_tune", "cudnn_off", "workspace", "num_args", "sparse_grad", "forward_stype")
    + ("min_calib_range", "max_calib_range", "is_int", "infer_range", "always_copy", *DEVICES)
)


class Inside(NamedTuple):
    """A program inside of a call: its arguments, its results, and the serial number of its start.

    Nodes created before `first` come from outside. The arguments stand for the call's first inputs;
    `reads_all` says whether the program has to read all of them.
    """

    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    first: int
    reads_all: bool = False


class Written(NamedTuple):
    """A call in MXNet's terms: the operation's name, its inputs, its settings.

    `placed` computes the settings that say which inputs the variables of the programs inside stand
    for.
    """

    name: str
    inputs: tuple[Any, ...]
    settings: dict[str, Any]
    outputs: int = 1
    inside: tuple[Inside, ...] = ()
    placed: Callable[[list[list[int]]], dict[str, Any]] | None = None


class Legacy:
    """An operation of MXNet: `function` takes its inputs and settings under MXNet's names.

    `names`: the names it is registered under; files use the first. `inputs`: how many arrays it
    takes (by default the parameters without a default value and the next `optional` ones, which may
    be left out); any number if it is declared with ``*data``. `auxiliary`: the names of the inputs
    it overwrites while training. `outputs`: how many outputs a node of it has in files, if not 1: a
    number, or a function of its settings. `visible`: how many of these users get. `axes`: the axes
    that inputs must have, as in `check_axes`, by their names.
    """

    #: Whether a call on symbols creates a symbol itself.
    takes_symbols = False
    #: Whether its function makes arrays of lists itself, as those of `np` and `npx` do.
    takes_lists = False

    def __init__(
        self,
        function: Callable[..., Any],
        names: tuple[str, ...],
        auxiliary: tuple[str, ...] = (),
        optional: int = 0,
        outputs: int | Callable[[dict[str, Any]], int] = 1,
        visible: int | None = None,
        inputs: int | None = None,
        unread: str = "",
        axes: dict[str, str] | None = None,
    ) -> None:
        self.name = names[0]
        self.names = names
        self.function = function
        given = [p for p in signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in given)
        arguments = [p.name for p in given if p.kind is not p.VAR_POSITIONAL]
        #: The settings that are numbers, which may also be given as text.
        self.numeric = frozenset(p.name for p in given if p.annotation in NUMERIC)
        if inputs is None:
            inputs = sum(p.default is p.empty and p.kind is not p.KEYWORD_ONLY for p in given)
            inputs += optional
        self.inputs = () if self.variadic else tuple(arguments[:inputs])
        self.settings = tuple(arguments[len(self.inputs) :])
        self.defaults = {p.name: p.default for p in given if p.default is not p.empty}
        self.auxiliary = auxiliary
        #: The input that only its gradient reads in MXNet.
        self.unread = unread
        self.axes = axes or {}
        self.optional = optional
        #: For a binary operation, the names of those with a number as second and as first operand.
        self.numbers: tuple[str, str] | None = None
        self._outputs = outputs
        self.visible = visible
        #: Infers shapes of inputs from those of others: rule(shapes, settings).
        self.shapes: Callable[..., dict[str, tuple[int, ...]]] | None = None
        self.__name__ = self.name.lstrip("_")
        self.__doc__ = function.__doc__
        for name in names:
            TABLE[name] = self

    def infer(self, rule: Callable[..., dict[str, tuple[int, ...]]]) -> Any:
        """Declare how shapes of parameters follow from the first input's shape and the settings."""
        self.shapes = rule
        return rule

    def follows(
        self, inputs: list[tuple[int, ...] | None], settings: dict[str, Any]
    ) -> list[tuple[int, ...] | None]:
        """The shapes of a node's inputs, completed by those that follow from the first one's."""
        if self.shapes is None or not inputs or inputs[0] is None:
            return inputs
        rule = self.shapes({"data": inputs[0]}, **self.checked(settings))
        names = self.wanted(settings)
        names = names if len(names) == len(inputs) else self.inputs
        found = (rule.get(name) for name in names)
        pairs = zip_longest(inputs, found)
        return [shape if shape is not None else rule_says for shape, rule_says in pairs]

    def told(self, inputs: list[Spec], settings: dict[str, Any]) -> list[Spec] | None:
        """The specs of its outputs, for operations where a trace cannot find them; else None."""
        return None

    def outputs(self, settings: dict[str, Any]) -> int:
        """The number of outputs that a node with these settings has in files."""
        if isinstance(self._outputs, int):
            return self._outputs
        return self._outputs({**self.defaults, **settings})

    def wanted(self, settings: dict[str, Any]) -> tuple[str, ...]:
        """The names of the inputs of a node with these settings."""
        left_out = {
            "bias": settings.get("no_bias", self.defaults.get("no_bias")),
            "gamma": self.name == "LeakyReLU" and settings.get("act_type") != "prelu",
            "state_cell": settings.get("mode") != "lstm",
            "sequence_length": not settings.get("use_sequence_length"),
            "length": not settings.get("use_length"),
            "weights": settings.get("weighted") is False,
            "data_lengths": not settings.get("use_data_lengths"),
            "label_lengths": not settings.get("use_label_lengths"),
        }
        count = len(self.inputs) - self.optional
        return tuple(
            name for i, name in enumerate(self.inputs) if i < count or not left_out.get(name, True)
        )

    def checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings that have a meaning. Raises `UnknownKeywordError` for unknown ones,
        suggesting one, and `ArgumentError` for texts that are no numbers."""
        found = {}
        for name, value in settings.items():
            if name in self.settings:
                found[name] = plain(value)
                if isinstance(value, str) and name in self.numeric:
                    found[name] = self._number(name, value)
            elif name not in IGNORED:
                hint = suggestion(name, (*self.inputs, *self.settings))
                raise UnknownKeywordError(f"{self.name}: unknown keyword {name!r}{hint}")
        return found

    def _number(self, name: str, text: str) -> float:
        """The number that a setting is, given as text."""
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
        raise ArgumentError(f"{self.name}: {name} is {text!r}; it must be a number")

    def apart(
        self, given: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What is given by position, as inputs and settings. Raises `OperandError` if there is more
        than the operation takes, or a setting is also among the keywords."""
        count = len(self.inputs)
        most = count + len(self.settings)
        if len(given) > most:
            takes = ", ".join((*self.inputs, *self.settings)) or "none"
            raise OperandError(
                f"{self.name}: {len(given)} arguments by position; it takes at most {most}: {takes}"
            )
        settings = dict(zip(self.settings, given[count:], strict=False))
        for name in settings:
            if name in keywords:
                raise OperandError(
                    f"{self.name}: {name} is given twice, by position and by name; after its "
                    f"{count} inputs come the settings {', '.join(self.settings)}"
                )
        return given[:count], settings

    def check_any(self, inputs: Any) -> None:
        """Raises `ShapeError` for an operation on any number of arrays that is given none."""
        if self.variadic and "data" in self.axes and not inputs:
            raise ShapeError(f"{self.name}: needs at least one array")

    @calls_itself
    def __call__(
        self, *inputs: Any, name: str | None = None, out: Any = None, **keywords: Any
    ) -> Any:
        """The operation on arrays, or on the symbols of a trace; `name` is for `gemel.symbol`."""
        given = {key: keywords.pop(key) for key in self.inputs if key in keywords}
        if self.variadic and "data" in keywords and not inputs:
            inputs = tuple(keywords.pop("data"))
        several = self.variadic and 0 < len(inputs) <= 1 + len(self.settings)
        if several and isinstance(inputs[0], (list, tuple)):
            keywords.update(zip(self.settings, inputs[1:], strict=False))
            inputs = tuple(inputs[0])
        place = None
        if not self.inputs and not any(isinstance(each, _core.Array) for each in inputs):
            inputs, place = self._placed(inputs, keywords, out)
        self.check_any(inputs)
        if not self.variadic:
            inputs, settings = self.apart(inputs, keywords)
            keywords.update(settings)
        count = len(inputs)
        while count < len(self.inputs) and self.inputs[count] in given:
            inputs = (*inputs, given.pop(self.inputs[count]))
            count += 1
        if not self.takes_lists:
            inputs, given = self._arrays(inputs, given)
        given.update(self.checked(keywords))
        if place is None:
            found = self.function(*inputs, **given)
        else:
            with place:
                found = self.function(*inputs, **given)
        if isinstance(out, (list, tuple)):
            for target, each in zip(out, found, strict=True):
                target[...] = each
            return out
        if out is not None:
            out[...] = found
            return out
        return found

    def _arrays(
        self, inputs: tuple[Any, ...], given: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs by position and by name, as arrays or symbols."""
        names = ("data",) * len(inputs) if self.variadic else self.inputs
        several = len(inputs) + len(given) > 1
        pairs = zip(names, inputs, strict=False)
        arrays = tuple([self._array(key, value, several) for key, value in pairs])
        return arrays, {key: self._array(key, value, several) for key, value in given.items()}

    def _array(self, name: str, value: Any, several: bool) -> Any:
        """An input as an array or symbol. Raises `TypeError` and `ShapeError`.

        Numbers among several inputs stay numbers, unless `axes` says what they must be: they do not
        decide on the result's dtype.
        """
        if value is None and name in self.defaults:
            return None
        if name in self.axes:
            return array_of(self.name, name, value, self.axes[name])
        is_number = several and isinstance(value, (bool, int, float, complex))
        return value if is_number or isinstance(value, Entry) else operand(value)

    def _placed(
        self, settings: tuple[Any, ...], keywords: dict[str, Any], out: Any
    ) -> tuple[tuple[Any, ...], Device | None]:
        """The settings of an operation that creates an array, and the array's device.

        A device may be among the positional settings: MXNet 1's functions have it before the dtype.
        Missing settings are taken from `out`. Raises `DeviceError` if there is no such device.
        """
        places: list[Any] = [each for each in settings if isinstance(each, Device)]
        places += [keywords[key] for key in DEVICES if keywords.get(key) is not None]
        settings = tuple(each for each in settings if not isinstance(each, Device))
        if not self.variadic and len(settings) > len(self.settings):  # None in place of a device
            settings = tuple(each for each in settings if each is not None)
        if isinstance(out, _core.Array):
            places.append(out.device)
            if "shape" in self.settings[len(settings) :]:
                keywords.setdefault("shape", out.shape)
        place = next((each for each in places if not isinstance(each, str)), None)  # files: text
        return settings, None if place is None else as_device(place)

    def __repr__(self) -> str:
        return f"<legacy operation {self.name}>"


def legacy(*names: str, **options: Any) -> Callable[[Callable[..., Any]], Legacy]:
    """Declare an operation of MXNet under these names."""
    return lambda function: Legacy(function, names, **options)


def same(function: Any, *names: str, **options: Any) -> Legacy:
    """Declare that a function of `np` or `npx` is an operation of MXNet, with the same keywords.

    Calls of the function are exported as this operation.
    """
    function = unwrap(function)
    found = Legacy(function, names, **options)
    found.takes_lists = True

    def rule(**given: Any) -> Written:
        inputs = tuple(given[name] for name in found.inputs if given[name] is not None)
        kept = {
            name: given[name]
            for name in found.settings
            if name not in IGNORED and given[name] is not None
        }
        return Written(found.name, inputs, kept)

    WRITERS.setdefault(function.__name__, rule)
    return found


def written(*names: str) -> Callable[[Callable[..., Any]], Any]:
    """Declare how calls of these functions are exported: rule(**arguments) -> Written.

    If the rule returns None, the calls that they make are exported instead.
    """

    def declare(rule: Callable[..., Any]) -> Any:
        WRITERS.update(dict.fromkeys(names, rule))
        return rule

    return declare


def load() -> dict[str, Legacy]:
    """Import all modules and return the complete table."""
    for module in MODULES:
        import_module(f"gemel.legacy.{module}")
    return TABLE


def known() -> list[str]:
    """The names of all operations."""
    return sorted(load())


def wanted(name: str) -> Legacy | None:
    """The operation called `name`, in any of the spellings of MXNet 1 and 2; None for none."""
    table = load()
    if name in table:
        return table[name]
    from gemel.legacy.derived import derived  # it imports this module

    return derived(name)


def find(name: str, where: str = "") -> Legacy:
    """The operation called `name`. Raises `UnknownNameError`, suggesting the nearest."""
    found = wanted(name)
    if found is None:
        error = unknown_name("operation", name, ())
        hint = suggestion(name, known())
        error = UnknownNameError(f"{where}unknown operation {name!r}{hint}")
        raise error
    return found


__all__ = [
    "IGNORED",
    "IMAGES",
    "WRITERS",
    "Legacy",
    "Written",
    "find",
    "known",
    "legacy",
    "load",
    "same",
    "wanted",
    "written",
]
