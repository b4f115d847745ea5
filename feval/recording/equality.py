"""Verdicts on which normal forms are equal: reached when a recording is sealed, and stored in it.

They are a separate part of the recording: one row per comparison, one leaf per dataset. A dataset whose equality is the normal
form has none. `feval.answers.parties` makes parties of verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from feval.answers.equality import comparison
from feval.answers.parties import Division, PairBudget, Parties, Verdict, divide
from feval.recording.content import NORMAL_FORM
from feval.recording.layout.format import LeafHash
from feval.recording.parquet.rows import EQUALITY_COLUMNS

__all__ = [
    "Verdicts",
    "compare_answers",
    "equality_counts",
    "equality_leaf",
    "equality_notes",
]

Verdicts = Mapping[str, Sequence[Verdict]]
"""Question id -> its verdicts, in the order in which they were reached; questions without any are left out."""


def compare_answers(
    name: str, questions: Iterable[tuple[str, Iterable[str], str | None]], known: Verdicts | None = None
) -> Iterator[tuple[str, Parties, Division]]:
    """Divide the answers of a dataset into parties, question by question.

    Args:
        name: of the equality, see `feval.answers.equality`.
        questions: id, distinct normal forms of all LLMs, and normal form of the gold.
        known: verdicts that were reached before under the same equality.

    Yields:
        Id, parties, and the division with its verdicts.

    Raises:
        AnswerError: the equality needs a version of math-verify that is not installed.
    """
    how, budget = comparison(name), PairBudget()
    for question, forms, gold in questions:
        budget.next_question()
        parties, division = divide(forms, gold, how, budget, (known or {}).get(question, ()))
        yield question, parties, division


def equality_leaf(name: str, verdicts: Verdicts) -> str:
    """Return the leaf of a dataset's verdicts: the equality's name, then one line per question that has any."""
    leaf = LeafHash()
    leaf.add([name])
    for question, own in verdicts.items():
        leaf.add([question, *([getattr(verdict, column) for verdict in own] for column in EQUALITY_COLUMNS)])
    return leaf.hexdigest()


def equality_counts(verdicts: Verdicts, not_asked: int) -> dict[str, int]:
    """Return how many pairs are equal, different, undecided, and were not compared."""
    outcomes = Counter(verdict.equal for own in verdicts.values() for verdict in own)
    return {
        "equal": outcomes[True],
        "different": outcomes[False],
        "undecided": outcomes[None],
        "not_asked": not_asked,
    }


def equality_notes(dataset: str, name: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield notes about pairs without a verdict."""
    pairs = {"undecided": "could not be compared in time", "not_asked": "were beyond the budget of comparisons"}
    for outcome, what in pairs.items():
        if counts[outcome] and name != NORMAL_FORM:
            yield f"{dataset}: {counts[outcome]} pairs of answers {what} ({name}); they count as different."
