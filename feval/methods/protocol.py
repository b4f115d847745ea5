"""What a method is: the readable form, the batch form, and what a method says of itself.

A user's method is any callable `(question, *llms) -> answer` that asks its LLMs with `sample(k)`. A built-in method is a frozen
dataclass with that form and a batch form, `decide`, which does the same over arrays of answer codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from feval.errors import ShortPoolError, UsageError

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions
    from feval.replay.pools import Pool

__all__ = [
    "BatchMethod",
    "Learner",
    "Method",
    "Orders",
    "RecordedResponse",
    "RecordedSampler",
    "Response",
    "Sampler",
    "WholeSetMethod",
    "drawn",
    "require_draws",
    "seen_tokens",
]

Orders = npt.NDArray[np.uint16]
"""[R, Q, draws] recorded places of CoTs, in draw order."""


class Response(Protocol):
    """What `sample` gives: CoTs in draw order."""

    @property
    def answers(self) -> Sequence[str | None]:
        """Canonical answers, `None` for no answer."""


class Sampler(Protocol):
    """An LLM in front of one question, recorded or live."""

    def sample(self, k: int = 1, /) -> Response:
        """The next k CoTs, as one request."""


class RecordedResponse(Response, Protocol):
    """What `sample` of a recorded LLM gives: CoTs in draw order, with what was recorded beside their answers.

    Everything here raises `NotRecordedError` where the recording lacks it.
    """

    @property
    def request(self) -> Any:
        """What was sent; it has `tokens`, `None` where they are not known."""

    @property
    def tokens(self) -> int:
        """Output tokens of all CoTs."""

    @property
    def sequence_probabilities(self) -> Sequence[float | None]:
        """Length-normalised probability of each CoT."""

    @property
    def token_confidences(self) -> Sequence[npt.NDArray[np.floating[Any]] | None]:
        """Minus the mean log-probability of the top k at each token of each CoT."""

    def scores(self, scorer: str | None = None, aggregate: str = "score") -> Sequence[float | None]:
        """What a scorer said of each CoT; `None` where it said nothing."""

    def scoring_tokens(
        self, scorer: str | None = None, *, prefix_cached: bool = False
    ) -> Sequence[tuple[int, int] | None]:
        """Prompt and output tokens of the scorer's requests; `None` where there was none."""


class RecordedSampler(Protocol):
    """A recorded LLM in front of one question."""

    def sample(self, k: int = 1, /) -> RecordedResponse:
        """The next k CoTs, as one request."""

    def truncate(self, index: int, tokens: int) -> None:
        """Bill only the first tokens of a CoT, numbered from 0 among those handed out."""

    def charge(self, *, calls: int = 1, prompt_tokens: int = 0, output_tokens: int = 0) -> None:
        """Bill requests that give no CoT."""


class Method(Protocol):
    """A test-time-compute method as users write it."""

    def __call__(self, question: str, /, *llms: Any) -> str | None:
        """The answer to a question, asked of LLMs with `sample(k)`; `None` for no answer."""


@runtime_checkable
class BatchMethod(Protocol):
    """A method over arrays: all questions and many replicates at once."""

    def draws(self, llms: int) -> tuple[int, ...]:
        """The most CoTs it may look at of each of so many LLMs.

        Raises:
            UsageError: it does not work with that number of LLMs.
        """

    def decide(self, pools: Sequence[Pool], orders: Sequence[Orders]) -> Decisions:
        """Answers and ledgers [R, Q].

        Args:
            pools: one per LLM, of the same Q questions.
            orders: one per LLM, [R, Q, draws or more].

        Raises:
            UsageError: the wrong number of pools, or orders that are too short.
            ShortPoolError: a pool with fewer CoTs than the method may look at.
            NotRecordedError: it needs a channel that the pool lacks.
        """


@runtime_checkable
class WholeSetMethod(BatchMethod, Protocol):
    """A method that decides on one question by looking at the others, too (DSC): it has the batch form only."""

    whole_set: Literal[True]


class Learner(Protocol):
    """A method with something to learn. It decides only after `fit`, unless it was given what it would learn."""

    @property
    def fitted(self) -> bool:
        """Whether it can decide: `evaluate` fits only what is not."""

    def fit(self, pools: Sequence[Pool], gold: npt.NDArray[np.integer[Any]]) -> Self:
        """The method with what it learnt on training questions.

        Args:
            pools: one per LLM, of the training questions.
            gold: [Q] code of each one's gold answer, -1 where there is none.
        """


def drawn(values: npt.NDArray[Any], orders: Orders) -> npt.NDArray[Any]:
    """What stands at the drawn places.

    Args:
        values: [Q, S] of a pool: its codes, or its tokens.
        orders: [R, Q, n].

    Returns:
        [R, Q, n], of the type of `values`.
    """
    rows = np.arange(values.shape[0], dtype=np.intp) * values.shape[1]
    taken: npt.NDArray[Any] = values.ravel().take(orders + rows[:, None])
    return taken


def seen_tokens(tokens: npt.NDArray[Any], seen: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """[R, Q] the tokens of the draws a method looked at.

    Args:
        tokens: [R, Q, n] of each draw.
        seen: [R, Q, n] whether it was looked at.
    """
    total: npt.NDArray[np.int64] = np.einsum("rqn,rqn->rq", tokens, seen, dtype=np.int64, casting="unsafe")
    return total


def require_draws(method: BatchMethod, pools: Sequence[Pool], orders: Sequence[Orders]) -> tuple[int, ...]:
    """Make sure that a method can decide on some pools and orders.

    Returns:
        The most CoTs it may look at of each LLM.

    Raises:
        UsageError: not one order per pool, or one that is shorter than the method's draws.
        ShortPoolError: a pool with fewer CoTs.
    """
    needed = method.draws(len(pools))
    if len(pools) != len(orders) or any(order.shape[2] < n for order, n in zip(orders, needed, strict=False)):
        raise UsageError(
            f"{type(method).__name__} decides with {len(needed)} LLM{'s' * (len(needed) != 1)} "
            f"and orders of {', '.join(map(str, needed))} draws; {len(pools)} pools and orders of shapes "
            f"{[order.shape for order in orders]} were given."
        )
    for pool, n in zip(pools, needed, strict=True):
        if len(pool.sizes) and pool.smallest < n:
            raise ShortPoolError(
                f"{pool.llm} has {pool.smallest} recorded CoTs on the question in row {int(pool.sizes.argmin())}; "
                f"{type(method).__name__} needs {n}. Ask for fewer, or record more."
            )
    return needed
