"""Compare the answers of a dataset when its recording is sealed, so that equal ones vote
together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from feval.answers.equality import comparison
from feval.answers.parties import PairBudget, Parties, divide, parties_of
from feval.recording.leaves import Verdicts, VerdictTally
from feval.recording.parquet.writing import VerdictFile, has_correct, with_correct
from feval.recording.sealing.votes_builder import VotesBuilder

_WITHOUT_VERDICT = {
    "undecided": "could not be compared in time",
    "not_asked": "were beyond the budget of comparisons",
}


def settle(
    votes: VotesBuilder,
    path: Path,
    name: str,
    known: Verdicts,
    budget: PairBudget,
    not_asked: int | None = None,
) -> tuple[dict[str, Any], str, dict[str, int]]:
    """Join the answers of a dataset that are equal, and write the verdicts.

    Args:
        votes: the dataset's votes, with all CoTs.
        path: file to write.
        name: of the equality.
        known: verdicts that were reached before.
        budget: what is left of the comparisons.
        not_asked: where nothing is compared again, how many pairs the known verdicts leave out.

    Returns:
        The file's record for the manifest, the leaf of the verdicts, and the counts of
        `VerdictTally`.
    """
    how = None if not_asked is not None else comparison(name)
    tally, left_out = VerdictTally(name), not_asked or 0

    def parties(question: str, forms: list[str], gold: str | None, of_probes: list[str]) -> Parties:
        nonlocal left_out
        reached = known.get(question, ())
        if not_asked is not None:
            found = parties_of(reached, gold)
        else:
            budget.next_question()
            found, division = divide(forms, gold, how, budget, reached, of_probes)
            reached, left_out = division.verdicts, left_out + division.not_asked
        if reached:
            file.add(question, tally.add(question, reached))
        return found

    with VerdictFile(path) as file:
        votes.join(parties)
        return file.close(), tally.leaf(), tally.counts(left_out)


def without_verdict(dataset: str, name: str, counts: Mapping[str, int]) -> list[str]:
    """Return a sentence for each reason why pairs of answers have no verdict."""
    return [
        f"{dataset}: {counts[outcome]} pairs of answers {what} ({name}); they count as different."
        for outcome, what in _WITHOUT_VERDICT.items()
        if counts[outcome]
    ]


def write_correct(
    votes: VotesBuilder,
    llm: str,
    root: Path,
    samples: Mapping[str, dict[str, Any]],
    *,
    keep_same: bool,
) -> dict[str, dict[str, Any]]:
    """Write the column `correct` of an LLM's files of samples (path -> record) as its votes say;
    return their new records.

    With `keep_same`, files in which it is so already are not written again.
    """
    correct = votes.correct(llm)
    same = {path for path in samples if keep_same and has_correct(root / path, correct)}
    if len(same) == len(samples):
        return {}
    records, correct = {}, votes.correct(llm)
    for path, record in samples.items():
        if path in same:
            deque(islice(correct, record["rows"]), 0)
        else:
            records[path] = with_correct(root / path, correct)
    return records
