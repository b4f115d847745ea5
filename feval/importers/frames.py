"""Recordings of tables in memory: pandas, polars, Arrow, the library `datasets`, or dicts."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from feval.arguments import in_python
from feval.errors import SourceWarning, UsageError
from feval.importers.conversion import import_recording
from feval.importers.files import plain
from feval.recording import Recording, open_recording

_INDEX = "__index_level_"  # what pandas calls the columns of an index without a name
# pandas' types of few bits -> NumPy's, which are written in as many digits as they stand for
_NARROW = {
    "float16": "float16", "float32": "float32", "Float32": "float32", "float[pyarrow]": "float32",
    "halffloat[pyarrow]": "float16",
}  # fmt: skip


@in_python
def from_dataframe(
    table: Any,
    *,
    dataset: str | None = None,
    llm: str | None = None,
    answer_kind: str | None = None,
    map: Mapping[str, str] | None = None,  # noqa: A002 (the option's name on the command line)
    scores: Mapping[str, str] | Iterable[str] | str = (),
    ignore: Iterable[str] | str = (),
    layout: str | Path | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Recording:
    """Make a recording from a table in memory with a row for each CoT, and open it.

    `docs/importing.md` says which columns are recognised by their names. The recording is what
    `feval import table` makes of the same rows in a file. Its notes are shown as a
    `SourceWarning` each.

    Args:
        table: a DataFrame of pandas or polars, anything else that exports an Arrow stream
            (`__arrow_c_stream__`), dicts, or what yields them one by one, such as a Dataset or
            IterableDataset of `datasets`.
        dataset: id of the dataset; `None`: a column names it.
        llm: name of the LLM, or of the one to take where a column names several.
        answer_kind: a key of `feval.answers.KINDS`; `None`: the dataset card's.
        map: feval's column -> the table's, such as {"question": "prompt"}.
        scores: a column with scores, several, or scorer -> column; a list in a cell has a score for
            each step.
        ignore: a column that is not read, whatever its name, or several.
        layout: a published layout, or a mapping file.
        out: folder to create; `None`: a temporary one, which goes when nothing refers to the
            recording any more.
        options: further arguments of `import_recording`, such as `counter` or `questions`.

    Raises:
        UsageError: it is no table, or dataset, LLM or answer kind are missing.
        FevalError: as for `import_recording`; rows are counted from 1.
    """
    with tempfile.TemporaryDirectory(prefix="feval-", ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "dataframe"
        try:
            _write(table, source)
        except (
            pa.ArrowException,
            AttributeError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            raise UsageError(
                f"The {type(table).__name__} could not be read as a table: {error!s:.300}. Give a"
                " DataFrame, an Arrow table or a list of dicts with plain values, a row for each"
                " CoT."
            ) from error
        kept = Path(tempfile.mkdtemp(prefix="feval-")) if out is None else None
        made = Path(str(out)) if kept is None else kept / "recording"
        try:
            import_recording(
                "table",
                source,
                made,
                dataset=dataset,
                llm=llm,
                answer_kind=answer_kind,
                map=map,
                scores=scores,
                ignore=ignore,
                layout=layout,
                **options,
            )
            recording = open_recording(made)
        except BaseException:
            _remove(kept)
            raise
    weakref.finalize(recording, _remove, kept)
    for number, note in enumerate(recording.manifest.raw["notes"], 1):
        # without a line of the caller, which says nothing of the table
        warnings.warn_explicit(note, SourceWarning, "feval.from_dataframe", number)
    return recording


def _remove(folder: Path | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _write(table: Any, path: Path) -> None:
    """Write a table to a file, as Arrow, or as JSON Lines where its values have no one type."""
    if hasattr(table, "__arrow_c_stream__"):
        try:
            _write_arrow(table, path)
            return
        except (pa.ArrowException, TypeError, ValueError):
            if not hasattr(table, "to_dict"):
                raise
    if not getattr(getattr(table, "columns", None), "is_unique", True):
        raise UsageError(
            "The table has two columns of one name, of which one would be lost; rename one of them."
        )
    rows = table
    # a Dataset of `datasets` yields its rows by itself
    if hasattr(table, "to_dict") and hasattr(table, "columns"):
        if hasattr(table, "to_dicts"):  # polars
            rows = table.to_dicts()
        # pandas, which would widen what it keeps in 32 bits to more digits than it stands for
        else:
            narrow = {
                name: _NARROW[str(kind)]
                for name, kind in table.dtypes.items()
                if str(kind) in _NARROW
            }
            words = table.astype(narrow).astype(dict.fromkeys(narrow, str))
            rows = words.astype(dict.fromkeys(narrow, float)).to_dict(orient="records")
    if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable):
        raise UsageError(
            "A table is a DataFrame, an Arrow table or a list of dicts, a row for each CoT;"
            f" {type(table).__name__} was given."
        )
    with path.open("w", encoding="ascii") as file:
        for number, row in enumerate(rows, 1):
            if not isinstance(row, Mapping):
                raise UsageError(
                    f"Row {number} of the table should be a dict; {type(row).__name__} was given."
                )
            file.write(json.dumps(plain(row), allow_nan=False) + "\n")


def _write_arrow(table: Any, path: Path) -> None:
    batches = pa.RecordBatchReader.from_stream(table)
    names = [name for name in batches.schema.names if not name.startswith(_INDEX)]
    schema = pa.schema([batches.schema.field(name) for name in names])
    with pa.ipc.new_file(str(path), schema) as file:
        for batch in batches:
            file.write_batch(batch.select(names).cast(schema))
