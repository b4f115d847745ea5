"""What a method is: its readable form, its batch form, and what else it may bring along.

A user's method is any callable `(question, *llms) -> answer` that asks its LLMs with `sample(k)`. A
built-in method is a frozen dataclass with that form and a batch form, `decide`, which does the same
over arrays of answer codes. Everything else is optional and found by its name on the method's
class:

    exact           expectation over all draws                      `ExactMethod`
    exact_errors    how wrong answers come about, over all draws    `ExactErrorsMethod`
    exact_sequential_tokens   latency in tokens, over all draws     `LatencyMethod`
    fit, fitted     learning from training questions                `Learner`
    searches        it expands trees of steps                       `SearchMethod`
    whole_set       it looks at all questions at once               `WholeSetMethod`
    ratings         what it compares CoTs by                        `RatingMethod`
    cuts_cots       it ends CoTs before their end                   see `in_seconds`
    needs           what to record for it; ends the message that says it is missing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from feval.errors import ShortPoolError, UsageError
from feval.methods.arrays import Bools, Floats, Integers, Rows
from feval.methods.decisions import Orders
from feval.replay.clock import SECONDS, makespan

if TYPE_CHECKING:
    from feval.methods.decisions import Decisions
    from feval.methods.error_shares import ErrorShares
    from feval.methods.expectation import Expectation
    from feval.replay.pools import Pool

SEQUENTIAL = "sequential-tokens"
"""The cost that is a latency in tokens, see `feval.evaluation.measures.COSTS`."""

DrawOrders = Callable[[Rows, int], Iterator[Orders]]
"""(rows of questions, replicates) -> seeded orders of these questions, some replicates at a
time.
"""


class Response(Protocol):
    """The CoTs of one request, in draw order."""

    @property
    def answers(self) -> Sequence[str | None]:
        """Canonical answers, `None` for no answer."""


class Sampler(Protocol):
    """An LLM in front of one question, recorded or live."""

    def sample(self, k: int = 1, /) -> Response:
        """The next k CoTs, as one request."""


class Method(Protocol):
    """A test-time-compute method as users write it."""

    def __call__(self, question: str, /, *llms: Any) -> str | None:
        """The answer to a question from LLMs that are asked with `sample(k)`; `None` for no
        answer.
        """


@runtime_checkable
class BatchMethod(Protocol):
    """A method over arrays: all questions and many replicates at once."""

    def draws(self, llms: int) -> tuple[int, ...]:
        """The most CoTs it may draw from each of this many LLMs.

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
            ShortPoolError: a pool with fewer CoTs than the method may draw.
            NotRecordedError: it needs a channel that the pool lacks.
        """


@runtime_checkable
class WholeSetMethod(BatchMethod, Protocol):
    """A method that decides on one question by looking at the others, too (DSC): it has the batch
    form only.
    """

    whole_set: Literal[True]


class SearchMethod(BatchMethod, Protocol):
    """A method of LLMs that were recorded as trees: its orders [R, Q, S] are of all steps, and
    `draws` is the least it takes.
    """

    searches: Literal[True]


class RatingMethod(BatchMethod, Protocol):
    """A method that compares or weighs CoTs by recorded scores or confidences."""

    def ratings(self, pools: Sequence[Pool]) -> Sequence[Floats | None]:
        """[Q, S] of each LLM what its CoTs are compared by, NaN for those that have none; `None`
        where they are not.

        Raises:
            UsageError: these scores are not of a kind that it can use; asked for before anything is
                drawn.
            NotRecordedError: there are none.
        """


class ExactMethod(Protocol):
    """A method of one LLM whose expectation over all draws without replacement can be computed."""

    def draws(self, llms: int) -> tuple[int, ...]:
        """As for `BatchMethod`."""

    def exact(self, pool: Pool, gold: Integers) -> Expectation:
        """The expectation over all draws.

        Args:
            pool: of Q questions.
            gold: [Q] code of the gold answer, -1 where there is none: never right.

        Raises:
            UsageError: it cannot be computed with these fields; the message says why.
            ShortPoolError: a pool is smaller than the method's draws.
        """


class ExactErrorsMethod(ExactMethod, Protocol):
    """An exact method that also knows how its wrong answers come about. Without it, an exact
    evaluation leaves them unsplit.
    """

    def exact_errors(
        self, pool: Pool, gold: Integers, right: Floats, draw: DrawOrders
    ) -> ErrorShares:
        """What `error_shares.split_errors` tends to with ever more replicates.

        Args:
            pool: of Q questions.
            gold: [Q] code of the gold answer, -1 where there is none.
            right: [Q] probability of being right, from `exact`.
            draw: seeded orders, for what must be estimated.
        """


class LatencyMethod(ExactMethod, Protocol):
    """An exact method whose sequential tokens are known, too. Without it, an exact evaluation has
    none.
    """

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """[Q] expectation of `Ledger.sequential_tokens` over all draws."""


def searches(method: object) -> bool:
    """Whether a method expands trees of steps, see `SearchMethod`."""
    return getattr(method, "searches", False) is True


def may_search(method: object) -> bool:
    """Whether a method may be given LLMs that were recorded as trees; a function finds out when it
    asks them.
    """
    return searches(method) or not (isinstance(method, BatchMethod) or hasattr(method, "draws"))


def has_exact_form(method: object) -> bool:
    """Whether a method, or a class of methods, defines `exact` itself.

    A subclass does not inherit it: what it overrides may change the expectation. One whose fields
    leave none has `seeded_only`.
    """
    own = vars(method if isinstance(method, type) else type(method))
    return "exact" in own and getattr(method, "seeded_only", False) is not True


def has_exact_errors(method: object) -> bool:
    """Whether a method, or a class of methods, defines `exact_errors` itself; see
    `has_exact_form`.
    """
    return "exact_errors" in vars(method if isinstance(method, type) else type(method))


def has_exact_latency(method: object) -> bool:
    """Whether a method, or a class of methods, defines `exact_sequential_tokens` itself; see
    `has_exact_form`.
    """
    return "exact_sequential_tokens" in vars(method if isinstance(method, type) else type(method))


def in_seconds(method: object, pool: Pool) -> Pool:
    """A pool with a clock as a method takes it so that what it calls sequential tokens are
    microseconds.

    One whose CoTs have a token per microsecond; a method that cuts CoTs by their tokens
    (`cuts_cots`) reads the clock itself.
    """
    return pool if getattr(method, "cuts_cots", False) is True else pool.in_microseconds()


def is_exact(method: object, cost: str | None, parallel: int | None = None) -> bool:
    """Whether a method has an exact expectation, its latency included where that is the cost.

    That of a method that asks for its CoTs one by one (`one_by_one`) is all of its output. So many
    CoTs at once (`parallel`) wait for each other, which has no closed form.
    """
    latency = has_exact_latency(method) or "one_by_one" in vars(type(method))
    return has_exact_form(method) and (
        cost not in (SEQUENTIAL, SECONDS) or (latency and (cost != SECONDS or parallel is None))
    )


class Learner(Protocol):
    """A method that learns. It decides only after `fit`, unless it was given what it would
    learn.
    """

    @property
    def fitted(self) -> bool:
        """Whether it can decide: `evaluate` fits only methods that are not fitted."""

    def fit(self, pools: Sequence[Pool], gold: Integers) -> Self:
        """The method fitted on training questions.

        Args:
            pools: one per LLM, of the training questions.
            gold: [Q] code of each one's gold answer, -1 where there is none.
        """


def drawn(values: npt.NDArray[Any], orders: Orders) -> npt.NDArray[Any]:
    """The values of the drawn CoTs.

    Args:
        values: [Q, S] one per recorded CoT, such as a pool's codes or tokens.
        orders: [R, Q, n].

    Returns:
        [R, Q, n], of the type of `values`.
    """
    rows = np.arange(values.shape[0], dtype=np.intp) * values.shape[1]
    by_draw: npt.NDArray[Any] = values.ravel().take(orders + rows[:, None])
    return by_draw


def seen_tokens(tokens: npt.NDArray[Any], seen: Bools) -> npt.NDArray[np.int64]:
    """[R, Q] the tokens [R, Q, n] of the CoTs that a method drew, by a mask [R, Q, n]."""
    total: npt.NDArray[np.int64] = np.einsum(
        "rqn,rqn->rq", tokens, seen, dtype=np.int64, casting="unsafe"
    )
    return total


def most_tokens(tokens: npt.NDArray[Any], at_once: int | None = None) -> npt.NDArray[np.int64]:
    """[...] the most tokens [..., n] of one CoT: how long a round takes that draws them at once.

    With `at_once` fewer than n, they are generated that many at once, in draw order; see
    `feval.replay.clock.makespan`.
    """
    *shape, draws = tokens.shape
    if at_once is not None and at_once < draws:
        return makespan(tokens, at_once)
    # far faster than along the last axis
    by_draw = np.ascontiguousarray(tokens.reshape(prod(shape), draws).T)
    most: npt.NDArray[np.int64] = np.maximum.reduce(by_draw, axis=0, initial=0).astype(np.int64)
    return most.reshape(shape)


def one_llm(draws: int, llms: int, rule: str) -> tuple[int]:
    """The draws of a method of one LLM.

    Raises:
        UsageError: another number of LLMs; the message begins with the method's rule.
    """
    if llms != 1:
        raise UsageError(f"{rule}; {llms} were given.")
    return (draws,)


def require_draws(
    method: BatchMethod, pools: Sequence[Pool], orders: Sequence[Orders]
) -> tuple[int, ...]:
    """Check that a method can decide on these pools and orders.

    Returns:
        The most CoTs it may draw from each LLM.

    Raises:
        UsageError: not one order per pool, or one that is shorter than the method's draws.
        ShortPoolError: a pool with fewer CoTs.
    """
    needed = method.draws(len(pools))
    if len(pools) != len(orders) or any(
        order.shape[2] < n for order, n in zip(orders, needed, strict=False)
    ):
        raise UsageError(
            f"{type(method).__name__} decides with {len(needed)} LLM{'s' * (len(needed) != 1)} and"
            f" orders of {', '.join(map(str, needed))} draws; {len(pools)} pools and orders of"
            f" shapes {[order.shape for order in orders]} were given."
        )
    for pool, n in zip(pools, needed, strict=True):
        require_pool(method, pool, n)
    return needed


def require_pool(method: object, pool: Pool, draws: int) -> None:
    """Raise `ShortPoolError` if a pool has fewer CoTs than a method needs."""
    if len(pool.sizes) and pool.smallest < draws:
        raise ShortPoolError(
            f"{pool.llm} has {pool.smallest} recorded CoTs on the question in row"
            f" {int(pool.sizes.argmin())}; {type(method).__name__} needs {draws}. Ask for fewer, or"
            " record more."
        )
