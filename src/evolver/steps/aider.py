"""aider speaks to people only, and exits 0 whatever happens."""

from __future__ import annotations

import re
from decimal import Decimal

from evolver.model import AgentReport
from evolver.steps.reporting import failed, finished
from evolver.steps.said import MESSAGE_LIMIT, Said, count, money

_TOKENS = re.compile(r"Tokens: ([\d.,]+[kM]?) sent.*?([\d.,]+[kM]?) received(?:.*?Cost: \$([\d.]+) message)?")
_FAILURE = re.compile(
    r"litellm\.\w+|\w*Error: .*|Only \d+ reflections allowed.*|.*has hit a token limit.*"
    r"|.*API provider.*(?:down|overloaded|limit).*"
    r"|Unable to (?:open|read).*|.*(?:Missing|Unknown).*(?:API key|environment variables|model).*|Retrying in .*"
)


def aider(said: Said) -> AgentReport:
    """Good is only a reply with its token line, and no failure after the last of them."""
    used_in = used_out = replies = 0
    cost = Decimal(0)
    problem = ""
    for line in said.lines():
        if found := _TOKENS.search(line):
            used_in += _thousands(found[1])
            used_out += _thousands(found[2])
            cost += Decimal(money(found[3]) or 0)
            replies += 1
            problem = ""
        elif (failure := _FAILURE.match(line.strip())) and not (problem and line.startswith("Retrying")):
            problem = failure[0]
    known = {
        "input_tokens": used_in,
        "output_tokens": used_out,
        "cost_usd": money(cost),
        "turns": replies,
        "last_message": said.tail[-MESSAGE_LIMIT:],
    }
    if problem or not replies:
        return failed(said, problem or f"no reply from the model: {said.last_line()}", **known)
    return finished(said, "", **known)


def _thousands(text: str) -> int:
    scale = {"k": 1000, "M": 1_000_000}.get(text[-1:], 1)
    amount = money(text.rstrip("kM").replace(",", ""))
    return count(Decimal(amount) * scale) if amount is not None else 0
