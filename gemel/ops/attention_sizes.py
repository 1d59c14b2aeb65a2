"""How attention is cut: when rounds are worth it, how large they are, and which keys they see."""

from __future__ import annotations

from typing import Any, NamedTuple

from gemel.extent import hold, minimum, same_for_all, seen
from gemel.ops.elementwise import add, iota, multiply
from gemel.ops.shape import narrow, reshape

#: (columns, scores): with at most this many columns of queries and values together, rounds pay
#: off from this many scores on. Wider ones cost more to compute again for the gradient.
WORTH = ((192, 1 << 20), (256, 1 << 23))
#: From this many scores on, rounds pay off at any width: 256 MiB in float32.
ALWAYS = 1 << 26
#: With fewer keys than this, the scores take hardly more memory than the values.
FEWEST_KEYS = 128
#: Scores in one round. With the intermediate results they fit in the second-level cache.
TOGETHER = 1 << 17
#: Queries in one round, at least. With fewer, keys and values would be read too often.
FEWEST = 128
#: The same where a round skips the keys after its queries: the fewer queries, the more it skips.
FEWEST_CAUSAL = 64
#: Causal attention is cut into this many parts, each of which sees the keys up to its own end.
PARTS = 4
#: Keys whose gradients are accumulated at a time (they fit in the cache); the most such ranges.
RANGE, MOST_RANGES = 512, 16
#: So many scores a GPU computes at once: 1 GiB of float32.
HELD = 1 << 28


class Cut(NamedTuple):
    """The work of one round: some heads with all of their queries, or some queries of one head."""

    heads: int
    queries: int  # 0: all


def pays(heads: int, queries: int, keys: int, width: int) -> bool:
    """Whether attention in rounds pays off; `width` is the columns of queries and values together.

    For free sizes this sets a guard: small and large sizes get different programs.
    """
    least = next((scores for most, scores in WORTH if width <= most), ALWAYS)
    return keys >= FEWEST_KEYS and heads * queries * keys >= least


def octave(extent: int) -> int:
    """The extent rounded up to a power of two. A guard keeps a free extent within this octave."""
    power: int = 1 << (seen(extent) - 1).bit_length()
    hold(extent, power // 2, power)
    return power


def cut(heads: int, queries: int, keys: int, most: int = 0, causal: bool = False) -> Cut:
    """How to cut the scores of `heads` heads of the last leading axis, with `most` keys at a time.

    Guards keep a free number of keys between two powers of two, a free number of queries on one
    side of a bound (between two powers of two if causal), and a free number of heads a multiple of
    the heads of a round.
    """
    power = octave(keys)
    power = min(power, most or power)
    rows = max(FEWEST, TOGETHER // power)
    if causal and queries >= PARTS * FEWEST_CAUSAL:
        # Enough rounds that each of the parts has some.
        return Cut(1, min(rows, max(FEWEST_CAUSAL, octave(queries) // (2 * PARTS))))
    if queries >= 2 * rows:
        return Cut(1, rows)
    few = (g for g in range(seen(heads), 1, -1) if seen(heads) % g == 0)
    together = next((g for g in few if g * seen(queries) * power <= TOGETHER), 1)
    return Cut(together if heads % together == 0 else 1, 0)


class Part(NamedTuple):
    """`rounds` times `rows` queries from `start` on; they see `keys` keys from `first` on."""

    start: int
    rounds: int
    rows: int
    first: int
    keys: int

    @property
    def length(self) -> int:
        """The number of queries."""
        return self.rounds * self.rows

    def of_queries(self, x: Any) -> Any:
        """The rows of an array (1, n, columns) for these queries: (rounds, 1, rows, columns)."""
        own = narrow(x, axis=1, start=self.start, length=self.length)
        return reshape(own, shape=(self.rounds, 1, self.rows, x.shape[-1]))

    def of_keys(self, x: Any, axis: int = 1) -> Any:
        """The part of x along `axis` for the keys seen."""
        if same_for_all(x.shape[axis], self.keys):
            return x
        return narrow(x, axis=axis, start=self.first, length=self.keys)

    def of_mask(self, mask: Any) -> Any:
        """The part of a mask (1, n or 1, m or 1) for these keys."""
        return mask if mask.shape[-1] == 1 else self.of_keys(mask, axis=2)

    def starts(self) -> Any:
        """The position of each round's first query, counted from the first key seen."""
        rounds = iota(shape=(self.rounds,), axis=0, dtype="int32")
        return add(multiply(rounds, self.rows), self.start - self.first)


def by_queries(queries: int, keys: int, rows: int, causal: bool) -> list[Part]:
    """All queries in parts, the remainder in a part of its own. If causal, later parts see more."""
    count = queries // rows
    parts = PARTS if causal and count >= PARTS else 1
    ends = [count * (number + 1) // parts for number in range(parts)]
    found = [
        Part(start * rows, end - start, rows, 0, minimum(end * rows, keys) if causal else keys)
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    left = queries - count * rows
    if not left == 0:
        found.append(Part(count * rows, 1, left, 0, minimum(queries, keys) if causal else keys))
    return found


def by_keys(queries: int, keys: int, rows: int, causal: bool) -> list[tuple[int, list[Part]]]:
    """Ranges of keys: the length of each, and the queries that see it (if causal, later ones)."""
    count = max(1, min(MOST_RANGES, octave(keys) // RANGE))
    if causal and count < PARTS and keys >= PARTS * rows:
        count = PARTS
    rounds = queries // rows
    left = queries - rounds * rows
    found = []
    for number in range(count):
        first = keys * number // count
        length = keys * (number + 1) // count - first
        start = first // rows if causal else 0
        parts = []
        if start < rounds:
            parts.append(Part(start * rows, rounds - start, rows, first, length))
        if not left == 0 and (not causal or first < queries):
            parts.append(Part(rounds * rows, 1, left, first, length))
        found.append((length, parts))
    return found
