"""Measures one library on one network of `networks`; prints one line of JSON.

`python -m benchmarks.networks_worker LIBRARY NETWORK THREADS SECONDS PROCESSOR`
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent)
# Prefer an installed gemel to the source tree, whose core may not be compiled.
sys.path[:] = [entry for entry in sys.path if entry not in ("", ROOT)] + [ROOT]

import numpy  # noqa: E402

from benchmarks.networks import NETWORKS, Network  # noqa: E402
from benchmarks.operations_worker import QUICK, drawn, timed  # noqa: E402
from benchmarks.turns import PAUSE_SECONDS  # noqa: E402

#: The rate of Adam.
RATE = 1e-3
#: Steps of a round of training, which begins with the first weights. What is compiled only when it
#: recurs is compiled in the first round, which is not measured.
STEPS = 5
WEIGHT_SEED, TARGET_SEED = 1000, 99

Step = Callable[[], float]
Clock = Callable[[], float]


def weight(place: int, name: str, shape: tuple[int, ...]) -> Any:
    """The first value of the parameter at this place, the same for all libraries."""
    if len(shape) == 1:  # of biases and the shifts of normalizations 0, of their scales 1
        filled = numpy.zeros if "bias" in name or "beta" in name else numpy.ones
        return filled(shape, "float32")
    generator = numpy.random.default_rng(WEIGHT_SEED + place)
    values = generator.standard_normal(shape, "float32")
    return values / numpy.float32(prod(shape[1:]) ** 0.5)


def arrays(network: Network) -> list[Any]:
    """The inputs and, if there is one, the target: the same for all libraries."""
    found = [drawn(each, place) for place, each in enumerate(network.inputs)]
    return found + ([drawn(network.target, TARGET_SEED)] if network.target else [])


class Gemel:
    """gemel: imperative or hybridized, trained by three calls or by a compiled step."""

    inferences = ("imperative inference", "inference")

    def __init__(self, network: Network) -> None:
        from benchmarks import networks_gemel
        from gemel import gluon, np

        self.net: Any = getattr(networks_gemel, network.name)()
        self.arrays = [np.array(each) for each in arrays(network)]
        self.inputs = self.arrays[: len(network.inputs)]
        self.net.initialize()
        self.net.infer_shape(*self.inputs)
        parameters = self.net.collect_params()
        learned = [item for item in parameters.items() if item[1].grad_req != "null"]
        for place, (name, parameter) in enumerate(learned):
            parameter.set_data(np.array(weight(place, name, parameter.shape)))
        self.first = [(each, each.data().copy()) for each in parameters.values()]
        self.hybrid = [self.net]
        self.ways: dict[str, Step] = {}
        if network.target is None:
            return
        classes = network.target.limit > 0
        self.loss: Any = (gluon.loss.SoftmaxCrossEntropyLoss if classes else gluon.loss.L2Loss)()
        self.hybrid.append(self.loss)
        self.trainer = gluon.Trainer(parameters, "adam", {"learning_rate": RATE})
        self.step = self.trainer.compile(self.mean_loss)
        self.folder = TemporaryDirectory()
        self.states = str(Path(self.folder.name) / "states")
        self.trainer.save_states(self.states)
        calls = dict.fromkeys(("imperative", "hybridized"), self.three_calls)
        self.ways = {**calls, "compiled": self.compiled}

    def begin(self, way: str) -> None:
        """Hybridize the network and the loss, or not, as a way of training or inference asks."""
        for block in self.hybrid:
            block.hybridize(not way.startswith("imperative"))

    def reset(self) -> None:
        """Begin with the first weights and the first state of the optimizer."""
        for parameter, value in self.first:
            parameter.set_data(value)
        if self.ways:
            self.trainer.load_states(self.states)

    def mean_loss(self, *given: Any) -> Any:
        return self.loss(self.net(*given[:-1]), given[-1]).mean()

    def three_calls(self) -> float:
        from gemel import autograd, npx

        with autograd.record():
            loss = self.mean_loss(*self.arrays)
        loss.backward()
        self.trainer.step(1)
        npx.waitall()
        return float(loss)

    def compiled(self) -> float:
        from gemel import npx

        loss = self.step(*self.arrays, batch_size=1)
        npx.waitall()
        return float(loss)

    def inference(self) -> list[Any]:
        found = self.net(*self.inputs)
        results = list(found) if isinstance(found, (list, tuple)) else [found]
        for each in results:
            each.wait_to_read()
        return results


class Torch:
    """torch: eager calls."""

    inferences = ("inference",)

    def __init__(self, network: Network) -> None:
        import torch

        from benchmarks import networks_torch

        self.torch = torch
        self.net: Any = getattr(networks_torch, network.name)()
        self.arrays = [torch.from_numpy(each) for each in arrays(network)]
        self.inputs = self.arrays[: len(network.inputs)]
        with torch.no_grad():
            for place, (name, parameter) in enumerate(self.net.named_parameters()):
                parameter.copy_(torch.from_numpy(weight(place, name, tuple(parameter.shape))))
        self.first = {name: each.clone() for name, each in self.net.state_dict().items()}
        self.classes = network.target is not None and network.target.limit > 0
        self.ways: dict[str, Step] = {"step": self.three_calls} if network.target else {}

    def begin(self, way: str) -> None:
        """Nothing: all ways are eager."""

    def reset(self) -> None:
        """Begin with the first weights and the first state of the optimizer."""
        self.net.load_state_dict(self.first)
        self.net.train()
        self.optimizer = self.torch.optim.Adam(self.net.parameters(), RATE)

    def mean_loss(self, *given: Any) -> Any:
        found, target = self.net(*given[:-1]), given[-1]
        functional = self.torch.nn.functional
        if self.classes:
            return functional.cross_entropy(found.flatten(0, -2), target.flatten())
        return 0.5 * functional.mse_loss(found, target)

    def three_calls(self) -> float:
        self.optimizer.zero_grad()
        loss = self.mean_loss(*self.arrays)
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def inference(self) -> list[Any]:
        if self.net.training:  # in the first call, which is not measured
            self.net.eval()
        with self.torch.inference_mode():
            found = self.net(*self.inputs)
        return found if isinstance(found, list) else [found]


def trained(case: Gemel | Torch, step: Step, seconds: float, clock: Clock) -> list[float]:
    """The time of a step in microseconds, and the least and the largest losses of all rounds.

    The time is that at the quantile `QUICK`. Each round has the same losses, up to rounding.
    """
    rounds: list[list[float]] = []
    times: list[float] = []
    while len(rounds) < 2 or sum(times) < seconds:
        case.reset()
        losses = []
        for _ in range(STEPS):
            begin = clock()
            losses.append(step())
            times.append(clock() - begin)
        if not rounds:
            times.clear()
        rounds.append(losses)
    quick = sorted(times)[int(QUICK * len(times))]
    found = numpy.array(rounds)
    return [quick * 1e6, *found.min(axis=0).tolist(), *found.max(axis=0).tolist()]


def measured(case: Gemel | Torch, seconds: float, clock: Clock) -> dict[str, list[float]]:
    """The time of each way and what came out. Inference has the first weights."""
    found = {}
    for way, step in case.ways.items():
        case.begin(way)
        found[way] = trained(case, step, seconds, clock)
    case.reset()
    for way in case.inferences:
        case.begin(way)
        found[way] = timed(case.inference, seconds, clock)
    return found


def main() -> None:
    """Measure what the arguments name."""
    library, name, threads, seconds, processor = sys.argv[1:]
    clock = time.process_time if int(processor) else time.perf_counter
    if library == "torch":
        import torch

        torch.set_num_threads(int(threads))
    kinds: dict[str, type[Gemel] | type[Torch]] = {"gemel": Gemel, "torch": Torch}
    case = kinds[library](next(each for each in NETWORKS if each.name == name))
    time.sleep(PAUSE_SECONDS)  # what the process before this one has left to do is done then
    print(json.dumps(measured(case, float(seconds), clock)), flush=True)


if __name__ == "__main__":
    main()
