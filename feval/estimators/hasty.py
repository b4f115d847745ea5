"""Stops that were too early, over all orders of a pool: the answer is wrong, and the vote over the whole budget would be right.

Of tied answers the one drawn first wins, in the vote of the stop and in that over the whole budget B, as in replicates. Both look
at the same draws, so that what breaks one tie is not independent of what breaks the other.

Let V be how often each candidate occurs in B draws, F the f candidates that lead, and c the first of F to be drawn: the answer of
the whole budget. Given V all orders are equally likely, and a rule that treats candidates alike treats those of F alike. So

    P[gold = c, the stop answers something else] = sum over V with the gold in F  P(V) (1 - A(V) - N(V)) / f

with A(V) = P[the stop answers c | V] and N(V) = P[it has no answer | V]. Where the pool is the budget there is one V, its own. If
one answer leads there alone, then what is neither right nor without an answer was stopped too early, and nothing is left to do.

Else call some g of F the gold. A(V) / f is the probability that g is drawn before the others of F and is what the stop answers.
It is found by following all orders of V at once, draw by draw: a state is how often each candidate was drawn, the next draw is
candidate a with probability (V_a - v_a) / (B - n), states that have stopped leave, and those in which another of F came before g
are dropped. Candidates that V has equally often are lumped. Where a stop may find g tied with a candidate outside F, it is noted
which of them came before g; and in windows (ESC), whose answer all draws of the window have had so far. Candidates that cannot
fill a window are as good as no answer there. The sum is feval's own (no paper states it); `tests/test_exact_errors.py` holds it
against the enumeration of all orders. Every term is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.orders import codes_of

__all__ = ["MOST_STATES", "Stops", "Whole", "met"]

Integers = npt.NDArray[np.integer[Any]]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

MOST_STATES = 20_000_000
"""That are followed for one evaluation: some ten seconds."""

_AT_ONCE = 64  # whole budgets

# A candidate's column: 8 votes + 2 [drawn before the gold] + 1 [all of this window], below its place among unlike columns.
_VOTE, _BEFORE, _WINDOW, _PLACE = 8, 2, 1, 1 << 20
_NONE, _GOLD, _FIRST = 1, 2, 3  # columns of a state; column 0 is whose it is


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


def met(whole: Whole, stops: Stops, *, at_budget: bool = True) -> Floats | None:
    """Probability that a stop answers the gold, drawn first among those it ties with in the end.

    Args:
        whole: N counts of the whole budget.
        stops: the rule.
        at_budget: count what goes on to the budget, where the gold is the answer if it is drawn first among those that lead.

    Returns:
        [N] probabilities; `None` where more than `MOST_STATES` states would have to be followed.
    """
    found, left = np.zeros(len(whole.gold)), MOST_STATES
    for start in range(0, len(found), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        part = Whole(whole.none[some], whole.gold[some], whole.rivals[some], whole.tied[some])
        for before in (False, True):
            chain = _Chain.of(part, stops, before=before)
            own = chain.met(at_budget=at_budget, most=left)
            left -= chain.followed
            if left < 0:
                return None
            if own is not None:
                found[some] = own
                break
    return found


class _Chain:
    """All orders of some whole budgets, draw by draw.

    Args:
        stops: the rule.
        recorded: [N, 3 + K] the index, and how often everything is drawn in the end; see the columns of states.
        tied: [N, K] which rivals lead with the gold.
        place: [N, K] of the columns, falling; equal for rivals that are alike.
        noted: [N, K] rivals of which it matters whether they come before the gold.
    """

    def __init__(self, stops: Stops, recorded: Int64, tied: Bools, place: Int64, noted: Bools) -> None:
        self.stops, self.recorded, self.tied, self.place, self.noted = stops, recorded, tied, place, noted
        self.followed = 0
        self.factors = codes_of(np.arange(1, recorded.shape[1] + 1)) | np.uint64(1)

    @classmethod
    def of(cls, whole: Whole, stops: Stops, *, before: bool) -> _Chain:
        """With what makes no difference left out."""
        none, rivals = whole.none.astype(np.int64), whole.rivals.astype(np.int64)
        if stops.window:
            small = (rivals < stops.window) & ~whole.tied
            none, rivals = none + (rivals * small).sum(axis=1), np.where(small, 0, rivals)
        kind = 2 * rivals + (whole.tied & (rivals > 0))
        columns = np.argsort(-kind, axis=1, kind="stable")
        kind, rivals = np.take_along_axis(kind, columns, axis=1), np.take_along_axis(rivals, columns, axis=1)
        used = kind.any(axis=0)
        kind, rivals = kind[:, used], rivals[:, used]
        tied = kind % 2 == 1
        recorded = np.column_stack([np.arange(len(none)), none, whole.gold, rivals])
        return cls(stops, recorded, tied, kind * _PLACE, (rivals > 0) & ~tied & before)

    def met(self, *, at_budget: bool, most: int) -> Floats | None:
        """[N] see above; `None` if a stop finds the gold tied, and it was not noted who came before it."""
        states = self.recorded.copy()
        states[:, _NONE:] = 0
        states[:, _FIRST:] = self.place
        reach: Floats = np.ones(len(states))
        found: Floats = np.zeros(len(states))
        for drawn in range(1, self.stops.budget + 1):
            states, reach = self._one_more(states, reach, drawn)
            self.followed += len(states)
            if self.followed > most or not len(states):
                break
            if drawn == self.stops.budget:
                np.add.at(found, states[:, 0], reach * at_budget)
                break
            stop = self._stop(states, drawn)
            wins, tied = self._wins(states)
            if bool((tied & (stop > 0)).any()):
                return None
            np.add.at(found, states[:, 0], reach * stop * wins)
            going = stop < 1
            states, reach = states[going], (reach * (1 - stop))[going]
        return found

    def _stop(self, states: Int64, drawn: int) -> Floats:
        """[N] probability to stop at some states."""
        if self.stops.chance is None:
            agrees: Int64 = (states[:, _GOLD:] & _WINDOW).max(axis=1)
            return (agrees * int(drawn % self.stops.window == 0)).astype(np.float64)
        counts = -np.sort(-(states[:, _GOLD:] % _PLACE // _VOTE), axis=1)
        return self.stops.chance(counts[:, : max(int((counts > 0).sum(axis=1).max(initial=0)), 1)], drawn)

    def _wins(self, states: Int64) -> tuple[Bools, Bools]:
        """[N] whether a stop answers the gold, and whether that cannot be told."""
        own, whose = states[:, _GOLD], states[:, 0]
        if self.stops.of_window:
            return (own & _WINDOW) > 0, np.zeros(len(own), np.bool_)
        votes, gold = states[:, _FIRST:] % _PLACE // _VOTE, own // _VOTE
        leads = (gold > 0) & (votes <= gold[:, None]).all(axis=1)
        equal = (votes == gold[:, None]) & leads[:, None] & ~self.tied[whose]
        lost = (equal & ((states[:, _FIRST:] & _BEFORE) > 0)).any(axis=1)
        return leads & ~lost, (equal & ~self.noted[whose]).any(axis=1)

    def _one_more(self, states: Int64, reach: Floats, drawn: int) -> tuple[Int64, Floats]:
        """The states after one more draw, each once."""
        grown, chances = [], []
        for column in range(_NONE, states.shape[1]):
            left, some = self._left(states, column)
            if len(some):
                grown.append(self._grown(states[some], column, drawn))
                chances.append(reach[some] * left / (self.stops.budget - drawn + 1))
        if not grown:
            return states[:0], reach[:0]
        together, chance = np.concatenate(grown), np.concatenate(chances)
        keys = together.astype(np.uint64) @ self.factors
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        if not (together == together[first][place.ravel()]).all():
            raise AssertionError("two states share a key")
        sums = np.bincount(place.ravel(), chance, minlength=len(first)).astype(np.float64)
        return together[first], sums

    def _left(self, states: Int64, column: int) -> tuple[Int64, Rows]:
        """How many draws of the candidate in a column are to come, and of those like it; and of which states, where there are."""
        whose, held = states[:, 0], states[:, column]
        votes = held if column == _NONE else held % _PLACE // _VOTE
        left = self.recorded[whose, column] - votes
        if column >= _FIRST:
            left = left * (states[:, _FIRST:] == held[:, None]).sum(axis=1)
            alike = states[:, column - 1] == held if column > _FIRST else np.zeros(len(held), np.bool_)
            early = self.tied[whose, column - _FIRST] & (states[:, _GOLD] == 0)
            left = np.where(alike | early, 0, left)
        some = np.flatnonzero(left > 0)
        return left[some], some

    def _grown(self, states: Int64, column: int, drawn: int) -> Int64:
        """States with one more draw of a column."""
        window = self.stops.window
        more = states.copy()
        if column == _NONE:
            more[:, _NONE] += 1
            more[:, _GOLD:] &= ~_WINDOW
            return more
        if column >= _FIRST:
            unseen = (states[:, column] % _PLACE == 0) & (states[:, _GOLD] == 0)
            more[:, column] += _BEFORE * (unseen & self.noted[states[:, 0], column - _FIRST])
        more[:, column] += _VOTE
        if window and (drawn - 1) % window == 0:
            more[:, column] += _WINDOW
        elif window:
            more[(more[:, column] & _WINDOW) == 0, _GOLD:] &= ~_WINDOW
        more[:, _FIRST:] = -np.sort(-more[:, _FIRST:], axis=1)
        return more
