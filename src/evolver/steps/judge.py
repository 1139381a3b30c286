"""What a validator's ending says, by the rules of `git bisect run`."""

from __future__ import annotations

import signal

from evolver.model import Judgement, StepResult, Verdict

SKIP = 125  # "cannot tell", as in `git bisect run`
_NOT_STARTED = {126: "could not be executed", 127: "command not found"}  # what a shell and `env` say
_BY_SIGNAL = 128  # a shell adds the signal's number


def judge(result: StepResult) -> Verdict:
    """0 passes, 125 cannot tell; nor can one that timed out, died by a signal or did not start. Anything else fails."""
    if result.error or result.interrupted or result.timed_out or result.signal is not None or result.exit_code is None:
        return _cannot_tell(result, result.describe())
    code = result.exit_code
    if code == 0:
        return Verdict(
            Judgement.PASS, f"{result.name}: passed on a retry" if result.flaky else f"{result.name}: passed", result.name
        )
    if code == SKIP:
        return _cannot_tell(result, "exit 125 (cannot tell)")
    if code in _NOT_STARTED:
        return _cannot_tell(result, f"{_NOT_STARTED[code]} (exit {code})")
    if _BY_SIGNAL < code < _BY_SIGNAL + signal.NSIG:
        return _cannot_tell(result, f"ended by signal {code - _BY_SIGNAL} (exit {code})")
    return Verdict(Judgement.FAIL, f"{result.name}: {result.describe()}", result.name)


def _cannot_tell(result: StepResult, why: str) -> Verdict:
    return Verdict(Judgement.INCONCLUSIVE, f"{result.name}: {why}", result.name)
