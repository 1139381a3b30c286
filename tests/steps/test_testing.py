"""The scripted steps that users' tests are written with."""

from __future__ import annotations

from evolver.model import Judgement, StepContext, Verdict
from evolver.steps.judge import judge
from evolver.steps.python import InProcess
from evolver.testing import (
    ScriptedCodegen,
    ScriptedValidator,
    append,
    both,
    delete,
    fails,
    limited,
    nothing,
    says,
    shell,
    write,
)


def test_acts_are_played_in_order_and_then_nothing(context: StepContext) -> None:
    agent = ScriptedCodegen(
        write("deep/a.txt", "one", mode=0o755),
        both(append("deep/a.txt", "two"), write("b", b"\xff"), says("DONE", input_tokens=5, cost_usd="0.10")),
        delete("deep"),
        shell("echo x > c; exit 3"),
        fails("no idea"),
        limited(retry_after_ms=5),
        nothing(),
    )
    tree = context.cwd
    assert agent.generate(context).ok and (tree / "deep/a.txt").stat().st_mode & 0o777 == 0o755
    said = agent.generate(context)
    assert said.report is not None and said.report.last_message == "DONE" and said.report.cost_usd == "0.10"
    assert (tree / "deep/a.txt").read_text() == "onetwo" and (tree / "b").read_bytes() == b"\xff"
    assert agent(context).ok and not (tree / "deep").exists()
    failed = agent(context)
    assert not failed.ok and failed.report is not None and "exit 3" in failed.report.reason and (tree / "c").exists()
    assert not agent(context).ok
    waited = agent(context).report
    assert waited is not None and waited.transient and waited.retry_after_ms == 5
    assert agent(context).ok and agent(context).ok
    assert len(agent.contexts) == 8


def test_endings(context: StepContext) -> None:
    script = (True, False, 125, 3, Verdict(Judgement.FAIL, "because"), Verdict(Judgement.INCONCLUSIVE, "hm"))
    validator = ScriptedValidator("tests", *script, output="printed")
    judged = [judge(validator.validate(context)).judgement for _ in range(7)]
    p, f, i = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE
    assert judged == [p, f, i, f, f, i, p]
    assert ScriptedValidator("tests", False, output="printed")(context).tail == "printed"


def test_they_work_as_callables_of_the_api(context: StepContext) -> None:
    agent = ScriptedCodegen(write("a", "x"))
    assert InProcess("codegen", agent).generate(context).ok and (context.cwd / "a").exists()
    assert not InProcess("v", ScriptedValidator("v", False)).validate(context).ok
