"""What programs in files require of their arguments: kinds, and conditions on sizes from the
trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gemel.errors import SymbolFileError
from gemel.symbol.own import decoded, holds, named_extents
from gemel.tracing.programs import Arguments


class Rules:
    """The arguments that one program of a file accepts, as described in the file by a
    dictionary."""

    def __init__(self, held: dict[str, Any], source: str) -> None:
        self.structure = structure_of(held["arguments"])
        self.inputs = [(int(ndim), str(dtype)) for ndim, dtype in held["inputs"]]
        count = len(self.inputs)
        self.names = ["data"] if count == 1 else [f"data{place}" for place in range(count)]
        self._held = {int(place): float.fromhex(value).hex() for place, value in held["held"]}
        self._extents = [str(name) for name in held["extents"]]
        self._places = [tuple(map(int, name[1:].split("_"))) for name in self._extents]
        self._guards = held["guards"]
        #: Older files have neither; their guards lack the questions about extents of 1.
        self._told = "least" in held
        self._least = int(held.get("least", 0))
        self._fixed = [tuple(map(int, each)) for each in held.get("fixed", ())]
        self._check(int(held["numbers"]), f"program file {source}")

    def _check(self, numbers: int, source: str) -> None:
        """Raise an error, usually a `SymbolFileError`, unless the parts fit together, so that calls
        need not expect anything else."""
        count, found = len(self.inputs), list(leaves(self.structure))
        if (found.count("array"), found.count("number")) != (count, numbers):
            raise SymbolFileError(
                f"{source}: its arguments are {found.count('array')} arrays and "
                f"{found.count('number')} numbers, not {count} and {numbers}"
            )
        if not all(0 <= place < numbers for place in self._held):
            raise SymbolFileError(f"{source}: it holds numbers {list(self._held)} of {numbers}")
        fixed = [(position, axis) for position, axis, _ in self._fixed]
        for position, axis in (*self._places, *fixed):
            if not (0 <= position < count and 0 <= axis < self.inputs[position][0]):
                raise SymbolFileError(f"{source}: extent n{position}_{axis}")
        sizes = dict.fromkeys(self._extents, 2)
        for guard in self._guards:  # any sizes do: the question is whether there is an answer
            holds(guard, sizes, self._told)
            self._named(str(guard[4]))

    def sizes(self, arrays: list[Any]) -> dict[str, Any]:
        """The free extents of these arguments."""
        pairs = zip(self._extents, self._places, strict=True)
        return {name: arrays[position].shape[axis] for name, (position, axis) in pairs}

    def is_kind(self, given: Arguments, exactly: bool) -> bool:
        """Whether arguments have this nesting and these axes, and if `exactly` these dtypes."""
        if plain(given.structure) != plain(self.structure):
            return False
        pairs = zip(given.arrays, self.inputs, strict=True)
        return all(
            len(x.shape) == ndim and (not exactly or x.dtype.name == dtype)
            for x, (ndim, dtype) in pairs
        )

    def admit(self, given: Arguments, exactly: bool = True) -> bool:
        """Whether the program accepts arguments like these."""
        if not self.is_kind(given, exactly):
            return False
        # Compared as text, because 0.0 and -0.0 differ there, and NaN equals itself.
        if any(float(given.numbers[place]).hex() != n for place, n in self._held.items()):
            return False
        if any(given.arrays[position].shape[axis] != n for position, axis, n in self._fixed):
            return False
        sizes = self.sizes(given.arrays)
        if any(size < self._least for size in sizes.values()):
            return False
        return all(holds(guard, sizes, self._told) for guard in self._guards)

    def broken(self, given: Arguments) -> list[str]:
        """The conditions that these arguments, which have the right kind, violate, as readable
        text."""
        sizes = self.sizes(given.arrays)
        found = [
            f"number {place} is {float.fromhex(n):g}"
            for place, n in self._held.items()
            if float(given.numbers[place]).hex() != n
        ]
        found += [
            self._named(f"n{position}_{axis} == {n}")
            for position, axis, n in self._fixed
            if given.arrays[position].shape[axis] != n
        ]
        guards = [guard for guard in self._guards if not holds(guard, sizes, self._told)]
        found += [self._named(str(guard[4])) for guard in guards]
        small = [name for name, size in sizes.items() if size < self._least]
        return found or [self._named(f"{self._least} <= {name}") for name in small]

    def kinds(self) -> str:
        """The kinds of its arguments, as readable text."""
        return written(self.structure, (f"{dtype} of {ndim} axes" for ndim, dtype in self.inputs))

    def _named(self, text: str) -> str:
        return named_extents(text, self.names)


# --- how arguments are nested ---------------------------------------------------------------


def plain(structure: Any) -> Any:
    """A structure without the types of its containers' values."""
    if structure is None:
        return None
    kind, *rest = structure
    if kind == "number":
        return "number"
    if kind == "static":
        return "static", rest[-1]
    if issubclass(kind, dict):
        return dict, tuple((str(name), plain(item)) for name, item in rest[0])
    return list if kind is list else tuple, tuple(plain(item) for item in rest[0])


def leaves(structure: Any) -> Iterator[str]:
    """The leaves of a structure, each "array" or "number"."""
    if structure is None:
        yield "array"
        return
    kind, *rest = structure
    if kind == "number":
        yield "number"
    elif kind != "static":
        for item in rest[0]:
            yield from leaves(item[1] if issubclass(kind, dict) else item)


def written(arguments: Any, arrays: Iterable[str]) -> str:
    """The arguments of a call as readable text, from their structure and a text for each array."""
    texts = iter(arrays)

    def text(structure: Any) -> str:
        if structure is None:
            return next(texts)
        kind, *rest = structure
        if kind == "number":
            return "a number"
        if kind == "static":
            return repr(rest[-1])
        if issubclass(kind, dict):
            return "{" + ", ".join(f"{name!r}: {text(item)}" for name, item in rest[0]) + "}"
        items = ", ".join(map(text, rest[0]))
        return f"[{items}]" if kind is list else f"({items})"

    return text(arguments)[1:-1] or "no arguments"


def structure_of(held: Any) -> Any:
    """Read the structure from the JSON of a file."""
    if held == "array":
        return None
    if held == "number":
        return ("number",)
    ((kind, items),) = held.items()
    if kind == "static":
        value = decoded(items, {})
        return "static", type(value), value
    if kind == "dict":
        return dict, tuple((str(name), structure_of(item)) for name, item in items)
    return {"list": list, "tuple": tuple}[kind], tuple(structure_of(item) for item in items)


__all__ = ["Rules", "leaves", "plain", "structure_of", "written"]
