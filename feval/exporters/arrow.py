"""Recordings as Arrow tables: a row for each CoT, or step of a tree; what rows cannot say is in the
metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import orjson
import pyarrow as pa

from feval import executors
from feval.errors import UsageError
from feval.exporters.parts import blocks_of, pairs_of
from feval.exporters.rows import COLUMNS, columns_of, questions_of
from feval.importers.exported import FACTS, FACTS_VERSION
from feval.recording.derived.rewriting import Block
from feval.recording.parts import EXTRA_COLUMNS
from feval.recording.reader import Recording

TEXT, _FLOAT, _COUNT = pa.string(), pa.float64(), pa.int64()
_TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(
        (
            "temperature",
            "sequence_logprob",
            *(n for n, t in EXTRA_COLUMNS.items() if t == "float64"),
        ),
        _FLOAT,
    ),
    **dict.fromkeys(("token_logprobs", "token_confidences"), pa.list_(pa.float32())),
    **dict.fromkeys(
        ("max_tokens", "prompt_tokens", "sample", "tokens", "turn_prompt_tokens"), _COUNT
    ),
    **{name: _COUNT for name, type_name in EXTRA_COLUMNS.items() if type_name == "int64"},
    **dict.fromkeys(("correct", "ends"), pa.bool_()),
    "choices": pa.list_(pa.struct([("label", TEXT), ("text", TEXT)])),
    **dict.fromkeys(
        ("prompt", "turn_messages"), pa.list_(pa.struct([("role", TEXT), ("content", TEXT)]))
    ),
    "probes": pa.list_(
        pa.struct(
            [
                ("offset", _COUNT),
                ("answer", TEXT),
                ("text", TEXT),
                ("tokens", _COUNT),
                ("confidence", pa.float32()),
            ]
        )
    ),
}
"""Column -> its type in Parquet; those left out are texts, and scores have a column for each
scorer.
"""


@executors.reports("reading CoTs")
def to_arrow(
    recording: Recording,
    datasets: Sequence[str] | None,
    llms: Sequence[str] | None,
    progress: Callable[[int, int | None], None] | None = None,
) -> pa.Table:
    """Return the CoTs of a recording as one table, see `feval.lazy.Browsed.to_arrow`."""
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
    """Return the same as a DataFrame, see `feval.lazy.Browsed.to_pandas`."""
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
    scorers = dict.fromkeys(name for pair in pairs for name in recording.scorers(*pair))
    columns: list[str] = []
    for name in COLUMNS:
        if name in has:
            columns += (
                [f"{name}.{scorer}" for scorer in scorers]
                if name in {"score", "step_scores"}
                else [name]
            )
    return columns


def arrow_table(
    block: Block, columns: Sequence[str], recording: Recording | None = None
) -> pa.Table:
    """Return the rows of a block; the metadata has the questions without rows. `recording`: where
    it is open already.
    """
    flat: dict[str, list[Any]] = {name: [] for name in columns}
    without_rows = []
    for row, (about, cots, values) in enumerate(questions_of(block, recording), block.first):
        shared = _flattened(about)
        own = {
            name: cell
            for column, cells in values.items()
            for name, cell in _by_scorer(column, cells, columns)
        }
        for name, column in flat.items():
            column.extend(own[name] if name in own else repeat(shared.get(name), cots))
        if not cots:
            without_rows.append(
                (row, {name: value for name, value in about.items() if value is not None})
            )
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


def _flattened(about: dict[str, Any]) -> dict[str, Any]:
    decoding = about.get("decoding")
    return about | {"decoding": None if decoding is None else orjson.dumps(decoding).decode()}


def _by_scorer(
    column: str, cells: Sequence[Any], columns: Sequence[str]
) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the columns of a flat table that a column becomes, with their cells."""
    if column not in {"score", "step_scores"}:
        yield column, cells
        return
    for name in columns:
        kind, _, scorer = name.partition(".")
        if kind == column:
            yield name, [None if cell is None else cell.get(scorer) for cell in cells]


def schema(columns: Sequence[str]) -> pa.Schema:
    """Return the types of some columns."""
    scores = {"score": _FLOAT, "step_scores": pa.list_(_FLOAT)}
    types = {name: scores.get(name.split(".")[0], _TYPES.get(name, TEXT)) for name in columns}
    return pa.schema(list(types.items()))
