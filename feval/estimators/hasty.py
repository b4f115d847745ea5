"""Stops that were too early, over all orders of a pool: the answer is wrong, and the vote over the whole budget would be right.

Of tied answers the one drawn first wins, in the vote of the stop and in that over the whole budget B, as in replicates. Both look
at the same draws, so that what breaks one tie is not independent of what breaks the other.

Let V be how often each candidate occurs in B draws, F the f candidates that lead, and c the first of F to be drawn: the answer of
the whole budget. Given V all orders are equally likely, and a rule that treats candidates alike treats those of F alike. So

    P[gold = c, the stop answers something else] = sum over V with the gold in F  P(V) (1 - A(V) - N(V)) / f

with A(V) = P[the stop answers c | V] and N(V) = P[it has no answer | V]. Where the pool is the budget there is one V, its own. If
one answer leads there alone, then what is neither right nor without an answer was stopped too early, and nothing is left to do.

For the other V call some g of F the gold, and let v be counts of n draws of which g came first among F. With `reach(v)`, that n
draws with these counts in random order do that and have not stopped, and `met(v)`, that they do and stopped with the answer g,

    reach(v) = sum_a (v_a / n) reach(v - e_a) [it goes on at v - e_a]
    met(v) = sum_a (v_a / n) met(v - e_a) + reach(v) [it stops at v, and g wins],         A(V) = f met(V)

Neither depends on V: one table over multisets of counts, with the members of F marked, serves all V. It holds what some V
contains, and nothing else. Candidates drawn before g are marked, too, where a stop may find g tied with one; and in windows
(ESC) the answer that all draws of the window have had so far. The recursions are feval's own (no paper states them);
`tests/test_exact_errors.py` holds them against the enumeration of all orders. Every term is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.orders import codes_of, none_codes_of

__all__ = ["MOST_COUNTS", "Stops", "Whole", "met"]

Integers = npt.NDArray[np.integer[Any]]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
UInt64 = npt.NDArray[np.uint64]

MOST_COUNTS = 1_000_000
"""Of one table, above which it is not made: some seconds."""

# A candidate's column holds 8 votes + 4 [of F] + 2 [drawn before the gold] + 1 [all of this window]; the gold's 2 votes + 1.
_VOTE, _TIED, _BEFORE, _WINDOW = 8, 4, 2, 1


@dataclass(frozen=True)
class Stops:
    """A rule that stops.

    Attributes:
        budget: most draws, B.
        chance: (counts of candidates [N, K] with the largest first, draws so far) -> [N] probability to stop there; not asked
            at the budget, nor where there are windows.
        window: draws per window, where a window that agrees is what stops; 0 for none.
        of_window: such a stop answers with its window; else with the plurality of everything drawn.
    """

    budget: int
    chance: Callable[[Integers, int], Floats] | None = None
    window: int = 0
    of_window: bool = False


@dataclass(frozen=True, eq=False)
class Whole:
    """Counts of N times B draws, of which one candidate is called the gold.

    Attributes:
        none: [N] draws without an answer.
        gold: [N] those of the gold.
        rivals: [N, K] those of each other candidate.
        tied: [N, K] which of them lead together with the gold.
    """

    none: Integers
    gold: Integers
    rivals: Integers
    tied: Bools

    def table(self) -> Int64:
        """[N, 2 + K] with the columns of rivals in falling order."""
        rivals = np.where(self.rivals > 0, _VOTE * self.rivals.astype(np.int64) + _TIED * self.tied, 0)
        rivals = rivals if rivals.shape[1] else np.zeros((len(rivals), 1), np.int64)
        return _sorted(np.column_stack([self.none.astype(np.int64), 2 * self.gold.astype(np.int64), rivals]))


def met(whole: Whole, stops: Stops, *, at_budget: bool = True) -> Floats | None:
    """Probability that a stop answers the gold, drawn first among those it ties with in the end.

    Args:
        whole: N counts of the whole budget.
        stops: the rule.
        at_budget: count what goes on to the budget, where the gold is the answer if it is drawn first among those that lead.

    Returns:
        [N] probabilities; `None` where the table would hold more than `MOST_COUNTS` counts.
    """
    if not len(whole.gold):
        return np.zeros(0)
    table, place = np.unique(whole.table(), axis=0, return_inverse=True)
    levels = _levels(table, stops.budget)
    if levels is None:
        return None
    width, found = table.shape[1], None
    if not stops.window or stops.of_window:  # votes of windows are often tied
        found = _upwards(levels, stops, width, at_budget=at_budget, before=False)
    if found is None:
        found = _upwards(levels, stops, width, at_budget=at_budget, before=True)
    assert found is not None
    result: Floats = found[np.searchsorted(levels[-1].keys, _keys(table))][place.ravel()]
    return result


# -- what the whole budgets contain -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Level:
    """The counts of some number of draws, and how one draw less leads to those before.

    Attributes:
        keys: [T] ascending.
        parent: [E] which of these counts.
        child: [E] which of those of one draw less.
        weight: [E] v_a / n, for all candidates that are alike.
    """

    keys: UInt64
    parent: npt.NDArray[np.intp]
    child: npt.NDArray[np.intp]
    weight: Floats


def _levels(table: Int64, budget: int) -> list[_Level] | None:
    """From no draw to the budget."""
    keys = _keys(table)
    order = np.argsort(keys)
    rows, keys, levels, total = table[order], keys[order], [], len(table)
    for drawn in range(budget, 0, -1):
        parent, weight, fewer = _one_less(rows, drawn)
        below, first, child = np.unique(_keys(fewer), return_index=True, return_inverse=True)
        levels.append(_Level(keys, parent, child.ravel(), weight))
        rows, keys, total = fewer[first], below, total + len(below)
        if total > MOST_COUNTS:
            return None
    nothing = np.zeros(0, np.intp)
    return [_Level(keys, nothing, nothing, np.zeros(0)), *levels[::-1]]


def _one_less(rows: Int64, drawn: int) -> tuple[npt.NDArray[np.intp], Floats, Int64]:
    """The counts before the last draw: whose they are, how likely, and which. F must not be drawn before the gold."""
    parents, weights, found = [], [], []
    for column in range(rows.shape[1]):
        unit = (1, 2, _VOTE)[min(column, 2)]
        some = rows[:, column] >= unit
        if 2 <= column < rows.shape[1] - 1:  # of equal columns the last shrinks
            some &= rows[:, column] != rows[:, column + 1]
        parent = np.flatnonzero(some)
        value = rows[parent, column]
        alike = np.ones(len(parent)) if column < 2 else (rows[parent, 2:] == value[:, None]).sum(axis=1)
        fewer = rows[parent].copy()
        fewer[:, column] = np.where(value < 2 * unit, 0, value - unit)
        parents.append(parent)
        weights.append(alike * (value // unit) / drawn)
        found.append(fewer)
    parent, weight, together = np.concatenate(parents), np.concatenate(weights), np.concatenate(found)
    kept = (together[:, 1] > 0) | ~((together[:, 2:] & _TIED) > 0).any(axis=1)
    return parent[kept], weight[kept], _sorted(together[kept])


# -- orders of draws --------------------------------------------------------------------------------------------------


def _upwards(levels: list[_Level], stops: Stops, width: int, *, at_budget: bool, before: bool) -> Floats | None:
    """[T] `met` of the counts of the budget; `None` if a stop finds the gold tied and it was not noted who came before it."""
    states, reach, found = np.zeros((1, width), np.int64), np.ones(1), np.zeros(1)
    for drawn, level in enumerate(levels[1:], 1):
        found = np.bincount(level.parent, level.weight * found[level.child], minlength=len(level.keys))
        if not len(states):
            continue
        states, reach, place = _one_more(states, reach, drawn, stops.window, level.keys, before=before)
        if drawn == stops.budget:
            return found + np.bincount(place, reach * at_budget * _ways(states), minlength=len(found))
        stop = _stop(states, stops, drawn)
        wins, tied = _wins(states, of_window=stops.of_window)
        if not before and bool((tied & (stop > 0)).any()):
            return None
        found = found + np.bincount(place, reach * stop * wins * _ways(states), minlength=len(found))
        going = stop < 1
        states, reach = states[going], (reach * (1 - stop))[going]
    return found


def _stop(states: Int64, stops: Stops, drawn: int) -> Floats:
    """[N] probability to stop at some states."""
    if not stops.window:
        assert stops.chance is not None
        counts = -np.sort(-np.column_stack([states[:, 1] // 2, states[:, 2:] // _VOTE]), axis=1)
        return stops.chance(counts[:, : max(int((counts > 0).sum(axis=1).max(initial=0)), 1)], drawn)
    agrees = (states[:, 1:] & _WINDOW).any(axis=1) & (drawn % stops.window == 0)
    return agrees.astype(np.float64)


def _wins(states: Int64, *, of_window: bool) -> tuple[Bools, Bools]:
    """[N] whether a stop answers the gold, and whether a candidate that is not of F has as many votes."""
    if of_window:
        own = (states[:, 1] & _WINDOW) > 0
        return own, np.zeros(len(own), np.bool_)
    gold, rivals = states[:, 1] // 2, states[:, 2:]
    most = (rivals // _VOTE).max(axis=1)
    equal = (rivals // _VOTE == gold[:, None]) & (gold > 0)[:, None]
    lost = (equal & ((rivals & _BEFORE) > 0)).any(axis=1)
    tied = (equal & ((rivals & _TIED) == 0)).any(axis=1) & (most <= gold)
    return (gold > 0) & (most <= gold) & ~lost, tied


def _ways(states: Int64) -> Floats:
    """[N] how many marks of the same candidates' counts are the same state: whom of equals they stand at makes no difference."""
    ways, like, same = np.ones((3, len(states)))
    for column in range(3, states.shape[1]):
        last, own = states[:, column - 1], states[:, column]
        held = (own > 0) & (own | _BEFORE | _WINDOW == last | _BEFORE | _WINDOW)
        like = np.where(held, like + 1, 1)
        same = np.where(held & (own == last), same + 1, 1)
        ways *= like / same
    return ways


def _one_more(
    states: Int64, reach: Floats, drawn: int, window: int, keys: UInt64, *, before: bool
) -> tuple[Int64, Floats, npt.NDArray[np.intp]]:
    """The states after one more draw, those that some whole budget contains; and which of its counts they have."""
    grown, shares = [], []
    for column, unit, start in _choices(states.shape[1]):
        some = _can_grow(states, column, start)
        if not len(some):
            continue
        more, chance = _grow(states[some], column, unit, start, drawn, window, before=before)
        grown.append(more)
        shares.append(reach[some] * chance)
    together, share = np.concatenate(grown), np.concatenate(shares)
    wanted = _keys(_unmarked(together))
    place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    held = keys[place] == wanted
    together, share, place = together[held], share[held], place[held]
    _, first, same = np.unique(_keys(together), return_index=True, return_inverse=True)
    if not (together == together[first][same.ravel()]).all():
        raise AssertionError("two states share a key")
    return together[first], np.bincount(same.ravel(), share, minlength=len(first)), place[first]


def _choices(width: int) -> list[tuple[int, int, int]]:
    """What is drawn: column, what a vote adds there, and what stands there before the first: a new candidate, of F or not."""
    known = [(0, 1, 0), (1, 2, 0), *((column, _VOTE, 0) for column in range(2, width))]
    return [*known, (width - 1, _VOTE, _TIED), (width - 1, _VOTE, -1)]


def _can_grow(states: Int64, column: int, start: int) -> npt.NDArray[np.intp]:
    """Which states can have one more there; of equal columns the first grows."""
    if column < 2:
        return np.arange(len(states))
    if start:  # of F nothing is drawn before the gold
        return np.flatnonzero((states[:, column] == 0) & ((states[:, 1] > 0) | (start < 0)))
    some = states[:, column] > 0
    if column > 2:
        some &= states[:, column] != states[:, column - 1]
    return np.flatnonzero(some)


def _grow(
    states: Int64, column: int, unit: int, start: int, drawn: int, window: int, *, before: bool
) -> tuple[Int64, Floats]:
    """States with one more vote in a column, and its share of the ways to the counts that it leads to."""
    more = states.copy()
    if start == _TIED:
        more[:, column] = _TIED
    elif start:
        more[:, column] = np.where(states[:, 1] == 0, _BEFORE, 0) if before else 0
    more[:, column] += unit
    cleared = np.zeros(len(more), np.int64)
    if window and (drawn - 1) % window == 0:
        more[:, column] += _WINDOW if column else 0
    elif window:
        other = (more[:, column] & _WINDOW) == 0 if column else np.ones(len(more), np.bool_)
        noted = more[:, 2:] * (more[:, 2:] & _WINDOW)
        cleared = np.where(other, noted.max(axis=1, initial=0) - 1, 0).clip(0)
        more[other, 1:] &= ~_WINDOW
    value = more[:, column]
    votes = value // unit
    alike = np.ones(len(more)) if column < 2 else (more[:, 2:] == value[:, None]).sum(axis=1)
    # Who had all of the window before this draw: any of those that are now like it, but the one drawn.
    lapsed = (more[:, 2:] == cleared[:, None]).sum(axis=1) - ((cleared == value) & (column >= 2))
    ways = alike * np.where(cleared > 0, lapsed, 1)
    return _sorted(more), ways * votes / drawn


# -- keys -------------------------------------------------------------------------------------------------------------


def _sorted(rows: Int64) -> Int64:
    """With the columns of rivals in falling order."""
    rows[:, 2:] = -np.sort(-rows[:, 2:], axis=1)
    return rows


def _unmarked(states: Int64) -> Int64:
    """The counts of states, and which are of F."""
    rivals = np.where(states[:, 2:] > 0, states[:, 2:] & ~(_BEFORE | _WINDOW), 0)
    return np.column_stack([states[:, 0], states[:, 1] & ~_WINDOW, rivals])


def _keys(rows: Int64) -> UInt64:
    """[N] sums of codes, which do not depend on the order of the rivals."""
    own = none_codes_of(rows[:, 0]) + codes_of(rows[:, 1] << 16)
    keys: UInt64 = own + codes_of(np.arange(int(rows[:, 2:].max(initial=0)) + 1))[rows[:, 2:]].sum(
        axis=1, dtype=np.uint64
    )
    return keys

