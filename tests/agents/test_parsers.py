"""What each CLI prints (recorded from Claude Code and Codex; the others by their documented formats), and what is made of it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from evolver.model import AgentReport
from evolver.steps.parsers import PARSERS
from evolver.steps.presets import PRESETS
from evolver.steps.said import Said, is_transient, money, retry_after

CLAUDE_OK = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "api_error_status": None,
    "num_turns": 2,
    "result": "All done.",
    "session_id": "846db2d0",
    "total_cost_usd": 0.002,
    "usage": {"input_tokens": 200, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 40},
    "permission_denials": [],
}
CLAUDE_429 = {
    **CLAUDE_OK,
    "is_error": True,
    "api_error_status": 429,
    "result": "API Error: Request rejected (429) · the stub says no",
    "total_cost_usd": 0,
}
CODEX_START = [
    {"type": "thread.started", "thread_id": "01a2"},
    {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "Model metadata for `stub` not found."}},
    {"type": "turn.started"},
]
CODEX_OK = [
    *CODEX_START,
    {"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": "All done."}},
    {"type": "turn.completed", "usage": {"input_tokens": 200, "cached_input_tokens": 0, "output_tokens": 40}},
]
CODEX_429 = [
    *CODEX_START,
    {"type": "error", "message": "Reconnecting... 1/1 (exceeded retry limit, last status: 429 Too Many Requests)"},
    {"type": "turn.failed", "error": {"message": "exceeded retry limit, last status: 429 Too Many Requests"}},
]
GEMINI_OK = [
    {"type": "init", "session_id": "g1", "model": "m"},
    {"type": "message", "role": "assistant", "content": "first ", "delta": True},
    {"type": "tool_use", "tool_name": "write_file"},
    {"type": "message", "role": "assistant", "content": "All ", "delta": True},
    {"type": "message", "role": "assistant", "content": "done.", "delta": True},
    {"type": "result", "status": "success", "stats": {"total_tokens": 240, "input_tokens": 200, "output_tokens": 40}},
]
OPENCODE_OK = [
    {"type": "step_start", "sessionID": "ses_1", "part": {}},
    {"type": "step_finish", "sessionID": "ses_1", "part": {"tokens": {"input": 150, "output": 30}, "cost": 0.001}},
    {"type": "text", "sessionID": "ses_1", "part": {"text": "All done."}},
    {
        "type": "step_finish",
        "sessionID": "ses_1",
        "part": {"tokens": {"input": 50, "output": 10, "cache": {"read": 0}}, "cost": 0.001},
    },
]
AIDER_OK = """Aider v0.86.2
Model: openai/stub with whole edit format
Tokens: 2.4k sent, 120 received. Cost: $0.0024 message, $0.0024 session.
Applied edit to a.txt
"""
AIDER_RATE = """Aider v0.86.2
litellm.RateLimitError: RateLimitError: OpenAIException - slow down
The API provider has rate limited you. Try again later or check your quotas.
Retrying in 0.2 seconds...
litellm.RateLimitError: RateLimitError: OpenAIException - slow down
"""


def lines(*objects: object) -> str:
    return "".join(json.dumps(o) + "\n" for o in objects)


def parse(
    tmp_path: Path, parser: str, output: str, exit_code: int | None = 0, rate_limit: str = "", trajectory: object = None
) -> AgentReport:
    log = tmp_path / "log"
    log.write_text(output)
    if trajectory is not None:
        (tmp_path / "trajectory.json").write_text(json.dumps(trajectory))
    return PARSERS[parser](Said(exit_code, log, output[-16384:], True, tmp_path, rate_limit))


MINI_OK = {
    "info": {"exit_status": "Submitted", "submission": "All done.", "model_stats": {"instance_cost": 0.002, "api_calls": 2}},
    "messages": [
        {"role": "assistant", "extra": {"response": {"usage": {"prompt_tokens": 150, "completion_tokens": 30}}}},
        {"role": "user", "content": "x"},
        {"role": "assistant", "extra": {"response": {"usage": {"prompt_tokens": 50, "completion_tokens": 10}}}},
    ],
}


@pytest.mark.parametrize(
    ("parser", "output", "trajectory", "expected"),
    [
        ("claude", lines({"type": "system"}, CLAUDE_OK), None, (215, 40, "0.002", 2, "846db2d0")),
        ("codex", lines(*CODEX_OK), None, (200, 40, None, 1, "01a2")),
        ("gemini", "a warning\n" + lines(*GEMINI_OK), None, (200, 40, None, None, "g1")),
        ("opencode", lines(*OPENCODE_OK), None, (200, 40, "0.002", 2, "ses_1")),
        ("mini-swe-agent", "whatever", MINI_OK, (200, 40, "0.002", 2, None)),
    ],
)
def test_success(tmp_path: Path, parser: str, output: str, trajectory: object, expected: tuple[object, ...]) -> None:
    report = parse(tmp_path, parser, output, trajectory=trajectory)
    assert report.ok and not report.transient
    assert (report.input_tokens, report.output_tokens, report.cost_usd, report.turns, report.session_id) == expected
    assert report.last_message == "All done."


def test_success_of_aider(tmp_path: Path) -> None:
    report = parse(tmp_path, "aider", AIDER_OK)
    assert report.ok and (report.input_tokens, report.output_tokens, report.cost_usd) == (2400, 120, "0.0024")


FAILURES = [
    # parser, output, exit code, words of the reason, transient
    ("claude", lines(CLAUDE_429), 1, "429", True),
    ("claude", lines({**CLAUDE_429, "api_error_status": 500, "result": "API Error: 500 the stub says no."}), 1, "500", True),
    ("claude", lines({**CLAUDE_429, "api_error_status": 529, "result": "Overloaded"}), 1, "529", True),
    (
        "claude",
        lines({**CLAUDE_429, "api_error_status": 401, "result": "Invalid API key · Please run /login"}),
        1,
        "401",
        False,
    ),
    ("claude", lines({**CLAUDE_429, "api_error_status": 400, "result": "Credit balance is too low"}), 1, "balance", False),
    ("claude", lines({**CLAUDE_OK, "subtype": "error_max_turns", "result": ""}), 1, "error_max_turns", False),
    ("claude", lines({**CLAUDE_OK, "subtype": "error_max_budget_usd"}), 1, "error_max_budget_usd", False),
    ("claude", lines(CLAUDE_OK), 1, "exit 1", False),  # its last word is good and its exit is not
    ("claude", "", 0, "exit 0", False),  # exit 0 and not a word
    ("claude", lines({"type": "assistant", "text": "429"}), 0, "without a report", False),
    ("claude", "node: internal error\n", 1, "node: internal error", False),
    ("claude", '{"type": "result", "subtype": "succ', 0, "without", False),  # cut short
    ("codex", lines(*CODEX_429), 1, "429 Too Many Requests", True),
    (
        "codex",
        lines(*CODEX_START, {"type": "turn.failed", "error": {"message": "We’re currently experiencing high demand"}}),
        1,
        "high",
        True,
    ),
    ("codex", lines(*CODEX_START), 0, "without", False),
    ("codex", lines(*CODEX_OK), 1, "exit 1", False),
    ("codex", "error: unexpected argument '--nope' found\n", 2, "unexpected argument", False),
    ("gemini", '{"error": {"type": "Error", "message": "quota"}}\n', 173, "HTTP status 429", True),
    ("gemini", "boom\n", 244, "HTTP status 500", True),
    ("gemini", "key\n", 145, "HTTP status 401", False),
    ("gemini", lines(*GEMINI_OK[:3]), 0, "without", False),  # ended by a signal: exits 0 all the same
    ("gemini", lines({"type": "result", "status": "error", "error": {"message": "no"}}), 1, "no", False),
    (
        "opencode",
        lines(OPENCODE_OK[0], {"type": "error", "error": {"name": "APIError", "data": {"message": "slow", "statusCode": 429}}}),
        1,
        "429",
        True,
    ),
    ("opencode", lines(OPENCODE_OK[0]), 0, "without", False),
    ("opencode", "", 0, "exit 0", False),
    ("aider", AIDER_RATE, 0, "RateLimitError", True),
    ("aider", "litellm.AuthenticationError: AuthenticationError: no\n", 0, "Authentication", False),
    ("aider", "Aider v0.86.2\nModel: x\n", 0, "no reply", False),
    ("aider", "", 0, "no reply", False),
    ("aider", AIDER_OK + "litellm.APIConnectionError: connection refused\n", 0, "APIConnectionError", True),
    ("aider", AIDER_OK + "Only 3 reflections allowed, stopping.\n", 0, "reflections", False),
    ("mini-swe-agent", "Traceback\nRuntimeError: nope\n", 1, "nope", False),
    ("plain", "went wrong\n", 3, "went wrong", False),
    ("plain", "", 3, "exit 3", False),
]


@pytest.mark.parametrize(("parser", "output", "code", "words", "transient"), FAILURES)
def test_failure(tmp_path: Path, parser: str, output: str, code: int, words: str, transient: bool) -> None:
    report = parse(tmp_path, parser, output, code)
    assert not report.ok
    assert words in report.reason, report.reason
    assert report.transient is transient, report.reason
    assert "\n" not in report.reason and len(report.reason) <= 300


def test_aider_recovers_by_itself(tmp_path: Path) -> None:
    assert parse(tmp_path, "aider", AIDER_RATE + AIDER_OK).ok


def test_a_mini_limit_exits_0_and_is_no_success(tmp_path: Path) -> None:
    limits = {**MINI_OK, "info": {"exit_status": "LimitsExceeded", "model_stats": {"instance_cost": 3}}}
    report = parse(tmp_path, "mini-swe-agent", "x", 0, trajectory=limits)
    assert not report.ok and "LimitsExceeded" in report.reason and report.cost_usd == "3"


def test_words_in_an_agents_work_are_no_rate_limit(tmp_path: Path) -> None:
    """An agent that implements a rate limiter and fails at its turn limit."""
    talk = {"type": "assistant", "message": {"content": [{"type": "text", "text": "429 Too Many Requests, rate limit"}]}}
    report = parse(tmp_path, "claude", lines(talk, {**CLAUDE_OK, "subtype": "error_max_turns", "result": ""}), 1)
    assert not report.transient


def test_denied_edits_are_named(tmp_path: Path) -> None:
    report = parse(tmp_path, "claude", lines({**CLAUDE_OK, "permission_denials": [{"tool_name": "Write"}]}))
    assert report.ok and report.reason == "1 permission(s) denied"


def test_ones_own_rate_limit_expression(tmp_path: Path) -> None:
    report = parse(tmp_path, "plain", "PLEASE COME BACK, retry-after: 90\nbye\n", 1, rate_limit="come back")
    assert report.transient and report.retry_after_ms == 90_000
    assert not parse(tmp_path, "plain", "come back\n", 0, rate_limit="come back").transient


@pytest.mark.parametrize("parser", list(PARSERS))
@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n\n\n",
        "{",
        "[]\nnull\n1\n",
        '{"type": "result", "usage": 3, "result": [], "num_turns": "many", "total_cost_usd": "x"}\n',
        '{"type": "result", "stats": {"models": [1]}, "status": "success"}\n',
        '{"type": "step_finish", "part": []}\n',
        '{"type": ["turn.completed"], "item": null, "error": "text"}\n',
        "\x00\xff\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        "{" + "x" * 100_000,
    ],
)
def test_nonsense_never_raises(tmp_path: Path, parser: str, output: str) -> None:
    strange: tuple[object, ...] = (None, [], {"info": []}, {"info": {"model_stats": 1}, "messages": [1, {"extra": 2}]})
    for trajectory in strange:
        assert isinstance(parse(tmp_path, parser, output, 1, trajectory=trajectory), AgentReport)
        assert isinstance(parse(tmp_path, parser, output, None, trajectory=trajectory), AgentReport)


def test_a_missing_log_never_raises(tmp_path: Path) -> None:
    for parser in PARSERS.values():
        assert not parser(Said(1, tmp_path / "none", "", True, tmp_path)).ok


def test_a_log_that_was_cut_short_is_read_from_its_end(tmp_path: Path) -> None:
    """The disk was full, or the agent deleted `.git` and the logs with it."""
    (tmp_path / "log").write_text('{"type": "system"}\n{"type": "assi')
    tail = 'half a line"}\n' + lines(CLAUDE_OK)
    assert PARSERS["claude"](Said(0, tmp_path / "log", tail, False, tmp_path)).ok
    assert PARSERS["claude"](Said(0, tmp_path / "gone", tail, False, tmp_path)).ok
    assert PARSERS["aider"](Said(0, tmp_path / "gone", AIDER_OK, False, tmp_path)).ok


def test_a_line_of_many_megabytes_is_passed_over(tmp_path: Path) -> None:
    report = parse(tmp_path, "claude", '{"type": "user", "x": "' + "a" * 9_000_000 + '"}\n' + lines(CLAUDE_OK))
    assert report.ok


def test_every_preset_has_a_parser_of_the_registry() -> None:
    for name, preset in PRESETS.items():
        assert preset.name == name and preset.parser in PARSERS
        assert preset.version_argv and preset.known_versions and preset.install


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("retry-after: 30", 30_000),
        ("Retry-After: 3600", 3_600_000),
        ('"retry_after_ms": 250', 250),
        ('{"retry_after": "12"}', 12_000),
        ("Please try again in 1.5s.", 1_500),
        ("try again in 20 minutes", 1_200_000),
        ("retry in 350ms", 350),
        ("resets in 2h", 7_200_000),
        ("usage limit reached|1700000100", 100_000),
        ("usage limit reached|1600000000", 0),
        ("try again in 3 days 4 hours 5 minutes", 273_900_000),
        ("retry in 5 mins", 300_000),
        ("try again in 2 hrs.", 7_200_000),
        ("Please try again in 1m30s", 90_000),
        ("Please try again in 6m0s. See https://x", 360_000),
        ("try again in 1h5m", 3_900_000),
        ("try again in 1 hour and 5 minutes", 3_900_000),
        ("retry-after: 30, remaining 5", 30_000),
        ("Retry-After: 30 2 requests", 30_000),
        ('"retryDelay": "34.07s"', 34_070),
        ("retry-after: 1 day", 86_400_000),
        ("wait 60 seconds before retrying", 60_000),
        ("Retry-After: Tue, 14 Nov 2023 22:14:20 GMT", 60_000),
        ("Retry-After: Tue, 14 Nov 2023 22:12:20 GMT", 0),
        ("Retry-After: Tue, 44 Nov 2023 22:12:20 GMT", None),
        ("limit resets at 2023-11-14T22:14:20Z", 60_000),
        ("limit resets at 2023-11-14 23:14:20+01:00", 60_000),
        ("resets at 3pm", None),
        ("retry after the build; then 20 minutes", None),
        ("retry-after: " + "9" * 400, 10**12),
        ("nothing of the kind", None),
        ("try again later", None),
    ],
)
def test_retry_after(words: str, expected: int | None) -> None:
    assert retry_after(words, 1_700_000_000) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("HTTP 503", True),
        ("Overloaded", True),
        ("ECONNRESET", True),
        ("connection refused", True),
        ("insufficient_quota: 429", False),
        ("line 5003 of file", False),
        ("404 not found", False),
        ("assertion failed", False),
    ],
)
def test_transient_words(words: str, expected: bool) -> None:
    assert is_transient(words) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.1, "0.1"),
        (1e-7, "0.0000001"),
        (0, "0"),
        ("3.50", "3.50"),
        (float("nan"), None),
        (-1, None),
        (True, None),
        ("x", None),
        (None, None),
    ],
)
def test_money_is_a_decimal_string(value: object, expected: str | None) -> None:
    assert money(value) == expected


@pytest.mark.parametrize("number", ["1e30", "1e999", '"1e999999999"', "123456789012345678901234567890", "-5", "true", "[]", '"x"'])
def test_numbers_nobody_would_believe_are_left_out(tmp_path: Path, number: str) -> None:
    """An agent prints what it likes; the stream holds 64 bits, and a budget is no place for nonsense."""
    results = (
        ("claude", f'{{"type":"result","subtype":"success","usage":{{"input_tokens":{number}}},"total_cost_usd":{number}}}'),
        ("opencode", f'{{"type":"step_finish","part":{{"cost":{number},"tokens":{{"input":{number}}}}}}}'),
        ("codex", f'{{"type":"turn.completed","usage":{{"input_tokens":{number}}}}}'),
    )
    for parser, output in results:
        report = parse(tmp_path, parser, output)
        assert not report.input_tokens and Decimal(report.cost_usd or 0) == 0


def test_numbers_as_text_are_numbers(tmp_path: Path) -> None:
    report = parse(tmp_path, "claude", lines({**CLAUDE_OK, "usage": {"output_tokens": "12"}, "total_cost_usd": "0.5"}))
    assert (report.output_tokens, report.cost_usd) == (12, "0.5")


def test_a_cost_of_aider_that_is_no_number(tmp_path: Path) -> None:
    report = parse(tmp_path, "aider", "Tokens: 1.2.3k sent, 2 received. Cost: $1.2.3 message, $3 session.")
    assert report.ok and report.output_tokens == 2


def test_geminis_error_over_several_lines(tmp_path: Path) -> None:
    error = {"error": {"type": "ApiError", "message": "quota exceeded, retry in 34s", "code": 429}}
    report = parse(tmp_path, "gemini", f"Loaded credentials\n{json.dumps(error, indent=2)}\n", 173)
    assert report.transient and report.retry_after_ms == 34_000 and "quota exceeded" in report.reason


def test_a_warning_without_an_end_of_line_before_the_report(tmp_path: Path) -> None:
    report = parse(tmp_path, "claude", "(node:1) Warning: x" + json.dumps(CLAUDE_OK, separators=(",", ":")) + "\n")
    assert report.ok and report.output_tokens == 40
