"""Samples of lm-evaluation-harness 0.4, as `--log_samples` writes them: a line for each question, all CoTs as its repeats.

`<model>/samples_<task>_<date>.jsonl` with `results_<date>.json` beside it, which names the model. `feval import lm-eval` reads
them. The metric `exact_match` is the share of the repeats that are right; `correct` says it of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import orjson

from feval.errors import NotRecordedError
from feval.exporters.parts import PairFiles, file_name, right_shares
from feval.exporters.rows import questions_of
from feval.recording.derived.blocks import Block
from feval.recording.reader import Recording

FILTER = "feval"
"""Name of the filter whose responses are the extracted answers."""
COLUMNS = (
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics", "exact_match", "correct",
)  # fmt: skip
LEFT_OUT = (
    "Of CoTs, tokens, finish reasons, reasoning apart from the text, log-probabilities, times, probes and scores were left out.",
    "What identifies a reply, such as seed and response id, was left out.",
    "Questions without CoTs, answer kind, extraction, parties of equal answers, licence, prices and notes were left out.",
    "The ids of questions are in doc; an import of these files numbers the questions instead.",
)

_INVALID = "[invalid]"


def lines(block: Block) -> tuple[int, bytes]:
    """Return how many CoTs a block has, and their lines."""
    made, count = [], 0
    for row, (about, cots, columns) in enumerate(questions_of(block), block.first):
        if cots:
            made.append(orjson.dumps(_line(row, about, columns)) + b"\n")
            count += cots
    return count, b"".join(made)


def files(recording: Recording, dataset: str, llm: str) -> PairFiles:
    """Return the names of an LLM's files on a dataset."""
    folder, date = PurePosixPath(file_name(llm, "__")), _time(recording).strftime("%Y-%m-%dT%H-%M-%S.%f")
    task = file_name(dataset, "_")
    return PairFiles(folder / f"samples_{task}_{date}.jsonl", folder / f"results_{date}.json")


def summary(
    recording: Recording, pair: tuple[str, str], _: dict[str, Any], known: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the results of a run: those of its other tasks are `known`."""
    dataset, llm = pair
    shares, info = right_shares(recording, *pair), recording.llm_info(llm)
    asked = int((recording.votes(dataset).llms[llm].sizes > 0).sum())
    results: dict[str, Any] = {"alias": dataset, "sample_len": asked}
    if len(shares):
        results[f"exact_match,{FILTER}"] = float(shares.mean())
        results[f"exact_match_stderr,{FILTER}"] = (
            float(shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else "N/A"
        )
    others = known or {"results": {}, "higher_is_better": {}, "n-samples": {}}
    return {
        "results": others["results"] | {dataset: results},
        "higher_is_better": others["higher_is_better"] | {dataset: {"exact_match": True}},
        "n-samples": others["n-samples"] | {dataset: {"original": asked, "effective": asked}},
        "config": {"model": "feval", "model_args": {"recording": recording.hash}, "gen_kwargs": _arguments(info)},
        "date": _time(recording).timestamp(),
        "model_source": "feval",
        "model_name": llm,
        "model_name_sanitized": file_name(llm, "__"),
        "system_instruction": recording.dataset_info(dataset).system_prompt,
    }


def _line(row: int, about: dict[str, Any], columns: dict[str, Sequence[Any]]) -> dict[str, Any]:
    texts, correct, choices = columns["text"], list(columns["correct"]), about["choices"]
    if any(text is None for text in texts):
        raise NotRecordedError(
            f"Question {about['question_id']!r} has a CoT of {about['llm']} without a text, and lm-eval's samples are texts; "
            "export a table instead, --to parquet."
        )
    doc = {"id": about["question_id"], "question": about["question"], "answer": about["gold"]}
    if choices:
        doc["choices"] = {name: [choice[name] for choice in choices] for name in ("text", "label")}
    line = {
        "doc_id": row,
        "doc": doc,
        "target": about["gold"],
        "arguments": {"gen_args_0": {"arg_0": _sent(about), "arg_1": _arguments(about)}},
        "resps": [list(texts)],
        "filtered_resps": [[_INVALID if answer is None else answer for answer in columns["answer"]]],
        "filter": FILTER,
        "metrics": [] if None in correct else ["exact_match"],
    }
    return line if None in correct else line | {"exact_match": sum(correct) / len(correct), "correct": correct}


def _sent(about: dict[str, Any]) -> str | list[str]:
    """Return a request as the harness writes it: a text, or for a chat the messages as JSON in a list."""
    messages = about["prompt"]
    if not messages:
        return str(about["question"])
    if [message.get("role") for message in messages] == ["user"] and isinstance(messages[0].get("content"), str):
        return str(messages[0]["content"])
    return [orjson.dumps(messages).decode()]


def _arguments(info: Any) -> dict[str, Any]:
    """Return the generation arguments, from the columns of a question or of an LLM."""
    values = (
        info
        if isinstance(info, dict)
        else {name: getattr(info, name) for name in ("temperature", "max_tokens", "decoding")}
    )
    decoding = dict(values["decoding"] or {})
    stop = decoding.pop("stop", None)
    stated = {"temperature": values["temperature"], "max_gen_toks": values["max_tokens"]}
    stated |= {"until": [stop] if isinstance(stop, str) else stop}
    return {name: value for name, value in stated.items() if value is not None} | decoding


def _time(recording: Recording) -> datetime:
    return datetime.fromisoformat(str(recording.manifest.raw["created"]))
