"""Checkpoints: the whole state of a training in one file, written completely or not at all.

A checkpoint is a file of named arrays, which `npx.load` can read: the parameters (``net.``), the
trainer's own data (``trainer``), and ``state``, a JSON text whose arrays are stored next to it.
"""

from __future__ import annotations

import glob
import json
import os
import random
import sys
import tempfile
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from gemel import np
from gemel.arrays.archives import checked_path
from gemel.errors import ParameterFileError
from gemel.gluon.block import Block
from gemel.gluon.callbacks import Callback
from gemel.gluon.job import Job, begin_streams, check_place
from gemel.gluon.parameter import Parameter
from gemel.gluon.trainer import Trainer
from gemel.npx import serialize
from gemel.ranges import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gemel.gluon.fitting import Run

VERSION = 1
_PLAIN = (bool, int, float, str, type(None))
#: Attributes that are saved in another way, or not at all.
_LEFT_OUT = (Block, Parameter, Trainer, type, ModuleType, FunctionType, MethodType)


class Checkpoint(Callback):
    """Writes `path` after every `epochs` epochs, and after every `batches` batches if given.

    The file holds parameters, the optimizer's states and counts, its rates and scheduler, the
    random streams (gemel's, Python's and NumPy's), the position in the data, metrics, history, and
    the callbacks' plain attributes. `fit` resumes from it if it exists at the start. A folder that
    is missing is made. Raises `ArgumentError` for what is no path.

    In a job of several workers, worker 0 writes the file, with the random streams of all, and all
    workers read it. A job with another number of workers can resume from it (`gemel.gluon.job` has
    the rules). If servers keep the parameters, their folder is the checkpoint, and this one raises
    `GemelError`.
    """

    def __init__(self, path: Any, batches: int | None = None, epochs: int = 1) -> None:
        self.path = checked_path("Checkpoint", "path", path)
        self.batches = None if batches is None else counted("Checkpoint", "batches", batches)
        self.epochs = counted("Checkpoint", "epochs", epochs)

    def batch_end(self, run: Run) -> None:
        """Write the file if `batches` batches have passed."""
        if self.batches and run.batch % self.batches == 0:
            self.save(run)

    def epoch_end(self, run: Run) -> None:
        """Write the file if `epochs` epochs have passed, or after the last epoch."""
        if run.epoch % self.epochs == 0 or run.is_over:
            self.save(run)

    def save(self, run: Run) -> None:
        """Write the file. Waits for the engine; if an array has failed, its error is raised
        here."""
        job = Job(run.trainer)
        job.check_keeps()
        workers = job.exchanged(packed(run.own_state(), {}))
        if job.rank != 0:
            return
        arrays: dict[str, Any] = {}
        callbacks = {k: attributes(c, arrays, False) for k, c in named(run.callbacks).items()}
        content = {
            "version": VERSION,
            "run": packed(run.state(), arrays),
            "callbacks": callbacks,
            "workers": workers,
        }
        parameters = run.net.collect_params()
        values = {f"net.{name}": p.list_data()[0] for name, p in parameters.items()}
        values.update({f"own.{name}": array for name, array in _own(parameters)})
        values.update(
            trainer=_bytes(_trainer_states(run.trainer)), state=_bytes(json.dumps(content).encode())
        )
        folder = os.path.dirname(self.path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        serialize.save(self.path, {**values, **arrays})

    def restore(self, run: Run) -> bool:
        """Restore a run from the file; returns False if there is none.

        Raises `ParameterFileError`, changing nothing, for a file that is damaged or belongs to
        another network or trainer, or whose position in the data another number of workers cannot
        find; `WorkersError` if the workers have different files.
        """
        job = Job(run.trainer)
        job.check_keeps()
        for left in glob.glob(f"{glob.escape(self.path)}.*.part") if job.rank == 0 else ():
            os.unlink(left)  # left by a process that ended while writing
        if not job.has_file(self.path):
            return False
        values = serialize.load_named(self.path)
        try:
            content = json.loads(values.pop("state").asnumpy().tobytes())
            states = values.pop("trainer").asnumpy().tobytes()
        except (KeyError, ValueError):
            raise ParameterFileError(f"{self.path} is not a checkpoint of gluon.fit") from None
        if content["version"] != VERSION:
            raise ParameterFileError(f"{self.path}: version {content['version']} is not known")
        state = content["run"]
        workers = [each and unpacked(each, {}) for each in content.get("workers", [])]
        self._check_place(job, len(workers), state)
        parameters = run.net.collect_params()
        weights = _under("net.", values)
        problems = serialize._differences(parameters, weights, False, False, False)
        if problems:
            raise ParameterFileError(
                f"checkpoint {self.path} does not fit this network: {'; '.join(problems)}; "
                "nothing was changed. Use another file for another network"
            )
        _set_trainer_states(run.trainer, states)
        serialize.assign(parameters, weights, self.path)
        own = _under("own.", values)
        for name, array in _own(parameters):
            if name in own:
                array[...] = own[name]
        run.set_state(unpacked(state, values, run.state()))
        if not job.alone or len(workers) > 1:
            _share(run, job, workers)
        for name, callback in named(run.callbacks).items():
            set_attributes(callback, content["callbacks"].get(name, {}), values)
        return True

    def _check_place(self, job: Job, before: int, packed_state: dict[str, Any]) -> None:
        """Raise if this number of workers cannot find its position in the data."""
        state = dict(packed_state["value"])
        data = unpacked(state["data"], {}) if _is_plain(state["data"]) else None
        check_place(self.path, max(before, 1), job.workers, state["batch"], data)


def _is_plain(value: Any) -> bool:
    """Whether a packed value has no arrays."""
    return '"kind": "array"' not in json.dumps(value)


def _share(run: Run, job: Job, workers: list[dict[str, Any] | None]) -> None:
    """Give a worker its random streams, and worker 0 the losses that all have counted in this
    epoch.

    An entry of None stands for a worker that was left out when the file was written.
    """
    mine = workers[job.rank] if job.rank < len(workers) else None
    there = [each for each in workers if each is not None]
    if mine is not None:
        set_streams(mine["streams"])
        run.set_epoch_streams(mine["epoch streams"])
    else:
        begin_streams(job.rank, there[0]["streams"] if there else "")
    counted = there if job.rank == 0 else []
    run.set_counted(sum(each["total"] for each in counted), sum(each["count"] for each in counted))


def named(parts: list[Any]) -> dict[str, Any]:
    """The callbacks other than checkpoints, or the metrics, by names: class and counter.

    So a resumed run may have additional ones.
    """
    found: dict[str, Any] = {}
    for part in parts:
        kind = type(part)
        if not isinstance(part, Checkpoint) and hasattr(part, "__dict__"):
            same = sum(type(other) is kind for other in found.values())
            found[f"{kind.__module__}.{kind.__qualname__} {same}"] = part
    return found


def _under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {n.removeprefix(prefix): v for n, v in values.items() if n.startswith(prefix)}


def _own(parameters: dict[str, Parameter]) -> Iterator[tuple[str, Any]]:
    """The arrays that differ between devices: gradients that accumulate, and parameters that the
    trainer does not keep equal on all devices, such as running statistics."""
    for name, parameter in parameters.items():
        if parameter.grad_req == "add":
            copies = parameter.list_grad()
        else:
            copies = parameter.list_data()[1:] if parameter.grad_req == "null" else []
        for number, array in enumerate(copies):
            yield f"{number}.{name}", array


def _bytes(content: bytes) -> Any:
    from numpy import frombuffer

    return np.array(frombuffer(content, dtype="uint8"), dtype="uint8")


def _trainer_states(trainer: Trainer) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "states")
        trainer.save_states(path)
        with open(path, "rb") as file:
            return file.read()


def _set_trainer_states(trainer: Trainer, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "states of the checkpoint's trainer")
        with open(path, "wb") as file:
            file.write(content)
        trainer.load_states(path)


# --- random streams -------------------------------------------------------------------------


def streams() -> dict[str, Any]:
    """The states of gemel's random stream, Python's and, if it is loaded, NumPy's."""
    states = {"gemel": np.random.get_state(), "python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states["numpy"] = (kind, keys.tolist(), *rest)
    return states


def set_streams(state: dict[str, Any]) -> None:
    """Restore the state returned by `streams`."""
    np.random.set_state(state["gemel"])
    random.setstate(state["python"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])


# --- values as JSON and arrays --------------------------------------------------------------


def packed(
    value: Any, arrays: dict[str, Any], objects: bool = True, inside: tuple[Any, ...] = ()
) -> Any:
    """Convert nested plain values, arrays and objects to JSON values; arrays are stored in
    `arrays`.

    Raises `TypeError` for values that cannot be packed: functions, networks, an object that
    contains itself (`inside` has the enclosing ones) and, without `objects`, every object.
    """
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray) or _is_numpys(value):
        name = f"array.{len(arrays)}"
        arrays[name] = np.array(value, dtype=value.dtype.name)
        return {"kind": "array" if isinstance(value, np.ndarray) else "numpy", "value": name}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"kind": kind, "value": [packed(v, arrays, objects, inside) for v in value]}
    if isinstance(value, dict):
        items = [[packed(k, arrays), packed(v, arrays, objects, inside)] for k, v in value.items()]
        return {"kind": "dict", "value": items}
    if isinstance(value, _LEFT_OUT) or not objects or not hasattr(value, "__dict__"):
        raise TypeError(f"{type(value).__name__} cannot be packed")
    if any(value is outer for outer in inside):
        raise TypeError(f"{type(value).__name__} contains itself")
    contents = attributes(value, arrays, True, (*inside, value))
    return {"kind": "object", "class": type(value).__qualname__, "value": contents}


def attributes(
    value: Any, arrays: dict[str, Any], objects: bool, inside: tuple[Any, ...] = ()
) -> dict[str, Any]:
    """The attributes of an object that can be packed."""
    contents = {}
    for name, each in vars(value).items():
        try:
            contents[name] = packed(each, arrays, objects, inside)
        except TypeError:
            continue
    return contents


def set_attributes(value: Any, attributes: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Set an object's attributes to the packed ones."""
    for name, packed_value in attributes.items():
        setattr(value, name, unpacked(packed_value, arrays, getattr(value, name, None)))


def _is_numpys(value: Any) -> bool:
    """Whether this is a NumPy array or scalar with numbers."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return type(value).__module__ == "numpy" and kind in ("b", "i", "u", "f", "c")


def unpacked(value: Any, arrays: dict[str, Any], old: Any = None) -> Any:
    """Unpack a value; an object is the one at the same place in `old`, with its attributes set if
    it is of the same class."""
    if not isinstance(value, dict):
        return value
    kind, content = value["kind"], value["value"]
    if kind == "array":
        return arrays[content]
    if kind == "numpy":
        return arrays[content].asnumpy()[()]
    if kind in ("list", "tuple"):
        before = list(old) if isinstance(old, (list, tuple)) else []
        before += [None] * (len(content) - len(before))
        items = [unpacked(v, arrays, b) for v, b in zip(content, before, strict=False)]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        contents = {}
        for key, item in content:
            name = unpacked(key, arrays)
            contents[name] = unpacked(
                item, arrays, old.get(name) if isinstance(old, dict) else None
            )
        return contents
    if hasattr(old, "__dict__") and value.get("class") in (None, type(old).__qualname__):
        set_attributes(old, content, arrays)
    return old


__all__ = ["Checkpoint", "named", "set_streams", "streams"]
