"""The prompt of an agent: a jinja2 template over a few plain values. Wrong templates are found before the run starts.

The template runs sandboxed and strict: it comes from a file in the repository, and a misspelt name must not become an empty
prompt in the middle of the night.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evolver.definition import LoadedLoop
from evolver.errors import UsageError
from evolver.feedback import Feedback
from evolver.model import StepContext
from evolver.stop import RunState

OUTPUT_CHARS = 6_000
_TEMPLATE_FAULTS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
_FORMATTING = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")

DEFAULT = """\
{{ goal }}

You are working alone in a git worktree; nobody can answer questions. This is iteration {{ iteration }} of at most \
{{ max_iterations }}.
Make one focused change towards the goal by editing files. Do not push, and leave nothing running.
{% if validators %}
Your change is kept only if all of these pass; otherwise it is undone completely:
{% for validator in validators %}
- {{ validator }}
{% endfor %}
{% endif %}
{% if best %}

The best score so far is {{ best }}{% if direction %} ({{ direction }} is better){% endif %}; it has to be improved on.
{% endif %}
{% if reason %}

{% if repair_round %}
Your change of this iteration does not pass yet. It is still in place: repair it.
{% else %}
The last attempt was undone.
{% endif %}
Reason: {{ reason }}
{% if diff_stat %}
It had changed: {{ diff_stat }}
{% endif %}
{% if output %}
The end of the output:

{{ output }}
{% endif %}
{% endif %}
{% if tried %}

Tried already, and undone:
{% for line in tried %}
- {{ line }}
{% endfor %}
Do something else.
{% endif %}
"""


@dataclass(frozen=True, slots=True)
class Values:
    """Everything a template may name. Empty strings and tuples where there is nothing yet."""

    goal: str
    loop: str
    iteration: int
    max_iterations: int
    repair_round: int = 0  # above 0: the failed change is still in place
    reason: str = ""  # why the last attempt was rejected
    output: str = ""  # the end of what the failing validator printed
    tried: tuple[str, ...] = ()  # a line per rejected attempt
    score: str = ""  # of the last accepted attempt
    best: str = ""
    direction: str = ""  # higher | lower, when there is a score
    diff_stat: str = ""  # of the last attempt
    validators: tuple[str, ...] = ()
    pre_ref: str = ""
    accepted: int = 0
    baseline_red: bool = False  # the validators failed before anything was changed


def trimmed(output: str) -> str:
    """The end of an output, from a line's beginning, without terminal formatting."""
    text = _FORMATTING.sub("", output.replace("\r\n", "\n")).strip("\n")
    if len(text) <= OUTPUT_CHARS:
        return text
    text = text[-OUTPUT_CHARS:]
    start = text.find("\n") + 1
    return f"[…]\n{text[start:] if 0 < start < OUTPUT_CHARS // 2 else text}"


def first_values(loaded: LoadedLoop) -> Values:
    """What the first iteration's prompt is made from."""
    definition = loaded.definition
    return Values(
        goal=definition.loop.goal,
        loop=loaded.name,
        iteration=1,
        max_iterations=definition.loop.max_iters,
        direction=definition.score.direction if definition.score is not None else "",
        validators=tuple(v.name for v in definition.validator),
    )


def values(loaded: LoadedLoop, context: StepContext, feedback: Feedback, state: RunState) -> Values:
    """What this iteration's prompt is made from."""
    score = state.last.score if state.last is not None else None
    return replace(
        first_values(loaded),
        iteration=context.iteration,
        repair_round=context.repair_round,
        reason=feedback.reason,
        output=trimmed(feedback.output),
        tried=feedback.tried,
        score=str(score) if score is not None else "",
        best=str(state.best) if state.best is not None else "",
        diff_stat=feedback.diff_stat,
        pre_ref=context.pre_ref,
        accepted=state.accepted,
        baseline_red=bool(state.baseline_red),
    )


class Prompt:
    """A loop's prompt, ready to be rendered. Read once: what an attempt does to the file counts for the next run."""

    def __init__(self, loaded: LoadedLoop) -> None:
        """Raise `UsageError` when the template cannot be read or is wrong, or when there is nothing to say."""
        import jinja2
        import jinja2.meta
        import jinja2.sandbox

        section = loaded.definition.codegen
        self._loaded = loaded
        self.source = loaded.directory / section.prompt if section.prompt else None
        if self.source is None and not loaded.definition.loop.goal.strip():
            raise UsageError(
                "the agent has no task: neither [loop] goal nor [codegen] prompt is set",
                "Set a goal, or give a template with --prompt.",
            )
        text = _read(self.source) if self.source is not None else DEFAULT
        self._environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            loader=jinja2.FileSystemLoader(self.source.parent) if self.source is not None else None,
            undefined=jinja2.StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,
        )
        try:
            self._load_parts(text)
            unknown = jinja2.meta.find_undeclared_variables(self._environment.parse(text)) - set(Values.__dataclass_fields__)
            self._template = self._environment.from_string(text)
        except (jinja2.TemplateError, OSError, UnicodeDecodeError, RecursionError) as error:
            raise self._wrong(error) from error
        if unknown - set(self._environment.globals):  # also in a branch that the two trials below do not take
            raise self._wrong(NameError(f"unknown name {', '.join(sorted(unknown))}"))
        self._try_out(first_values(loaded))

    def _try_out(self, first: Values) -> None:
        """A first iteration and a later one: both sides of an `if reason` are looked at before the run starts."""
        later = replace(first, iteration=2, repair_round=1, reason="reason", output="output", score="1", best="2")
        later = replace(later, tried=("#1: reason",), diff_stat="1 path")
        settled = replace(later, repair_round=0, accepted=1, baseline_red=True)
        for sample in (first, later, settled):
            self.render(sample)

    def _load_parts(self, text: str) -> None:
        """What it includes, in every branch: loaded now, so that no attempt writes its own prompt into it."""
        import jinja2
        import jinja2.meta

        waiting, loaded = [text], set[str]()
        while waiting and self._environment.loader is not None:
            for name in jinja2.meta.find_referenced_templates(self._environment.parse(waiting.pop())):
                if name is None or name in loaded:  # None: its name is computed
                    continue
                loaded.add(name)
                with contextlib.suppress(jinja2.TemplateNotFound):  # which matters only where it is included, and not always
                    self._environment.get_template(name)
                    waiting.append(self._environment.loader.get_source(self._environment, name)[0])

    def render(self, what: Values) -> str:
        """The prompt. Raise `UsageError` for what the template does wrong with these values."""
        import jinja2

        known: dict[str, Any] = asdict(what)
        try:
            text = self._template.render(known)
        except RecursionError as error:
            raise self._wrong(RecursionError("it includes itself, or is nested too deeply")) from error
        except MemoryError as error:
            raise self._wrong(MemoryError("it makes a text that does not fit into memory")) from error
        except (jinja2.TemplateError, *_TEMPLATE_FAULTS) as error:
            raise self._wrong(error) from error
        if not text.strip():
            raise UsageError(f"{self.name}: the prompt is empty", "Say what the agent should do.")
        return text

    @property
    def name(self) -> str:
        return str(self.source) if self.source is not None else "the built-in prompt"

    def for_iteration(self, context: StepContext, feedback: Feedback, state: RunState) -> str:
        """The prompt of one call; what `RunContext.render_prompt` wants."""
        return self.render(values(self._loaded, context, feedback, state))

    def _wrong(self, error: Exception) -> UsageError:
        line = _line_of(error)
        known = ", ".join(Values.__dataclass_fields__)
        return UsageError(f"{self.name}{f':{line}' if line else ''}: {error}", f"A template may use: {known}.")


def _line_of(error: Exception) -> int | None:
    """The template's line: a syntax error has it, any other has it in its traceback."""
    line = getattr(error, "lineno", None)
    if isinstance(line, int):
        return line
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"[codegen] prompt: {path}: {error.strerror}", "Name a file relative to the loop file.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"[codegen] prompt: {path}: not UTF-8: {error}", "Save the template as UTF-8.") from error


def prompt_for(loaded: LoadedLoop) -> Prompt | None:
    """The loop's prompt; None when nobody would read one. Raise `UsageError` for a wrong template."""
    section = loaded.definition.codegen
    return Prompt(loaded) if section.agent is not None or section.prompt else None
