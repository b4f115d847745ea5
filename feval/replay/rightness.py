"""How right recorded CoTs are: by the gold, by the verdicts of a grader, or by both.

Rightness belongs to the CoT. A verdict is a number from 0 to 1, and a CoT without one is not right.
By a gold, a CoT is right if its own answer equals it, whatever else is in its party. Where the
CoTs of one party are right and all others are wrong, that party stands in for the gold, and all
that reads golds reads it. Elsewhere a question is mixed: a vote answers with the first drawn CoT
of the party that it elects, and is as right as that CoT.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feval.errors import FevalWarning, NotRecordedError, UsageError
from feval.recording.content import VERDICT
from feval.recording.layout.flat import Bools, Floats, Integers

if TYPE_CHECKING:
    from feval.recording.view import DatasetView
    from feval.recording.votes import Votes

_RULE = re.compile(r"gold|verdict(:.*?)?(>=(0(\.[0-9]+)?|1(\.0+)?))?")


@dataclass(frozen=True, eq=False)
class Rightness:
    """How right the CoTs of some LLMs are, on the Q questions of a dataset.

    Attributes:
        of_llm: LLM -> [Q, S] from 0 to 1; 0 where no CoT was recorded.
        gold: [Q] code of the gold where it decides; by verdicts, of the one party that is right,
            a code that no CoT has where none is, or where the question is mixed; -1 where nothing
            says what is right.
        is_mixed: [Q] whether that party does not say it all: some CoT of it is not right, or one
            beside it is, in part or without an answer.
        by_verdict: [Q] whether verdicts decide, and not the gold.
        graders: LLM -> who gave its verdicts.
    """

    of_llm: Mapping[str, Floats]
    gold: Integers
    is_mixed: Bools
    by_verdict: Bools
    graders: Mapping[str, str]

    @property
    def is_partial(self) -> bool:
        """Whether some CoT is neither right nor wrong."""
        return any(((right > 0) & (right < 1)).any() for right in self.of_llm.values())


@dataclass(frozen=True)
class Judges:
    """What says which CoTs of some questions are right.

    Attributes:
        gold: number of questions that golds decide.
        verdict: number of questions that verdicts decide.
        graders: who gave the verdicts, each once.
        right: the rule that was asked for, see `Dataset.right`; `None` for none.
    """

    gold: int
    verdict: int
    graders: tuple[str, ...]
    right: str | None

    @property
    def absent(self) -> str:
        """What questions lack on which nothing says what is right."""
        return "gold and no verdict" if self.graders else "readable gold"

    def __str__(self) -> str:
        if not self.verdict:
            return "judged by gold"
        least = (self.right or "").partition(">=")[2]
        named = "" if self.graders == (VERDICT,) else f" of {' and '.join(self.graders)}"
        verdicts = f"the verdicts{named}" if named else "verdicts"
        verdicts += f" (right from {least} on)" if least else ""
        if not self.gold:
            return f"judged by {verdicts}"
        return f"{self.gold:,} judged by gold, {self.verdict:,} by {verdicts}"


def checked_rule(rule: str | None) -> str | None:
    """Return what decides what is right, as it is written.

    Raises:
        UsageError: neither "gold" nor "verdict" nor "verdict>=X" with X from 0 to 1, which may name
            the grader: "verdict:NAME".
    """
    text = rule if rule is None else re.sub(" *>= *", ">=", rule.strip())
    if text is not None and not _RULE.fullmatch(text):
        raise UsageError(
            "--right is gold, verdict, or verdict with the least that is right, such as"
            f" 'verdict>=0.5', from 0 to 1, and with the name of one of several graders:"
            f" verdict:NAME; {rule!r:.80} was given."
        )
    return text


def graders_of(view: DatasetView, llms: Sequence[str], rule: str | None) -> dict[str, str]:
    """Return LLM -> who gave its verdicts, for those that have any; nobody, with a warning, where
    there are several and no rule: golds alone decide then.

    Raises:
        NotRecordedError: the rule asks for verdicts, and an LLM has none.
        UsageError: an LLM has verdicts of several graders, and the rule names none of them.
    """
    if rule == "gold":
        return {}
    dataset, graders = view.votes.dataset, dict[str, str]()
    named = (rule or "").partition(">=")[0].partition(":")[2]
    for llm in llms:
        own = view.of(llm).recording.graders(dataset, llm)
        if own and (len(own) > 1 or named) and named not in own:
            one = f"verdict:{own[0]}"
            sentence = (
                f"{llm} on {dataset} has verdicts of {' and '.join(own)}, of whom one says what is"
                f" right: --right {one!r} (in Python: right={one!r})."
            )
            if rule is not None:
                raise UsageError(sentence)
            warnings.warn_explicit(f"{sentence} Golds decide.", FevalWarning, "feval.load", 1)
            return {}
        if own:
            graders[llm] = named or own[0]
        elif rule is not None:
            raise NotRecordedError(
                f"{llm} on {dataset} has no verdicts, and right={rule!r} asks for them. Import its"
                " CoTs with the column that says how right they were (--map verdict=COLUMN)."
            )
    return graders


def rightness_of(
    view: DatasetView,
    llms: Sequence[str],
    graders: Mapping[str, str],
    rule: str | None,
    is_gold: Callable[[int, str], bool] | None,
) -> Rightness:
    """Return how right CoTs are where the parties of the golds do not say it all.

    By default a gold decides where there is one and some CoT of the dataset has an answer, else
    verdicts, where every LLM has some and one of the question's CoTs has one; a rule of verdicts
    decides on every question. `is_gold`: given row and normal form, where parties hold forms that
    equal the gold and others that do not.
    """
    votes, gold = view.votes, view.votes.gold
    verdicts = {}
    for llm, grader in graders.items():
        own = view.of(llm)
        values = own.recording.scores(votes.dataset, llm, grader).values
        verdicts[llm] = values if own.rows is None else values[own.rows]
    _, _, least = (rule or "").partition(">=")
    decides = np.full(len(gold), bool(graders) and rule is not None)
    if rule is None and len(graders) == len(llms):
        for each in verdicts.values():
            decides |= ~np.isnan(each).all(axis=1)
        has_answers = any((votes.llms[llm].codes >= 0).any() for llm in llms)
        decides &= (gold < 0) | (not has_answers)
    right = {}
    for llm in llms:
        right[llm] = _by_gold(view.of(llm), llm, gold, is_gold)
        if llm in verdicts:
            values = np.nan_to_num(verdicts[llm][decides])
            right[llm][decides] = values >= float(least) if least else values
    return _summarised(right, votes, gold, decides, graders)


def _by_gold(
    view: DatasetView, llm: str, gold: Integers, is_gold: Callable[[int, str], bool] | None
) -> Floats:
    """Return [Q, S] whether each CoT is right by its party or, with `is_gold`, its own form."""
    votes, codes = view.votes, view.votes.llms[llm].codes
    right: Floats = ((codes == gold[:, None]) & (gold >= 0)[:, None]).astype(np.float64)
    if is_gold is not None:
        rows = {name: row for row, name in enumerate(votes.question_ids) if gold[row] >= 0}
        scan = view.recording.scan("samples", votes.dataset, llm, ["question_id", "answer"])
        for question, columns in scan:
            if (row := rows.get(question)) is not None:
                forms = columns["answer"]
                known = {form: is_gold(row, form) for form in {*forms} - {None}}
                right[row, : len(forms)] = [known.get(form, False) for form in forms]
    return right


def _summarised(
    right: Mapping[str, Floats],
    votes: Votes,
    gold: Integers,
    decides: Bools,
    graders: Mapping[str, str],
) -> Rightness:
    """Return what the parties of each question say of it; a gold that decides stays as it is."""
    candidates, party = votes.candidate_counts(), np.full(len(gold), -1)
    for llm, own in right.items():
        found = np.where(own > 0, votes.llms[llm].codes, -1).max(axis=1, initial=-1)
        party = np.maximum(party, found)
    gold = np.where(decides, np.where(party < 0, candidates, party), gold).astype(np.int64)
    mixed = np.zeros(len(gold), np.bool_)
    for llm, own in right.items():
        mixed |= (own != (votes.llms[llm].codes == gold[:, None])).any(axis=1)
    gold[mixed & decides] = candidates[mixed & decides]
    return Rightness(right, gold, mixed & (gold >= 0), decides, graders)
