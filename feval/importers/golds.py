"""Golds that are positions, as MMLU's 0 to 3 where its options are A to D, or that are a label and
a text at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from feval.answers import canonical
from feval.answers.choice import WHOLE
from feval.errors import SourceError
from feval.importers.source import SourceQuestion


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
