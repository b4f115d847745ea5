"""The questions file: texts, gold answers and options for sources that lack them (`--questions
FILE`).

Two layouts are read: `{"id", "question", "answer", "choices"}` per line, as JSON Lines or CSV
(whose choices are JSON; `feval.importers.columns` has the other names of these); and an answer key,
CSV with the columns subject, index and answer in the order of the dataset, which has golds but no
texts. Where no id is written, a line's id is `<dataset>/<row>`, row from 0. The puzzles of Tree of
Thoughts (24.csv: CSV with a column Puzzles) are questions whose gold answer is 24.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from feval.answers import KINDS, canonical, canonical_gold
from feval.answers.choice import WHOLE
from feval.cards import find_dataset_card
from feval.cards.reading import parse_json
from feval.errors import ConflictError, SourceError, UsageError, require_known
from feval.importers.columns import RowReader, member, question_names, sentence_start, text
from feval.importers.files import TableFile, opened_table
from feval.importers.reading import Reader
from feval.importers.source import Row, SourceQuestion

_NAMES = question_names("question")
_READER = RowReader(_NAMES)
_ANSWER_KEY = ["subject", "index", "answer"]
_PUZZLES = "Puzzles"


def known_answer_kind(dataset: str, kind: str | None, default: str = "") -> str:
    """Return an answer kind, else that of the dataset's card, else the default; raise where it is
    unknown, or nobody says it.
    """
    card = find_dataset_card(dataset)
    kind = kind or (card.answer_kind if card else default)
    if not kind:
        raise UsageError(
            f"There is no card for the dataset {dataset!r}, so the kind of its answers is not"
            f" known; pass --answer-kind KIND (one of {', '.join(KINDS)})."
        )
    require_known("answer kind", kind, KINDS)
    return kind


def read_questions(path: Path, dataset: str, reader: Reader) -> list[SourceQuestion]:
    """Read a questions file; `dataset` is for lines without an id."""
    with opened_table(path, reader) as table:
        read = _layout(table)
        questions = (
            read(cells, where, f"{dataset}/{n}") for n, (where, cells) in enumerate(table.rows)
        )
        return without_duplicates(questions, path.name)


def _layout(table: TableFile) -> Callable[[Row, str, str], SourceQuestion]:
    """Return what reads the rows of a file: cells, place and an id for lines without one."""
    columns = table.columns or []
    if _PUZZLES in columns:
        return _puzzle
    if columns == _ANSWER_KEY:
        return _key
    if columns and all(name not in _NAMES or _NAMES[name].name != "question" for name in columns):
        raise SourceError(
            f"{table.name} is not a questions file: it should be JSON Lines or CSV with a question"
            " per line (question_id, question, answer), or CSV with the columns"
            f" {', '.join(_ANSWER_KEY)}; its columns are {', '.join(columns)!r:.80}."
        )
    return _from_text if table.cells_are_text else _question


def _puzzle(cells: Row, where: str, name: str) -> SourceQuestion:
    numbers = text(cells[_PUZZLES] or "", where)
    if not all(map(str.isdecimal, numbers.split())):
        raise SourceError(
            f"{sentence_start(where)} should have numbers under {_PUZZLES}; found {numbers!r:.80}."
        )
    return SourceQuestion(name, numbers, "24")


def _key(cells: Row, where: str, name: str) -> SourceQuestion:
    if not cells["answer"]:
        raise SourceError(
            f"{sentence_start(where)} should be subject, index and answer; found {cells!r:.80}."
        )
    return SourceQuestion(name, "", text(cells["answer"], where))


def _from_text(cells: Row, where: str, name: str) -> SourceQuestion:
    line = {name: cell for name, cell in cells.items() if cell}
    for column in {"choices", "options"} & line.keys():
        with suppress(ValueError):
            line[column] = parse_json(line[column])
    return _question(line, where, name)


def _question(line: Row, where: str, name: str) -> SourceQuestion:
    values, *_ = _READER.read(line, where)
    if values.get("question") is None:
        member(line, "question", str, where)
    own = values.get("id")
    return SourceQuestion(
        name if own is None else own,
        values["question"],
        values.get("gold"),
        values.get("choices") or (),
    )


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
    golds = [q for q in questions if q.gold is not None and not _gold(q).startswith("-")]
    numbers = [q for q in golds if WHOLE.fullmatch(_gold(q)) and not _is_label(q)]
    positions = [question for question in numbers if not _is_text(question)]
    if not positions:
        return questions, notes
    only_positions = len(numbers) == len(golds) and all(map(_in_range, numbers))
    labels = {q.id: _label(q, origin) for q in (numbers if only_positions else positions)}
    first = positions[0]
    note = (
        "Gold answers that are positions, counted from 0, and were written as labels:"
        f" {len(labels):,} (such as {_gold(first)} of {first.id!r}, which is {labels[first.id]!r})."
    )
    other_texts = [
        q
        for q in numbers
        if (label := labels.get(q.id))
        and dict(q.choices)[label] != _gold(q)
        and _is_text(q, besides=label)
    ]
    if other_texts:
        note += (
            f" Positions that are also the text of another option: {len(other_texts):,} (such as"
            f" {_gold(other_texts[0])} of {other_texts[0].id!r}). Every gold of the source is a"
            " position, so they were read as positions."
        )
    return [replace(q, gold=labels.get(q.id, q.gold)) for q in questions], [*notes, note]


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


def _is_text(question: SourceQuestion, besides: str = "") -> bool:
    """Return whether a gold is the text of an option, besides that of one label."""
    golds = {canonical("text", gold) for gold in (_gold(question), question.gold or "")}
    return any(
        canonical("text", text) in golds for label, text in question.choices if label != besides
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
