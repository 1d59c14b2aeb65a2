"""Blocks: the parts networks are built from.

A `Block` holds child blocks and parameters, found by assigning them to attributes, and says in
`forward` what it computes.
"""

from __future__ import annotations

from _weakref import ref
from typing import TYPE_CHECKING, Any

from gemel import init
from gemel.device import elsewhere
from gemel.errors import GemelError
from gemel.gluon.block_parameters import BlockParameters
from gemel.gluon.hooks import HookHandle
from gemel.gluon.naming import NameScope, new_prefix
from gemel.gluon.parameter import Parameter, ParameterDict
from gemel.npx import serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: What flows through a network: an array, or in a trace the symbol that stands for it.
Tensor = Any


class BlockError(GemelError, ValueError):
    """A network put together in a way that cannot work."""


class Block:
    """A part of a network: children, parameters, and `forward`.

    Assigning a block or a parameter to an attribute makes it part of this block. `prefix` begins
    the names of its parameters (by default the class's name and a number); `params` are parameters
    of another block to share.
    """

    #: Containers run their children and nothing else: there is no code of theirs to compile.
    _container = False

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        self._children: dict[str, Block] = {}
        self._parameters = BlockParameters(self, params)
        self._parents: list[Any] = []
        self._prefix = new_prefix(prefix, type(self).__name__.lower())
        self._names: dict[str, int] = {}
        self._hooks: list[Any] = []
        self._pre_hooks: list[Any] = []
        #: Some own parameter's shape may still be unknown.
        self._unfinished = False

    # ---- names

    @property
    def prefix(self) -> str:
        """What the names of its parameters begin with, e.g. ``dense0_``."""
        return self._prefix

    @property
    def name(self) -> str:
        """Its name: the prefix without the last underscore."""
        return self._prefix[:-1] if self._prefix.endswith("_") else self._prefix

    def name_scope(self) -> NameScope:
        """``with self.name_scope():`` blocks made inside get names that begin with this prefix."""
        return NameScope(self)

    # ---- structure

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Block):
            self._require_init(name)
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            self._require_init(name)
            self._register_parameter(name, value)
        elif name in self.__dict__.get("_children", ()):
            del self._children[name]
            self._changed()
        elif name in self.__dict__.get("_parameters", ()):
            del self._parameters[name]
            self._changed()
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if self._children.pop(name, None) or self._parameters.pop(name, None):
            self._changed()
        super().__delattr__(name)

    def _require_init(self, name: str) -> None:
        if "_children" not in self.__dict__:
            raise BlockError(
                f"{type(self).__name__}.{name}: call super().__init__() before assigning layers or "
                "parameters"
            )

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Make `block` a part of this block, as assigning it to an attribute does."""
        self._children[str(len(self._children)) if name is None else name] = block
        block._parents.append(ref(self))
        self._changed()

    def _register_parameter(self, name: str, parameter: Parameter) -> None:
        if not parameter.name:
            parameter.name = self._prefix + name
        # `self.w = self.params.get("weight")`: the attribute's name is the one that counts.
        for other in [key for key, value in self._parameters.items() if value is parameter]:
            if self.__dict__.get(other) is not parameter:
                del self._parameters[other]
        self._parameters[name] = parameter
        parameter._add_owner(self)
        self._unfinished = self._unfinished or not parameter.is_shape_known
        self._changed()

    def _changed(self) -> None:
        """The structure or an array changed: programs compiled over it no longer hold."""
        for parent in self._parents:
            block = parent()
            if block is not None:
                block._changed()

    def apply(self, function: Callable[[Block], Any]) -> Block:
        """Call `function` on every block inside, children first, then on this one."""
        for child in self._children.values():
            child.apply(function)
        function(self)
        return self

    def __repr__(self) -> str:
        lines = "".join(f"  ({key}): {_indented(child)}\n" for key, child in self._children.items())
        return f"{type(self).__name__}(\n{lines})"

    # ---- parameters

    @property
    def params(self) -> BlockParameters:
        """Its own parameters, without its children's; ``params.get(name, ...)`` makes one."""
        return self._parameters

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """All parameters, its own and its children's, by their place: ``0.weight``.

        `select` is a regular expression; only parameters whose place or name it matches are given.
        """
        found = ParameterDict(self._walk(""))
        if select is None:
            return found
        import re

        matches = re.compile(select).match
        kept = {k: p for k, p in found.items() if matches(k) or matches(p.name)}
        return ParameterDict(kept)

    def _walk(self, prefix: str) -> Iterator[tuple[str, Parameter]]:
        for name, parameter in self._parameters.items():
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
        """Give every parameter its first values, now or when its shape is known.

        `init` is an initializer or its name (default Uniform(0.07)); a parameter with an
        initializer of its own uses that. Parameters that hold values keep them unless
        `force_reinit`.
        """
        default = init_module.Uniform() if init is None else init_module.create(init)
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
        for parameter in self._parameters.values():
            parameter.cast(dtype)

    def save_parameters(self, filename: Any) -> None:
        """Write all parameters to `filename`, in MXNet's format, whole or not at all."""
        parameters = self.collect_params()
        serialize.save(filename, {name: p.gathered() for name, p in parameters.items()})

    def load_parameters(
        self,
        filename: Any,
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        ctx: Any = None,
    ) -> None:
        """Read all parameters from `filename` (gemel's or MXNet's), onto all their devices.

        Raises `ParameterFileError`, and changes nothing, when the file is damaged, lacks a
        parameter (unless `allow_missing`), has one too many (unless `ignore_extra`), has one of
        another shape or dtype (unless `cast_dtype`), or when one lives elsewhere than on `device`.
        With `dtype_source` "saved" the parameters get the file's dtypes.
        """
        source = f"parameter file {filename}"
        serialize.assign(
            self.collect_params(),
            serialize.load_named(filename),
            source,
            allow_missing,
            ignore_extra,
            cast_dtype,
            dtype_source,
            device if device is not None else ctx,
        )

    def load_dict(
        self,
        values: dict[str, Any],
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
    ) -> None:
        """Take the parameters from a dictionary of arrays; checked as `load_parameters` does."""
        parameters = self.collect_params()
        serialize.assign(parameters, values, "load_dict", allow_missing, ignore_extra, cast_dtype)

    # ---- running

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the block, and the hooks around it."""
        if self._pre_hooks:
            for hook in tuple(self._pre_hooks):
                hook(self, arguments)
        result = self._run(*arguments, **keywords)
        if self._hooks:
            for hook in tuple(self._hooks):
                hook(self, arguments, result)
        return result

    def _run(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            if self._unfinished:
                self._find_shapes(arguments)
            there = elsewhere(arguments)
            if there is None:
                return self.forward(*arguments, **keywords)
            with there:
                return self.forward(*arguments, **keywords)
        except GemelError as error:
            self._passed(error)
            raise

    def _passed(self, error: GemelError) -> None:
        """Put this block in front of the path of blocks an error has come through."""
        inner, path = getattr(error, "_path", (None, ()))
        keys = [key for key, child in self._children.items() if child is inner]
        # One that comes from elsewhere, such as an array that failed before, begins here.
        path = (keys[0], *path) if keys else ()
        error._path = self, path  # type: ignore[attr-defined]
        error.layer = ".".join((self.name, *path))

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """What the block computes; subclasses say it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, x)")

    def _find_shapes(self, arguments: tuple[Any, ...]) -> None:
        """Finish own parameters whose shapes follow from the first input."""
        unknown = [p for p in self._parameters.values() if not p.is_shape_known]
        if any(parameter._waiting is not None for parameter in unknown):
            self.infer_shape(*arguments)
        for parameter in unknown:
            parameter._shape_found()
        self._unfinished = any(not p.is_shape_known for p in self._parameters.values())

    def infer_shape(self, *arguments: Any) -> None:
        """Set the shapes of own parameters from the inputs' shapes (``x.shape``)."""
        names = [p.name for p in self._parameters.values() if not p.is_shape_known]
        raise BlockError(
            f"{type(self).__name__}: the shape of {', '.join(names)} is not known; give it, or "
            "define infer_shape(self, x) to set it from the input's shape"
        )

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have ``hook(block, inputs, output)`` called after each forward."""
        return HookHandle(self._hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Have ``hook(block, inputs)`` called before each forward."""
        return HookHandle(self._pre_hooks, hook)

    def hybridize(self, active: bool = True, **flags: Any) -> None:
        """Compile the hybrid blocks inside; warns, naming the blocks that cannot be compiled.

        `flags` (``static_alloc`` and others) are accepted for old code: programs always plan their
        memory.
        """
        plain: list[str] = []
        self._hybridize_inside("", active, plain)
        if active and plain:
            import warnings

            warnings.warn(
                f"hybridize: {', '.join(plain)} cannot be compiled: a layer that inherits from "
                "Block is not optimised; derive it from HybridBlock",
                stacklevel=2,
            )

    def _hybridize_inside(self, place: str, active: bool, plain: list[str]) -> None:
        if not self._container:
            plain.append(f"{place or 'the block itself'} ({type(self).__name__})")
        for name, child in self._children.items():
            child._hybridize_inside(f"{place}.{name}" if place else name, active, plain)


# `init` is a keyword of `initialize`, as users write it; this is the module.
init_module = init


def _indented(block: Block) -> str:
    first, *rest = repr(block).split("\n")
    return "\n".join([first, *(f"  {line}" for line in rest)])
