"""Nodes: steps of a recorded tree that were handed out to a search, each with the path of steps to
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Self

from feval.errors import (
    NotRecordedError,
    OutOfRangeError,
    ShortPoolError,
    UnknownNameError,
    UsageError,
)
from feval.replay.turns import MessageList, called, few_first_cots, few_turns, turn_number

if TYPE_CHECKING:
    from feval.replay.responses import RecordedLLM

PATH_AGGREGATES = ("last", "min", "prod", "mean")
"""The number that a path is judged by: an aggregate of the scores of its steps."""

# `sum` of Python 3.12 and later rounds otherwise than adding one after the other, as the batch
# forms do.
_COMBINED: Mapping[str, Callable[[float, float], float]] = {
    "prod": float.__mul__,
    "mean": float.__add__,
}


class PathNode:
    """A step that was handed out, recorded or live.

    Attributes:
        parent: the node of the step before; `None` for a first step.
        index: its number among the steps handed out, from 0.
        depth: steps of the path to it, itself included.
        tokens: output tokens of the step.
        path_tokens: output tokens of the path.
        ends: whether it ends a solution.
    """

    __slots__ = ("_owner", "depth", "ends", "index", "parent", "path_tokens", "tokens")

    def __init__(
        self, owner: str, parent: Self | None, index: int, tokens: int, *, ends: bool
    ) -> None:
        self._owner, self.parent, self.index, self.tokens, self.ends = (
            owner,
            parent,
            index,
            tokens,
            ends,
        )
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.path_tokens: int = tokens + (0 if parent is None else parent.path_tokens)

    def __repr__(self) -> str:
        ends = ", ends" if self.ends else ""
        name = type(self).__name__
        return (
            f"{name}({self.index} of {self._owner!r}, depth {self.depth}, {self.path_tokens}"
            f" tokens{ends})"
        )

    @property
    def path(self) -> list[Self]:
        """The nodes from the first step to this one."""
        nodes = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        return nodes[::-1]

    def score(self, scorer: str | None = None, aggregate: str = "last") -> float | None:
        """Return the score of the path; `None` where a step that it takes has none.

        Args:
            scorer: name of the scorer; the only one for `None`.
            aggregate: "last" for the score of this step; "min", "prod" or "mean" of those of all
                steps of the path.

        Raises:
            UnknownNameError: no such aggregate.
            NotRecordedError: there are no such scores.
        """
        if aggregate not in PATH_AGGREGATES:
            raise UnknownNameError.of("aggregate", aggregate, PATH_AGGREGATES)
        values = self._scores([self] if aggregate == "last" else self.path, scorer)
        if any(value != value for value in values):
            return None
        combined = reduce(_COMBINED.get(aggregate, min), values)
        return combined / len(values) if aggregate == "mean" else combined

    def _scores(self, nodes: Sequence[Self], scorer: str | None) -> list[float]:
        """The scores of some nodes; NaN for none."""
        raise NotImplementedError


class Node(PathNode):
    """A step that was handed out by `MeteredLLM.expand`."""

    __slots__ = ("_llm", "_row", "place")

    def __init__(
        self, llm: RecordedLLM, row: int, place: int, parent: Node | None, index: int
    ) -> None:
        tokens, ends = (
            int(llm.pool.output_tokens[row, place]),
            bool(llm.pool.steps().ends[row, place]),
        )
        super().__init__(llm.name, parent, index, tokens, ends=ends)
        self._llm, self._row, self.place = llm, row, place

    @property
    def answer(self) -> str | None:
        """The canonical answer of the solution that it ends; `None` for no answer."""
        return self._llm.answers(self._row, (self.place,))[0]

    @property
    def text(self) -> str | None:
        """The step as the LLM wrote it; `None` where the recording has no text."""
        return self._llm.texts(self._row)[self.place]

    def _scores(self, nodes: Sequence[Node], scorer: str | None) -> list[float]:
        scores = self._llm.pool.aggregated(scorer)[self._row]
        return [float(scores[node.place]) for node in nodes]


def require_expandable(
    llm: str, nodes: Iterable[PathNode | None], handed_out: Sequence[PathNode]
) -> None:
    """Raise a `UsageError` if a node ends a solution, or was not handed out on this question."""
    for node in nodes:
        if node is not None and (
            node.index >= len(handed_out) or handed_out[node.index] is not node
        ):
            raise UsageError(
                f"{node!r} was not handed out by {llm} on this question, and cannot be expanded."
            )
        if node is not None and node.ends:
            raise UsageError(f"{node!r} ends a solution and cannot be expanded.")


class Growing:
    """The tree of one question, and which of its steps were handed out in one draw: for the meter,
    not for methods.

    One draw orders all steps of a question; the children of a step come in the order in which they
    lie there, and so do the turns that reply to a CoT with the same messages.
    """

    def __init__(self, llm: RecordedLLM, row: int, order: Sequence[int]) -> None:
        self._llm, self._row, self._steps = llm, row, llm.pool.steps()
        self._rank = {place: rank for rank, place in enumerate(order)}
        self._waiting: dict[tuple[int, int | None], list[int]] = {}
        self._nodes: list[Node] = []
        self._by_place: dict[int, Node] = {}

    @property
    def longest(self) -> int:
        """Output tokens of the longest path."""
        return max((node.path_tokens for node in self._nodes), default=0)

    @property
    def places(self) -> list[int]:
        """Recorded places of the steps handed out."""
        return [node.place for node in self._nodes]

    def expand(self, nodes: Sequence[Node | None], k: int) -> list[list[Node]]:
        """Hand out the next k children of each node in turn, `None` being the request; nothing
        where any lacks some.
        """
        if k < 1 or k % 1:
            raise OutOfRangeError(
                f"A node of {self._llm.name} is expanded by 1 step or more; {k!r} were asked for."
            )
        self._llm.pool.channels.require_trees()
        require_expandable(self._llm.name, nodes, self._nodes)
        for node, times in Counter(nodes).items():
            place = -1 if node is None else node.place
            asked, recorded = self._asked(place, None, k * times)
            if asked > recorded:
                where = f"question {self._llm.question_ids[self._row]!r}"
                raise NotRecordedError(missing_steps(self._llm.name, where, place, asked, recorded))
        return [[self._next(node, None) for _ in range(k)] for node in nodes]

    def first(self, k: int) -> list[Node]:
        """Hand out the next k whole CoTs that reply to nothing; a `ShortPoolError` where there are
        fewer.
        """
        asked, recorded = self._asked(-1, None, k)
        if asked > recorded:
            question = f"question {self._llm.question_ids[self._row]!r}"
            raise ShortPoolError(few_first_cots(self._llm.name, question, asked, recorded))
        return [self._next(None, None) for _ in range(k)]

    def reply(
        self, places: Sequence[int], messages: Sequence[MessageList | None], k: int
    ) -> list[list[Node]]:
        """Hand out the next k turns that reply to each of some CoTs in turn with its messages;
        nothing where any lacks some.
        """
        parents = [self._by_place[place] for place in places]
        numbers = [
            turn_number(self._llm, self._row, *each) for each in zip(places, messages, strict=True)
        ]
        for (place, number), times in Counter(zip(places, numbers, strict=True)).items():
            asked, recorded = self._asked(place, number, k * times)
            if asked > recorded:
                to = called(self._steps, self._row, place)
                question = f"question {self._llm.question_ids[self._row]!r}"
                raise NotRecordedError(few_turns(self._llm.name, question, to, asked, recorded))
        return [
            [self._next(*each) for _ in range(k)] for each in zip(parents, numbers, strict=True)
        ]

    def _asked(self, place: int, number: int | None, k: int) -> tuple[int, int]:
        """How many children of a step, all or those that reply to some messages, k more make, and
        how many were recorded.
        """
        children, turns = self._steps.children(self._row, place), self._steps.turns
        recorded = [
            step
            for step in children
            if number is None or turns is None or turns[self._row, step] == number
        ]
        waiting = self._waiting.setdefault(
            (place, number), sorted(recorded, key=lambda step: -self._rank[step])
        )
        return len(recorded) - len(waiting) + k, len(recorded)

    def _next(self, parent: Node | None, number: int | None) -> Node:
        place = self._waiting[-1 if parent is None else parent.place, number].pop()
        self._nodes.append(Node(self._llm, self._row, place, parent, len(self._nodes)))
        self._by_place[place] = self._nodes[-1]
        return self._nodes[-1]

    def __contains__(self, place: object) -> bool:
        return place in self._by_place


def missing_steps(llm: str, where: str, step: int, asked: int, recorded: int) -> str:
    """Return the sentence about too few steps recorded after one (by its place, -1 for the
    request).
    """
    after = "first steps" if step < 0 else f"steps after step {step} of the tree"
    return (
        f"A search asks {llm} for {asked} {after} on {where}, and {recorded}"
        f" {'was' if recorded == 1 else 'were'} recorded. Search with fewer beams, children or"
        " particles, or record a larger tree."
    )
