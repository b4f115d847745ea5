"""The best thresholds of a cascade on training questions, among all combinations on a grid of
quantiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.errors import OutOfRangeError
from feval.methods.arrays import Bools, Floats, Rows

_MOST_CELLS = 1 << 22  # of the table of all combinations


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars for the scores of one LLM.

    Attributes:
        values: L bars, from one that accepts nothing down to one that accepts every score.
        first: [N] the first bar that accepts each answer; L where none does.
    """

    values: list[Fraction]
    first: Rows


@dataclass(frozen=True, eq=False)
class Stage:
    """One LLM, asked N times on training questions.

    Attributes:
        right: [N] whether its answer is the gold.
        cost: [N] of asking it.
        bars: which bars accept its answers.
    """

    right: Bools
    cost: Floats
    bars: Bars


@dataclass(frozen=True)
class Choice:
    """Bars for a chain of stages.

    Attributes:
        right: right answers out of N.
        cost: of all N.
        levels: which bar, for every stage but the last.
    """

    right: int
    cost: float
    levels: tuple[int, ...]


def bars(scores: Floats, grid: int, *, strict: bool, samples: int | None = None) -> Bars:
    """`grid` quantiles of [N] scores (NaN where there is none) as bars, and one bar beyond either
    end.

    A strict bar must be exceeded, not only reached. `samples` is the number of votes where scores
    are shares of votes; bars are then exactly such shares.
    """
    known = np.sort(scores[~np.isnan(scores)])[::-1]
    if not known.size:
        return Bars([Fraction(0)] * (grid + 2), np.full(len(scores), grid + 2))
    picks = known[np.rint(np.linspace(0, len(known) - 1, grid)).astype(np.intp)].tolist()
    if samples is None:
        # Beyond either end by more than rounding, so that scores not seen in training are all
        # accepted, or all rejected.
        values = [
            Fraction(ceil(known[0]) + 1),
            *(Fraction(repr(bar)) for bar in picks),
            Fraction(floor(known[-1]) - 1),
        ]
    else:
        shares = [Fraction(pick).limit_denominator(samples) for pick in picks]
        values = [Fraction(1) if strict else Fraction(samples + 1, samples), *shares, Fraction(0)]
    accepting = np.searchsorted(
        [float(bar) for bar in values[::-1]], scores, side="left" if strict else "right"
    )
    return Bars(values, np.where(np.isnan(scores), len(values), len(values) - accepting))


def best_choice(
    stages: Sequence[Stage], *, budget: float | None, non_decreasing: bool
) -> Choice | None:
    """The bars with most right answers within the budget; of several the cheapest, and of those the
    first in the grid.

    Args:
        stages: the chain; each with as many bars.
        budget: largest mean cost; `None` for no limit.
        non_decreasing: whether a later stage's bar must be at least as far down its list as an
            earlier stage's.

    Raises:
        OutOfRangeError: too many combinations.
    """
    levels, choices = len(stages[0].bars.values), len(stages) - 1
    if levels**choices > _MOST_CELLS:
        raise OutOfRangeError(
            f"A cascade of {len(stages)} LLMs with {levels - 2} quantiles each has too many"
            f" combinations of thresholds; set grid to {int(_MOST_CELLS ** (1 / choices)) - 2} or"
            " less."
        )
    right, cost = np.zeros((levels,) * choices), np.zeros((levels,) * choices)
    firsts = [stage.bars.first for stage in stages]
    for place, stage in enumerate(stages):
        cost += _spread(_sums(firsts[:place], None, stage.cost, levels), choices)
        accepting = firsts[place] if place < choices else None
        right += _spread(_sums(firsts[:place], accepting, stage.right, levels), choices)
    allowed = np.ones(right.shape, np.bool_)
    if non_decreasing:
        level = np.indices(right.shape)
        allowed &= (level[:-1] <= level[1:]).all(axis=0)
    if budget is not None:
        allowed &= cost <= budget * len(stages[0].right)
    if not allowed.any():
        return None
    most = right[allowed].max()
    cheapest = np.where(allowed & (right == most), cost, np.inf)
    best = np.unravel_index(int(cheapest.argmin()), cheapest.shape)
    return Choice(round(most), float(cheapest[best]), tuple(int(level) for level in best))


def _sums(rejecting: Sequence[Rows], accepting: Rows | None, values: Any, levels: int) -> Floats:
    """Sums of [N] values over the answers that all earlier stages reject and this one accepts, for
    every choice of bars.

    `rejecting` has `first` of each earlier stage, `accepting` that of this one, or `None` where it
    does not matter whether it accepts. The result has one axis of length `levels` per stage that
    matters.
    """
    axes = [*rejecting] if accepting is None else [*rejecting, accepting]
    shape = (levels + 1,) * len(axes)
    cells = np.ravel_multi_index(tuple(axes), shape) if axes else np.zeros(len(values), np.intp)
    counted = np.bincount(
        cells, np.asarray(values, np.float64), minlength=(levels + 1) ** len(axes)
    )
    table: npt.NDArray[Any] = counted.reshape(shape)
    for axis in range(len(axes)):
        up_to = table.cumsum(axis=axis)
        accepted = up_to.take(range(levels), axis=axis)
        table = up_to.take([levels], axis=axis) - accepted if axis < len(rejecting) else accepted
    return table


def _spread(table: Floats, axes: int) -> Floats:
    """The table with axes of length 1 for the stages it does not depend on."""
    return table.reshape(table.shape + (1,) * (axes - table.ndim))


def written(number: Fraction) -> str:
    """A fraction as text: a decimal where it has one, such as "0.35", else "1/3"."""
    try:
        return str(
            Context(prec=400, traps=[Inexact]).divide(
                Decimal(number.numerator), Decimal(number.denominator)
            )
        )
    except Inexact:
        return str(number)
