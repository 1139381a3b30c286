"""`.env.example`, the reference page and the code name the same variables with the same defaults."""

from __future__ import annotations

import re
from pathlib import Path

from evolver.settings import SINK_VARIABLES, STEP_VARIABLES, VARIABLES

ROOT = Path(__file__).parents[1]


def env_example() -> str:
    """What `.env.example` must be."""
    lines = [
        "# Every variable evolver reads, with its default. Copy to .env at the top of your repository and uncomment what you",
        "# change. Precedence: flag, environment, .env, loop file, default.",
    ]
    for variable in VARIABLES:
        note = "" if variable.dotenv else " (environment only: read before anything in the worktree is believed)"
        lines += ["", f"# {variable.meaning}{note}", f"#{variable.name}={variable.default}"]
    return "\n".join(lines) + "\n"


def test_env_example_is_the_table() -> None:
    assert (ROOT / ".env.example").read_text(encoding="utf-8") == env_example(), "run: python tests/test_env_example.py"


def test_no_code_reads_a_variable_that_the_table_does_not_have() -> None:
    known = {variable.name for variable in VARIABLES} | STEP_VARIABLES.keys() | SINK_VARIABLES.keys()
    unknown = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        found = set(re.findall(r"\bEVOLVER_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8"))) - known
        # A prefix that a name is built from, such as EVOLVER_SINK_, ends in an underscore and does not match.
        if found:
            unknown[str(path.relative_to(ROOT))] = found
    assert not unknown


def test_every_variable_is_in_the_reference() -> None:
    text = (ROOT / "docs/reference/environment.md").read_text(encoding="utf-8")
    for variable in VARIABLES:
        assert f"`{variable.name}`" in text
    for name in (*STEP_VARIABLES, *SINK_VARIABLES):
        assert f"`{name}`" in text


if __name__ == "__main__":
    (ROOT / ".env.example").write_text(env_example(), encoding="utf-8")
