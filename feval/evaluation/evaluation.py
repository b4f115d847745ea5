"""Evaluate a method on a dataset: how often it is right, what it consumed, per question and on average.

The method sees pools and orders, or metered LLMs. The gold answers are looked at here, after the method has decided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval import evaluation as package
from feval.cards.prices import billed_prompts, usd
from feval.errors import (
    NotRecordedError,
    OutOfRangeError,
    ShortPoolError,
    UnknownNameError,
    UnlabelledError,
    UsageError,
)
from feval.estimators.inference.intervals import accuracy_interval
from feval.evaluation.cautions import billed_once, few_questions
from feval.evaluation.exact import Oracle, exact_expectation, has_exact_form
from feval.evaluation.exact_errors import ErrorShares, exact_errors, split_errors
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, question_set
from feval.evaluation.user_methods import LEDGER_FIELDS, TIME_LIMIT, MethodFile, answers, learns, require_arguments
from feval.methods import method_name
from feval.methods.decisions import Decisions, Ledger
from feval.methods.protocol import BatchMethod
from feval.replay import LLM
from feval.replay.draws import ABSENT_SAMPLE, MAX_REPLICATES, ORDERS, uniforms

if TYPE_CHECKING:
    from feval.evaluation.exact import Expectation
    from feval.evaluation.exact_errors import Estimate
    from feval.methods.protocol import Method, Orders
    from feval.replay import Dataset
    from feval.replay.pools import Pool

__all__ = [
    "ERRORS",
    "MAX_REPLICATES",
    "ORDERS",
    "Evaluation",
    "budgets",
    "called",
    "decisions",
    "drawn_orders",
    "evaluate",
    "fit",
    "interval_ends",
    "train_test_rows",
]

Floats = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]

ERRORS = ("no_answer", "wrong_vote", "stopped_early", "routed_wrong")
"""How a wrong answer came about."""

_CHUNK_CODES = 1 << 22
_WHOLE = math.lcm(*range(1, 17)) << 20  # of which shares of replicates are counted: up to sixteenths are whole numbers


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One method on Q questions of one dataset. Numbers per question are means over its draws.

    Attributes:
        method: name of the method.
        fields: its hyper-parameters.
        dataset: id.
        llms: names, in the order the method was given them.
        kind: "exact", "recorded" or "seeded".
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        seed: of the draws.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        counters: who counted the tokens of each LLM.
        recording_hashes: of every recording behind the questions and CoTs.
        question_ids: Q ids.
        question_keys: [Q] what questions are ordered by wherever the recording's order must make no difference.
        right: [Q] probability that the answer is the gold.
        calls: [Q] requests, auxiliary ones included.
        samples: [Q] CoTs.
        tokens: [Q] prompt and output tokens billed, `None` where some prompt's tokens are not known.
        usd: [Q] dollars, `None` without a price or prompt tokens.
        tokens_per_round: [Q] tokens billed if every call paid its prompt, whatever `billing` is; `None` as for `tokens`.
        usd_per_round: [Q] dollars then.
        error_shares: gives how wrong answers came about, see `no_answer`, `stopped_early` and `routed_wrong`. Exact
            expectations find it when it is first asked for.
        train_questions: how many other questions were set aside to learn from; 0 for none.
        left_out: questions that were left out because they have no gold or too few CoTs.
        accuracy_low: lower end of the confidence interval, `None` where none was asked for.
        accuracy_high: upper end.
        confidence: of the interval.
    """

    method: str
    fields: Mapping[str, Any]
    dataset: str
    llms: tuple[str, ...]
    kind: str
    replicates: int | None
    seed: int
    prices: str | None
    billing: str
    counters: tuple[str, ...]
    recording_hashes: tuple[str, ...]
    question_ids: Sequence[str] = field(repr=False)
    question_keys: npt.NDArray[np.uint64] = field(repr=False)
    right: Floats = field(repr=False)
    calls: Floats = field(repr=False)
    samples: Floats = field(repr=False)
    tokens: Floats | None = field(repr=False)
    usd: Floats | None = field(repr=False)
    tokens_per_round: Floats | None = field(repr=False)
    usd_per_round: Floats | None = field(repr=False)
    error_shares: Callable[[], ErrorShares] = field(repr=False)
    train_questions: int = 0
    left_out: LeftOut = NONE_LEFT_OUT
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    confidence: float | None = None

    @property
    def questions(self) -> int:
        """How many."""
        return len(self.right)

    @property
    def accuracy(self) -> float:
        """Mean over questions of the probability of being right."""
        return float(self.right.mean())

    @property
    def usd_per_question(self) -> float | None:
        """Mean dollars."""
        return None if self.usd is None else float(self.usd.mean())

    @property
    def tokens_per_question(self) -> float | None:
        """Mean tokens billed."""
        return None if self.tokens is None else float(self.tokens.mean())

    @property
    def calls_per_question(self) -> float:
        """Mean requests, auxiliary ones included."""
        return float(self.calls.mean())

    @property
    def usd_per_question_per_round(self) -> float | None:
        """Mean dollars if every call paid its prompt."""
        return None if self.usd_per_round is None else float(self.usd_per_round.mean())

    @property
    def tokens_per_question_per_round(self) -> float | None:
        """Mean tokens billed if every call paid its prompt."""
        return None if self.tokens_per_round is None else float(self.tokens_per_round.mean())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that a reader needs in order not to be misled."""
        return (*few_questions(self.questions), *billed_once(self.billing, [(self.method, self)]))

    @property
    def no_answer(self) -> Floats | None:
        """[Q] probability that there is no answer; `None` where not known."""
        return self.error_shares().no_answer

    @property
    def stopped_early(self) -> Floats | None:
        """[Q] probability of an answer that is wrong where more CoTs would have been right.

        That is, where the plurality of all CoTs that the method might have drawn of an LLM it asked, and did not all draw, is the
        gold; if the gold is one of m answers that lead there, the wrong answer counts as 1/m. `None` where not known (users'
        methods).
        """
        return self.error_shares().stopped_early

    @property
    def routed_wrong(self) -> Floats | None:
        """[Q] probability of being wrong, not by stopping early, where the plurality of the CoTs of an LLM not asked is right.

        Ties count as in `stopped_early`. `None` where not known. What is neither, nor without an answer, is a wrong vote.
        """
        return self.error_shares().routed_wrong

    @property
    def errors_estimate(self) -> Estimate | None:
        """What of the split of an exact evaluation is estimated from replicates; `None` where nothing is, and for other kinds."""
        return self.error_shares().estimate

    def errors(self) -> dict[str, float | None]:
        """Shares of all questions: how the wrong answers came about; see the properties. They add up to 1 - accuracy."""
        none, early, routed = (
            None if part is None else float(part.mean())
            for part in (self.no_answer, self.stopped_early, self.routed_wrong)
        )
        if none is None or early is None or routed is None:
            return dict.fromkeys(ERRORS) | {"no_answer": none}
        vote = max(1 - self.accuracy - none - early - routed, 0.0)  # rounding
        return dict(zip(ERRORS, (none, vote, early, routed), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The averages as JSON values: what `feval run --json` prints."""
        result: dict[str, Any] = {
            "method": self.method,
            "fields": {name: _json(value) for name, value in self.fields.items()},
            "kind": self.kind,
            "dataset": self.dataset,
            "llms": list(self.llms),
            "questions": self.questions,
            "accuracy": self.accuracy,
            "accuracy_low": self.accuracy_low,
            "accuracy_high": self.accuracy_high,
            "samples_per_question": float(self.samples.mean()),
            "usd_per_question": self.usd_per_question,
            "tokens_per_question": self.tokens_per_question,
            "usd_per_question_per_round": self.usd_per_question_per_round,
            "tokens_per_question_per_round": self.tokens_per_question_per_round,
            "calls_per_question": self.calls_per_question,
            "replicates": self.replicates,
            "seed": self.seed,
            "billing": self.billing,
            "prices": self.prices,
            "errors": self.errors(),
            "warnings": list(self.warnings),
        }
        if self.errors_estimate is not None:
            result["errors_estimate"] = asdict(self.errors_estimate)
        if self.train_questions:
            result["train_questions"] = self.train_questions
        if self.left_out:
            result["left_out"] = self.left_out.to_dict()
        if self.kind == "recorded":
            result |= {"correct": int(self.right.sum()), "samples": int(self.samples.sum())}
        return result


def evaluate(
    method: BatchMethod | Method | Oracle,
    dataset: Dataset,
    llms: LLM | Sequence[LLM],
    *,
    order: str | None = None,
    replicates: int = 100,
    seed: int | None = None,
    rows: Sequence[int] | Rows | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    train_fraction: float | None = None,
    split_seed: int = 0,
    workers: int = 1,
    time_limit: float | None = TIME_LIMIT,
    confidence: float | None = 0.95,
) -> Evaluation:
    """Run a method over a dataset.

    Args:
        method: a built-in method, any callable `(question, *llms) -> answer`, or the oracle.
        dataset: from `load`; only evaluation looks at its golds.
        llms: from the same `load`, in the order the method wants them.
        order: "exact" (expectation over all draws; the default where the method has one), "seeded" (the default elsewhere) or
            "recorded".
        replicates: how many draws of every question, for "seeded".
        seed: of the draws; `None` takes that of the load.
        rows: which questions, by row; `None` for all.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer CoTs of some LLM than the method may ask for.
        train_fraction: share of the questions that a method which learns is fitted on; the rest is judged, for every method. A
            method that was given what it would learn (a temperature, thresholds) keeps it.
        split_seed: of that split, see `train_test_rows`.
        workers: processes that share the questions of seeded and recorded evaluations; the numbers are the same for any number.
        time_limit: seconds that a method from a file (`FILE.py:NAME`) may take on one question, in a process of its own; `None` for
            no limit. A callable given in Python runs in this process and is trusted to come to an end.
        confidence: of the score interval over questions (`feval.estimators.inference.intervals`); `None` for no interval.

    Raises:
        ShortPoolError: a pool is smaller than what the method may ask for; the message names the question.
        UnknownNameError: no such order, or no such choice for `unlabelled` or `short_pools`.
        UsageError: what was given is no method; no LLM, one from another `load`, no question, an exact expectation of a method
            that has none, or fewer than one replicate.
        UnlabelledError: questions have no gold answer that can be read.
        NotRecordedError: the method needs a channel (scores, log-probabilities) that was not recorded.
        MethodError: a user's method failed; the message names it and the question.
    """
    _require_method(method)
    asked = [llms] if isinstance(llms, LLM) else list(llms)
    if not asked or replicates < 1 or workers < 1:
        raise UsageError(
            f"An evaluation needs an LLM, a replicate and a worker; {len(asked)}, {replicates} and {workers} were given."
        )
    dataset.require(asked)
    asked = asked if seed is None else [llm.seeded(seed) for llm in asked]
    kind, trained = _kind(method, order), 0
    with _named(method):
        most = budgets(method, asked)
        questions = question_set(dataset, most, rows=rows, unlabelled=unlabelled, short_pools=short_pools)
        chosen, train = questions.rows, None
        if train_fraction is not None:
            train, chosen = train_test_rows(dataset, train_fraction, split_seed, chosen)
            trained = len(train)
        if train is not None and learns(method):
            method = fit(method, dataset, asked, train, time_limit)
        if not len(chosen):
            raise UsageError(f"An evaluation needs a question; {dataset.id} was to be evaluated on none.")
        if kind == "exact":
            means = _expected(method, dataset, asked, chosen)
        else:
            prompt_tokens = [llm.pool.prompt_tokens[chosen] for llm in asked]
            sums = _sums(method, dataset, asked, chosen, kind, replicates, time_limit, workers)
            means = sums.means(1 if kind == "recorded" else replicates, prompt_tokens)
    told = _evaluation(method, dataset, asked, chosen, kind, replicates, means, confidence)
    return replace(told, train_questions=trained, left_out=questions.left_out)


@contextmanager
def _named(method: object) -> Iterator[None]:
    """Say which method the recording does not suffice for, and what of it that method needs."""
    try:
        yield
    except UnlabelledError:  # whatever the method
        raise
    except ShortPoolError as error:
        raise ShortPoolError(f"The method {_name(method)} cannot be evaluated: {error}") from error
    except NotRecordedError as error:
        needs = getattr(method, "needs", "")
        raise NotRecordedError(
            f"The method {_name(method)} cannot be evaluated: {error}{' ' * bool(needs)}{needs}"
        ) from error


def _require_method(method: object) -> None:
    """A name or a class is a slip that would be told in somebody else's words, question by question."""
    if isinstance(method, type):
        raise UsageError(f"{method.__name__} is a class of methods; evaluate one of them, such as {method.__name__}().")
    if not callable(method) and not isinstance(method, (BatchMethod, MethodFile, Oracle)):
        raise UsageError(
            f"{method!r:.80} is no method. Give a callable (question, *llms) -> answer, or a built-in method such as "
            "SelfConsistency(); feval.METHODS has them by name."
        )


def budgets(method: Any, llms: Sequence[LLM]) -> list[tuple[LLM, int]]:
    """The most CoTs per question that a method may ask each LLM for; none where it is a function, which does not say.

    Args:
        method: a built-in method, any callable, or the oracle.
        llms: in the order the method wants them.

    Raises:
        UsageError: the method cannot be called with so many LLMs.
    """
    if isinstance(method, BatchMethod) or hasattr(method, "draws"):
        return list(zip(llms, method.draws(len(llms)), strict=True))
    if isinstance(method, MethodFile):
        method.require_arguments(len(llms))
    else:
        require_arguments(method, _name(method), len(llms))
    return []


def train_test_rows(
    dataset: Dataset, train_fraction: float, split_seed: int = 0, rows: Rows | None = None
) -> tuple[Rows, Rows]:
    """Split questions at random into training and test questions, each in recorded order.

    Which side a question is on depends on its key, the seed and the other questions, not on their order: questions are sorted by
    a hash of key and seed, and the first are for training.

    Args:
        dataset: whose questions.
        train_fraction: between 0 and 1; at least one question is on each side.
        split_seed: other seeds give other splits.
        rows: which questions are split; `None` for all.

    Returns:
        Rows of training and of test questions.

    Raises:
        OutOfRangeError: a fraction that is not between 0 and 1, or fewer than two questions.
    """
    rows = np.arange(len(dataset)) if rows is None else rows
    if not 0 < train_fraction < 1 or len(rows) < 2:
        raise OutOfRangeError(
            f"A split takes a share between 0 and 1 of two questions or more; {train_fraction} of {len(rows)} was asked for."
        )
    # A place that no draw has: methods that toss coins must not find theirs among those that chose the test questions.
    nowhere = np.full((1, len(rows), 1), ABSENT_SAMPLE, np.uint16)
    coins = uniforms(dataset.question_keys[rows], nowhere, split_seed)[0, :, 0]
    order = np.argsort(coins, kind="stable")
    count = min(max(round(train_fraction * len(rows)), 1), len(rows) - 1)
    return np.sort(rows[order[:count]]), np.sort(rows[order[count:]])


def fit(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows, time_limit: float | None = TIME_LIMIT) -> Any:
    """A method with what it learnt on some questions, which it must not be judged on.

    Args:
        method: with a `fit`, see `feval.methods.protocol.Learner`.
        dataset: from `load`.
        llms: from the same `load`.
        rows: of the training questions.
        time_limit: seconds per question for a method from a file; `None` for no limit.
    """
    dataset.require(llms)
    if isinstance(method, MethodFile):
        return method.fitted(dataset, llms, rows.tolist(), time_limit)
    return method.fit([llm.pool.rows(rows) for llm in llms], dataset.gold[rows])


def decisions(
    method: BatchMethod, llms: Sequence[LLM], *, order: str, replicates: int = 1, rows: Rows | None = None
) -> Iterator[Decisions]:
    """What a built-in method decides, some replicates at a time so that memory stays bounded.

    Args:
        method: a method with a batch form.
        llms: of one `load`, in the order the method wants them.
        order: "recorded" (one replicate) or "seeded".
        replicates: how many, for "seeded".
        rows: which questions, by row; `None` for all.

    Yields:
        Answers and ledgers [R', Q]; the R' add up to the replicates.
    """
    pools, batches = _drawn(method, llms, order, replicates, rows)
    for orders in batches:
        yield method.decide(pools, orders)


def _drawn(
    method: BatchMethod, llms: Sequence[LLM], order: str, replicates: int, rows: Rows | None
) -> tuple[list[Pool], Iterator[tuple[Orders, ...]]]:
    """The pools of some questions, and the orders of some replicates at a time."""
    needed = method.draws(len(llms))
    for llm, draws in zip(llms, needed, strict=True):
        llm.require(rows, draws)
    if rows is not None and len(rows) == len(llms[0].pool.sizes) and bool((np.diff(rows) == 1).all()):
        rows = None
    pools = [llm.pool if rows is None else llm.pool.rows(rows) for llm in llms]
    chunk = _replicates_at_once(len(pools[0].sizes), needed)
    each = (drawn_orders(llm, order, replicates, n, rows, chunk=chunk) for llm, n in zip(llms, needed, strict=True))
    return pools, zip(*each, strict=True)


def _replicates_at_once(questions: int, draws: Sequence[int]) -> int:
    return max(1, _CHUNK_CODES // max(questions * max(draws), 1))


def drawn_orders(
    llm: LLM, order: str, replicates: int, draws: int, rows: Rows | None = None, *, chunk: int | None = None
) -> Iterator[npt.NDArray[np.uint16]]:
    """The draws of an LLM, some replicates at a time so that memory stays bounded.

    Args:
        llm: a recorded LLM.
        order: "recorded" (one replicate) or "seeded".
        replicates: how many, for "seeded".
        draws: CoTs per draw, at most the smallest pool.
        rows: which questions, by row; `None` for all.
        chunk: how many replicates at a time; `None` for as many as fit some megabytes.

    Yields:
        [R, Q, draws] recorded places.

    Raises:
        OutOfRangeError: more than `MAX_REPLICATES`.
    """
    questions = len(llm.pool.sizes) if rows is None else len(rows)
    if order == "recorded":
        yield np.broadcast_to(np.arange(draws, dtype=np.uint16), (1, questions, draws))
        return
    if replicates > MAX_REPLICATES:
        raise OutOfRangeError(
            f"{replicates:,} replicates were asked for; {MAX_REPLICATES:,} is the most. Where a method has an exact expectation, "
            "take that instead (--order exact)."
        )
    size = chunk or _replicates_at_once(questions, [draws])
    for start in range(0, replicates, size):
        yield llm.orders(range(start, min(start + size, replicates)), draws, rows)


# -- means per question -----------------------------------------------------------------------------------------------


_LEDGER: tuple[str, ...] = LEDGER_FIELDS


@dataclass(eq=False)
class _Sums:
    """Sums over replicates, per question: integers, so that they add up the same in any order and in any number of processes.

    Attributes:
        right, none: [Q] replicates with that outcome.
        early, routed: [Q] replicates that were, in parts of `_WHOLE`; `split` says whether they were looked at.
        prompts: [L, Q] prompts billed.
        ledgers: [L, 6, Q] fields of `Ledger`, in their order.
    """

    right: Int64
    none: Int64
    early: Int64
    routed: Int64
    prompts: Int64
    ledgers: Int64
    split: bool = False

    @classmethod
    def nothing(cls, llms: int, questions: int) -> _Sums:
        right, none, early, routed = np.zeros((4, questions), np.int64)
        prompts = np.zeros((llms, questions), np.int64)
        return cls(right, none, early, routed, prompts, np.zeros((llms, len(_LEDGER), questions), np.int64))

    @classmethod
    def joined(cls, parts: Sequence[_Sums]) -> _Sums:
        """Those of blocks of questions, beside each other."""
        names = ("right", "none", "early", "routed", "prompts", "ledgers")
        whole = {name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names}
        return cls(**whole, split=parts[0].split)

    def add(self, decided: Decisions, right: npt.NDArray[np.bool_], billing: str) -> None:

        self.right += right.sum(axis=0)
        self.none += (decided.answer < 0).sum(axis=0)
        for llm, ledger in enumerate(decided.ledgers):
            prompts = np.asarray(billed_prompts(billing, ledger.rounds, ledger.cots))
            self.prompts[llm] += prompts.sum(axis=0, dtype=np.int64)
            for place, name in enumerate(_LEDGER):
                if (consumed := getattr(ledger, name)) is not None:
                    self.ledgers[llm, place] += consumed.sum(axis=0, dtype=np.int64)

    def means(self, count: int, prompt_tokens: Sequence[npt.NDArray[Any]]) -> _Means:

        own = {name: self.ledgers[:, place] for place, name in enumerate(_LEDGER)}
        billed, per_round = (
            [p * t + a for p, t, a in zip(paid, prompt_tokens, own["auxiliary_prompt_tokens"], strict=True)]
            for paid in (self.prompts, own["rounds"])
        )
        split = (self.early / (count * _WHOLE), self.routed / (count * _WHOLE)) if self.split else (None, None)
        shares = ErrorShares(self.none / count, *split)
        return _Means(
            self.right / count,
            lambda: shares,
            (own["rounds"] + own["auxiliary_calls"]).sum(axis=0) / count,
            own["cots"].sum(axis=0) / count,
            [tokens / count for tokens in billed],
            [tokens / count for tokens in per_round],
            [tokens / count for tokens in own["output_tokens"] + own["auxiliary_output_tokens"]],
        )


@dataclass(frozen=True, eq=False)
class _Means:
    """Per question, over draws; per LLM the tokens that are billed."""

    right: Floats
    error_shares: Callable[[], ErrorShares]
    calls: Floats
    samples: Floats
    prompt_tokens: list[Floats]
    prompt_tokens_per_round: list[Floats]
    output_tokens: list[Floats]


def _kind(method: object, order: str | None) -> str:

    exact = has_exact_form(method)
    if order is None:
        return "exact" if exact else "seeded"
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if order == "exact" and not exact:
        raise UsageError(
            f"No exact expectation over all draws is known for {_name(method)}; evaluate it with order 'seeded' or 'recorded'."
        )
    if isinstance(method, Oracle) and order != "exact":
        raise UsageError("The oracle is an expectation over all draws; evaluate it with order 'exact'.")
    return order


def _sums(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    order: str,
    replicates: int,
    time_limit: float | None,
    workers: int,
) -> _Sums:

    batch = isinstance(method, BatchMethod)
    work = partial(_block, method, order=order, replicates=replicates, time_limit=time_limit)
    if workers == 1 or len(rows) < 2 or getattr(method, "whole_set", False):
        return work(dataset, llms, rows)
    if batch:
        for llm, draws in zip(llms, method.draws(len(llms)), strict=True):
            llm.require(rows, draws)  # so that the message does not depend on the workers

    return _Sums.joined(
        package.workers.map_blocks(work, dataset, llms, np.array_split(rows, min(workers, len(rows))), workers)
    )


def _block(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    *,
    order: str,
    replicates: int,
    time_limit: float | None,
) -> _Sums:
    """Run a method over some questions."""
    gold = dataset.gold[rows]
    sums = _Sums.nothing(len(llms), len(rows))
    if not isinstance(method, BatchMethod):
        for replicate in range(replicates) if order == "seeded" else [None]:
            decided = called(method, dataset, llms, rows, replicate, time_limit)
            sums.add(decided, (decided.answer == gold) & (gold >= 0), llms[0].billing)
        return sums
    sums.split = True
    pools, batches = _drawn(method, llms, order, replicates, rows)
    for orders in batches:
        decided = method.decide(pools, orders)
        right = (decided.answer == gold) & (gold >= 0)
        sums.add(decided, right, llms[0].billing)
        if all((ledger.cots >= order.shape[2]).all() for ledger, order in zip(decided.ledgers, orders, strict=True)):
            continue  # all was drawn that might have been: nothing was stopped early or left out
        early, routed = split_errors(decided, right, gold, pools, orders)
        sums.early += np.rint(early * _WHOLE).astype(np.int64).sum(axis=0)
        sums.routed += np.rint(routed * _WHOLE).astype(np.int64).sum(axis=0)
    return sums


def called(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    replicate: int | None,
    time_limit: float | None = TIME_LIMIT,
) -> Decisions:
    """What a method that is a plain callable decides in one replicate.

    Args:
        method: any callable `(question, *llms) -> answer`.
        dataset: from `load`; its golds are not looked at.
        llms: from the same `load`, in the order the method wants them.
        rows: which questions, by row.
        replicate: of the draws; `None` hands CoTs out in recorded order.
        time_limit: seconds on one question, for a method from a file; `None` for no limit.

    Returns:
        Answers and ledgers [1, Q]. An answer that no CoT gave has a code beyond the candidates.

    Raises:
        MethodError: the method failed; the message names it and the question.
    """
    answer = np.empty((1, len(rows)), np.int64)
    consumed = np.empty((len(llms), len(_LEDGER), 1, len(rows)), np.int64)
    outcomes = (
        method.answers(dataset, llms, rows.tolist(), replicate, time_limit)
        if isinstance(method, MethodFile)
        else answers(method, _name(method), dataset, llms, rows, replicate)
    )
    for place, (row, outcome) in enumerate(zip(rows.tolist(), outcomes, strict=True)):
        answer[0, place] = _code(outcome.answer, dataset, row)
        consumed[:, :, 0, place] = outcome.ledgers
    return Decisions(answer, tuple(Ledger(*ledger) for ledger in consumed))


def _code(given: str | None, dataset: Dataset, row: int) -> int:
    """The code of a method's answer, in whatever spelling; an answer nobody gave has a code of its own, which is never right."""
    key = dataset.answer_key(row, given)
    if key is None:
        return -1
    candidates = dataset.candidates(row)
    return candidates.index(key) if key in candidates else len(candidates)


def _expected(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> _Means:

    for llm, draws in zip(llms, method.draws(len(llms)), strict=True):
        llm.require(rows, draws)
    [pool], gold = [llm.pool.rows(rows) for llm in llms], dataset.gold[rows]
    expected = exact_expectation(method, [pool], gold)
    prompts = _expected_prompts(llms[0].billing, expected)
    needed = method.draws(1)[0]

    def draw(some: Rows, replicates: int) -> Iterator[Orders]:
        return drawn_orders(llms[0], "seeded", replicates, needed, rows[some])

    return _Means(
        expected.right,
        cache(partial(exact_errors, method, pool, gold, expected.right, draw)),
        expected.rounds,
        expected.cots,
        [prompts * llms[0].pool.prompt_tokens[rows]],
        [expected.rounds * llms[0].pool.prompt_tokens[rows]],
        [expected.output_tokens],
    )


def _expected_prompts(billing: str, expected: Expectation) -> Floats:
    """Billing is linear in what it counts, and every method of one LLM asks it at least once."""
    return {"once": np.ones_like(expected.rounds), "per_round": expected.rounds, "per_sample": expected.cots}[billing]


def _evaluation(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    kind: str,
    replicates: int,
    means: _Means,
    confidence: float | None,
) -> Evaluation:
    known = all(int(llm.pool.prompt_tokens[rows].min()) >= 0 for llm in llms)
    tokens, dollars = _costs(llms, means.prompt_tokens, means.output_tokens) if known else (None, None)
    round_tokens, round_dollars = (
        _costs(llms, means.prompt_tokens_per_round, means.output_tokens) if known else (None, None)
    )
    keys = dataset.question_keys[rows]
    low, high = interval_ends(means.right, confidence)
    return Evaluation(
        method=_name(method),
        fields=_fields(method),
        dataset=dataset.id,
        llms=tuple(llm.name for llm in llms),
        kind=kind,
        replicates={"exact": None, "recorded": 1, "seeded": replicates}[kind],
        seed=llms[0].seed,
        prices=llms[0].prices.id if llms[0].prices is not None else None,
        billing=llms[0].billing,
        counters=tuple(llm.counter for llm in llms),
        recording_hashes=dataset.recording_hashes,
        question_ids=[dataset.question_ids[row] for row in rows.tolist()],
        question_keys=keys,
        right=means.right,
        calls=means.calls,
        samples=means.samples,
        tokens=tokens,
        usd=dollars,
        tokens_per_round=round_tokens,
        usd_per_round=round_dollars,
        error_shares=means.error_shares,
        accuracy_low=low,
        accuracy_high=high,
        confidence=confidence,
    )


def _costs(llms: Sequence[LLM], prompts: list[Floats], outputs: list[Floats]) -> tuple[Floats, Floats | None]:
    """[Q] tokens, and dollars where every LLM has a price."""
    tokens, dollars = np.zeros((2, len(prompts[0])))
    for llm, prompt_tokens, output_tokens in zip(llms, prompts, outputs, strict=True):
        tokens = tokens + prompt_tokens + output_tokens
        if llm.price is not None:
            dollars = dollars + np.asarray(usd(llm.price, prompt_tokens, output_tokens))
    return tokens, None if any(llm.price is None for llm in llms) else dollars


def interval_ends(right: Floats, confidence: float | None) -> tuple[float | None, float | None]:
    """The confidence interval of an accuracy over questions.

    Args:
        right: [Q] probability of being right.
        confidence: its level; `None` for no interval.

    Returns:
        The lower and the upper end; `None` twice where none was asked for.
    """
    if confidence is None:
        return None, None

    interval = accuracy_interval(right[:, None], confidence)
    return float(interval.low[0]), float(interval.high[0])


def _fields(method: object) -> dict[str, Any]:
    """The hyper-parameters of a method; a function has none."""
    if not is_dataclass(method) or isinstance(method, (type, MethodFile)):
        return {}
    return {f.name: getattr(method, f.name) for f in fields(method)}


def _json(value: Any) -> Any:
    """A field as a JSON value, which knows no infinity: it is the text "inf", which `--set` reads."""
    if isinstance(value, (tuple, list)):
        return [_json(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _name(method: object) -> str:

    return method_name(method)
