"""A figure as numbers: panels with series of points, and tables; and the questions and counts that
figures start from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from feval.errors import OutOfRangeError
from feval.estimators.arrays import Floats, Integers
from feval.estimators.counts import VoteCounts, vote_counts
from feval.evaluation.cautions import mixed_parties
from feval.evaluation.questions import LeftOut, Rows, question_set
from feval.replay import LLM, Dataset

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FigureOptions:
    """Options of figures.

    Attributes:
        calls: G, calls that are estimated from.
        votes: the most votes, an odd number; `None` for each figure's own.
        confidence: of intervals and certificates.
        unlabelled, short_pools: "refuse" or "drop" questions without a gold answer, or with too few
            CoTs.
    """

    calls: int = 5
    votes: int | None = None
    confidence: float = 0.95
    unlabelled: str = "refuse"
    short_pools: str = "refuse"

    def __post_init__(self) -> None:
        if not 0.0 < self.confidence < 1.0:
            raise OutOfRangeError(
                f"A confidence lies between 0 and 1; {self.confidence} was given."
            )
        if self.calls < 1:
            raise OutOfRangeError(f"An estimate takes 1 call or more; {self.calls} were given.")
        if self.votes is not None and (self.votes < 3 or self.votes % 2 == 0):
            raise OutOfRangeError(
                f"A figure of votes takes an odd number of them, from 3; {self.votes} was given."
            )


@dataclass(frozen=True, slots=True)
class Series:
    """Points with a name; NaN leaves a gap.

    Attributes:
        label: for the legend.
        x, y: of the points; shares are between 0 and 1.
        low, high, left, right: ends of intervals of y and of x; empty where there are none.
        look: a line with or without markers, a dashed one, single points, or small grey points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    left: Sequence[float] = ()
    right: Sequence[float] = ()
    look: Literal["line", "dashed", "points", "cloud"] = "line"


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes with series.

    Attributes:
        x_label, y_label: of the axes.
        series: what is drawn. Those with one label in several panels share their colour.
        percent: which axes show shares as per cent: some of "x" and "y".
        points: whether y has differences of shares, which a picture shows as percentage points.
        log: whether x is logarithmic.
        ticks: x -> its name, where only some have one.
    """

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    percent: str = "y"
    points: bool = False
    log: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of some LLMs on a dataset.

    Attributes:
        name: its key in `FIGURES`.
        dataset, llms, recording_hashes: what it is of.
        title: for people.
        lines: one or two short sentences about how the numbers were made.
        panels: what is drawn.
        tables: title -> rows, each column name -> value; `None` is not known.
        left_out: questions that were left out.
    """

    name: str
    dataset: str
    llms: tuple[str, ...]
    recording_hashes: tuple[str, ...]
    title: str
    lines: tuple[str, ...]
    panels: tuple[Panel, ...]
    tables: Mapping[str, tuple[Row, ...]]
    left_out: LeftOut


@dataclass(frozen=True, eq=False)
class Recorded:
    """The same questions for several LLMs, with the first `calls` CoTs of each.

    Attributes:
        dataset, llms: whose.
        rows: of the questions.
        calls: of each LLM on each question; all of them, where the pools have one size.
        left_out: questions that were left out.
    """

    dataset: Dataset
    llms: Sequence[LLM]
    rows: Rows
    calls: int
    left_out: LeftOut

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        llms: Sequence[LLM],
        options: FigureOptions,
        least: int = 2,
        *,
        golds: bool = True,
    ) -> Recorded:
        """Choose the questions on which each LLM has at least so many CoTs, and which have a gold
        where figures need one.
        """
        if golds:
            chosen = question_set(
                dataset,
                [(llm, least) for llm in llms],
                unlabelled=options.unlabelled,
                short_pools=options.short_pools,
            )
            rows, left_out = chosen.rows, chosen.left_out
        else:
            rows, left_out = np.arange(len(dataset)), LeftOut()
            for llm in llms:
                llm.require(None, least)
        calls = min(int(llm.pool.sizes[rows].min()) for llm in llms)
        return cls(dataset, llms, rows, calls, left_out)

    def codes(self, llm: LLM) -> Integers:
        """[Q, calls] codes of the answers."""
        codes: Integers = llm.pool.codes[self.rows][:, : self.calls]
        return codes

    def counts(self, llm: LLM) -> VoteCounts:
        """The votes of an LLM's CoTs."""
        return vote_counts(self.codes(llm), self.dataset.gold[self.rows])

    def right(self, llm: LLM) -> Integers:
        """[Q] right CoTs."""
        right: Integers = np.count_nonzero(
            self.codes(llm) == self.dataset.gold[self.rows][:, None], axis=1
        )
        return right

    def about(self) -> str:
        """How many questions and CoTs there are, for a line of the figure."""
        return f"{len(self.rows):,} questions of {self.dataset.id}, {self.calls} CoTs each"

    def figure(
        self,
        name: str,
        title: str,
        lines: Sequence[str],
        panels: Sequence[Panel],
        tables: Mapping[str, Sequence[Row]],
    ) -> Figure:
        """Return a figure of these LLMs."""
        return Figure(
            name=name,
            dataset=self.dataset.id,
            llms=tuple(llm.name for llm in self.llms),
            recording_hashes=tuple(self.dataset.recording_hashes),
            title=title,
            lines=(*lines, *mixed_parties(self.dataset)),
            panels=tuple(panels),
            tables={heading: tuple(rows) for heading, rows in tables.items()},
            left_out=self.left_out,
        )


def number(value: Any) -> float | None:
    """Return a finite number, else `None`."""
    return float(value) if math.isfinite(value) else None


def mean(values: Floats) -> float:
    """Return the mean of some numbers."""
    return float(np.mean(values))
