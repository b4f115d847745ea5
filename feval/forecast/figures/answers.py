"""How answers are spread, how well votes are estimated from a few calls, and how consistent an LLM
is with itself.

Figures 3 to 5 of "Compute-efficient evaluation of LLM voting accuracy" (CEV), and the error and
splits of arXiv 2509.19489.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats
from feval.estimators.counts import VoteCounts, vote_counts
from feval.estimators.self_consistency_bounds import best_integer_split, self_consistency_bound
from feval.estimators.self_consistency_error import (
    average_error,
    multiclass_error,
    multiclass_plugin_error,
    multiclass_plugin_expectation,
)
from feval.estimators.votes.diagnostics import QUARTERS, Strata, strata_difference, strata_summary
from feval.estimators.votes.multinomial import plugin_plurality_accuracy
from feval.forecast.figures.panels import (
    Figure,
    FigureOptions,
    Panel,
    Recorded,
    Row,
    Series,
    mean,
    number,
)
from feval.methods.protocol import drawn
from feval.replay import LLM, Dataset

_RANKS = 10
_SHOWN_RANKS = 4
_REPLICATES = 100
_MOST_VOTES = 41
_CALLS = (1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640)


def answer_mass(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Mean share of the r most frequent answers, and entropy by strata of accuracy; over
    temperature, where LLMs differ in it.
    """
    recorded = Recorded.of(dataset, llms, options, 1)
    counts = [recorded.counts(llm) for llm in llms]
    everything, strata = (
        [_strata(each, (1.0,)) for each in counts],
        [_strata(each, QUARTERS) for each in counts],
    )
    lines = (
        f"{recorded.about()}; strata of each LLM's own accuracy",
        (
            "shares keep CoTs without an answer in the denominator; entropies count them as one"
            " outcome, and are biased downward"
        ),
    )
    if len(llms) == 1:
        names = [f"accuracy up to {100 * upper:g} %" for upper in QUARTERS]
        mass = [_mass("all questions", everything[0].cumulative_mass[0])]
        mass += [
            _mass(name, row) for name, row in zip(names, strata[0].cumulative_mass, strict=True)
        ]
    else:
        mass = [
            _mass(llm.name, each.cumulative_mass[0])
            for llm, each in zip(llms, everything, strict=True)
        ]
    entropy = [
        Series(
            "entropy" if len(llms) == 1 else llm.name, [1.0, 2.0, 3.0, 4.0], each.entropy.tolist()
        )
        for llm, each in zip(llms, strata, strict=True)
    ]
    panels = [
        Panel("most frequent answers, r", "share of the CoTs", tuple(mass)),
        Panel(
            "accuracy on the question",
            "mean entropy, nats",
            tuple(entropy),
            percent="",
            ticks={
                place: f"\N{LESS-THAN OR EQUAL TO} {100 * upper:g} %"
                for place, upper in enumerate(QUARTERS, 1)
            },
        ),
    ]
    panels += _over_temperature(llms, everything)
    tables = {
        "Answers by stratum of accuracy": [
            _stratum(llm, each, row, whole=whole)
            for llm, own, parts in zip(llms, everything, strata, strict=True)
            for whole, each in ((True, own), (False, parts))
            for row in range(len(each.upper))
        ]
    }
    if len(llms) > 1:
        tables[f"Change from {llms[0].name}, paired by question"] = [
            _change(llm, counts[0], each) for llm, each in zip(llms[1:], counts[1:], strict=True)
        ]
    return recorded.figure(
        "answer-mass", "How the answers are spread", lines, tuple(panels), tables
    )


def _strata(counts: VoteCounts, upper: tuple[float, ...]) -> Strata:
    return strata_summary(counts.gold, counts.rivals, counts.no_answer, upper)


def _mass(label: str, cumulative: Floats) -> Series:
    shown = cumulative[:_RANKS].tolist()
    return Series(label, list(range(1, len(shown) + 1)), shown)


def _over_temperature(llms: Sequence[LLM], everything: Sequence[Strata]) -> list[Panel]:
    """The share of each rank over the temperature; nothing where LLMs do not differ in a known
    one.
    """
    known = [
        (llm.info.temperature, each.mass[0]) for llm, each in zip(llms, everything, strict=True)
    ]
    temperatures = [temperature for temperature, _ in known if temperature is not None]
    if len(set(temperatures)) < max(2, len(llms)):
        return []
    ordered = sorted(known, key=lambda pair: pair[0] or 0.0)
    series = tuple(
        Series(
            f"answer of rank {rank + 1}",
            [float(temperature or 0.0) for temperature, _ in ordered],
            [float(mass[rank]) if rank < len(mass) else 0.0 for _, mass in ordered],
        )
        for rank in range(min(_SHOWN_RANKS, max(len(mass) for _, mass in ordered)))
    )
    return [Panel("temperature", "share of the CoTs", series)]


def _stratum(llm: LLM, strata: Strata, row: int, *, whole: bool) -> Row:
    cumulative = strata.cumulative_mass[row]
    return {
        "llm": llm.name,
        "temperature": llm.info.temperature,
        "accuracy_up_to": None if whole else float(strata.upper[row]),
        "questions": int(strata.questions[row]),
        "accuracy": number(strata.accuracy[row]),
        "no_answer": number(strata.no_answer[row]),
        "answers": number(strata.candidates[row]),
        "entropy_nats": number(strata.entropy[row]),
        **{
            f"mass_{rank}": number(cumulative[min(rank, len(cumulative)) - 1]) for rank in (1, 2, 5)
        },
    }


def _change(llm: LLM, first: VoteCounts, second: VoteCounts) -> Row:
    pairs = [(each.gold, each.rivals, each.no_answer) for each in (first, second)]
    change = strata_difference(pairs[0], pairs[1], (1.0,))
    names = ("accuracy", "accuracy_se", "entropy", "entropy_se", "candidates", "candidates_se")
    return {"llm": llm.name, **{name: number(getattr(change, name)[0]) for name in names}}


def approximation_error(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """Error of plug-in vote accuracies from G calls against those from all calls, over the number
    of votes.
    """
    votes = list(range(1, (options.votes or _MOST_VOTES) + 1, 2))
    recorded = Recorded.of(dataset, llms, options, options.calls + 1)
    errors, biases, rows = [], [], []
    for llm in llms:
        counts = recorded.counts(llm)
        truth = plugin_plurality_accuracy(
            counts.gold, counts.rivals, counts.no_answer, votes
        ).mean()
        difference = _estimates(recorded, llm, options.calls, votes) - truth
        error, bias = np.abs(difference).mean(axis=0), difference.mean(axis=0)
        errors.append(Series(llm.name, votes, error.tolist()))
        biases.append(Series(llm.name, votes, bias.tolist()))
        later = error[np.array(votes) >= min(5, votes[-1])]
        rows.append(
            {
                "llm": llm.name,
                "temperature": llm.info.temperature,
                "accuracy": mean(counts.gold / counts.size),
                f"accuracy_{votes[-1]}_votes": float(truth[-1]),
                "largest_mean_error_from_5_votes": float(later.max()),
                f"mean_bias_at_{votes[-1]}_votes": float(bias[-1]),
            }
        )
    lines = (
        f"{recorded.about()}; G = {options.calls} of them drawn, {_REPLICATES} times",
        (
            "reference: the plug-in of all CoTs, which saturates at their own vote and is no truth"
            " beyond it"
        ),
    )
    panels = (
        Panel("votes M", "mean absolute error", tuple(errors), percent="", points=True),
        Panel("votes M", "mean error (bias)", tuple(biases), percent="", points=True),
    )
    title = f"Vote accuracy estimated from {options.calls} calls"
    return recorded.figure(
        "approximation-error", title, lines, panels, {"Errors of the estimate": rows}
    )


def _estimates(recorded: Recorded, llm: LLM, calls: int, votes: Sequence[int]) -> Floats:
    """[R, M] the plug-in's mean accuracy from so many drawn calls, for each replicate."""
    rows = recorded.rows
    codes = drawn(llm.pool.codes[rows], llm.orders(range(_REPLICATES), calls, rows))
    counts = vote_counts(
        codes.reshape(-1, calls), np.tile(recorded.dataset.gold[rows], _REPLICATES)
    )
    values = plugin_plurality_accuracy(counts.gold, counts.rivals, counts.no_answer, votes)
    means: Floats = values.per_question().reshape(_REPLICATES, len(rows), len(votes)).mean(axis=1)
    return means


def consistency_error(dataset: Dataset, llms: Sequence[LLM], options: FigureOptions) -> Figure:
    """1 - max_c p_c, what n calls would show of it, and Theorem 1's bound over the splits of the
    recording's calls.
    """
    recorded = Recorded.of(dataset, llms, options, golds=False)
    if recorded.calls > _CALLS[-1]:
        raise OutOfRangeError(
            f"This figure takes up to {_CALLS[-1]} CoTs of a question; {recorded.calls} are"
            " recorded. Select fewer: feval select."
        )
    questions, n = len(recorded.rows), recorded.calls
    calls = [each for each in _CALLS if each < n] + [n]
    budget, nobody = questions * n, np.full(questions, -1)
    best, series, rows = best_integer_split(budget), [], []
    for llm in llms:
        counts = vote_counts(recorded.codes(llm), nobody)
        outcomes = np.column_stack([counts.rivals, counts.no_answer]).astype(np.int64)
        shares = outcomes / n
        plugin, error = (
            average_error(multiclass_plugin_error(outcomes)),
            average_error(multiclass_error(shares)),
        )
        expected = [average_error(multiclass_plugin_expectation(shares, k)) for k in calls]
        series.append(Series(llm.name, calls, expected))
        rows.append(
            {
                "llm": llm.name,
                "questions": questions,
                "calls": n,
                "error": plugin,
                "underestimated_by_about": error - expected[-1],
                "bound_rmse": float(np.sqrt(self_consistency_bound(questions, n))),
                "best_questions": int(best.m),
                "best_calls": int(best.n),
                "best_bound_rmse": float(np.sqrt(best.bound)),
            }
        )
    splits = np.unique(np.geomspace(1, budget, 200).astype(np.int64))
    bound = np.sqrt(self_consistency_bound(budget / splits, splits.astype(np.float64)))
    recorded_bound, best_bound = (
        float(np.sqrt(self_consistency_bound(questions, n))),
        float(np.sqrt(best.bound)),
    )
    marks = (
        Series("bound", splits.tolist(), bound.tolist(), look="dashed"),
        Series(
            f"best: {best.m:,.0f} questions x {best.n:,.0f} calls",
            [float(best.n)],
            [best_bound],
            look="points",
        ),
        Series(f"recorded: {questions:,} x {n}", [n], [recorded_bound], look="points"),
    )
    lines = (
        f"{recorded.about()}; no gold answers are used; no answer is one outcome",
        (
            "left: what n calls would show if the recorded shares were the law; right: arXiv"
            " 2509.19489, Theorem 1, for two answers"
        ),
    )
    panels = (
        Panel(
            "calls per question, n", "mean of 1 - share of the favourite", tuple(series), log=True
        ),
        Panel(
            f"calls per question, n, of {budget:,} in all",
            "bound on the error (RMSE)",
            marks,
            log=True,
        ),
    )
    title = "Self-consistency error, and splits of the budget"
    return recorded.figure(
        "self-consistency-error", title, lines, panels, {"Self-consistency error": rows}
    )
