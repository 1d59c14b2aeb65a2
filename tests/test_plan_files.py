"""Plans on disk: which programs share a file, which must not, and which sizes a file serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs import run

#: Runs a program and reports its results and which files it had to make.
FRAME = """
import gemel
from gemel import autograd, np, npx
from gemel.runtime import files, plans
made = []
store = files.store
files.store = lambda name, kind, content: (made.append(kind), store(name, kind, content))
{program}
tell(values=values, made=made)
"""


def told(program: str, folder: Path, **environment: str) -> dict[str, Any]:
    found: dict[str, Any] = run(
        FRAME.format(program=program), GEMEL_CACHE=str(folder), **environment
    )
    assert found["stderr"] == "", found["stderr"]
    return found


#: Pairs of programs that look alike but need different plans.
LOOK_ALIKES = {
    "a free size and a number that was the same": (
        "f = gemel.compile(lambda x: np.ones((x.shape[0], 2)) + x.sum())",
        "f = gemel.compile(lambda x: np.ones((8, 2)) + x.sum())",
        "values = [f(np.ones((n, 3))).tolist() for n in (8, 5)]",
    ),
    "a guard of the program's own": (
        "f = gemel.compile(lambda x: x * 2)",
        "f = gemel.compile(lambda x: x * 2 if x.shape[0] > 6 else x * 2 + 0 * x.shape[0])",
        "values = [f(np.ones((n, 3))).tolist() for n in (8, 5)]",
    ),
    "an integer and a float": (
        "f = gemel.compile(lambda x: x * 2)",
        "f = gemel.compile(lambda x: x * 2.0)",
        "values = [str(f(np.ones((4, 3), dtype='int32')).dtype)]",
    ),
    "a bool and an integer": (
        "f = lambda x: npx.pick(x, np.array([1, 0]), axis=-1, keepdims=True)",
        "f = lambda x: npx.pick(x, np.array([1, 0]), axis=-1, keepdims=False)",
        "values = f(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist()",
    ),
    "zeros of two signs": (
        "f = gemel.compile(lambda x: x * 0.0)",
        "f = gemel.compile(lambda x: x * -0.0)",
        "values = [str(v) for v in f(np.ones((3,))).tolist()]",
    ),
    "folding and none": (
        "f = gemel.compile(lambda x: x + (1 + 2))",
        "f = gemel.compile(lambda x: x + (1 + 2), fold=False)",
        "values = [str(f.plan_summary(np.ones((2, 2))))[:4], f(np.ones((2, 2))).tolist()]",
    ),
    "a view and its copy": (
        "f = lambda x: x",
        "f = lambda x: x.T",
        "values = (f(np.array([[1.0, 2.0], [3.0, 4.0]])).sum(axis=0)).tolist()",
    ),
    "dtypes": (
        "d = 'float32'",
        "d = 'float64'",
        "x = np.ones((3, 4), dtype=d)\nvalues = [str(y.dtype) for y in (x.sum(axis=0), np.exp(x))]",
    ),
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_similar_programs_get_different_plans(name: str, tmp_path: Path) -> None:
    first, second, then = LOOK_ALIKES[name]
    programs = [f"{first}\n{then}", f"{second}\n{then}"]
    alone = [told(p, tmp_path / str(i))["values"] for i, p in enumerate(programs)]
    shared = [told(p, tmp_path / "shared")["values"] for p in (*programs, *programs)]
    assert shared == alone * 2


#: Programs for which a second process makes no files: imperative, compiled and training.
PROGRAMS = {
    "imperative": """
x = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
values = [np.exp(x).tolist(), x.sum(axis=0).tolist(), npx.softmax(x.T).tolist()]
values += [np.dot(x, x.T).tolist(), np.concatenate([x, x[:, ::2]], axis=1).tolist()]
values += [np.ones((2, 3)).tolist(), (x + 1.5).tolist()]
x += 1
values.append(x.tolist())
""",
    "compiled": """
f = gemel.compile(lambda x: (npx.softmax(x @ x.T), x.mean(axis=0)))
values = [[y.tolist() for y in f(np.ones((n, 3)))] for n in (4, 6, 9)]
""",
    "training": """
from gemel import gluon
from gemel.gluon import nn
np.random.seed(3)
net = nn.HybridSequential()
net.add(nn.Dense(5, activation="relu"), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(2))
net.initialize()
net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "adam", {})
loss = gluon.loss.SoftmaxCrossEntropyLoss()
values = []
for n in (4, 4, 6):
    with autograd.record():
        y = loss(net(np.ones((n, 3))), np.zeros((n,), dtype="int64"))
    y.backward()
    trainer.step(n)
    values.append(y.tolist())
""",
    "imperative training": """
w = np.array([[1.0, -2.0], [0.5, 3.0]])
w.attach_grad()
values = []
for n in (2, 3):
    with autograd.record():
        y = (np.tanh(np.dot(np.ones((n, 2)), w)) ** 2).sum()
    y.backward()
    values.append(w.grad.tolist())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_second_process_makes_nothing(name: str, tmp_path: Path) -> None:
    first = told(PROGRAMS[name], tmp_path)
    assert "plan" in first["made"]
    second = told(PROGRAMS[name], tmp_path)
    assert second["values"] == first["values"]
    assert second["made"] == []


def test_one_file_serves_many_sizes(tmp_path: Path) -> None:
    program = """
arrays = [np.array([[1.0, 2.0]] * n) for n in (7, 8, 3, 100)]
del made[:]
values = [npx.softmax(x).tolist() for x in arrays[:{count}]]
"""
    assert "plan" in told(program.format(count=1), tmp_path)["made"]
    assert told(program.format(count=4), tmp_path)["made"] == []


def test_sizes_a_kept_plan_does_not_fit(tmp_path: Path) -> None:
    """The second process finds the first size's plan, but must not use it for other sizes."""
    program = """
def forward(x):
    return x.reshape(-1, 4).sum(axis=0) if x.shape[0] % 2 == 0 else x[:3].sum(axis=0)
f = gemel.compile(forward)
values = [f(np.ones((n, 4))).tolist() for n in {sizes}]
with autograd.record():
    x = np.ones((5, 4))
    x.attach_grad()
    y = f(x)
y.backward()
values.append(x.grad.tolist())
"""
    told(program.format(sizes="(8,)"), tmp_path)
    shared = told(program.format(sizes="(8, 5, 2, 3, 7, 12)"), tmp_path)
    alone = told(program.format(sizes="(8, 5, 2, 3, 7, 12)"), tmp_path / "alone")
    assert shared["values"] == alone["values"]


def test_failures_name_the_line_of_this_program(tmp_path: Path) -> None:
    program = """
def forward(x, at):
    return np.take(x, at, axis=0)
f = gemel.compile(forward)
values = []
try:
    f(np.ones((2, 3)), np.array([0, 7])).wait_to_read()
except IndexError as error:
    values.append(str(error))
"""
    first, second = (told("\n" * lines + program, tmp_path)["values"][0] for lines in (0, 5))
    assert "traced at" in first
    lines = [
        int(text.split("traced at ")[1].split(")")[0].rsplit(":", 1)[1]) for text in (first, second)
    ]
    assert lines[1] == lines[0] + 5


def test_an_operation_declared_elsewhere_is_not_kept(tmp_path: Path) -> None:
    program = """
from gemel.ir.op_kinds import Elementwise
def twice(xp, x):
    return x * {factor}
op = Elementwise(twice)
values = [op(np.ones((3,))).tolist(), gemel.compile(lambda x: op(x))(np.ones((3,))).tolist()]
"""
    found = [told(program.format(factor=k), tmp_path)["values"] for k in ("2", "3")]
    assert found == [[[2.0] * 3] * 2, [[3.0] * 3] * 2]
