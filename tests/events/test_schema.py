"""The published schema, the classes and the CloudEvents library agree on every event."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from evolver.events.log import EventLog
from evolver.events.schema import schema, text
from evolver.events.types import Event, all_types

from .streams import RUN, lines

PUBLISHED = Path(__file__).parents[2] / "docs/schema/events.schema.json"


def sample(kind: Any) -> Any:
    """A value of a field's type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return (sample(arguments[0]),)
    if origin is dict:
        return {"key": "value"}
    return {str: "text", int: 7, bool: True, object: "any"}[kind]


def samples() -> list[Event]:
    found = []
    for cls in all_types().values():
        hints = typing.get_type_hints(cls)
        values = {f.name: sample(hints[f.name]) for f in msgspec.structs.fields(cls)}
        found.append(cls(**values))
    return found


@pytest.fixture
def every_event(tmp_path: Path) -> list[bytes]:
    """A log that holds every type, with a run and without."""
    with EventLog.open(tmp_path / "events.jsonl", source="/évolver") as log:
        for event in samples():
            log.emit(event)
            log.emit(event, run_id=RUN, iteration=3)
    return lines(log.path)


def test_the_published_schema_equals_the_classes() -> None:
    assert PUBLISHED.read_text() == text(), "run: python -m evolver.events.schema > docs/schema/events.schema.json"
    jsonschema.Draft202012Validator.check_schema(schema())


def test_the_schema_takes_every_event_and_refuses_wrong_ones(every_event: list[bytes]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(PUBLISHED.read_text()))
    assert len(every_event) >= 2 * len(all_types())
    for line in every_event:
        validator.validate(json.loads(line))
    event = next(json.loads(line) for line in every_event if b"rollback.finished" in line)
    wrong: list[dict[str, Any]] = [
        {**event, "sequence": "1"},
        {**event, "hash": "ABC"},
        {**event, "severity": "info!"},
        {**event, "data": {**event["data"], "verified": "yes"}},
        {**event, "data": {k: v for k, v in event["data"].items() if k != "pre_ref"}},
        {k: v for k, v in event.items() if k != "prevhash"},
    ]
    for one in wrong:
        assert list(validator.iter_errors(one)), one
    validator.validate({**event, "newfield": 1, "data": {**event["data"], "newer": True}})
    validator.validate({**event, "type": "dev.evolver.new.kind", "data": {}})


def test_every_rollback_event_says_what_the_contract_asks_for() -> None:
    for name, cls in all_types().items():
        fields = set(cls.__struct_encode_fields__)
        if name.startswith("rollback."):
            assert fields >= {"iteration_id", "rollback_mode", "pre_ref", "post_ref", "reason", "from", "to"}, name
        if name == "rollback.finished":
            assert fields >= {"verified", "left", "rollback_ref", "stash_ref", "duration_ms"}
        assert not {f for f in fields if f.endswith(("_s", "_sec", "seconds"))}, name
        hints = typing.get_type_hints(cls)
        assert float not in [t for hint in hints.values() for t in (hint, *typing.get_args(hint))], name


def test_the_cloudevents_library_parses_every_event(every_event: list[bytes]) -> None:
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent

    for line in every_event:
        event = JSONFormat().read(CloudEvent, line)
        plain = json.loads(line)
        assert event.get_id() == plain["id"] and event.get_type() == plain["type"] and event.get_source() == "/évolver"
        assert event.get_data() == plain["data"]
        assert event.get_extension("hash") == plain["hash"] and event.get_extension("sequence") == plain["sequence"]
        names = set(plain) - {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"}
        assert all(name.isascii() and name.isalnum() and name.islower() and len(name) <= 20 for name in names)
