"""Train a small transformer to predict the next character of a text, and test it on the last tenth.

    python examples/transformer_lm.py              # the text in examples/data, about a minute
    python examples/transformer_lm.py book.txt     # another text
    python examples/transformer_lm.py --quick      # five steps, to see that it runs

What to look for: the last line shows the perplexity on the last tenth of the text, which is held
out: about 7.9 for the text in examples/data. Next to it is the perplexity of a bigram model, 13.2.
Lower is better. The program fails if the transformer is not better than the bigrams.

`language_training.py` has the training loop, `language.py` the data.
"""

from __future__ import annotations

from typing import Any

from language import LENGTH
from language_training import main

from gemel import np, npx
from gemel.gluon import nn

WIDTH, HEADS, LAYERS, DROPOUT = 128, 4, 2, 0.2
RATE, EPOCHS = 3e-3, 16


class Attention(nn.HybridBlock):
    """Causal self-attention: each position attends to itself and to earlier positions.

    Vaswani et al., Attention is all you need, NeurIPS 2017.
    """

    def __init__(self) -> None:
        super().__init__()
        self.queries_keys_values = nn.Dense(3 * WIDTH, flatten=False, use_bias=False)
        self.output = nn.Dense(WIDTH, flatten=False, use_bias=False)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Any) -> Any:
        """(batch, time, WIDTH) -> the same shape."""
        batch, time = x.shape[0], x.shape[1]
        parts = self.queries_keys_values(x).reshape(batch, time, 3, HEADS, WIDTH // HEADS)
        queries, keys, values = (parts[:, :, n].swapaxes(1, 2) for n in range(3))
        scores = np.matmul(queries, keys.swapaxes(2, 3)) / (WIDTH // HEADS) ** 0.5
        place = np.arange(time)
        scores = np.where(np.expand_dims(place, 1) >= place, scores, -1e9)
        seen = np.matmul(self.dropout(npx.softmax(scores)), values)
        return self.output(seen.swapaxes(1, 2).reshape(batch, time, WIDTH))


class Layer(nn.HybridBlock):
    """Attention, then two dense layers, each part with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm()
        self.attention = Attention()
        self.last_norm = nn.LayerNorm()
        self.wide = nn.Dense(4 * WIDTH, flatten=False)
        self.gelu = nn.GELU()
        self.narrow = nn.Dense(WIDTH, flatten=False)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Any) -> Any:
        """(batch, time, WIDTH) -> the same shape."""
        x = x + self.dropout(self.attention(self.norm(x)))
        return x + self.dropout(self.narrow(self.gelu(self.wide(self.last_norm(x)))))


class Transformer(nn.HybridBlock):
    """The network: (batch, time) of numbers below `count` -> scores (batch, time, count).

    There is a position embedding for each of LENGTH positions, so time is at most LENGTH.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.symbols = nn.Embedding(count, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.HybridSequential()
        self.layers.add(*(Layer() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm()
        self.output = nn.Dense(count, flatten=False)

    def forward(self, x: Any) -> Any:
        """The logits of the character that follows each character."""
        y = self.symbols(x) + self.places(np.arange(x.shape[1]))
        return self.output(self.norm(self.layers(self.dropout(y))))


if __name__ == "__main__":
    main(__doc__, Transformer, RATE, EPOCHS)
