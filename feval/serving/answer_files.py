"""Files of final answers: JSON, JSON Lines or CSV, as a program in any language writes them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from feval.cards.reading import parse_json, read_regular
from feval.errors import UsageError
from feval.report.tables.tables import text_of_cell

_MAX_BYTES = 256 << 20
_QUESTION = ("question", "question_id", "id")


def read_answers(path: Path) -> object:
    """Read answers as `feval.receipts.grading.answers_by_id` takes them: .jsonl (or .ndjson), .csv,
    else JSON.

    Each answer has "question" (or "question_id", or "id") and "answer"; an empty cell of a .csv is
    no answer.

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
        text = read_regular(path, _MAX_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text in UTF-8.") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parsed(text: str, where: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        advice = "Files of JSON Lines end in .jsonl, files of comma-separated values in .csv."
        raise UsageError(f"{where} is not valid JSON: {error}. {advice}") from error


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
        raise UsageError(
            f"{path} needs the columns 'question' (ids or texts) and 'answer'; it has {shown:.400}."
        )
    return [
        {"question": text_of_cell(row[ids[0]] or ""), "answer": row["answer"] or None}
        for row in rows
    ]
