"""Outputs of LINC (EMNLP 2023, https://arxiv.org/abs/2310.15164): `<run>_generations_prc.json` and
the files beside it.

A JSON array: per question a list of labels, one per sample: True, False, Uncertain, or Error.
Beside it may lie `<run>_references.json` (gold labels), `<run>_generations_raw.json` (texts) and
`<run>_results.json` (task and model), all in the same order. Nobody stores the questions' texts.

Verbatim answers are the labels, with Error read as no answer: its authors drop it before they take
the majority, and a question with nothing else is wrong.
"""

from __future__ import annotations

from pathlib import Path

from feval.errors import SourceError
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import refuse, strings
from feval.importers.source import (
    Imported,
    ImportRequest,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
)
from feval.recording.content import LLMInfo

_SUFFIX = "_generations_prc.json"
_PARTS = ("references", "generations_raw", "results")
_LABELS = frozenset({"True", "False", "Uncertain"})
_ERROR = "Error"


def beside(source: Path) -> tuple[Path, ...]:
    """Gold labels, texts and results of the same run, where they lie beside the labels."""
    return tuple(path for part in _PARTS if (path := _sibling(source, part)) is not None)


def _sibling(source: Path, part: str) -> Path | None:
    run, suffix, _ = source.name.rpartition(_SUFFIX)
    paths = [source.with_name(f"{run}_{part}.json{packed}") for packed in ("", ".gz")]
    return next((path for path in paths if path.is_file()), None) if suffix else None


def read(source: Path, request: ImportRequest) -> Imported:
    """Read the JSON labels of one run. The request names the LLM unless results do, and may have
    the questions.
    """
    reader = Reader()
    labels = _labels(reader, source)
    golds = _golds(reader, source, len(labels))
    texts = _texts(reader, source, labels)
    llm = request.llm_of(source.name, LLMInfo(_model(reader, source)))
    pools = [
        SourcePool(replies or row, [None if label == _ERROR else label for label in row])
        for row, replies in zip(labels, texts or [[]] * len(labels), strict=True)
    ]
    # Only a questions file has the texts.
    text = "" if request.questions is None else None
    questions = [
        SourceQuestion(request.question_id(row), text, gold) for row, gold in enumerate(golds)
    ]
    notes = _notes(labels, has_texts=texts is not None, has_questions=request.questions is not None)
    return Imported(questions, [SourceLLM(llm, pools)], [*notes, *reader.notes()])


def _labels(reader: Reader, source: Path) -> list[list[str]]:
    rows = _lists(reader, source)
    for row, labels in enumerate(rows):
        for position, label in enumerate(labels):
            if label not in _LABELS and label != _ERROR:
                refuse(
                    f"Sample {position} of question {row} of {source.name}",
                    "True, False, Uncertain or Error",
                    label,
                )
    return rows


def _lists(reader: Reader, source: Path) -> list[list[str]]:
    rows = reader.entries(read_bytes(source), source.name)
    for row, values in enumerate(rows):
        if not isinstance(values, list):
            refuse(f"Question {row} of {source.name}", "a list of samples", values)
    return [strings(values, f"question {row} of {source.name}") for row, values in enumerate(rows)]


def _golds(reader: Reader, source: Path, count: int) -> list[str] | list[None]:
    path = _sibling(source, "references")
    if path is None:
        return [None] * count
    golds = strings(reader.entries(read_bytes(path), path.name), path.name)
    if len(golds) != count:
        raise SourceError(
            f"{path.name} has {len(golds)} gold labels and {source.name} {count} questions; they"
            " should be of one run."
        )
    return golds


def _texts(reader: Reader, source: Path, labels: list[list[str]]) -> list[list[str]] | None:
    path = _sibling(source, "generations_raw")
    if path is None:
        return None
    texts = _lists(reader, path)
    if [len(row) for row in texts] != [len(row) for row in labels]:
        raise SourceError(
            f"{path.name} and {source.name} have other numbers of questions or samples; they should"
            " be of one run."
        )
    return texts


def _model(reader: Reader, source: Path) -> str:
    """Return the model with the task as its variant, from the results: "gpt-4@folio-cot-8shot";
    empty where they name none.
    """
    path = _sibling(source, "results")
    results = reader.json(read_bytes(path), path.name) if path is not None else {}
    config = results.get("config") if isinstance(results, dict) else None
    model = config.get("model") if isinstance(config, dict) else None
    if not isinstance(model, str) or not model:
        return ""
    tasks = [name for name in results if name != "config"]
    return f"{model}@{tasks[0]}" if len(tasks) == 1 else model


def _notes(labels: list[list[str]], *, has_texts: bool, has_questions: bool) -> list[str]:
    notes = counted_notes(
        ("Labels 'Error', which were read as no answer", sum(row.count(_ERROR) for row in labels))
    )
    if not has_texts:
        notes.append(
            "The texts are not beside the labels; each label stands for its text, so that output"
            " tokens and dollars are too low."
        )
    if not has_questions:
        notes.append(
            "The source has no question texts; requests and their tokens are not known, so nothing"
            " can be priced."
        )
    return notes
