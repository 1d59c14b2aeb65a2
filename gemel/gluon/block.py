"""Blocks: the parts networks are built from.

A `Block` holds child blocks and parameters, which it records when they are assigned to attributes.
Its `forward` defines the computation.
"""

from __future__ import annotations

import re
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gemel import errors
from gemel import init as initializers  # `init` is also the name of an argument
from gemel.device import elsewhere
from gemel.errors import ArgumentError, GemelError, ShapeError, TraceError, unknown_keyword
from gemel.extent import NUMBER, name_of, seen
from gemel.gluon.block_files import Files
from gemel.gluon.block_parameters import BlockParameters, sharing
from gemel.gluon.hooks import HookHandle
from gemel.gluon.inputs import first_input, with_array
from gemel.gluon.naming import NameScope, current_scope, new_prefix
from gemel.gluon.parameter import Parameter, ParameterDict
from gemel.gluon.shapes import Unknown, fitting_shapes, run_with_symbols
from gemel.gluon.structure import Children, Internals, and_around, attribute_set
from gemel.ir.current import current_trace
from gemel.ir.graph import Entry
from gemel.ndarray import ndarray
from gemel.ops.shape import operand
from gemel.ranges import FlagsChecked, check_flag
from gemel.tracing.manners import as_plain, like

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: A value in a network: an array, or a symbol while the network is traced.
Tensor = Any


class BlockError(GemelError, ValueError):
    """A network with an invalid structure."""


class Block(FlagsChecked, Files):
    """Base class of the parts of a network: it has children, parameters, and `forward`.

    Assigning a block or a parameter to an attribute makes it part of this block. The names of its
    parameters begin with `prefix` (by default the class's name and a number). `params` are
    parameters of another block to share, also with blocks made in this one's `name_scope`.
    """

    #: Containers only run their children, so they have no code of their own to compile.
    _container = False
    #: Attributes that calls set and no program holds: another value of theirs changes none.
    _set_by_calls: tuple[str, ...] = ()

    # `vars(block)` shows the same attributes as in MXNet, and those of subclasses.
    __slots__ = ("__dict__", "__weakref__", "_own")

    def __init__(
        self, prefix: str | None = None, params: ParameterDict | None = None, **unknown: Any
    ) -> None:
        if unknown:
            raise unknown_keyword(type(self), next(iter(unknown)))
        self._own = Internals()
        self._prefix = new_prefix(prefix, self._alias())
        self._children = Children(self)
        self._reg_params = BlockParameters(self, params, current_scope())
        self._forward_hooks: dict[int, Any] = {}
        self._forward_pre_hooks: dict[int, Any] = {}

    # ---- names

    def _alias(self) -> str:
        """The beginning of its name, before the number."""
        return type(self).__name__.lower()

    @property
    def prefix(self) -> str:
        """The prefix of its parameters' names, e.g. ``dense0_``."""
        return self._prefix

    @property
    def name(self) -> str:
        """Its name: the prefix without the last underscore."""
        return self._prefix[:-1] if self._prefix.endswith("_") else self._prefix

    def name_scope(self) -> NameScope:
        """``with self.name_scope():`` gives blocks created inside names that begin with this
        prefix."""
        return NameScope(self)

    _scope = property(name_scope)

    # ---- structure

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Block, Parameter)) and "_children" not in self.__dict__:
            raise BlockError(
                f"{type(self).__name__}.{name}: call super().__init__() before assigning layers or "
                "parameters"
            )
        if not isinstance(value, Block):
            self._drop("_children", name)
        if isinstance(value, Parameter):
            self._register_parameter(name, value)
        else:
            self._drop("_reg_params", name)
        if isinstance(value, Block):
            self.register_child(value, name)
        attribute_set(self, name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._drop("_children", name)
        self._drop("_reg_params", name)
        attribute_set(self, name, ...)
        super().__delattr__(name)

    def _drop(self, registry: str, name: str) -> None:
        if name in self.__dict__.get(registry, ()):
            del self.__dict__[registry][name]
            self._changed()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block` a part of this block, as assigning it to an attribute does.

        Raises `BlockError` for anything but a `Block`, and for a block that contains this one.
        """
        if not isinstance(block, Block):
            raise BlockError(
                f"{type(self).__name__}: {block!r} is not a Block, but the children of a block "
                "must be; wrap a function in nn.Lambda or nn.HybridLambda"
            )
        if any(each is block for each in and_around(self)):
            found = "itself" if block is self else f"{block.name}, which contains it"
            raise BlockError(
                f"{type(self).__name__} {self.name} cannot contain {found}; to use parameters "
                "twice, create another block with params=block.collect_params()"
            )
        self._children[str(len(self._children)) if name is None else name] = block

    def _register_parameter(self, name: str, parameter: Parameter) -> None:
        if not parameter.name:
            parameter.name = self._prefix + name
        # `self.w = self.params.get("weight")`: the name of the attribute is used.
        for other in [key for key, value in self._reg_params.items() if value is parameter]:
            if self.__dict__.get(other) is not parameter:
                del self._reg_params[other]
        self._reg_params[name] = parameter
        parameter._add_owner(self)
        self._changed()

    def _changed(self) -> None:
        """The structure or an array has changed: drop the programs of this block and of those that
        it is inside of, which look for parameters of unknown shapes in their next call."""
        for block in and_around(self):
            block._own.unfinished = True
            block._drop_program()

    def _drop_program(self) -> None:
        self._own.invalidate()

    def _hooked(self) -> None:
        """A hook was added or removed: this block and those around it check for hooks again."""
        for block in and_around(self):
            block._own.invalidate()

    @property
    def _has_hooks(self) -> bool:
        """Whether this block or a block inside it has hooks."""
        own = self._forward_hooks or self._forward_pre_hooks or self._own.op_hook
        return bool(own) or any(child._has_hooks for child in self._children.values())

    def __getstate__(self) -> dict[str, Any]:
        # Programs are not copied: a copy compiles its own, for the same kind of arguments.
        registries = {"_children": dict(self._children), "_reg_params": dict(self._reg_params)}
        own = {"_precision": self._own.precision, "_last": self._own.last_call()}
        kept = {name: value for name, value in own.items() if value is not None}
        return {**self.__dict__, **registries, **kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._own = Internals()
        self._own.precision = state.pop("_precision", None)
        self._own.last = state.pop("_last", None)
        children, parameters = state["_children"], state["_reg_params"]
        found = {"_children": Children(self), "_reg_params": BlockParameters(self)}
        self.__dict__.update({**state, **found})
        for name, child in children.items():
            self._children[name] = child
        for name, parameter in parameters.items():
            self._register_parameter(name, parameter)

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call `fn` on every block inside, children first, then on this one."""
        errors.check_function("apply", fn)
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def __repr__(self) -> str:
        lines = "".join(f"  ({key}): {_indented(child)}\n" for key, child in self._children.items())
        return f"{type(self).__name__}(\n{lines})"

    # ---- parameters

    @property
    def params(self) -> BlockParameters:
        """Its own parameters, without its children's; ``params.get(name, ...)`` creates one."""
        return self._reg_params

    _params = params

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """All parameters, its own and its children's, by their path: ``0.weight``.

        `select` is a regular expression that filters parameters by path or name.
        """
        found = ParameterDict(self._walk(""))
        if select is not None:
            try:
                matches = re.compile(select).match
            except (re.error, TypeError) as error:
                raise ArgumentError(
                    f"collect_params: {select!r} is not a regular expression: {error}"
                ) from None
            kept = {k: p for k, p in found.items() if matches(k) or matches(p.name)}
            found = ParameterDict(kept)
        found._whose = self._prefix
        return found

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, parameter in self._reg_params.items():
            yield prefix + name, parameter
        for name, child in self._children.items():
            yield from child._walk(f"{prefix}{name}.")

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Initialize every parameter, now or when its shape is known.

        `init` is an initializer or its name (default Uniform(0.07)); a parameter with its own
        initializer uses that one. Parameters that hold values keep them unless `force_reinit`.
        """
        self.apply(_warn_of_strays)
        default = initializers.Uniform() if init is None else initializers.create(init)
        self.collect_params().initialize(default, device, verbose, force_reinit, ctx)
        if force_reinit:
            self._changed()

    def setattr(self, name: str, value: Any) -> None:
        """Set one attribute of every parameter, e.g. ``setattr("grad_req", "null")``."""
        self.collect_params().setattr(name, value)

    def zero_grad(self) -> None:
        """Set every parameter's gradient to zero."""
        self.collect_params().zero_grad()

    def reset_device(self, device: Any = None, ctx: Any = None) -> None:
        """Move every parameter to another device, or to several."""
        self.collect_params().reset_device(device, ctx)

    reset_ctx = reset_device

    def cast(self, dtype: Any) -> None:
        """Change the dtype of every parameter."""
        for child in self._children.values():
            child.cast(dtype)
        for parameter in self._reg_params.values():
            parameter.cast(dtype)

    # ---- running

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the block, and the hooks around it."""
        if self._forward_pre_hooks:
            for hook in tuple(self._forward_pre_hooks.values()):
                hook(self, arguments)
        result = self._run(*arguments, **keywords)
        if self._forward_hooks:
            for hook in tuple(self._forward_hooks.values()):
                hook(self, arguments, result)
        return result

    def _run(self, *arguments: Any, **keywords: Any) -> Any:
        trace = current_trace()
        if trace is not None:
            trace.scopes.ran(self)
        return self._forwarded(*arguments, **keywords)

    def _forwarded(self, *arguments: Any, **keywords: Any) -> Any:
        """Run `forward` on the device of the inputs, after finding the shapes of parameters."""
        unknown = Unknown(self) if self._own.unfinished else None
        try:
            first = type(arguments[0]) if arguments else None
            plain, given = first is ndarray or first is Entry, arguments
            if not plain:
                arguments = with_array(self, arguments)
            if unknown is not None:
                self._find_shapes(arguments)
            there = None if first is Entry else elsewhere(arguments)
            if there is None:
                found = self.forward(*arguments, **keywords)
            else:
                with there:
                    found = self.forward(*arguments, **keywords)
            if unknown is not None:
                self._own.unfinished = unknown.remain
            if plain:
                return found if type(found) is first else as_plain(found)
            return like((*given, *arguments, *keywords.values()), found)
        except Exception as error:
            if isinstance(error, GemelError):
                self._add_to_path(error, arguments)
            if unknown is not None and not isinstance(error, TraceError):
                unknown.restore()  # a program that cannot be traced says nothing of its inputs
            raise

    def _add_to_path(self, error: GemelError, arguments: tuple[Any, ...]) -> None:
        """Prepend this block to the path of blocks in an error's message.

        Names of free extents in the message are replaced by their values in this call.
        """
        if error.args and isinstance(error.args[0], str):
            text = error.args[0]
            for extent in sorted(_free_sizes(arguments), key=lambda n: -len(name_of(n))):
                text = text.replace(name_of(extent), str(seen(extent)))
            error.args = text, *error.args[1:]
        inner, path = getattr(error, "_path", (None, ()))
        keys = [key for key, child in self._children.items() if child is inner]
        # For an error that arose elsewhere, such as an array that failed earlier, the path begins
        # here.
        path = (keys[0], *path) if keys else ()
        error._path = self, path  # type: ignore[attr-defined]
        error.layer = ".".join((self.name, *path))
        if not path:
            error.takes = self._takes() if isinstance(error, ShapeError) else ""

    def _takes(self) -> str:
        """The input shape that a layer accepts, for errors: ``(batch, 3)``."""
        return ""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Compute the block's result; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, x)")

    def _find_shapes(self, arguments: tuple[Any, ...]) -> None:
        """Complete own parameters whose shapes follow from the first input."""
        unknown = [p for p in self._reg_params.values() if not p.is_shape_known]
        if not unknown:
            return
        trace = current_trace()
        asked = trace is not None and trace.shapes_only
        if asked or any(parameter._waiting is not None for parameter in unknown):
            if arguments and _is_listed(arguments[0]):
                arguments = (operand(arguments[0]), *arguments[1:])
            self.infer_shape(*arguments)
        for parameter in () if asked else unknown:
            parameter._shape_found()

    def infer_shape(self, *arguments: Any) -> None:
        """Set the shapes of parameters, its own and its children's, from the inputs' (``x.shape``).

        Nothing is computed. Layers with parameters of unknown shape may set them here; otherwise
        the shapes that their `forward` accepts are used.
        """
        unknown = [p for p in self._reg_params.values() if not p.is_shape_known]
        if not unknown:
            run_with_symbols(self, arguments)
            return
        shapes = fitting_shapes(self, unknown, arguments)
        if shapes is None:
            raise BlockError(
                f"{type(self).__name__}: the shape of {', '.join(p.name for p in unknown)} "
                "cannot be inferred from the input; give it, or define infer_shape(self, x), "
                "which sets it from the input's shape"
            )
        for parameter, shape in zip(unknown, shapes, strict=True):
            parameter.shape = shape

    def infer_type(self, *arguments: Any) -> None:
        """Give the parameters the dtype of the first input, and set their shapes."""
        self.cast(first_input(self, "infer_type", arguments, "dtype").dtype)
        self.infer_shape(*arguments)

    def summary(self, *inputs: Any) -> None:
        """Print a table of the layers that run on these inputs.

        For each layer: the shape of its result, the number of its parameters, its floating-point
        operations (additions and multiplications), and the bytes of its parameters and results.
        Shared parameters are counted once, at their first use. Nothing is computed, unless a layer
        depends on values; then the operations are unknown.
        """
        from gemel.gluon.summary import summary  # few programs need it

        print(summary(self, inputs))

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Register ``hook(block, inputs, output)`` to be called after each forward.

        A hybridized block with hooks inside runs its children one by one, so that the hooks get
        arrays in each call. In `gemel.compile` and `Trainer.compile` hooks are called while these
        trace, with symbols.
        """
        return HookHandle(self._forward_hooks, hook, self._hooked)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Register ``hook(block, inputs)`` to be called before each forward; see
        `register_forward_hook`."""
        return HookHandle(self._forward_pre_hooks, hook, self._hooked)

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Register ``callback(name, operation, array)`` to be called for the result of every
        operation.

        For a hybridized block this happens after its call; with `monitor_all` also for its inputs
        and parameters.
        """
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def share_parameters(self, shared: dict[str, Parameter]) -> Block:
        """Share the parameters of another block of the same structure, given by path
        (`collect_params`)."""
        for block, name, parameter in sharing(self, shared):
            setattr(block, name, parameter)
        return self

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Compile the hybrid blocks inside. Warns about the blocks that cannot be compiled.

        `flags` (``static_alloc``, ...) are for old code: programs always plan their memory.
        """
        check_flag("hybridize", "active", active)
        plain: list[str] = []
        self._hybridize_inside("", active, plain)
        if active and plain:
            text = f"hybridize: {', '.join(plain)} cannot be compiled, because only HybridBlocks "
            text += "can; use HybridBlock instead of Block as the base class"
            warnings.warn(text, stacklevel=2)

    def _hybridize_inside(self, place: str, active: bool, plain: list[str]) -> None:
        if not self._container:
            plain.append(f"{place or 'the block itself'} ({type(self).__name__})")
        for name, child in self._children.items():
            child._hybridize_inside(f"{place}.{name}" if place else name, active, plain)


def _is_listed(value: Any) -> bool:
    """Whether this is a nested list of numbers, which operations accept as an array."""
    return isinstance(value, (list, tuple)) and all(
        _is_listed(x) or isinstance(x, NUMBER) or (isinstance(x, Entry) and x.spec.weak)
        for x in value
    )


def _warn_of_strays(block: Block) -> None:
    """Warn about blocks that are only in a list or dictionary, and so not part of the network."""
    known: set[int] = set()
    block.apply(lambda part: known.add(id(part)))
    for name, value in vars(block).items():
        if type(value) not in (list, tuple, dict):
            continue
        inside = value.values() if isinstance(value, dict) else value
        strays = [each for each in inside if isinstance(each, Block) and id(each) not in known]
        if strays:
            warnings.warn(
                f"{type(block).__name__}.{name} holds {strays[0].name}, which is not part of "
                f"{block.name}: blocks in a {type(value).__name__} are not registered; use "
                "register_child, or Sequential",
                stacklevel=4,
            )


def _indented(block: Block) -> str:
    return repr(block).replace("\n", "\n  ")


def _free_sizes(value: Any) -> list[int]:
    """The sizes of symbols, in lists or alone, that are free extents."""
    if isinstance(value, (list, tuple)):
        return [extent for each in value for extent in _free_sizes(each)]
    return [n for n in value.shape if name_of(n)] if isinstance(value, Entry) else []


def __getattr__(name: str) -> Any:
    # MXNet has these classes in its module of this name.
    if name in ("HybridBlock", "SymbolBlock"):
        return getattr(import_module("gemel.gluon"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
