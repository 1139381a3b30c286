"""An alert as an issue on the remote's tracker, through `gh` or `glab`. Once per incident."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from evolver.errors import GitError
from evolver.events.reader import Record
from evolver.git import Git
from evolver.layout import Layout
from evolver.process import run_simple
from evolver.sinks.base import SinkError

TIMEOUT_MS = 30_000
REMEMBERED = 1000


class TrackerSink:
    def __init__(self, env: Mapping[str, str], layout: Layout) -> None:
        self._env = env
        self._layout = layout
        self._file = layout.state / "sinks" / "incidents"

    def deliver(self, record: Record) -> None:
        """Nothing to do when neither tool is installed, or when the incident is known."""
        program = self._program()
        incident = _incident(record)
        known = self._known()
        if program is None or incident in known:
            return
        title, body = _words(record)
        words = ["--body", body] if program.endswith("gh") else ["--description", body, "--yes"]
        argv = [program, "issue", "create", "--title", title, *words]
        done = run_simple(argv, timeout_ms=TIMEOUT_MS, env=self._env, cwd=self._layout.root, keep_bytes=4096)
        if not done.ok:
            last = done.stderr.decode(errors="replace").strip().splitlines()
            raise SinkError(f"{program}: {done.describe()}{f': {last[-1]}' if last else ''}")
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file.write_text("\n".join([*known, incident][-REMEMBERED:]) + "\n")

    def _program(self) -> str | None:
        gh, glab = (shutil.which(name, path=self._env.get("PATH")) for name in ("gh", "glab"))
        if gh and glab:
            try:
                url = Git.at(self._layout.root, self._layout.git_dir).run("remote", "get-url", "origin", check=False).text
            except GitError:
                url = ""
            return glab if "gitlab" in url else gh
        return gh or glab

    def _known(self) -> list[str]:
        try:
            return self._file.read_text().split("\n")
        except OSError:
            return []

    def close(self) -> None:
        pass


def _incident(record: Record) -> str:
    """Alerts of one iteration are one incident: a failed rollback, the hold that follows from it."""
    envelope = record.envelope
    data = envelope.decoded()
    about = data.get("iteration_id") or f"{envelope.runid or 'log'}:{envelope.name}"
    return str(about).replace("\n", " ")


def _words(record: Record) -> tuple[str, str]:
    envelope = record.envelope
    data = envelope.decoded()
    about = next((str(data[key]) for key in ("reason", "detail", "found", "remote") if data.get(key)), "")
    place = f" in iteration {envelope.iteration}" if envelope.iteration is not None else ""
    title = f"evolver: {envelope.name.removeprefix('alert.').replace('.', ' ').replace('_', ' ')}{place}"
    facts = "\n".join(f"- {key}: {value}" for key, value in data.items() if value not in (None, "", [], {}))
    body = f"{about}\n\n{facts}\n\nRun {envelope.runid}, event {envelope.id}, sequence {envelope.sequence}, {envelope.time}."
    return title[:200], body[:30_000]
