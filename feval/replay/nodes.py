"""Nodes: steps of a recorded tree that were handed out to a search, each with the path of steps to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from feval.errors import NotRecordedError, OutOfRangeError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from feval.replay.responses import RecordedLLM

PATH_AGGREGATES = ("last", "min", "prod", "mean")
"""The number that a path is judged by: an aggregate of the scores of its steps."""

# `sum` of Python 3.12 and later rounds otherwise than adding one after the other, as the batch forms do.
_COMBINED: Mapping[str, Callable[[float, float], float]] = {"prod": float.__mul__, "mean": float.__add__}


class Node:
    """A step that was handed out by `MeteredLLM.expand`.

    Attributes:
        parent: the node of the step before; `None` for a first step.
        index: its number among the steps handed out, from 0.
        depth: steps of the path to it, itself included.
        tokens: output tokens of the step.
        path_tokens: output tokens of the path.
    """

    __slots__ = ("_llm", "_row", "depth", "index", "parent", "path_tokens", "place", "tokens")

    def __init__(self, llm: RecordedLLM, row: int, place: int, parent: Node | None, index: int) -> None:
        self._llm, self._row, self.place, self.parent, self.index = llm, row, place, parent, index
        self.tokens = int(llm.pool.output_tokens[row, place])
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.path_tokens: int = self.tokens + (0 if parent is None else parent.path_tokens)

    def __repr__(self) -> str:
        ends = ", ends" if self.ends else ""
        return f"Node({self.index} of {self._llm.name!r}, depth {self.depth}, {self.path_tokens} tokens{ends})"

    @property
    def ends(self) -> bool:
        """Whether it ends a solution."""
        return bool(self._llm.pool.steps().ends[self._row, self.place])

    @property
    def answer(self) -> str | None:
        """The canonical answer of the solution that it ends; `None` for no answer."""
        return self._llm.answers(self._row, (self.place,))[0]

    @property
    def path(self) -> list[Node]:
        """The nodes from the first step to this one."""
        nodes = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        return nodes[::-1]

    @property
    def text(self) -> str | None:
        """The step as the LLM wrote it; `None` where the recording has no text."""
        return self._llm.texts(self._row)[self.place]

    def score(self, scorer: str | None = None, aggregate: str = "last") -> float | None:
        """Return the score of the path; `None` where a step that it takes has none.

        Args:
            scorer: name of the scorer; the only one for `None`.
            aggregate: "last" for the score of this step; "min", "prod" or "mean" of those of all steps of the path.

        Raises:
            UnknownNameError: no such aggregate.
            NotRecordedError: no such scores were recorded.
        """
        if aggregate not in PATH_AGGREGATES:
            raise UnknownNameError.of("aggregate", aggregate, PATH_AGGREGATES)
        scores = self._llm.pool.aggregated(scorer)[self._row]
        values = [float(scores[node.place]) for node in ([self] if aggregate == "last" else self.path)]
        if any(value != value for value in values):
            return None
        combined = reduce(_COMBINED.get(aggregate, min), values)
        return combined / len(values) if aggregate == "mean" else combined


class Growing:
    """The tree of one question, and which of its steps were handed out in one draw: for the meter, not for methods.

    One draw orders all steps of a question; the children of a step come in the order in which they lie there.
    """

    def __init__(self, llm: RecordedLLM, row: int, order: Sequence[int]) -> None:
        self._llm, self._row, self._steps = llm, row, llm.pool.steps()
        self._rank = {place: rank for rank, place in enumerate(order)}
        self._waiting: dict[int, list[int]] = {}
        self._nodes: list[Node] = []

    @property
    def longest(self) -> int:
        """Output tokens of the longest path."""
        return max((node.path_tokens for node in self._nodes), default=0)

    @property
    def places(self) -> list[int]:
        """Recorded places of the steps handed out."""
        return [node.place for node in self._nodes]

    def expand(self, nodes: Sequence[Node | None], k: int) -> list[list[Node]]:
        """Hand out the next k children of each node in turn, `None` being the request; nothing where any lacks some."""
        if k < 1 or k % 1:
            raise OutOfRangeError(f"A node of {self._llm.name} is expanded by 1 step or more; {k!r} were asked for.")
        for node, times in Counter(nodes).items():
            self._check(node, k * times)
        return [[self._next(node) for _ in range(k)] for node in nodes]

    def _check(self, node: Node | None, k: int) -> None:
        if node is not None and (node.index >= len(self._nodes) or self._nodes[node.index] is not node):
            raise UsageError(
                f"{node!r} was not handed out by {self._llm.name} on this question, and cannot be expanded."
            )
        if node is not None and node.ends:
            raise UsageError(f"{node!r} ends a solution and cannot be expanded.")
        place = -1 if node is None else node.place
        recorded = self._steps.children(self._row, place)
        waiting = self._waiting.setdefault(place, sorted(recorded, key=lambda step: -self._rank[step]))
        if k > len(waiting):
            raise NotRecordedError(
                missing_steps(
                    self._llm.name,
                    f"question {self._llm.question_ids[self._row]!r}",
                    place,
                    len(recorded) - len(waiting) + k,
                    len(recorded),
                )
            )

    def _next(self, parent: Node | None) -> Node:
        place = self._waiting[-1 if parent is None else parent.place].pop()
        self._nodes.append(Node(self._llm, self._row, place, parent, len(self._nodes)))
        return self._nodes[-1]


def missing_steps(llm: str, where: str, step: int, asked: int, recorded: int) -> str:
    """Return the sentence about too few steps recorded after one (by its place, -1 for the request)."""
    after = "first steps" if step < 0 else f"steps after step {step} of the tree"
    return (
        f"A search asks {llm} for {asked} {after} on {where}, and {recorded} {'was' if recorded == 1 else 'were'} recorded. "
        "Search with fewer beams, children or particles, or record a larger tree."
    )
