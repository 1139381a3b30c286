"""Scores: read from what a validator printed or wrote, compared beyond their noise."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from evolver.definition import ScoreSection
from evolver.model import StepResult
from evolver.score import Measured, judge, read, stamp


def result(tmp_path: Path, text: str) -> StepResult:
    log = tmp_path / "v.log"
    log.write_text(text)
    return StepResult(name="v", exit_code=0, log=str(log))


@pytest.mark.parametrize(
    ("section", "text", "value"),
    [
        ({"pattern": r"score: (\S+)"}, "score: 1\nscore: 2.50\nend\n", "2.50"),
        ({"pattern": r"\d+"}, "a 3\nb\n", "3"),
        ({"pattern": r"score: (\S+)"}, "score: nan\n", None),
        ({"pattern": r"score: (\S+)"}, "", None),
        ({"json": "a.b.1"}, 'x\n{"a": {"b": [1, 0.125]}}\n', "0.125"),
        ({"json": "a"}, '{"a": true}\n', None),
        ({"json": "a"}, "{broken\n", None),
    ],
)
def test_reading(tmp_path: Path, section: dict[str, str], text: str, value: str | None) -> None:
    found = read(msgspec.convert({"validator": "v", **section}, ScoreSection), result(tmp_path, text), (), ())
    assert found == (Decimal(value) if value is not None else None)


def test_reading_a_file(tmp_path: Path) -> None:
    section = ScoreSection(validator="v", file="score.txt")
    files = (tmp_path / "none/score.txt", tmp_path / "score.txt")
    before = tuple(stamp(path) for path in files)
    assert read(section, result(tmp_path, ""), files, before) is None
    (tmp_path / "score.txt").write_text(" 42 \n")
    assert read(section, result(tmp_path, ""), files, before) == 42
    assert read(section, result(tmp_path, ""), files, tuple(stamp(path) for path in files)) is None  # it lay there


@pytest.mark.parametrize(
    ("values", "best", "options", "accepted"),
    [
        (["5"], None, {}, True),
        (["5"], "4", {}, True),
        (["5"], "5", {}, False),
        (["5"], "6", {}, False),
        (["5"], "6", {"direction": "lower"}, True),
        (["5"], "4.5", {"min_delta": "0.5"}, True),
        (["5"], "4.6", {"min_delta": "0.5"}, False),
        (["5", "5.2", "4.8"], "4.9", {}, False),
        (["5", "5.2", "4.8"], "4.7", {}, True),
    ],
)
def test_judging(values: list[str], best: str | None, options: dict[str, str], accepted: bool) -> None:
    section = msgspec.convert({"validator": "v", "pattern": "x", **options}, ScoreSection)
    measured = Measured.of([Decimal(v) for v in values])
    reason = judge(section, measured, Decimal(best) if best is not None else None)
    assert (reason is None) is accepted
    if reason is not None:
        assert str(measured.value) in reason
        assert str(best) in reason


def test_no_score_is_a_rejection() -> None:
    assert judge(ScoreSection(validator="v", pattern="x"), None, None) == "score: the validator printed none"
