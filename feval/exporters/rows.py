"""What is exported of a question and of its CoTs, under the names that `feval import jsonl` reads
(`feval.importers.columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import orjson

from feval.errors import DamagedRecordingError
from feval.recording.content import PoolRows, ProbeRows, Question, ScoreRows, read_messages
from feval.recording.derived.rewriting import Block
from feval.recording.parts import EXTRA_COLUMNS, PARTS
from feval.recording.reader import Recording

Row = dict[str, Any]

_OF_QUESTION = ("dataset", "question_id", "question", "choices", "gold")
_OF_REQUEST = ("llm", "temperature", "max_tokens", "decoding", "prompt", "prompt_tokens")
_OF_STEP, _OF_TURN = ("node", "parent", "ends"), ("turn_messages", "turn_prompt_tokens")
_OF_COT = ("text", "answer", "correct", "tokens", "finish_reason")
_OPTIONAL = (
    "reasoning",
    "score",
    "step_scores",
    "sequence_logprob",
    "token_logprobs",
    "token_confidences",
)
_BEHIND = ("probe_cue", "probes")
COLUMNS: tuple[str, ...] = (
    *(
        *_OF_QUESTION,
        *_OF_REQUEST,
        "sample",
        *_OF_STEP,
        *_OF_TURN,
        *_OF_COT,
        *_OPTIONAL,
        *EXTRA_COLUMNS,
    ),
    *_BEHIND,
)
"""Every column, in the order of the table."""

_PROBE_MEMBERS = {"texts": "text", "output_tokens": "tokens", "confidences": "confidence"}


def columns_of(recording: Recording, dataset: str, llm: str) -> set[str]:
    """The columns that an LLM has on a dataset."""
    channels = recording.channels(dataset, llm)
    columns = {*_OF_QUESTION, *_OF_REQUEST, *_OF_COT}
    columns |= set(_OF_STEP) if "steps" in channels else {"sample"}
    columns |= set(_OF_TURN) if "turns" in channels else set()
    apart = {"steps", "turns"}  # under names of their own
    columns |= {
        column.name
        for part in channels
        if part not in apart
        for column in PARTS[part].columns
        if column.name != "marks"
    }
    columns |= {"score", "step_scores"} if recording.scorers(dataset, llm) else set()
    columns |= {"probes", "probe_cue"} if recording.has_probes(dataset, llm) else set()
    for _, values in recording.scan("samples", dataset, llm):
        columns |= {
            name
            for name in EXTRA_COLUMNS.keys() - columns
            if any(v is not None for v in values.get(name, ()))
        }
    return columns


def questions_of(
    block: Block, recording: Recording | None = None
) -> Iterator[tuple[Row, int, dict[str, Sequence[Any]]]]:
    """Yield each question of a block, with the request, the number of its CoTs, and their columns.

    The text is the reply as the LLM wrote it, with inline thoughts; `answer` is as extracted.
    `recording` is given where it is open already.
    """
    recording = block.recording() if recording is None else recording
    dataset, llm, rows = block.dataset, block.llm, range(block.first, block.stop)
    info = recording.llm_info(llm)
    shared: Row = {
        "dataset": dataset,
        "llm": llm,
        "temperature": info.temperature,
        "max_tokens": info.max_tokens,
    }
    shared |= {"decoding": dict(info.decoding) or None}
    probes: Iterator[ProbeRows] = iter(())
    if recording.has_probes(dataset, llm):
        shared["probe_cue"] = recording.probes_record(dataset, llm)["cue"]
        probes = recording.probe_rows(dataset, llm, rows)
    scores = {
        name: recording.score_rows(dataset, llm, name, rows)
        for name in recording.scorers(dataset, llm)
    }
    probes_on = _by_question(probes)
    scores_on = {name: _by_question(each) for name, each in scores.items()}
    votes = recording.votes(dataset)
    codes, gold = votes.llms[llm].codes, votes.gold
    for row, (question, pool) in zip(rows, _all(block, recording), strict=True):
        about = shared | {
            "question_id": question.id,
            "question": question.text,
            "choices": [{"label": label, "text": text} for label, text in question.choices] or None,
            "gold": question.answer,
        }
        if pool is not None:
            about["prompt"] = (
                None
                if pool.prompt is None
                else _request(recording, llm, pool.question_id, pool.prompt)
            )
            about["prompt_tokens"] = pool.prompt_tokens
        if pool is None or not pool.answers:
            yield about, 0, {}
            continue
        correct: list[bool | None] = [None] * len(pool.answers)
        if gold[row] >= 0:
            correct = np.equal(codes[row, : len(pool.answers)], gold[row]).tolist()
        places = _probes(probes_on(question.id), len(pool.answers))
        judged = _scores(
            {name: of(question.id) for name, of in scores_on.items()}, len(pool.answers)
        )
        yield (
            about,
            len(pool.answers),
            _cots(pool) | {"correct": correct, "probes": places, **judged},
        )


def _all(block: Block, recording: Recording) -> Iterator[tuple[Question, PoolRows | None]]:
    """Yield every question of a block, with its pool where it has one."""
    rows = range(block.first, block.stop)
    pool_of = _by_question(recording.pools(block.dataset, block.llm, rows))
    for question in recording.scan_questions(block.dataset, rows):
        yield question, pool_of(question.id)


def _request(recording: Recording, llm: str, question: str, prompt: str) -> list[dict[str, str]]:
    try:
        return read_messages(prompt)
    except ValueError as error:
        raise DamagedRecordingError(
            f"{recording.path}: the request to {llm} for {question!r:.80} is damaged: {error}."
            " Fetch or make it again."
        ) from error


def _by_question(items: Iterator[Any]) -> Callable[[str], Any]:
    """A function from question ids, in their order, to the item of each, `None` where it has
    none.
    """
    following = next(items, None)

    def of(question: str) -> Any:
        nonlocal following
        if following is None or following.question_id != question:
            return None
        item, following = following, next(items, None)
        return item

    return of


def _cots(pool: PoolRows) -> dict[str, Sequence[Any]]:
    columns: dict[str, Sequence[Any] | None] = {
        "text": pool.raw_texts(),
        "reasoning": pool.reasoning_apart(),
        "answer": pool.raw_answers,
        "tokens": pool.output_tokens,
        "finish_reason": pool.finish_reasons,
        "sequence_logprob": pool.sequence_logprobs,
        "token_logprobs": pool.token_logprobs,
        "token_confidences": pool.token_confidences,
        **pool.extra,
    }
    if pool.parents is None or pool.ends is None:
        columns["sample"] = range(len(pool.answers))
    else:
        columns |= {"node": [str(place) for place in range(len(pool.answers))], "ends": pool.ends}
        columns["parent"] = [None if parent is None else str(parent) for parent in pool.parents]
        sent = pool.messages or [None] * len(pool.ends)
        columns["turn_messages"] = [None if text is None else orjson.loads(text) for text in sent]
        columns["turn_prompt_tokens"] = pool.turn_prompt_tokens
    return {name: values for name, values in columns.items() if values is not None}


def _probes(probes: ProbeRows | None, cots: int) -> list[list[Row] | None]:
    """The probes of each CoT, as objects; `None` where it has none."""
    places: list[list[Row] | None] = [None] * cots
    if probes is None:
        return places
    optional = {
        member: values
        for name, member in _PROBE_MEMBERS.items()
        if (values := getattr(probes, name)) is not None
    }
    for at, (sample, offset, answer) in enumerate(
        zip(probes.sample_indices, probes.offsets, probes.raw_answers, strict=True)
    ):
        probe = {"offset": offset, "answer": answer}
        probe |= {
            member: values[at] for member, values in optional.items() if values[at] is not None
        }
        places[sample] = [*(places[sample] or ()), probe]
    return places


def _scores(scores: dict[str, ScoreRows | None], cots: int) -> dict[str, list[Row | None]]:
    """Score and step scores of each CoT, as objects scorer -> value; `None` where it has none."""
    columns: dict[str, list[Row | None]] = {"score": [None] * cots, "step_scores": [None] * cots}
    for scorer, rows in scores.items():
        if rows is None:
            continue
        for name, values in (("score", rows.scores), ("step_scores", rows.step_scores or ())):
            for sample, value in zip(rows.sample_indices, values or repeat(None), strict=False):
                if value is not None:
                    columns[name][sample] = (columns[name][sample] or {}) | {scorer: value}
    return columns
