"""Online bin packing: items come one at a time and never move again; fewer bins are better."""

from heuristic import priority

CAPACITY = 100


def pack(items: list[int]) -> list[list[int]]:
    """The bins, in the order in which they were opened. An item never overfills a bin."""
    bins: list[list[int]] = []
    free: list[int] = []
    for item in items:
        fitting = [index for index, left in enumerate(free) if item <= left]
        if fitting:
            best = max(fitting, key=lambda index: (priority(item, free[index]), -index))
        else:
            best = len(bins)
            bins.append([])
            free.append(CAPACITY)
        bins[best].append(item)
        free[best] -= item
    return bins


def items(seed: int, count: int = 150) -> list[int]:
    """The same items for the same seed, on every machine and Python."""
    state, made = seed * 2654435761 % 2**32 + 1, []
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        made.append(8 + (state >> 16) % 53)
    return made
