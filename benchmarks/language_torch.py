"""The language models of the examples in torch: same data, same order, same steps.

    .venv-peers/bin/python benchmarks/language_torch.py lstm
    .venv-peers/bin/python benchmarks/language_torch.py transformer --seeds 0 1 2

Prints the perplexity on held-out text for each seed, and the mean, to compare with what
`examples/char_lstm.py` and `examples/transformer_lm.py` print.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from statistics import mean

import numpy
import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import language


class Characters(nn.Module):
    """The network of `examples/char_lstm.py`."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(count, 64)
        self.lstm = nn.LSTM(64, 256, batch_first=True)
        self.dropout = nn.Dropout(0.3)
        self.output = nn.Linear(256, count)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.output(self.dropout(self.lstm(self.embedding(x))[0]))


WIDTH, HEADS, LAYERS, DROPOUT = 128, 4, 2, 0.2


class Layer(nn.Module):
    """A layer of `examples/transformer_lm.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.parts = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        parts = self.parts(self.norm(x)).view(batch, time, 3, HEADS, WIDTH // HEADS)
        q, k, v = (parts[:, :, n].transpose(1, 2) for n in range(3))
        scores = q @ k.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        hidden = torch.ones(time, time, dtype=torch.bool).triu(1)
        seen = self.dropout(scores.masked_fill(hidden, -1e9).softmax(-1)) @ v
        x = x + self.dropout(self.output(seen.transpose(1, 2).reshape(batch, time, WIDTH)))
        return x + self.dropout(self.narrow(functional.gelu(self.wide(self.last_norm(x)))))


class Transformer(nn.Module):
    """The network of `examples/transformer_lm.py`."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(count, WIDTH)
        self.places = nn.Embedding(language.LENGTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.Sequential(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, count)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.symbols(x) + self.places(torch.arange(x.shape[1]))
        return self.output(self.norm(self.layers(self.dropout(y))))


#: For each network: its class, largest learning rate, and number of epochs.
MODELS = {"lstm": (Characters, 4e-3, 12), "transformer": (Transformer, 3e-3, 16)}


def train(text: language.Text, kind: str, seed: int) -> float:
    """Train a network. Returns its perplexity on the held-out text."""
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    make, rate, epochs = MODELS[kind]
    net = make(text.count)
    for parameter in net.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    for name, parameter in net.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
    steps = epochs * language.STEPS
    schedule = language.Rate(rate, steps)
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for step, (inputs, labels) in enumerate(
        batch for _ in range(epochs) for batch in language.Windows(text.train)
    ):
        for group in optimizer.param_groups:
            group["lr"] = schedule(step)
        optimizer.zero_grad()
        outputs = net(torch.tensor(inputs)).flatten(0, 1)
        functional.cross_entropy(outputs, torch.tensor(labels).long().flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    net.eval()
    with torch.no_grad():
        inputs, labels = (torch.tensor(part).long() for part in language.held_out(text))
        return math.exp(functional.cross_entropy(net(inputs).flatten(0, 1), labels.flatten()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=MODELS)
    parser.add_argument("text", nargs="?", default=language.TEXT)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = parser.parse_args()
    text, found = language.load(arguments.text), []
    for seed in arguments.seeds:
        began = time.perf_counter()
        found.append(train(text, arguments.kind, seed))
        seconds = time.perf_counter() - began
        print(f"seed {seed}: held-out perplexity {found[-1]:.3f}, {seconds:.0f} s", flush=True)
    print(f"mean {mean(found):.3f}, bigrams {language.bigram_perplexity(text):.3f}")


if __name__ == "__main__":
    main()
