"""What a pilot recording tells about votes: accuracies, moments, and which gains it can certify."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from feval.estimators.arrays import Floats
from feval.estimators.counts import VoteCounts, vote_counts
from feval.estimators.inference.intervals import accuracy_interval
from feval.estimators.per_question import PerQuestion
from feval.estimators.two_call.wald_regions import simultaneous_gains
from feval.estimators.votes.multinomial import plugin_plurality_accuracy
from feval.estimators.votes.plurality import subset_plurality_accuracy
from feval.evaluation.questions import Rows
from feval.forecast.budget_plan import VoteOption
from feval.forecast.evidence import SampleMoments, rare_pairs, sample_moments
from feval.replay import LLM, Dataset

_MOMENT_RESAMPLES = 400  # of the bounds, each over all votes
_FEWEST_QUESTIONS = 20  # below, percentiles of resampled means are far too narrow to certify by


@dataclass(frozen=True, eq=False)
class Pilot:
    """A pilot's votes and moments, and the settings of the plan."""

    counts: VoteCounts
    moments: SampleMoments
    pool: int
    rare: str | None
    confidence: float
    family: int

    @classmethod
    def of(
        cls, dataset: Dataset, llm: LLM, rows: Rows, confidence: float, resamples: int, family: int
    ) -> Self:
        """Count the pilot's calls on some questions."""
        counts = vote_counts(llm.pool.codes[rows], dataset.gold[rows])
        draws = min(resamples, _MOMENT_RESAMPLES)
        moments = sample_moments(
            counts.gold, counts.size, resamples=draws, seed=llm.seed % (1 << 64)
        )
        rare = rare_pairs(counts.gold, counts.size)
        return cls(counts, moments, int(llm.pool.sizes[rows].min()), rare, confidence, family)

    @property
    def can_certify(self) -> bool:
        """Whether there are enough questions for the resampled limit to prove a gain."""
        return self.rare is None and len(self.counts.gold) >= _FEWEST_QUESTIONS

    def gains_together(self, votes: Sequence[int]) -> list[float | None]:
        """Least gains of all votes together; `None` where nothing can be certified."""
        if not self.can_certify:
            return [None] * len(votes)
        level = 1.0 - (1.0 - self.confidence) / self.family
        gains = simultaneous_gains(
            self.counts.gold, self.counts.size, [m // 2 for m in votes], level
        )
        return [None if np.isnan(gain) else gain for gain in gains.tolist()]

    def pluralities(self, votes: Sequence[int]) -> Floats:
        """[3, len(votes)] accuracy, low and high of pluralities: over subsets up to the pool, at
        its shares beyond.
        """
        within, beyond = [m for m in votes if m <= self.pool], [m for m in votes if m > self.pool]
        values = (
            self._subsets(within).beside(self._plug_in(beyond)) if beyond else self._subsets(within)
        )
        ends = accuracy_interval(values, self.confidence)
        return np.stack([values.mean(), ends.low, ends.high])

    def seam(self, votes: int) -> tuple[float, float]:
        """Accuracy of a vote within the pool over subsets, and as predicted from the pool's
        shares.
        """
        return float(self._subsets([votes]).mean()[0]), float(self._plug_in([votes]).mean()[0])

    def _subsets(self, votes: Sequence[int]) -> PerQuestion:
        return subset_plurality_accuracy(
            self.counts.gold, self.counts.rivals, self.counts.no_answer, votes
        )

    def _plug_in(self, votes: Sequence[int]) -> PerQuestion:
        return plugin_plurality_accuracy(
            self.counts.gold, self.counts.rivals, self.counts.no_answer, votes
        )


def plan_warnings(options: Sequence[VoteOption], pilot: Pilot, questions: int) -> list[str]:
    """Return the warnings of a plan for so many questions."""
    sentences, number = [], len(pilot.counts.gold)
    if options[-1].plurality_kind == "plug-in":
        sentences.append(_beyond(options, pilot))
    if pilot.moments.clipped:
        sentences.append(
            "The pilot's calls on a question disagree more often than independent calls would,"
            " which happens by chance on few questions; the bounds assume that all questions are"
            " equally hard."
        )
    if not pilot.can_certify:
        why = f"{number} question{'s' if number > 1 else ''}"
        if pilot.rare is not None:
            why += f", and a cell of its pair table holds fewer than 5 of them ({pilot.rare})"
        sentences.append(
            f"The pilot has {why}: resampling them would look too certain, so no vote is certified,"
            " and intervals may be too narrow. Record more questions."
        )
    sentences += _family(options, pilot)
    if questions != number:
        sentences.append(
            f"The intervals are for the pilot's {number} questions; the {questions:,} to answer are"
            " assumed to be like them."
        )
    return sentences


def _beyond(options: Sequence[VoteOption], pilot: Pilot) -> str:
    """Say what is wrong with pluralities beyond the pool, and by how much where that is visible."""
    last = max(option.votes for option in options if option.plurality_kind == "subsets")
    measured, predicted = pilot.seam(last)
    beyond = [option for option in options if option.plurality_kind == "plug-in"]
    over = [option.votes for option in beyond if (option.majority_low or 0.0) > option.plurality]
    instead = (
        f" At M = {over[0]} even the lower bound of a majority exceeds them: use that."
        if over
        else ""
    )
    alike = int(pilot.counts.size.max()) == pilot.pool
    pool = "the pilot's pool" if alike else "the pilot's smallest pool"
    vote = f"the {pilot.pool}-call vote" if alike else "the vote of all calls that a question has"
    return (
        f"Beyond M = {pilot.pool}, {pool}, pluralities are those of independent calls at the pool's"
        f" shares: they level off at {vote}, whatever more votes would do, and their intervals do"
        f" not cover that bias. At M = {last} the pilot measures {100 * measured:.2f} %, and the"
        f" shares predict {100 * predicted:.2f} %.{instead} Record more calls to measure them."
    )


def _family(options: Sequence[VoteOption], pilot: Pilot) -> list[str]:
    """Say how certain the certificates are, taken together."""
    certified = sum(option.certified for option in options)
    together = sum(option.certified_together for option in options)
    if certified < 2 and not (certified and pilot.family > 1):
        return []
    level = f"{100 * pilot.confidence:g} %"
    plans = f" in all {pilot.family} plans of the family" if pilot.family > 1 else ""
    which = (
        "none of them is"
        if not together
        else "all of them are"
        if together == certified
        else f"{together} of them are"
    )
    alone = "The vote is" if certified == 1 else f"Each of the {certified} votes is"
    if options[-1].majority_gain_low_together is None:
        how = (
            "the questions show no spread in some direction, so there is no region of mu and nu to"
            " prove it with."
        )
    else:
        how = f"by one region of mu and nu for every vote, at {level} for all together."
    return [f"{alone} certified alone, at {level}. Together{plans}, {which}: {how}"]
