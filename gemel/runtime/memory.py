"""Memory planning: where in the workspace each temporary lies, given when it lives."""

from __future__ import annotations

ALIGNMENT = 64


def aligned(size: int) -> int:
    """A size rounded up, so that the next temporary is aligned too."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan_memory(temporaries: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Offsets of temporaries (size in bytes, first step, last step), and the workspace they need.

    Largest first, each at the lowest offset where no temporary alive at the same time lies: the
    greedy-by-size strategy of Pisarchyk and Lee (2020).
    """
    order = sorted(range(len(temporaries)), key=lambda i: (-temporaries[i][0], temporaries[i][1]))
    offsets = [0] * len(temporaries)
    placed: list[int] = []
    total = 0
    for index in order:
        size, first, last = temporaries[index]
        offset = 0
        overlapping = (
            p for p in placed if temporaries[p][1] <= last and first <= temporaries[p][2]
        )
        for other in sorted(overlapping, key=offsets.__getitem__):
            if offset + aligned(size) <= offsets[other]:
                break
            offset = max(offset, offsets[other] + aligned(temporaries[other][0]))
        offsets[index] = offset
        placed.append(index)
        total = max(total, offset + aligned(size))
    return offsets, total
