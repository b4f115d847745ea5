"""Evaluate a method on a dataset: how often it is right, what it consumed, per question and on
average.

The method sees pools and orders, or metered LLMs. The gold answers are looked at here, after the
method has decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval import cards, executors, methods
from feval.arguments import checked
from feval.errors import NotExactError, UnknownNameError, UsageError
from feval.estimators.arrays import Integers
from feval.evaluation.cautions import (
    billed_once,
    few_questions,
    mixed_counters,
    mixed_parties,
    named_errors,
    not_exact,
    other_models,
    probes_for_nothing,
    uncompared,
    unscored_cots,
)
from feval.evaluation.clusters import (
    ClusterNames,
    ClusterSizes,
    cluster_sizes,
    learnt_from,
    question_clusters,
)
from feval.evaluation.expected import exact_means
from feval.evaluation.means import QuestionMeans, billed, default_replicates, interval_ends
from feval.evaluation.question_set import NONE_LEFT_OUT, LeftOut, QuestionIds, question_set
from feval.evaluation.replicates import replicate_sums
from feval.evaluation.training import fit, train_test_rows
from feval.evaluation.user_methods import TIME_LIMIT, MethodFile, learns, require_arguments
from feval.lazy import Drawn
from feval.methods.arrays import Floats, Rows
from feval.methods.fields import json_field, set_fields
from feval.methods.protocol import BatchMethod, has_exact_form, is_exact, may_search, searches
from feval.replay import LLM
from feval.replay.clock import Timing
from feval.replay.draws import ORDERS
from feval.replay.pools import without_gaps

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.cards import ServingProfile
    from feval.methods.error_shares import ErrorShares, MonteCarloPart
    from feval.methods.protocol import ExactMethod, Method
    from feval.replay import Dataset

ERRORS = ("no_answer", "wrong_vote", "stopped_early", "routed_wrong")
"""How a wrong answer came about."""

_AVERAGES = (
    "questions", "accuracy", "accuracy_low", "accuracy_high", "samples_per_question",
    "usd_per_question", "tokens_per_question",
    "output_tokens_per_question", "sequential_tokens_per_question", "usd_per_question_per_round",
    "tokens_per_question_per_round",
    "calls_per_question",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Drawn):
    """One method on Q questions of one dataset. Numbers per question are means over its draws.

    Attributes:
        method: name of the method.
        fields: its hyper-parameters.
        dataset: id.
        llms: names, in the order given to the method.
        kind: "exact", "recorded" or "seeded".
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        seed: of the draws.
        prices: id of the price list, `None` where dollars were switched off.
        billing: how prompts were charged.
        counters: who counted the tokens of each LLM.
        recording_hashes: of every recording behind the questions and CoTs.
        question_ids: Q ids.
        question_keys: [Q] keys to sort questions by where their recorded order must make no
            difference.
        right: [Q] probability that the answer is the gold.
        calls: [Q] requests, auxiliary ones included.
        samples: [Q] CoTs.
        output_tokens: [Q] output tokens of those.
        generated_tokens: [Q] output tokens of all requests, those of probes and auxiliary calls
            included.
        sequential: returns [Q] tokens generated one after the other, see
            `sequential_tokens_per_question`; `None` where not known. For an exact evaluation it is
            computed on the first call.
        longest_trace_tokens: [Q] tokens of the longest CoT; `None` where not known.
        probe_calls: [Q] probes of traces, which are among the calls.
        probe_tokens: [Q] their output tokens, which are among the tokens billed.
        tokens: [Q] prompt and output tokens billed, `None` where some prompt's tokens are not
            known.
        usd: [Q] dollars, `None` without a price or prompt tokens.
        tokens_per_round, usd_per_round: [Q] the same if every call paid its prompt, whatever
            `billing` is.
        seconds: [Q] seconds that the rounds take, one after the other; `None` where not known, or
            not asked for.
        error_shares: returns how wrong answers came about, see `no_answer`, `stopped_early` and
            `routed_wrong`. For an exact evaluation it is computed on the first call.
        train_questions: how many other questions were set aside for training; 0 for none.
        left_out: questions that were left out because they have no gold or too few CoTs.
        accuracy_low, accuracy_high: ends of the confidence interval, `None` where none was asked
            for.
        confidence: of the interval.
        clusters: what clusters the questions are, where some belong together; `None` where none do.
        timing: where seconds come from; `None` where nobody asked for them.
        cautions: sentences about the recording, and the method's answers, without which the numbers
            could mislead.
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
    question_ids: Sequence[str]
    question_keys: npt.NDArray[np.uint64]
    right: Floats
    calls: Floats
    samples: Floats
    output_tokens: Floats
    generated_tokens: Floats
    sequential: Callable[[], Floats | None]
    longest_trace_tokens: Floats | None
    probe_calls: Floats
    probe_tokens: Floats
    tokens: Floats | None
    usd: Floats | None
    tokens_per_round: Floats | None
    usd_per_round: Floats | None
    seconds: Floats | None
    error_shares: Callable[[], ErrorShares]
    train_questions: int = 0
    left_out: LeftOut = NONE_LEFT_OUT
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    confidence: float | None = None
    cautions: tuple[str, ...] = ()
    timing: Timing | None = None
    clusters: ClusterSizes | None = None

    @property
    def questions(self) -> int:
        """Number of questions."""
        return len(self.question_keys)

    @cached_property
    def accuracy(self) -> float:
        """Mean over questions of the probability of being right."""
        return float(self.right.mean())

    @cached_property
    def usd_per_question(self) -> float | None:
        """Mean dollars."""
        return None if self.usd is None else float(self.usd.mean())

    @cached_property
    def tokens_per_question(self) -> float | None:
        """Mean tokens billed."""
        return None if self.tokens is None else float(self.tokens.mean())

    @cached_property
    def calls_per_question(self) -> float:
        """Mean requests, auxiliary ones included."""
        return float(self.calls.mean())

    @cached_property
    def samples_per_question(self) -> float:
        """Mean CoTs."""
        return float(self.samples.mean())

    @cached_property
    def output_tokens_per_question(self) -> float:
        """Mean output tokens of CoTs, without those of probes and auxiliary calls."""
        return float(self.output_tokens.mean())

    @cached_property
    def sequential_tokens_per_question(self) -> float | None:
        """Mean tokens generated one after the other: over rounds, the most tokens that any CoT
        generated in it, summed.

        What runs side by side counts once; probes and auxiliary calls are left out. `None` where it
        is not known exactly.
        """
        tokens = self.sequential()
        return None if tokens is None else float(tokens.mean())

    @cached_property
    def seconds_per_question(self) -> float | None:
        """Mean seconds of the rounds, see `timing`; probes, auxiliary calls and what queues at a
        server are left out.
        """
        return None if self.seconds is None else float(self.seconds.mean())

    @cached_property
    def usd_per_question_per_round(self) -> float | None:
        """Mean dollars if every call paid its prompt."""
        return None if self.usd_per_round is None else float(self.usd_per_round.mean())

    @cached_property
    def tokens_per_question_per_round(self) -> float | None:
        """Mean tokens billed if every call paid its prompt."""
        return None if self.tokens_per_round is None else float(self.tokens_per_round.mean())

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences without which the numbers could mislead."""
        return (
            *few_questions(self.questions, self.clusters),
            *billed_once(self.billing, [(self.method, self)]),
            *self.cautions,
        )

    @property
    def no_answer(self) -> Floats | None:
        """[Q] probability that there is no answer; `None` where not known."""
        return self.error_shares().no_answer

    @property
    def stopped_early(self) -> Floats | None:
        """[Q] probability of a wrong answer where more CoTs would have given the right one.

        That is, where the gold is the plurality of all CoTs that the method might have drawn from
        an LLM it asked and did not exhaust. If the gold is one of m answers that lead there, the
        wrong answer counts as 1/m. `None` where not known (users' methods).
        """
        return self.error_shares().stopped_early

    @property
    def routed_wrong(self) -> Floats | None:
        """[Q] probability of a wrong answer, not stopped early, where the plurality of an LLM that
        was not asked is right.

        Ties count as in `stopped_early`. `None` where not known. The remaining wrong answers are
        wrong votes.
        """
        return self.error_shares().routed_wrong

    @property
    def errors_estimate(self) -> MonteCarloPart | None:
        """The part of an exact error split that is estimated from replicates; `None` where none is,
        and for other kinds.
        """
        return self.error_shares().estimate

    def errors(self) -> dict[str, float | None]:
        """How wrong answers came about, as shares of all questions that add up to 1 - accuracy; see
        the properties.
        """
        return dict(self._errors)

    @cached_property
    def _errors(self) -> dict[str, float | None]:
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
            "fields": {name: json_field(value) for name, value in self.fields.items()},
            "kind": self.kind,
            "dataset": self.dataset,
            "llms": list(self.llms),
            **{name: getattr(self, name) for name in _AVERAGES},
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
        if self.clusters is not None:
            result["clusters"] = asdict(self.clusters)
        if self.left_out:
            result["left_out"] = self.left_out.to_dict()
        if self.probe_calls.any():
            result["probe_calls_per_question"] = float(self.probe_calls.mean())
            result["probe_tokens_per_question"] = float(self.probe_tokens.mean())
        if self.timing is not None:
            result |= {
                "seconds_per_question": self.seconds_per_question,
                "seconds": str(self.timing),
            }
        if self.kind == "recorded":
            result |= {"correct": int(self.right.sum()), "samples": int(self.samples.sum())}
            totals = {
                "output_tokens": self.output_tokens,
                "sequential_tokens": self.sequential(),
                "longest_trace_tokens": self.longest_trace_tokens,
                "traces": self.samples,
            }
            result |= {
                name: None if each is None else int(each.sum()) for name, each in totals.items()
            }
        return result


@checked
@executors.reports("evaluating")
def evaluate(
    method: BatchMethod | Method | ExactMethod,
    dataset: Dataset,
    llms: LLM | Sequence[LLM],
    *,
    order: str | None = None,
    replicates: int | None = None,
    seed: int | None = None,
    rows: Sequence[int] | Rows | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    train_fraction: float | None = None,
    split_seed: int = 0,
    cost: str | None = None,
    serving: str | Path | ServingProfile | None = None,
    parallel: int | None = None,
    clusters: ClusterNames | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    time_limit: float | None = TIME_LIMIT,
    confidence: float | None = 0.95,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Evaluation:
    """Evaluate a method on a dataset.

    Args:
        method: a built-in method, any callable `(question, *llms) -> answer`, or the oracle.
        dataset: from `load`.
        llms: from the same `load`, in the order the method wants them.
        order: "exact" (expectation over all draws; the default where the method has one, for its
            `cost`, too), "seeded" (the default otherwise, also where these pools have too many
            different answers for an expectation) or "recorded".
        replicates: how many draws of every question, for "seeded"; `None` for
            `feval.evaluation.means.default_replicates`.
        seed: of the draws; `None` for that of the load.
        rows: which questions, by row; `None` for all.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer CoTs of some LLM than the method may
            ask for.
        train_fraction: share of the questions set aside to fit a method that learns; every method
            is evaluated on the rest. A method that was given what it would learn (a temperature,
            thresholds) keeps it.
        split_seed: of that split, see `train_test_rows`.
        cost: what will be looked at, one of `feval.evaluation.costs.COSTS`; seconds are replayed
            only where it names them.
        serving: name, file or value of a serving profile that models seconds; `None` for recorded
            durations.
        parallel: how many CoTs of a round are generated at once, for recorded durations; `None` for
            all of them.
        clusters: which questions are one piece of evidence: question id -> cluster, or a CSV file
            of these. Questions with the same text always are.
        workers: processes that share the questions of seeded and recorded evaluations; the numbers
            are the same for any number.
        executor: takes their place: that of a cluster, from `feval.distributed`, or one that is
            open already.
        time_limit: seconds that a method from a file (`FILE.py:NAME`) may take on one question, in
            its own process; `None` for no limit. A callable given in Python runs in this process
            and is trusted to come to an end.
        confidence: level of the interval over questions (`estimators.inference.intervals`); `None`
            for no interval.
        progress: called with (questions done, questions in all) of a seeded or recorded evaluation.

    Raises:
        ShortPoolError: a pool is smaller than what the method may ask for; the message names the
            question.
        UnknownNameError: no such order, or no such choice for `unlabelled` or `short_pools`.
        UsageError: not a method; no LLM, one from another `load`, no question, an exact expectation
            of a method that has none, or fewer than one replicate.
        UnlabelledError: questions have no gold answer that can be read.
        NotRecordedError: the method needs a channel (scores, log-probabilities) that was not
            recorded.
        MethodError: a user's method failed; the message names it and the question.
    """
    _require_method(method)
    used = [llms] if isinstance(llms, LLM) else list(llms)
    if not used or (replicates is not None and replicates < 1) or workers < 1:
        raise UsageError(
            f"An evaluation needs an LLM, a replicate and a worker; {len(used)}, {replicates} and"
            f" {workers} were given."
        )
    dataset.require(used, steps=may_search(method))
    if isinstance(method, MethodFile):
        method.start(time_limit)
    used = used if seed is None else [llm.seeded(seed) for llm in used]
    timing = Timing.of(cost, None if serving is None else cards.serving_profile(serving), parallel)
    kind, trained, inexact = _kind(method, order, cost, parallel), 0, None
    with named_errors(method, used):
        most = budgets(method, used)
        questions = question_set(
            dataset, most, rows=rows, unlabelled=unlabelled, short_pools=short_pools
        )
        chosen, train, learnt = questions.rows, None, list[str]()
        if train_fraction is not None:
            train, chosen = train_test_rows(dataset, train_fraction, split_seed, chosen)
            trained = len(train)
        if train is not None and learns(method):
            learnt = learnt_from(dataset, train, chosen, clusters)
            method = fit(method, dataset, used, train, time_limit)
        replicates = default_replicates(len(chosen)) if replicates is None else replicates
        if not len(chosen):
            raise UsageError(
                f"An evaluation needs a question; {dataset.id} was to be evaluated on none."
            )
        unscored = _unscored(method, used, chosen)
        if timing is not None:
            timing = timing.require(used, chosen)
        replayed = None if timing is None or timing.profile is not None else timing
        if kind == "exact":
            try:
                means = exact_means(
                    method, dataset, used, chosen, timed=replayed is not None and parallel is None
                )
            except NotExactError as error:
                if order is not None:
                    raise
                kind, inexact = "seeded", error.reason
        if kind != "exact":
            prompt_tokens = [llm.pool.prompt_tokens[chosen] for llm in used]
            given: dict[str, Any] = {
                "order": kind,
                "replicates": replicates,
                "time_limit": time_limit,
                "timing": replayed,
            }
            with executors.opened(workers, given=executor) as opened:
                sums = replicate_sums(
                    method, dataset, used, chosen, **given, executor=opened, progress=progress
                )
            means = sums.means(1 if kind == "recorded" else replicates, prompt_tokens)
    grouped = None if confidence is None else question_clusters(dataset, chosen, clusters)
    evaluation = _evaluation(
        method, dataset, used, chosen, kind, replicates, means, confidence, timing, grouped
    )
    cautions = (
        *mixed_counters(evaluation.counters),
        *evaluation.cautions,
        *unscored_cots(unscored),
        *other_models(used),
        *not_exact(inexact),
        *learnt,
    )
    return replace(
        evaluation, train_questions=trained, left_out=questions.left_out, cautions=cautions
    )


def _require_method(method: object) -> None:
    """Refuse a name or a class, which would otherwise fail on the first question with a message
    about something else.
    """
    if isinstance(method, type):
        raise UsageError(
            f"{method.__name__} is a class of methods; evaluate one of them, such as"
            f" {method.__name__}()."
        )
    if not (
        callable(method) or isinstance(method, (BatchMethod, MethodFile)) or has_exact_form(method)
    ):
        raise UsageError(
            f"{method!r:.80} is not a method. Give a callable (question, *llms) -> answer, or a"
            " built-in method such as SelfConsistency(); feval.METHODS has them by name."
        )


def budgets(method: Any, llms: Sequence[LLM]) -> list[tuple[LLM, int]]:
    """The most CoTs per question that a method may ask each LLM for; empty for a function or a
    search, which do not say.
    """
    if isinstance(method, BatchMethod) or hasattr(method, "draws"):
        draws = method.draws(len(llms))
        return [] if searches(method) else list(zip(llms, draws, strict=True))
    if isinstance(method, MethodFile):
        method.require_arguments(len(llms))
    else:
        require_arguments(method, methods.method_name(method), len(llms))
    return []


def _unscored(method: Any, llms: Sequence[LLM], rows: Rows) -> dict[str, tuple[int, int]]:
    """Of each LLM with CoTs that lack what the method compares them by: how many, and of how many;
    of a search, all its steps.
    """
    if not hasattr(method, "ratings"):
        return {}
    pools = [llm.pool.rows(rows) for llm in llms]
    counts = {}
    for pool, ratings in zip(pools, method.ratings(pools), strict=True):
        compared = pool.codes >= (-1 if searches(method) else 0)
        unscored = 0 if ratings is None else int((compared & np.isnan(ratings)).sum())
        if unscored:
            counts[pool.llm] = unscored, int(compared.sum())
    return counts


def _kind(method: object, order: str | None, cost: str | None, parallel: int | None) -> str:
    """The kind of evaluation that was asked for, or the default."""
    exact = has_exact_form(method)
    if order is None:
        return "exact" if is_exact(method, cost, parallel) else "seeded"
    if order not in ORDERS:
        raise UnknownNameError.of("order", order, ORDERS)
    if order == "exact" and not exact:
        raise UsageError(
            f"No exact expectation over all draws is known for {methods.method_name(method)}; take"
            " --order seeded or recorded (in Python: order='seeded')."
        )
    if order != "exact" and not (callable(method) or isinstance(method, (BatchMethod, MethodFile))):
        raise UsageError(
            f"The {methods.method_name(method)} is an expectation over all draws; take --order"
            " exact (in Python: order='exact')."
        )
    return order


def _evaluation(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    kind: str,
    replicates: int,
    means: QuestionMeans,
    confidence: float | None,
    timing: Timing | None,
    clusters: Integers | None,
) -> Evaluation:
    places = without_gaps(rows)
    known = all(int(llm.pool.prompt_tokens[places].min()) >= 0 for llm in llms)
    tokens, dollars = (
        billed(llms, means.prompt_tokens, means.output_tokens) if known else (None, None)
    )
    round_tokens, round_dollars = tokens, dollars
    if known and means.prompt_tokens_per_round is not means.prompt_tokens:
        round_tokens, round_dollars = billed(
            llms, means.prompt_tokens_per_round, means.output_tokens
        )
    low, high = interval_ends(means.right, confidence, clusters)
    free_probes = (
        [llm.name for llm in llms if llm.pool.has_uncounted_probes()]
        if means.probe_calls.any()
        else []
    )
    answers = len(rows) * (replicates if kind == "seeded" else 1)
    return Evaluation(
        method=methods.method_name(method),
        fields={} if isinstance(method, MethodFile) else set_fields(method),
        dataset=dataset.id,
        llms=tuple(llm.name for llm in llms),
        kind=kind,
        replicates={"exact": None, "recorded": 1, "seeded": replicates}[kind],
        seed=llms[0].seed,
        prices=llms[0].prices.id if llms[0].prices is not None else None,
        billing=llms[0].billing,
        counters=tuple(llm.counter for llm in llms),
        recording_hashes=dataset.recording_hashes,
        question_ids=QuestionIds(dataset, rows),
        question_keys=dataset.question_keys[places],
        right=means.right,
        calls=means.calls,
        samples=means.samples,
        output_tokens=means.cot_tokens,
        generated_tokens=reduce(np.add, means.output_tokens),
        sequential=means.sequential_tokens,
        longest_trace_tokens=means.longest_trace_tokens,
        probe_calls=means.probe_calls,
        probe_tokens=means.probe_tokens,
        tokens=tokens,
        usd=dollars,
        tokens_per_round=round_tokens,
        usd_per_round=round_dollars,
        seconds=None if timing is None else means.seconds_of(timing, llms),
        error_shares=means.error_shares,
        accuracy_low=low,
        accuracy_high=high,
        confidence=confidence,
        timing=timing,
        clusters=cluster_sizes(clusters),
        cautions=(
            *probes_for_nothing(free_probes),
            *mixed_parties(dataset),
            *uncompared(means.uncompared, answers),
        ),
    )
