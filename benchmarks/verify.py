"""How fast `audit verify` is: N events, MB/s, the ratio to plain SHA-256 over the same bytes, and the peak of memory.

    python benchmarks/verify.py [EVENTS]
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

from evolver.events import chain, paths
from evolver.events.envelope import build
from evolver.events.log import EventLog
from evolver.events.types import StepFinished
from evolver.events.verify import verify

SEGMENT = 64 << 20


def write_log(path: Path, count: int) -> None:
    """A log of `count` events in segments, without a sync a line (that is what another benchmark measures)."""
    event = StepFinished(
        iteration_id="01900000-0000-7000-8000-000000000000/7",
        step="validate",
        name="tests",
        judgement="fail",
        reason="exit 1",
        exit_code=1,
        duration_ms=1234,
        log="steps/7/validate-tests.log",
        log_bytes=4096,
    )
    with EventLog.open(path, source="/benchmark") as log:
        log.emit(event, run_id="01900000-0000-7000-8000-000000000000", iteration=7)
        head = log.head
    assert head is not None
    sequence, prev = head.sequence, head.hash
    template, _ = build(event, source="/benchmark", sequence=1, prevhash=chain.ZERO, run_id="r", iteration=7, redactor=None)
    with path.open("ab", buffering=1 << 20) as out:
        while sequence < count:
            sequence += 1
            envelope, line = build(
                event, source="/benchmark", sequence=sequence, prevhash=prev, run_id=template.runid, iteration=7, redactor=None
            )
            out.write(line)
            prev = envelope.hash


def plain(files: list[Path]) -> float:
    """Seconds that SHA-256 alone takes over the same files."""
    begun = time.perf_counter()
    digest = sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return time.perf_counter() - begun


def main(count: int = 1_000_000) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.jsonl"
        write_log(path, count)
        files = paths.segments(path)
        size = sum(file.stat().st_size for file in files)
        alone = min(plain(files) for _ in range(3))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        report = verify(files)
        took = time.perf_counter() - begun
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(f"{report.events} events, {size / 1e6:.0f} MB: {report.status} in {took:.2f} s, {size / 1e6 / took:.0f} MB/s")
        print(f"plain sha256: {alone:.2f} s, {size / 1e6 / alone:.0f} MB/s; ratio {alone / took:.2f}; memory grew {grown} KiB")
        return 0 if report.status == "intact" else 1


if __name__ == "__main__":
    raise SystemExit(main(*(int(a) for a in sys.argv[1:2])))
