"""What metrics share: a sum and a count, stored as arrays, so that `update` does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from gemel import autograd, np
from gemel.device import cpu
from gemel.errors import (
    ArgumentError,
    ArrayIndexError,
    OperandError,
    ShapeError,
    check_class,
    check_keywords,
    unknown_name,
)
from gemel.extent import NUMBER
from gemel.lists import as_list
from gemel.np import ndarray
from gemel.ranges import FlagsChecked
from gemel.spec import sequence, whole

if TYPE_CHECKING:
    from collections.abc import Callable

_Kind = TypeVar("_Kind", bound=type["EvalMetric"])

_BY_NAME: dict[str, type[EvalMetric]] = {}


def check_label_shapes(
    labels: Any, preds: Any, wrap: bool = False, shape: bool = False
) -> tuple[Any, Any]:
    """Check that there are as many labels as predictions, and return both; `wrap` makes lists of
    single arrays.

    With `shape` they must have the same shape. Raises `ShapeError`.
    """
    sizes = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if sizes[0] != sizes[1]:
        raise ShapeError(f"metric: labels of size {sizes[0]} and predictions of size {sizes[1]}")
    if wrap:
        labels = as_list(labels)
        preds = as_list(preds)
    return labels, preds


def alias(*names: str) -> Callable[[_Kind], _Kind]:
    """A decorator that registers more names for `create`, besides the class's own in lower case."""

    def add(kind: _Kind) -> _Kind:
        _BY_NAME.update(dict.fromkeys((kind.__name__.lower(), *names), kind))
        return kind

    return add


def register(klass: _Kind) -> _Kind:
    """A decorator that registers a class for `create` under its name in lower case."""
    check_class("metric.register", klass)
    return alias()(klass)


class EvalMetric(FlagsChecked):
    """Base class of metrics: the mean of `measure` over batches.

    `output_names` and `label_names` choose among the arrays given to `update_dict`, by default
    all. A subclass defines `measure(label, pred)`, or `update(labels, preds)`, which adds to
    `sum_metric` and `num_inst` (and their `global_` twins, which `reset_local` leaves alone).
    """

    #: The default name.
    default_name = "metric"
    # Numbers, or arrays of one element.
    sum_metric: Any
    num_inst: Any
    global_sum_metric: Any
    global_num_inst: Any

    def __new__(cls, *arguments: Any, **settings: Any) -> Any:
        """Check the keywords before `__init__` gets them."""
        check_keywords(cls, settings)
        return super().__new__(cls, *arguments, **settings)

    def __init__(
        self,
        name: str | None = None,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
        **settings: Any,
    ) -> None:
        self.name = self.default_name if name is None else str(name)
        self.output_names = _names_of(self, "output_names", output_names)
        self.label_names = _names_of(self, "label_names", label_names)
        self._has_global_stats = settings.pop("has_global_stats", False)
        self._kwargs = settings
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """The settings, from which ``create(**config)`` makes the metric again: the arguments that
        it keeps under their names, and those given to `EvalMetric` as `settings`."""
        from inspect import signature  # rarely needed, and slow to load

        names = ["name", "output_names", "label_names", *signature(type(self)).parameters]
        kept = {name: vars(self)[name] for name in names if name in vars(self)}
        return {**kept, **self._kwargs, "metric": type(self).__name__}

    def update_dict(self, label: dict[str, Any], pred: dict[str, Any]) -> None:
        """Call `update` with the arrays of these dictionaries that the metric uses."""
        self.update(
            [label[name] for name in _chosen("label", self.label_names, label)],
            [pred[name] for name in _chosen("output", self.output_names, pred)],
        )

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch: an array of labels and one of predictions, or lists of these.

        Raises `ShapeError` for shapes that do not fit. Does not wait; an empty batch changes
        nothing.
        """
        with autograd.pause():
            # All are measured before the first is added, so that an error changes nothing.
            found = [self.measure(*pair) for pair in pairs(labels, preds) if pair[1].size]
            for total, count in found:
                self._add(total, count)

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The numbers that a batch adds to the sum and to the count."""
        raise NotImplementedError(f"{type(self).__name__} does not define update(labels, preds)")

    def _add(self, total: Any, count: Any) -> None:
        total, count = settled(total), settled(count)
        self.sum_metric = self.sum_metric + total
        self.num_inst = self.num_inst + count
        self.global_sum_metric = self.global_sum_metric + total
        self.global_num_inst = self.global_num_inst + count

    def reset(self) -> None:
        """Reset the metric."""
        self.global_num_inst = 0
        self.global_sum_metric = 0.0
        self.reset_local()

    def reset_local(self) -> None:
        """Reset everything except the global sum."""
        self.num_inst = 0
        self.sum_metric = 0.0

    def mean(self, total: Any, count: Any) -> Any:
        """The value of the metric from its sum and its count, which is not 0."""
        return float(total) / float(count)

    def get(self) -> tuple[Any, Any]:
        """The name and the value, NaN before the first update."""
        return self.name, self._value(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """The name and the value since `reset`, regardless of `reset_local`."""
        return self.name, self._value(self.global_sum_metric, self.global_num_inst)

    def _value(self, total: Any, count: Any) -> Any:
        return self.mean(total, count) if float(count) else float("nan")

    def get_name_value(self) -> list[tuple[str, Any]]:
        """Name and value of each part."""
        return _zipped(*self.get())

    def get_global_name_value(self) -> list[tuple[str, Any]]:
        """Name and value of each part since `reset`."""
        return _zipped(*self.get_global())


def _names_of(metric: EvalMetric, what: str, names: Any) -> list[str] | None:
    """Names of arrays. Raises `OperandError` for what is no list; a text would be its letters."""
    return None if names is None else list(sequence(type(metric).__name__, what, names))


def _chosen(what: str, names: list[str] | None, given: dict[str, Any]) -> list[str]:
    """The names of the arrays to use, by default all. Raises `OperandError` for what is no
    dictionary, and `UnknownNameError`."""
    if not hasattr(given, "keys"):
        raise OperandError(f"update_dict: {given!r} is not a dictionary of each {what} by its name")
    chosen = list(names or given)
    for name in chosen:
        if name not in given:
            raise unknown_name(f"{what} of update_dict", name, given)
    return chosen


def pairs(labels: Any, preds: Any) -> list[tuple[ndarray, ndarray]]:
    """Labels and predictions as pairs of arrays, each on one device."""
    # A mean loss is an array without axes, so it has no number of examples to compare.
    labels, preds = ([x] if _is_number(x) else x for x in (labels, preds))
    for name, value in (("labels", labels), ("preds", preds)):
        if not isinstance(value, (list, tuple)) and not hasattr(value, "shape"):
            raise OperandError(f"metric: {name} is {value!r}; give an array, or a list of arrays")
    labels, preds = check_label_shapes(labels, preds, wrap=True)
    check_label_shapes(labels, preds)
    found = []
    for label, pred in zip(labels, preds, strict=True):
        label, pred = _examples(label), _examples(pred)
        found.append((label.as_in_ctx(pred.device), pred))
    return found


def _examples(value: Any) -> ndarray:
    found = value.as_np_ndarray() if isinstance(value, ndarray) else np.array(value)
    return found if found.ndim else found.reshape(1)


def _is_number(value: Any) -> bool:
    return isinstance(value, NUMBER) or getattr(value, "shape", None) == ()


def _is_one(value: Any) -> bool:
    return bool(getattr(value, "size", 0) == 1)


def settled(value: Any) -> Any:
    """A number for a sum: in double precision, on the first CPU."""
    if isinstance(value, ndarray):
        value = value.detach().as_in_ctx(cpu())
        return value.astype("float64") if value.dtype != "float64" else value
    return value


def _zipped(name: Any, value: Any) -> list[tuple[str, Any]]:
    if isinstance(name, list):
        return list(zip(name, value, strict=True))
    return [(name, value)]


@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics of the same labels and predictions."""

    def __init__(
        self,
        metrics: list[Any] | None = None,
        name: str = "composite",
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        given = () if metrics is None else sequence(type(self).__name__, "metrics", metrics)
        self.metrics = [create(metric) for metric in given]
        super().__init__(name, output_names, label_names)

    def add(self, metric: Any) -> None:
        """Add a metric."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """One of the metrics. Raises `OperandError` and `ArrayIndexError`."""
        place, count = whole("get_metric", "index", index), len(self.metrics)
        if not -count <= place < count:
            raise ArrayIndexError(f"get_metric: index {place} is out of range for {count} metrics")
        found: EvalMetric = self.metrics[place]
        return found

    def update_dict(self, labels: dict[str, Any], preds: dict[str, Any]) -> None:
        """`update_dict` of each."""
        labels = {name: labels[name] for name in _chosen("label", self.label_names, labels)}
        preds = {name: preds[name] for name in _chosen("output", self.output_names, preds)}
        for metric in self.metrics:
            metric.update_dict(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        """`update` of each."""
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        """`reset` of each."""
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        """`reset_local` of each."""
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[Any, Any]:
        """The names and the values of all metrics."""
        return _joined([metric.get_name_value() for metric in self.metrics])

    def get_global(self) -> tuple[Any, Any]:
        """The names and the values of all metrics since `reset`."""
        return _joined([metric.get_global_name_value() for metric in self.metrics])

    def get_config(self) -> dict[str, Any]:
        """The settings, including those of the inner metrics."""
        return {**super().get_config(), "metrics": [m.get_config() for m in self.metrics]}


def _joined(parts: list[list[tuple[str, Any]]]) -> tuple[list[str], list[Any]]:
    found = [pair for part in parts for pair in part]
    return [name for name, _ in found], [value for _, value in found]


class CustomMetric(EvalMetric):
    """The mean over batches of `feval(label, pred)`, a function of NumPy arrays.

    The function returns a number, or a sum and a count. Each update waits for its arrays.
    `allow_extra_outputs` lets there be more predictions than labels.
    """

    def __init__(
        self,
        feval: Callable[[Any, Any], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: list[str] | None = None,
        label_names: list[str] | None = None,
    ) -> None:
        if not callable(feval):
            raise OperandError(
                f"CustomMetric: feval is {feval!r}; it must be a function of labels and predictions"
            )
        own = getattr(feval, "__name__", type(feval).__name__)
        name = name or (f"custom({own})" if "<" in own else own)
        super().__init__(name, output_names, label_names)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        """Call the function for each pair."""
        if self._allow_extra_outputs and isinstance(preds, (list, tuple)):
            preds = preds[: len(labels) if isinstance(labels, (list, tuple)) else 1]
        super().update(labels, preds)

    def measure(self, label: ndarray, pred: ndarray) -> tuple[Any, Any]:
        """The result of the function. Raises `OperandError` if it is neither of the two."""
        found = self._feval(label.asnumpy(), pred.asnumpy())
        pair = found if isinstance(found, tuple) else (found, 1)
        if len(pair) != 2 or not all(_is_number(part) or _is_one(part) for part in pair):
            raise OperandError(
                f"CustomMetric {self.name}: the function returned {found!r}; it must return a "
                "number, or a tuple of a sum and a count"
            )
        return pair

    def get_config(self) -> dict[str, Any]:
        """Raises `NotImplementedError`: a function has no configuration."""
        raise NotImplementedError(
            "CustomMetric: a metric made from a function has no configuration"
        )


def numpy_metric(
    numpy_feval: Callable[[Any, Any], Any],
    name: str | None = None,
    allow_extra_outputs: bool = False,
) -> CustomMetric:
    """A `CustomMetric` of this function of NumPy's arrays."""
    return CustomMetric(numpy_feval, name, allow_extra_outputs)


def create(metric: Any, *arguments: Any, **settings: Any) -> EvalMetric:
    """Create a metric from a name, a function or the result of `get_config`, or from each entry of
    a list.

    Raises `UnknownNameError`, which suggests the nearest name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, dict):
        if "metric" not in metric:
            raise ArgumentError(f"create: {metric!r} has no entry 'metric', the metric's name")
        return create(**metric)
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(child, *arguments, **settings) for child in metric])
    if isinstance(metric, type) and issubclass(metric, EvalMetric):
        return metric(*arguments, **settings)
    if callable(metric):
        return CustomMetric(metric, *arguments, **settings)
    if not isinstance(metric, str) or metric.lower() not in _BY_NAME:
        raise unknown_name("metric", metric, _BY_NAME)
    return _BY_NAME[metric.lower()](*arguments, **settings)
