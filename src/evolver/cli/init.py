"""`evolver init`: four questions, then a loop that can run."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evolver.cli import complete, detect
from evolver.errors import ExitStatus, PreflightError, UsageError

if TYPE_CHECKING:
    from evolver.layout import Layout

GOAL = "Make the failing tests pass; where none fails, improve what is weakest"
EPILOG = """Examples:
  evolver init         asks four questions
  evolver init --yes   takes what it finds in the project
  evolver init --agent claude --goal 'Fix the tests' --validate 'make check'
"""


def register(app: typer.Typer) -> None:
    app.command("init", epilog=EPILOG)(init)


@dataclass(frozen=True, slots=True)
class Answers:
    agent: str
    goal: str
    validators: tuple[str, ...]
    budget: str  # US dollars; empty: none
    ignore: tuple[str, ...] = ()


def init(
    agent: Annotated[
        str | None, typer.Option("--agent", help="Who makes the attempts.", autocompletion=complete.agents, show_default=False)
    ] = None,
    goal: Annotated[str | None, typer.Option("--goal", help="What you want.", show_default=False)] = None,
    validate: Annotated[
        list[str] | None, typer.Option("--validate", help="How an attempt is judged; may be given again.", show_default=False)
    ] = None,
    budget: Annotated[str | None, typer.Option("--budget", help="US dollars a run; 0: no limit.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take flags, what is found, and defaults.")] = False,
    commit: Annotated[bool, typer.Option("--commit/--no-commit", help="Commit what is written.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite loops/default.toml and loops/prompt.md.")] = False,
    directory: Annotated[Path, typer.Option("-C", help="The worktree to set up.", show_default=False)] = Path("."),
) -> None:
    """Write and commit a loop for this project.

    That is loops/default.toml and loops/prompt.md; then check that they can run.
    """
    from evolver.layout import locate
    from evolver.lock import run_lock
    from evolver.recovery import refuse_held

    layout = locate(directory)
    root = layout.root
    files = (root / "loops/default.toml", root / "loops/prompt.md")
    for path in files:
        if path.exists() and not force:
            raise UsageError(f"{path} exists", "Edit it, or write it anew with --force; `evolver doctor` checks it.")
    asking = not yes and sys.stdin.isatty() and sys.stdout.isatty()
    if not (asking or yes or (agent and goal and validate)):
        raise UsageError("no terminal to ask on", "Give --yes, or --agent, --goal and --validate.")
    answers = _answers(root, agent, goal, tuple(validate or ()), budget, asking=asking)
    with run_lock(layout, "init"):  # a run takes back what is committed beside it
        refuse_held(layout)
        _write_all(root, layout, answers, files, asking=asking, commit=commit)
    _check(directory)


def _write_all(root: Path, layout: Layout, answers: Answers, files: tuple[Path, Path], *, asking: bool, commit: bool) -> None:
    from evolver.ui.objects import Objects

    git = Objects.of(layout).git
    ignored = [line for line in answers.ignore if not git.run("check-ignore", "-q", "--no-index", line, check=False).ok]
    _write(files[0], loop_file(answers))
    _write(files[1], prompt_file())
    if ignored:
        _append(root / ".gitignore", ignored)
    written = [*files, *([root / ".gitignore"] if ignored else [])]
    for path in written:
        typer.echo(f"wrote {path.relative_to(root)}")
    names = [str(path.relative_to(root)) for path in written]
    if commit and (not asking or typer.confirm("Commit them?", default=True)):
        git.run("add", "--", *names)
        done = git.run("commit", "--quiet", "--only", "--message", "Set up an evolver loop", "--", *names, check=False)
        if not done.ok:
            last = done.err.decode(errors="replace").strip().splitlines()[-1:] or ["git said nothing"]
            raise PreflightError(
                f"written, but not committed: {last[0]}",
                f"`evolver doctor` tells what git lacks; then commit {', '.join(names)} yourself.",
            )
        typer.echo("committed them")


def _answers(
    root: Path, agent: str | None, goal: str | None, validate: tuple[str, ...], budget: str | None, *, asking: bool
) -> Answers:
    from evolver.steps.presets import PRESETS

    found = detect.validators(root)
    if agent is None:
        agent = _ask(f"Agent ({', '.join(PRESETS)})", _installed(), asking)
    if agent not in PRESETS:
        raise UsageError(
            f"--agent: no agent called {agent!r}", f"There are {', '.join(PRESETS)}; others: [agents.NAME] in the loop file."
        )
    if goal is None:
        goal = _ask("Goal", GOAL, asking)
    if not validate:
        proposed = "; ".join(kind.command for kind in found)
        text = _ask("Validators, separated by `; `", proposed, asking)
        validate = tuple(part.strip() for part in text.split("; ") if part.strip())
    if not validate:
        raise UsageError(
            "no validators found (looked for pytest, unittest, npm test, cargo test, go test, make check)",
            "Give --validate 'COMMAND': without one nothing tells a good attempt from a bad one.",
        )
    if budget is None:
        budget = _ask("Budget in US dollars per run (0: none)", "0", asking)
    if not re.fullmatch(r"\d+(\.\d+)?", budget):
        raise UsageError(f"--budget: expected an amount such as 10 or 2.50, got {budget!r}")
    ignore = dict.fromkeys([".env", *(line for kind in found if kind.command in validate for line in kind.ignore)])
    return Answers(agent, goal, validate, "" if float(budget) == 0 else budget, tuple(ignore))


def _ask(question: str, default: str, asking: bool) -> str:
    if not asking:
        return default
    answer: str = typer.prompt(question, default=default or None)
    return answer.strip()


def _installed() -> str:
    """The first agent that is installed; else the first there is, and `doctor` says how to install it."""
    import shutil

    from evolver.steps.presets import PRESETS

    return next((name for name, preset in PRESETS.items() if shutil.which(preset.argv[0])), next(iter(PRESETS)))


def _quoted(text: str) -> str:
    """A TOML basic string. JSON's escapes are TOML's, but for DEL and what a surrogate pair would take."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _name(command: str, number: int) -> str:
    module = re.search(r"\s-m\s+([\w.]+)", command)
    if module is not None:
        return module[1]
    word = re.sub(r"[^\w.+-]+", " ", command.split("/")[-1]).strip()
    if len(word) > 30:  # at a word's end
        word = word[:30].rpartition(" ")[0] or word[:30]
    return word or f"validate-{number}"


def loop_file(answers: Answers) -> str:
    """The loop, with the next things a person would want to change as comments."""
    names: dict[str, str] = {}
    for number, command in enumerate(answers.validators, 1):
        name = _name(command, number)
        names[name if name not in names else f"{name} {number}"] = command
    validators = "\n".join(
        f'[[validator]]\nname = {_quoted(name)}\ncommand = {_quoted(command)}\ntimeout = "10m"\n'
        for name, command in names.items()
    )
    budget = f"cost_usd = {_quoted(answers.budget)}" if answers.budget else '# cost_usd = "10"'
    return f"""\
# The loop that `evolver run` takes here. `evolver run --dry-run` prints what it would do; `evolver help loops` explains it.

[loop]
goal = {_quoted(answers.goal)}
max_iters = 20
max_time = "8h"
# until = "accepted"        # stop at the first accepted attempt

[codegen]
agent = {_quoted(answers.agent)}
prompt = "prompt.md"        # beside this file; `evolver prompt` prints what would be sent
timeout = "30m"
# repairs = 1               # let the agent mend a failed attempt once before it is rejected

# In order, cheapest first; the first that fails ends the judging.
{validators}
[rollback]
mode = "hard"               # discard; stash: keep as a stash entry; none: stop and leave it to you
# keep_attempts = 10

[guard]
protected = []              # globs; this file, the prompt, .env and the validators' scripts always are
# max_files = 20

[budget]
{budget}
"""


def prompt_file() -> str:
    from evolver.prompt import DEFAULT, Values

    known = ", ".join(Values.__dataclass_fields__)
    return f"{{# What the agent is told, a jinja2 template. It may use: {known}. #}}\n{DEFAULT}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _append(path: Path, lines: list[str]) -> None:
    before = path.read_bytes() if path.exists() else b""
    gap = b"" if not before or before.endswith(b"\n") else b"\n"
    path.write_bytes(before + gap + "".join(f"{line}\n" for line in lines).encode())


def _check(directory: Path) -> None:
    """The preflight, as `doctor` does it."""
    from evolver.cli.doctor import examine, print_findings

    findings = examine(directory)
    bad = [finding for finding in findings if not finding.ok]
    print_findings(bad)
    if any(finding.blocks for finding in bad):
        raise typer.Exit(int(ExitStatus.PREFLIGHT))
    typer.echo("ready: evolver run --dry-run, then evolver run")
