"""What a method is: its readable form, its batch form, and what else it can do.

A user's method is any callable `(question, *llms) -> answer` that asks its LLMs with `sample(k)`. A
built-in method is a frozen dataclass with that form and a batch form, `decide`, which does the same
over arrays of answer codes: all questions and many replicates at once. What else it can do is
declared in its `capabilities`; a method that learns has `fit` and `fitted` (`Learner`), one that
compares CoTs has `ratings`:

    def ratings(self, pools: Pools) -> Sequence[Floats | None]

[Q, S] of each LLM what its CoTs are compared by, NaN for those that have none; `None` where they
are not. It is asked for before anything is drawn, and raises `NotRecordedError` where there are no
scores and `UsageError` where they are of a kind that the method cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from math import prod
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from feval import replay
from feval.cards.billing import PICODOLLARS, Price, usd
from feval.errors import ShortPoolError, UsageError
from feval.estimators.arrays import (
    Bools as Bools,
    Floats as Floats,
    Int64,
    Integers as Integers,
    Numbers,
    Result,
    Rows as Rows,
)
from feval.recording.layout.flat import UInt64
from feval.replay.draws import Orders as Orders
from feval.replay.pools import Pool as Pool
from feval.values import Record

Pools = Sequence[Pool]
"""One per LLM, of the same Q questions."""

PoolOrders = Sequence[Orders]
"""One per LLM, [R, Q, draws or more]."""

SEQUENTIAL = "sequential-tokens"
"""The cost that is a latency in tokens, see `feval.evaluation.measures.COSTS`."""

DrawOrders = Callable[[Rows, int], Iterator[Orders]]
"""(rows of questions, replicates) -> seeded orders of these questions, some replicates at a
time.
"""


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

    def decide(self, pools: Pools, orders: PoolOrders) -> Decisions:
        """Answers and ledgers [R, Q].

        Args:
            pools: one per LLM, of the same Q questions.
            orders: one per LLM, [R, Q, draws or more].

        Raises:
            UsageError: the wrong number of pools, or orders that are too short.
            ShortPoolError: a pool with fewer CoTs than the method may draw.
            NotRecordedError: it needs a channel that the pool lacks.
        """


@dataclass(frozen=True)
class Capabilities:
    """What a class of methods can do beside deciding, stated as its attribute `capabilities`.

    Attributes:
        exact: `exact` gives the expectation over all draws, see `ExactMethod`; where its fields
            leave none, a method has a true `seeded_only`.
        exact_errors: `exact_errors` says how wrong answers come about. Without it, an exact
            evaluation leaves them unsplit.
        exact_latency: the sequential tokens are known over all draws. Without it, an exact
            evaluation has none.
        searches: it expands trees of steps. Its orders [R, Q, S] are of all steps, and `draws` is
            the least it takes.
        whole_set: it decides on one question by looking at the others, too, and has the batch form
            only. Where only some settings do, a method has a true `whole_set`.
        cuts_cots: it ends CoTs before their end, see `in_seconds`.
        chooses: its answer is that of one CoT, which it chooses whatever other CoTs answer. Where
            only some settings do, a method has a true `chooses`.
        bills_scores: it pays for the scores that it reads, as auxiliary calls.
        reads_answers: which party it elects depends on nothing but the sequence of answers.
        needs: what to record for it; ends the message that says it is missing.
        learns: the fields that `fit` may change.
    """

    exact: bool = False
    exact_errors: bool = False
    exact_latency: bool = False
    searches: bool = False
    whole_set: bool = False
    cuts_cots: bool = False
    chooses: bool = False
    bills_scores: bool = False
    reads_answers: bool = False
    needs: str = ""
    learns: tuple[str, ...] = ()


EXACT = Capabilities(exact=True, exact_errors=True, exact_latency=True)


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

    def exact_errors(
        self, pool: Pool, gold: Integers, right: Floats, draw: DrawOrders
    ) -> ErrorShares:
        """What `vote.split_errors` tends to with ever more replicates.

        Args:
            pool: of Q questions.
            gold: [Q] code of the gold answer, -1 where there is none.
            right: [Q] probability of being right, from `exact`.
            draw: seeded orders, for what must be estimated.
        """

    def exact_sequential_tokens(self, pool: Pool) -> Floats:
        """[Q] expectation of `Ledger.sequential_tokens` over all draws, where `Expectation` does
        not have it.
        """


def capabilities(method: object) -> Capabilities:
    """What a method, or a class of methods, can do; nothing more where it does not say.

    A subclass inherits exact forms only together with `__call__` and `decide`: where it overrides
    one of these, the expectation may be another.
    """
    kind = method if isinstance(method, type) else type(method)
    stated: Capabilities = getattr(kind, "capabilities", Capabilities())
    forms = [
        [getattr(each, form, None) for form in ("__call__", "decide")]
        for each in kind.__mro__
        if getattr(each, "capabilities", None) is stated
    ]
    if getattr(method, "chooses", False) is True:
        stated = replace(stated, chooses=True)
    if getattr(method, "whole_set", False) is True:
        stated = replace(stated, whole_set=True)
    if any(form != forms[0] for form in forms):
        return replace(
            stated, exact=False, exact_errors=False, exact_latency=False, chooses=False,
            reads_answers=False,
        )  # fmt: skip
    if getattr(method, "seeded_only", False) is True:
        return replace(stated, exact=False, exact_errors=False, exact_latency=False)
    return stated


def may_search(method: object) -> bool:
    """Whether a method may be given LLMs that were recorded as trees; a function finds out when it
    asks them.
    """
    return capabilities(method).searches or not hasattr(method, "draws")


def in_seconds(method: object, pool: Pool) -> Pool:
    """A pool with a clock as a method takes it so that what it calls sequential tokens are
    microseconds.

    One whose CoTs have a token per microsecond; a method that cuts CoTs by their tokens
    (`cuts_cots`) reads the clock itself.
    """
    if capabilities(method).cuts_cots or pool.clock is None:
        return pool
    return replace(pool, output_tokens=pool.clock.microseconds)


def in_amounts(method: object, pool: Pool, name: str) -> Pool:
    """A pool as a method takes it so that what it calls output tokens are one of `Pool.amounts`.

    Raises:
        NotRecordedError: some CoTs state none.
        UsageError: the method cuts CoTs: nothing says what a part of one cost.
    """
    if capabilities(method).cuts_cots:
        raise UsageError(
            f"{type(method).__name__} cuts CoTs, and nothing says what a part of one cost; recorded"
            " USD are of whole CoTs. Name a price list (prices), or prices 'none'."
        )
    return replace(pool, output_tokens=pool.stating([name]).amounts[name])


def is_exact(method: object, cost: str | None, parallel: int | None = None) -> bool:
    """Whether a method has an exact expectation, its latency included where that is the cost.

    So many CoTs at once (`parallel`) wait for each other, which has no closed form.
    """
    can = capabilities(method)
    latency = can.exact_latency and (cost != replay.SECONDS or parallel is None)
    return can.exact and (latency or cost not in (SEQUENTIAL, replay.SECONDS))


class Question(str):
    """The text of a question, as a method's readable form is handed it.

    Attributes:
        features: what else is known of it, by name; nothing is paid for looking.
        key: its 64-bit key, see `Questions.keys`; -1 where it is hidden.
    """

    features: Mapping[str, str]
    key: int

    def __new__(cls, text: str, features: Mapping[str, str] | None = None, key: int = -1) -> Self:
        """A text with what belongs to it."""
        question = super().__new__(cls, text)
        question.features, question.key = features or {}, key
        return question


STATED = Price(0, 1e6 / PICODOLLARS)
"""The price of CoTs that state what they cost, whose output tokens are picodollars."""


class Questions(Result):
    """Questions as a method that learns may see them, with all CoTs that replay can hand out.

    Attributes:
        pools: one per LLM, of these Q questions; where costs are recorded USD, their output tokens
            are the picodollars of each CoT.
        texts: [Q] the questions with their choices; empty texts where none were recorded.
        features: [Q] what else is known of each, by name.
        replies: place of an LLM -> texts of its CoTs on each question, read when called.
        prices: of each LLM; none where some LLM has no price, and costs are in tokens.
        billing: how prompts are charged where a method asks an LLM several times, as text.
    """

    pools: Pools
    texts: Sequence[str] = field(default=(), kw_only=True)
    features: Sequence[Mapping[str, str]] = field(default=(), kw_only=True)
    replies: Callable[[int], Sequence[Sequence[str | None]]] = field(
        default=lambda _: (), kw_only=True, repr=False
    )
    prices: Sequence[Price] = field(default=(), kw_only=True)
    billing: str = field(default="once", kw_only=True)

    @property
    def unit(self) -> str:
        """Of costs: "USD" or "tokens"."""
        return "USD" if self.prices else "tokens"

    @property
    def keys(self) -> UInt64:
        """[Q] keys that tell questions apart; where a pool has none, their places."""
        keys = self.pools[0].question_keys
        return np.arange(len(self.pools[0].sizes), dtype=np.uint64) if keys is None else keys

    @property
    def origin(self) -> Origin:
        """What tells them from others."""
        return Origin([pool.llm for pool in self.pools], [*self.prices], self.keys)

    def price(self, llm: int, prompt_tokens: Any, output_tokens: Any) -> Any:
        """What one request to an LLM costs, by its place, in `unit`; NaN where its prompt tokens
        are not known (below 0) and cost something. Arrays broadcast.
        """
        if not self.prices:
            cost = 1.0 * prompt_tokens + output_tokens
        elif not (price := self.prices[llm]).input_usd_per_mtok:
            return usd(price, np.maximum(prompt_tokens, 0), output_tokens)
        else:
            cost = usd(price, prompt_tokens, output_tokens)
        return np.where(np.less(prompt_tokens, 0), np.nan, cost)

    @property
    def costs(self) -> list[Floats]:
        """Of each LLM, [Q, S] what a request for each one CoT costs, in `unit`; NaN where there is
        no CoT, or the cost is not known.
        """
        return [
            np.where(
                pool.codes > -2,
                self.price(llm, pool.prompt_tokens[:, None], pool.output_tokens),
                np.nan,
            )
            for llm, pool in enumerate(self.pools)
        ]


class Origin(Result):
    """What a method was fitted on: the names and prices of LLMs, and the keys of questions."""

    llms: Sequence[str]
    prices: Sequence[Price]
    keys: UInt64


class Training(Questions):
    """Questions with their golds, which a method learns from.

    Attributes:
        gold: [Q] code of each one's gold answer, -1 where there is none; for a method that chooses
            among CoTs, the code of those that are right.
        groups: [Q] numbers, equal where questions stay together when a method judges itself out of
            fold; empty for those with equal texts.
    """

    gold: Integers
    groups: Sequence[int] = field(default=(), kw_only=True)

    @property
    def right(self) -> list[Bools]:
        """Of each LLM, [Q, S] which of its CoTs are right."""
        gold = self.gold[:, None]
        return [(pool.codes == gold) & (gold >= 0) for pool in self.pools]

    @property
    def shares(self) -> list[Floats]:
        """Of each LLM, [Q] which share of its CoTs is right."""
        own = zip(self.pools, self.right, strict=True)
        return [right.sum(axis=1) / pool.sizes for pool, right in own]

    @property
    def apart(self) -> Sequence[Hashable]:
        """[Q] the group of each question, see `groups`."""
        texts = self.texts or [""] * len(self.gold)
        return self.groups or [text.strip() or place for place, text in enumerate(texts)]


class Predictions(Result):
    """What a fitted method says of questions, as data: decisions rest on it, and a receipt holds
    it, so that neither needs the learner again.

    Attributes:
        keys: [Q] of the questions, see `Questions.keys`.
        values: name -> [Q, ...].
    """

    keys: UInt64
    values: Mapping[str, Floats]

    def rows(self, keys: UInt64 | None) -> Rows:
        """[Q'] the places of questions.

        Raises:
            UsageError: it says nothing of one of them.
        """
        keys = self.keys if keys is None else keys
        order = np.argsort(self.keys, kind="stable")
        places = order[np.minimum(np.searchsorted(self.keys[order], keys), len(order) - 1)]
        if missing := int((self.keys[places] != keys).sum()):
            raise UsageError(
                f"The fitted method says nothing of {missing} of {len(keys)} questions. Let"
                " `evaluate` fit it (train_fraction, folds), or fit it again for these."
            )
        return places

    def to_dict(self) -> Record:
        """Return it as JSON values, which `from_dict` takes."""
        none, own = np.array(None), self.values.items()
        values = {name: np.where(np.isnan(each), none, each).tolist() for name, each in own}
        return {"keys": [f"{key:016x}" for key in self.keys.tolist()], "values": values}

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """The predictions that JSON values hold; `UsageError` for anything else."""
        try:
            keys = np.array([int(key, 16) for key in given["keys"]], np.uint64)
            values = {str(name): np.array(own, np.float64) for name, own in given["values"].items()}
            if any(own.shape[:1] != keys.shape for own in values.values()) or not len(keys):
                raise ValueError("not one value for each question")
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(f"These are no predictions of a method: {error!s:.80}.") from error
        return cls(keys, values)


class Predicting:
    """Base of a method that, once fitted, says something of each question by `predicted(questions:
    Questions) -> Self`, and then decides by that alone.

    Attributes:
        model: what it has learnt, in memory only; `None` before it is fitted.
        learnt_from: what it was fitted on, likewise.
        predictions: what it says of the questions at hand; `None` before.
    """

    model: Any = None
    learnt_from: Origin | None = None
    predictions: Predictions | None = None

    def having(self, **learnt: Any) -> Self:
        """The same method with another model, other predictions or other training questions, which
        are no fields of it.
        """
        other = copy(self)
        for name, value in learnt.items():
            own = value.origin if isinstance(value, Training) else value
            object.__setattr__(other, name, own)  # a method is frozen
        return other

    def predicted(self, questions: Questions) -> Self:
        """The fitted method with what it says of these questions; one that says nothing has no
        `model`.
        """
        raise NotImplementedError

    def predicts(self, keys: UInt64 | None) -> Mapping[str, Floats]:
        """What it says of questions, by name [Q, ...]; `UsageError` for a question of which it says
        nothing.
        """
        if self.predictions is None:
            raise UsageError(
                f"{type(self).__name__} decides by what it has learnt. Let it learn from questions"
                " that are then not evaluated: --train-fraction or --folds, or `method.fit(train)`."
            )
        rows = self.predictions.rows(keys)
        return {name: values[rows] for name, values in self.predictions.values.items()}

    def predicts_of(self, question: str) -> Mapping[str, Floats]:
        """What it says of one question, by name, which has its key; see `predicts`."""
        if (key := getattr(question, "key", -1)) < 0:
            raise UsageError(
                f"{type(self).__name__} decides by what it has learnt of a question, which it knows"
                " by its key: ask it a Question(text, features, key)."
            )
        return {name: own[0] for name, own in self.predicts(np.array([key], np.uint64)).items()}


class Learner(Protocol):
    """A method that learns. It decides only after `fit`, unless it was given what it would
    learn.

    One that says something of each question beforehand is `Predicting`.
    """

    @property
    def fitted(self) -> bool:
        """Whether it can decide: `evaluate` fits only methods that are not fitted."""

    def fit(self, train: Training) -> Self:
        """The method fitted on training questions."""


def drawn(values: Numbers, orders: Orders) -> Numbers:
    """The values of the drawn CoTs.

    Args:
        values: [Q, S] one per recorded CoT, such as a pool's codes or tokens.
        orders: [R, Q, n].

    Returns:
        [R, Q, n], of the type of `values`.
    """
    rows = np.arange(values.shape[0], dtype=np.intp) * values.shape[1]
    by_draw: Numbers = values.ravel().take(orders + rows[:, None])
    return by_draw


def most_tokens(tokens: Numbers, at_once: int | None = None) -> Int64:
    """[...] the most tokens [..., n] of one CoT: how long a round takes that draws them at once.

    With `at_once` fewer than n, they are generated that many at once, in draw order; see
    `feval.replay.clock.makespan`.
    """
    *shape, draws = tokens.shape
    if at_once is not None and at_once < draws:
        return replay.makespan(tokens, at_once)
    # far faster than along the last axis
    by_draw = np.ascontiguousarray(tokens.reshape(prod(shape), draws).T)
    most: Int64 = np.maximum.reduce(by_draw, axis=0, initial=0).astype(np.int64)
    return most.reshape(shape)


class OneLLM:
    """A method of one LLM.

    Attributes:
        scope: what it does with the one LLM; begins the message that refuses another number.
        most: its field or property that says how many CoTs it draws at most.
    """

    scope: str
    most = "n"

    def draws(self, llms: int) -> tuple[int, ...]:
        """The most CoTs, or the least steps of a tree, that it draws from the one LLM."""
        if llms != 1:
            raise UsageError(f"{self.scope}; {llms} were given.")
        return (getattr(self, self.most),)

    def only(self, pools: Pools, orders: PoolOrders) -> tuple[Pool, Orders]:
        """The one pool and the draws that it may take, checked by `require_draws`."""
        [draws] = require_draws(self, pools, orders)
        return pools[0], orders[0][:, :, :draws]


def require_draws(
    method: BatchMethod | OneLLM, pools: Pools, orders: PoolOrders
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


class Ledger(Result):
    """Requests and tokens of one LLM, for R replicates and Q questions. All billings derive from
    it.

    Attributes:
        rounds: [R, Q] number of `sample` requests; 0 where the LLM was not asked.
        cots: [R, Q] CoTs handed out.
        output_tokens: [R, Q] tokens of those, without what was cut off.
        auxiliary_calls: [R, Q] requests that return no CoT: verifications, self-checks, rankings;
            `None` for none anywhere.
        auxiliary_prompt_tokens: [R, Q] prompt tokens of those; `None` for none.
        auxiliary_output_tokens: [R, Q] output tokens of those; `None` for none.
        sequential_tokens: [R, Q] over rounds, the most tokens that any CoT generated in it, summed,
            without probes and auxiliary calls; `None` where not known.
        longest_trace_tokens: [R, Q] the most tokens that any one CoT generated; `None` where not
            known.
        probe_calls: [R, Q] probes of traces; `None` for none anywhere.
        probe_tokens: [R, Q] output tokens of those; `None` for none.
        sequential_microseconds: [R, Q] that the rounds took, one after the other; `None` where
            nobody asked for seconds.
        picodollars: [R, Q] 1e-12 USD that the CoTs state; `None` where nobody asked for recorded
            USD.
        cached_tokens: [R, Q] prompt tokens that a cache had read, as replies say; `None` where
            nobody asked for them.
        first_cots: [R, Q] CoTs of the first round; `None` where the method's `first_request`, or
            its `draws`, says it.
        scoring_picodollars: [R, Q] what the scores cost that it read, in 1e-12 USD; `None` where
            nobody is to pay for them.
    """

    rounds: Integers
    cots: Integers
    output_tokens: Integers
    auxiliary_calls: Integers | None = None
    auxiliary_prompt_tokens: Integers | None = None
    auxiliary_output_tokens: Integers | None = None
    sequential_tokens: Integers | None = None
    longest_trace_tokens: Integers | None = None
    probe_calls: Integers | None = None
    probe_tokens: Integers | None = None
    sequential_microseconds: Integers | None = None
    picodollars: Integers | None = None
    cached_tokens: Integers | None = None
    first_cots: Integers | None = None
    scoring_picodollars: Integers | None = None


LEDGER_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Ledger))
"""The numbers of a ledger, in order; a metered LLM has them as attributes."""


class Decisions(Result):
    """The outcome of a method for R replicates and Q questions.

    Attributes:
        answer: [R, Q] code of the answer, per question and shared by the LLMs of a load; -1 for no
            answer.
        ledgers: one per LLM, in the order of the LLMs.
        members: of a search, [R, Q, n] the steps that may give the answer, first to last, negative
            for none; `None` for the CoTs that were drawn.
        answered_by: of several LLMs, [R, Q] the place of the one whose CoT the answer is, where it
            has one; `None`, and elsewhere: of the first that has one.
        said: of a callable, the texts of its Q answers; `None` of others.
    """

    answer: Integers
    ledgers: tuple[Ledger, ...]
    members: Integers | None = None
    answered_by: Integers | None = None
    said: Sequence[str | None] | None = None


class Expectation(Result):
    """Means over all draws, of a method of one LLM on Q questions.

    Attributes:
        right: [Q] probability that the answer is the gold; leaders that tie win equally often
            unless the method says otherwise.
        rounds: [Q] expected number of requests.
        cots: [Q] expected number of CoTs.
        output_tokens: [Q] expected output tokens of those.
        probe_calls: [Q] expected probes of traces; `None` for none anywhere.
        probe_tokens: [Q] expected output tokens of those; `None` for none.
        auxiliary_prompt_tokens: [Q] expected prompt tokens beyond the question's request; `None`
            for none.
        sequential_tokens: [Q] expected tokens one after the other, where they cost nothing more to
            compute; `None` otherwise, see `ExactMethod`.
    """

    right: Floats
    rounds: Floats
    cots: Floats
    output_tokens: Floats
    probe_calls: Floats | None = None
    probe_tokens: Floats | None = None
    auxiliary_prompt_tokens: Floats | None = None
    sequential_tokens: Floats | None = None


@dataclass(frozen=True)
class MonteCarloPart:
    """The part of an exact error split that is estimated from replicates: which wrong answers were
    stopped too early.

    Attributes:
        questions: on how many questions.
        replicates: seeded draws of each of these.
        standard_error: of the mean of `stopped_early` over all questions, and so of that of wrong
            votes. It covers the orders of CoTs; the coins of Adaptive-Consistency's "random" are
            the same for the same draws.
    """

    questions: int
    replicates: int
    standard_error: float


class ErrorShares(Result):
    """How wrong answers come about on Q questions; the rest are wrong votes.

    Attributes:
        no_answer: [Q] probability of no answer; `None` where not known.
        stopped_early: [Q] probability of a wrong answer that was stopped too early; `None` where
            not known.
        routed_wrong: [Q] probability of a wrong answer that was routed wrong; `None` where not
            known.
        estimate: the part of an exact split that is estimated; `None` where all of it is exact.
    """

    no_answer: Floats | None = None
    stopped_early: Floats | None = None
    routed_wrong: Floats | None = None
    estimate: MonteCarloPart | None = None


def with_calls(decisions: Decisions, calls: Sequence[Integers], llm: int = 0) -> Decisions:
    """The same decisions with auxiliary calls of the first LLM, or of another by its place, their
    prompt tokens and their output tokens, [R, Q] each; nothing for none.
    """
    ledgers, own = list(decisions.ledgers), dict(zip(LEDGER_FIELDS[3:6], calls, strict=False))
    ledgers[llm] = replace(ledgers[llm], **own)
    return replace(decisions, ledgers=tuple(ledgers))


_BLOCK = 1 << 17  # draws


class Samples(Result):
    """CoTs of one LLM at N places, one request each.

    Attributes:
        cells: [n, N] index of each CoT in the pool's arrays, flattened; in draw order.
        codes: [n, N] answer codes.
    """

    cells: Rows
    codes: Integers

    def drawn(self, values: Numbers) -> Numbers:
        """[N, n] the values [Q, S] of the CoTs, of the same type."""
        return values.ravel().take(self.cells).T


class BatchSampler:
    """One LLM for R replicates and Q questions, as R * Q places; it keeps the ledger of what is
    drawn.

    Args:
        pool: of the LLM.
        order: [R, Q, draws or more].
        draws: CoTs of its one request.
    """

    def __init__(self, pool: Pool, order: Orders, draws: int) -> None:
        self._pool, self._draws, self._shape = pool, draws, order.shape[:2]
        self._order = order.reshape(order.shape[0] * order.shape[1], order.shape[2])
        self._asked = np.zeros(len(self._order), np.bool_)
        self._tokens, self._longest = np.zeros((2, len(self._order)), np.int64)

    def sample(self, places: Rows) -> Samples:
        """The CoTs at some places, which go into the ledger."""
        first = places % max(len(self._pool.codes), 1) * self._pool.codes.shape[1]
        cells = self._order[places, : self._draws].T + first
        self._asked[places] = True
        tokens = self._pool.output_tokens.ravel().take(cells)
        self._tokens[places] = tokens.sum(axis=0, dtype=np.int64)
        self._longest[places] = most_tokens(tokens.T, self._pool.at_once)
        return Samples(cells, self._pool.codes.ravel().take(cells))

    def ledger(self) -> Ledger:
        """The ledger [R, Q] of all requests so far."""
        each = self._asked.astype(np.int32), self._tokens, self._longest
        rounds, tokens, longest = (own.reshape(self._shape) for own in each)
        return Ledger(
            rounds,
            rounds * self._draws,
            tokens,
            sequential_tokens=longest,
            longest_trace_tokens=longest,
        )


class InTurn:
    """LLMs that a method asks one after the other, for R replicates and Q questions.

    Attributes:
        llms: a sampler of each.
        answer: [R * Q] codes of the answers, to be filled in.
        answered_by: [R * Q] whose CoTs they are, see `Decisions`; the first LLM's unless filled in.
    """

    def __init__(self, method: BatchMethod, pools: Pools, orders: PoolOrders) -> None:
        draws = require_draws(method, pools, orders)
        self.llms = [BatchSampler(*each) for each in zip(pools, orders, draws, strict=True)]
        self._shape, self._step = orders[0].shape[:2], max(1, _BLOCK // max(draws))
        self.answer: Integers = np.empty(
            prod(self._shape), np.result_type(*(p.codes.dtype for p in pools))
        )
        self.answered_by: Integers = np.zeros(self.answer.size, np.int16)

    def blocks(self) -> Iterator[Rows]:
        """Places that are decided together."""
        for start in range(0, self.answer.size, self._step):
            yield np.arange(start, min(start + self._step, self.answer.size))

    def decisions(self) -> Decisions:
        """The answers with the ledgers."""
        ledgers = tuple(llm.ledger() for llm in self.llms)
        answer, by = (each.reshape(self._shape) for each in (self.answer, self.answered_by))
        return Decisions(answer, ledgers, answered_by=by)


def decide_at_once(
    method: BatchMethod, pools: Pools, orders: PoolOrders, choose: Callable[[Samples], Integers]
) -> Decisions:
    """The decisions of a method of one LLM that takes all its CoTs in one request; `choose` gives
    the answers [N] of N draws.
    """
    turn = InTurn(method, pools, orders)
    [llm] = turn.llms
    for places in turn.blocks():
        turn.answer[places] = choose(llm.sample(places))
    return turn.decisions()


def sums_of_draws(order: Orders, draws: int, *values: Numbers) -> list[Integers]:
    """[R, Q] of each of some values [Q, S] their sum over the first draws of an order."""
    *shape, _ = order.shape
    rows = np.arange(len(values[0]), dtype=np.intp)[:, None] * values[0].shape[1]
    # by draw: far faster than along the last axis
    cells = np.ascontiguousarray((order[:, :, :draws] + rows).reshape(prod(shape), draws).T)
    taken = (each.ravel().take(cells) for each in values)
    return [own.sum(axis=0, dtype=np.int64).reshape(shape) for own in taken]
