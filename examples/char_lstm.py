"""Learn the characters of a text with an LSTM; the last tenth of the text is held out.

python examples/char_lstm.py              # the text in examples/data
python examples/char_lstm.py book.txt
python examples/char_lstm.py --quick      # a few steps, to see that it runs

How it is trained stands in `language_training.py`, the data in `language.py`.
"""

from __future__ import annotations

from language_training import main

from gemel.gluon import nn, rnn

EMBEDDING, HIDDEN, DROPOUT = 64, 256, 0.3
RATE, EPOCHS = 4e-3, 12


def network(count: int) -> nn.HybridSequential:
    """(batch, time) of numbers below `count` -> (batch, time, count)."""
    net = nn.HybridSequential()
    net.add(
        nn.Embedding(count, EMBEDDING),
        rnn.LSTM(HIDDEN, layout="NTC"),
        nn.Dropout(DROPOUT),
        nn.Dense(count, flatten=False),
    )
    return net


if __name__ == "__main__":
    main(__doc__, network, RATE, EPOCHS)
