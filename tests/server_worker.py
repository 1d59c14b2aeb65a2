"""A worker of a job with parameter servers. It logs every step.

Its arguments are a folder, the number of steps, the seconds to pause in each, and a mode. In the
mode "sums" each worker pushes 2 ** rank, so that a sum shows which workers are in it. In the mode
"adam" the gradients depend on the parameters, so that the parameters depend on all earlier steps.
"""

import json
import os
import sys
import time

import numpy

from gemel import kvstore, np, optimizer


def main(folder: str, steps: int, pause: float, mode: str) -> None:
    store = kvstore.create("dist_sync")
    name = f"{store.rank}.{os.environ['GEMEL_RESTARTS']}.{os.getpid()}"
    keys = ["large", "small", "other"]
    weights = [np.ones((300,)), np.ones((3,)), np.ones((2, 5))]
    store.init(keys, weights)
    if mode == "adam":
        store.set_optimizer(optimizer.create("adam", learning_rate=0.05))
    store.pull(keys, weights)
    with open(os.path.join(folder, name), "w", buffering=1) as log:
        print(json.dumps({"begins": store.step, "time": time.time()}), file=log)
        for step in range(store.step, steps):
            time.sleep(pause)
            draw = numpy.random.default_rng([step, store.rank])
            for key, weight in zip(keys, weights, strict=True):
                if mode == "sums":
                    grad = np.full(weight.shape, 2.0**store.rank)
                else:
                    noise = draw.normal(size=weight.shape).astype("float32")
                    grad = weight * np.array(noise) + 0.1
                store.push(key, grad)
            store.pull(keys, weights)
            said = {
                "step": step,
                "time": time.time(),
                "firsts": [float(w.reshape(-1)[0]) for w in weights],  # waits for the values
                "shares": [store.share(key) for key in keys],
            }
            print(json.dumps(said), file=log)
        values = [w.asnumpy().tobytes().hex() for w in weights]
        print(json.dumps({"ends": store.step, "values": values, "time": time.time()}), file=log)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
