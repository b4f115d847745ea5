"""Verdicts on which normal forms are equal: reached when a recording is sealed, and stored in it.

They are a separate part of the recording: one row per comparison, one leaf per dataset. A dataset whose equality is the normal
form has none. `feval.answers.parties` makes parties of verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from feval.answers.equality import comparison
from feval.answers.parties import Division, PairBudget, Parties, divide
from feval.recording.content import NORMAL_FORM
from feval.recording.leaves import Verdicts


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


def equality_notes(dataset: str, name: str, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield notes about pairs without a verdict."""
    pairs = {"undecided": "could not be compared in time", "not_asked": "were beyond the budget of comparisons"}
    for outcome, what in pairs.items():
        if counts[outcome] and name != NORMAL_FORM:
            yield f"{dataset}: {counts[outcome]} pairs of answers {what} ({name}); they count as different."
