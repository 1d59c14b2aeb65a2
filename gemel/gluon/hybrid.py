"""Hybrid blocks: their `forward` also works on symbols, so that `hybridize()` can compile it.

A call of a hybridized block runs its program (`tracing.Compiled`), which is made at the first call.
It runs as Python code instead while another program is traced (the block becomes part of that one),
while hooks inside it have to be called, or if its results cannot be compiled.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel.dtype import float32
from gemel.errors import ExportError, PythonGivenError, SymbolGivenError
from gemel.gluon import facade
from gemel.gluon.block import Block, BlockError
from gemel.ir import precision
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry, walk
from gemel.ndarray import ndarray
from gemel.ranges import check_flag
from gemel.tracing import compiled
from gemel.tracing.manners import are_nd
from gemel.tracing.nested import by_place, flatten, with_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from gemel.gluon.parameter import ParameterDict


class HybridBlock(Block):
    """A block that can be compiled: after `hybridize()` the next call compiles it.

    Subclasses define ``forward(self, x)``, or ``hybrid_forward(self, F, x, **parameters)``, which
    gets the operations (`F.np`, `F.npx`, and their names directly) and its own parameters.
    """

    def __init__(
        self, prefix: str | None = None, params: ParameterDict | None = None, **unknown: Any
    ) -> None:
        super().__init__(prefix, params, **unknown)
        self._active = False

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block`, which must be a `HybridBlock` too, a part of this block."""
        if isinstance(block, Block) and not isinstance(block, HybridBlock):
            raise BlockError(
                f"{type(self).__name__} can only contain HybridBlocks, but {block.name} is a "
                f"{type(block).__name__}, which is a plain Block: derive it from HybridBlock, or "
                "use Block or Sequential here"
            )
        super().register_child(block, name)

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Compile this block at its next call; with ``active=False`` run it as Python again.

        The outermost hybridized block that is called becomes one program. `flags` are accepted for
        old code.
        """
        check_flag("hybridize", "active", active)
        self._active = active
        self._own.given_up = None
        self._forget()
        for child in self._children.values():
            child.hybridize(active)

    def _hybridize_inside(self, place: str, active: bool, plain: list[str]) -> None:
        self.hybridize(active)

    def _drop_program(self) -> None:
        if self._own.compiled is not None:
            self._forget()
        super()._drop_program()

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is Entry and type(self.__dict__.get(name)) is ndarray:
            warnings.warn(
                f"{self.name}: forward replaces the array self.{name}, but a hybridized block runs "
                "this line once, when it is traced, so later calls change nothing; keep what "
                "changes from call to call in a Parameter with grad_req='null', and write to it: "
                f"self.{name}.data()[:] = ...",
                stacklevel=2,
            )
        super().__setattr__(name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the block: its program if it is hybridized, else its Python. Symbols give symbols."""
        program = self._own.program
        if program is not None and not keywords:
            try:
                return program(*arguments)
            except SymbolGivenError:
                return symbol_block().composed(self, arguments)
            except PythonGivenError as error:
                return self._never_whole(error, arguments)
        trace = current_trace()
        hooks = self._forward_hooks or self._forward_pre_hooks
        if trace is not None and not hooks and arguments and type(arguments[0]) is Entry:
            return self._within(trace, *arguments, **keywords)
        if not self._active or trace is not None or self._in_parts():
            return self._imperatively(arguments, keywords)
        if keywords:
            arguments, keywords = self._by_place(arguments, keywords)
        if self._forward_hooks or self._forward_pre_hooks or self._own.op_hook:
            return super().__call__(*arguments, **keywords)
        run = self._compiled_run()
        self._own.program = run.quick
        try:
            return run(*arguments, **keywords)
        except SymbolGivenError:
            return symbol_block().composed(self, with_named(arguments, keywords))
        except PythonGivenError as error:
            return self._never_whole(error, arguments, keywords)

    def _in_parts(self) -> bool:
        """Whether the children are compiled separately, because hooks inside have to be called.

        A block with an op hook of its own stays whole: its program also returns the inner results.
        """
        if self._own.in_parts is None:
            inside = any(child._has_hooks for child in self._children.values())
            self._own.in_parts = inside and self._own.op_hook is None
        return self._own.in_parts

    def _never_whole(
        self, error: Exception, arguments: tuple[Any, ...], keywords: dict[str, Any] | None = None
    ) -> Any:
        """Give up compiling the block as a whole: warn, and run it as Python from now on."""
        name = self.name or type(self).__name__
        warnings.warn(f"{name} is not compiled as a whole: {error}", stacklevel=3)
        self._active, self._own.given_up = False, str(error)
        self._forget()
        return self._imperatively(arguments, keywords or {})

    def _imperatively(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Run the Python code on arrays or on a trace's symbols, or compose MXNet's symbols."""
        first = type(arguments[0]) if arguments else None
        if first is not ndarray:
            if first is not Entry and holds_symbols((*arguments, *keywords.values())):
                if keywords:
                    arguments = with_named(*self._by_place(arguments, keywords))
                return symbol_block().composed(self, arguments)
        elif not (
            self._forward_hooks
            or self._forward_pre_hooks
            or precision.current() is not None
            or self._own.precision is not None
            or current_trace() is not None
        ):
            return self._forwarded(*arguments, **keywords)  # fewer frames on the common path
        return super().__call__(*arguments, **keywords)

    def _run(self, *arguments: Any, **keywords: Any) -> Any:
        trace = current_trace()
        if trace is not None:
            return self._within(trace, *arguments, **keywords)
        if not self._active or self._in_parts():
            around = precision.current()
            wanted = self._precision(around)
            if wanted == around:
                return self._forwarded(*arguments, **keywords)
            with precision.scope(wanted):
                return self._forwarded(*arguments, **keywords)
        found = self._compiled_run()(*arguments, **keywords)
        if self._own.op_hook is None:
            return found
        result, seen = found
        for (name, operation), value in seen.items():
            self._own.op_hook[0](name, operation, value)
        return result

    def _traced(self, trace: Any, *arguments: Any, **keywords: Any) -> Any:
        """Run the block's Python on symbols, with its prefix in the names of nodes."""
        wanted = self._precision(trace.precision)
        if wanted != trace.precision:
            with precision.scope(wanted):
                return self._traced(trace, *arguments, **keywords)
        trace.scopes.open.append(self)
        try:
            return self._forwarded(*arguments, **keywords)
        finally:
            trace.scopes.open.pop()

    def _precision(self, around: Any) -> Any:
        """The mixed precision that applies inside the block if `around` applies outside."""
        wanted = around if self._own.precision is None else self._own.precision
        if wanted is None or wanted.dtype is float32 or wanted.excludes(self.name):
            return None
        return wanted

    def _within(self, trace: Any, *arguments: Any, **keywords: Any) -> Any:
        """Run within the trace of another program, which records the block's structure."""
        trace.scopes.ran(self)
        return self._traced(trace, *arguments, **keywords)

    def _compiled_run(self) -> Any:
        """The block's program, created when it is first needed."""
        program = self._own.compiled
        if program is None:
            function = self._whole if self._own.op_hook is None else self._with_operations
            program = self._own.compiled = compiled.Compiled(function, name=self.name)
            program.inside, program.owns = self._run, True
        return program

    def _whole(self, *arguments: Any, **keywords: Any) -> Any:
        """The function from which the block's own program is traced."""
        return self._traced(current_trace(), *arguments, **keywords)

    def _with_operations(self, *arguments: Any, **keywords: Any) -> tuple[Any, dict[Any, Any]]:
        """The result, and for an op hook the results of all operations by (name, operation)."""
        result = self._whole(*arguments, **keywords)
        results: list[Any] = []
        flatten(result, results, [])
        monitor_all = self._own.op_hook[1]
        seen: dict[Any, Any] = {}
        for number, node in enumerate(walk(results)):
            operation = node.op.name if node.op else "null"
            for entry in node.entries if node.op or monitor_all else ():
                if not entry.spec.weak:
                    name = node.name or f"{self.name}_{operation}{number}"
                    seen[f"{name}_output{entry.index or ''}", operation] = entry
        return result, seen

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Have ``callback(name, operation, array)`` called for the result of every operation."""
        super().register_op_hook(callback, monitor_all)
        self._own.op_hook = callback, monitor_all
        self._changed()

    def optimize_for(self, x: Any, *arguments: Any, backend: Any = None, **flags: Any) -> None:
        """Hybridize, and compile for these inputs now. There is one backend, gemel's."""
        self.hybridize(True, backend=backend, **flags)
        self(x, *arguments)

    def _forget(self) -> None:
        """Discard the program, because structure, parameters or hooks have changed."""
        if self._own.compiled is not None:
            self._own.last = self._own.last_call()
        self._own.compiled = self._own.program = None

    def _last_call(self, what: str) -> Any:
        """The kind of arguments of the last call of the block's program, for which `what` writes
        it. Raises `ExportError`, which says why there is no program."""
        own = self._own
        last = own.last_call()
        if last is not None:
            return last
        name = self.name or type(self).__name__
        if own.given_up is not None:
            raise ExportError(
                f"{what}: {name} has no program, because it is not compiled as a whole: "
                f"{own.given_up}"
            )
        if self._active and self._in_parts():
            raise ExportError(
                f"{what}: {name} has no program, because hooks inside it have to be called: "
                "detach them, and call net(x) once"
            )
        raise ExportError(
            f"{what}: {name} has not been called since hybridize(): call net.hybridize() and then "
            "net(x) once, which determines the number, shapes and dtypes of its inputs"
        )

    def _by_place(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of `forward` by position as far as they have one, and the others.

        So a call has the same program, however its arguments are given.
        """
        signature, lead = self._signature()
        placed, left = by_place(self.name, signature, (*lead, *arguments), keywords)
        return placed[len(lead) :], left

    def _signature(self) -> tuple[Any, tuple[Any, ...]]:
        """The signature to use, and the arguments before the user's: `forward`, or else
        `hybrid_forward`, where the block's own parameters, and everything after them, are passed by
        name.
        """
        import inspect  # it takes long to load, and a first inference does not need it

        if type(self).forward is not HybridBlock.forward:
            return inspect.signature(self.forward), ()
        signature, own = inspect.signature(self.hybrid_forward), self._own_parameters()
        found, behind = [], False
        for each in signature.parameters.values():
            if each.name in own:
                behind = True
            elif behind and each.kind is each.POSITIONAL_OR_KEYWORD:
                found.append(each.replace(kind=each.KEYWORD_ONLY))
            else:
                found.append(each)
        return signature.replace(parameters=found), (None,)

    def _own_parameters(self) -> dict[str, Any]:
        """The parameters that `hybrid_forward` receives, by name."""
        return {n: p for n, p in self._reg_params.items() if self.__dict__.get(n) is p}

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Compute the block's result; by default calls `hybrid_forward`."""
        own = {name: parameter.data() for name, parameter in self._own_parameters().items()}
        if own and are_nd((*arguments, *keywords.values())):
            own = {name: array.as_nd_ndarray() for name, array in own.items()}
        operations = facade.operations(symbols=current_trace() is not None)
        return self.hybrid_forward(operations, *arguments, **keywords, **own)

    def hybrid_forward(self, F: Any, *arguments: Any, **parameters: Any) -> Any:  # noqa: N803
        """Compute the block's result; MXNet 1's form of `forward`."""
        raise NotImplementedError(
            f"{type(self).__name__} has neither forward(self, x) nor hybrid_forward(self, F, x)"
        )

    def source(self, *arguments: Any) -> str:
        """The kernels of this hybridized block as C source, for reading.

        For arguments like these, or like those of the last call; see `compiled.Compiled.source`.

        >>> net = gluon.nn.Dense(2, activation="relu", in_units=3)
        >>> net.initialize()
        >>> print(net.source(np.ones((4, 3))).splitlines()[1])
         *   kernel: matmul add relu, from 0 to 1
        """
        text: str = self._compiled_run().source(*arguments)
        return text

    # ---- MXNet's files

    def export(self, path: Any, epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write MXNet's ``PATH-symbol.json`` and ``PATH-EPOCH.params``, and return both names.

        First call the block once after `hybridize()`: that call determines the number and kinds of
        its inputs. Raises `ExportError` if MXNet lacks an operation. Warns by `ExportWarning` if
        the files are right only for some sizes, as with ``if x.shape[0] > 1`` or
        ``x * x.shape[1]``. For a converted network (`amp.convert_hybrid_block`) the original
        network is written; `remove_amp_cast=False` is an `ExportError`.
        """
        if not remove_amp_cast and self._precision(precision.current()) is not None:
            raise ExportError(
                f"export: {self.name}: MXNet's files cannot contain the casts of mixed "
                "precision; leave out remove_amp_cast=False, and convert the network after "
                "loading"
            )
        names: tuple[str, str] = symbol_block().export(self, path, epoch)
        return names


def holds_symbols(value: Any) -> bool:
    """Whether a value is one of MXNet's symbols, or a list that contains some."""
    if isinstance(value, (list, tuple)):
        return any(map(holds_symbols, value))
    return hasattr(type(value), "list_arguments")


def symbol_block() -> Any:
    """The module `gemel.gluon.symbol_block`, which few programs use."""
    return import_module("gemel.gluon.symbol_block")
