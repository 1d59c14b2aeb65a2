"""Files of a block's parameters, which are written and read completely or not at all."""

from __future__ import annotations

from typing import Any

from gemel.arrays import archives
from gemel.errors import OperandError, ParameterFileError
from gemel.gluon.parameter import ParameterDict
from gemel.npx import serialize


class Files:
    """The methods of a block for parameter files."""

    __slots__ = ()

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """All parameters, by their path."""
        raise NotImplementedError

    def save_parameters(self, filename: Any, deduplicate: bool = False) -> None:
        """Write all parameters to `filename`, in MXNet's format; the file appears complete or not
        at all.

        With `deduplicate`, shared parameters are written once.
        """
        found = self.collect_params()
        if deduplicate:
            names = {id(p): name for name, p in reversed(found.items())}
            found = ParameterDict({name: found[name] for name in sorted(names.values())})
        serialize.save(filename, {name: p.gathered() for name, p in found.items()})

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

        With `cast_dtype`, values of another dtype are converted to the parameter's dtype; with
        ``dtype_source="saved"`` the parameter takes the file's dtype. Raises `ParameterFileError`,
        and changes nothing, when the file is damaged, lacks a parameter (unless `allow_missing`),
        has an extra one (unless `ignore_extra`), has one of another shape or dtype, or if a
        parameter is not on `device`.
        """
        device = device if device is not None else ctx
        values, source = serialize.load_named(filename), f"parameter file {filename}"
        flags = allow_missing, ignore_extra, cast_dtype, dtype_source
        serialize.assign(self.collect_params(), values, source, *flags, device)

    def load_dict(
        self,
        param_dict: dict[str, Any],
        device: Any = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
        ctx: Any = None,
    ) -> None:
        """Set the parameters from a dictionary of arrays, with the checks of `load_parameters`."""
        device = device if device is not None else ctx
        flags = allow_missing, ignore_extra, cast_dtype, dtype_source
        if not isinstance(param_dict, dict):
            raise OperandError(f"load_dict: {param_dict!r} is not a dictionary of arrays")
        values = {serialize.without_kind(name): array for name, array in param_dict.items()}
        serialize.assign(self.collect_params(), values, "load_dict", *flags, device)

    save_params = save_parameters
    load_params = load_parameters

    def save(self, prefix: str) -> None:
        """Write `prefix`-model.params, and `prefix`-model.json, which describes the blocks."""
        import json  # few programs need it

        self.save_parameters(f"{prefix}-model.params")
        text = json.dumps(_structure(self), indent=2)
        archives.appear(f"{prefix}-model.json", [text.encode()])

    def load(self, prefix: str) -> None:
        """Read the files of `save` into a network of the same structure.

        Raises `ParameterFileError`, and changes nothing, if the blocks differ.
        """
        import json  # few programs need it

        try:
            written = json.loads(archives.contents("load", f"{prefix}-model.json"))
        except ValueError:
            written = None
        if written != _structure(self):
            raise ParameterFileError(
                f"{prefix}-model.json describes a network with other blocks than this "
                f"{type(self).__name__}; no parameter was changed"
            )
        self.load_parameters(f"{prefix}-model.params")


def _structure(block: Any) -> dict[str, Any]:
    """The classes of a block and of all blocks inside it, by their names."""
    children = {name: _structure(child) for name, child in block._children.items()}
    return {"class": type(block).__name__, "children": children}
