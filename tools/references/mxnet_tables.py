"""Writes tables of what MXNet 1.9.1 computes, with which tests/test_references_*.py compare gemel.

    python3 -m venv venv; venv/bin/pip install mxnet==1.9.1 numpy==1.23.5
    venv/bin/python tools/references/mxnet_tables.py tests/references

Each file is a list of cases: what is created, its settings, its inputs and its outputs.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
import warnings
from pathlib import Path

import mxnet as mx
import numpy
from mxnet import gluon, nd

random = numpy.random.RandomState(7)


def rounded(value):
    """A value for JSON: arrays as nested lists, floats with 8 digits (enough for float32)."""
    if isinstance(value, nd.NDArray):
        value = value.asnumpy()
    if isinstance(value, numpy.ndarray):
        return rounded(value.tolist())
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, (float, numpy.floating)):
        return float(f"{value:.8g}")
    return int(value) if isinstance(value, numpy.integer) else value


def write(folder, name, cases):
    lines = ",\n".join(json.dumps(rounded(case)) for case in cases)
    (Path(folder) / f"{name}.json").write_text(f"[\n{lines}\n]\n")


# --- optimizers --------------------------------------------------------------------------------

STEPS = 4
SHAPES = {"0_weight": (3,), "1_bias": (2, 2)}
START = {name: random.randn(*shape).astype("float32") for name, shape in SHAPES.items()}
GRADS = [
    {name: random.randn(*shape).astype("float32") for name, shape in SHAPES.items()}
    for _ in range(STEPS)
]
#: Every optimizer is run with each of these settings, and with its own from `OWN`.
COMMON = [
    {},
    {"learning_rate": 0.05},
    {"wd": 0.1},
    {"clip_gradient": 0.4},
    {"rescale_grad": 0.25, "clip_gradient": 0.2, "wd": 0.05},
    {"begin_num_update": 3},
    {"lr_scheduler": {"step": 2, "factor": 0.5}},
]
MOMENTUM = [
    {"momentum": 0.9},
    {"momentum": 0.5, "wd": 0.1, "clip_gradient": 0.4},
    {"momentum": 0.9, "lr_scheduler": {"step": 2, "factor": 0.5}},
]
BETAS = [{"beta1": 0.8, "beta2": 0.95}, {"epsilon": 0.1}]
OWN = {
    "SGD": [*MOMENTUM, {"lazy_update": False}],
    "NAG": MOMENTUM,
    "Signum": [{"momentum": 0.0, "wd": 0.1}, {"wd_lh": 0.1}],
    "DCASGD": [{"lamda": 1.0}],  # with a momentum, MXNet 1.9.1 fails: it takes an array as a bool
    "LARS": [*MOMENTUM, {"eta": 0.1, "eps": 0.5, "wd": 0.1}, {"momentum_correction": False}],
    "Adam": BETAS,
    "Adamax": [{"beta1": 0.8, "beta2": 0.5}],
    "Nadam": [*BETAS, {"schedule_decay": 0.5}],
    "AdaGrad": [{"eps": 0.1}, {"eps": 0.1, "wd": 0.1}],
    "AdaDelta": [{"rho": 0.5}, {"epsilon": 0.1, "wd": 0.1}],
    "RMSProp": [
        {"gamma1": 0.5},
        {"epsilon": 0.1},
        {"centered": True},
        {"centered": True, "gamma1": 0.8, "gamma2": 0.5, "wd": 0.1, "clip_gradient": 0.4},
        {"clip_weights": 0.6},
    ],
    "Ftrl": [{"lamda1": 0.5}, {"beta": 2.0, "wd": 0.2}, {"lamda1": 0.0}],
    "FTML": BETAS,
    "LAMB": [
        *BETAS,
        {"lower_bound": 3.0},
        {"upper_bound": 0.5, "wd": 0.1},
        {"bias_correction": False},
    ],
    "Test": [],
}
MIXED = ["SGD", "NAG", "Adam", "LAMB", "AdaGrad"]


def optimizer_case(name, settings, dtype="float32"):
    """A few steps with two parameters.

    Nadam has one only, because MXNet updates its schedule for each parameter, not for each step.
    """
    made = dict(settings)
    if "lr_scheduler" in made:
        made["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(base_lr=0.1, **made["lr_scheduler"])
    if name in ("RMSProp", "Adam", "Adamax", "Nadam", "Signum", "LAMB") and "lr_scheduler" in made:
        # Without it, their default learning rate would replace the scheduler's.
        made["learning_rate"] = settings["learning_rate"] = 0.1
    names = ["0_weight"] if name == "Nadam" else list(SHAPES)
    rule = mx.optimizer.create(name, param_idx2name=dict(enumerate(names)), **made)
    updater = mx.optimizer.get_updater(rule)
    weights = [nd.array(START[n], dtype=dtype) for n in names]
    out = []
    for grads in GRADS:
        updater(list(range(len(names))), [nd.array(grads[n], dtype=dtype) for n in names], weights)
        found = [weight.asnumpy().astype("float32") for weight in weights]
        out.append(dict(zip(names, found, strict=True)))
    return {"name": name, "settings": settings, "dtype": dtype, "out": out}


def optimizers():
    given = {"start": START, "grads": GRADS}
    cases = [given]
    for name, own in OWN.items():
        for settings in [*COMMON, *own]:
            if name == "Ftrl" and "lr_scheduler" in settings:
                continue  # its default learning rate always replaces the scheduler's
            cases.append(optimizer_case(name, dict(settings)))
    for name in MIXED:
        settings = {"multi_precision": True, "wd": 0.1, "learning_rate": 0.05}
        cases.append(optimizer_case(name, settings, "float16"))
    settings = {"multi_precision": True, "momentum": 0.9}
    cases.append(optimizer_case("SGD", settings, "float16"))
    return cases


# --- learning rates ----------------------------------------------------------------------------

WARM = [
    {},
    {"warmup_steps": 5, "warmup_begin_lr": 0.02},
    {"warmup_steps": 4, "warmup_begin_lr": 0.02, "warmup_mode": "constant"},
]
SCHEDULES = {
    "FactorScheduler": [
        {"step": 4, "factor": 0.5},
        {"step": 1, "factor": 0.9, "stop_factor_lr": 0.05},
        {"step": 3},
    ],
    "MultiFactorScheduler": [{"step": [3, 8, 9], "factor": 0.3}, {"step": [1]}],
    "PolyScheduler": [{"max_update": 12}, {"max_update": 12, "pwr": 1, "final_lr": 0.01}],
    "CosineScheduler": [{"max_update": 12}, {"max_update": 17, "final_lr": 0.03}],
}


def schedulers():
    for name, choices in SCHEDULES.items():
        for settings in choices:
            for warm in WARM:
                given = {"base_lr": 0.3, **settings, **warm}
                scheduler = getattr(mx.lr_scheduler, name)(**given)
                yield {
                    "name": name,
                    "settings": given,
                    "out": [scheduler(number) for number in range(22)],
                }


# --- losses ------------------------------------------------------------------------------------


def normal(*shape):
    return random.randn(*shape).astype("float32")


def shares(*shape):
    found = random.rand(*shape).astype("float32") + 0.05
    return found / found.sum(axis=-1, keepdims=True)


def signs(*shape):
    return numpy.sign(normal(*shape)).astype("float32")


def bits(*shape):
    return (normal(*shape) > 0).astype("float32")


EACH = normal(4, 1) ** 2
PAIRS = [
    ({}, (normal(4, 3), normal(4, 3))),
    ({}, (normal(4, 1), normal(4))),
    ({"weight": 0.3}, (normal(4, 2, 3), normal(4, 2, 3))),
    ({"batch_axis": 1}, (normal(3, 4), normal(3, 4))),
    ({}, (normal(4, 3), normal(4, 3), EACH)),
]


def with_labels(draw, *settings):
    return [
        ({**given, **more}, (arrays[0], draw(*arrays[1].shape), *arrays[2:]))
        for more in ({}, *settings)
        for given, arrays in PAIRS
    ]


LOSSES = {
    "L2Loss": PAIRS,
    "L1Loss": PAIRS,
    "HuberLoss": with_labels(normal, {"rho": 0.3}),
    "HingeLoss": with_labels(signs, {"margin": 0.4}),
    "SquaredHingeLoss": with_labels(signs, {"margin": 0.4}),
    "LogisticLoss": [*with_labels(signs), *with_labels(bits, {"label_format": "binary"})],
    "SigmoidBinaryCrossEntropyLoss": [
        *with_labels(bits),
        ({"from_sigmoid": True}, (random.rand(4, 3), bits(4, 3))),
        ({}, (normal(4, 3), bits(4, 3), None, normal(1, 3) ** 2)),
        ({"from_sigmoid": True}, (random.rand(4, 3), bits(4, 3), EACH, normal(1, 3) ** 2)),
    ],
    "SoftmaxCrossEntropyLoss": [
        ({}, (normal(4, 3), numpy.array([0, 2, 1, 1.0]))),
        ({"weight": 0.5}, (normal(4, 3), numpy.array([[0], [2], [1], [1.0]]))),
        ({"axis": 1}, (normal(2, 3, 2), numpy.array([[0, 2], [1, 1.0]]))),
        ({"sparse_label": False}, (normal(4, 3), shares(4, 3))),
        ({"from_logits": True}, (numpy.log(shares(4, 3)), numpy.array([0, 2, 1, 1.0]))),
        ({}, (normal(4, 3), numpy.array([0, 2, 1, 1.0]), EACH)),
        ({"batch_axis": 1}, (normal(2, 4, 3), numpy.array([[0, 1, 2, 0], [1, 1, 2, 2.0]]))),
    ],
    "KLDivLoss": [
        ({}, (numpy.log(shares(4, 3)), shares(4, 3))),
        ({"from_logits": False}, (normal(4, 3), shares(4, 3))),
        ({"from_logits": False, "axis": 1, "weight": 2.0}, (normal(2, 3, 2), shares(2, 3, 2))),
        ({}, (numpy.log(shares(4, 3)), shares(4, 3), EACH)),
    ],
    "CTCLoss": [
        ({}, (normal(2, 6, 4), numpy.array([[1, 0, -1, -1], [2, 2, 1, -1.0]]))),
        ({"layout": "TNC"}, (normal(6, 2, 4), numpy.array([[1, 0, -1], [2, 1, 1.0]]))),
        (
            {"label_layout": "TN", "weight": 0.5},
            (normal(2, 6, 4), numpy.array([[1, 0, -1], [2, 1, 1.0]]).T),
        ),
        (
            {},
            (
                normal(2, 6, 4),
                numpy.array([[1, 0, 2], [2, 1, 1.0]]),
                numpy.array([6, 5.0]),
                numpy.array([2, 3.0]),
            ),
        ),
    ],
    "TripletLoss": [
        ({}, (normal(4, 3), normal(4, 3), normal(4, 3))),
        ({"margin": 3, "weight": 0.5}, (normal(4, 3), normal(4, 3), normal(4, 3))),
    ],
    "PoissonNLLLoss": [
        ({}, (normal(4, 3), numpy.array([[1, 2, 3.0]] * 4))),
        ({"from_logits": False, "weight": 2.0}, (shares(4, 3), numpy.array([[1, 0, 3.0]] * 4))),
        ({"compute_full": True}, (normal(4, 3), numpy.array([[1, 2, 7.0]] * 4))),
        ({}, (normal(4, 3), numpy.array([[1, 2, 3.0]] * 4), EACH)),
    ],
    "CosineEmbeddingLoss": [
        ({}, (normal(4, 3), normal(4, 3), signs(4))),
        ({"margin": 0.3, "weight": 2.0}, (normal(4, 3), normal(4, 3), signs(4))),
        ({}, (normal(4, 3), normal(4, 3), signs(4), EACH)),
    ],
    "SDMLLoss": [
        ({}, (normal(4, 3), normal(4, 3))),
        ({"smoothing_parameter": 0.1}, (normal(3, 5), normal(3, 5))),
    ],
}


def losses():
    """The losses, and the gradient of their sum with respect to the prediction."""
    for name, choices in LOSSES.items():
        for settings, arrays in choices:
            loss = getattr(gluon.loss, name)(**settings)
            given = [None if a is None else nd.array(a, dtype="float32") for a in arrays]
            case = {"name": name, "settings": settings, "given": given, "out": loss(*given)}
            if "compute_full" not in settings:  # MXNet 1.9.1 cannot record it
                given[0].attach_grad()
                with mx.autograd.record():
                    out = loss(*given)
                out.backward()
                case["grad"] = given[0].grad
            yield case


# --- metrics -----------------------------------------------------------------------------------


def classes(count, size):
    return random.randint(0, count, size).astype("float32")


METRICS = {
    "Accuracy": [
        ({}, lambda n: (classes(3, n), shares(n, 3))),
        ({}, lambda n: (classes(3, n), classes(3, n))),
        ({"axis": 2}, lambda n: (classes(3, (n, 2)), shares(n, 2, 3))),
    ],
    "TopKAccuracy": [
        ({"top_k": 2}, lambda n: (classes(5, n), shares(n, 5))),
        ({"top_k": 3, "name": "top"}, lambda n: (classes(5, n), shares(n, 5))),
    ],
    "F1": [
        ({}, lambda n: (classes(2, n), shares(n, 2))),
        ({"average": "micro"}, lambda n: (classes(2, n), shares(n, 2))),
    ],
    "MCC": [
        ({}, lambda n: (classes(2, n), shares(n, 2))),
        ({"average": "micro"}, lambda n: (classes(2, n), shares(n, 2))),
    ],
    "PCC": [
        ({}, lambda n: (classes(4, n), shares(n, 4))),
        ({}, lambda n: (classes(n, n), classes(n, n))),
    ],
    "Perplexity": [
        ({"ignore_label": None}, lambda n: (classes(3, n), shares(n, 3))),
        ({"ignore_label": 1}, lambda n: (classes(3, (n, 2)), shares(2 * n, 3))),
        ({"ignore_label": None, "axis": 1, "name": "p"}, lambda n: (classes(3, n), shares(n, 3))),
    ],
    "CrossEntropy": [
        ({}, lambda n: (classes(3, n), shares(n, 3))),
        ({"eps": 0.1}, lambda n: (classes(3, n), shares(n, 3))),
    ],
    "NegativeLogLikelihood": [
        ({}, lambda n: (classes(3, n), shares(n, 3))),
        ({"eps": 0.1}, lambda n: (classes(3, n), shares(n, 3))),
    ],
    "PearsonCorrelation": [
        ({}, lambda n: (normal(n), normal(n))),
        ({"average": "micro"}, lambda n: (normal(n, 2), normal(n, 2))),
    ],
    "Loss": [({"name": "mine"}, lambda n: (normal(n), normal(n, 2)))],
    **{
        name: [({}, lambda n: (normal(n), normal(n))), ({}, lambda n: (normal(n, 2), normal(n, 2)))]
        for name in ("MAE", "MSE", "RMSE")
    },
}


def metrics():
    """`get` after one batch and two; after `reset_local` and a third, `get` and `get_global`."""
    for name, choices in METRICS.items():
        for settings, draw in choices:
            metric = getattr(mx.metric, name)(**settings)
            batches, out = [draw(6), draw(4)], []
            for label, pred in batches:
                metric.update([nd.array(label)], [nd.array(pred)])
                out.append(metric.get())
            metric.reset_local()
            metric.update([nd.array(batches[0][0])], [nd.array(batches[0][1])])
            out += [metric.get(), metric.get_global()]
            yield {"name": name, "settings": settings, "given": batches, "out": out}


# --- samplers ----------------------------------------------------------------------------------


def samplers():
    """Several passes over most samplers: what one pass leaves over may belong to the next."""
    data = gluon.data
    for length, start in ((5, 0), (4, 3), (0, 0)):
        sampler = data.SequentialSampler(length, start)
        yield {
            "name": "SequentialSampler",
            "settings": {"length": length, "start": start},
            "out": [list(sampler), list(sampler)],
            "size": len(sampler),
        }
    for last in ("keep", "discard", "rollover"):
        for length, size in ((10, 3), (9, 3), (2, 5)):
            sampler = data.BatchSampler(data.SequentialSampler(length), size, last)
            sizes, out = [], []
            for _ in range(3):
                sizes.append(len(sampler))
                out.append([list(batch) for batch in sampler])
            settings = {"length": length, "batch_size": size, "last_batch": last}
            yield {"name": "BatchSampler", "settings": settings, "out": out, "sizes": sizes}
    sampler = data.FilterSampler(lambda x: x % 3 == 1, data.SimpleDataset([4, 6, 1, 2, 7, 3]))
    settings = {"kept": "x % 3 == 1", "data": [4, 6, 1, 2, 7, 3]}
    yield {
        "name": "FilterSampler",
        "settings": settings,
        "out": [list(sampler)],
        "size": len(sampler),
    }


# --- initializers ------------------------------------------------------------------------------

SHAPED = [(6, 4), (8, 4, 3, 3), (5, 2, 3)]
SCALED = [
    ("Xavier", {"rnd_type": rnd, "factor_type": factor, "magnitude": magnitude})
    for rnd in ("uniform", "gaussian")
    for factor in ("avg", "in", "out")
    for magnitude in (3, 1.5)
] + [
    ("MSRAPrelu", {"factor_type": factor, "slope": slope})
    for factor in ("avg", "in", "out")
    for slope in (0.25, 0.0)
]
FILLED = [
    ("Zero", {}, (2, 3)),
    ("One", {}, (2, 3)),
    ("Constant", {"value": 0.25}, (2, 3)),
    ("Bilinear", {}, (2, 1, 4, 4)),
    ("Bilinear", {}, (1, 1, 3, 3)),
    ("LSTMBias", {}, (8,)),
    ("LSTMBias", {"forget_bias": 2.0}, (12,)),
]


def initializers():
    """The array that an initializer fills in or, if random, the distribution it draws from."""
    for name, settings, shape in FILLED:
        array = nd.zeros(shape)
        made = getattr(mx.init, name)(**settings)
        # Called directly, since for a name that ends in "bias" MXNet fills in zeros.
        described = mx.init.InitDesc("lstm_weight" if name != "LSTMBias" else "lstm_bias")
        if name == "LSTMBias":
            made._init_weight(described, array)
        else:
            made(described, array)
        yield {"name": name, "settings": settings, "shape": shape, "out": array}
    drawn = []
    mx.initializer.random.uniform = lambda low, high, *_, **__: drawn.append(["uniform", high])
    mx.initializer.random.normal = lambda mean, sigma, *_, **__: drawn.append(["normal", sigma])
    simple = [
        ("Uniform", {}),
        ("Uniform", {"scale": 0.5}),
        ("Normal", {}),
        ("Normal", {"sigma": 2}),
    ]
    for name, settings in [*SCALED, *simple]:
        for shape in SHAPED:
            getattr(mx.init, name)(**settings)(mx.init.InitDesc("a_weight"), nd.zeros(shape))
            yield {"name": name, "settings": settings, "shape": shape, "drawn": drawn.pop()}


# --- keywords ----------------------------------------------------------------------------------

MODULES = {
    "gluon.loss": gluon.loss,
    "metric": mx.metric,
    "optimizer": mx.optimizer,
    "lr_scheduler": mx.lr_scheduler,
    "init": mx.init,
    "gluon.data": gluon.data.sampler,
}
#: Classes left out: names of other frameworks, and what MXNet itself calls deprecated.
LEFT_OUT = {"Caffe", "LBSGD", "ccSGD", "FusedRNN"}
#: Methods left out: those internal to MXNet, and those that only say they are deprecated.
INTERNAL = {"set_lr_scale", "sync_state_context", "reset_micro", "update_cov", "update_variance"}


def keywords():
    """The names of the parameters of every class and its methods."""
    for module, found in MODULES.items():
        for name, kind in sorted(vars(found).items()):
            if not inspect.isclass(kind) or name.startswith("_") or name in LEFT_OUT:
                continue
            own = kind.__module__
            if own.startswith(found.__name__):
                methods = {
                    method: list(inspect.signature(function).parameters)[1:]
                    for method, function in inspect.getmembers(kind, inspect.isfunction)
                    if function.__module__ == own
                    and method not in INTERNAL
                    and (not method.startswith("_") or method in ("__init__", "__call__"))
                }
                yield {"module": module, "name": name, "methods": methods}


def main() -> None:
    folder = sys.argv[1]
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    for name in (
        "optimizers",
        "schedulers",
        "losses",
        "metrics",
        "samplers",
        "initializers",
        "keywords",
    ):
        write(folder, name, globals()[name]())


if __name__ == "__main__":
    main()
