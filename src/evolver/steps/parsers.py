"""From what an agent CLI printed to one `AgentReport`. A literal registry; a parser is one function.

The exit code alone is never believed: a CLI may exit 0 after a refused edit, a limit or a lost connection, so a parser asks
for the CLI's own word that it finished. What was really changed is looked at by others, in the diff.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType

import msgspec

from evolver.model import AgentReport
from evolver.steps.aider import aider
from evolver.steps.reporting import failed, finished
from evolver.steps.said import MESSAGE_LIMIT, Json, Said, count, money, retry_after, table, text

TRAJECTORY = "trajectory.json"  # where the mini-swe-agent preset has it written
TRAJECTORY_LIMIT = 64 << 20


def plain(said: Said) -> AgentReport:
    """An unknown CLI: nothing but its exit code and its last line."""
    if said.exit_code != 0:
        if said.rate_limit and re.search(said.rate_limit, said.tail, re.IGNORECASE | re.MULTILINE):
            return failed(said, said.last_line(), transient=True, retry_after_ms=retry_after(said.tail, time.time()))
        return failed(said, said.last_line())
    return AgentReport(ok=True, last_message=said.tail)


def claude(said: Said) -> AgentReport:
    """`claude -p --output-format stream-json`: the last `result` line. Its `subtype` is `success` even for an API error."""
    result: Json = {}
    for line in said.json_lines():
        if line.get("type") == "result":
            result = line
    if not result:
        return failed(said, said.last_line())
    usage = table(result, "usage")
    message = text(result.get("result"))
    known = {
        "input_tokens": sum(
            count(usage.get(name)) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ),
        "output_tokens": count(usage.get("output_tokens")),
        "cost_usd": money(result.get("total_cost_usd")),
        "turns": count(result.get("num_turns")),
        "session_id": text(result.get("session_id")) or None,
        "last_message": message[-MESSAGE_LIMIT:],
    }
    subtype = text(result.get("subtype"))
    status = result.get("api_error_status")
    if result.get("is_error") or subtype != "success":
        words = message if subtype == "success" else f"{subtype}: {message}" if message else subtype
        if status is not None and str(status) not in words:
            words = f"API status {status}: {words}"
        return failed(said, words, **known)
    denied = result.get("permission_denials")
    words = f"{len(denied)} permission(s) denied" if isinstance(denied, list) and denied else ""
    return finished(said, words, **known)


def codex(said: Said) -> AgentReport:
    """`codex exec --json`. An item of type `error` alone is no failure: it warns of an unknown model that way."""
    usage_in = usage_out = turns = 0
    thread, message, problem, note = "", "", "", ""
    completed = False
    for line in said.json_lines():
        match line.get("type"):
            case "thread.started":
                thread = text(line.get("thread_id"))
            case "turn.started":
                completed = False
            case "turn.completed":
                completed, problem = True, ""
                turns += 1
                usage_in += count(table(line, "usage").get("input_tokens"))
                usage_out += count(table(line, "usage").get("output_tokens"))
            case "turn.failed":
                completed, problem = False, text(table(line, "error").get("message")) or "turn failed"
            case "error":
                note = text(line.get("message")) or note
            case "item.completed" if table(line, "item").get("type") == "agent_message":
                message = text(table(line, "item").get("text"))
    known = {
        "input_tokens": usage_in,
        "output_tokens": usage_out,
        "turns": turns,
        "session_id": thread or None,
        "last_message": message[-MESSAGE_LIMIT:],
    }
    if not completed:
        return failed(said, problem or note or said.last_line(), **known)
    return finished(said, "", **known)


def gemini(said: Said) -> AgentReport:
    """`gemini -o stream-json`: a `result` line; on failure the exit code is the HTTP status, modulo 256."""
    result: Json = {}
    message: list[str] = []
    session, problem = "", ""
    for line in said.json_lines():
        match line.get("type"):
            case "init":
                session = text(line.get("session_id"))
            case "message" if line.get("role") == "assistant":
                message = [*(message if line.get("delta") else []), text(line.get("content"))]
            case "tool_use":
                message = []
            case "error":
                problem = text(line.get("message")) or problem
            case "result":
                result = line
            case None if "error" in line:
                problem = text(table(line, "error").get("message")) or problem
    problem = problem or text(table(said.last_block(), "error").get("message"))  # on stderr, over several lines
    stats = table(result, "stats")
    known = {
        "input_tokens": count(stats.get("input_tokens")) or _over_models(stats, "input_tokens", "prompt"),
        "output_tokens": count(stats.get("output_tokens")) or _over_models(stats, "output_tokens", "candidates"),
        "session_id": session or None,
        "last_message": "".join(message)[-MESSAGE_LIMIT:],
    }
    status = _HTTP_OF_EXIT.get(said.exit_code if said.exit_code is not None else 0)
    if not result or result.get("status") != "success" or said.exit_code != 0:
        words = text(table(result, "error").get("message")) or problem or said.last_line()
        return failed(said, f"HTTP status {status}: {words}" if status is not None else words, **known)
    return finished(said, "", **known)


_HTTP_OF_EXIT = {status % 256: status for status in (400, 401, 403, 404, 408, 429, 500, 502, 503, 504, 529)}


def _over_models(stats: Json, *names: str) -> int:
    total = 0
    for model in table(stats, "models").values():
        tokens = table(model, "tokens") or table(model)
        total += next((count(tokens[name]) for name in names if name in tokens), 0)
    return total


def mini(said: Said) -> AgentReport:
    """mini-swe-agent: its trajectory file. A limit exceeded exits 0; only `Submitted` is an end of its own."""
    path = said.step_dir / TRAJECTORY
    document: object = None
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if path.is_file() and path.stat().st_size <= TRAJECTORY_LIMIT:  # reading a pipe waits for ever
            document = msgspec.json.decode(path.read_bytes())
    info = table(document, "info")
    if not info:
        return failed(said, said.last_line())
    stats = table(info, "model_stats")
    messages = document.get("messages") if isinstance(document, dict) else None
    usages = [table(m, "extra", "response", "usage") for m in messages] if isinstance(messages, list) else []
    known = {
        "input_tokens": sum(count(usage.get("prompt_tokens")) for usage in usages),
        "output_tokens": sum(count(usage.get("completion_tokens")) for usage in usages),
        "cost_usd": money(stats.get("instance_cost")),
        "turns": count(stats.get("api_calls")),
        "last_message": text(info.get("submission"))[-MESSAGE_LIMIT:],
    }
    status = text(info.get("exit_status"))
    if status != "Submitted":
        return failed(said, f"{status or 'no exit status'}: {said.last_line()}", **known)
    return finished(said, "", **known)


def opencode(said: Said) -> AgentReport:
    """`opencode run --format json`: tokens and cost are the sum over its steps."""
    used_in = used_out = steps = 0
    cost = Decimal(0)
    session, message, problem = "", "", ""
    for line in said.json_lines():
        part = table(line, "part")
        session = text(line.get("sessionID")) or session
        match line.get("type"):
            case "step_finish":
                tokens = table(part, "tokens")
                used_in += count(tokens.get("input")) + sum(count(v) for v in table(tokens, "cache").values())
                used_out += count(tokens.get("output")) + count(tokens.get("reasoning"))
                cost += Decimal(money(part.get("cost")) or 0)
                steps += 1
                problem = ""
            case "text":
                message = text(part.get("text"))
            case "error":
                error = table(line, "error")
                said_so = text(table(error, "data").get("message")) or text(error.get("message")) or text(error.get("name"))
                status = table(error, "data").get("statusCode")
                problem = f"{said_so} (status {status})" if status is not None else said_so or "error"
    known = {
        "input_tokens": used_in,
        "output_tokens": used_out,
        "cost_usd": money(cost),
        "turns": steps,
        "session_id": session or None,
        "last_message": message[-MESSAGE_LIMIT:],
    }
    if problem or not steps:
        return failed(said, problem, **known)
    return finished(said, "", **known)


PARSERS: Mapping[str, Callable[[Said], AgentReport]] = MappingProxyType(
    {
        "plain": plain,
        "claude": claude,
        "codex": codex,
        "gemini": gemini,
        "mini-swe-agent": mini,
        "opencode": opencode,
        "aider": aider,
    }
)
