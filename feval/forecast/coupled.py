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
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from feval.arguments import checked
from feval.errors import ConflictError, NotRecordedError, OutOfRangeError, UsageError
from feval.estimators.arrays import Bools, Floats, Integers, Result, Rows
from feval.estimators.comparisons import bradley_terry
from feval.estimators.coupling import (
    CoupledStatistics,
    coupled_correctness,
    coupled_statistics,
    equal_error_samples,
    estimation_error,
    laws_of_counts,
)
from feval.estimators.intervals import bootstrap_interval
from feval.estimators.winrates import (
    preference_cycle,
    ranked_winrates,
    ranking_change,
    sampled_winrates,
)
from feval.evaluation.cautions import judged_by
from feval.evaluation.questions import question_set
from feval.executors import reports
from feval.recording.arrays import verdicts_name
from feval.replay import LLM, Dataset
from feval.values import Record, RecordLike, frozen

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
    settings: Record = {"confidence": confidence, "resamples": resamples, "seed": seed}
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
    warnings = [*_left_out(dataset, len(rows)), *_weak_evidence(pairs), *judged_by(dataset, rows)]
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
                " without shared noise; do their vocabularies share the texts of tokens?"
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


@frozen
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

    def to_dict(self) -> Record:
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


_LARGEST_SIZE = 2_000  # most pairs in an error curve
_POINTS = 25


@frozen
class ErrorCurve:
    """Exact mean absolute error of the estimated difference against the number of pairs of calls
    (the paper's Figure 2c).
    """

    samples: tuple[int, ...]
    coupled: tuple[float, ...]
    independent: tuple[float, ...]


@frozen
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
    error: float | None = None
    coupled_samples: int | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@frozen
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


class LLMCalls(Result):
    """One LLM's calls on some questions, [Q, S] in recorded order; `right` is 1.0 or 0.0, and
    win-rates compare `scores`.
    """

    name: str
    codes: Integers
    right: Floats
    scores: Floats


def calls_of(
    dataset: Dataset, llm: LLM, rows: Rows, scorer: str | None, aggregate: str
) -> LLMCalls:
    """Take an LLM's calls from its pool; scores are correctness unless a scorer is given."""
    pool = llm.pool
    sizes = pool.sizes[rows]
    if len(uneven := np.flatnonzero(sizes != sizes[0])):
        name = dataset.question_ids[rows[uneven[0]]]
        raise ConflictError(
            f"Coupled calls are paired by index, so all pools must have one size; {llm.name} has"
            f" {sizes[0]} CoTs on {dataset.question_ids[rows[0]]!r} and {sizes[uneven[0]]} on"
            f" {name!r}. Record the missing ones, or select questions."
        )
    codes = pool.codes[rows, : int(sizes[0])]
    right = (codes == dataset.gold[rows, None]).astype(np.float64)
    scores = right if scorer is None else pool.aggregated(scorer, aggregate)[rows, : int(sizes[0])]
    if len(missing := np.argwhere(np.isnan(scores))):
        question, call = missing[0].tolist()
        raise NotRecordedError(
            f"{scorer} has no score for CoT {call} of {llm.name} on"
            f" {dataset.question_ids[rows[question]]!r}; score the rest (`feval score`), or leave"
            " that question out."
        )
    return LLMCalls(llm.name, codes, right, scores)


def require_equal_sizes(calls: Sequence[LLMCalls]) -> None:
    """Refuse LLMs with different numbers of calls per question, or with a single call."""
    sizes = {llm.name: llm.codes.shape[1] for llm in calls}
    if len(set(sizes.values())) > 1:
        counts = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ConflictError(
            f"LLMs are compared call by call; their numbers of CoTs per question differ ({counts})."
            " Record the missing ones."
        )
    if min(sizes.values()) < 2:
        raise ConflictError(
            "Within a question a covariance takes two CoTs or more; these pools hold 1. Record"
            " more."
        )


class CallPair(Result):
    """The calls of two LLMs that are paired one by one."""

    first: LLMCalls
    second: LLMCalls

    def statistics(self, at: Rows | slice = slice(None)) -> CoupledStatistics:
        """Their statistics on some or all questions."""
        return coupled_statistics(self.first.right[at], self.second.right[at])

    def differences(self, at: Rows | slice = slice(None)) -> Floats:
        """[Q, S] differences in correctness."""
        return self.first.right[at] - self.second.right[at]

    def agreement(self, at: Rows) -> float:
        """Share of pairs with the same answer."""
        one, two = self.first.codes[at], self.second.codes[at]
        return float(((one == two) & (one >= 0)).mean())

    def shifted(self) -> CallPair:
        """The calls of the first beside the next calls of the second, which share no noise."""
        roll, other = partial(np.roll, shift=-1, axis=1), self.second
        calls = LLMCalls(other.name, roll(other.codes), roll(other.right), roll(other.scores))
        return CallPair(self.first, calls)


class PairOfLLMs(Result):
    """Two LLMs under shared noise and without it; `recorded_apart`: the independent calls are
    recordings of their own.
    """

    coupled: CallPair
    independent: CallPair
    recorded_apart: bool

    def variances(self) -> Floats:
        """[2, Q] within-question variances of the difference, coupled and independent."""
        coupled = self.coupled.statistics()
        # Shifted pairs of one recording depend on each other; its own two variances are unbiased.
        apart = (
            self.independent.statistics().variance_coupled
            if self.recorded_apart
            else coupled.variance_independent
        )
        return np.stack([coupled.variance_coupled, apart])

    def figures(
        self, area: str | None, at: Rows, samples: int, settings: RecordLike
    ) -> CoupledPair:
        """All figures on some questions."""
        statistics = self.coupled.statistics(at)
        coupled, independent = self.coupled.differences(at), self.independent.differences(at)
        interval = bootstrap_interval(statistics.covariance[:, None], **settings)
        if samples < 1:
            raise OutOfRangeError(
                f"The error is that of 1 independent pair or more; {samples} were given."
            )
        number = min(samples, independent.size)
        worth: Record = {}
        if (
            coupled.shape == independent.shape
            and np.ptp(independent) > 0
            and number < independent.size
        ):
            equal = equal_error_samples(coupled, independent, number, **settings)
            worth = {"error": equal.error, "coupled_samples": equal.coupled, "ratio": equal.ratio}
            if len(at) > 1:
                worth |= {"ratio_low": equal.low, "ratio_high": equal.high}
        return CoupledPair(
            first=self.coupled.first.name,
            second=self.coupled.second.name,
            area=area,
            questions=len(at),
            calls=coupled.shape[1],
            difference=float(coupled.mean()),
            covariance=float(statistics.covariance.mean()),
            covariance_low=float(interval.low[0]),
            covariance_high=float(interval.high[0]),
            law_covariance=self._law_covariance(at),
            variance_coupled=statistics.total_coupled,
            # As in `variances`, plus the variance between questions.
            variance_independent=(
                self.independent.statistics(at).total_coupled
                if self.recorded_apart
                else statistics.total_independent
            ),
            agreement_coupled=self.coupled.agreement(at),
            agreement_independent=self.independent.agreement(at),
            independent_samples=number,
            **worth,
        )

    def _law_covariance(self, at: Rows) -> float:
        """Mean covariance of correctness under the coupling of the two empirical answer
        distributions.
        """
        both = self.coupled.first, self.coupled.second
        width = 2 + max(int(calls.codes[at].max()) for calls in both)
        laws = [
            laws_of_counts(
                np.stack(
                    [(calls.codes[at] == code).sum(axis=1) for code in range(-1, width - 1)], axis=1
                )
            )
            for calls in both
        ]
        right = np.zeros(laws[0].shape, bool)
        for calls in both:
            question, call = np.nonzero(calls.right[at])
            right[question, calls.codes[at][question, call] + 1] = True
        return float(coupled_correctness(laws[0], laws[1], right).covariance.mean())

    def curve(self) -> ErrorCurve:
        """Mean absolute error against the number of pairs."""
        differences = [pair.differences() for pair in (self.coupled, self.independent)]
        most = min(*(values.size for values in differences), _LARGEST_SIZE)
        sizes = np.unique(np.rint(np.geomspace(min(10, most), most, _POINTS)).astype(np.int64))
        errors = [tuple(estimation_error(values, sizes).tolist()) for values in differences]
        return ErrorCurve(tuple(sizes.tolist()), *errors)


SCHEMES = ("coupled", "independent")


def ranked_llms(
    names: Sequence[str], outcomes: tuple[Floats, Floats], settings: RecordLike
) -> tuple[list[RankedLLM], list[tuple[str, str, float]]]:
    """Rank the LLMs under both schemes; return the entries, and the pairs that change places with
    their p-values.
    """
    entries, averages = [], []
    others = len(names) - 1
    for scheme, table in zip(SCHEMES, outcomes, strict=True):
        wins = np.clip(table[..., 0].sum(axis=1) / others, 0.0, 1.0)
        averages.append(wins.T)
        ranked = ranked_winrates(wins.T, confidence=settings["confidence"])
        half = (table[..., 0] + table[..., 2] / 2).mean(axis=2)
        strengths = bradley_terry(half[None])[0]
        ties = table[..., 2].mean(axis=2).sum(axis=1) / others
        columns = (
            *(ranked.rates, ranked.low, ranked.high, ties),
            *(ranked.rank, ranked.worst_rank, strengths),
        )
        rows = zip(names, *(column.tolist() for column in columns), strict=True)
        entries += [RankedLLM(name, scheme, *row) for name, *row in rows]
    change = ranking_change(averages[0], averages[1])
    changes = [
        (names[one], names[two], float(p))
        for (one, two), a, b, p in zip(
            change.pairs, change.coupled, change.independent, change.p_values, strict=True
        )
        if a * b < 0
    ]
    return entries, changes


def ranking_warnings(
    names: Sequence[str], scheme: str, table: Floats, settings: RecordLike
) -> list[str]:
    """Warn where the comparisons of a scheme give no ranking."""
    if not table[..., :2].any():
        return [f"All {scheme} comparisons are ties, so they do not rank the LLMs."]
    margins = (table[..., 0] - table[..., 1]).transpose(2, 0, 1)
    if cycle := preference_cycle(margins, confidence=settings["confidence"]):
        order = " over ".join(names[place] for place in (*cycle, cycle[0]))
        why = "Bradley-Terry strengths assume an order of the LLMs, and there is none."
        return [f"The {scheme} preferences are significantly cyclic ({order}): {why}"]
    return []


def outcomes_of_calls(calls: Sequence[LLMCalls], which: Any) -> Floats:
    """[L, L, Q, 3] shares of wins, losses and ties of each LLM against each; zeros on the
    diagonal.
    """
    table = np.zeros((len(calls), len(calls), len(calls[0].scores), 3))
    for one, two in combinations(range(len(calls)), 2):
        shares = sampled_winrates(calls[one].scores, calls[two].scores, which)
        table[one, two], table[two, one] = shares, shares[:, [1, 0, 2]]
    return table


def judge_name(llms: Sequence[LLM], judge: str) -> str:
    """The name under which verdicts are recorded: as given, or of the judge with that model."""
    names = [judge, f"pairwise:{judge}"]
    recorded = [scorer for llm in llms for scorer in llm.pool.channels.scorers()]
    return next(
        (
            name
            for name in names
            if any(scorer.startswith(verdicts_name(name, "")) for scorer in recorded)
        ),
        names[1],
    )


def judged_outcomes(
    judge: str, llms: Sequence[LLM], independent: Sequence[LLM], warnings: list[str]
) -> tuple[Floats, Floats]:
    """[L, L, Q, 3] coupled and independent, as `outcomes_of_calls`, on the questions with verdicts
    for every pair.
    """
    tables = []
    for scheme, judged, shift in (
        (SCHEMES[0], llms, 0),
        (SCHEMES[1], independent or llms, 0 if independent else 1),
    ):
        table, missing, total = _verdicts(judge, judged, shift)
        tables.append(table)
        if missing:
            warnings.append(
                f"{missing} of {total} {scheme} comparisons have no verdict by {judge} and were"
                " left out."
            )
    whole = np.flatnonzero(~np.isnan(np.stack(tables)).any(axis=(0, 1, 2, 4)))
    if not len(whole):
        raise NotRecordedError(
            f"There is no question on which every two LLMs have a verdict by {judge}; look at its"
            " replies, or use another judge."
        )
    questions = tables[0].shape[2]
    if lost := questions - len(whole):
        warnings.append(
            f"{lost} of {questions} questions were left out of win-rates and ranks: two LLMs have"
            f" no verdict by {judge} there."
        )
    return tables[0][:, :, whole], tables[1][:, :, whole]


def _verdicts(judge: str, llms: Sequence[LLM], shift: int) -> tuple[Floats, int, int]:
    """[L, L, Q, 3] shares of wins, losses and ties, NaN where a pair has no verdict; missing
    comparisons; all comparisons.
    """
    table = np.zeros((len(llms), len(llms), len(llms[0].pool.sizes), 3))
    missing = total = 0
    for one, two in combinations(range(len(llms)), 2):
        values = _verdicts_of_pair(judge, llms[one], llms[two], shift)
        known: Bools = ~np.isnan(values)
        comparisons = int(llms[one].pool.sizes.sum())
        missing, total = missing + comparisons - int(known.sum()), total + comparisons
        counts = np.stack(
            [(values > 0.5).sum(axis=1), (values < 0.5).sum(axis=1), (values == 0.5).sum(axis=1)],
            axis=1,
        )
        with np.errstate(invalid="ignore"):  # NaN where there is none
            shares = counts / known.sum(axis=1, keepdims=True)
        table[one, two], table[two, one] = shares, shares[:, [1, 0, 2]]
    return table, missing, total


def _verdicts_of_pair(judge: str, first: LLM, second: LLM, shift: int) -> Floats:
    """[Q, S] 1 where the first was preferred, 0 where the second was, 0.5 for ties, NaN without a
    verdict.
    """
    for llm, other in ((first, second), (second, first)):
        name = verdicts_name(judge, other.name, shift)
        if name in llm.pool.channels.scorers():
            values = llm.pool.aggregated(name, "score")
            return values if llm is first else 1.0 - values
    calls = (
        "calls with other noise (calls = next or both)"
        if shift
        else "the same calls (calls = same or both)"
    )
    raise NotRecordedError(
        f"There are no verdicts by {judge} on {first.name} and {second.name} for {calls}; put both"
        " into one recording (`feval merge`) and ask: `feval score RECORDING --scorer judge:MODEL"
        " --pairwise --out DIR`."
    )
