"""A real run, three receivers, ten seconds in which none of them takes anything."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from support import Repo, ended

from .receivers import HAS_RSYSLOG, Rsyslog, web
from .test_forwarder import otlp_ids, web_ids


@pytest.mark.skipif(not HAS_RSYSLOG, reason="rsyslog is not installed (apt-get install rsyslog)")
def test_rsyslog_webhook_and_otlp_receive_every_event_of_a_run_exactly_once_after_a_10_second_outage(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra evolver[otlp] is not installed")
    repo = Repo.make(tmp_path / "repo")
    syslog = Rsyslog(tmp_path, "tcp")
    syslog.start()
    try:
        with web() as hook, web() as collector:
            env = {
                "EVOLVER_SINK_SYSLOG": f"tcp://127.0.0.1:{syslog.port}",
                "EVOLVER_SINK_WEBHOOK": f"{hook.url}/hook",
                "EVOLVER_SINK_WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                "EVOLVER_SINK_OTLP": collector.url,
            }
            words = ("--max-iters", "13", "--no-breaker", "--codegen", "sleep 0.7; echo x >> src/a.py", "--validate", "false")
            process = repo.start("run", *words, env=env)
            repo.wait_for(lambda: min(len(syslog.messages()), len(hook.got), len(collector.got)) >= 5)
            syslog.stop()
            taken = len(hook.got)
            for mood in ("500", "hang", "reset", "404", "429"):
                hook.mood, collector.mood = mood, "reset" if mood == "reset" else "500"
                time.sleep(2)
            assert len(hook.got) <= taken + 1 and len(repo.events()) > taken + 20  # the loop went on meanwhile
            hook.mood, collector.mood = "redirect", "ok"
            syslog.start()
            done = ended(process)
            assert done.code == 1 and "not taken everything" not in done.text, done.text
            expected = [event["id"] for event in repo.events()]
            assert web_ids(hook) == expected
            assert otlp_ids(collector) == expected
            repo.wait_for(lambda: len(syslog.messages()) >= len(expected))
        assert [json.loads(m.split("|", 4)[4].lstrip("\ufeff"))["id"] for m in syslog.messages()] == expected
        assert not repo.events("sink.gap")
    finally:
        syslog.stop()
