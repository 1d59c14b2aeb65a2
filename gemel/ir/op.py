"""Op: one operation, declared once. Its kinds are in `op_kinds`, its decorators in `declare`.

Everything else -- public function, imperative call, tracing, gradient, kernel, tests -- reads the
declaration. Positional arguments are arrays (or Python numbers, which are weak run-time operands);
keyword-only arguments are static parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemel import _core
from gemel.errors import DTypeError, ShapeError, suggestion, unknown_name
from gemel.extent import Dim
from gemel.ir.above import above
from gemel.ir.graph import Entry, Node
from gemel.ir.keywords import OUT, static
from gemel.ir.known import of_known, of_numbers
from gemel.ir.late import load
from gemel.ir.methods import REGISTRY, call
from gemel.ir.precision import LOW, WIDE, WIDEST, declared
from gemel.ir.public import FILLING, filling, make_method, make_operator, publish
from gemel.ir.signature import VARIADIC, signature_of
from gemel.ir.trace import current_trace, shows_another
from gemel.spec import Spec

#: What NumPy and MXNet call the first two arrays a function takes.
OPERANDS = (("a", "x", "x1", "data", "lhs", "array", "m"), ("b", "x2", "rhs"))

#: The flag Python marks a function of any number of arrays with.
CO_VARARGS = 0x04

#: The types of the inputs of a call on nothing but symbols, and of whole numbers.
ENTRIES, WHOLES = {Entry}, {int, Dim}


def numpy() -> Any:
    """NumPy, imported on first use: nothing on the way to a cached inference needs it."""
    import numpy

    return numpy


def _is_tried_out(known: Op, function: Callable[..., Any]) -> bool:
    """Whether a program or notebook declares its own operation again."""
    return known.function.__module__ == function.__module__ == "__main__"


class Op(_core.OpBase):
    """A named operation: its NumPy reference and the rules that hang on it.

    `public` is the namespace that has it under its name and its `aliases`, `method` whether (or as
    what) arrays have it, `operator` Python's special method it is ("add").

    `outputs` is how many results it has, `updates` which inputs it overwrites (input -> output),
    `names` the same operation under other standards (``onnx=``, ``mxnet=``). `random` operations
    take a call number; the shape of what `dynamic` ones give depends on values, so that a call
    waits for them and cannot be traced; `contracts` ones multiply and add over an axis: they are
    what time goes into; `fails` ones can fail while they run, depending on values. Calls of an
    operation that is not `recorded` lead nowhere: what they give comes from nothing.

    `moves` is how many of its inputs it only moves about, from the first (-1 for all), as views do:
    numbers of any dtype. `complex` says that it computes with complex numbers, too, and that its
    gradient is right for them. Kernels only move those; the rest is NumPy's. `common` are the
    keywords all of its kind take (`ir.keywords`).

    `alignment` says of a view that loops over its result are loops over its input, where axes of
    length 1 come and go ("reshape": the same elements in the same order, in another shape), or
    where it is repeated along such axes and new ones before them ("repeat").

    `precision` says what mixed precision does with it (`ir.precision`), where that is not what it
    does with all of its kind.
    """

    elementwise = is_light = False
    random = False
    dynamic = False
    is_holomorphic = False
    #: Whether its elements depend on where they are, not on those of its inputs alone.
    positional = False
    #: Whether it becomes machine code; NumPy does the others, in the Python lane.
    has_kernel = False
    #: How it combines elements, if it does: the name of an instruction.
    combine = ""
    #: Keywords NumPy's functions of its kind have in common, with their defaults.
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
        code = function.__code__
        lead = 1 if self.elementwise else 0  # the namespace `xp`
        self.arity = VARIADIC if code.co_flags & CO_VARARGS else code.co_argcount - lead
        self.required = self.arity - len(function.__defaults__ or ())
        keyword = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        # The core's quick way takes the results' shape from the inputs; it has room for four.
        quick = self.elementwise and "shape" not in keyword and outputs <= 4
        most = (self.arity,) if self.arity != VARIADIC else ()
        super().__init__(function.__name__, quick, keyword, *most)
        self.name = function.__name__
        self.function = function
        #: Whether gemel declares it: then its name says what it does.
        self.is_own = function.__module__.startswith("gemel.")
        self.input_names = code.co_varnames[lead : code.co_argcount]
        self.parameters = keyword
        self.defaults = dict(function.__kwdefaults__ or {})
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
        elif public in FILLING:
            self.common = OUT
        self.rules: dict[str, Callable[..., Any]] = {}
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        known = REGISTRY.get(self.name)
        if known is not None and not (public == "" and _is_tried_out(known, function)):
            raise ValueError(
                f"operation {self.name!r} is declared twice, in {known.function.__module__} and "
                f"{function.__module__}; give one of them another name"
            )
        REGISTRY[self.name] = self
        self.public, self.aliases, self.operator = public, aliases, operator
        #: What people call: itself, or its facade.
        self.face: Callable[..., Any] = self
        self.method = self.name if method is True else method
        if public:
            publish(self, self.name, public, aliases)
        if self.method:
            make_method(self, self.method)
        if operator:
            make_operator(self, operator)

    def facade(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the function people call, where its signature is not the operation's own."""
        self.face = function
        function.__name__ = function.__qualname__ = self.name
        function.__doc__ = function.__doc__ or self.__doc__
        function.__module__ = f"gemel.{self.public}"  # where pickling finds it
        publish(filling(function, self.public), self.name, self.public, self.aliases, before=self)
        if self.method:
            make_method(function, self.method)
        return function

    def extended(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what takes the calls that give more than the operation has; the core the rest."""
        function.__name__ = function.__qualname__ = self.name
        self.__doc__ = function.__doc__ or self.__doc__
        return self._declare("extended", function)

    # --- rules ------------------------------------------------------------------------------

    def _declare(self, kind: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        self.rules[kind] = rule
        self.has_kernel |= kind in ("element", "lower", "pieces", "view")
        if kind == "view":
            self.moves = 1
        return rule

    def spec(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the specs of the results: rule(*input specs, **parameters) -> Spec or a tuple."""
        return self._declare("spec", rule)

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient: rule(g, y, *inputs, **parameters) -> one entry or None per input.

        With several outputs g and y are tuples; an output nobody needs has g None.
        """
        return self._declare("gradient", rule)

    def holomorphic(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient of a holomorphic function as that of real numbers: g times the
        derivative. Of complex numbers it is g times its conjugate (see `passes.gradient`)."""
        self.complex = self.is_holomorphic = True
        return self.gradient(rule)

    def backward(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradients of wanted inputs: rule(node, gs, wanted) -> one or None each."""
        return self._declare("backward", rule)

    def element(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what the element at a position is: rule(loop, at, *inputs, **parameters).

        `at` has an `At` for each axis of the result. ``x.at(...)`` reads an input, with an `At` or
        a number for each of its axes; `loop.checked` and `loop.limited` keep numbers in range.
        """
        return self._declare("element", rule)

    def pieces(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what lies where in the result: rule(layout, *input specs, **parameters).

        It gives, for each part, the layout of what it fills and what that is: the number of an
        input, which is broadcast to it, or a float. Later parts lie over earlier ones.
        """
        return self._declare("pieces", rule)

    def lower(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the kernels: rule(emit, outputs, inputs, **parameters), see runtime.lower."""
        return self._declare("lower", rule)

    def step(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what the core does for dense arrays on the host: rule(*input specs, **parameters)
        -> `_core.SortedRows`, or None where NumPy does it."""
        return self._declare("step", rule)

    def issue(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare how calls are issued that no kernel does, nor NumPy: rule(*arrays, **parameters).

        It gives the result, an array, and is not recorded.
        """
        return self._declare("issue", rule)

    def view(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare that the result is a view of input 0: rule(layout, spec, **parameters)."""
        return self._declare("view", rule)

    def masked(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare what is combined of the elements a mask selects: rule(mask, x, **parameters)."""
        return self._declare("masked", rule)

    def put(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare how a view is written: rule(x, value, index of the result, **parameters) -> x."""
        return self._declare("put", rule)

    @property
    def __signature__(self) -> Any:
        """How it is called, for `inspect.signature`: arrays first, then its parameters."""
        return signature_of(self)

    @property
    def differentiable(self) -> bool:
        """Whether it declares a gradient."""
        return "gradient" in self.rules

    @property
    def precision(self) -> str:
        """What mixed precision does with it: `LOW`, `WIDE` or `WIDEST` of `ir.precision`."""
        by_kind = LOW if self.contracts else WIDEST if self.moves or self.is_light else WIDE
        return self.declared_precision or by_kind

    # --- meaning ----------------------------------------------------------------------------

    def infer(self, *specs: Spec, **parameters: Any) -> tuple[Spec, ...]:
        """The specs of the results, one at least. Raises `ShapeError` or `DTypeError`."""
        self.check_complex(specs)
        found = self.rules["spec"](*specs, **parameters)
        found = (found,) if isinstance(found, Spec) else tuple(found)
        if not found:  # the core has nothing to make, and nothing to wait for
            given = " and ".join(map(str, specs)) or "no arrays"
            raise ShapeError(f"{self.name}: {given}: its spec gives no results; give one at least")
        return found

    def check_complex(self, specs: Sequence[Spec]) -> None:
        """Raises `DTypeError` for complex inputs of an operation on real numbers."""
        if self.complex or self.moves:
            return
        for spec in specs:
            if spec.dtype.kind == "c":
                rule = f"{self.name}: {' and '.join(map(str, specs))}: there is no {self.name} of"
                raise DTypeError(f"{rule} complex numbers; take real(x), imag(x) or absolute(x)")

    def kernel_for(self, inputs: Sequence[Spec], results: Sequence[Spec]) -> bool:
        """Whether a call with these inputs and results becomes machine code."""
        if self.fails and "element" in self.rules and all(spec.is_empty for spec in results):
            return False  # a kernel that makes nothing checks nothing
        if not self.has_kernel or all(s.dtype.kind != "c" for s in (*inputs, *results)):
            return self.has_kernel
        alike = all(spec.dtype is results[0].dtype for spec in results)
        return alike and self.moves != 0 and self._only_moves(inputs, results[0])

    def _only_moves(self, inputs: Sequence[Spec], result: Spec) -> bool:
        """Whether the inputs that move are of the result's dtype."""
        moved = inputs if self.moves < 0 else inputs[: self.moves]
        return all(spec.dtype is result.dtype and not spec.weak for spec in moved)

    def complete(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The parameters with defaults filled in and lists made tuples. Raises `TypeError`."""
        if not parameters and len(self.defaults) == len(self.parameters):
            return {**self.defaults}
        for name in parameters:
            if name not in self.parameters:
                raise TypeError(self._unknown_keyword(name))
        full = {**self.defaults, **parameters}
        if len(full) < len(self.parameters):
            missing = next(name for name in self.parameters if name not in full)
            raise TypeError(f"{self.name}: missing keyword {missing!r}")
        return {name: static(value) for name, value in full.items()}

    def _unknown_keyword(self, name: str) -> str:
        hint = suggestion(name, self.parameters)
        takes = ", ".join(self.parameters) or "none"
        return f"{self.name}: unknown keyword {name!r}{hint} (keywords: {takes})"

    def takes(self, count: int) -> bool:
        """Whether so many inputs are what the operation takes."""
        return self.arity == VARIADIC or self.required <= count <= self.arity

    def check_count(self, count: int) -> None:
        """Raises `TypeError` unless `count` inputs are what the operation takes."""
        if not self.takes(count):
            names = ", ".join(self.input_names) or "no arrays"
            least = f"{self.required} to " if self.required < self.arity else ""
            raise TypeError(f"{self.name}: takes {least}{self.arity} inputs ({names}), got {count}")

    def check_numbers(
        self, inputs: tuple[Any, ...], specs: tuple[Spec, ...], parameters: dict[str, Any]
    ) -> None:
        """Raises `OverflowError` for whole numbers the other inputs' dtypes cannot hold."""

    def may_fail(self, inputs: Sequence[Entry]) -> bool:
        """Whether values may be such that a call on these has no result."""
        return self.fails

    # --- calls ------------------------------------------------------------------------------

    def apply(self, inputs: tuple[Any, ...], parameters: dict[str, Any]) -> tuple[Entry, ...]:
        """A node of this operation on entries and numbers: the recorded form of a call."""
        if self.dynamic:
            return of_known(self, inputs, parameters)
        trace = current_trace()
        entries = inputs
        kinds = set(map(type, inputs))
        if kinds != ENTRIES or (trace is not None and trace.contents):
            entries = tuple([above.as_entry(value, inputs) for value in inputs])
            if not kinds.isdisjoint(WHOLES):
                self.check_numbers(inputs, tuple(entry.spec for entry in entries), parameters)
        node = self.node(entries, parameters)
        found = node.entries
        if trace is not None:
            node.origin, node.part = trace.origin(), trace.part
            node.precision = trace.precision
            if trace.scopes:
                node.name = trace.named(self.name)
            if trace.paused and not shows_another(node):
                found = trace.unrecorded(found)
            for position, index in self.updates.items():
                trace.write(entries[position], found[index])
        return found

    def node(self, entries: tuple[Entry, ...], parameters: dict[str, Any]) -> Node:
        """A node of this operation. Raises `TypeError`, `ShapeError` or `DTypeError`."""
        if not self.required <= len(entries) <= self.arity:
            self.check_count(len(entries))
        specs = self.infer(*[entry.node.specs[entry.index] for entry in entries], **parameters)
        if self.random and parameters.get("call") is None:
            trace = current_trace()
            parameters = {**parameters, "call": trace.next_call() if trace else 0}
        return Node(self, entries, parameters, specs)

    def _call(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Everything the core does not do itself: symbols, creation, conversions, errors."""
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
        wider = more and self.rules.get("extended")
        if wider and set(keywords) <= set(wider.__code__.co_varnames):
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
        """Into the trace in progress, if there is one. `TraceError` for a symbol without one."""
        trace = current_trace()
        if trace is not None:
            found = of_numbers(trace, self, inputs, self.apply(inputs, parameters))
        else:
            symbol = next((value for value in inputs if isinstance(value, Entry)), None)
            if symbol is not None:
                raise symbol.left_over(self.name)
            found = above.run(self, inputs, parameters)
        return found[0] if self.outputs == 1 and len(found) == 1 else found

    def _by_name(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arrays that come by name: add(x1=..., x2=...)."""
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
        """The inputs that are given: optional ones may be None, at the end, or come by name."""
        rest = dict(keywords)
        for name in self.input_names[: len(inputs)]:
            if name in rest:
                raise TypeError(f"{self.name}: {name} is given twice, by its place and its name")
        found = (*inputs, *(rest.pop(name, None) for name in self.input_names[len(inputs) :]))
        while len(found) > self.required and found[-1] is None:
            found = found[:-1]
        missing = [i for i, value in enumerate(found) if value is None]
        if missing and len(found) > self.required:
            name = self.input_names[missing[0]]
            raise TypeError(f"{self.name}: {name} is missing, though an input after it is given")
        return found[: missing[0]] if missing else found, rest

    def _positional(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """sum(x, 0) for sum(x, axis=0), as NumPy's callers write."""
        extra = inputs[self.arity :]
        if len(extra) > len(self.parameters):
            self.check_count(len(inputs))
        named = dict(zip(self.parameters, extra, strict=False))
        twice = [name for name in named if name in keywords]
        if twice:
            raise TypeError(f"{self.name}: {twice[0]!r} is given twice")
        return inputs[: self.arity], {**named, **keywords}

    def _prepare(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The plan of a call the core has not seen (a miss), or what NumPy does for it. None sends
        the call to `_call`.
        """
        known = set(keywords) <= set(self.parameters)
        if not (known and self.takes(len(inputs))) or current_trace() is not None:
            return None
        return above.prepare(self, inputs, self.complete(keywords))

    def _record(
        self, inputs: tuple[Any, ...], keywords: dict[str, Any], outputs: tuple[Any, ...]
    ) -> Any:
        """Put a call on the tape; how the core does so with calls like it."""
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
        load()
    found = REGISTRY.get(name)
    if isinstance(found, Op):
        return found
    raise unknown_name("operation", name, (n for n, o in REGISTRY.items() if isinstance(o, Op)))


__all__ = ["Op", "find", "numpy"]
