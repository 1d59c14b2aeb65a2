"""The libraries that `gpu` compares: their arrays, how to wait for the GPU, and the networks.

Each computes in float32 without TF32, but for one product of bfloat16; `SETTINGS` in `gpu` says so,
too. Every call is a library's usual, eager call. Networks are compiled by gemel (`hybridize`,
`Trainer.compile`) and by JAX (`jit`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy

from benchmarks import residual, workloads
from benchmarks.gpu import Workload

Call = Callable[[], Any]

#: The factor of a product of bfloat16, by itself.
HALF = (4096, 4096)
#: A network whose training step is measured, and ResNet-18.
TRAINING = workloads.Workload("gpu", sizes=(784, 1024, 1024, 10), batch=1024)
RESNET = residual.INFERENCE._replace(batch=32, count=1)
RATE = 0.01


class Library:
    """A contender, with its arrays on `place`."""

    name = ""

    def __init__(self, place: Any, scope: dict[str, Any]) -> None:
        self.place = place
        self.scope = {"reduce": reduce, **scope}

    def array(self, values: numpy.ndarray) -> Any:
        """The values on the GPU."""
        raise NotImplementedError

    def numbers(self, result: Any) -> numpy.ndarray:
        """A result on the CPU."""
        raise NotImplementedError

    def wait(self, result: Any) -> None:
        """Wait until the GPU has done everything up to this result."""
        raise NotImplementedError

    def call(self, workload: Workload) -> Call:
        """A workload, prepared."""
        way = workload.ways[self.name]
        if not workload.inputs:
            made: Call = getattr(self, way)()
            return made
        function = eval(f"lambda {', '.join(workload.inputs)}: {way}", self.scope)
        shapes = enumerate(workload.inputs.values())
        return partial(function, *[self.array(drawn(shape, seed)) for seed, shape in shapes])


def drawn(shape: tuple[int, ...], seed: int) -> numpy.ndarray:
    """The numbers of an input, the same for all libraries."""
    return numpy.random.default_rng(seed).standard_normal(shape, "float32")


def examples() -> tuple[numpy.ndarray, numpy.ndarray]:
    """A batch for the training step: inputs and classes."""
    (x,) = workloads.inputs(TRAINING, 1)
    return x, numpy.arange(TRAINING.batch) % TRAINING.sizes[-1]


class Gemel(Library):
    """gemel, on one of its devices."""

    name = "gemel"

    def __init__(self, place: Any) -> None:
        from gemel import np, npx

        def conv(x: Any, w: Any) -> Any:
            size, filters = w.shape[2:], w.shape[0]
            return npx.convolution(x, w, kernel=size, pad=(1, 1), num_filter=filters, no_bias=True)

        super().__init__(place, {"np": np, "npx": npx, "conv": conv})

    def array(self, values: numpy.ndarray) -> Any:
        return self.scope["np"].array(values, device=self.place)

    def numbers(self, result: Any) -> numpy.ndarray:
        found: numpy.ndarray = result.astype("float32").asnumpy()
        return found

    def wait(self, result: Any) -> None:
        self.scope["npx"].waitall()

    def training_step(self) -> Call:
        from benchmarks.contenders import gemel_contender
        from gemel import gluon

        with self.place:
            net = gemel_contender.network("gemel hybridized", TRAINING)
        loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": RATE})
        step = trainer.compile(lambda x, y: loss_of(net(x), y).mean())
        return partial(step, *map(self.array, examples()), batch_size=1)

    def half_product(self) -> Call:
        np = self.scope["np"]
        x = self.array(drawn(HALF, 0)).astype("bfloat16")
        return lambda: np.dot(x, x)

    def resnet(self) -> Call:
        from benchmarks.contenders import gemel_residual

        with self.place:
            net = gemel_residual.network("gemel hybridized", RESNET)
        return partial(net, self.array(residual.pictures(RESNET)[0]))


class Torch(Library):
    """PyTorch, eager. cuDNN tries its ways to convolve and takes the fastest."""

    name = "torch"

    def __init__(self, place: Any) -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        super().__init__(place, {"torch": torch, "F": torch.nn.functional})
        self.torch = torch

    def array(self, values: numpy.ndarray) -> Any:
        return self.torch.from_numpy(values).to(self.place)

    def numbers(self, result: Any) -> numpy.ndarray:
        found: numpy.ndarray = result.detach().float().cpu().numpy()
        return found

    def wait(self, result: Any) -> None:
        if self.place == "cuda":
            self.torch.cuda.synchronize()

    def training_step(self) -> Call:
        from benchmarks.contenders import torch_contender

        net = torch_contender.network(TRAINING).to(self.place)
        optimizer = self.torch.optim.SGD(net.parameters(), RATE)
        loss_of = self.torch.nn.CrossEntropyLoss()
        x, y = map(self.array, examples())

        def step() -> Any:
            optimizer.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def half_product(self) -> Call:
        x = self.array(drawn(HALF, 0)).bfloat16()
        return lambda: x @ x

    def resnet(self) -> Call:
        from benchmarks.contenders import torch_residual

        net = torch_residual.network().eval().to(self.place)
        x = self.array(residual.pictures(RESNET)[0])
        return self.torch.inference_mode()(partial(net, x))


class Cupy(Library):
    """CuPy: arrays and products, no networks."""

    name = "cupy"

    def __init__(self, place: Any) -> None:
        import cupy

        super().__init__(place, {"np": cupy})
        self.cupy = cupy

    def array(self, values: numpy.ndarray) -> Any:
        return self.cupy.asarray(values)

    def numbers(self, result: Any) -> numpy.ndarray:
        found: numpy.ndarray = self.cupy.asnumpy(result)
        return found

    def wait(self, result: Any) -> None:
        self.cupy.cuda.Device().synchronize()


class Jax(Library):
    """JAX: eager operations, compiled networks."""

    name = "jax"

    def __init__(self, place: Any) -> None:
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")

        def conv(x: Any, w: Any) -> Any:
            return jax.lax.conv_general_dilated(x, w, (1, 1), ((1, 1), (1, 1)))

        super().__init__(place, {"np": jax.numpy, "jax": jax, "conv": conv})
        self.jax = jax

    def array(self, values: numpy.ndarray) -> Any:
        return self.jax.device_put(values, self.place)

    def numbers(self, result: Any) -> numpy.ndarray:
        return numpy.asarray(result, dtype="float32")

    def wait(self, result: Any) -> None:
        self.jax.block_until_ready(result)

    def training_step(self) -> Call:
        from benchmarks.contenders import jax_contender

        jax, state = self.jax, jax_contender.device_parameters(TRAINING)

        def loss_of(layers: Any, x: Any, y: Any) -> Any:
            chances = jax.nn.log_softmax(jax_contender.forward(layers, x))
            return -jax.numpy.take_along_axis(chances, y[:, None], 1).mean()

        def update(layers: Any, x: Any, y: Any) -> Any:
            loss, gradient = jax.value_and_grad(loss_of)(layers, x, y)
            return jax.tree.map(lambda p, g: p - RATE * g, layers, gradient), loss

        compiled = jax.jit(update, donate_argnums=0)
        x, y = map(self.array, examples())

        def step() -> Any:
            nonlocal state
            state, loss = compiled(state, x, y)
            return loss

        return step

    def half_product(self) -> Call:
        x = self.array(drawn(HALF, 0)).astype("bfloat16")
        return lambda: x @ x

    def resnet(self) -> Call:
        from benchmarks.contenders import jax_residual

        case: Any = jax_residual.resnet("jax", RESNET)
        return partial(case.function, self.array(residual.pictures(RESNET)[0]))


def on_gpu(name: str) -> Library:
    """A library on the first GPU. Raises what it raises if it has none, or is not installed."""
    if name == "gemel":
        from gemel import gpu

        return Gemel(gpu(0))
    if name == "torch":
        import torch

        torch.zeros(1, device="cuda")
        return Torch("cuda")
    if name == "cupy":
        made = Cupy(None)
        made.array(numpy.zeros(1, "float32"))
        return made
    import jax

    return Jax(jax.devices("gpu")[0])
