"""Win-rates and ranks of LLMs, coupled and independent, from scores of calls or from a judge's
recorded verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from feval.errors import NotRecordedError
from feval.estimators.arrays import Bools, Floats
from feval.estimators.coupling.winrates import (
    preference_cycle,
    ranked_winrates,
    ranking_change,
    sampled_winrates,
)
from feval.estimators.inference.bradley_terry import bradley_terry
from feval.forecast.coupled_pairs import LLMCalls
from feval.forecast.coupling_results import RankedLLM
from feval.recording.scores import verdicts_name
from feval.replay import LLM

SCHEMES = ("coupled", "independent")


def ranked_llms(
    names: Sequence[str], outcomes: tuple[Floats, Floats], settings: Mapping[str, Any]
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
        for place, name in enumerate(names):
            entries.append(
                RankedLLM(
                    llm=name,
                    scheme=scheme,
                    winrate=float(ranked.rates[place]),
                    low=float(ranked.low[place]),
                    high=float(ranked.high[place]),
                    ties=float(ties[place]),
                    rank=int(ranked.rank[place]),
                    worst_rank=int(ranked.worst_rank[place]),
                    strength=float(strengths[place]),
                )
            )
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
    names: Sequence[str], scheme: str, table: Floats, settings: Mapping[str, Any]
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
        shares = np.full(counts.shape, np.nan)
        np.divide(
            counts,
            known.sum(axis=1, keepdims=True),
            out=shares,
            where=known.any(axis=1, keepdims=True),
        )
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
