"""Steps as plain functions. Each gets a `StepContext`: where to work, which iteration, where the last failure is told."""

import random

from evolver.model import StepContext


def shuffle(context: StepContext) -> None:
    """Swap two neighbouring words of words.txt that are in the wrong order, or, where the last attempt failed, sort."""
    path = context.cwd / "words.txt"
    words = path.read_text().split()
    if context.last_failure.read_text():
        words.sort()
    else:
        random.Random(context.iteration).shuffle(words)
    path.write_text("\n".join(words) + "\n")


def is_sorted(context: StepContext) -> bool:
    words = (context.cwd / "words.txt").read_text().split()
    print(f"{len(words)} words")
    return words == sorted(words)
