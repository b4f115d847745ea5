"""A recording's manifest, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from feval.answers.parties import NORMAL_FORM
from feval.cards.cards import price_ids
from feval.cards.prices import price_list
from feval.recording.layout.manifest import served_models
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, size

if TYPE_CHECKING:
    from feval.recording import Recording

_SHARES: Mapping[str, int | None] = {"no_answer": None, "unclosed_thoughts": 0, "empty_replies": 0}
"""Counts of CoTs in the manifest that are shown as shares, and their value where one is missing."""
_MANIFEST_KEYS = (
    "format_version",
    "features",
    "created",
    "feval_version",
    "prices",
    "operation",
    "parents",
    "licences",
    "notes",
    "scorers",
    "scores",
    "probes",
)


def info_dict(recording: Recording) -> dict[str, Any]:
    """Return a recording's manifest as one JSON object, without the lists of files and leaves.

    Every pair gets extra fields: `no_answer_rate`, `unclosed_thoughts_rate` and
    `empty_replies_rate` (shares of its CoTs; null without CoTs, the first also of steps) and
    `questions` (of its dataset).
    """
    raw = recording.manifest.raw
    return {
        "path": str(recording.path),
        "recording_hash": recording.hash,
        **{key: raw[key] for key in _MANIFEST_KEYS},
        "datasets": list(recording.manifest.datasets.values()),
        "llms": list(recording.manifest.llms.values()),
        "pairs": [_pair(recording, pair) for pair in recording.manifest.pairs.values()],
        "served": [served.sentence for served in served_models(recording.manifest)],
        "bytes": sum(record["bytes"] for record in recording.manifest.files.values()),
    }


def _pair(recording: Recording, pair: Mapping[str, Any]) -> dict[str, Any]:
    cots = pair["cots"]
    counts = {name: pair.get(name, missing) for name, missing in _SHARES.items()}
    rates = {
        f"{name}_rate": count / cots if cots and isinstance(count, int) else None
        for name, count in counts.items()
    }
    # only those that end a solution answer, and the manifest does not count them
    if _kind(pair) == "steps":
        rates["no_answer_rate"] = None
    dataset = recording.manifest.datasets.get(pair["dataset"], {})
    return {**pair, **rates, "questions": dataset.get("questions")}


def info_headline(recording: Recording) -> str:
    """Return one sentence with a recording's path, size and hash."""
    manifest = recording.manifest
    pairs = [*manifest.pairs.values()]
    turns, steps = (
        sum(pair.get("turns", 0) for pair in pairs),
        sum(pair["cots"] for pair in pairs if _kind(pair) == "steps"),
    )
    counts = {
        "CoT": sum(pair["cots"] for pair in pairs) - turns - steps,
        "turn": turns,
        "step": steps,
    }
    kinds = [counted(count, noun) for noun, count in counts.items() if count] or [counted(0, "CoT")]
    return (
        f"{recording.path}: {', '.join(kinds)}, {counted(len(manifest.llms), 'LLM')}, "
        f"{counted(len(manifest.datasets), 'dataset')}, hash {recording.hash}"
    )


def info_tables(recording: Recording) -> list[Table]:
    """Return the tables of `feval info`: facts, datasets, pools, decoding, scores and probes."""
    info = info_dict(recording)
    return [
        _facts(info),
        _datasets(info["datasets"]),
        _pools(info["pairs"]),
        *_decoding(info["llms"]),
        *_scores(info["scores"], info["scorers"]),
        *_probes(info["probes"]),
    ]


def pools_table(recording: Recording) -> Table:
    """Return the table of the recorded pools alone."""
    return _pools(info_dict(recording)["pairs"])


def _facts(info: Mapping[str, Any]) -> Table:
    licences = info["licences"] if isinstance(info["licences"], Mapping) else {}
    rows = [
        ("recording", str(info["path"])),
        ("hash", str(info["recording_hash"])),
        ("size", size(info["bytes"])),
        (
            "created",
            f"{info['created']} by feval {info['feval_version']}, format {info['format_version']}",
        ),
        ("made by", _operation(info["operation"])),
        ("prices", _prices(str(info["prices"]), [llm["name"] for llm in info["llms"]])),
        *(
            (f"licence of {what}", str(licence or "not stated"))
            for what, licence in licences.items()
        ),
        *(("parent", _parent(parent)) for parent in _listed(info["parents"])),
        *(("served model", sentence) for sentence in info["served"]),
        *(("note", str(note)) for note in _listed(info["notes"])),
    ]
    return Table("", columns("", ""), tuple(rows))


def _prices(named: str, llms: Sequence[str]) -> str:
    """The price list by its id, and whether it has any of the LLMs, where feval knows it."""
    if not llms or named not in price_ids() or any(map(price_list(named).find, llms)):
        return named
    return f"no price: {named} has none of these LLMs"


def _datasets(datasets: Iterable[Mapping[str, Any]]) -> Table:
    names = (
        "dataset",
        "#questions",
        "#with gold",
        "answer kind",
        "equality",
        "extractor",
        "licence",
        "title",
    )
    rows = (
        (
            *(_value(record.get(key)) for key in ("id", "questions", "with_gold", "answer_kind")),
            _equality(record),
            *(_value(record.get(key)) for key in ("extractor", "licence", "title")),
        )
        for record in datasets
    )
    return Table("datasets", columns(*names), tuple(rows))


def _equality(dataset: Mapping[str, Any]) -> str:
    """Name of the equality of answers, with the number of pairs without a verdict, which count as
    different.
    """
    equality = dataset["equality"]
    if equality is None:
        return NORMAL_FORM
    without = equality["undecided"] + equality["not_asked"]
    remark = f" ({counted(without, 'pair')} without a verdict)" if without else ""
    return f"{equality['name']}{remark}"


def _pools(pairs: Sequence[Mapping[str, Any]]) -> Table:
    """The pools, with columns for unclosed thoughts and empty replies if there are any."""
    shown = [
        name
        for name, missing in _SHARES.items()
        if missing is None or any(pair.get(name) for pair in pairs)
    ]
    shares = (f"#{name.replace('_', ' ')} %" for name in shown)
    names = ("dataset", "LLM", f"#{pool_kinds(pairs)}", "#per question", *shares, "token counter")
    return Table("pools", columns(*names), tuple(_pool_row(pair, shown) for pair in pairs))


def pool_kinds(pairs: Iterable[Mapping[str, Any]]) -> str:
    """Return what the pools of some of a manifest's pairs consist of: CoTs, steps, turns."""
    return (
        ", ".join(sorted({kind for pair in pairs for kind in _kind(pair).split(" and ")})) or "CoTs"
    )


def _kind(pair: Mapping[str, Any]) -> str:
    """What the pools of an LLM on a dataset consist of."""
    return "CoTs and turns" if pair.get("turns") else "steps" if "depth" in pair else "CoTs"


def _pool_row(pair: Mapping[str, Any], shown: Iterable[str]) -> tuple[str, ...]:
    smallest, largest = pair.get("smallest_pool"), pair.get("largest_pool")
    size = _value(smallest) if smallest == largest else f"{_value(smallest)} to {_value(largest)}"
    rates = (pair[f"{name}_rate"] for name in shown)
    shares = ("-" if rate is None else f"{100 * rate:.2f}" for rate in rates)
    return (
        pair["dataset"],
        pair["llm"],
        _value(pair["cots"]),
        size,
        *shares,
        _value(pair.get("counter")),
    )


def _decoding(llms: Iterable[Mapping[str, Any]]) -> list[Table]:
    """The decoding of each LLM, if any is stated."""
    keys = ("name", "temperature", "max_tokens", "decoding")
    rows = [
        tuple(_value(None if record.get(key) == {} else record.get(key)) for key in keys)
        for record in llms
    ]
    if all(cell == "-" for row in rows for cell in row[1:]):
        return []
    return [Table("decoding", columns("LLM", "#temperature", "#max tokens", "other"), tuple(rows))]


def _scores(
    scores: Iterable[Mapping[str, Any]], scorers: Iterable[Mapping[str, Any]]
) -> list[Table]:
    """The scores of each LLM and the scorers' parameters, if there are any."""
    numbers = ("cots", "with_score", "with_steps", "prompt_tokens", "output_tokens")
    keys = ("dataset", "llm", "scorer", *numbers)
    rows = tuple(tuple(_value(record.get(key)) for key in keys) for record in scores)
    if not rows:
        return []
    counts = ("#CoTs", "#with score", "#with steps", "#prompt tokens", "#output tokens")
    about = tuple(
        tuple(_value(record.get(key)) for key in ("name", "kind", "parameters"))
        for record in scorers
    )
    return [
        Table("scores", columns("dataset", "LLM", "scorer", *counts), rows),
        Table("scorers", columns("scorer", "kind", "parameters"), about),
    ]


def _probes(probes: Sequence[Mapping[str, Any]]) -> list[Table]:
    """The probes of each LLM, if there are any; a dash is an irregular interval, an unknown cue, or
    tokens not counted.
    """
    keys = ("dataset", "llm", "traces", "probes", "interval", "no_answer", "output_tokens", "cue")
    shown = [{**record, "output_tokens": record.get("output_tokens") or None} for record in probes]
    rows = tuple(tuple(_value(record.get(key)) for key in keys) for record in shown)
    names = (
        "dataset",
        "LLM",
        "#CoTs",
        "#probes",
        "#interval",
        "#without answer",
        "#output tokens",
        "cue",
    )
    return [Table("probes", columns(*names), rows)] if rows else []


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _value(value: Any) -> str:
    """Write a JSON value in a cell: null is a dash, an object is `key value, key value`."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{key} {_nested(item)}" for key, item in value.items() if item is not None)
            or "-"
        )
    return value if isinstance(value, str) else json.dumps(value)


def _operation(operation: Any) -> str:
    """Write {"name": "import", "format": "esc"} as `import (format esc)`."""
    if not isinstance(operation, Mapping) or "name" not in operation:
        return _value(operation)
    details = _value({key: value for key, value in operation.items() if key != "name"})
    return _nested(operation["name"]) + (f" ({details})" if details != "-" else "")


def _parent(parent: Any) -> str:
    if not isinstance(parent, Mapping):
        return _value(parent)
    return f"{_value(parent.get('hash'))}, made by {_operation(parent.get('operation'))}"


def _nested(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({_value(value)})"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
