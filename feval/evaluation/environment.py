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
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from feval.arguments import checked
from feval.cards.billing import billed_prompts, require_plain, usd
from feval.errors import OutOfRangeError, UsageError
from feval.evaluation.questions import question_set
from feval.methods.protocol import Rows
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
    """The question under way, with its answers so far.

    Args:
        llms: how many.
        ask: gives the next answer of an LLM, in any form; `None` for no answer.
        left: how many CoTs an LLM has left.
    """

    def __init__(self, llms: int, ask: Callable[[int], Any], left: Callable[[int], int]) -> None:
        self._llms, self._ask, self._left = llms, ask, left
        self.llm = -1
        self._parties: tuple[tuple[int, int], ...] = ()
        self._votes: dict[Any, list[int]] = {}  # of an answer: its party, and how many

    def act(self, action: int) -> None:
        self.llm += action == NEXT_LLM
        answer, party = self._ask(self.llm), -1
        if answer is not None:
            own = self._votes.setdefault(answer, [len(self._votes), 0])
            own[1] += 1
            party = own[0]
        self._parties += ((self.llm, party),)

    def mask(self) -> list[bool]:
        """Return which actions are possible: pools end, and so does the list of LLMs."""
        asked, more = self.llm >= 0, self.llm + 1
        return [
            asked and self._left(self.llm) > 0,
            more < self._llms and self._left(more) > 0,
            asked,
        ]

    def observation(self, question: str, budget_left: float, questions_left: int) -> Observation:
        return Observation(question, self.llm, self._parties, budget_left, questions_left)

    def answer(self) -> Any:
        """Return the plurality; of tied answers the one seen first."""
        votes = self._votes
        return max(votes, key=lambda answer: votes[answer][1]) if votes else None


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
        self._texts = dict[int, str]()
        self._right = dict[tuple[int, int], bool]()  # by row and code
        for llm in llms:
            for row in self._rows[llm.pool.prompt_tokens[self._rows] < 0]:
                llm.known_prompt_tokens(int(row), "its cost is not known")
            if unit == "usd":
                require_plain(llm.billing, llm.known_price(), steps=False)

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
        self._dealt, self._at_once = dict[int, list[tuple[list[int], list[float]]]](), 8
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
        mask = self._mask
        if action not in range(len(ACTIONS)) or not mask[action]:
            possible = (
                ", ".join(f"{i} ({name})" for i, name in enumerate(ACTIONS) if mask[i]) or "none"
            )
            raise UsageError(f"Action {action!r} is not possible now; possible are: {possible}.")
        reward, truncated = 0.0, False
        if action == STOP:
            reward = self._stop()
        else:
            llm = self._current.llm + (action == NEXT_LLM)
            self._costs[llm] = self._now[llm][1].pop()
            self._spent = self._closed + sum(self._costs)
            truncated = self._spent > self._budget
            if truncated:  # not affordable: the answer stays as it was
                reward = self._stop()
                self._queue = []
            else:
                self._current.act(action)
        terminated = not (self._queue or truncated)
        return self._observation(), reward, terminated, truncated, self._info()

    def as_gymnasium(self) -> Any:
        """Return this environment as a `gymnasium.Env`, for Gymnasium's wrappers and learners.

        An observation is a dict: "llm" as in `Observation`; "parties" [CoTs, 2] with rows of -2
        where no CoT is yet; "budget_left" [1], as a share of the budget; "questions_left".
        `info["action_mask"]` is what `action_space.sample` takes. Of a learner without masks, an
        action that is not possible stops the question or, where nothing was asked, asks the next
        LLM.

        Raises:
            UsageError: Gymnasium is not installed.
        """
        try:
            gymnasium: Any = import_module("gymnasium")
        except ImportError as error:
            raise UsageError(
                "Gymnasium is not installed, so there is no environment of its kind: pip install"
                " gymnasium. `reset` and `step` of `BudgetEnvironment` need nothing."
            ) from error
        game, budget, spaces = self, self._budget, gymnasium.spaces
        most = sum(int(llm.pool.sizes[self._rows].max()) for llm in self._llms)
        observed = {
            "llm": spaces.Discrete(len(self._llms) + 1, start=-1),
            "parties": spaces.Box(-2, most, (most, 2), np.int64),
            "budget_left": spaces.Box(0, 1, (1,), np.float64),
            "questions_left": spaces.Discrete(self._count + 1),
        }

        class Game(gymnasium.Env):  # type: ignore[misc]  # of a package that may be missing
            metadata: ClassVar[Record] = {"render_modes": []}
            action_space = spaces.Discrete(len(ACTIONS))
            observation_space = spaces.Dict(observed)

            def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
                super().reset(seed=seed)
                seen, info = game.reset(seed=seed, options=options)
                return self._shown(seen), self._masked(info)

            def step(self, action: Any) -> Any:
                wanted = int(action)
                if not self._mask[wanted]:
                    wanted = STOP if self._mask[STOP] else NEXT_LLM
                seen, *reward_and_ends, info = game.step(wanted)
                return self._shown(seen), *reward_and_ends, self._masked(info)

            def _shown(self, seen: Observation) -> Record:
                parties = np.full((most, 2), -2)
                parties[: len(seen.parties)] = np.array(seen.parties).reshape(-1, 2)
                left = 1.0 if budget == float("inf") else seen.budget_left / budget
                return {
                    "llm": seen.llm,
                    "parties": parties,
                    "budget_left": np.array([left]),
                    "questions_left": seen.questions_left,
                }

            def _masked(self, info: Record) -> Record:
                self._mask = info["action_mask"]
                return info | {"action_mask": np.array(self._mask, np.int8)}

        return Game()

    def _open(self) -> None:
        row = self._queue[0]
        if row not in self._dealt:
            # more and more: a budget may be spent soon
            self._at_once = min(2 * self._at_once, 256)
            self._deal(np.array(self._queue[: self._at_once], np.intp))
        if row not in self._texts:
            self._texts[row] = self._dataset[row].question
        now = self._now = self._dealt.pop(row)
        self._costs = [0.0] * len(now)
        self._current = _OpenQuestion(
            len(now),
            lambda llm: None if (code := now[llm][0].pop()) < 0 else code,
            lambda llm: len(now[llm][0]),
        )

    def _deal(self, rows: Rows) -> None:
        """Look up the codes of some questions in draw order, and what each number of CoTs costs."""
        each: dict[int, list[Any]] = {row: [] for row in rows.tolist()}
        for llm in self._llms:
            pool, sizes = llm.pool, llm.pool.sizes[rows].tolist()
            [order] = llm.orders([self._episode], max(sizes), rows)
            # absent places are cut off below
            cells = rows[:, None], np.minimum(order, pool.codes.shape[1] - 1)
            codes, tokens = pool.codes[cells], pool.output_tokens[cells].astype(np.int64)
            context = pool.prompt_tokens[rows, None]
            cots, output = np.arange(1, codes.shape[1] + 1), tokens.cumsum(axis=1)
            prompts = billed_prompts(llm.billing, cots, cots) * context
            costs: Any = prompts + output
            if self._unit == "usd":
                costs = usd(llm.known_price(), prompts, output, context=context)
            lists = zip(
                each.values(), codes.tolist(), costs.astype(float).tolist(), sizes, strict=True
            )
            for own, code, cost, size in lists:
                own.append((code[:size][::-1], cost[:size][::-1]))  # the next one stands last
        self._dealt |= each

    def _stop(self) -> float:
        row, code = self._queue.pop(0), self._current.answer()
        right = False
        if code is not None:
            if (row, code) not in self._right:
                [answer] = self._llms[0].answer_texts(row, [code])
                self._right[row, code] = self._dataset.is_right(row, answer)
            right = self._right[row, code]
        self.correct += right
        self._closed = min(self._spent, self._budget)
        if self._queue:
            self._open()
        return float(right)

    def _observation(self) -> Observation:
        left = max(self._budget - self._spent, 0.0)
        if not self._queue:
            return Observation("", -1, (), left, 0)
        return self._current.observation(self._texts[self._queue[0]], left, len(self._queue))

    def _info(self) -> Record:
        self._mask = self._current.mask() if self._queue else [False] * len(ACTIONS)
        return {
            "action_mask": self._mask[:],
            "spent": min(self._spent, self._budget),
            "correct": self.correct,
        }


def as_method(policy: Policy) -> Callable[..., str | None]:
    """Return a policy as a method for `evaluate`, one question at a time and without a budget.

    Args:
        policy: the learnt policy.

    Returns:
        A callable `(question, *llms) -> answer`; evaluating it counts what the policy spends.
    """

    def method(question: str, *llms: MeteredLLM) -> str | None:
        current = _OpenQuestion(
            len(llms), lambda llm: llms[llm].sample(1).answers[0], lambda llm: llms[llm].remaining
        )
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
                answer: str | None = current.answer()
                return answer
            current.act(action)

    method.__name__ = getattr(policy, "__name__", type(policy).__name__)
    return method
