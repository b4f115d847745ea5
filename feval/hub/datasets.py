"""Questions by the name of their dataset: from a file, or from the Hub as the dataset's card says.

Either way they are compared with the card: their number, the first and last id, and the hash over
all of them. Questions that differ are refused, because results on them would not be results on the
dataset.

The card says how rows of a Hub repository become questions (`columns` in its section `hub`,
`docs/datasets.md`): texts, options and golds are stripped; several columns are joined as sentences;
a gold in brackets that is an option's label loses the brackets; a gold that is a number is written
in its shortest form.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

from feval.answers import canonical_gold
from feval.cards.cards import (
    DatasetCard,
    HubChoices,
    HubColumns,
    HubSource,
    dataset_card,
    find_dataset_card,
)
from feval.errors import CardError, SourceError
from feval.executors import reports
from feval.importers.columns import choices_of, member, refuse, scalar_text
from feval.importers.files import opened_table
from feval.importers.questions import known_answer_kind, positions_as_labels, read_questions
from feval.importers.reading import Reader
from feval.importers.source import Row, SourceQuestion
from feval.recording import Question
from feval.values import Pairs

_LOG = logging.getLogger(__name__)


@reports("fetching questions")
def questions(
    dataset_id: str, *, source: Path | None = None, answer_kind: str | None = None
) -> list[Question]:
    """Return the questions of a dataset, with canonical golds.

    Args:
        dataset_id: such as "gsm8k".
        source: a file with the questions, JSON Lines as in `docs/datasets.md`; `None` takes the
            cache or the Hub.
        answer_kind: a key of `feval.answers.KINDS`; `None` takes the card's. Needed where the
            dataset has no card.

    Raises:
        UnknownNameError: no such dataset or answer kind.
        UsageError: the dataset has no card, and no answer kind was given.
        SourceError: the file, or the Hub's, is broken, or is not the dataset that the card
            describes.
        ConflictError: an id occurs twice.
        HubError, StorageError: as for `feval.hub.question_files`.
        CardError: the card cannot be used, or does not say how rows become questions.
    """
    card = find_dataset_card(dataset_id) if source is not None else dataset_card(dataset_id)
    kind = known_answer_kind(dataset_id, answer_kind)
    rows: Sequence[SourceQuestion]
    if source is not None:
        rows, origin = _from_file(source, dataset_id), source.name
    else:
        known = dataset_card(dataset_id)
        hub = known.hub
        if hub is None or hub.columns is None:
            where = (
                "is not on the Hub"
                if hub is None
                else "is on the Hub, and its card does not say how rows become questions"
            )
            raise CardError(
                f"The dataset {known.id!r} {where}. Pass a file with the questions, --questions"
                " FILE (in Python: source=FILE)."
            )
        rows = hub_questions(known.id, _hub_rows(hub), hub.columns, known.answer_kind)
        origin = f"{hub.repository} on the Hub"
    rows, notes = positions_as_labels(rows, kind, origin)
    result = [
        Question(q.id, q.text or "", q.gold, canonical_gold(kind, q.gold, q.choices), q.choices)
        for q in rows
    ]
    if card is not None:
        _check(card, result, origin)
    for sentence in [*notes, *remarks(result)]:
        _LOG.info("%s: %s", dataset_id, sentence)
    return result


def train_rows(dataset_id: str, *, source: Path | None = None) -> list[Row]:
    """Return the rows of a dataset's train split, with the Hub's columns, to make exemplars from.

    They are read from the table `source`, or else from the split
    "train" at the commit that the card pins.

    Raises:
        UnknownNameError: no such card.
        CardError: the dataset is not on the Hub.
        SourceError: the rows cannot be read.
        HubError: the Hub cannot be reached, or has no such split.
    """
    if source is not None:
        return _rows(source)
    card = dataset_card(dataset_id)
    if card.hub is None:
        raise CardError(
            f"The dataset {card.id!r} is not on the Hub. Pass a file with the rows of its train"
            " split: --settings FILE with train_rows = ROWS (in Python: source=ROWS)."
        )
    train = card.hub.model_copy(update={"split": "train", "files": None})
    return _hub_rows(train, train=True)


def remarks(questions: Sequence[Question]) -> list[str]:
    """Return a sentence each for golds that are missing, unreadable, or not among the options."""
    facts = [
        ("no gold answer, which accuracies need", [q for q in questions if q.answer is None]),
        (
            "a gold answer that their answer kind cannot read, as accuracies need",
            [q for q in questions if q.answer is not None and q.answer_key is None],
        ),
        (
            "a gold answer that is none of their options; an answer with its text counts as right",
            [q for q in questions if q.answer and q.choices and q.answer not in dict(q.choices)],
        ),
    ]
    return [
        f"Questions with {words}: {len(selected)}"
        f" ({', '.join([q.id for q in selected[:3]] + ['...' for _ in selected[3:4]])})."
        for words, selected in facts
        if selected
    ]


def questions_sha256(questions: Iterable[Question]) -> str:
    """Return the hash that pins questions in a card, as `data_cards/README.md` says: ids, texts,
    golds and options, in order.
    """
    digest = hashlib.sha256()
    for question in questions:
        digest.update(
            orjson.dumps([question.id, question.text, question.answer, question.choices]) + b"\n"
        )
    return digest.hexdigest()


def questions_jsonl(questions: Iterable[Question]) -> bytes:
    """Return questions as JSON Lines, the form that `source` of `questions` reads."""
    lines = []
    for question in questions:
        line: Row = {"id": question.id, "question": question.text, "answer": question.answer}
        if question.choices:
            line["choices"] = [{"label": label, "text": text} for label, text in question.choices]
        lines.append(orjson.dumps(line) + b"\n")
    return b"".join(lines)


def _from_file(path: Path, dataset_id: str) -> list[SourceQuestion]:
    reader = Reader()
    rows = read_questions(path, dataset_id, reader)
    for note in reader.notes():
        _LOG.info("%s: %s", path.name, note)
    for question in rows:
        if not (question.text or "").strip():
            raise SourceError(
                f"{path.name} has no text for the question {question.id!r}, so it cannot be asked."
            )
    return rows


def _check(card: DatasetCard, questions: Sequence[Question], origin: str) -> None:
    """Raise a `SourceError` that says in what questions differ from their card, if they do."""
    ids = [questions[0].id, questions[-1].id] if questions else [None, None]
    facts = [
        ("there are {} questions instead of {}", len(questions), card.questions),
        ("the first id is {!r} instead of {!r}", ids[0], card.first_question_id),
        ("the last id is {!r} instead of {!r}", ids[1], card.last_question_id),
    ]
    differ = [words.format(found, stated) for words, found, stated in facts if found != stated]
    actual, expected = questions_sha256(questions), card.questions_sha256
    if not differ and expected is not None and actual != expected:
        what = (
            "number and ids agree, but a text, a gold, an option or the order of the questions"
            " does not"
        )
        differ = [f"{what} (their SHA-256 is {actual} instead of {expected})"]
    if differ:
        raise SourceError(
            f"The questions in {origin} are not those that the card of {card.id!r} describes:"
            f" {'; '.join(differ)}. Give the file that belongs to the dataset, --questions FILE"
            " (in Python: source=FILE); or, for other questions, use a dataset id of your"
            " own, or a card of your own in a folder named by FEVAL_CARDS."
        )


def _hub_rows(source: HubSource, *, train: bool = False) -> list[Row]:
    from feval.hub.snapshots import question_files  # huggingface_hub takes half a second to load

    return [row for file in question_files(source, train=train).values() for row in _rows(file)]


def _rows(file: Path) -> list[Row]:
    with opened_table(file, Reader()) as table:
        return [row.cells for row in table.rows]


def hub_questions(
    dataset_id: str, rows: Sequence[Row], columns: HubColumns, answer_kind: str
) -> list[SourceQuestion]:
    """Return questions from the rows of a repository, with the ids `<dataset>/<row>`, row from 0.

    Golds of the answer kind "number" are written in their shortest form, "2,125" as "2125".

    Raises:
        SourceError: a row lacks a column, or has something else in it.
    """
    if columns.order is not None:
        numbers = []
        for position, row in enumerate(rows):
            name = member(row, columns.order, str, f"Row {position} of {dataset_id}")
            digits = re.search("[0-9]{1,18}$", name)
            if digits is None:
                where = f"{columns.order!r} of row {position} of {dataset_id}"
                refuse(where, "text that ends in a number", name)
            numbers.append(int(digits[0]))
        if repeated := [number for number, count in Counter(numbers).items() if count > 1]:
            raise SourceError(
                f"The rows of {dataset_id} have the number {repeated[0]} twice in"
                f" {columns.order!r}, which orders them."
            )
        rows = [rows[position] for position in sorted(range(len(rows)), key=numbers.__getitem__)]
    return [
        _question(f"{dataset_id}/{number}", row, columns, answer_kind)
        for number, row in enumerate(rows)
    ]


def _question(name: str, row: Row, columns: HubColumns, answer_kind: str) -> SourceQuestion:
    where = f"The row of {name}"
    text = _sentences(member(row, column, str, where) for column in columns.question)
    choices: Pairs = ()
    if columns.choices is not None and columns.choices.form == "in-question":
        text, choices = split_options(text, where)
    elif columns.choices is not None:
        choices = _choices(row, columns.choices, where)
    if not text:
        raise SourceError(f"{where} has no question in {', '.join(map(repr, columns.question))}.")
    return SourceQuestion(name, text, _gold(row, columns, choices, answer_kind, where), choices)


def _sentences(parts: Iterable[str]) -> str:
    """Join the columns of a question; one that ends without a full stop gets one."""
    # SVAMP's source lacks the full stop in a third of its bodies.
    *first, last = (part.strip() for part in parts)
    ended = [part if part.endswith((".", "?", "!", ":")) else f"{part}." for part in first if part]
    return " ".join([*ended, last]).strip()


def _gold(
    row: Row, columns: HubColumns, choices: Pairs, answer_kind: str, where: str
) -> str | None:
    if columns.answer not in row:
        member(row, columns.answer, str, where)  # says which columns there are
    value = row[columns.answer]
    if columns.choices is not None and columns.choices.form == "plain" and type(value) is int:
        if not 0 <= value < len(choices):
            refuse(
                f"{columns.answer!r} of {where}",
                f"the position of one of its {len(choices)} options",
                value,
            )
        return choices[value][0]
    gold = scalar_text(value, f"The gold answer of {where}")
    if gold is None:
        return None
    if columns.answer_after is not None:
        _, mark, gold = gold.rpartition(columns.answer_after)
        if not mark:
            raise SourceError(
                f"{where} has no {columns.answer_after!r} in {columns.answer!r}, where its gold"
                " should follow."
            )
    gold = gold.strip()
    if not gold:
        return None
    if answer_kind == "number":
        return canonical_gold(answer_kind, gold) or gold
    inner = gold[1:-1].strip() if gold.startswith("(") and gold.endswith(")") else gold
    return inner if inner in dict(choices) else gold


def _choices(row: Row, source: HubChoices, where: str) -> Pairs:
    here = f"{source.column!r} of {where}"
    if source.column not in row or source.form != "labelled":
        texts = member(row, source.column, list, where)  # says which columns there are
        if not texts or not all(isinstance(text, str) for text in texts):
            refuse(here, "a list of texts", texts)
    # "labelled": a list of structs, or the struct of two lists that `datasets` makes of it
    options = row[source.column]
    if source.form == "marked":
        options = [_marked(text, where) for text in options]
    else:
        options = choices_of(options, here)
    return _distinct([(label.strip(), text.strip()) for label, text in options], where)


def _marked(text: str, where: str) -> tuple[str, str]:
    match = re.fullmatch(r"\s*\(?([A-Za-z0-9]+)\)(.*)", text, re.DOTALL)
    if match is None:
        refuse(f"An option of {where}", "a label, a bracket and a text, such as 'A) 21'", text)
    return match[1], match[2].strip()


def split_options(text: str, where: str) -> tuple[str, Pairs]:
    """Split a question from its options: after its last line "Options:", one per line, "(A) text"
    or "- text".

    The label of "- yes" is its text. A line that is not an option, or two options with one label,
    raise a `SourceError`.
    """
    question, mark, tail = text.rpartition("\nOptions:\n")
    if not mark:
        return text.strip(), ()
    return question.strip(), _distinct(
        [_option(line, where) for line in tail.split("\n") if line.strip()], where
    )


def _option(line: str, where: str) -> tuple[str, str]:
    line = line.strip()
    if line.startswith("- "):
        return line[2:].strip(), line[2:].strip()
    match = re.fullmatch(r"\(([^()\s]+)\)(?:\s+(.*))?", line)
    if match is None:
        refuse(f"A line under 'Options:' of {where}", "'(A) text' or '- text'", line)
    return match[1], (match[2] or "").strip()


def _distinct(choices: list[tuple[str, str]], where: str) -> Pairs:
    if len({label for label, _ in choices}) != len(choices):
        raise SourceError(
            f"The options of {where} have a label twice: {[label for label, _ in choices]!r:.80}."
        )
    return tuple(choices)
