"""Training and evaluation, shared by the examples that learn the characters of a text."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import language
import numpy

from gemel import gluon, init, np


def main(document: str, network: Callable[[int], Any], rate: float, epochs: int) -> None:
    """Train a network as the command line says, and print its perplexity on the held-out text.

    Exits with 1 if the network is not better than bigrams.
    """
    arguments = parse_arguments(document)
    text = language.load(arguments.text)
    bigrams = language.bigram_perplexity(text)
    epochs = arguments.epochs or (1 if arguments.quick else epochs)
    steps = 5 if arguments.quick else language.STEPS
    print(f"{len(text.train)} characters to learn, {len(text.held_out)} held out")
    began = time.perf_counter()
    found = train(text, network, rate, epochs, steps, arguments.seed, arguments.checkpoint)
    print(
        f"held-out perplexity {found:.3f} after {epochs * steps} steps, bigrams {bigrams:.3f}, "
        f"{time.perf_counter() - began:.0f} s"
    )
    if not arguments.quick and found >= bigrams:
        sys.exit("FAILED: it should be better than bigrams")


def parse_arguments(document: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=document.splitlines()[0])
    parser.add_argument("text", nargs="?", default=language.TEXT, help="text file to learn")
    parser.add_argument("--epochs", type=int, help=f"epochs of {language.STEPS} steps")
    parser.add_argument("--seed", type=int, default=0, help="seed of random numbers (default: 0)")
    parser.add_argument(
        "--checkpoint", help="file to write after each epoch; training resumes from it if it exists"
    )
    parser.add_argument("--quick", action="store_true", help="train for five steps only")
    return parser.parse_args()


def train(
    text: language.Text,
    network: Callable[[int], Any],
    rate: float,
    epochs: int,
    steps: int,
    seed: int,
    checkpoint: str | None = None,
) -> float:
    """Train a network. Returns its perplexity on the held-out text."""
    numpy.random.seed(seed)
    np.random.seed(seed)
    net = network(text.count)
    net.initialize(init.Xavier())
    net.hybridize()
    rule = {"lr_scheduler": language.Rate(rate, epochs * steps)}
    run = gluon.fit(
        net,
        language.Windows(text.train, steps),
        gluon.loss.SoftmaxCrossEntropyLoss(),
        gluon.Trainer(net.collect_params(), "adam", rule),
        callbacks=[gluon.ClipGradients(1.0)],
        epochs=epochs,
        validation=[language.held_out(text)],
        checkpoint=checkpoint,
    )
    return math.exp(run.history[-1]["validation loss"])
