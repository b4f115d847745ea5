"""Coupled LLMs as tables and CSV."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from feval.forecast.coupled import Coupling
from feval.forecast.coupled_pairs import CoupledPair, RankedLLM
from feval.report.tables.csv import csv_text
from feval.report.tables.tables import Table, columns
from feval.report.text import counted, fixed, percent, percents


def short_names(llms: Sequence[str]) -> dict[str, str]:
    """LLM -> its name without maker and variant, or the full name if short names are not unique."""
    short = {name: name.partition("@")[0].rpartition("/")[2] for name in llms}
    return short if len(set(short.values())) == len(short) else {name: name for name in llms}


def coupling_tables(coupling: Coupling) -> list[Table]:
    """Tables of pairs and of what coupling saves (both only with golds), and of ranks under both
    schemes.
    """
    return (
        [_pairs(coupling), _savings(coupling), _ranks(coupling)]
        if coupling.pairs
        else [_ranks(coupling)]
    )


def coupling_csv(coupling: Coupling) -> str:
    """Return all numbers of every pair and area as CSV."""
    names = [field.name for field in dataclasses.fields(CoupledPair)]
    return csv_text(names, ([getattr(pair, name) for name in names] for pair in coupling.pairs))


def _pairs(coupling: Coupling) -> Table:
    numbers = (
        "#questions", "#difference", "#covariance", "#interval", "#of answer laws", "#coupled",
        "#independent", "#ratio",
    )  # fmt: skip
    source = (
        "recordings with noise of their own"
        if coupling.independent_from == "recordings"
        else "other calls of the same recordings"
    )
    return Table(
        title=(
            f"Variance of the difference in being right on {coupling.dataset}, noise"
            f" {coupling.noise[0]} {coupling.noise[1]}"
        ),
        columns=columns("LLMs", "area", *numbers),
        rows=tuple((_names(pair, coupling), *_variance_row(pair)) for pair in coupling.pairs),
        notes=(
            (
                "difference: of accuracies; covariance: of being right, within a question, under"
                " shared noise"
            ),
            (
                "of answer laws: the covariance if each answer were one token; the variances are"
                " over questions and noise"
            ),
            (
                f"independent pairs: {source}; intervals: {100 * coupling.confidence:g} %, over"
                " questions"
            ),
        ),
    )


def _variance_row(pair: CoupledPair) -> tuple[str, ...]:
    ratio = (
        pair.variance_coupled / pair.variance_independent if pair.variance_independent > 0 else None
    )
    return (
        pair.area or "all",
        f"{pair.questions:,}",
        fixed(pair.difference, 4),
        fixed(pair.covariance, 4),
        f"{fixed(pair.covariance_low, 4)} to {fixed(pair.covariance_high, 4)}",
        fixed(pair.law_covariance, 4),
        fixed(pair.variance_coupled, 4),
        fixed(pair.variance_independent, 4),
        "-" if ratio is None else fixed(ratio, 3),
    )


def _savings(coupling: Coupling) -> Table:
    pairs = ("#independent pairs", "#mean |error|", "#coupled pairs", "#ratio", "#interval")
    return Table(
        title="Pairs of calls for the same error of the estimated difference",
        columns=columns("LLMs", "area", *pairs, "#same answer %", "#independent %"),
        rows=tuple((_names(pair, coupling), *_saving_row(pair)) for pair in coupling.pairs),
        notes=(
            (
                "errors: exact, over all choices of so many of the recorded pairs; ratio: coupled"
                " for each independent pair"
            ),
        ),
    )


def _saving_row(pair: CoupledPair) -> tuple[str, ...]:
    agreement = percent(pair.agreement_coupled), percent(pair.agreement_independent)
    if pair.error is None or pair.ratio is None:
        return (pair.area or "all", str(pair.independent_samples), "-", "-", "-", "-", *agreement)
    known = pair.ratio_low is not None and pair.ratio_high is not None
    return (
        pair.area or "all",
        str(pair.independent_samples),
        fixed(pair.error, 4),
        str(pair.coupled_samples),
        fixed(pair.ratio, 3),
        f"{fixed(pair.ratio_low, 3)} to {fixed(pair.ratio_high, 3)}" if known else "-",
        *agreement,
    )


def _ranks(coupling: Coupling) -> Table:
    numbers = ("#rank", "#win-rate %", "#interval", "#ties %", "#Bradley-Terry")
    count = len(coupling.llms)
    halves = coupling.ranking[:count], coupling.ranking[count:]
    order = sorted(
        range(count), key=lambda place: (halves[0][place].rank, -halves[0][place].winrate)
    )
    if coupling.changes:
        moved = "; ".join(
            f"{first} and {second} (p = {p:.3g})" for first, second, p in coupling.changes
        )
        change = (
            f"change places between the two: {moved}; Holm's p over"
            f" {counted(count * (count - 1) // 2, 'pair')}"
        )
    else:
        change = "no two LLMs change places between the two"
    return Table(
        title=f"Average win-rates by {coupling.compared_by}: coupled, then independent",
        columns=columns("LLM", *numbers, *numbers),
        rows=tuple(
            (coupling.llms[place], *_rank(halves[0][place]), *_rank(halves[1][place]))
            for place in order
        ),
        notes=(
            "ranks: LLMs whose intervals overlap share one; a span is the interval of the rank",
            f"win-rate: share of comparisons won, averaged over the other LLMs; {change}",
        ),
    )


def _rank(entry: RankedLLM) -> tuple[str, ...]:
    rank = (
        str(entry.rank) if entry.rank == entry.worst_rank else f"{entry.rank} to {entry.worst_rank}"
    )
    interval = percents(entry.low, entry.high)
    return rank, percent(entry.winrate), interval, percent(entry.ties), fixed(entry.strength, 3)


def _names(pair: CoupledPair, coupling: Coupling) -> str:
    short = short_names(coupling.llms)
    return f"{short[pair.first]} - {short[pair.second]}"
