"""The agent CLIs evolver knows, as data. One's own are `[agents.NAME]` in the loop file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import field

from evolver.definition import AgentSection
from evolver.errors import UsageError
from evolver.steps.parsers import PARSERS


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """How one CLI is called without a terminal, and how its words are read.

    In `argv`, `{args}` stands for `[codegen] args`, `{prompt}` and `{prompt_file}` for the prompt, `{step_dir}` for the
    iteration's scratch folder.
    """

    name: str
    argv: tuple[str, ...]
    prompt: Literal["stdin", "argument", "file"] = "stdin"
    parser: str = "plain"
    env: dict[str, str] = field(default_factory=dict)  # the user's own setting of a variable wins
    version_argv: tuple[str, ...] = ()
    known_versions: tuple[str, ...] = ()  # `major.minor` this was measured with
    install: str = ""
    home: tuple[str, ...] = ()  # what it must write below HOME, for the sandbox
    sandbox_args: tuple[str, ...] = ()  # inside our sandbox, since its own cannot be nested
    droppings: tuple[str, ...] = ()  # names it leaves at the top of the worktree; removed if the step made them
    rate_limit: str = ""


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "claude": Preset(
            name="claude",
            # Array output (`--output-format json --verbose`) has no last line to look for; stream-json has.
            argv=(
                *("claude", "-p", "--output-format", "stream-json", "--verbose"),
                *("--permission-mode", "acceptEdits", "{args}"),
            ),
            parser="claude",
            # Its own retries would stack under ours, for minutes.
            env={
                "CLAUDE_CODE_MAX_RETRIES": "1",
                "DISABLE_AUTOUPDATER": "1",
                "DISABLE_TELEMETRY": "1",
                "DISABLE_ERROR_REPORTING": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
            version_argv=("claude", "--version"),
            known_versions=("2.1",),
            install="npm install -g @anthropic-ai/claude-code",
            home=(".claude", ".claude.json", ".cache/claude", ".cache/claude-cli-nodejs"),
        ),
        "codex": Preset(
            name="codex",
            argv=("codex", "exec", "--json", "--disable", "plugins", "-s", "workspace-write", "{args}", "-"),
            parser="codex",
            version_argv=("codex", "--version"),
            known_versions=("0.171",),
            install="npm install -g @openai/codex",
            home=(".codex",),
            # Its sandbox fails inside another one, without a word: no command is carried out.
            sandbox_args=("--dangerously-bypass-approvals-and-sandbox",),
        ),
        "gemini": Preset(
            name="gemini",
            argv=("gemini", "--approval-mode", "auto_edit", "-o", "stream-json", "--skip-trust", "{args}"),
            parser="gemini",
            version_argv=("gemini", "--version"),
            known_versions=("0.61",),
            install="npm install -g @google/gemini-cli",
            home=(".gemini",),
        ),
        "aider": Preset(
            name="aider",
            # Its defaults commit, write .gitignore, keep histories in the worktree and ask questions.
            argv=(
                *("aider", "--message-file", "{prompt_file}", "--yes-always", "--no-auto-commits", "--no-dirty-commits"),
                *("--no-gitignore", "--no-check-update", "--no-show-release-notes", "--no-pretty", "--analytics-disable"),
                *("--chat-history-file", "{step_dir}/aider.chat.md", "--input-history-file", "{step_dir}/aider.input"),
                "{args}",
            ),
            prompt="file",
            parser="aider",
            version_argv=("aider", "--version"),
            known_versions=("0.86",),
            install="pip install aider-chat",
            home=(".aider",),
            droppings=(".aider.tags.cache.v4", ".aider.tags.cache.v3", ".aider.chat.history.md", ".aider.input.history"),
        ),
        "opencode": Preset(
            name="opencode",
            argv=("opencode", "run", "--format", "json", "{args}", "{prompt}"),
            prompt="argument",
            parser="opencode",
            version_argv=("opencode", "--version"),
            known_versions=("1.18",),
            install="npm install -g opencode-ai",
            home=(".config/opencode", ".local/share/opencode", ".local/state/opencode", ".cache/opencode"),
        ),
        "mini-swe-agent": Preset(
            name="mini-swe-agent",
            argv=("mini", "-y", "--exit-immediately", "-o", "{step_dir}/trajectory.json", "{args}", "-t", "{prompt}"),
            prompt="argument",
            parser="mini-swe-agent",
            # It greets and checks for updates on a terminal it does not have.
            env={"MSWEA_SILENT_STARTUP": "1"},
            version_argv=("mini", "--version"),
            known_versions=("2.4",),
            install="pip install mini-swe-agent",
            home=(".config/mini-swe-agent",),
        ),
    }
)


def from_section(name: str, section: AgentSection) -> Preset:
    """One's own agent."""
    return Preset(
        name=name,
        argv=section.argv,
        prompt=section.prompt,
        parser=section.parser,
        env=section.env,
        rate_limit=section.rate_limit,
        version_argv=section.version,
    )


def find_preset(name: str, own: Mapping[str, AgentSection]) -> Preset:
    """The preset of that name, the loop file's before ours. Raise `UsageError` for an unknown or unusable one."""
    if name in own:
        preset = from_section(name, own[name])
    elif name in PRESETS:
        preset = PRESETS[name]
    else:
        known = ", ".join(sorted({*PRESETS, *own}))
        raise UsageError(
            f"agent {name!r} is unknown; known are {known}", "Add an [agents.NAME] table to the loop file for your own."
        )
    where = f"[agents.{name}]"
    if not preset.argv:
        raise UsageError(f"{where} argv: expected at least a program", "Give the command line as a list.")
    if preset.parser not in PARSERS:
        raise UsageError(
            f"{where} parser: expected one of {', '.join(PARSERS)}, got {preset.parser!r}", "Leave it out for plain."
        )
    wanted = {"stdin": "", "argument": "{prompt}", "file": "{prompt_file}"}[preset.prompt]
    if wanted and not any(wanted in part for part in preset.argv):
        raise UsageError(
            f"{where} argv: expected {wanted} in it, since prompt = {preset.prompt!r}", "Say where the prompt goes."
        )
    _check_expression(preset.rate_limit, where)
    return preset


def _check_expression(expression: str, where: str) -> None:
    try:
        re.compile(expression)
    except re.error as error:
        raise UsageError(
            f"{where} rate_limit: {expression!r} is no regular expression: {error}", "Escape special characters."
        ) from error
