"""Coupled LLMs compared: what shared noise did to their differences, and to their ranking (arXiv 2502.01754).

    questions, llms = load("mmlu", None, ["llama-8b", "llama-3b", "llama-1b"])      # recorded with one noise seed
    told = couple(questions, llms)

Everything is taken from recorded calls in recorded order: call s of coupled LLMs shares its noise. Independent generation is seen
in recordings of the same LLMs with noise of their own, where they are given, and else in the coupled recordings themselves, where
call s of one LLM is paired with call s + 1 of the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import ConflictError, NotRecordedError, OutOfRangeError, UsageError
from feval.estimators.coupling.recorded_pairs import coupled_statistics, equal_error_samples, estimation_error
from feval.estimators.coupling.gumbel_coupling import coupled_correctness, laws_of_counts
from feval.estimators.coupling.winrates import preference_cycle, ranked_winrates, ranking_change, sampled_winrates
from feval.estimators.inference.bootstrap import bootstrap_interval
from feval.estimators.inference.bradley_terry import bradley_terry
from feval.evaluation.question_set import question_set
from feval.recording.scores import verdicts_name

if TYPE_CHECKING:
    from feval.estimators.coupling.recorded_pairs import CoupledStatistics
    from feval.replay.loading import LLM, Dataset

__all__ = ["CoupledPair", "Coupling", "ErrorCurve", "RankedLLM", "couple"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

_LARGEST_SIZE = 2_000  # pairs up to which the error is drawn
_POINTS = 25
_SCHEMES = ("coupled", "independent")
_FEW_QUESTIONS = 10


@dataclass(frozen=True, slots=True)
class ErrorCurve:
    """Mean absolute error of the estimated difference against the number of pairs (the paper's Figure 2c), exact.

    Attributes:
        samples: numbers of pairs of calls, ascending.
        coupled: error of coupled pairs.
        independent: error of independent pairs.
    """

    samples: tuple[int, ...]
    coupled: tuple[float, ...]
    independent: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class CoupledPair:
    """Two LLMs on the questions of one area.

    Attributes:
        first: name of an LLM.
        second: of the other.
        area: of the questions; `None`: all.
        questions: how many.
        calls: per question.
        difference: accuracy of the first minus that of the second, over all coupled calls.
        covariance: mean covariance of being right within a question, under shared noise.
        covariance_low: of its interval over questions.
        covariance_high: its upper end.
        law_covariance: what the coupling of the two recorded answer laws, as if an answer were one token, would make it.
        variance_coupled: of the difference over questions and noise.
        variance_independent: the same without shared noise.
        agreement_coupled: share of coupled pairs with the same answer.
        agreement_independent: share of independent pairs.
        independent_samples: a number of independent pairs.
        error: their mean absolute error; `None` where they have none.
        coupled_samples: the least number of coupled pairs with no larger error.
        ratio: coupled pairs that are worth one independent pair.
        ratio_low: of its interval over questions; `None` for a single question too.
        ratio_high: its upper end.
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
    """An LLM among the others.

    Attributes:
        llm: its name.
        scheme: "coupled" or "independent".
        winrate: average over the other LLMs of the share of comparisons it wins.
        low: of its interval over questions.
        high: its upper end.
        ties: average share of comparisons that are ties.
        rank: LLMs that cannot be told apart share one.
        worst_rank: the other end of the interval of the rank.
        strength: in the Bradley-Terry model, ties as half a win; natural logarithms with mean 0.
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
    """What `couple` found.

    Attributes:
        dataset: id.
        llms: names.
        noise: scheme and seed they share.
        independent_from: "recordings" of the LLMs with noise of their own, or "other calls" of the coupled ones.
        compared_by: "correctness", or the scorer whose scores were compared for win-rates, or the judge who compared.
        ranked_questions: over which win-rates are averaged.
        pairs: every pair of LLMs, over all questions and in each area.
        curves: (first, second) -> error against samples, over all questions.
        covariances: (first, second) -> [Q] within-question covariances.
        variances: (first, second) -> [2, Q] within-question variances of the difference, coupled and independent; the latter
            from where `independent_from` says.
        ranking: every LLM under both schemes.
        changes: (first, second, p): pairs of LLMs whose order differs between the schemes, with Holm's adjusted p.
        confidence: of all intervals.
        resamples: of the bootstrap over questions.
        seed: of the bootstrap.
        recording_hashes: of all recordings.
        warnings: sentences that a reader needs in order not to be misled.
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
        """As JSON values, without the values per question."""
        left_out = {"curves", "covariances", "variances", "pairs", "ranking", "changes"}
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}
        curves = [
            {"first": first, "second": second, **dataclasses.asdict(curve)}
            for (first, second), curve in self.curves.items()
        ]
        changes = [{"first": first, "second": second, "p": p} for first, second, p in self.changes]
        return told | {
            "noise": {"scheme": self.noise[0], "seed": self.noise[1]},
            "pairs": [dataclasses.asdict(pair) for pair in self.pairs],
            "curves": curves,
            "ranking": [dataclasses.asdict(entry) for entry in self.ranking],
            "changes": changes,
        }


@dataclass(frozen=True, eq=False)
class _Calls:
    """One LLM's calls on the questions that are looked at, in recorded order.

    Attributes:
        name: of the LLM.
        codes: [Q, S] answers.
        right: [Q, S] 1.0 or 0.0.
        scores: [Q, S] what win-rates compare.
    """

    name: str
    codes: npt.NDArray[np.integer[Any]]
    right: Floats
    scores: Floats


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
    """Compare coupled LLMs: covariances and variances, the error against samples, win-rates and ranks.

    Args:
        dataset: from `load`. With a judge, win-rates are over all questions and golds are not needed; what is said of right and
            wrong is then over those that have one.
        llms: two or more, recorded with the same noise and as many calls per question.
        independent: the same LLMs, in the same order, recorded with noise of their own; none: see the module's text.
        areas: question id -> area, for figures per area.
        shown_areas: those to show, in their order; `None`: all.
        samples: number of independent pairs whose error is to be reached; at most as many as there are.
        scorer: win-rates by the scores of a scorer instead of right and wrong.
        judge: win-rates by its recorded verdicts (`feval score --scorer judge:MODEL --pairwise`): its model, or its name.
            Comparisons without a verdict are left out, and questions on which a pair has none; both are said.
        aggregate: of step scores, see `LLMResponse.scores`.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read; with a judge they are dropped.
        confidence: of intervals.
        resamples: of the bootstrap over questions.
        seed: of the bootstrap.

    Returns:
        All figures, ready for tables and pictures.

    Raises:
        UsageError: fewer than two LLMs, other LLMs as independent ones, or both a scorer and a judge.
        ConflictError: LLMs of different noise, or none; pools of different sizes.
        UnlabelledError: questions have no gold answer that can be read.
        NotRecordedError: an area has no question with a gold; scores or verdicts that were not recorded.
        OutOfRangeError: a number out of range.
    """
    noise = _shared_noise(llms, independent)
    if scorer is not None and judge is not None:
        raise UsageError("Win-rates are by the scores of a scorer or by the verdicts of a judge; both were given.")
    dataset.require([*llms, *independent])
    rows = np.flatnonzero(dataset.gold >= 0)
    if judge is None:
        rows = question_set(dataset, unlabelled=unlabelled).rows
    settings: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "seed": seed}
    together: list[_Calls] = []
    apart: list[_Calls] | None = None
    if len(rows):
        together = [_calls(dataset, llm, rows, scorer, aggregate) for llm in llms]
        apart = [_calls(dataset, llm, rows, scorer, aggregate) for llm in independent] or None
        _check_sizes(together)
        if apart is not None:
            _check_sizes(apart)
    where = _areas(dataset, rows, areas, shown_areas) if len(rows) else {}
    pairs, curves, covariances, variances = [], {}, {}, {}
    for one, two in combinations(range(len(together)), 2):
        pair = together[one].name, together[two].name
        both = _Pair(together[one], together[two], *_independent_pair(together, apart, one, two), apart is not None)
        pairs += [both.figures(area, at, samples, settings) for area, at in where.items()]
        covariances[pair] = both.statistics().covariance
        variances[pair] = both.variances()
        curves[pair] = both.curve()
    warnings = [*_left_out(dataset, len(rows)), *_weak_evidence(pairs)]
    if judge is None:
        outcomes = _outcomes(together, "same"), _outcomes(apart or together, "all" if apart else "other")
    else:
        judge = _judge_name(llms, judge)
        outcomes = _judged_by(judge, llms, independent, warnings)
    names = tuple(llm.name for llm in llms)
    ranking, changes = _ranked(names, outcomes, settings)
    for scheme, table in zip(_SCHEMES, outcomes, strict=True):
        warnings += _doubts(names, scheme, table, settings)
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


def _left_out(dataset: Dataset, with_gold: int) -> list[str]:
    if not with_gold:
        return [f"No question of {dataset.id} has a gold answer, so nothing is said of who was right."]
    without = len(dataset.gold) - with_gold
    if not without:
        return []
    return [
        f"{without} question{' was' if without == 1 else 's were'} left out, for want of a gold answer that can be read."
    ]


def _weak_evidence(pairs: Sequence[CoupledPair]) -> list[str]:
    """What the pairs of LLMs cannot tell."""
    found = [
        f"{pair.first} and {pair.second} are right together no more often than without shared noise, as far as these calls "
        "tell; do their vocabularies share tokens (`recorders.shared_noise.shared_tokens`)?"
        for pair in pairs
        if pair.area is None and pair.covariance_low <= 0 and pair.variance_independent > 0
    ]
    if few := sorted({f"{pair.area or 'all'} ({pair.questions})" for pair in pairs if pair.questions < _FEW_QUESTIONS}):
        found.append(
            f"Intervals over fewer than {_FEW_QUESTIONS} questions are too narrow, and over one question no intervals: "
            f"{', '.join(few)}."
        )
    return found


def _shared_noise(llms: Sequence[LLM], independent: Sequence[LLM]) -> Any:
    if len(llms) < 2:
        raise UsageError(f"Coupling compares two LLMs or more; {len(llms)} was given.")
    told = "; ".join(f"{llm.name}: {llm.noise or 'noise of its own'}" for llm in llms)
    if len({llm.noise for llm in llms}) > 1 or llms[0].noise is None:
        raise ConflictError(
            f"Coupled LLMs are recorded with the same noise; these are not ({told}). Record them with `feval record --coupled` "
            "and one --noise-seed."
        )
    names, others = ([llm.name for llm in own] for own in (llms, independent))
    if others and [name.partition("@")[0] for name in others] != [name.partition("@")[0] for name in names]:
        raise UsageError(
            "The independent recordings are of the same LLMs in the same order; coupled are "
            f"{', '.join(names)}, independent {', '.join(others)}."
        )
    seen = [llm.noise for llm in independent if llm.noise is not None]
    if len(set(seen)) < len(seen) or llms[0].noise in seen:
        raise ConflictError(
            "The LLMs that were given as independent share noise; give recordings with noise of their own."
        )
    return llms[0].noise


def _calls(dataset: Dataset, llm: LLM, rows: Rows, scorer: str | None, aggregate: str) -> _Calls:
    pool = llm.pool
    sizes = pool.sizes[rows]
    if len(uneven := np.flatnonzero(sizes != sizes[0])):
        name = dataset.question_ids[rows[uneven[0]]]
        raise ConflictError(
            f"Coupled calls are paired by their number, so all pools have one size; {llm.name} has {sizes[0]} CoTs on "
            f"{dataset.question_ids[rows[0]]!r} and {sizes[uneven[0]]} on {name!r}. Record what is missing, or select questions."
        )
    codes = pool.codes[rows, : int(sizes[0])]
    right = (codes == dataset.gold[rows, None]).astype(np.float64)
    scores = right if scorer is None else pool.aggregated(scorer, aggregate)[rows, : int(sizes[0])]
    if len(missing := np.argwhere(np.isnan(scores))):
        question, call = missing[0].tolist()
        raise NotRecordedError(
            f"{scorer} has no score for CoT {call} of {llm.name} on {dataset.question_ids[rows[question]]!r}; score the rest "
            "(`feval score`), or leave that question out."
        )
    return _Calls(llm.name, codes, right, scores)


def _check_sizes(calls: Sequence[_Calls]) -> None:
    sizes = {own.name: own.codes.shape[1] for own in calls}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ConflictError(
            f"LLMs are compared call by call; their CoTs per question differ ({told}). Record what is missing."
        )
    if min(sizes.values()) < 2:
        raise ConflictError("Within a question a covariance takes two CoTs or more; these pools hold 1. Record more.")


def _areas(
    dataset: Dataset, rows: Rows, areas: Mapping[str, str] | None, shown: Sequence[str] | None
) -> dict[str | None, Rows]:
    """Area -> places among `rows`; `None` for all of them."""
    found: dict[str | None, Rows] = {None: np.arange(len(rows))}
    if areas is None:
        return found
    own = [areas.get(dataset.question_ids[row]) for row in rows]
    for area in shown if shown is not None else sorted({area for area in own if area is not None}):
        at = np.array([place for place, name in enumerate(own) if name == area], np.intp)
        if not len(at):
            raise NotRecordedError(f"No question of {dataset.id} with a gold answer is in the area {area!r}.")
        found[area] = at
    return found


def _independent_pair(
    together: Sequence[_Calls], apart: Sequence[_Calls] | None, one: int, two: int
) -> tuple[_Calls, _Calls]:
    if apart is not None:
        return apart[one], apart[two]
    other = together[two]
    shifted = (np.roll(values, -1, axis=1) for values in (other.codes, other.right, other.scores))
    return together[one], _Calls(other.name, *shifted)


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two LLMs under shared noise, and without it."""

    first: _Calls
    second: _Calls
    first_apart: _Calls
    second_apart: _Calls
    recorded_apart: bool

    def statistics(self, at: Rows | None = None) -> CoupledStatistics:

        where = slice(None) if at is None else at
        return coupled_statistics(self.first.right[where], self.second.right[where])

    def statistics_apart(self, at: Rows | None = None) -> CoupledStatistics:

        where = slice(None) if at is None else at
        return coupled_statistics(self.first_apart.right[where], self.second_apart.right[where])

    def variances(self) -> Floats:
        """[2, Q] within-question variances of the difference, coupled and independent."""
        coupled = self.statistics()
        # Shifted pairs of one recording are not independent of each other; its own two variances are unbiased.
        apart = self.statistics_apart().variance_coupled if self.recorded_apart else coupled.variance_independent
        return np.stack([coupled.variance_coupled, apart])

    def differences(self, at: Rows) -> tuple[Floats, Floats]:
        """[Q, S] coupled and independent."""
        coupled = self.first.right[at] - self.second.right[at]
        return coupled, self.first_apart.right[at] - self.second_apart.right[at]

    def figures(self, area: str | None, at: Rows, samples: int, settings: Mapping[str, Any]) -> CoupledPair:

        told = self.statistics(at)
        coupled, independent = self.differences(at)
        interval = bootstrap_interval(told.covariance[:, None], **settings)
        if samples < 1:
            raise OutOfRangeError(f"The error is that of 1 independent pair or more; {samples} were given.")
        number = min(samples, independent.size)
        equal = None
        if coupled.shape == independent.shape and np.ptp(independent) > 0 and number < independent.size:
            equal = equal_error_samples(coupled, independent, number, **settings)
        return CoupledPair(
            first=self.first.name,
            second=self.second.name,
            area=area,
            questions=len(at),
            calls=coupled.shape[1],
            difference=float(coupled.mean()),
            covariance=float(told.covariance.mean()),
            covariance_low=float(interval.low[0]),
            covariance_high=float(interval.high[0]),
            law_covariance=self._law_covariance(at),
            variance_coupled=told.total_coupled,
            # As in `variances`, plus what lies between questions.
            variance_independent=self.statistics_apart(at).total_coupled
            if self.recorded_apart
            else told.total_independent,
            agreement_coupled=_agreement(self.first, self.second, at),
            agreement_independent=_agreement(self.first_apart, self.second_apart, at),
            independent_samples=number,
            error=None if equal is None else equal.error,
            coupled_samples=None if equal is None else equal.coupled,
            ratio=None if equal is None else equal.ratio,
            ratio_low=None if equal is None or len(at) == 1 else equal.low,
            ratio_high=None if equal is None or len(at) == 1 else equal.high,
        )

    def _law_covariance(self, at: Rows) -> float:
        """Mean covariance of being right under the coupling of the two empirical answer laws."""
        one, two = self.first.codes[at], self.second.codes[at]
        width = 2 + int(max(one.max(), two.max()))
        counts = [
            np.stack([(codes == code).sum(axis=1) for code in range(-1, width - 1)], axis=1) for codes in (one, two)
        ]
        laws = [laws_of_counts(own) for own in counts]
        right = np.zeros(laws[0].shape, bool)
        for own in (self.first, self.second):
            question, call = np.nonzero(own.right[at])
            right[question, own.codes[at][question, call] + 1] = True
        return float(coupled_correctness(laws[0], laws[1], right).covariance.mean())

    def curve(self) -> ErrorCurve:

        coupled, independent = self.differences(np.arange(len(self.first.right)))
        most = min(coupled.size, independent.size, _LARGEST_SIZE)
        sizes = np.unique(np.rint(np.geomspace(min(10, most), most, _POINTS)).astype(np.int64))
        errors = (estimation_error(values, sizes) for values in (coupled, independent))
        shared, apart = (tuple(values.tolist()) for values in errors)
        return ErrorCurve(tuple(sizes.tolist()), shared, apart)


def _agreement(first: _Calls, second: _Calls, at: Rows) -> float:
    one, two = first.codes[at], second.codes[at]
    return float(((one == two) & (one >= 0)).mean())


def _ranked(
    names: Sequence[str], outcomes: tuple[Floats, Floats], settings: Mapping[str, Any]
) -> tuple[list[RankedLLM], list[tuple[str, str, float]]]:
    """LLMs under both schemes, from the tables of `_outcomes`."""
    boot = {name: settings[name] for name in ("resamples", "seed")}
    entries, averages = [], []
    others = len(names) - 1
    for scheme, table in zip(_SCHEMES, outcomes, strict=True):
        wins = np.clip(table[..., 0].sum(axis=1) / others, 0.0, 1.0)
        averages.append(wins.T)
        told = ranked_winrates(wins.T, confidence=settings["confidence"], **boot)
        half = (table[..., 0] + table[..., 2] / 2).mean(axis=2)
        strengths = bradley_terry(half[None])[0]
        ties = table[..., 2].mean(axis=2).sum(axis=1) / others
        for place, name in enumerate(names):
            entries.append(
                RankedLLM(
                    llm=name,
                    scheme=scheme,
                    winrate=float(told.rates[place]),
                    low=float(told.low[place]),
                    high=float(told.high[place]),
                    ties=float(ties[place]),
                    rank=int(told.rank[place]),
                    worst_rank=int(told.worst_rank[place]),
                    strength=float(strengths[place]),
                )
            )
    change = ranking_change(averages[0], averages[1], **boot)
    found = [
        (names[one], names[two], float(p))
        for (one, two), a, b, p in zip(change.pairs, change.coupled, change.independent, change.p_values, strict=True)
        if a * b < 0
    ]
    return entries, found


def _doubts(names: Sequence[str], scheme: str, table: Floats, settings: Mapping[str, Any]) -> list[str]:
    """Sentences where the comparisons of a scheme give no ranking."""
    if not table[..., :2].any():
        return [f"All {scheme} comparisons are ties, so nothing ranks the LLMs there."]
    margins = (table[..., 0] - table[..., 1]).transpose(2, 0, 1)
    if cycle := preference_cycle(margins, **settings):
        told = " over ".join(names[place] for place in (*cycle, cycle[0]))
        why = "Bradley-Terry strengths assume an order of the LLMs, and there is none."
        return [f"The {scheme} preferences are cyclic beyond doubt ({told}): {why}"]
    return []


def _outcomes(calls: Sequence[_Calls], which: Any) -> Floats:
    """[L, L, Q, 3] shares of wins, losses and ties of each against each; zeros on the diagonal."""
    table = np.zeros((len(calls), len(calls), len(calls[0].scores), 3))
    for one, two in combinations(range(len(calls)), 2):
        told = sampled_winrates(calls[one].scores, calls[two].scores, which)
        table[one, two], table[two, one] = told, told[:, [1, 0, 2]]
    return table


def _judge_name(llms: Sequence[LLM], judge: str) -> str:
    """The name under which verdicts are kept: as given, or of the judge with that model."""
    names = [judge, f"pairwise:{judge}"]
    held = [scorer for llm in llms for scorer in llm.pool.channels.scorers()]
    return next((name for name in names if any(own.startswith(verdicts_name(name, "")) for own in held)), names[1])


def _judged_by(
    judge: str, llms: Sequence[LLM], independent: Sequence[LLM], warnings: list[str]
) -> tuple[Floats, Floats]:
    """[L, L, Q, 3] coupled and independent, as `_outcomes`, on the questions on which every pair has a verdict under both."""
    tables = []
    for scheme, own, shift in ((_SCHEMES[0], llms, 0), (_SCHEMES[1], independent or llms, 0 if independent else 1)):
        table, missing, total = _verdicts(judge, own, shift)
        tables.append(table)
        if missing:
            warnings.append(f"{missing} of {total} {scheme} comparisons have no verdict by {judge} and were left out.")
    whole = np.flatnonzero(~np.isnan(np.stack(tables)).any(axis=(0, 1, 2, 4)))
    if not len(whole):
        raise NotRecordedError(
            f"There is no question on which every two LLMs have a verdict by {judge}; look at what it said, or ask another "
            "judge."
        )
    questions = tables[0].shape[2]
    if lost := questions - len(whole):
        warnings.append(
            f"{lost} of {questions} questions were left out of win-rates and ranks: two LLMs have no verdict by {judge} there."
        )
    return tables[0][:, :, whole], tables[1][:, :, whole]


def _verdicts(judge: str, llms: Sequence[LLM], shift: int) -> tuple[Floats, int, int]:
    """[L, L, Q, 3] shares of wins, losses and ties, NaN where a pair has no verdict; comparisons without one, and all."""
    table = np.zeros((len(llms), len(llms), len(llms[0].pool.sizes), 3))
    missing = total = 0
    for one, two in combinations(range(len(llms)), 2):
        values = _verdicts_of_pair(judge, llms[one], llms[two], shift)
        given: npt.NDArray[np.bool_] = ~np.isnan(values)
        comparisons = int(llms[one].pool.sizes.sum())
        missing, total = missing + comparisons - int(given.sum()), total + comparisons
        counts = np.stack([(values > 0.5).sum(axis=1), (values < 0.5).sum(axis=1), (values == 0.5).sum(axis=1)], axis=1)
        told = np.full(counts.shape, np.nan)
        np.divide(counts, given.sum(axis=1, keepdims=True), out=told, where=given.any(axis=1, keepdims=True))
        table[one, two], table[two, one] = told, told[:, [1, 0, 2]]
    return table, missing, total


def _verdicts_of_pair(judge: str, first: LLM, second: LLM, shift: int) -> Floats:
    """[Q, S] 1 where the first was preferred, 0 where the second was, 0.5 for ties, NaN for none."""
    for own, other in ((first, second), (second, first)):
        name = verdicts_name(judge, other.name, shift)
        if name in own.pool.channels.scorers():
            values = own.pool.aggregated(name, "score")
            return values if own is first else 1.0 - values
    calls = "calls with other noise (--calls next or both)" if shift else "the same calls (--calls same or both)"
    raise NotRecordedError(
        f"There are no verdicts by {judge} on {first.name} and {second.name} for {calls}; put both into one recording "
        "(`feval merge`) and ask: `feval score RECORDING --scorer judge:MODEL --pairwise --out DIR`."
    )
