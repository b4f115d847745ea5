"""Searches over recorded trees, many side by side: steps in draw order, the scores of paths, the
choice of an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from feval.errors import NotRecordedError, UsageError
from feval.estimators.arrays import Numbers
from feval.methods.protocol import (
    BatchMethod,
    Bools,
    Decisions,
    Floats,
    Integers,
    Ledger,
    Pool,
    PoolOrders,
    Pools,
    most_tokens,
)
from feval.methods.vote import best_rated_codes, rated_codes
from feval.replay.source import called, missing_messages, shortage

if TYPE_CHECKING:
    from feval.recording import Steps


Places = npt.NDArray[np.intp]
"""[B, n] steps of B searches: places in their trees, `REQUEST` or `NOBODY`."""

REQUEST = -1
NOBODY = -2

Aggregate = Literal["last", "min", "prod", "mean"]
"""The score of a path, from those of its steps."""

Choice = Literal["best", "majority", "weighted"]
"""The answer among finished paths: of the best score, the most frequent one, or that with the
largest sum of scores.
"""


def path_scores(pool: Pool, scorer: str | None, aggregate: str) -> Floats:
    """[Q, S] the score of the path to each step; NaN where a score that it takes is missing."""
    steps, scores = pool.steps(), pool.aggregated(scorer)
    if aggregate == "last":
        return scores
    combine = {"min": np.minimum, "prod": np.multiply, "mean": np.add}[aggregate]

    def make() -> Floats:
        along: Floats = along_paths(steps, scores, combine)
        return along / path_depths(steps) if aggregate == "mean" else along

    return pool.channels.derived(("paths", scorer, aggregate), make)


def path_depths(steps: Steps) -> Integers:
    """[Q, S] how many steps the path to each step has."""
    return along_paths(steps, np.ones(steps.parents.shape, np.int64), np.add)


def along_paths(steps: Steps, values: Numbers, combine: Callable[[Any, Any], Any]) -> Numbers:
    """[Q, S] the values of the steps of each path, combined from the first step on."""
    combined = values.copy()
    for step in range(values.shape[1]):
        inner = np.flatnonzero(steps.parents[:, step] >= 0)
        before = steps.parents[inner, step].astype(np.intp)
        combined[inner, step] = combine(combined[inner, before], values[inner, step])
    return combined


class Searches:
    """B = R x Q searches of one LLM's trees, in step with each other, and their ledgers.

    The children of a step come in the order in which the draw of all steps has them, as
    `MeteredLLM.expand` hands them out.

    Attributes:
        steps: of the pool.
        question: [B] row of each search's question.
        cots: [B] steps handed out.
    """

    def __init__(self, method: BatchMethod, pools: Pools, orders: PoolOrders) -> None:
        method.draws(len(pools))
        [self._pool], [order] = pools, orders
        self.steps = self._pool.steps()
        questions, width = self.steps.parents.shape
        steps = int(self._pool.sizes.max(initial=0))
        if order.shape[1] != questions or order.shape[2] < steps:
            raise UsageError(
                f"{type(method).__name__} takes orders of all {steps} steps of {questions}"
                f" questions; {order.shape} was given."
            )
        self.shape = order.shape[:2]
        self.question = np.tile(np.arange(questions), self.shape[0])
        parents = self.steps.parents.astype(np.intp)
        present = parents > NOBODY
        self._counts = np.bincount(
            (np.arange(questions)[:, None] * (width + 1) + parents + 1)[present],
            minlength=questions * (width + 1),
        ).reshape(questions, width + 1)
        self._first = np.cumsum(self._counts, axis=1) - self._counts
        rank = np.full((len(self.question), width + 1), width, np.intp)
        places = np.minimum(order.reshape(len(rank), order.shape[2]), width).astype(np.intp)
        np.put_along_axis(
            rank, places, np.broadcast_to(np.arange(order.shape[2]), places.shape), axis=1
        )
        key = np.where(present, parents, width)[self.question] * (width + 1) + rank[:, :width]
        self._children = np.argsort(key, axis=1)
        self._used = np.zeros((len(self.question), width + 1), np.intp)
        self._path_tokens = along_paths(
            self.steps, self._pool.output_tokens.astype(np.int64), np.add
        )
        self._spent = np.zeros((6, len(self.question)), np.int64)
        self._rounds, self.cots, *_ = self._spent

    def of(self, values: Numbers, nodes: Places, otherwise: Any) -> Numbers:
        """[B, n] the values [Q, S] of some steps; `otherwise` where there is none."""
        return np.where(nodes >= 0, values[self.question[:, None], np.maximum(nodes, 0)], otherwise)

    def ends(self, nodes: Places) -> Bools:
        """[B, n] whether steps end solutions."""
        return self.of(self.steps.ends, nodes, 0) > 0

    def roots(self, n: int) -> Places:
        """[B, n] the request, n times; the error of `expand` where that many first steps were not
        recorded.
        """
        self._pool.channels.require_trees()
        return self._requests(n)

    def _requests(self, n: int) -> Places:
        if (lacking := np.flatnonzero(self._counts[:, 0] < n)).size:
            self._refuse(int(lacking[0]), REQUEST, n)
        return np.full((len(self.question), n), REQUEST)

    def _refuse(self, row: int, place: int, asked: int) -> None:
        llm, where = self._pool.llm, self._pool.channels.question(row)
        recorded = int(self._counts[row, place + 1])
        raise shortage(llm, where, self.steps, row, place, asked, recorded)

    def expand(self, nodes: Places) -> Places:
        """One round: the next child of each step, column by column; `NOBODY` has none. A step may
        come in several columns.

        Raises:
            NotRecordedError: a child was not recorded, or turns that reply to whole CoTs were.
        """
        self._pool.channels.require_trees()
        return self._grown(nodes)

    def _grown(self, nodes: Places) -> Places:
        """The same for steps and turns."""
        children = np.full(nodes.shape, NOBODY, np.intp)
        for column in range(nodes.shape[1]):
            search = np.flatnonzero(nodes[:, column] > NOBODY)
            parent, question = nodes[search, column] + 1, self.question[search]
            used = self._used[search, parent]
            if (lacking := np.flatnonzero(used >= self._counts[question, parent])).size:
                which = lacking[0]
                place = int(parent[which]) - 1
                # all that were recorded are handed out before
                asked = int(used[which]) + int((nodes[search[which], column:] == place).sum())
                self._refuse(int(question[which]), place, asked)
            children[search, column] = self._children[search, self._first[question, parent] + used]
            self._used[search, parent] += 1
        tokens = self.of(self._pool.output_tokens, children, 0).astype(np.int64)
        cots, paths = children >= 0, self.of(self._path_tokens, children, 0)
        sequential = most_tokens(tokens, self._pool.at_once)
        self._spent[:4] += cots.any(axis=1), cots.sum(axis=1), tokens.sum(axis=1), sequential
        self._spent[4] = np.maximum(self._spent[4], paths.max(axis=1, initial=0))
        return children

    def first(self, k: int) -> Places:
        """One round: the next k whole CoTs that reply to no other; a `ShortPoolError` where there
        are fewer.
        """
        self._pool.channels.require_turns()
        return self._grown(self._requests(k))

    def reply(self, nodes: Places) -> Places:
        """One round: the next turn that replies to each of some CoTs, all different, with the only
        messages recorded there.

        Raises:
            NotRecordedError: there is none, or there are turns that reply to different messages.
        """
        several = (nodes >= 0) & self.of(self._several, nodes, 0)
        if several.any():
            search, column = np.argwhere(several)[0]
            row = int(self.question[search])
            to = called(self.steps, row, int(nodes[search, column]))
            where = f"{to} of {self._pool.llm} on {self._pool.channels.question(row)}"
            raise NotRecordedError(missing_messages(where, None, None))
        turns = self._grown(nodes)
        self._rounds += np.maximum((turns >= 0).sum(axis=1) - 1, 0)
        self._spent[5] += self.of(self._pool.extra_prompt_tokens(), turns, 0).sum(axis=1)
        return turns

    def recorded(self, nodes: Places) -> Integers:
        """[B, n] how many children of each step were recorded, `REQUEST` for first steps."""
        return np.where(
            nodes > NOBODY, self._counts[self.question[:, None], np.maximum(nodes, REQUEST) + 1], 0
        )

    @cached_property
    def _several(self) -> Bools:
        """[Q, S] whether turns that reply to a step do so with different messages."""
        several, turns = np.zeros(self.steps.parents.shape, np.bool_), self.steps.turns
        if turns is not None:
            parents = self.steps.parents
            row, place = np.nonzero(
                (parents[:, 1:] == parents[:, :-1])
                & (parents[:, 1:] >= 0)
                & (turns[:, 1:] != turns[:, :-1])
            )
            several[row, parents[row, place]] = True
        return several

    def scored(self, steps: Places, scores: Floats) -> tuple[Integers, Floats]:
        """[B, n] answer codes and scores of steps; one without an answer or a score has neither."""
        return rated_codes(self.of(self._pool.codes, steps, -1), self.of(scores, steps, np.nan))

    def decisions(self, answers: Integers, members: Places) -> Decisions:
        """The answers [B] with the ledgers, and the steps [B, n] that may have given them."""
        rounds, cots, tokens, *latency, beyond = self._spent.reshape(6, *self.shape)
        extra = None if self.steps.turns is None else beyond
        ledger = Ledger(rounds, cots, tokens, None, extra, None, *latency)
        own = members.reshape(*self.shape, members.shape[1])
        return Decisions(answers.reshape(self.shape), (ledger,), own)

    def best(self, steps: Places, codes: Integers, scores: Floats) -> Decisions:
        """The answer of the best of some steps [B, n]."""
        first = scores == np.fmax.reduce(scores, axis=1, keepdims=True)
        return self.decisions(best_rated_codes(codes, scores), np.where(first, steps, NOBODY))
