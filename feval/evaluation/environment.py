"""An environment for learning how to spend a budget of CoTs, in the manner of TREACLE (arXiv
2404.13082).

An episode is a run of questions with one budget. At each step a policy asks the current LLM again,
moves on to the next LLM and asks it, or stops with the plurality of the answers so far. Steps
return what Gymnasium's do (observation, reward, terminated, truncated, info), so that its wrappers
and learners fit; Gymnasium itself is not needed. All CoTs are recorded, drawn by scheme draws-v1,
so training costs nothing. Train on some rows and evaluate `as_method` on others
(`train_test_rows`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.arguments import checked
from feval.errors import OutOfRangeError, UsageError
from feval.evaluation.questions import question_set
from feval.methods.protocol import Rows
from feval.methods.vote import plurality
from feval.replay.draws import uniforms
from feval.values import Record

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset, MeteredLLM

ASK_AGAIN, NEXT_LLM, STOP = 0, 1, 2
ACTIONS = ("ask again", "next LLM", "stop")
"""The actions: one more CoT of the current LLM, one of the next LLM, or the end of this
question.
"""


@dataclass(frozen=True)
class Observation:
    """What a policy sees. Equal answers form a party, numbered by first appearance, so that none
    gives away which is right.

    Attributes:
        question: the text.
        llm: position of the current LLM in the cascade; -1 before the first was asked.
        parties: one entry per CoT of this question, in draw order: (LLM, party), party -1 for no
            answer.
        budget_left: of the whole episode, in USD or tokens; infinite without a budget.
        questions_left: of the episode, this one included.
    """

    question: str
    llm: int
    parties: tuple[tuple[int, int], ...]
    budget_left: float
    questions_left: int

    @property
    def votes(self) -> list[int]:
        """Votes of each party, most first; CoTs without an answer do not count."""
        return sorted(
            Counter(party for _, party in self.parties if party >= 0).values(), reverse=True
        )


Policy = Callable[[Observation, Sequence[bool]], int]
"""Maps an observation and the mask of possible actions to an action."""


class _OpenQuestion:
    """The question under way, with its answers so far."""

    def __init__(self, llms: Sequence[MeteredLLM]) -> None:
        self._llms = llms
        self.llm = -1
        self.answers: list[str | None] = []
        self._sources: list[int] = []

    def act(self, action: int) -> None:
        self.llm += action == NEXT_LLM
        self.answers += self._llms[self.llm].sample(1).answers
        self._sources.append(self.llm)

    def undo(self) -> None:
        self.answers.pop()
        self._sources.pop()

    def mask(self) -> list[bool]:
        """Return which actions are possible: pools end, and so does the list of LLMs."""
        more = self.llm >= 0 and self._llms[self.llm].remaining > 0
        return [
            more,
            self.llm + 1 < len(self._llms) and self._llms[self.llm + 1].remaining > 0,
            self.llm >= 0,
        ]

    def observation(self, question: str, budget_left: float, questions_left: int) -> Observation:
        known: dict[str, int] = {}
        parties = [-1 if a is None else known.setdefault(a, len(known)) for a in self.answers]
        return Observation(
            question,
            self.llm,
            tuple(zip(self._sources, parties, strict=True)),
            budget_left,
            questions_left,
        )

    def answer(self) -> str | None:
        return plurality(self.answers)


class BudgetEnvironment:
    """A run of questions with one budget.

    A stop is rewarded with 1 if the answer is right, every other step with 0. A step that would
    cost more than is left is not taken: the episode is truncated, and its question counts as
    stopped.

    Args:
        dataset: from `load`; its golds serve for rewards only.
        llms: the cascade, cheapest first, from the same `load`.
        budget: for an episode, in `unit`; `None` for no limit.
        unit: "usd" or "tokens", prompts included by the LLMs' billing.
        rows: questions to play, by row, such as training rows; `None` for all.
        questions: how many per episode; `None` for all of the rows.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.

    Raises:
        UnlabelledError: questions have no gold answer that can be read.
        UsageError: no LLM, no question, an LLM of another `load`, or an unknown unit.
        PriceNotFoundError: dollars were asked for and an LLM has no price or prompt tokens.
    """

    @checked
    def __init__(
        self,
        dataset: Dataset,
        llms: Sequence[LLM],
        *,
        budget: float | None = None,
        unit: str = "usd",
        rows: Sequence[int] | Rows | None = None,
        questions: int | None = None,
        unlabelled: str = "refuse",
    ) -> None:
        dataset.require(llms)
        self._rows = question_set(dataset, rows=rows, unlabelled=unlabelled).rows
        self._count = len(self._rows) if questions is None else questions
        if not llms or not 1 <= self._count <= len(self._rows):
            raise UsageError(
                f"An episode needs an LLM and 1 to {len(self._rows)} questions; {len(llms)} and"
                f" {self._count} were given."
            )
        if unit not in {"usd", "tokens"}:
            raise UsageError(f"A budget is in usd or tokens; {unit!r} was given.")
        if budget is not None and not budget > 0:
            raise OutOfRangeError(f"A budget is above 0; {budget} was given. None is no limit.")
        self._dataset, self._llms, self._unit = dataset, list(llms), unit
        self._budget = float("inf") if budget is None else float(budget)
        self._episode = -1
        self._queue: list[int] = []
        for llm in llms:
            for row in self._rows[llm.pool.prompt_tokens[self._rows] < 0]:
                llm.known_prompt_tokens(int(row), "its cost is not known")
            if unit == "usd":
                llm.known_price()

    def reset(
        self,
        *,
        seed: int | None = None,
        options: Any = None,  # noqa: ARG002  Gymnasium passes it
    ) -> tuple[Observation, Record]:
        """Begin an episode.

        Args:
            seed: decides the questions, their order and their draws. `None` takes the next.
            options: not used; Gymnasium passes it.
        """
        self._episode = self._episode + 1 if seed is None else seed
        if self._episode < 0:
            raise OutOfRangeError(f"Episodes are numbered from 0; seed {seed} was given.")
        keys = self._dataset.question_keys[self._rows]
        coins = uniforms(keys, np.zeros((1, len(keys), 1), np.uint16), self._episode)[0, :, 0]
        order = np.argsort(coins, kind="stable")[: self._count]
        self._queue = self._rows[order].tolist()
        self._spent, self._closed, self.correct = 0.0, 0.0, 0
        self._open()
        return self._observation(), self._info()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, Record]:
        """Take an action.

        Returns:
            Observation, reward, terminated (no question is left), truncated (the budget is spent),
            and info with "action_mask", "spent" and "correct" so far.

        Raises:
            UsageError: no episode is under way, or the action is not possible now; the message says
                which are.
        """
        if not self._queue:
            raise UsageError("No episode is under way; call reset first.")
        mask = self._current.mask()
        if action not in range(len(ACTIONS)) or not mask[action]:
            possible = (
                ", ".join(f"{i} ({name})" for i, name in enumerate(ACTIONS) if mask[i]) or "none"
            )
            raise UsageError(f"Action {action!r} is not possible now; possible are: {possible}.")
        if action == STOP:
            reward = self._stop()
            return self._observation(), reward, not self._queue, False, self._info()
        self._current.act(action)
        self._spent = self._closed + sum(map(self._cost, self._metered))
        if self._spent > self._budget:
            self._current.undo()  # not affordable: the answer stays as it was
            reward = self._stop()
            self._queue = []
            return self._observation(), reward, False, True, self._info()
        return self._observation(), 0.0, False, False, self._info()

    def _open(self) -> None:
        self._metered = [llm.ask(self._queue[0], self._episode) for llm in self._llms]
        self._current = _OpenQuestion(self._metered)

    def _stop(self) -> float:
        row = self._queue.pop(0)
        right = self._dataset.is_right(row, self._current.answer())
        self.correct += right
        self._closed = min(self._spent, self._budget)
        if self._queue:
            self._open()
        return float(right)

    def _observation(self) -> Observation:
        left = max(self._budget - self._spent, 0.0)
        if not self._queue:
            return Observation("", -1, (), left, 0)
        return self._current.observation(
            self._dataset[self._queue[0]].question, left, len(self._queue)
        )

    def _info(self) -> Record:
        mask = self._current.mask() if self._queue else [False] * len(ACTIONS)
        return {
            "action_mask": mask,
            "spent": min(self._spent, self._budget),
            "correct": self.correct,
        }

    def _cost(self, llm: MeteredLLM) -> float:
        return llm.dollar_cost if self._unit == "usd" else float(llm.tokens_billed)


def as_method(policy: Policy) -> Callable[..., str | None]:
    """Return a policy as a method for `evaluate`, one question at a time and without a budget.

    Args:
        policy: the learnt policy.

    Returns:
        A callable `(question, *llms) -> answer`; evaluating it counts what the policy spends.
    """

    def method(question: str, *llms: MeteredLLM) -> str | None:
        current = _OpenQuestion(llms)
        while True:
            mask = current.mask()
            action = (
                policy(current.observation(question, float("inf"), 1), mask) if any(mask) else STOP
            )
            if action not in range(len(ACTIONS)) or not mask[action]:
                raise UsageError(
                    f"The policy chose action {action!r}, which is not possible; the mask was"
                    f" {mask}."
                )
            if action == STOP:
                return current.answer()
            current.act(action)

    method.__name__ = getattr(policy, "__name__", type(policy).__name__)
    return method
