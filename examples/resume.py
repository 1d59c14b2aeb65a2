"""Kill a training with kill -9 again and again, restart it, and end with the same bits.

    python examples/resume.py               # five kills, at random moments
    python examples/resume.py --quick       # one kill, four epochs

The training runs in a process of its own: a network with dropout and batch normalisation learns
scikit-learn's handwritten digits in a random order, with Adam. Nothing in its code deals with being
killed: `gluon.fit(..., checkpoint=...)` resumes from the checkpoint file if there is one.

What to look for: the last line confirms that the killed training ended with the same bits in its
parameters, and the same history, as one that was not disturbed. The program fails otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time

BATCH_SIZE = 32


def train(checkpoint: str, epochs: int) -> None:
    """The training that gets killed. Prints a digest of the parameters, and the history."""
    from sklearn.datasets import load_digits

    from gemel import gluon, init, np
    from gemel.gluon import nn

    np.random.seed(0)
    images, labels = load_digits(return_X_y=True)
    digits = gluon.data.ArrayDataset((images / 16).astype("float32"), labels.astype("int32"))
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(10))
    net.initialize(init.Xavier())
    net.hybridize()
    run = gluon.fit(
        net,
        gluon.data.DataLoader(digits, BATCH_SIZE, shuffle=True),
        gluon.loss.SoftmaxCrossEntropyLoss(),
        gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3}),
        ["accuracy"],
        epochs=epochs,
        checkpoint=gluon.Checkpoint(checkpoint, batches=5),
        progress=False,
    )
    bits = hashlib.sha256()
    for parameter in net.collect_params().values():
        bits.update(parameter.data().asnumpy().tobytes())
    print(json.dumps({"bits": bits.hexdigest(), "history": run.history, "steps": run.step}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="one kill, four epochs")
    parser.add_argument("--train", metavar="CHECKPOINT", help="run the training itself (internal)")
    arguments = parser.parse_args()
    kills, epochs = (1, 4) if arguments.quick else (arguments.kills, arguments.epochs)
    if arguments.train:
        train(arguments.train, arguments.epochs)
        return
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        whole = finished(started(os.path.join(folder, "whole"), epochs))
        seconds = time.perf_counter() - began
        print(f"without a kill: {whole['steps']} steps in {seconds:.1f} s, {last(whole)}")
        file = os.path.join(folder, "killed")
        for number in range(kills):
            kill_one(file, epochs, number, kills)
        again = finished(started(file, epochs))
    print(f"after the kills: {again['steps']} steps, {last(again)}")
    print(f"parameters {whole['bits'][:16]} and {again['bits'][:16]}")
    if again != whole:
        sys.exit("FAILED: the resumed training ends elsewhere")
    print("the same bits, and the same history")


def kill_one(file: str, epochs: int, number: int, kills: int) -> None:
    """Start the training and kill it soon after it has written a new checkpoint.

    So each start resumes further on than the one before.
    """
    process = started(file, epochs)
    before = os.path.getmtime(file) if os.path.exists(file) else 0
    while process.poll() is None and not (os.path.exists(file) and os.path.getmtime(file) > before):
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.3 / kills))
    process.kill()
    process.communicate()
    how = "killed" if process.returncode < 0 else "was done before"
    print(f"kill {number + 1}: {how}, with a checkpoint of {os.path.getsize(file)} bytes")


def started(file: str, epochs: int) -> subprocess.Popen[str]:
    """Start the training in a process of its own."""
    command = [sys.executable, __file__, "--train", file, "--epochs", str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict:
    """Wait until the training ends. Returns what it printed last."""
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"FAILED: the training ended with {process.returncode}")
    return json.loads(output.splitlines()[-1])


def last(found: dict) -> str:
    """The last entry of the history, as text."""
    return ", ".join(f"{name} {value:.4f}" for name, value in found["history"][-1].items())


if __name__ == "__main__":
    main()
