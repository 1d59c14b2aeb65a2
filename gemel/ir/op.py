"""Op: one operation, declared once. Its kinds are in `op_kinds`, its decorators in `declare`.

Everything else -- public function, imperative call, tracing, gradient, kernel, tests -- is derived
from the declaration. The positional arguments of the declared function are arrays (or Python
numbers, which are weak run-time operands); its keyword-only arguments are static parameters::

    @op(public="np")
    def roll(a, *, shift, axis=None):      # the reference, in NumPy
        return numpy().roll(a, shift, axis)

    @roll.spec                             # rules are added by decorators
    def _(a, *, shift, axis):
        return a
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemel import _core, errors
from gemel.errors import DTypeError, GemelError, ShapeError, name_call, suggestion, unknown_name
from gemel.extent import Dim
from gemel.ir.above import above
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, Node
from gemel.ir.keywords import OUT, static
from gemel.ir.known import of_known, of_numbers
from gemel.ir.late import load
from gemel.ir.layout import Layout
from gemel.ir.methods import REGISTRY, call
from gemel.ir.precision import LOW, WIDE, WIDEST, declared
from gemel.ir.public import OUT_NAMESPACES, accepting_out, make_method, make_operator, publish
from gemel.ir.recording import unrecorded
from gemel.ir.rules import Part, RuleDecorators, Rules
from gemel.ir.signature import VARIADIC, check_declared, check_specs, code_of, signature_of
from gemel.ir.state import shows_another
from gemel.spec import Spec

#: Keywords under which NumPy and MXNet take the first and the second array.
OPERANDS = (("a", "x", "x1", "data", "lhs", "array", "m"), ("b", "x2", "rhs"))

#: The flag by which Python marks functions with `*arguments`.
CO_VARARGS = 0x04

#: The set of input types of a call on symbols only; the types of integers.
ENTRIES, WHOLES = {Entry}, {int, Dim}


def _is_tried_out(known: Op, function: Callable[..., Any]) -> bool:
    """Whether a notebook runs a cell again that declares an operation."""
    return known.function.__module__ == function.__module__ == "__main__"


class Op(_core.OpBase, RuleDecorators):
    """A named operation: its NumPy reference and its rules.

    Where it is public:
        `public` is the namespace that has it under its name and its `aliases`; `method`, whether
        arrays have it as a method (or under which name); `operator`, which special method of Python
        it implements ("add"); `names`, its names elsewhere (``onnx=``, ``mxnet=``); `common`, the
        keywords it shares with all operations of its kind (`ir.keywords`).

    What a call does:
        `outputs` is the number of results; `updates` maps inputs that it overwrites to the outputs
        that hold their new values. A `random` operation gets a call number. The shape of the result
        of a `dynamic` operation depends on values: a call waits for them and cannot be traced. An
        operation that `fails` can fail while it runs, depending on values. One that is not
        `recorded` cuts the tape: gradients do not pass through it. One that `contracts` multiplies
        and adds over an axis: such operations dominate run time.

    Which dtypes it takes:
        The first `moves` inputs (-1: all) are only moved and not computed with, for example by
        views; they may have any dtype. `complex`: it also computes with complex numbers, and its
        gradient holds for them. Kernels can move complex numbers; NumPy computes with them.

    `alignment` is for views that loops can see through: "reshape" if it only adds or removes axes
    of length 1, so that elements keep their order; "repeat" if it broadcasts along such or new
    axes.

    `precision` says how mixed precision treats it (`ir.precision`), if that differs from other
    operations of its kind.
    """

    elementwise = is_light = False
    random = False
    dynamic = False
    #: Whether an element depends on its position, not only on the inputs' elements.
    positional = False
    #: The instruction by which it combines elements ("sum"), if it is a reduction.
    combine: Any = ""
    #: Keywords that NumPy's functions of its kind share, with their defaults.
    common: Mapping[str, Any] = {}

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        public: str = "",
        aliases: tuple[str, ...] = (),
        method: str | bool = False,
        operator: str = "",
        outputs: int = 1,
        updates: dict[int, int] | None = None,
        random: bool = False,
        dynamic: bool = False,
        contracts: bool = False,
        fails: bool = False,
        common: Mapping[str, Any] | None = None,
        moves: int = 0,
        complex: bool = False,
        recorded: bool = True,
        alignment: str = "",
        precision: str = "",
        **names: str,
    ) -> None:
        self._read_signature(function)
        check_declared(type(self), function.__name__, outputs, names)
        if random and "call" not in self.parameters:
            raise TypeError(f"{function.__name__}: a random operation needs a keyword call=None")
        # The core's fast path derives the results' shape from the inputs, knows no positions and
        # draws no numbers, and has room for four results.
        alike = not (random or self.positional or "shape" in self.parameters)
        fast = self.elementwise and alike and outputs <= 4
        most = (self.arity,) if self.arity != VARIADIC else ()
        super().__init__(function.__name__, fast, self.parameters, *most)
        self.name = self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.function = function
        #: Whether gemel itself declares it, so that its name determines what it does.
        self.is_own = function.__module__.startswith("gemel.")
        self.outputs = outputs
        self.updates = updates or {}
        self.random = random
        self.dynamic = dynamic
        self.contracts = contracts
        self.has_kernel |= contracts
        self.fails = fails
        self.moves = moves
        self.complex = complex
        self.recorded = recorded
        self.alignment = alignment
        self.declared_precision = declared(precision)
        self.names = names
        if common is not None:
            self.common = common
        elif public in OUT_NAMESPACES:
            self.common = OUT
        self.rules = Rules()
        self.public, self.aliases, self.operator = public, aliases, operator
        self.method = self.name if method is True else method
        #: What users call: the operation itself, or its facade.
        self.face: Callable[..., Any] = self
        self._register()

    def _read_signature(self, function: Callable[..., Any]) -> None:
        """Inputs are the positional arguments of the reference, parameters the keyword-only ones.

        This reads the code object, because `inspect` would slow down `import gemel`.
        """
        lead = 1 if self.elementwise else 0  # the namespace `xp`
        code = code_of(function, lead)
        end = code.co_argcount
        self.arity = VARIADIC if code.co_flags & CO_VARARGS else end - lead
        self.required = self.arity - len(function.__defaults__ or ())
        self.input_names = code.co_varnames[lead:end]
        self.parameters = code.co_varnames[end : end + code.co_kwonlyargcount]
        self.defaults = dict(function.__kwdefaults__ or {})

    def _register(self) -> None:
        """Make it known by its name, and public as declared. Raises `ValueError`."""
        known = REGISTRY.get(self.name)
        if known is not None and (self.public or not _is_tried_out(known, self.function)):
            raise ValueError(
                f"operation {self.name!r} is declared twice, in {known.function.__module__} and "
                f"{self.function.__module__}; rename one of them"
            )
        REGISTRY[self.name] = self
        if self.public:
            publish(self, self.name, self.public, self.aliases)
        if self.method:
            make_method(self, self.method)
        if self.operator:
            make_operator(self, self.operator)

    def facade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the function that users call, if its signature differs from the operation's."""
        self.face = function
        function.__name__ = function.__qualname__ = self.name
        function.__doc__ = function.__doc__ or self.__doc__
        function.__module__ = f"gemel.{self.public}"  # where pickling finds it
        publish(
            accepting_out(function, self.public), self.name, self.public, self.aliases, before=self
        )
        if self.method:
            make_method(function, self.method)
        return function

    @property
    def __signature__(self) -> Any:
        """How it is called, for `inspect.signature`: arrays first, then its parameters."""
        return signature_of(self)

    @property
    def differentiable(self) -> bool:
        """Whether it declares a gradient."""
        return self.rules.gradient is not None

    @property
    def precision(self) -> str:
        """How mixed precision treats it: `LOW`, `WIDE` or `WIDEST` of `ir.precision`."""
        by_kind = LOW if self.contracts else WIDEST if self.moves or self.is_light else WIDE
        return self.declared_precision or by_kind

    # --- meaning ----------------------------------------------------------------------------

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """The specs of the results, at least one. Raises `ShapeError` or `DTypeError`."""
        self.check_complex(specs)
        if self.rules.spec is None:
            raise TypeError(f"{self.name}: it has no spec; declare one with @{self.name}.spec")
        try:
            found = self.rules.spec(*specs, **parameters)
        except GemelError as error:  # of a rule that several operations share
            if self.public:
                name_call(error, self.name)
            raise
        if not self.is_own:
            check_specs(self.name, found)
        results = (found,) if isinstance(found, Spec) else tuple(found)
        if not results:  # the core has nothing to make, and nothing to wait for
            given = " and ".join(map(str, specs)) or "no arrays"
            raise ShapeError(
                f"{self.name}: {given}: its spec rule returned no results; it must return at "
                "least one"
            )
        return results

    def check_complex(self, specs: Sequence[Spec]) -> None:
        """Raise `DTypeError` for complex inputs of an operation on real numbers."""
        if self.complex or self.moves:
            return
        for spec in specs:
            if spec.dtype.kind == "c":
                rule = f"{self.name}: {' and '.join(map(str, specs))}: there is no {self.name} of"
                raise DTypeError(f"{rule} complex numbers; use real(x), imag(x) or absolute(x)")

    def kernel_for(self, inputs: Sequence[Spec], results: Sequence[Spec]) -> bool:
        """Whether a call with these inputs and results becomes machine code."""
        by_element = self.rules.element is not None or self.rules.planned is not None
        if self.fails and by_element and all(spec.is_empty for spec in results):
            return False  # a kernel that makes nothing checks nothing
        if not self.has_kernel or all(s.dtype.kind != "c" for s in (*inputs, *results)):
            return self.has_kernel
        alike = all(spec.dtype is results[0].dtype for spec in results)
        return alike and self.moves != 0 and self._only_moves(inputs, results[0])

    def _only_moves(self, inputs: Sequence[Spec], result: Spec) -> bool:
        """Whether all inputs that are only moved have the result's dtype."""
        moved = inputs if self.moves < 0 else inputs[: self.moves]
        return all(spec.dtype is result.dtype and not spec.weak for spec in moved)

    def layouts(
        self, layout: Layout, results: Sequence[Spec], parameters: dict[str, Any]
    ) -> tuple[Layout, ...] | None:
        """The layouts of its results, which are views of an array with this layout (`view` rule).

        None if the elements have to be copied.
        """
        assert self.rules.view is not None
        found = self.rules.view(layout, *results, **parameters)
        return (found,) if isinstance(found, Layout) else found

    def parts(
        self, layout: Layout, inputs: Sequence[Spec], parameters: dict[str, Any]
    ) -> list[Part]:
        """The parts that its result with this layout consists of, by its `pieces` rule."""
        assert self.rules.pieces is not None
        return list(self.rules.pieces(layout, *inputs, **parameters))

    def complete(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with defaults filled in and lists as tuples. Raises
        `UnknownKeywordError` and `OperandError`."""
        if not parameters and len(self.defaults) == len(self.parameters):
            return {**self.defaults}
        for name in parameters:
            if name not in self.parameters:
                raise errors.UnknownKeywordError(self._unknown_keyword(name))
        full = {**self.defaults, **parameters}
        if len(full) < len(self.parameters):
            missing = next(name for name in self.parameters if name not in full)
            raise errors.OperandError(f"{self.name}: missing keyword {missing!r}")
        given = self.defaults.get
        return {key: static(value, self.name, key, given(key)) for key, value in full.items()}

    def _unknown_keyword(self, name: str) -> str:
        hint = suggestion(name, self.parameters)
        takes = ", ".join(self.parameters) or "none"
        return f"{self.name}: unknown keyword {name!r}{hint} (keywords: {takes})"

    def takes(self, count: int) -> bool:
        """Whether the operation takes `count` inputs."""
        return self.arity == VARIADIC or self.required <= count <= self.arity

    def check_count(self, count: int) -> None:
        """Raise `OperandError` unless the operation takes `count` inputs."""
        if not self.takes(count):
            names = ", ".join(self.input_names) or "no arrays"
            least = f"{self.required} to " if self.required < self.arity else ""
            raise errors.OperandError(
                f"{self.name}: takes {least}{self.arity} inputs ({names}), got {count}"
            )

    def check_numbers(
        self, inputs: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> None:
        """Raise `OverflowError` for integers that the other inputs' dtypes cannot hold."""

    def on_numbers(
        self, specs: tuple[Spec, ...], parameters: dict[str, Any], numbers: list[Any]
    ) -> tuple[Any, ...] | None:
        """Its results on Python numbers (constant folding); None if only a kernel computes them."""
        return None

    def may_fail(self, inputs: Sequence[Entry]) -> bool:
        """Whether a call on these inputs can fail when it runs, depending on their values."""
        return self.fails

    # --- calls ------------------------------------------------------------------------------

    def apply(self, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Entry, ...]:
        """The traced form of a call: a node on entries and numbers, in the trace in progress."""
        if self.dynamic:
            return of_known(self, inputs, parameters)
        trace = current_trace()
        entries = inputs
        kinds = set(map(type, inputs))
        if kinds != ENTRIES or (trace is not None and trace.state.contents):
            entries = tuple([above.as_entry(value, inputs) for value in inputs])
            if not kinds.isdisjoint(WHOLES):
                self.check_numbers(inputs, tuple(entry.spec for entry in entries), parameters)
        node = self.node(entries, parameters)
        found = node.entries
        if trace is not None:
            node.origin, node.part = trace.origin(), trace.part
            node.precision = trace.precision
            if trace.scopes.open:
                node.name = trace.scopes.named(self.name)
            if trace.recording.is_paused and not shows_another(node):
                found = unrecorded(found)
            for position, index in self.updates.items():
                trace.state.write(entries[position], found[index])
        return found

    def node(self, entries: tuple[Entry, ...], parameters: dict[str, Any]) -> Node:
        """A node of this operation. Raises `TypeError`, `ShapeError` or `DTypeError`."""
        if not self.required <= len(entries) <= self.arity:
            self.check_count(len(entries))
        specs = self.infer(*[entry.node.specs[entry.index] for entry in entries], **parameters)
        if self.random and parameters.get("call") is None:
            trace = current_trace()
            parameters = {**parameters, "call": trace.state.next_call() if trace else 0}
        return Node(self, entries, parameters, specs)

    @errors.calls_itself
    def _call(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """A call that the core leaves to Python: symbols, creation, conversions, errors."""
        if not keywords and len(inputs) == self.arity == self.required:
            return self._run(inputs, self.complete(keywords) if self.parameters else {})
        if keywords and len(inputs) < self.required:
            inputs, keywords = self._by_name(inputs, keywords)
        if self.common and (
            not self.common.keys().isdisjoint(keywords)
            or ("casting" in self.common and 0 < len(inputs) - self.arity <= self.outputs)
        ):
            return call("with_keywords", self, inputs, keywords)
        more = len(inputs) > self.arity or not set(keywords) <= set(self.parameters)
        wider: Any = self.rules.extended if more else None
        if wider is not None and set(keywords) <= set(wider.__code__.co_varnames):
            return wider(*inputs, **keywords)
        if len(inputs) > self.arity and self.arity != VARIADIC:
            inputs, keywords = self._positional(inputs, keywords)
            return self(*inputs, **keywords)
        if self.required < self.arity:
            given, rest = self._given(inputs, keywords)
            if len(given) != len(inputs) or len(rest) != len(keywords):
                return self(*given, **rest)
        return self._run(inputs, self.complete(keywords))

    def _run(self, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> Any:
        """Add a call to the trace in progress, or run it. `TraceError` for a symbol of an ended
        trace."""
        trace = current_trace()
        if trace is not None:
            found = of_numbers(trace, self, self.apply(inputs, parameters))
        else:
            symbol = next((value for value in inputs if isinstance(value, Entry)), None)
            if symbol is not None:
                raise symbol.left_over(self.name)
            found = above.run(self, inputs, parameters)
        return found[0] if self.outputs == 1 and len(found) == 1 else found

    def operated(self, *inputs: Any, **parameters: Any) -> Any:
        """What Python's operator for it gives (`a + b`, `round(x, 2)`).

        The difference from a call is in traces: an operator on numbers gives a number, whose dtype
        adapts to arrays; a function gives an array.
        """
        if current_trace() is None:
            return self(*inputs, **parameters)
        found = self.apply(inputs, self.complete(parameters))
        return found[0] if self.outputs == 1 else found

    def _by_name(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move arrays given by name to their positions: add(x1=..., x2=...)."""
        rest = dict(keywords)
        for place in range(len(inputs), self.required):
            names = (self.input_names[place], *(OPERANDS[place] if place < len(OPERANDS) else ()))
            name = next((n for n in names if n in rest and n not in self.parameters), None)
            if name is None:
                break
            inputs = (*inputs, rest.pop(name))
        return inputs, rest

    def _given(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The inputs of a call without those that are None; optional ones may be given by name."""
        rest = dict(keywords)
        for name in self.input_names[: len(inputs)]:
            if name in rest:
                raise errors.OperandError(
                    f"{self.name}: {name} is given twice, by position and by name"
                )
        found = (*inputs, *(rest.pop(name, None) for name in self.input_names[len(inputs) :]))
        while len(found) > self.required and found[-1] is None:
            found = found[:-1]
        missing = [i for i, value in enumerate(found) if value is None]
        if missing and len(found) > self.required:
            name = self.input_names[missing[0]]
            raise errors.OperandError(f"{self.name}: {name} is missing, but a later input is given")
        return found[: missing[0]] if missing else found, rest

    def _positional(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move parameters given by position to their names: sum(x, 0) is sum(x, axis=0)."""
        extra = inputs[self.arity :]
        if len(extra) > len(self.parameters):
            self.check_count(len(inputs))
        named = dict(zip(self.parameters, extra, strict=False))
        twice = [name for name in named if name in keywords]
        if twice:
            raise errors.OperandError(f"{self.name}: {twice[0]!r} is given twice")
        return inputs[: self.arity], {**named, **keywords}

    @errors.calls_itself
    def _prepare(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """For the core, on a miss of its cache: the plan of such calls, or how NumPy computes them.

        None sends the call to `_call`.
        """
        known = set(keywords) <= set(self.parameters)
        if not (known and self.takes(len(inputs))) or current_trace() is not None:
            return None
        return above.prepare(self, inputs, self.complete(keywords))

    def _record(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any], outputs: tuple[Any, ...]
    ) -> Any:
        """For the core: put a call on the tape. Returns what it needs to do so itself next time."""
        return above.record(self, inputs, self.complete(keywords), outputs)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return find, (self.name,)

    def __copy__(self) -> Op:
        return self

    def __deepcopy__(self, memo: Any) -> Op:
        return self


def find(name: str) -> Op:
    """The operation called `name`. Raises `UnknownNameError`, suggesting the nearest."""
    if name not in REGISTRY:
        load(lambda: name in REGISTRY)
    found = REGISTRY.get(name)
    if isinstance(found, Op):
        return found
    raise unknown_name("operation", name, (n for n, o in REGISTRY.items() if isinstance(o, Op)))


__all__ = ["Op", "find"]
