"""Coupled LLMs compared: what shared noise did to their differences and to their ranking (arXiv
2502.01754).

    questions, llms = load("mmlu", None, ["llama-8b", "llama-3b", "llama-1b"])  # of one noise seed
    result = couple(questions, llms)

Calls are taken in recorded order: call s of all coupled LLMs shares its noise. Independent
generation is taken from recordings of the same LLMs with noise of their own, if given, and
otherwise from the coupled recordings, by pairing call s of one LLM with call s + 1 of the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from feval.arguments import checked
from feval.errors import ConflictError, NotRecordedError, UsageError
from feval.estimators.arrays import Floats, Rows
from feval.evaluation.cautions import mixed_parties
from feval.evaluation.questions import question_set
from feval.executors.progress import reports
from feval.forecast.coupled_pairs import (
    SCHEMES,
    CallPair,
    CoupledPair,
    ErrorCurve,
    LLMCalls,
    PairOfLLMs,
    RankedLLM,
    calls_of,
    judge_name,
    judged_outcomes,
    outcomes_of_calls,
    ranked_llms,
    ranking_warnings,
    require_equal_sizes,
)
from feval.replay import LLM, Dataset

_FEW_QUESTIONS = 10


@checked
@reports("comparing")
def couple(
    dataset: Dataset,
    llms: Sequence[LLM],
    independent: Sequence[LLM] = (),
    *,
    areas: Mapping[str, str] | None = None,
    shown_areas: Sequence[str] | None = None,
    samples: int = 200,
    scorer: str | None = None,
    judge: str | None = None,
    aggregate: str = "score",
    unlabelled: str = "refuse",
    confidence: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Coupling:
    """Compare coupled LLMs: covariances and variances, the error against samples, win-rates and
    ranks.

    Args:
        dataset: from `load`. With a judge, win-rates are over all questions and need no golds;
            figures of correctness are over the questions with a gold.
        llms: two or more, recorded with the same noise and equally many calls per question.
        independent: the same LLMs, in the same order, recorded with noise of their own; by default
            see the module.
        areas: question id -> area, for figures per area.
        shown_areas: areas to show, in order; `None` for all.
        samples: number of independent pairs whose error coupled pairs should reach; capped at what
            was recorded.
        scorer: win-rates by a scorer's scores instead of correctness.
        judge: win-rates by a judge's recorded verdicts (`feval score --scorer judge:MODEL
            --pairwise`): its model or name. Comparisons without a verdict, and questions on which a
            pair has none, are left out with a warning.
        aggregate: how to aggregate step scores, see `LLMResponse.scores`.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read; with a
            judge they are dropped.
        confidence: coverage of intervals.
        resamples: resamples of the bootstrap over questions.
        seed: seed of the bootstrap.

    Raises:
        UsageError: fewer than two LLMs, different LLMs as independent ones, or both a scorer and a
            judge.
        ConflictError: LLMs without shared noise; pools of different sizes.
        UnlabelledError: questions have no gold answer that can be read.
        NotRecordedError: an area has no question with a gold; scores or verdicts that were not
            recorded.
        OutOfRangeError: a number out of range.
    """
    noise = _shared_noise(llms, independent)
    if scorer is not None and judge is not None:
        raise UsageError(
            "Win-rates are by the scores of a scorer or by the verdicts of a judge; both were"
            " given."
        )
    dataset.require([*llms, *independent])
    rows = np.flatnonzero(dataset.gold >= 0)
    if judge is None:
        rows = question_set(dataset, unlabelled=unlabelled).rows
    settings: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "seed": seed}
    together: list[LLMCalls] = []
    apart: list[LLMCalls] | None = None
    if len(rows):
        together = [calls_of(dataset, llm, rows, scorer, aggregate) for llm in llms]
        apart = [calls_of(dataset, llm, rows, scorer, aggregate) for llm in independent] or None
        require_equal_sizes(together)
        if apart is not None:
            require_equal_sizes(apart)
    where = _areas(dataset, rows, areas, shown_areas) if len(rows) else {}
    pairs, curves, covariances, variances = [], {}, {}, {}
    for one, two in combinations(range(len(together)), 2):
        pair = together[one].name, together[two].name
        calls = CallPair(together[one], together[two])
        free = calls.shifted() if apart is None else CallPair(apart[one], apart[two])
        both = PairOfLLMs(calls, free, apart is not None)
        pairs += [both.figures(area, at, samples, settings) for area, at in where.items()]
        covariances[pair] = calls.statistics().covariance
        variances[pair] = both.variances()
        curves[pair] = both.curve()
    warnings = [*_left_out(dataset, len(rows)), *_weak_evidence(pairs), *mixed_parties(dataset)]
    if judge is None:
        outcomes = (
            outcomes_of_calls(together, "same"),
            outcomes_of_calls(apart or together, "all" if apart else "other"),
        )
    else:
        judge = judge_name(llms, judge)
        outcomes = judged_outcomes(judge, llms, independent, warnings)
    names = tuple(llm.name for llm in llms)
    ranking, changes = ranked_llms(names, outcomes, settings)
    for scheme, table in zip(SCHEMES, outcomes, strict=True):
        warnings += ranking_warnings(names, scheme, table, settings)
    hashes = dict.fromkeys(llm.recording_hash for llm in (*llms, *independent))
    return Coupling(
        dataset=dataset.id,
        llms=names,
        noise=(noise.scheme, noise.seed),
        independent_from="recordings" if independent else "other calls",
        compared_by=judge or scorer or "correctness",
        ranked_questions=outcomes[0].shape[2],
        pairs=tuple(pairs),
        curves=curves,
        covariances=covariances,
        variances=variances,
        ranking=tuple(ranking),
        changes=tuple(changes),
        recording_hashes=tuple(hashes),
        warnings=tuple(warnings),
        **settings,
    )


def _left_out(dataset: Dataset, with_gold: int) -> Iterator[str]:
    without = len(dataset.gold) - with_gold
    if not with_gold:
        yield (
            f"No question of {dataset.id} has a gold answer, so there are no figures of"
            " correctness."
        )
    elif without:
        were = " was" if without == 1 else "s were"
        yield f"{without} question{were} left out without a gold answer that can be read."


def _weak_evidence(pairs: Sequence[CoupledPair]) -> Iterator[str]:
    """Warn where the evidence on pairs of LLMs is weak."""
    for pair in pairs:
        if pair.area is None and pair.covariance_low <= 0 and pair.variance_independent > 0:
            yield (
                f"{pair.first} and {pair.second} are not measurably more often right together than"
                " without shared noise; do their vocabularies share tokens"
                " (`recorders.shared_noise.shared_tokens`)?"
            )
    if few := {
        f"{pair.area or 'all'} ({pair.questions})"
        for pair in pairs
        if pair.questions < _FEW_QUESTIONS
    }:
        yield (
            f"Intervals over fewer than {_FEW_QUESTIONS} questions are too narrow, and a single"
            f" question has none: {', '.join(sorted(few))}."
        )


def _shared_noise(llms: Sequence[LLM], independent: Sequence[LLM]) -> Any:
    if len(llms) < 2:
        raise UsageError(f"Coupling compares two LLMs or more; {len(llms)} was given.")
    noises = "; ".join(f"{llm.name}: {llm.noise or 'noise of its own'}" for llm in llms)
    if len({llm.noise for llm in llms}) > 1 or llms[0].noise is None:
        raise ConflictError(
            f"Coupled LLMs are recorded with the same noise; these are not ({noises}). Record them"
            " with `feval record --set coupled=true` and one noise seed."
        )
    names, others = ([llm.name for llm in group] for group in (llms, independent))
    if others and [name.partition("@")[0] for name in others] != [
        name.partition("@")[0] for name in names
    ]:
        raise UsageError(
            "The independent recordings are of the same LLMs in the same order; coupled are "
            f"{', '.join(names)}, independent {', '.join(others)}."
        )
    other_noises = [llm.noise for llm in independent if llm.noise is not None]
    if len(set(other_noises)) < len(other_noises) or llms[0].noise in other_noises:
        raise ConflictError(
            "The LLMs that were given as independent share noise; give recordings with noise of"
            " their own."
        )
    return llms[0].noise


def _areas(
    dataset: Dataset, rows: Rows, areas: Mapping[str, str] | None, names: Sequence[str] | None
) -> dict[str | None, Rows]:
    """Area -> indices into `rows`; key `None` for all of them."""
    places: dict[str | None, Rows] = {None: np.arange(len(rows))}
    if areas is None:
        return places
    area_of_row = [areas.get(dataset.question_ids[row]) for row in rows]
    if names is None:
        names = sorted({area for area in area_of_row if area is not None})
    for area in names:
        at = np.array([place for place, name in enumerate(area_of_row) if name == area], np.intp)
        if not len(at):
            raise NotRecordedError(
                f"No question of {dataset.id} with a gold answer is in the area {area!r}."
            )
        places[area] = at
    return places


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
