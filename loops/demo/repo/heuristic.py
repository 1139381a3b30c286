"""Which of the open bins an item goes into: the one whose `priority` is highest."""


def priority(item: int, free: int) -> int:
    """How much `item` belongs into a bin with `free` units left. `item <= free`."""
    gap = free - item
    if gap < 1:
        return 500
    if gap < 4:
        return 30 + gap
    if gap > 70 and item < 20:
        return 2 - gap
    return gap * 2 + item // 3
