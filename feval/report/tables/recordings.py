"""What recordings hold, and what a second extraction changed in one, as tables and JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import evaluation
from feval.answers import NORMAL_FORM
from feval.cards import price_ids, price_list
from feval.cards.tokens import NONE
from feval.replay import load
from feval.report.tables.tables import (
    Fields,
    Table,
    Write,
    columns,
    get,
    json_text,
    make_table,
    nested,
    share,
)
from feval.report.text import counted, size
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from feval.recording import Extraction, Recording
    from feval.recording.layout.flat import Bools

_SHARES: Mapping[str, int | None] = {"no_answer": None, "unclosed_thoughts": 0, "empty_replies": 0}
"""Counts of CoTs in the manifest that are shown as shares, and their value where one is missing."""
_MANIFEST_KEYS = (
    "format_version", "features", "created", "feval_version", "prices", "operation", "parents",
    "licences", "notes", "scorers", "scores", "probes",
)  # fmt: skip


def info_dict(recording: Recording) -> Record:
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
        "verdicts": [*_verdicts(recording)],
        "served": [served.sentence for served in recording.manifest.served_models()],
        "bytes": sum(record["bytes"] for record in recording.manifest.files.values()),
    }


def disagreements(recording: Recording, dataset: str, llm: str, grader: str) -> tuple[Bools, Bools]:
    """Return [Q, S] which CoTs have gold and verdict, and on which of them these disagree."""
    votes, values = recording.votes(dataset), recording.scores(dataset, llm, grader).values
    rightness = load(dataset, [llm], recording, prices="none", right="gold")[0].rightness
    right = votes.llms[llm].codes == votes.gold[:, None]
    if rightness is not None:
        right = rightness.of_llm[llm] > 0
    both = ~np.isnan(values) & (votes.gold >= 0)[:, None]
    return both, both & ((values >= 0.5) != right)


def _verdicts(recording: Recording) -> Iterator[Record]:
    """How many CoTs of each LLM a grader judged, and how often golds agree with it, where both
    are: a verdict from 0.5 on says right. Mixed parties have CoTs that are not equally right.
    """
    for dataset, llm in recording.manifest.pairs:
        for grader in recording.graders(dataset, llm):
            recording.prepare(dataset, [llm])
            votes, values = recording.votes(dataset), recording.scores(dataset, llm, grader).values
            codes, known = votes.llms[llm].codes, ~np.isnan(values)
            both, differs = disagreements(recording, dataset, llm, grader)
            graded, shares = (
                known.any(axis=1),
                evaluation.right_parties(codes, np.nan_to_num(values))[1],
            )
            yield {
                "dataset": dataset,
                "llm": llm,
                "grader": grader,
                "verdicts": int(known.sum()),
                "none": int((codes >= -1).sum() - known.sum()),
                "questions": int(graded.sum()),
                "without_gold": int((graded & (votes.gold < 0)).sum()),
                "mixed_parties": int(((shares > 0) & (shares < 1)).sum()),
                "with_gold": int(both.sum()),
                "disagreements": int(differs.sum()),
                "agreement": float(1 - differs.sum() / both.sum()) if both.any() else None,
            }


def _pair(recording: Recording, pair: RecordLike) -> Record:
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
    pairs = manifest.pairs.values()
    turns = sum(pair.get("turns", 0) for pair in pairs)
    steps = sum(pair["cots"] for pair in pairs if _kind(pair) == "steps")
    cots = sum(pair["cots"] for pair in pairs) - turns - steps
    counts = {"CoT": cots, "turn": turns, "step": steps}
    kinds = [counted(count, noun) for noun, count in counts.items() if count] or [counted(0, "CoT")]
    return (
        f"{recording.path}: {', '.join(kinds)}, {counted(len(manifest.llms), 'LLM')}, "
        f"{counted(len(manifest.datasets), 'dataset')}, hash {recording.hash}"
    )


def _equality(dataset: RecordLike) -> str:
    """Name of the equality of answers, with the number of pairs without a verdict, which count as
    different.
    """
    equality = dataset["equality"]
    if equality is None:
        return NORMAL_FORM
    without = equality["undecided"] + equality["not_asked"]
    remark = f" ({counted(without, 'pair')} without a verdict)" if without else ""
    return f"{equality['name']}{remark}"


_DATASETS: Fields = {
    "dataset": "id",
    "#questions": "questions",
    "#with gold": "with_gold",
    "answer kind": "answer_kind",
    "equality": _equality,
    "extractor": "extractor",
    "licence": "licence",
    "title": "title",
}
_DECODING: Fields = {
    "LLM": "name",
    "#temperature": "temperature",
    "#max tokens": "max_tokens",
    "other": "decoding",
}
_SCORES: Fields = {
    "dataset": "dataset",
    "LLM": "llm",
    "scorer": "scorer",
    "#CoTs": "cots",
    "#with score": "with_score",
    "#with steps": "with_steps",
    "#prompt tokens": "prompt_tokens",
    "#output tokens": "output_tokens",
}
_VERDICTS: Fields = {
    "dataset": "dataset",
    "LLM": "llm",
    "grader": "grader",
    "#verdicts": "verdicts",
    "#CoTs without": "none",
    "#questions": "questions",
    "#without gold": "without_gold",
    "#mixed parties": "mixed_parties",
    "#agree with gold %": share("agreement"),
    "#disagree": "disagreements",
}
_SCORERS: Fields = {
    "scorer": "name",
    "kind": "kind",
    # an imported one has the format under which any table is read, JSON Lines
    "parameters": lambda one: json_text({**one["parameters"], "format": None}),
}
_PROBES: Fields = {
    "dataset": "dataset",
    "LLM": "llm",
    "#CoTs": "traces",
    "#probes": "probes",
    # a dash is an irregular interval
    "#interval": "interval",
    "#without answer": "no_answer",
    "#output tokens": "output_tokens",
    "cue": "cue",
}


def info_tables(recording: Recording) -> list[Table]:
    """Return the tables of `feval info`: facts, datasets, pools, decoding, scores and probes."""
    info = info_dict(recording)
    # an empty object says nothing
    llms = [{key: value for key, value in llm.items() if value != {}} for llm in info["llms"]]
    # tokens that were not counted are 0
    probes = [
        each | {"output_tokens": each.get("output_tokens") or None} for each in info["probes"]
    ]
    graders = {each["grader"] for each in info["verdicts"]}
    optional = [
        make_table("decoding", _DECODING, llms),
        make_table(
            "verdicts", _VERDICTS, info["verdicts"], ["by a verdict from 0.5 on, a CoT is right"]
        ),
        make_table(
            "scores", _SCORES, [each for each in info["scores"] if each["scorer"] not in graders]
        ),
        make_table("scorers", _SCORERS, info["scorers"] if info["scores"] else ()),
        make_table("probes", _PROBES, probes),
    ]
    return [
        _facts(info, recording),
        make_table("datasets", _DATASETS, info["datasets"]),
        _pools(info["pairs"]),
        *(each for each in optional if any({*row[1:]} - {"-"} for row in each.rows)),
    ]


def pools_table(recording: Recording) -> Table:
    """Return the table of the recorded pools alone."""
    return _pools(info_dict(recording)["pairs"])


def _facts(info: RecordLike, recording: Recording) -> Table:
    rows = [
        ("recording", str(info["path"])),
        ("hash", str(info["recording_hash"])),
        ("size", size(info["bytes"])),
        (
            "created",
            f"{info['created']} by feval {info['feval_version']}, format {info['format_version']}",
        ),
        ("made by", _operation(info["operation"])),
        ("prices", _prices(str(info["prices"]), [llm["name"] for llm in info["llms"]], recording)),
        *(
            (f"licence of {what}", licence or "not stated")
            for what, licence in info["licences"].items()
        ),
        *(
            (
                "parent",
                f"{json_text(each.get('hash'))}, made by {_operation(each.get('operation'))}",
            )
            for each in info["parents"]
        ),
        *(("served model", sentence) for sentence in info["served"]),
        *(("note", note) for note in info["notes"]),
    ]
    return Table("", columns("", ""), tuple(rows))


def _prices(named: str, llms: Sequence[str], recording: Recording) -> str:
    """The price list by its id, and whether it has any of the LLMs, where feval knows it."""
    if named == "recorded":
        return "recorded: the USD that each CoT states"
    if not llms or named not in price_ids() or any(map(price_list(named).find, llms)):
        return named
    pairs = recording.manifest.pairs
    if not recording.address and all(recording.unpaid(*pair) == 0 for pair in pairs):
        return f"{named} has none of these LLMs; CoTs state their own USD: --prices recorded"
    return (
        f"no price: {named} has none of these LLMs; give a list that has one to `feval curve` and"
        " others, with --prices (`feval ls prices`, or a file)"
    )


def _pools(pairs: Sequence[RecordLike]) -> Table:
    """The pools, with columns for unclosed thoughts and empty replies if there are any."""

    def per_question(pair: RecordLike) -> str:
        ends = dict.fromkeys((pair.get("smallest_pool"), pair.get("largest_pool")))
        return " to ".join(map(json_text, ends))

    shares = {
        f"#{name.replace('_', ' ')} %": share(f"{name}_rate")
        for name, missing in _SHARES.items()
        if missing is None or any(pair.get(name) for pair in pairs)
    }
    fields: Fields = {
        "dataset": "dataset",
        "LLM": "llm",
        f"#{pool_kinds(pairs)}": "cots",
        "#per question": per_question,
        **shares,
        "token counter": lambda pair: (
            "tokens not recorded" if pair["counter"] == NONE else pair["counter"]
        ),
    }
    return make_table("pools", fields, pairs)


def pool_kinds(pairs: Iterable[RecordLike]) -> str:
    """Return what the pools of some of a manifest's pairs consist of: CoTs, steps, turns."""
    kinds = {kind for pair in pairs for kind in _kind(pair).split(" and ")}
    return ", ".join(sorted(kinds)) or "CoTs"


def _kind(pair: RecordLike) -> str:
    """What the pools of an LLM on a dataset consist of."""
    return "CoTs and turns" if pair.get("turns") else "steps" if "depth" in pair else "CoTs"


def _operation(operation: Any) -> str:
    """Write {"name": "import", "format": "esc"} as `import (format esc)`; what has parts is left
    to --json, but for the names of files.
    """
    if not isinstance(operation, Mapping) or "name" not in operation:
        return json_text(operation)
    shown = {
        key: value
        for key, value in operation.items()
        if key != "name" and not isinstance(value, Mapping | list)
    }
    source = operation.get("source")
    if isinstance(source, Mapping):
        shown["source"] = source.get("file")
    elif isinstance(source, list):
        shown["source"] = counted(len(source), "file")
    details = json_text(shown)
    return nested(operation["name"]) + (f" ({details})" if details != "-" else "")


def changes_tables(extraction: Extraction) -> list[Table]:
    """Return the tables of `feval extract`: changes per LLM, changed golds, examples of changed
    answers.
    """
    changed: list[list[Any]] = [[llm, each] for each in extraction.datasets for llm in each.llms]
    golds = sum(each.golds_changed for each in extraction.datasets)
    counts: Fields = {
        "dataset": "dataset",
        "LLM": "llm",
        "#CoTs": "cots",
        "#gained": "gained",
        "#lost": "lost",
        "#changed": "changed",
        "#right before": "right_before",
        "#right now": "right_after",
    }
    notes = [
        f"{each.dataset}: {_was_is('answer kind', each.answer_kind_before, each.answer_kind)},"
        f" {_was_is('extractor', each.extractor_before, each.extractor)}."
        for each in extraction.datasets
    ]
    gold_fields: Fields = {
        "dataset": "dataset",
        "question": "question_id",
        "before": _key("before"),
        "now": _key("after"),
        "gold as written": _key("answer"),
    }
    answer_fields: Fields = {
        "dataset": "dataset",
        "LLM": "llm",
        "question": "question_id",
        "#CoT": "sample_index",
        "before": _key("before"),
        "now": _key("after"),
        "read before": _key("raw_before"),
        "read now": _key("raw_after"),
    }
    tables = (
        make_table("answers", counts, changed, notes),
        make_table(
            f"golds that changed: {golds:,}, the first of each dataset",
            gold_fields,
            [[gold, each] for each in extraction.datasets for gold in each.gold_examples],
        ),
        make_table(
            "answers that changed, a few of each kind",
            answer_fields,
            [[one, llm, each] for llm, each in changed for one in llm.examples],
        ),
    )
    return [table for table in tables if table.rows]


def _was_is(noun: str, before: str, after: str) -> str:
    return f"{noun} {after}" if before == after else f"{noun} {after} (was {before})"


def _key(name: str) -> Write:
    """Quotes an answer, so that no answer (a dash) differs from the answer "-"."""

    def write(record: Any) -> str:
        value = get(record, name)
        if value is None:
            return "-"
        return repr(value if len(value) <= 40 else f"{value[:37]}...")

    return write
