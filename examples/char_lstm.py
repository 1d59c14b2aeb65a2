"""Train an LSTM to predict the next character of a text, and test it on the last tenth.

    python examples/char_lstm.py              # the text in examples/data, about a minute
    python examples/char_lstm.py book.txt     # another text
    python examples/char_lstm.py --quick      # five steps, to see that it runs

What to look for: the last line shows the perplexity on the last tenth of the text, which is held
out: about 6.8 for the text in examples/data. Next to it is the perplexity of a bigram model, 13.2.
Lower is better. The program fails if the LSTM is not better than the bigrams.

`language_training.py` has the training loop, `language.py` the data.
"""

from __future__ import annotations

from language_training import main

from gemel.gluon import nn, rnn

EMBEDDING, HIDDEN, DROPOUT = 64, 256, 0.3
RATE, EPOCHS = 4e-3, 12


def network(count: int) -> nn.HybridSequential:
    """The network: (batch, time) of numbers below `count` -> scores (batch, time, count)."""
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
