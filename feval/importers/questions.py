"""The questions file: texts, gold answers and options for sources that lack them (`--questions
FILE`).

Two layouts are read: `{"id", "question", "answer", "choices"}` per line, as JSON Lines or CSV
(whose choices are JSON; `feval.importers.columns` has the other names of these); and an answer key,
CSV with the columns subject, index and answer in the order of the dataset, which has golds but no
texts. Where no id is written, a line's id is `<dataset>/<row>`, row from 0. The puzzles of Tree of
Thoughts (24.csv: CSV with a column Puzzles) are questions whose gold answer is 24.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from feval.answers import KINDS, canonical, canonical_gold
from feval.answers.choice import WHOLE
from feval.cards.reading import parse_json
from feval.errors import ConflictError, SourceError, UnknownNameError, UsageError
from feval.importers.columns import RowReader, member, question_names, refuse
from feval.importers.reading import Reader, read_bytes
from feval.importers.source import Row, SourceQuestion

_NAMES = question_names("question")
_READER = RowReader(_NAMES)
_ANSWER_KEY = ["subject", "index", "answer"]
_PUZZLES = "Puzzles"


def known_answer_kind(dataset: str, kind: str | None) -> str:
    """Return an answer kind; raise where it is unknown, or `None` because the dataset has no
    card.
    """
    if kind is None:
        raise UsageError(
            f"There is no card for the dataset {dataset!r}, so the kind of its answers is not"
            f" known; pass --answer-kind KIND (one of {', '.join(KINDS)})."
        )
    if kind not in KINDS:
        raise UnknownNameError.of("answer kind", kind, KINDS)
    return kind


def read_questions(path: Path, dataset: str, reader: Reader) -> list[SourceQuestion]:
    """Read a questions file; `dataset` is for lines without an id."""
    data = read_bytes(path)
    is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))
    questions: Iterable[SourceQuestion] = (
        _json_question(line, f"{dataset}/{row}", f"line {number} of {path.name}")
        for row, (number, line) in enumerate(reader.json_lines(io.BytesIO(data), path.name))
    )
    return without_duplicates(
        questions if is_json else _csv_questions(data, path, dataset, reader), path.name
    )


def _json_question(line: Any, default_id: str, where: str) -> SourceQuestion:
    if not isinstance(line, dict):
        refuse(where, "an object", line)
    values, *_ = _READER.read(line, where)
    if values.get("question") is None:
        member(line, "question", str, where)
    name = values.get("id")
    return SourceQuestion(
        default_id if name is None else name,
        values["question"],
        values.get("gold"),
        values.get("choices") or (),
    )


def _csv_questions(data: bytes, path: Path, dataset: str, reader: Reader) -> list[SourceQuestion]:
    header, *rows = reader.csv(data, path.name)
    if _PUZZLES in header:
        return _puzzles(header.index(_PUZZLES), rows, dataset, path.name)
    if any(name in _NAMES and _NAMES[name].name == "question" for name in header):
        if twice := [name for name, count in Counter(header).items() if name and count > 1]:
            raise SourceError(
                f"{path.name} has the column {twice[0]!r:.60} twice; rename one of them."
            )
        return [
            _json_question(_cells(header, record, where), f"{dataset}/{row}", where)
            for row, record in enumerate(filter(None, rows))
            if (where := f"record {row + 1} of {path.name}")
        ]
    if header != _ANSWER_KEY:
        raise SourceError(
            f"{path.name} is not a questions file: it should be JSON Lines or CSV with a question"
            " per line (question_id, question, answer), or CSV with the columns"
            f" {', '.join(_ANSWER_KEY)}; its first line is {','.join(header)!r:.80}."
        )
    for row, record in enumerate(rows):
        if len(record) != len(_ANSWER_KEY) or not record[2]:
            raise SourceError(
                f"Record {row + 1} of {path.name} should be subject, index and answer; found"
                f" {record!r:.80}."
            )
    return [SourceQuestion(f"{dataset}/{row}", "", record[2]) for row, record in enumerate(rows)]


def _cells(header: list[str], record: list[str], where: str) -> Row:
    """Return the cells of a record by column, without empty ones."""
    if len(record) != len(header):
        refuse(where, f"{len(header)} cells, as the first line has", record)
    line: Row = {name: cell for name, cell in zip(header, record, strict=True) if cell}
    for name in ("choices", "options"):
        with suppress(ValueError):
            line |= {name: parse_json(line[name])} if name in line else {}
    return line


def _puzzles(column: int, rows: list[list[str]], dataset: str, name: str) -> list[SourceQuestion]:
    for row, record in enumerate(rows):
        if len(record) <= column or not all(
            number.isdecimal() for number in record[column].split()
        ):
            raise SourceError(
                f"Record {row + 1} of {name} should have numbers under {_PUZZLES}; found"
                f" {record!r:.80}."
            )
    return [
        SourceQuestion(f"{dataset}/{row}", record[column], "24") for row, record in enumerate(rows)
    ]


def without_duplicates(questions: Iterable[SourceQuestion], name: str) -> list[SourceQuestion]:
    """Return the questions; raise where there are none, or an id occurs twice."""
    seen: dict[str, SourceQuestion] = {}
    for question in questions:
        other = seen.setdefault(question.id, question)
        if other is not question:
            how = "two gold answers" if other.gold != question.gold else "two entries"
            raise ConflictError(
                f"{name} has {how} for the question id {question.id!r}: {other.gold!r:.60} and"
                f" {question.gold!r:.60}. Remove one of them or give each its own id."
            )
    if not seen:
        raise SourceError(f"{name} has no questions; there is nothing to import.")
    return list(seen.values())


def completed(
    questions: Sequence[SourceQuestion],
    file: list[SourceQuestion] | None,
    kind: str,
    origins: tuple[str, str],
) -> tuple[Sequence[SourceQuestion], list[str]]:
    """Complete the questions of a source from the questions file, by id; golds that are positions
    become labels.

    The source's own texts and golds stay: they are what was recorded.

    Returns the questions, and notes on their golds; messages call source and file by their names,
    the `origins`.

    Raises:
        SourceError: the file lacks a question, nobody has its text, or its gold is no position
            among its options.
        ConflictError: the two contradict each other.
    """
    if file is None:
        result, notes = positions_as_labels(questions, kind, origins[0])
    else:
        known = {question.id: question for question in file}
        for question in questions:
            if question.id not in known:
                raise SourceError(
                    f"The questions file has no question {question.id!r} (its ids look like"
                    f" {next(iter(known), 'none')!r}); its ids must be those of the source."
                )
        with_options = [replace(q, choices=q.choices or known[q.id].choices) for q in questions]
        own, notes = positions_as_labels(with_options, kind, origins[0])
        same_options = [replace(known[q.id], choices=q.choices) for q in own]
        others, more = positions_as_labels(same_options, kind, origins[1])
        result = []
        for q, o in zip(own, others, strict=True):
            _check_same(q, o, kind)
            text, gold = (o.text if q.text is None else q.text), q.gold
            result.append(replace(q, text=text, gold=o.gold if gold is None else gold))
        notes = notes or more
    for question in result:
        if question.text is None:
            raise SourceError(
                f"The text of question {question.id!r} is not known: the source has none. "
                "Pass a file with the questions, --questions FILE."
            )
    return result, notes


def _check_same(question: SourceQuestion, other: SourceQuestion, kind: str) -> None:
    """Raise unless one text is part of the other and the golds agree."""
    if question.text and other.text:
        mine, theirs = " ".join(question.text.split()), " ".join(other.text.split())
        if mine not in theirs and theirs not in mine:
            raise ConflictError(
                f"Question {question.id!r} is {mine!r:.90} in the source and {theirs!r:.90} in the"
                " questions file. Give the file that belongs to the source."
            )
    golds = {
        canonical_gold(kind, gold, question.choices) or canonical("text", gold)
        for gold in (question.gold, other.gold)
        if gold is not None
    }
    if len(golds) > 1:
        raise ConflictError(
            f"Question {question.id!r} has two gold answers: {question.gold!r:.60} in the source"
            f" and {other.gold!r:.60} in the questions file."
        )


def positions_as_labels(
    questions: Sequence[SourceQuestion], kind: str, origin: str
) -> tuple[Sequence[SourceQuestion], list[str]]:
    """Write golds of the kind "choice" that are positions, counted from 0, as the labels of their
    options.

    A whole number, `1.0` as well as `1`, is a position unless it equals an option's label or text.
    Where every gold of the source is a whole number and one of them can only be a position, all but
    labels are positions: MMLU's gold 2 beside the options 8, 2, 24, 120 is 24. A gold that is one
    option's text and another's label is the text, unless all others are labels.

    Returns the questions (all of one source, which messages call `origin`) and notes for readers.
    """
    if kind != "choice":
        return questions, []
    questions, notes = _texts_that_are_labels(questions)
    # -1 is what hidden tests have, and no position.
    golds = sum(
        question.gold is not None and not _gold(question).startswith("-") for question in questions
    )
    numbers = [
        q
        for q in questions
        if WHOLE.fullmatch(_gold(q)) and not _gold(q).startswith("-") and not _is_label(q)
    ]
    positions = [question for question in numbers if not _is_text(question)]
    if not positions:
        return questions, notes
    only_positions = len(numbers) == golds and all(map(_in_range, numbers))
    labels = {
        question.id: _label(question, origin)
        for question in (numbers if only_positions else positions)
    }
    changed = [replace(q, gold=labels[q.id]) if q.id in labels else q for q in questions]
    return changed, [
        *notes,
        *_notes(positions[0], labels, [q for q in numbers if _is_other_text(q, labels)]),
    ]


def _texts_that_are_labels(
    questions: Sequence[SourceQuestion],
) -> tuple[Sequence[SourceQuestion], list[str]]:
    """Tell whether golds that are one option's text and another's label are texts; if so, write the
    labels of those options.
    """
    own = {
        q.id: label
        for q in questions
        for label, text in q.choices
        if text.strip() == _gold(q) != label
    }
    both = [question for question in questions if question.id in own and _is_label(question)]
    if not both:
        return questions, []
    others = {
        (_is_label(q), _is_text(q))
        for q in questions
        if q.gold and (q.id not in own or not _is_label(q))
    }
    as_labels = (True, False) in others and (False, True) not in others
    labels = {} if as_labels else {question.id: own[question.id] for question in both}
    said = "labels, as other golds are" if as_labels else "texts"
    note = (
        f"Gold answers that are one option's text and another's label: {len(both):,} (such as"
        f" {_gold(both[0])} of {both[0].id!r}). They were read as {said}."
    )
    return [replace(q, gold=labels.get(q.id, q.gold)) for q in questions], [note]


def _gold(question: SourceQuestion) -> str:
    gold = (question.gold or "").strip()
    whole = WHOLE.fullmatch(gold)
    return gold if whole is None else whole[1]


def _is_label(question: SourceQuestion) -> bool:
    return _gold(question) in dict(question.choices)


def _is_text(question: SourceQuestion) -> bool:
    golds = {canonical("text", gold) for gold in (_gold(question), question.gold or "")}
    return any(canonical("text", text) in golds for _, text in question.choices)


def _is_other_text(question: SourceQuestion, labels: dict[str, str]) -> bool:
    """Return whether a gold that was read as a position is the text of another option."""
    label = labels.get(question.id)
    others = tuple(choice for choice in question.choices if choice[0] != label)
    text = dict(question.choices).get(label or "")
    return (
        label is not None
        and text != _gold(question)
        and _is_text(replace(question, choices=others))
    )


def _in_range(question: SourceQuestion) -> bool:
    # A gold has at most so many digits, so that int() takes it.
    return len(_gold(question)) < 9 and 0 <= int(_gold(question)) < len(question.choices)


def _label(question: SourceQuestion, origin: str) -> str:
    labels = [label for label, _ in question.choices]
    if not labels:
        raise SourceError(
            f"The gold answer of question {question.id!r} in {origin} is {_gold(question)!r:.40},"
            " and the question has no options of which it could be a position. Give the options"
            " ('choices', in the source or in a file named by --questions), write the gold as a"
            " letter, or choose another answer kind, --answer-kind KIND."
        )
    if not _in_range(question) or all(map(str.isdecimal, labels)):
        options = ", ".join(f"{label}: {text!r:.30}" for label, text in question.choices[:12])
        raise SourceError(
            f"The gold answer of question {question.id!r} in {origin} is {_gold(question)!r:.40},"
            f" which is no label or text of its {len(labels)} options ({options}), nor a position"
            " among them, counted from 0. Correct the gold, or write it as the label of an option."
        )
    return labels[int(_gold(question))]


def _notes(
    first: SourceQuestion, labels: dict[str, str], other_texts: list[SourceQuestion]
) -> list[str]:
    note = (
        "Gold answers that are positions, counted from 0, and were written as labels:"
        f" {len(labels):,} (such as {_gold(first)} of {first.id!r}, which is {labels[first.id]!r})."
    )
    if other_texts:
        note += (
            f" Positions that are also the text of another option: {len(other_texts):,} (such as"
            f" {_gold(other_texts[0])} of {other_texts[0].id!r}). Every gold of the source is a"
            " position, so they were read as positions."
        )
    return [note]
