"""Backward induction over what recorded CoTs show: ask the same LLM again, a later one, or stop."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from feval.estimators.arrays import Floats, Integers, Result, Rows, UInt64

VIEWS = ("parties", "counts", "unanimity", "plan")
"""What a decision looks at beside how often each LLM was asked, finest first: of each answer how
often each LLM gave it; the two largest numbers of votes; whether all CoTs gave one answer; nothing.
"""

STOP = -1

Asked = tuple[int, ...]
"""How often each LLM was asked."""

Key = tuple[str, int, Asked, tuple[Any, ...]]
"""View, bin of difficulty, how often each LLM was asked, and the state: such as ((2, 0), (1, 1)) of
parties, (3, 2) of counts, (0,) of unanimity.
"""

Rules = Mapping[Key, int]
"""What a policy does in a state: the place of an LLM to ask, or `STOP`."""

_BIN = np.uint64(0x9E3779B97F4A7C15)  # odd, so that bins stay apart


def keys_of(asked: Asked, votes: Collection[Sequence[int]], number: int = 0) -> list[Key]:
    """The state in each view, finest first, from how often each LLM gave each answer, and the
    number of the bin.
    """
    totals = *sorted(map(sum, votes), reverse=True), 0, 0
    parties = tuple(sorted(map(tuple, votes), reverse=True))
    states = parties, totals[:2], (int(totals[0] == sum(asked)),)
    return [
        *((view, number, asked, state) for view, state in zip(VIEWS, states, strict=False)),
        ("plan", 0, asked, ()),
    ]


def decisive(rules: Rules, keys: Sequence[Key]) -> Key:
    """The finest of some views whose state the rules have; else the last, which they have not."""
    return next((key for key in keys if key in rules), keys[-1])


def last(asked: Asked) -> int:
    """The LLM that was asked last; the first where none was."""
    return max((llm for llm, n in enumerate(asked) if n), default=0)


def after(asked: Asked, llm: int) -> Asked:
    """How often each LLM was asked when one is asked once more."""
    return (*asked[:llm], asked[llm] + 1, *asked[llm + 1 :])


class Seen(Result):
    """What N rows show after the same numbers of CoTs.

    Attributes:
        codes: [3, N] numbers of their states, by view but for the last. Two states of parties have
            the same with a chance of 2^-64.
        right: [N] the gold's share of the lead: 1/m if it is one of m answers that lead.
    """

    codes: UInt64
    right: Floats


class Groups(Result):
    """The states of N rows.

    Attributes:
        of_row: [N] the state of each, from 0.
        keys: of each state.
    """

    of_row: Rows
    keys: list[Key]


class Played(Result):
    """What a policy does on N rows.

    Attributes:
        asked: [L, N] CoTs of each LLM.
        right: [N] the gold's share of the lead.
        cost: [N] what these CoTs cost; 0 where the rows have no costs.
        used: the rules that it came to.
    """

    asked: Rows
    right: Floats
    cost: Floats
    used: dict[Key, int]


class Paths:
    """N rows of CoTs of L LLMs in draw order: what they show and cost, however many are asked for.

    Args:
        codes: of each LLM, [K, N] answer codes, negative for no answer; equal codes of a row are
            equal answers, whichever LLM gives them.
        costs: of each LLM, [K, N] what its next CoT costs; none where nobody asks.
        gold: [N] code of the gold, -1 where there is none.
        question: [N] the number of the question that a row is a draw of.
        bins: [N] bin of the question's predicted difficulty; `None` for one bin.
    """

    def __init__(
        self,
        codes: Sequence[Integers],
        costs: Sequence[Floats],
        gold: Integers,
        question: Rows,
        bins: UInt64 | None = None,
    ) -> None:
        self.codes, self.costs, self.gold, self.question = codes, costs, gold, question
        self.bins = np.zeros(len(gold), np.uint64) if bins is None else bins
        shape = [len(own) + 1 for own in codes]
        self.layers = list(itertools.product(*map(range, shape)))
        self._weights = [int(np.prod(shape[llm + 1 :])) for llm in range(len(codes))]
        bits = np.random.Philox(key=0)
        self._random = bits.random_raw(len(self.layers))  # of how often each LLM gave an answer
        self._seen: dict[Asked, Seen] = {}
        self._groups: dict[Any, Groups] = {}

    def take(self, rows: Rows) -> Paths:
        """Some of the rows."""
        codes, costs = [own[:, rows] for own in self.codes], [own[:, rows] for own in self.costs]
        taken = Paths(codes, costs, self.gold[rows], self.question[rows], self.bins[rows])
        for asked, seen in self._seen.items():
            taken._seen[asked] = Seen(seen.codes[:, rows], seen.right[rows])
        return taken

    def seen(self, asked: Asked, rows: Rows | None = None) -> Seen:
        """What some rows show, or all of them, after so many CoTs of each LLM."""
        if rows is None:
            if asked not in self._seen:
                self._seen[asked] = self.seen(asked, np.arange(len(self.gold)))
            return self._seen[asked]
        drawn = np.concatenate([own[:n, rows] for own, n in zip(self.codes, asked, strict=True)])
        each = np.zeros((len(asked), *drawn.shape), np.uint16)  # votes for each CoT's answer
        earlier = drawn < 0
        for place, llm in enumerate(np.repeat(np.arange(len(asked)), asked).tolist()):
            same = drawn == drawn[place]
            each[llm] += same.astype(np.uint16)
            earlier[place + 1 :] |= same[place + 1 :]
        votes: Rows = each.sum(axis=0, dtype=np.int16)
        party = sum(own * np.int32(n) for own, n in zip(each, self._weights, strict=True))
        votes *= ~earlier  # each answer once
        first = votes.max(axis=0, initial=0)
        leads = (votes == first) & (votes > 0)
        leaders = leads.sum(axis=0)
        second = np.where(leaders > 1, first, (votes * ~leads).max(axis=0, initial=0))
        parties = (self._random[party] * (votes > 0)).sum(axis=0)
        right = (leads & (drawn == self.gold[rows])).sum(axis=0) / np.maximum(leaders, 1)
        counts = (first.astype(np.uint64) << np.uint64(16)) + second.astype(np.uint64)
        codes = np.stack([parties, counts, (first == sum(asked)).astype(np.uint64)])
        return Seen(codes + self.bins[rows] * _BIN, right)

    def keys(self, asked: Asked, row: int) -> list[Key]:
        """The states of a row, see `keys_of`."""
        drawn = [own[:n, row].tolist() for own, n in zip(self.codes, asked, strict=True)]
        answers = {code for own in drawn for code in own if code >= 0}
        votes = [[own.count(code) for own in drawn] for code in answers]
        return keys_of(asked, votes, int(self.bins[row]))

    def groups(self, asked: Asked, views: Sequence[str], least: int) -> Groups:
        """The rows by the finest of some views in which their state is that of `least` questions;
        in the coarsest, of any number. What is taken as a finer state counts in no coarser one.
        """
        key = asked, *views, least
        if key not in self._groups:
            rest, questions = np.arange(len(self.gold)), int(self.question.max()) + 1
            of_row, view_of_row = np.zeros((2, len(rest)), np.intp)
            for view in map(VIEWS.index, views):
                _, own = np.unique(self.seen(asked).codes[view, rest], return_inverse=True)
                # draws of one question are no new data
                pairs = np.unique(own * questions + self.question[rest])
                enough = np.bincount(pairs // questions) >= (
                    0 if view == VIEWS.index(views[-1]) else least
                )
                of_row[rest] = own + of_row.max() + 1
                view_of_row[rest] = view
                rest = rest[~enough[own]]
            _, first, of_row = np.unique(of_row, return_index=True, return_inverse=True)
            keys = [self.keys(asked, row)[view_of_row[row]] for row in first.tolist()]
            self._groups[key] = Groups(of_row, keys)
        return self._groups[key]

    def play(
        self, rules: Rules, rows: Rows, left: Floats | None = None, limits: Sequence[float] = ()
    ) -> Played:
        """Follow rules on some rows [N]; no CoT and no cost is looked at before it is asked for.

        Args:
            rules: of a policy.
            rows: which.
            left: [N] what may be spent on each; `None` for no limit.
            limits: of each LLM, the most that one more CoT is expected to cost: it is not asked for
                where less is left.
        """
        right, cost = np.zeros((2, len(rows)))
        played = Played(np.zeros((len(self.codes), len(rows)), np.intp), right, cost, {})
        going = {self.layers[0]: np.arange(len(rows))}
        while going:
            asked = min(going)  # whatever comes of it comes behind it
            places = going.pop(asked)
            seen = self.seen(asked, rows[places])
            _, first, state = np.unique(seen.codes[0], return_index=True, return_inverse=True)
            states = [self.keys(asked, row) for row in rows[places[first]].tolist()]
            found = [decisive(rules, keys) for keys in states]
            action = np.array([rules.get(key, STOP) for key in found])[state]
            played.used.update((key, rules[key]) for key in found if key in rules)
            for llm, n in enumerate(asked):
                if left is not None:
                    rest = left[places] - played.cost[places]
                    action[(action == llm) & (limits[llm] > rest)] = STOP
                if len(own := places[action == llm]):
                    going[after(asked, llm)] = own
                    if self.costs:
                        played.cost[own] += self.costs[llm][n, rows[own]]
            played.asked[:, places] = np.array(asked)[:, None]
            played.right[places] = seen.right
        return played


def induct(
    paths: Paths, price: float, views: Sequence[str] = VIEWS[:3], least_questions: int = 10
) -> tuple[float, Rules]:
    """The value of the policy that is best on the states of some views, and its rules, by backward
    induction.

    V(s) is the largest of the mean share of right answers where it stops in s, and of the means of
    V after one more CoT, of the LLM asked last or of a later one, less `price` times its cost. A
    state that fewer than `least_questions` questions reach is taken as that of the next coarser
    view. With all parties and `least_questions=1`, the value on all orders of a recording is that
    of the best of all policies.

    Args:
        paths: of training questions.
        price: of a unit of cost, in right answers.
        views: some of `VIEWS` but the last, finest first.
        least_questions: 1 or more.
    """
    values: dict[Asked, Floats] = {}
    rules: dict[Key, int] = {}
    for asked in reversed(paths.layers):
        worth = {STOP: paths.seen(asked).right} if any(asked) else {}
        for llm in range(last(asked), len(asked)):
            if asked[llm] < len(paths.codes[llm]):
                cost = price * paths.costs[llm][asked[llm]]
                worth[llm] = values[after(asked, llm)] - cost
        groups = paths.groups(asked, views, least_questions)
        means = np.array([np.bincount(groups.of_row, own) for own in worth.values()])
        means /= np.bincount(groups.of_row)
        values[asked] = means.max(axis=0)[groups.of_row]
        rules |= zip(groups.keys, np.array([*worth])[means.argmax(axis=0)].tolist(), strict=True)
    return float(values[paths.layers[0]].mean()), rules


def plan_rules(plan: Asked) -> Rules:
    """The rules of a fixed plan: so many CoTs of the first LLM, then of the second, and so on."""
    asked, rules = (0,) * len(plan), {}
    for llm in (llm for llm, n in enumerate(plan) for _ in range(n)):
        rules["plan", 0, asked, ()] = llm
        asked = after(asked, llm)
    return rules
