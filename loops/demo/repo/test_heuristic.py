"""What must hold whatever the heuristic prefers."""

import unittest

from heuristic import priority
from packing import CAPACITY, items, pack


class Packing(unittest.TestCase):
    def test_no_bin_is_overfull(self) -> None:
        self.assertLessEqual(max(map(sum, pack(items(1)))), CAPACITY)

    def test_every_item_is_packed_once(self) -> None:
        self.assertEqual(sorted(item for each in pack(items(2)) for item in each), sorted(items(2)))

    def test_an_exact_fit_beats_every_other_bin(self) -> None:
        for free in range(31, CAPACITY + 1):
            self.assertGreater(priority(30, 30), priority(30, free))


class Priority(unittest.TestCase):
    def test_it_is_a_whole_number(self) -> None:
        for item in range(1, CAPACITY + 1):
            self.assertIsInstance(priority(item, CAPACITY), int)


if __name__ == "__main__":
    unittest.main()
