"""Golds that are positions: MMLU writes 0 to 3 where its options are A to D."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from feval.answers import canonical
from feval.errors import SourceError
from feval.importers.source import SourceQuestion

_POSITION = re.compile("-?[0-9]+")


def positions_as_labels(
    questions: Sequence[SourceQuestion], kind: str, origin: str
) -> tuple[Sequence[SourceQuestion], list[str]]:
    """Write golds of the kind "choice" that are positions, counted from 0, as the labels of their options.

    A whole number is a position unless it equals an option's label or text. Where every gold of the source is a whole number and
    one of them can only be a position, all but labels are positions: MMLU's gold 2 beside the options 8, 2, 24, 120 is 24.

    Returns the questions (all of one source, which messages call `origin`) and notes for readers.
    """
    if kind != "choice":
        return questions, []
    golds = sum(question.gold is not None for question in questions)
    numbers = [q for q in questions if _POSITION.fullmatch(_gold(q)) and _gold(q) not in dict(q.choices)]
    positions = [question for question in numbers if not _is_text(question)]
    if not positions:
        return questions, []
    only_positions = len(numbers) == golds and all(map(_in_range, numbers))
    labels = {question.id: _label(question, origin) for question in (numbers if only_positions else positions)}
    changed = [replace(q, gold=labels[q.id]) if q.id in labels else q for q in questions]
    return changed, _notes(positions[0], labels, [q for q in numbers if _is_other_text(q, labels)])


def _gold(question: SourceQuestion) -> str:
    return (question.gold or "").strip()


def _is_text(question: SourceQuestion) -> bool:
    gold = canonical("text", _gold(question))
    return any(canonical("text", text) == gold for _, text in question.choices)


def _is_other_text(question: SourceQuestion, labels: dict[str, str]) -> bool:
    """Return whether a gold that was read as a position is the text of another option."""
    label = labels.get(question.id)
    others = tuple(choice for choice in question.choices if choice[0] != label)
    text = dict(question.choices).get(label or "")
    return label is not None and text != _gold(question) and _is_text(replace(question, choices=others))


def _in_range(question: SourceQuestion) -> bool:
    # A gold has at most so many digits, so that int() takes it.
    return len(_gold(question)) < 9 and 0 <= int(_gold(question)) < len(question.choices)


def _label(question: SourceQuestion, origin: str) -> str:
    labels = [label for label, _ in question.choices]
    if not labels:
        raise SourceError(
            f"The gold answer of question {question.id!r} in {origin} is {_gold(question)!r:.40}, and the question has no "
            "options of which it could be a position. Give the options ('choices', in the source or in a file named by "
            "--questions), write the gold as a letter, or choose another answer kind, --answer-kind KIND."
        )
    if not _in_range(question) or all(map(str.isdecimal, labels)):
        options = ", ".join(f"{label}: {text!r:.30}" for label, text in question.choices[:12])
        raise SourceError(
            f"The gold answer of question {question.id!r} in {origin} is {_gold(question)!r:.40}, which is no label or text "
            f"of its {len(labels)} options ({options}), nor a position among them, counted from 0. Correct the gold, or "
            "write it as the label of an option."
        )
    return labels[int(_gold(question))]


def _notes(first: SourceQuestion, labels: dict[str, str], other_texts: list[SourceQuestion]) -> list[str]:
    note = (
        f"Gold answers that are positions, counted from 0, and were written as labels: {len(labels):,} (such as "
        f"{_gold(first)} of {first.id!r}, which is {labels[first.id]!r})."
    )
    if other_texts:
        note += (
            f" Positions that are also the text of another option: {len(other_texts):,} (such as {_gold(other_texts[0])} of "
            f"{other_texts[0].id!r}). Every gold of the source is a position, so they were read as positions."
        )
    return [note]
