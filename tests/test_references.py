"""Agreement with the tables that tools/references/mxnet_tables.py wrote with MXNet 1.9.1.

Where MXNet is wrong or fails, the tables leave the case out and say why. What is right there is
checked in test_optimizer_formulas.py and test_losses.py.
"""

from __future__ import annotations

import importlib
import inspect
import json
import warnings
from pathlib import Path

import numpy
import pytest

from gemel import autograd, gluon, init, lr_scheduler, metric, np, optimizer

TABLES = Path(__file__).parent / "references"


def table(name):
    return json.loads((TABLES / f"{name}.json").read_text())


def named(case):
    settings = ",".join(f"{key}={value}" for key, value in case["settings"].items())
    return f"{case['name']}({settings})".replace(" ", "")


def close(found, expected, rtol=2e-5, atol=1e-6):
    found = found.asnumpy() if isinstance(found, np.ndarray) else numpy.asarray(found)
    numpy.testing.assert_allclose(found, numpy.asarray(expected), rtol=rtol, atol=atol)


# --- optimizers --------------------------------------------------------------------------------

GIVEN, *OPTIMIZERS = table("optimizers")


def tolerance(case):
    if case["dtype"] == "float16":
        return {"rtol": 1e-3, "atol": 1e-3}
    if case["name"] == "NAG" and "wd" in case["settings"]:
        # MXNet's kernel has already overwritten the weight that it reads for the momentum's decay.
        return {"atol": 1e-5}
    return {}


@pytest.mark.parametrize("case", OPTIMIZERS, ids=named)
def test_optimizer(case):
    settings = dict(case["settings"])
    if "lr_scheduler" in settings:
        choices = settings.pop("lr_scheduler")
        settings["lr_scheduler"] = lr_scheduler.FactorScheduler(base_lr=0.1, **choices)
    names = list(case["out"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rule = optimizer.create(case["name"], param_idx2name=dict(enumerate(names)), **settings)
        updater = optimizer.get_updater(rule)
        weights = [np.array(GIVEN["start"][name], dtype=case["dtype"]) for name in names]
        for grads, expected in zip(GIVEN["grads"], case["out"], strict=True):
            given = [np.array(grads[name], dtype=case["dtype"]) for name in names]
            updater(list(range(len(names))), given, weights)
            for weight, name in zip(weights, names, strict=True):
                close(weight, expected[name], **tolerance(case))
    assert len(rule._fused.programs) == 1


# --- learning rates ----------------------------------------------------------------------------


@pytest.mark.parametrize("case", table("schedulers"), ids=named)
def test_scheduler(case):
    scheduler = getattr(lr_scheduler, case["name"])(**case["settings"])
    close([scheduler(number) for number in range(22)], case["out"], rtol=1e-7, atol=1e-12)


# --- losses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", table("losses"), ids=named)
def test_loss(case):
    loss = getattr(gluon.loss, case["name"])(**case["settings"])
    given = [None if array is None else np.array(array) for array in case["given"]]
    for hybrid in (False, True):
        loss.hybridize(hybrid)
        given[0].attach_grad()
        with autograd.record():
            out = loss(*given)
        out.backward()
        close(out.reshape(-1), numpy.ravel(case["out"]))
        if "grad" in case:
            close(given[0].grad, case["grad"], atol=2e-5)


# --- metrics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", table("metrics"), ids=named)
def test_metric(case):
    made = getattr(metric, case["name"])(**case["settings"])
    batches = [[np.array(array) for array in batch] for batch in case["given"]]
    found = []
    for label, pred in batches:
        made.update([label], [pred])
        found.append(made.get())
    made.reset_local()
    made.update([batches[0][0]], [batches[0][1]])
    found += [made.get(), made.get_global()]
    expected = case["out"]
    if case["settings"].get("average") == "micro" and case["name"] == "PearsonCorrelation":
        # MXNet's reset_local does not reset this metric, so later results are not compared.
        found, expected = found[:2], expected[:2]
    for (name, value), (right_name, right) in zip(found, expected, strict=True):
        assert name == right_name
        close(value, right)


# --- samplers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", table("samplers"), ids=named)
def test_sampler(case):
    settings, data = dict(case["settings"]), gluon.data
    if case["name"] == "SequentialSampler":
        sampler = data.SequentialSampler(settings["length"], settings["start"])
    elif case["name"] == "FilterSampler":
        dataset = data.SimpleDataset(settings["data"])
        sampler = data.FilterSampler(lambda x: x % 3 == 1, dataset)
    else:
        inner = data.SequentialSampler(settings.pop("length"))
        sampler = data.BatchSampler(inner, **settings)
    for number, expected in enumerate(case["out"]):
        assert len(sampler) == (case["sizes"][number] if "sizes" in case else case["size"])
        assert list(sampler) == expected


# --- initializers ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", table("initializers"), ids=lambda c: f"{named(c)}{c['shape']}")
def test_initializer(case, monkeypatch):
    drawn = []
    monkeypatch.setattr(init, "_fill", lambda array, kind, scale: drawn.append([kind, scale]))
    made, array = getattr(init, case["name"])(**case["settings"]), np.zeros(case["shape"])
    made._init_weight("weight", array)
    if "out" in case:
        close(array, case["out"])
    else:
        ((kind, scale),) = drawn
        assert (kind == "uniform") == (case["drawn"][0] == "uniform")
        assert scale == pytest.approx(case["drawn"][1], rel=1e-6)


# --- keywords ----------------------------------------------------------------------------------

#: Initializers take (name, array), as users' subclasses do.
RENAMED = {"desc": "name", "arr": "array"}


@pytest.mark.parametrize("case", table("keywords"), ids=lambda c: f"{c['module']}.{c['name']}")
def test_keywords(case):
    found = importlib.import_module(f"gemel.{case['module']}")
    kind = getattr(found, case["name"])
    for method, keywords in case["methods"].items():
        if method == "hybrid_forward" and case["name"] != "Loss":
            method, keywords = "forward", keywords[1:]
        known = inspect.signature(getattr(kind, method)).parameters
        if method == "__init__":
            for base in kind.__mro__[1:-1]:  # keywords that a class passes on to its base
                known = {**inspect.signature(base.__init__).parameters, **known}
        accepted = {RENAMED.get(k, k) for k in keywords} - {"args", "kwargs", "x"}
        assert not accepted - set(known), f"{method}: {list(known)}"
