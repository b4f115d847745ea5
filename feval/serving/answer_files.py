"""Files of final answers: JSON, JSON Lines or CSV, as a program in any language writes them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from feval.errors import UsageError

_MAX_BYTES = 256 << 20
_QUESTION = ("question", "question_id", "id")


def read_answers(path: Path) -> object:
    """Read answers as `feval.receipts.grading.answers_by_id` takes them: .jsonl (or .ndjson), .csv, else JSON.

    Each answer has "question" (or "question_id", or "id") and "answer"; an empty cell of a .csv is no answer.

    Raises:
        UsageError: the file cannot be read, or does not have that form.
    """
    text = read_text(path)
    ending = path.suffix.lower()
    if ending == ".csv":
        return _rows(path, text)
    if ending in {".jsonl", ".ndjson"}:
        lines = enumerate(text.split("\n"), start=1)
        return [_parsed(line, f"Line {number} of {path}") for number, line in lines if line.strip()]
    return _parsed(text, str(path))


def read_text(path: Path) -> str:
    """Read a file of UTF-8; `UsageError` if it cannot be read."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB, the most that is read.")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8.") from error


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        advice = "Files of JSON Lines end in .jsonl, files of comma-separated values in .csv."
        raise UsageError(f"{where} is not valid JSON: {error}. {advice}") from error


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of an object's pairs, as a hook of `json.loads`; `ValueError` if a name has two different values."""
    fields = dict(pairs)
    twice = next((key for key, value in pairs if fields[key] != value), None)
    if twice is not None:
        raise ValueError(f"{twice[:80]!r} occurs twice in one object, with different values")
    return fields


def _rows(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        table = csv.DictReader(io.StringIO(text), strict=True)
        rows = list(table)
        columns = table.fieldnames or ()
    except csv.Error as error:
        raise UsageError(f"{path} is not a table of comma-separated values: {error}.") from error
    ids = [name for name in _QUESTION if name in columns]
    if len(ids) != 1 or "answer" not in columns:
        shown = ", ".join(columns) or "none"
        raise UsageError(f"{path} needs the columns 'question' (ids or texts) and 'answer'; it has {shown}.")
    return [{"question": row[ids[0]], "answer": row["answer"] or None} for row in rows]
