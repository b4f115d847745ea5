"""Recordings as Arrow tables: a row for each CoT, or step of a tree; what rows cannot say is in the
metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from feval import executors
from feval.cards.tokens import NONE
from feval.errors import DamagedRecordingError, UsageError
from feval.executors import UncountedProgress
from feval.importers.exported import FACTS, FACTS_VERSION
from feval.importers.source import Row
from feval.recording import Recording
from feval.recording.content import PoolRows, ProbeRows, ScoreRows, read_messages
from feval.recording.derived.rewriting import Block, blocks
from feval.recording.parts import EXTRA_COLUMNS, has_value
from feval.recording.reader import pairs_of, recorded_on
from feval.values import frozen, without_none

TEXT, _FLOAT, _COUNT = pa.string(), pa.float64(), pa.int64()
_MESSAGES = pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
_PROBES = [
    ("offset", _COUNT),
    ("answer", TEXT),
    ("text", TEXT),
    ("tokens", _COUNT),
    ("confidence", pa.float32()),
]
_GROUPS: tuple[tuple[str, dict[str, pa.DataType]], ...] = (
    (
        "always",
        {
            "dataset": TEXT,
            "question_id": TEXT,
            "question": TEXT,
            "choices": pa.list_(pa.struct([("label", TEXT), ("text", TEXT)])),
            "gold": TEXT,
        },
    ),
    ("features", {"features": TEXT}),
    (
        "always",
        {
            "llm": TEXT,
            "temperature": _FLOAT,
            "max_tokens": _COUNT,
            "decoding": TEXT,
            "prompt": _MESSAGES,
            "prompt_tokens": _COUNT,
        },
    ),
    ("whole", {"sample": _COUNT}),
    ("steps", {"node": TEXT, "parent": TEXT, "ends": pa.bool_()}),
    ("turns", {"turn_messages": _MESSAGES, "turn_prompt_tokens": _COUNT}),
    (
        "always",
        {
            "text": TEXT,
            "answer": TEXT,
            "correct": pa.bool_(),
            "tokens": _COUNT,
            "finish_reason": TEXT,
        },
    ),
    ("reasoning", {"reasoning": TEXT}),
    ("scores", {"score": _FLOAT, "step_scores": pa.list_(_FLOAT)}),
    ("verdicts", {"verdict": _FLOAT, "grader": TEXT}),
    (
        "logprobs",
        {
            "sequence_logprob": _FLOAT,
            **dict.fromkeys(("token_logprobs", "token_confidences"), pa.list_(pa.float32())),
        },
    ),
    (
        "where known",
        {
            name: {"float64": _FLOAT, "int64": _COUNT}.get(kind, TEXT)
            for name, kind in EXTRA_COLUMNS.items()
        },
    ),
    ("probes", {"probe_cue": TEXT, "probes": pa.list_(pa.struct(_PROBES))}),
)
"""Column -> its type in Parquet, in the order of the table, by what an LLM has on a dataset."""
_TYPES = {name: type_ for _, columns in _GROUPS for name, type_ in columns.items()}
COLUMNS = tuple(_TYPES)
"""Every column, in the order of the table; of scores a flat table has one for each scorer, and of
verdicts of several graders one for each of them.
"""


@executors.reports("reading CoTs")
def to_arrow(
    recording: Recording,
    datasets: Sequence[str] | None,
    llms: Sequence[str] | None,
    progress: UncountedProgress | None = None,
) -> pa.Table:
    """Return the CoTs of a recording as one table, see `feval.lazy.Browsable.to_arrow`."""
    pairs = pairs_of(recording, datasets, llms)
    columns = flat_columns(recording, pairs)
    tasks = [(block, columns, recording) for pair in pairs for block in blocks_of(recording, *pair)]
    parts = list(executors.results(arrow_table, tasks, progress=progress))
    without_rows = [each for part in parts for each in without_rows_of(part)]
    table = pa.concat_tables([part.replace_schema_metadata(None) for part in parts])
    return table.replace_schema_metadata({FACTS: facts(recording, pairs, without_rows)})


def to_pandas(
    recording: Recording, datasets: Sequence[str] | None, llms: Sequence[str] | None
) -> Any:
    """Return the same as a DataFrame, see `feval.lazy.Browsable.to_pandas`."""
    if find_spec("pandas") is None:
        raise UsageError(
            "A DataFrame needs pandas, which feval does not install. Install it, or use to_arrow(),"
            " which polars and DuckDB take."
        )
    return to_arrow(recording, datasets, llms).to_pandas()


def flat_columns(recording: Recording, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Return the columns that some of the pairs have: scores have one for each scorer, such as
    `score.length`.
    """
    has = set().union(*(columns_of(recording, *pair) for pair in pairs))
    scorers = [name for pair in pairs for name in recording.scorers(*pair, graders=False)]
    named = {"score": scorers, "step_scores": scorers}
    if _several_graders(recording):
        has.discard("grader")
        named["verdict"] = [name for pair in pairs for name in recording.graders(*pair)]
    each = {name: [f"{name}.{own}" for own in dict.fromkeys(named[name])] for name in named}
    return [column for name in COLUMNS if name in has for column in each.get(name, [name])]


def _several_graders(recording: Recording) -> bool:
    return any(len(recording.graders(*pair)) > 1 for pair in recording.manifest.pairs)


def arrow_table(
    block: Block, columns: Sequence[str], recording: Recording | None = None
) -> pa.Table:
    """Return the rows of a block; the metadata has the questions without rows. `recording`: where
    it is open already.
    """
    flat: dict[str, list[Any]] = {name: [] for name in columns}
    without_rows = []
    for row, (about, cots, values) in enumerate(questions_of(block, recording), block.rows.start):
        objects = ((name, about.get(name)) for name in ("decoding", "features"))
        shared = about | {name: own and orjson.dumps(own).decode() for name, own in objects}
        own = {
            name: cell
            for column, cells in values.items()
            for name, cell in _by_scorer(column, cells, columns)
        }
        for name, column in flat.items():
            column.extend(own[name] if name in own else repeat(shared.get(name), cots))
        if not cots:
            without_rows.append((row, without_none(about)))
    types = schema(columns)
    table = pa.Table.from_arrays(
        [pa.array(flat[field.name], field.type) for field in types], schema=types
    )
    return table.replace_schema_metadata({FACTS: orjson.dumps(without_rows)})


def without_rows_of(part: pa.Table) -> list[Any]:
    """Return the questions that have no rows in a table of `arrow_table`: place among all, and what
    is known of each.
    """
    return list(orjson.loads(part.schema.metadata[FACTS]))


def facts(
    recording: Recording, pairs: Sequence[tuple[str, str]], without_rows: Sequence[Any]
) -> bytes:
    """Return what the rows of some pairs cannot say, as JSON."""
    infos = {dataset: recording.dataset_info(dataset) for dataset, _ in pairs}
    scorers = {
        name: recording.scorer_info(name) for pair in pairs for name in recording.scorers(*pair)
    }
    known = {
        "version": FACTS_VERSION,
        "datasets": {
            dataset: {
                "answer_kind": info.answer_kind,
                "equality": info.equality,
                "extractor": info.extractor,
                "system_prompt": info.system_prompt,
                "llms": {
                    llm: recording.counter(dataset, llm) for where, llm in pairs if where == dataset
                },
            }
            for dataset, info in infos.items()
        },
        "scorers": {
            name: {"kind": info.kind, "parameters": dict(info.parameters)}
            for name, info in scorers.items()
        },
        "without_rows": without_rows,
    }
    return orjson.dumps(known)


def _by_scorer(
    column: str, cells: Sequence[Any], columns: Sequence[str]
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the columns of a flat table that a column becomes, with their cells."""
    for name in columns:
        kind, _, scorer = name.partition(".")
        if name == column:
            yield name, cells
        elif kind == column:
            yield name, [None if cell is None else cell.get(scorer) for cell in cells]


def schema(columns: Sequence[str]) -> pa.Schema:
    """Return the types of some columns."""
    return pa.schema([(name, _TYPES[name.partition(".")[0]]) for name in columns])


AHEAD = 2
"""Blocks for each worker that were written and not yet put into the file."""

# CoTs of a block; or so many bytes as they are compressed, in memory some ten times as many.
_BLOCK_COTS, _BLOCK_BYTES = 1 << 14, 4 << 20
_LIKE_TEXTS = ("texts", "reasoning", "logprobs", "probes", "turns", "requests", "calls")


@frozen
class Export:
    """A table that was written.

    Attributes:
        path: the file.
        rows: of the table; of JSON Lines the CoTs.
        columns: their names.
        left_out: sentences about what the recording has and the table has not.
    """

    path: Path
    rows: int
    columns: tuple[str, ...]
    left_out: tuple[str, ...]


def blocks_of(recording: Recording, dataset: str, llm: str) -> Iterator[Block]:
    """Yield all questions of an LLM on a dataset, in blocks that fit into memory."""
    files = [path for part in _LIKE_TEXTS for path in recording.files(part, dataset, llm)]
    size = sum(recording.file_record(path)["bytes"] for path in files)
    questions = recording.manifest.datasets[dataset]["questions"]
    most = max(1, _BLOCK_BYTES * questions // max(size, 1))
    yield from blocks(recording, dataset, llm, cots=_BLOCK_COTS, most_questions=most)


def columns_of(recording: Recording, dataset: str, llm: str) -> set[str]:
    """The columns that an LLM has on a dataset."""
    groups = {"always", *recording.channels(dataset, llm)}
    groups |= set() if "steps" in groups else {"whole"}
    groups |= {"scores"} if recording.scorers(dataset, llm, graders=False) else set()
    groups |= {"verdicts"} if recording.graders(dataset, llm) else set()
    groups |= {"probes"} if recording.has_probes(dataset, llm) else set()
    of_questions = recording.scan("questions", dataset, columns=["question_id", "features"])
    groups |= (
        {"features"} if any(any(own.get("features", ())) for _, own in of_questions) else set()
    )
    columns = {name for group, types in _GROUPS if group in groups for name in types}
    columns |= {"first_token_s"} if "timings" in groups else set()
    columns |= {"tool_calls"} if "calls" in groups else set()
    for _, values in recording.scan("samples", dataset, llm):
        columns |= {name for name in EXTRA_COLUMNS.keys() - columns if has_value(values.get(name))}
    return columns


def questions_of(
    block: Block, recording: Recording | None = None
) -> Iterator[tuple[Row, int, dict[str, Sequence[Any]]]]:
    """Yield each question of a block, with the request, the number of its CoTs, and their columns.

    The text is the reply as the LLM wrote it, with inline thoughts; `answer` is as extracted.
    `recording` is given where it is open already.
    """
    recording = block.recording() if recording is None else recording
    dataset, llm, rows = block.dataset, block.llm, block.rows
    info = recording.llm_info(llm)
    shared: Row = {
        "dataset": dataset,
        "llm": llm,
        "temperature": info.temperature,
        "max_tokens": info.max_tokens,
        "decoding": dict(info.decoding) or None,
    }
    if recording.has_probes(dataset, llm):
        shared["probe_cue"] = recording.probes_record(dataset, llm)["cue"]
    graders = recording.graders(dataset, llm)
    votes, several = recording.votes(dataset), _several_graders(recording)
    codes, gold = votes.llms[llm].codes, votes.gold
    recorded = recorded_on(recording, dataset, llm, rows)
    questions = recording.scan_questions(dataset, rows)
    for row, question, (pool, scores, probes) in zip(rows, questions, recorded, strict=True):
        about = shared | {
            "question_id": question.id,
            "question": question.text,
            "choices": [{"label": label, "text": text} for label, text in question.choices] or None,
            "gold": question.answer,
            "features": dict(question.features) or None,
        }
        if pool is not None:
            try:
                about["prompt"] = None if pool.prompt is None else read_messages(pool.prompt)
            except ValueError as error:
                raise DamagedRecordingError(
                    f"{recording.path}: the request to {llm} for {question.id!r:.80} is damaged:"
                    f" {error}. Fetch or make it again."
                ) from error
            about["prompt_tokens"] = pool.prompt_tokens
        if pool is None or not pool.answers:
            yield about, 0, {}
            continue
        correct: list[bool | None] = [None] * len(pool.answers)
        if gold[row] >= 0:
            correct = np.equal(codes[row, : len(pool.answers)], gold[row]).tolist()
        size = len(pool.answers)
        own: Row = {"correct": correct, "probes": _probes(probes, size)}
        if graders:
            verdicts = {name: scores.pop(name) for name in graders}
            own["verdict"] = _scores(verdicts, size)["score"]
        if len(graders) == 1 and not several:
            [name] = graders
            own["verdict"] = [cell and cell[name] for cell in own["verdict"]]
            own["grader"] = [name] * size
        cots = _cots(pool)
        if recording.counter(dataset, llm) == NONE:
            del cots["tokens"]  # 0 stands for not known
        yield about, size, cots | own | _scores(scores, size)


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
    return without_none(columns)


def _probes(probes: ProbeRows | None, cots: int) -> list[list[Row] | None]:
    """The probes of each CoT, as objects; `None` where it has none."""
    places: list[list[Row] | None] = [None] * cots
    if probes is None:
        return places
    columns: Row = {
        "offset": probes.offsets,
        "answer": probes.raw_answers,
        "text": probes.texts,
        "tokens": probes.output_tokens,
        "confidence": probes.confidences,
    }
    for at, sample in enumerate(probes.sample_indices):
        probe = {
            name: values[at]
            for name, values in columns.items()
            if name == "answer" or (values is not None and values[at] is not None)
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
