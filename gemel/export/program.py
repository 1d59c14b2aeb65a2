"""One file with a program and its weights: what `gemel.save` writes and `gemel.load` reads.

The file is little-endian: ``gemel``, a zero, u16 version; u64 the program's length, u32 its CRC-32;
the program (JSON); the weights (in the format of `npx.save`, with their own checksum). Every field
is checked against the file's size before it is used, and no code in the file is run: a program
names gemel's operations, and their parameters are numbers.
"""

from __future__ import annotations

import json
import os
from struct import pack, unpack_from
from typing import Any
from zlib import crc32

from gemel.arrays.archives import appear, contents
from gemel.device import as_device
from gemel.errors import ExportError, GemelError, ShapeError, SymbolFileError
from gemel.export.rules import Rules, leaves, structure_of, written
from gemel.gluon.block import Block
from gemel.gluon.hybrid import HybridBlock
from gemel.gluon.parameter import Parameter
from gemel.npx import serialize
from gemel.symbol import json as symbols
from gemel.symbol.export import Exported, exported
from gemel.symbol.node import nodes_of
from gemel.symbol.own import encoded, encoded_guard
from gemel.symbol.run import run
from gemel.tracing.compiled import Compiled
from gemel.tracing.nested import unflatten, with_named
from gemel.tracing.programs import Arguments

MAGIC = b"gemel\0"
VERSION = 1
HEAD = len(MAGIC) + 2 + 8 + 4


# --- writing --------------------------------------------------------------------------------


def save(obj: Any, path: Any) -> None:
    """Write a network or a compiled function, with its weights, into one file.

    `obj` is a `HybridBlock` or a result of `gemel.compile` that has been called at least once: the
    call determines the number and kinds of its arguments. If it depends on sizes, as in ``if
    x.shape[0] > 1``, the file is valid for sizes with the same answers, and for others if it has
    been called on such. Loops of `npx.foreach` and recurrent layers are saved for all lengths.
    `gemel.load` needs neither class nor source. The file appears complete or not at all. Raises
    `ExportError` for anything that is not a program.
    """
    if isinstance(obj, HybridBlock):
        kinds = _kinds_of_block(obj)
    elif isinstance(obj, Compiled):
        kinds = [(obj.function, given) for given in obj.variants()]
    else:
        hint = "derive it from HybridBlock" if isinstance(obj, Block) else "use npx.save for arrays"
        raise ExportError(
            f"save: {type(obj).__name__} is neither a HybridBlock nor a compiled function; {hint}"
        )
    if not kinds:
        raise ExportError(
            f"save: call {obj.name} once first; the arguments determine what is saved"
        )
    programs: list[Any] = []
    arrays: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    held: dict[str, Any] = {}
    for function, given in kinds:
        if any(Rules(program, obj.name).admit(given) for program in programs):
            continue
        found = exported(function, given, own=True, held=held)
        programs.append(_described(found, given))
        arrays.update(found.variables)
        settings.update({name: _settings(p) for name, p in found.parameters.items()})
    content = {"name": obj.name, "programs": programs, "parameters": settings}
    program = json.dumps(content, separators=(",", ":")).encode()
    head = MAGIC + pack("<HQI", VERSION, len(program), crc32(program))
    appear(os.fspath(path), [head, program, *serialize.parts(arrays)])


def _kinds_of_block(block: HybridBlock) -> list[Any]:
    kinds = block._own.compiled.variants() if block._own.compiled is not None else []
    return [(block._run, given) for given in kinds or [block._last_call("save")]]


def _settings(parameter: Parameter) -> dict[str, Any]:
    return {
        "grad_req": parameter.grad_req,
        "lr_mult": parameter.lr_mult,
        "wd_mult": parameter.wd_mult,
    }


def _described(found: Exported, given: Arguments) -> dict[str, Any]:
    trace = found.trace
    held = {int(str(e.node.name)[6:]): value.hex() for e, value in trace.inputs.specialized.items()}
    return {
        "arguments": _structure(given.structure),
        "inputs": [[len(x.shape), x.dtype.name] for x in given.arrays],
        "numbers": len(given.numbers),
        "held": [[place, value] for place, value in held.items()],
        "results": _structure(found.structure),
        "updates": found.updated,
        "extents": list(trace.extents.dims),
        "least": trace.extents.least,
        "fixed": found.fixed,
        "guards": [encoded_guard(guard) for guard in found.guards],
        "symbol": symbols.written(found.heads),
    }


def _structure(structure: Any) -> Any:
    """The nesting of arguments or results, as JSON."""
    if structure is None:
        return "array"
    kind, *rest = structure
    if kind == "number":
        return "number"
    if kind == "static":
        return {"static": encoded(rest[1])}
    if issubclass(kind, dict):
        return {"dict": [[str(name), _structure(item)] for name, item in rest[0]]}
    items = [_structure(item) for item in rest[0]]
    return {"list" if kind is list else "tuple": items}


# --- reading --------------------------------------------------------------------------------


def load(path: Any, device: Any = None, ctx: Any = None) -> Loaded:
    """Load the network or function of a file written by `save`, as a block that can be called,
    trained or saved again.

    Raises `SymbolFileError`, naming the field and the position, for a file that is damaged,
    truncated or not a program file, and `MissingFileError` if there is none.
    """
    source = os.fspath(path)
    content = contents("gemel.load", source)

    def damaged(problem: str) -> SymbolFileError:
        return SymbolFileError(f"program file {source}: {problem}")

    if len(content) < HEAD or not content.startswith(MAGIC):
        raise damaged(f"is not a program file: its first bytes are {content[:8]!r}")
    version, length, check = unpack_from("<HQI", content, len(MAGIC))
    if version != VERSION:
        raise damaged(f"has version {version}; this gemel reads {VERSION}")
    if length > len(content) - HEAD:
        raise damaged(f"is truncated: its program takes {length} bytes from byte {HEAD}")
    program = content[HEAD : HEAD + length]
    if crc32(program) != check:
        raise damaged(f"is damaged between byte {HEAD} and byte {HEAD + length}: checksum")
    place = as_device(device if device is not None else ctx)
    weights = serialize.read(f"{source} from byte {HEAD + length}", content[HEAD + length :], place)
    try:
        return Loaded(json.loads(program), weights or {}, source)
    except (
        LookupError,
        TypeError,
        ValueError,
        ArithmeticError,
        AttributeError,
        RecursionError,
    ) as error:
        if isinstance(error, GemelError):
            raise
        raise damaged(f"its program cannot be read: {type(error).__name__}: {error}") from None


class _Saved:
    """One program of a file: for arguments of one kind."""

    def __init__(self, held: dict[str, Any], source: str) -> None:
        self.rules = Rules(held, source)
        self.heads = symbols.read(held["symbol"], source)
        self.results = structure_of(held["results"])
        self.names = self.rules.names
        self.numbers = [f"number{place}" for place in range(int(held["numbers"]))]
        self.updates = [str(name) for name in held["updates"]]
        kinds = [*leaves(self.results), *("array" for _ in self.updates)]
        if kinds != ["array"] * len(self.heads):
            raise SymbolFileError(
                f"program file {source}: its graph has {len(self.heads)} results, where "
                f"{len(kinds)} arrays are wanted"
            )

    def run(self, given: Arguments, parameters: dict[str, Any]) -> Any:
        """The results for these arguments."""
        values = {**parameters, **dict(zip(self.numbers, given.numbers, strict=True))}
        values.update(zip(self.names, given.arrays, strict=True))
        found = run(self.heads, values, self.rules.sizes(given.arrays))
        count = len(found) - len(self.updates)
        for name, value in zip(self.updates, found[count:], strict=True):
            parameters[name][...] = value
        return unflatten(self.results, iter(found[:count]))


class Loaded(HybridBlock):
    """A program from a file, with its weights as parameters."""

    def __init__(self, held: dict[str, Any], weights: dict[str, Any], source: str) -> None:
        super().__init__(prefix="")
        self._title = str(held["name"])
        self._saved = [_Saved(each, source) for each in held["programs"]]
        given: set[str] = {n for s in self._saved for n in (*s.names, *s.numbers)}
        wanted = {n.name for s in self._saved for n in nodes_of(s.heads) if n.is_variable} - given
        wanted.update(name for saved in self._saved for name in saved.updates)
        if not isinstance(weights, dict) or wanted - weights.keys():
            missing = ", ".join(sorted(wanted - set(weights)))
            raise SymbolFileError(f"program file {source}: the weights lack {missing}")
        for name, value in weights.items():
            settings = held["parameters"].get(name, {"grad_req": "null"})
            parameter = Parameter(name, shape=value.shape, dtype=value.dtype, **settings)
            parameter.initialize("zeros", value.device)
            parameter.set_data(value)
            self._register_parameter(name, parameter)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Run the program. Raises `ShapeError` for arguments of another kind, or of sizes for which
        the file is not valid."""
        given = Arguments.of(with_named(arguments, named))
        for exactly in (True, False):
            for saved in self._saved:
                if saved.rules.admit(given, exactly):
                    values = {name: p.data() for name, p in self._reg_params.items()}
                    return saved.run(given, values)
        raise self._unlike(given)

    def _unlike(self, given: Arguments) -> ShapeError:
        """The error for arguments that fit no program of the file."""
        of_kind = [saved.rules for saved in self._saved if saved.rules.is_kind(given, False)]
        rules = of_kind or [saved.rules for saved in self._saved]
        limits = (" where " + " and ".join(each.broken(given)) if of_kind else "" for each in rules)
        kinds = dict.fromkeys(a.kinds() + limit for a, limit in zip(rules, limits, strict=True))
        had = written(given.structure, (str(x.spec) for x in given.arrays))
        hint = "; call it on such arguments before gemel.save, the file is then for both"
        return ShapeError(
            f"{self._title}: was saved for {' or '.join(kinds)}, not for {had}"
            + (hint if of_kind else "")
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._title})"


__all__ = ["Loaded", "load", "save"]
