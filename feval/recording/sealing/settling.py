"""Compare the answers of a dataset when its recording is sealed, so that equal ones vote together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feval.answers.equality import comparison
from feval.answers.parties import PairBudget, Parties, divide, parties_of
from feval.recording.leaves import Verdicts, VerdictTally
from feval.recording.parquet.writing import VerdictFile
from feval.recording.sealing.votes_builder import VotesBuilder


def settle(
    votes: VotesBuilder, path: Path, name: str, known: Verdicts, budget: PairBudget, not_asked: int | None = None
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
        The file's record for the manifest, the leaf of the verdicts, and the counts of `VerdictTally`.
    """
    how = None if not_asked is not None else comparison(name)
    tally, left_out = VerdictTally(name), not_asked or 0

    def parties(question: str, forms: list[str], gold: str | None) -> Parties:
        nonlocal left_out
        reached = known.get(question, ())
        if not_asked is not None:
            found = parties_of(reached, gold)
        else:
            budget.next_question()
            found, division = divide(forms, gold, how, budget, reached)
            reached, left_out = division.verdicts, left_out + division.not_asked
        if reached:
            file.add(question, tally.add(question, reached))
        return found

    with VerdictFile(path) as file:
        votes.join(parties)
        return file.close(), tally.leaf(), tally.counts(left_out)
