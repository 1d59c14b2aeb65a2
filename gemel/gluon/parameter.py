"""Parameters by name: `ParameterDict`; and constants, which training does not change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel import init, np
from gemel.errors import (
    DeferredInitializationError,
    GemelError,
    OperandError,
    ParameterFileError,
    unknown_name,
)
from gemel.gluon.places import places, warn
from gemel.gluon.variable import Parameter
from gemel.npx import serialize
from gemel.ranges import check_flag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gemel.device import Device

__all__ = ["Constant", "DeferredInitializationError", "Parameter", "ParameterDict"]


class Constant(Parameter):
    """A parameter that training does not change; it is saved with the model."""

    def __init__(self, value: Any, name: str = "") -> None:
        # MXNet 1 has the name first.
        if isinstance(value, str):
            value, name = name, value
        if not hasattr(value, "shape"):
            value = np.array(value)
        self.value = value
        super().__init__(
            name,
            grad_req="null",
            shape=value.shape,
            dtype=value.dtype,
            init=init.Constant(value),
            differentiable=False,
        )


def _checked(name: str, given: Any) -> dict[str, Parameter]:
    """A dictionary of parameters. Raises `OperandError` for anything else."""
    try:
        found = dict(given)
    except (TypeError, ValueError):
        raise OperandError(f"{name}: {given!r} is not a dictionary of parameters") from None
    for key, value in found.items():
        if not isinstance(value, Parameter):
            raise OperandError(f"{name}: {value!r}, given as {key!r}, is not a Parameter")
    return found


class ParameterDict(dict[str, Parameter]):
    """Parameters by their path in the network (``0.weight``), or by full name (``dense0_weight``).

    `get` creates parameters with `prefix` before their names, unless `shared`, another dictionary,
    has a parameter of that name.
    """

    def __init__(
        self,
        prefix: str | dict[str, Parameter] | Iterable[tuple[str, Parameter]] = "",
        shared: ParameterDict | None = None,
    ) -> None:
        super().__init__(() if isinstance(prefix, str) else _checked("ParameterDict", prefix))
        if not isinstance(shared, (ParameterDict, type(None))):
            raise OperandError(f"ParameterDict: shared is {shared!r}; it must be a ParameterDict")
        #: None for a collection of existing parameters, which creates no new ones.
        self._prefix = prefix if isinstance(prefix, str) else None
        #: The prefix of the block that these parameters belong to.
        self._whose = ""
        self._shared = shared

    @property
    def prefix(self) -> str:
        """The prefix of the names of parameters it creates, or else that of its block."""
        return self._prefix or self._whose

    def _called(self, name: object) -> Parameter | None:
        """The parameter with this full name, or None."""
        return next((each for each in self.values() if each.name == name), None)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._called(name) is not None

    def __missing__(self, name: str) -> Parameter:
        parameter = self._called(name)
        if parameter is None:
            raise unknown_name("parameter", name, self)
        return parameter

    def __repr__(self) -> str:
        lines = "".join(f"\n  {key}: {parameter!r}" for key, parameter in self.items())
        return f"{type(self).__name__} ({lines}\n)"

    # ---- creating parameters

    def get(self, name: str, default: Any = None, **settings: Any) -> Any:
        """The parameter `name`; if there is none, it is taken from `shared`, or created.

        It is created as ``Parameter(name, **settings)``. A dictionary of other blocks' parameters,
        as from `collect_params()`, creates none and returns `default`. Raises `ShapeError` if the
        existing parameter has another shape.
        """
        parameter = self._found(name)
        if parameter is not None:
            if settings.get("shape") is not None:
                parameter.shape = settings["shape"]
        elif self._prefix is not None:
            parameter = self._add(name, Parameter(**{"name": self.prefix + name, **settings}))
        return default if parameter is None else parameter

    def get_constant(self, name: str, value: Any = None) -> Parameter:
        """The constant `name`, created from `value` if it does not exist."""
        constant = self._found(name)
        if constant is None:
            if value is None:
                raise unknown_name("constant", name, self)
            constant = self._add(name, Constant(value, self.prefix + name))
        return constant

    def _found(self, name: str) -> Parameter | None:
        if not isinstance(name, str):
            raise OperandError(f"ParameterDict: {name!r} is not the name of a parameter")
        for key in (name, self.prefix + name):
            if key in self:
                return self[key]
        shared = None if self._shared is None else self._found_in(self._shared, name)
        return None if shared is None else self._add(name, shared)

    def _found_in(self, shared: ParameterDict, name: str) -> Parameter | None:
        keys = name, self.prefix + name
        return next((shared[key] for key in keys if key in shared), None)

    def _add(self, name: str, parameter: Parameter) -> Parameter:
        self[self.prefix + name] = parameter
        return parameter

    def update(self, other: Any = (), /, **more: Parameter) -> None:
        """Add the parameters of another dictionary. Raises `OperandError` for what is none, and
        `GemelError` if a name would mean two."""
        others = _checked("update", other) | _checked("update", more)
        own = dict(self)
        twice = [key for key, p in others.items() if own.get(key, p) is not p]
        if twice:
            raise GemelError(f"update: {', '.join(twice)} would each name two parameters")
        super().update(others)

    # ---- all parameters

    def distinct(self) -> list[tuple[str, Parameter]]:
        """Each parameter once, with its first name (layers may share parameters)."""
        first: dict[int, tuple[str, Parameter]] = {}
        for key, parameter in self.items():
            first.setdefault(id(parameter), (key, parameter))
        return list(first.values())

    def initialize(
        self,
        init: Any = None,
        device: Any = None,
        verbose: bool = False,
        force_reinit: bool = False,
        ctx: Any = None,
    ) -> None:
        """Initialize every parameter; see `Parameter.initialize`."""
        check_flag("initialize", "force_reinit", force_reinit)
        devices = places(device, ctx)
        kept = []
        for key, parameter in self.distinct():
            if parameter._arrays and not force_reinit:
                kept.append(key)
                continue
            parameter.initialize(None, devices, init, force_reinit)
            if verbose:
                print(f"{key}: {parameter!r}")
        if kept:
            warn(
                f"initialize: {', '.join(kept)} already hold values and keep them; "
                "pass force_reinit=True to start again"
            )

    def zero_grad(self) -> None:
        """Set every gradient to zero."""
        for _, parameter in self.distinct():
            parameter.zero_grad()

    def setattr(self, name: str, value: Any) -> None:
        """Set one attribute of every parameter, e.g. ``setattr("grad_req", "null")``."""
        for _, parameter in self.distinct():
            setattr(parameter, name, value)

    def reset_device(self, device: Any = None, ctx: Any = None) -> None:
        """Move every parameter to another device, or to several."""
        devices = places(device, ctx)
        for _, parameter in self.distinct():
            parameter.reset_device(devices)

    reset_ctx = reset_device

    def list_ctx(self) -> list[Device]:
        """The devices of the parameters, each once."""
        lists = [parameter.list_ctx() for _, parameter in self.distinct()]
        return list(dict.fromkeys(device for devices in lists for device in devices))

    list_device = list_ctx

    # ---- files

    def save(self, filename: Any, strip_prefix: str = "") -> None:
        """Write every parameter's value under its name, without `strip_prefix`, to `filename`.

        Raises `ParameterFileError` for a name that does not begin with it.
        """
        names = {parameter.name: parameter for _, parameter in self.distinct()}
        others = [name for name in names if not name.startswith(strip_prefix)]
        if others:
            raise ParameterFileError(
                f"save: {', '.join(others)} do not begin with strip_prefix={strip_prefix!r}"
            )
        arrays = {name.removeprefix(strip_prefix): p.gathered() for name, p in names.items()}
        serialize.save(filename, arrays)

    def load(
        self,
        filename: Any,
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
        device: Any = None,
    ) -> None:
        """Read a file of `save`, with `restore_prefix` added before the names.

        Raises `ParameterFileError` and changes nothing in the same cases as
        `Block.load_parameters`. With `cast_dtype` and ``dtype_source="saved"``, parameters get the
        dtypes of the file.
        """
        self.load_dict(
            serialize.load_named(filename), ctx, allow_missing, ignore_extra, restore_prefix,
            f"parameter file {filename}", cast_dtype, dtype_source, device,
        )  # fmt: skip

    def load_dict(
        self,
        param_dict: dict[str, Any],
        ctx: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str = "load_dict",
        cast_dtype: bool = False,
        dtype_source: str = "current",
        device: Any = None,
    ) -> None:
        """Set parameters from arrays by name, as `load` does from a file."""
        serialize.assign(
            self,
            {restore_prefix + name: value for name, value in param_dict.items()},
            filename,
            allow_missing,
            ignore_extra,
            cast_dtype,
            dtype_source,
            device if device is not None else ctx,
        )
