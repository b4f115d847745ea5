"""Steps of a live LLM: a search asks for them path by path, as `feval record --tree` does for all
paths, with the same seeds.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from feval.answers.thoughts import Thoughts
from feval.cards.tokens import count_words
from feval.errors import NotRecordedError
from feval.recording import Question
from feval.recording.steps import path_texts
from feval.replay.nodes import PathNode, require_expandable
from recorders.asking.trees import Place, Tree, child_seed, root
from recorders.request import Completion, Request
from recorders.scoring.scores import Item, Score, Scorer


class LiveNode(PathNode):
    """A live step; see `feval.replay.nodes.Node`, whose attributes it has.

    Attributes:
        text: the step as the LLM wrote it.
        answer: voting key of the solution that it ends; `None` for no answer.
    """

    __slots__ = ("_rated", "answer", "text")

    def __init__(
        self,
        owner: str,
        parent: LiveNode | None,
        index: int,
        tokens: int,
        text: str,
        answer: str | None,
        *,
        ends: bool,
    ) -> None:
        super().__init__(owner, parent, index, tokens, ends=ends)
        self.text, self.answer = text, answer
        self._rated: tuple[str, Score] | None = None

    def _scores(self, nodes: Sequence[LiveNode], scorer: str | None) -> list[float]:
        return [node._score_by(scorer) for node in nodes]  # noqa: SLF001  of its own class

    def _score_by(self, scorer: str | None) -> float:
        name, score = self._rated or ("", Score())
        if not name or scorer not in {None, name}:
            by, found = (
                "" if scorer is None else f" by {scorer!r}",
                f"it is scored by {name!r}" if name else "it has none",
            )
            raise NotRecordedError(
                f"A search asks for scores{by} of the steps of the live {self._owner}, and {found}."
                " Name that scorer, or give `live` another, such as"
                " scorer=make_scorer('python:my_scorers:steps_so_far')."
            )
        if score.score is None and score.step_scores is not None:
            raise NotRecordedError(
                f"The scorer {name!r} gave step scores, and a path of {self._owner} needs one; take"
                " a scorer of whole texts."
            )
        return math.nan if score.score is None else score.score


@dataclass(frozen=True, slots=True)
class Rating:
    """How the paths of one question are scored: `insist` repeats what fails for a while."""

    scorer: Scorer
    question: Question
    prompt: str
    insist: Callable[[Callable[[], Awaitable[list[Score]]], str], Awaitable[list[Score]]]

    async def rate(self, steps: Sequence[LiveNode], stop: str) -> None:
        """Give each step the score of the path to it, which `feval score` has as one text, too."""
        scorer, items = self.scorer, [self._item(step, stop) for step in steps]
        batches = [
            items[start : start + scorer.batch] for start in range(0, len(items), scorer.batch)
        ]
        turn = asyncio.Semaphore(scorer.concurrency or len(batches) or 1)

        async def one(batch: Sequence[Item]) -> list[Score]:
            async with turn:
                return await self.insist(lambda: scorer.score(batch), scorer.info.name)

        scores = chain.from_iterable(await asyncio.gather(*map(one, batches)))
        for step, score in zip(steps, scores, strict=True):
            step._rated = scorer.info.name, score  # noqa: SLF001  of this module

    def _item(self, step: LiveNode, stop: str) -> Item:
        texts = [node.text for node in step.path]
        *_, text = path_texts(texts, [None, *range(len(texts) - 1)], stop)
        return Item(self.question, text or "", step.answer, self.prompt)


@dataclass(slots=True)
class _Point:
    """Where a path stands: its place, the number of each step among its siblings, and how many
    children were asked for.
    """

    place: Place
    path: tuple[int, ...] = ()
    children: int = 0


class Expanding:
    """The steps handed out on one question: for the meter, not for methods.

    Args:
        owner: the LLM's name.
        tree: depth, stop text and template; its numbers of children are of recordings.
        request: of the question.
        thoughts: how the LLM marks them.
        ask: sends a request for children, by what their seeds add to the base seed.
        read: returns the answer in a solution's last step.
        rating: scores each path; `None` without a scorer.
    """

    def __init__(
        self,
        owner: str,
        tree: Tree,
        request: Request,
        thoughts: Thoughts | None,
        ask: Callable[[Request, Sequence[int]], Awaitable[list[Completion]]],
        read: Callable[[str, str], str | None],
        rating: Rating | None,
    ) -> None:
        self._owner, self._tree, self._request, self._thoughts = owner, tree, request, thoughts
        self._ask, self._read, self._rating = ask, read, rating
        self._points: dict[LiveNode | None, _Point] = {None: _Point(root(request))}
        self._nodes: list[LiveNode] = []

    async def expand(self, nodes: Sequence[LiveNode | None], k: int) -> list[list[LiveNode]]:
        """Ask for the next k children of each node in turn, `None` being the request, all at
        once.
        """
        require_expandable(self._owner, nodes, self._nodes)
        counts = {node: k * times for node, times in Counter(nodes).items()}
        replies = await asyncio.gather(
            *(self._children(self._points[node], count) for node, count in counts.items())
        )
        waiting = {node: iter(own) for node, own in zip(counts, replies, strict=True)}
        known, points = len(self._nodes), list[_Point]()
        steps = [
            [self._made(node, *next(waiting[node]), known + len(points), points) for _ in range(k)]
            for node in nodes
        ]
        made = [step for own in steps for step in own]
        if self._rating is not None:
            await self._rating.rate(made, self._tree.stop)
        self._nodes += made
        self._points.update(zip(made, points, strict=True))
        for node, count in counts.items():
            self._points[node].children += count
        return steps

    async def _children(self, point: _Point, count: int) -> list[tuple[int, Completion]]:
        numbers = range(point.children, point.children + count)
        request = self._tree.continued(self._request, point.place, self._thoughts)
        replies = await self._ask(request, [child_seed(point.path, number) for number in numbers])
        self._tree.require_continuable(replies, is_last=point.place.level + 1 == self._tree.depth)
        return list(zip(numbers, replies, strict=True))

    def _made(
        self,
        parent: LiveNode | None,
        number: int,
        reply: Completion,
        index: int,
        points: list[_Point],
    ) -> LiveNode:
        before, record = self._points[parent], asdict(reply) | {"sample": index}
        place, ends = self._tree.behind(before.place, record, self._thoughts)
        points.append(_Point(place, (*before.path, number)))
        text = self._tree.text(record)
        tokens = count_words(reply.text) if reply.output_tokens is None else reply.output_tokens
        answer = self._read(text, reply.finish_reason) if ends else None
        return LiveNode(self._owner, parent, index, tokens, text, answer, ends=ends)
