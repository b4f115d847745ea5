"""What the columns of a recording's Parquet files must be, whoever wrote them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from feval.errors import DamagedRecordingError
from feval.recording.content import CHANNELS, PAIR_PARTS
from feval.recording.parquet.writing import (
    DATASET_SCHEMAS,
    PROBES_SCHEMA,
    SCORES_SCHEMA,
    pair_schema,
)

_NEVER_NULL = frozenset(
    (
        "question_id",
        "question",
        "left",
        "right",
        "gold",
        "sample_index",
        "offset",
        "finish_reason",
        "ends",
    )
)
_COUNTS = frozenset(("sample_index", "offset", "parent", "output_tokens", "prompt_tokens"))
_MOST = 2**31 - 1


@cache
def _kinds() -> dict[str, str]:
    """Return the kind of every column that a recording may have; a name has one meaning in all
    files.
    """
    schemas = [
        *(schema for schema, _ in (*DATASET_SCHEMAS, SCORES_SCHEMA, PROBES_SCHEMA)),
        *(pair_schema(p)[0] for p in (*PAIR_PARTS, *CHANNELS)),
    ]
    return {field.name: _kind(field.type) for schema in schemas for field in schema}


def _kind(type_: Any) -> str:
    """Return what an Arrow type holds in words; how wide it is, and how encoded, is the writer's
    affair.
    """
    types = pa.types
    if types.is_dictionary(type_):
        return _kind(type_.value_type)
    if types.is_struct(type_):
        return f"struct of {', '.join(f'{field.name} ({_kind(field.type)})' for field in type_)}"
    if types.is_list(type_) or types.is_large_list(type_):
        return f"list of {_kind(type_.value_type)}"
    names = {
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "integer": (types.is_integer,),
        "number": (types.is_floating,),
        "truth value": (types.is_boolean,),
        "time": (types.is_timestamp,),
    }
    return next(
        (name for name, tests in names.items() if any(test(type_) for test in tests)), str(type_)
    )


def check_types(path: Path, schema: Any) -> None:
    """Check that every known column of a file has the type that a recording has there, or no value
    at all.
    """
    for field in schema:
        expected = _kinds().get(field.name)
        if (
            expected is not None
            and not pa.types.is_null(field.type)
            and _kind(field.type) != expected
        ):
            raise DamagedRecordingError(
                f"{path}: the column {field.name!r} should hold {expected}, found"
                f" {_kind(field.type)!s:.120}. Its owner has to publish it again."
            )


def checked(table: Any) -> Any:
    """Return a table whose columns have values wherever they must, and counts in their range;
    others are a `ValueError`.
    """
    # scorers and probes need not say what they consumed
    of_samples = "finish_reason" in table.column_names
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and (name in _NEVER_NULL or (of_samples and name == "output_tokens")):
            raise ValueError(f"{column.null_count} values of {name!r} are missing")
        if name in _COUNTS and len(column) > column.null_count:
            least, most = pc.min_max(column).as_py().values()
            if least < 0 or most > _MOST:
                raise ValueError(
                    f"{name!r} should be 0 to {_MOST}, found {least if least < 0 else most}"
                )
    return table
