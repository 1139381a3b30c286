"""What reaches a terminal is harmless, short and readable."""

from __future__ import annotations

from decimal import Decimal

import pytest

from evolver.ui import words


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]52;c;aGVsbG8=\x1b\\after", "after"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x9b31mred", "red"),
        ("a\x00b\x08c\x7f", "a�b�c�"),
        ("pay \u202etxt.exe\u202c", "pay �txt.exe�"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\udcff", "�"),
        ("\x1b[", ""),
        ("\x1b", ""),
    ],
)
def test_escape_sequences_and_controls_are_removed(raw: str, shown: str) -> None:
    assert words.plain(raw) == shown


@pytest.mark.parametrize(
    ("output", "last"),
    [
        ("one\ntwo\n", "two"),
        ("10%\r20%\r30%", "30%"),
        ("done\n\x1b[2K\x1b[1A\n", "done"),
        ("  \n\t\n", ""),
        ("", ""),
        ("\x1b[1mbold\x1b[0m   text\n", "bold text"),
    ],
)
def test_the_last_line_is_what_a_terminal_would_show(output: str, last: str) -> None:
    assert words.last_line(output) == last


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_999, "60.0 s"),
        (65_000, "1m05s"),
        (7_380_000, "2h03m"),
        (93_600_000, "1d02h"),
    ],
)
def test_durations(ms: int, text: str) -> None:
    assert words.took(ms) == text


@pytest.mark.parametrize(
    ("cost", "text"), [("0", "$0.00"), ("0.004", "$0.004"), ("12.3456", "$12.35"), ("0.0000001", "$0.0000001")]
)
def test_money(cost: str, text: str) -> None:
    assert words.money(Decimal(cost)) == text


def test_the_lines_that_matter_are_those_that_name_a_failure() -> None:
    output = "\n".join(
        [*(f"ok {n}" for n in range(500)), "E   assert 1 == 2", "FAILED tests/test_a.py::test_b", "1 failed in 0.2s"]
    )
    assert words.lines_that_matter(output) == ("E   assert 1 == 2", "FAILED tests/test_a.py::test_b", "1 failed in 0.2s")
    assert words.lines_that_matter("quiet\nlast\n", 1) == ("last",)
    assert words.lines_that_matter("") == ()
    assert max(map(len, words.lines_that_matter("error " + "x" * 10_000))) == 300


def test_one_line_cuts() -> None:
    assert words.one_line("a\r\nb\n  c", 0) == "a b c"
    assert words.one_line("abcdef", 4) == "abc…"


def test_columns_align_and_cut_nothing() -> None:
    assert words.columns([("a", "bb", "c"), ("aaa", "b", "")]) == ["a    bb  c", "aaa  b"]
    assert words.columns([]) == []
