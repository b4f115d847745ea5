"""Records of Every Eval Ever, the EvalEval coalition's schema for results of evaluations, version
0.3.0 (August 2026).

https://github.com/evaleval/every_eval_ever, `eval.schema.json` and
`instance_level_eval.schema.json`: for each LLM on a dataset
`data/<dataset>/<developer>/<model>/<uuid>.json` with the accuracy of one CoT, and
`<uuid>_samples.jsonl` beside it, a line for each CoT. The names follow from the recording's hash,
so that the same recording gives the same files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson

from feval import __version__
from feval.cards import find_dataset_card
from feval.errors import NotRecordedError, UsageError
from feval.executors import UncountedProgress, results
from feval.exporters.arrow import AHEAD, Export, blocks_of, questions_of
from feval.importers.source import Row
from feval.recording import Recording
from feval.recording.derived.rewriting import Block
from feval.recording.layout.files import HashedFile, NewFolder, write_file
from feval.recording.reader import pairs_of
from feval.values import without_none

_SCHEMA_VERSION = "0.3.0"
_COLUMNS = (
    "schema_version", "evaluation_id", "model_id", "evaluation_name", "evaluation_result_id",
    "sample_id", "sample_hash",
    "interaction_type", "input", "output", "answer_attribution", "evaluation", "token_usage",
    "performance", "metadata",
)  # fmt: skip
_LEFT_OUT = (
    (
        "Of CoTs, log-probabilities, probes, step scores, the date and what identifies a reply were"
        " left out."
    ),
    "Tokens of CoTs were left out where those of their request are not known.",
    (
        "Questions without a gold answer, verdicts or CoTs, parties of equal answers, system prompt"
        " and settings of scorers were left out."
    ),
    "Token counters, licence, prices and notes were left out.",
    (
        "Who ran the evaluation and how the LLM is deployed is stated as unknown: edit"
        " source_metadata and model_info."
    ),
)


# What other tools replace in names of files, and characters that control or reorder what is shown.
_NOT_IN_NAMES = re.compile(
    r'["<>:/|\\?*\[\]\s\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+'
)
_DEVICE = re.compile(r"(?i:con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.DOTALL)
_LONGEST_NAME = 150  # bytes


def export_every_eval_ever(
    recording: Recording,
    out: Path,
    datasets: Sequence[str] | None,
    llms: Sequence[str] | None,
    executor: Executor | None,
    progress: UncountedProgress | None,
) -> Export:
    """Write a folder of records, as `export_recording` does."""
    pairs = pairs_of(recording, datasets, llms)
    for pair in pairs:
        _check(recording, *pair)
    counts = [len(list(blocks_of(recording, *pair))) for pair in pairs]
    rows = done = 0
    folder = NewFolder(out, "an export")
    try:
        for pair, count in zip(pairs, counts, strict=True):
            samples, summary = _files(recording, *pair)
            report = (
                None
                if progress is None
                else lambda now, _, before=done: progress(before + now, sum(counts))
            )
            record = _write_lines(
                folder.path / samples, blocks_of(recording, *pair), executor, report
            )
            text = orjson.dumps(_summary(recording, pair, record), option=orjson.OPT_INDENT_2)
            write_file(folder.path / summary, [text, b"\n"], 1)
            rows, done = rows + record["rows"], done + count
        folder.publish()
    finally:
        folder.remove()
    return Export(out, rows, _COLUMNS, _LEFT_OUT)


def _check(recording: Recording, dataset: str, llm: str) -> None:
    if recording.has_steps(dataset, llm):
        turns = recording.manifest.pairs[dataset, llm].get("turns")
        shape = "conversations of several turns" if turns else "trees of steps"
        raise UsageError(
            f"{llm} was recorded on {dataset} as {shape}, which every-eval-ever has no place for."
            " Name the LLMs to export, --llm NAME (in Python: llms=['NAME']), or export a table."
        )
    if not len(_right_shares(recording, dataset, llm)):
        raise NotRecordedError(
            f"No question of {dataset} that {llm} answered has a gold answer or verdicts, and"
            " every-eval-ever holds right and wrong answers. Import these first, or export a table."
        )


def _write_lines(
    path: Path, blocks: Iterable[Block], executor: Executor | None, report: UncountedProgress | None
) -> Row:
    """Write the lines of some blocks; return rows, bytes and hash of the file."""
    file, rows = HashedFile(path), 0
    try:
        for count, data in results(_lines, ((block,) for block in blocks), executor, report, AHEAD):
            file.write(data)
            rows += count
        file.close()
    finally:
        file.abandon()
    return file.record(rows)


def _lines(block: Block) -> tuple[int, bytes]:
    """Return how many CoTs of a block have a verdict, and a line for each."""
    made: list[bytes] = []
    recording = block.recording()
    shared = _shared(recording, block.dataset, block.llm)
    graders = recording.graders(block.dataset, block.llm)
    for about, _, columns in questions_of(block):
        right, verdicts = columns.get("correct", [None]), columns.get("verdict", ())
        if right[0] is None and any(verdict is not None for verdict in verdicts):
            if len(graders) > 1:
                raise UsageError(
                    f"A record of Every Eval Ever has one score, and {block.llm} has verdicts of"
                    f" {' and '.join(graders)} on {block.dataset}. Export a recording that one of"
                    " them graded, or a table, which has a column for each: --to csv."
                )
            alone = [v.get(graders[0]) if isinstance(v, dict) else v for v in verdicts]
            right = columns["correct"] = [verdict or 0.0 for verdict in alone]
        if right[0] is None:
            continue
        asked = shared | _question(about)
        cots = (
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        )
        made.extend(orjson.dumps(asked | _cot(about, cot)) + b"\n" for cot in cots)
    return len(made), b"".join(made)


def _files(recording: Recording, dataset: str, llm: str) -> tuple[str, str]:
    """Return the names of an LLM's files on a dataset: lines, and the summary beside them."""
    name = _model(llm)
    developer, _, model = name.rpartition("/")
    parts = (dataset, developer or "unknown", model)
    folder = "/".join(("data", *map(_file_name, parts)))
    digest = hashlib.sha256(f"{recording.hash}\n{dataset}\n{llm}".encode()).digest()
    uuid = UUID(bytes=digest[:16], version=4)
    return f"{folder}/{uuid}_samples.jsonl", f"{folder}/{uuid}.json"


def _file_name(name: str) -> str:
    """Return a name of a dataset or LLM as that of one file on any system, without what cannot
    stand there.

    It may be one part of a path only: "..", what a system takes for a device, and names that are
    too long become others.
    """
    safe = _NOT_IN_NAMES.sub("_", name).rstrip(".")
    if len(safe.encode()) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        safe = f"{safe.encode()[:_LONGEST_NAME].decode(errors='ignore')}-{digest}"
    return f"_{safe}" if not safe or safe.startswith(".") or _DEVICE.fullmatch(safe) else safe


def _right_shares(recording: Recording, dataset: str, llm: str) -> npt.NDArray[np.float64]:
    """Return the share of right CoTs on each question that has CoTs and a gold, else verdicts, in
    order.
    """
    votes = recording.votes(dataset)
    pool, known = votes.llms[llm], votes.gold >= 0
    right = (pool.codes == votes.gold[:, None]).astype(np.float64)
    for grader in recording.graders(dataset, llm):
        verdicts = recording.scores(dataset, llm, grader).values
        graded = ~known & ~np.isnan(verdicts).all(axis=1)
        right[graded], known = np.nan_to_num(verdicts[graded]), known | graded
    known &= pool.sizes > 0
    return np.asarray(right[known].sum(axis=1) / pool.sizes[known], np.float64)


def _summary(recording: Recording, pair: tuple[str, str], record: Row) -> Row:
    """Return the aggregate record of an LLM on a dataset."""
    dataset, llm = pair
    shared, shares, info = (
        _shared(recording, *pair),
        _right_shares(recording, *pair),
        recording.dataset_info(dataset),
    )
    return {
        "schema_version": _SCHEMA_VERSION,
        "evaluation_id": shared["evaluation_id"],
        "retrieved_timestamp": _timestamp(recording),
        "source_metadata": {
            "source_name": "feval",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": {"recording_hash": recording.hash},
        },
        "model_info": {
            "name": llm,
            "id": shared["model_id"],
            "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
        },
        "eval_library": {"name": "feval", "version": __version__},
        "evaluation_results": [
            {
                "evaluation_result_id": shared["evaluation_result_id"],
                "evaluation_name": dataset,
                "source_data": _source(dataset, info.title),
                "metric_config": {
                    "evaluation_description": (
                        "Probability that one CoT is right: mean over questions of the share of"
                        " right CoTs"
                    ),
                    "metric_id": "accuracy",
                    "metric_name": "Accuracy",
                    "metric_kind": "accuracy",
                    "metric_unit": "proportion",
                    "lower_is_better": False,
                    "score_type": "continuous",
                    "min_score": 0.0,
                    "max_score": 1.0,
                    "additional_details": {
                        "answer_kind": info.answer_kind,
                        "equality": info.equality,
                        "extractor": info.extractor,
                    },
                },
                "score_details": {
                    "score": float(shares.mean()),
                    "details": {"cots": str(record["rows"]), "questions": str(len(shares))},
                    **_uncertainty(shares),
                },
                "generation_config": _generation(recording, llm),
            }
        ],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": _files(recording, *pair)[0],
            "hash_algorithm": "sha256",
            "checksum": record["sha256"],
            "total_rows": record["rows"],
        },
    }


def _shared(recording: Recording, dataset: str, llm: str) -> Row:
    """Return what all lines of an LLM on a dataset have."""
    run = f"{dataset}/{llm.replace('/', '_')}/{_timestamp(recording)}"
    return {
        "schema_version": _SCHEMA_VERSION,
        "evaluation_id": run,
        "model_id": _model(llm),
        "evaluation_name": dataset,
        "evaluation_result_id": f"{run}/accuracy",
        "interaction_type": "single_turn",
    }


def _question(about: Row) -> Row:
    asked: Row = {"raw": about["question"], "reference": [about["gold"]] if about["gold"] else []}
    if about["prompt"]:
        asked["formatted"] = orjson.dumps(about["prompt"]).decode()
    if about["choices"]:
        asked["choices"] = [f"({choice['label']}) {choice['text']}" for choice in about["choices"]]
    digest = hashlib.sha256((about["question"] + (about["gold"] or "")).encode()).hexdigest()
    return {"sample_id": about["question_id"], "sample_hash": digest, "input": asked}


def _cot(about: Row, cot: Row) -> Row:
    text, thoughts, prompt, answer = (
        cot["text"],
        cot.get("reasoning"),
        about["prompt_tokens"],
        cot["answer"],
    )
    output: Row = {"raw": [] if text is None else [text]}
    line: Row = {
        "output": output | ({"reasoning_trace": [thoughts]} if thoughts else {}),
        "answer_attribution": [],
        "evaluation": {"score": float(cot["correct"]), "is_correct": cot["correct"] == 1},
        "metadata": {"sample": str(cot["sample"]), "finish_reason": cot["finish_reason"]},
    }
    if answer is not None:
        line["answer_attribution"].append(
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": answer,
                "extraction_method": "feval",
                "is_terminal": True,
            }
        )
    line["metadata"] |= {
        f"score.{name}": repr(score) for name, score in (cot["score"] or {}).items()
    }
    if prompt is not None:
        parts = {
            "reasoning_tokens": cot.get("reasoning_tokens"),
            "input_tokens_cache_read": cot.get("cached_tokens"),
        }
        line["token_usage"] = {
            "input_tokens": prompt,
            "output_tokens": cot["tokens"],
            "total_tokens": prompt + cot["tokens"],
            **without_none(parts),
        }
    seconds = {
        "latency_ms": cot.get("duration_s"),
        "time_to_first_token_ms": cot.get("first_token_s"),
    }
    if performance := {name: 1000 * value for name, value in seconds.items() if value is not None}:
        line["performance"] = performance
    return line


def _uncertainty(shares: Any) -> Row:
    """Return the standard error over questions; nothing for a single one."""
    if len(shares) < 2:
        return {}
    deviation = float(shares.std(ddof=1))
    error = {"value": deviation / float(np.sqrt(len(shares))), "method": "analytic"}
    return {
        "uncertainty": {
            "standard_error": error,
            "standard_deviation": deviation,
            "num_samples": len(shares),
        }
    }


def _generation(recording: Recording, llm: str) -> Row:
    info = recording.llm_info(llm)
    named = {"temperature": info.temperature, "max_tokens": info.max_tokens}
    named |= {name: info.decoding[name] for name in ("top_p", "top_k") if name in info.decoding}
    others = {
        name: value if isinstance(value, str) else orjson.dumps(value).decode()
        for name, value in info.decoding.items()
        if name not in named
    }
    return {"generation_args": without_none(named), "additional_details": {"llm": llm, **others}}


def _source(dataset: str, title: str) -> Row:
    card = find_dataset_card(dataset)
    if card is None or card.hub is None:
        return {"dataset_name": title, "source_type": "other"}
    return {
        "dataset_name": title,
        "source_type": "hf_dataset",
        "hf_repo": card.hub.repository,
        "hf_split": card.hub.split,
    }


def _model(llm: str) -> str:
    """Return the model of an LLM, without its variant."""
    return llm.split("@", 1)[0]


def _timestamp(recording: Recording) -> str:
    return str(datetime.fromisoformat(str(recording.manifest.raw["created"])).timestamp())
