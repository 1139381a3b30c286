"""The JSON Schema of the stream's lines, made from the event classes: `python -m evolver.events.schema > docs/schema/…`."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from evolver.events.types import PREFIX, all_types

_HASH = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_UUID7 = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"

# In the order in which they are written.
_ENVELOPE: dict[str, Any] = {
    "specversion": {"const": "1.0"},
    "id": {"type": "string", "pattern": _UUID7},
    "source": {"type": "string", "minLength": 1},
    "type": {"type": "string", "pattern": "^dev\\.evolver\\.[a-z_]+\\.[a-z_]+$"},
    "subject": {"type": "string", "minLength": 1, "description": "iteration_id, else the run's id"},
    "time": {"type": "string", "pattern": "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z$"},
    "datacontenttype": {"const": "application/json"},
    "sequence": {"type": "integer", "minimum": 1},
    "runid": {"type": "string", "pattern": _UUID7},
    "iteration": {"type": "integer", "minimum": 0},
    "severity": {"enum": ["debug", "info", "warning", "error", "alert"]},
    "data": {"type": "object"},
    "chainversion": {"const": 1},
    "prevhash": _HASH,
    "hash": _HASH,
}
_OPTIONAL = {"subject", "runid", "iteration"}


def schema() -> dict[str, Any]:
    """Types and fields that it does not name are allowed: a newer version may write them."""
    types = all_types()
    _, found = msgspec.json.schema_components(
        list(types.values()), schema_hook=lambda _: {"description": "any value"}, ref_template="#/$defs/{name}"
    )
    definitions: dict[str, Any] = dict(sorted(found.items()))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of evolver's event stream",
        "type": "object",
        "properties": _ENVELOPE,
        "required": [name for name in _ENVELOPE if name not in _OPTIONAL],
        "allOf": [
            {
                "if": {"properties": {"type": {"const": PREFIX + name}}},
                "then": {
                    "properties": {"data": {"$ref": f"#/$defs/{cls.__name__}"}, "severity": {"const": cls.SEVERITY}},
                },
            }
            for name, cls in types.items()
        ],
        "$defs": definitions,
    }


def text() -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
