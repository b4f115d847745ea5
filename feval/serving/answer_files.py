"""Answers in a file: JSON, JSON Lines or CSV, as a program in any language writes them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from feval.errors import UsageError

__all__ = ["read_answers", "read_text", "unique"]

_MOST_BYTES = 256 << 20
_QUESTION = ("question", "question_id", "id")


def read_answers(path: Path) -> object:
    """Read answers, as `feval.receipts.grading.answers_by_id` takes them.

    Args:
        path: by its ending .jsonl (or .ndjson), an object with "question" and "answer" on each line; .csv, with columns of these
            names, in which an empty answer is no answer; else JSON. "question_id" and "id" stand for "question", too.

    Raises:
        UsageError: the file cannot be read, or is not of its form.
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
    """Read a file that somebody made, in UTF-8.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large: {_MOST_BYTES >> 20} MiB are the most.")
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no text in UTF-8.") from error


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        advice = "A file of JSON Lines ends in .jsonl, one of comma-separated values in .csv."
        raise UsageError(f"{where} is no JSON: {error}. {advice}") from error


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs, for `json.loads`: readers of JSON would keep the last of two answers, unsaid.

    Raises:
        ValueError: a name stands twice, with different values.
    """
    found = dict(pairs)
    twice = next((key for key, value in pairs if found[key] != value), None)
    if twice is not None:
        raise ValueError(f"{twice[:80]!r} stands twice in one object, with different values")
    return found


def _rows(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        read = csv.DictReader(io.StringIO(text), strict=True)
        rows = list(read)
        columns = read.fieldnames or ()
    except csv.Error as error:
        raise UsageError(f"{path} is no table of comma-separated values: {error}.") from error
    named = [name for name in _QUESTION if name in columns]
    if len(named) != 1 or "answer" not in columns:
        found = ", ".join(columns) or "none"
        raise UsageError(f"{path} needs the columns 'question' (ids or texts) and 'answer'; it has {found}.")
    return [{"question": row[named[0]], "answer": row["answer"] or None} for row in rows]
