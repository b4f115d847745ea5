"""Where a recording comes from: who made it from what, and when."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from feval.publish.configs import Config
from feval.publish.markdown import code, folded, plain
from feval.recording import Recording

_MOST_LINES = 12
_RECORDED = frozenset(("record", "proxy"))
_DERIVED = {
    "merge": "merged from",
    "select": "selected from",
    "extract": "extracted again from",
    "score": "scored from",
}


def has_sent_prompts(recording: Recording, configs: Iterable[Config]) -> bool:
    """Return whether every request has the prompt that was sent.

    An importer may have had to use the question's text instead, so this is known only for what
    feval itself recorded.
    """
    requests = [split for config in configs if config.part == "requests" for split in config.splits]
    recorded = all(operation.get("name") in _RECORDED for operation in _first_operations(recording))
    return recorded and bool(requests) and not any(split.nulls.get("prompt") for split in requests)


def is_imported(recording: Recording) -> bool:
    """Return whether others may have extracted the answers: true unless feval is known to have
    recorded or extracted them.
    """
    operation = recording.manifest.raw["operation"].get("name")
    return operation != "extract" and any(
        each.get("name") not in _RECORDED for each in _first_operations(recording)
    )


def provenance(recording: Recording) -> str:
    """Return the section's text."""
    raw = recording.manifest.raw
    operation = raw["operation"]
    date = re.match(r"\d{4}-\d\d-\d\d", raw["created"])
    when = f" on {date[0]}" if date else ""
    by = f" with feval {plain(raw['feval_version'])}"
    parents = raw["parents"]
    if not parents:
        return f"{_sentence(operation)}{when}{by}."
    verb = _DERIVED.get(
        str(operation.get("name")), f"made ({code(str(operation.get('name')))}) from"
    )
    number = "one recording" if len(parents) == 1 else f"{len(parents)} recordings"
    items = "\n".join(f"- {_sentence(_mapping(parent.get('operation')))}" for parent in parents)
    head = f"{verb.capitalize()} {number}{when}{by}:"
    if len(parents) > _MOST_LINES:
        return f"{head[:-1]}.\n\n{folded('These recordings', items)}"
    return f"{head}\n\n{items}"


def _sentence(operation: Mapping[str, Any]) -> str:
    """Return what made a recording, from the operation in its manifest, in words."""
    name = operation.get("name")
    if name == "record":
        what = (
            f" {_code(operation, 'llm')} on {_code(operation, 'dataset')}"
            if "llm" in operation
            else ""
        )
        return f"Recorded{what}"
    if name == "proxy":
        return "Recorded between a program and its provider (`feval proxy`)"
    if name == "import":
        source = _mapping(operation.get("source"))
        digest = str(source.get("sha256", ""))
        known = f", SHA-256 `{digest}`" if re.fullmatch("[0-9a-f]{64}", digest) else ""
        place = _code(operation, "address") if "address" in operation else _code(source, "file")
        return f"Imported from {place} (format {_code(operation, 'format')}{known})"
    return f"Made by {code(str(name))}" if name else "Made in a way that is not stated"


def _first_operations(recording: Recording) -> list[Mapping[str, Any]]:
    """Return what made the samples: the operation of the recording, or those of the recordings it
    was derived from.
    """
    parents, operation = (recording.manifest.raw[name] for name in ("parents", "operation"))
    return [_mapping(parent.get("operation")) for parent in parents] or [operation]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _code(values: Mapping[str, Any], key: str) -> str:
    return code(str(values.get(key) or "not stated"))
