"""What `couple` returns: figures per pair of LLMs, error curves, and ranks under both schemes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from feval.estimators.arrays import Floats


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """Exact mean absolute error of the estimated difference against the number of pairs of calls
    (the paper's Figure 2c).
    """

    samples: tuple[int, ...]
    coupled: tuple[float, ...]
    independent: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CoupledPair:
    """Two LLMs on the questions of one area; `low` and `high` are ends of intervals over questions.

    Attributes:
        area: `None` for all questions.
        calls: per question.
        difference: accuracy of the first minus that of the second, over all coupled calls.
        covariance: mean covariance of being right within a question, under shared noise.
        law_covariance: the covariance if the two recorded answer distributions were coupled as
            single tokens.
        variance_coupled: variance of the difference over questions and noise.
        variance_independent: the same without shared noise.
        agreement_coupled: share of coupled pairs with the same answer.
        agreement_independent: share of independent pairs.
        independent_samples: a number of independent pairs.
        error: their mean absolute error; `None` if it is 0.
        coupled_samples: the smallest number of coupled pairs with no larger error.
        ratio: number of coupled pairs worth one independent pair; its interval is `None` also for a
            single question.
    """

    first: str
    second: str
    area: str | None
    questions: int
    calls: int
    difference: float
    covariance: float
    covariance_low: float
    covariance_high: float
    law_covariance: float
    variance_coupled: float
    variance_independent: float
    agreement_coupled: float
    agreement_independent: float
    independent_samples: int
    error: float | None
    coupled_samples: int | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


@dataclass(frozen=True, slots=True)
class RankedLLM:
    """An LLM's win-rate and rank under one scheme.

    Attributes:
        scheme: "coupled" or "independent".
        winrate: average over the other LLMs of the share of comparisons it wins, with its interval
            over questions.
        ties: average share of ties.
        rank: best rank; LLMs that cannot be distinguished share one.
        strength: Bradley-Terry strength, ties as half a win; natural logarithms with mean 0.
    """

    llm: str
    scheme: str
    winrate: float
    low: float
    high: float
    ties: float
    rank: int
    worst_rank: int
    strength: float


@dataclass(frozen=True, slots=True)
class Coupling:
    """The result of `couple`.

    Attributes:
        noise: scheme and seed of the shared noise.
        independent_from: "recordings" of the LLMs with noise of their own, or "other calls" of the
            coupled ones.
        compared_by: what win-rates compare: "correctness", a scorer or a judge.
        ranked_questions: number of questions that win-rates are averaged over.
        pairs: every pair of LLMs, over all questions and in each area.
        curves: (first, second) -> error against samples, over all questions.
        covariances: (first, second) -> [Q] within-question covariances.
        variances: (first, second) -> [2, Q] within-question variances of the difference, coupled
            and independent.
        ranking: every LLM under both schemes.
        changes: (first, second, p): pairs of LLMs whose order differs between the schemes, with
            Holm-adjusted p.
        warnings: what a reader must know in order not to be misled.
    """

    dataset: str
    llms: tuple[str, ...]
    noise: tuple[str, int]
    independent_from: str
    compared_by: str
    ranked_questions: int
    pairs: tuple[CoupledPair, ...]
    curves: Mapping[tuple[str, str], ErrorCurve]
    covariances: Mapping[tuple[str, str], Floats]
    variances: Mapping[tuple[str, str], Floats]
    ranking: tuple[RankedLLM, ...]
    changes: tuple[tuple[str, str, float], ...]
    confidence: float
    resamples: int
    seed: int
    recording_hashes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values, without the values per question."""
        left_out = {"curves", "covariances", "variances", "pairs", "ranking", "changes"}
        values = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in left_out
        }
        curves = [
            {"first": first, "second": second, **dataclasses.asdict(curve)}
            for (first, second), curve in self.curves.items()
        ]
        changes = [{"first": first, "second": second, "p": p} for first, second, p in self.changes]
        return values | {
            "noise": {"scheme": self.noise[0], "seed": self.noise[1]},
            "pairs": [dataclasses.asdict(pair) for pair in self.pairs],
            "curves": curves,
            "ranking": [dataclasses.asdict(entry) for entry in self.ranking],
            "changes": changes,
        }
