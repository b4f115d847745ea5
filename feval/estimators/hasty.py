"""Stops that were too early, over all orders of a pool: the answer is wrong, and the vote over the whole budget would be right.

Of tied answers the one drawn first wins, in the vote of the stop and in that over the whole budget B, as in replicates. Both look
at the same draws, so that what breaks one tie is not independent of what breaks the other.

Let V be how often each candidate occurs in B draws, F the f candidates that lead, and c the first of F to be drawn: the answer of
the whole budget. Given V all orders are equally likely, and a rule that treats candidates alike treats those of F alike. So

    P[gold = c, the stop answers something else] = sum over V with the gold in F  P(V) (1 - A(V) - N(V)) / f

with A(V) = P[the stop answers c | V] and N(V) = P[it has no answer | V]. Where the pool is the budget there is one V, its own. If
one answer leads there alone, then what is neither right nor without an answer was stopped too early, and nothing is left to do.

Else call some g of F the gold. A(V) / f is the probability that g is drawn before the others of F and is what the stop
answers. It is found by following all orders of V at once, draw by draw: a state is how often each candidate was drawn,
the next draw is candidate a with probability (V_a - v_a) / (B - n), states that have stopped leave, and those in which
another of F came before g are dropped. Candidates that V has equally often are lumped, questions with the same counts
are one, and a state from which no stop before the budget can be reached is not followed: it ends at the budget, where g
is the answer. Where a stop may find g tied with a candidate outside F, it is noted which of them came before g; and in
windows (ESC), whose answer all draws of the window have had so far. Candidates that cannot fill a window are as good as
no answer there. The sum is feval's own (no paper states it); `tests/test_exact_errors.py` holds it against the
enumeration of all orders. Every term is positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.estimators.orders import codes_of, latest_stops
from feval.estimators.per_question import distinct

__all__ = ["MOST_COUNTS", "Stops", "Whole", "met"]

Integers = npt.NDArray[np.integer[Any]]
Int64 = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]

MOST_COUNTS = 30_000_000
"""That are followed for one evaluation, a state being as many as it has candidates: some seconds."""

_AT_ONCE = 64  # whole budgets
_COUNTS_AT_ONCE = 1_000_000  # some hundred megabytes

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
        certain: where the chance to stop is not 0 it is 1.
    """

    budget: int
    chance: Callable[[Integers, int], Floats] | None = None
    window: int = 0
    of_window: bool = False
    certain: bool = True


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

    feval's own: a forward walk over the counts of a draw without replacement, with who came first among the tied. Assumes all
    orders of the recorded CoTs equally likely.

    Args:
        whole: N counts of the whole budget.
        stops: the rule.
        at_budget: count what goes on to the budget, where the gold is the answer if it is drawn first among those that lead.

    Returns:
        [N] probabilities; `None` where more than `MOST_COUNTS` counts would have to be followed.
    """
    first, rows = distinct((whole.none, whole.gold, *whole.rivals.T, *whole.tied.T.astype(np.int64)))
    found, left = np.zeros(len(first)), MOST_COUNTS
    latest = _latest(whole, stops)
    for start in range(0, len(found), _AT_ONCE):
        some = first[start : start + _AT_ONCE]
        part = Whole(whole.none[some], whole.gold[some], whole.rivals[some], whole.tied[some])
        for before in (False, True):
            chain = _Chain.of(part, stops, latest, before=before)
            own = chain.met(at_budget=at_budget, most=left)
            left -= chain.followed
            if left < 0:
                return None
            if own is not None:
                found[start : start + _AT_ONCE] = own
                break
    return found[rows]


def _latest(whole: Whole, stops: Stops) -> Integers | None:
    """See `latest_stops`; `None` where it is of no use."""
    if stops.chance is None or not stops.certain or not len(whole.gold):
        return None
    chance = stops.chance
    counts = -np.sort(-np.column_stack([whole.gold, whole.rivals]).astype(np.int64), axis=1)
    bounds = np.concatenate([[whole.none.max()], counts.max(axis=0)]).astype(np.int64)
    return latest_stops(
        lambda votes, drawn: chance(votes, drawn) > 0, bounds[: 2 + np.count_nonzero(bounds[2:])], stops.budget
    )


class _Chain:
    """All orders of some whole budgets, draw by draw.

    Args:
        stops: the rule.
        latest: until when it may stop, see `latest_stops`; `None` where not known.
        recorded: [N, 3 + K] the index, and how often everything is drawn in the end; see the columns of states.
        tied: [N, K] which rivals lead with the gold.
        place: [N, K] of the columns, falling; equal for rivals that are alike.
        noted: [N, K] rivals of which it matters whether they come before the gold.
    """

    def __init__(
        self, stops: Stops, latest: Integers | None, recorded: Int64, tied: Bools, place: Int64, noted: Bools
    ) -> None:
        self.stops, self.latest, self.recorded = stops, latest, recorded
        self.tied, self.place, self.noted = tied, place, noted
        self.followed = 0
        self.factors = codes_of(np.arange(1, recorded.shape[1] + 1)) | np.uint64(1)

    @classmethod
    def of(cls, whole: Whole, stops: Stops, latest: Integers | None, *, before: bool) -> _Chain:
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
        return cls(stops, latest, recorded, tied, kind * _PLACE, (rivals > 0) & ~tied & before)

    def met(self, *, at_budget: bool, most: int) -> Floats | None:
        """[N] see above; `None` if a stop finds the gold tied, and it was not noted who came before it, or past `most` counts."""
        states = self.recorded.copy()
        states[:, _NONE:] = 0
        states[:, _FIRST:] = self.place
        found: Floats = np.zeros(len(states))
        waiting: list[tuple[Int64, Floats, int]] = [(states, np.ones(len(states)), 1)]
        while waiting:
            states, reach, drawn = waiting.pop()
            draws = self._draws(states)
            counts = sum(len(some) for _, some in draws) * states.shape[1]
            if (
                counts > _COUNTS_AT_ONCE and len(states) > 1
            ):  # halves share no memory, and what they have in common is merged in neither
                half = len(states) // 2
                waiting += [(states[:half], reach[:half], drawn), (states[half:], reach[half:], drawn)]
                continue
            self.followed += counts
            if self.followed > most:
                return None
            states, reach = self._one_more(states, reach, draws, drawn)
            if drawn == self.stops.budget:
                np.add.at(found, states[:, 0], reach * at_budget)
                continue
            stop = self._stop(states, drawn)
            wins, tied = self._wins(states)
            if bool((tied & (stop > 0)).any()):
                return None
            np.add.at(found, states[:, 0], reach * stop * wins)
            reach = reach * (1 - stop)
            follow = (stop < 1) & self._may_stop(states, drawn)
            over = (stop < 1) & ~follow
            np.add.at(found, states[over, 0], (reach * self._first_of_tied(states))[over] * at_budget)
            if follow.any():
                waiting.append((states[follow], reach[follow], drawn + 1))
        return found

    def _may_stop(self, states: Int64, drawn: int) -> Bools:
        """[N] whether a stop before the budget may follow; true where not known."""
        if self.stops.window:
            return self._window_to_come(states, drawn)
        if self.latest is None:
            return np.full(len(states), drawn + 1 < self.stops.budget)
        counts = np.sort(states[:, _GOLD:] % _PLACE // _VOTE, axis=1)
        second = counts[:, -2] if counts.shape[1] > 1 else np.zeros(len(counts), np.int64)
        may: Bools = self.latest[counts[:, -1], second] > drawn
        return may

    def _window_to_come(self, states: Int64, drawn: int) -> Bools:
        """[N] whether a window that ends before the budget may yet agree."""
        window, budget = self.stops.window, self.stops.budget
        rest = -drawn % window
        left = self.recorded[states[:, 0], _GOLD:] - states[:, _GOLD:] % _PLACE // _VOTE
        may = np.zeros(len(states), np.bool_)
        if drawn + rest + window < budget:
            may |= (left >= window).any(axis=1)
        if rest and drawn + rest < budget:
            may |= ((left >= rest) & ((states[:, _GOLD:] & _WINDOW) > 0)).any(axis=1)
        return may

    def _first_of_tied(self, states: Int64) -> Floats:
        """[N] probability that the gold comes first of those that lead in the end: it did, or none has been drawn."""
        leaders = 1 + self.tied[states[:, 0]].sum(axis=1)
        return np.where(states[:, _GOLD] > 0, 1.0, 1.0 / leaders)

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

    def _draws(self, states: Int64) -> list[tuple[Int64, Rows]]:
        """Of each column, see `_left`."""
        return [self._left(states, column) for column in range(_NONE, states.shape[1])]

    def _one_more(
        self, states: Int64, reach: Floats, draws: list[tuple[Int64, Rows]], drawn: int
    ) -> tuple[Int64, Floats]:
        """The states after one more draw, each once."""
        grown, chances = [], []
        for column, (left, some) in enumerate(draws, _NONE):
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
