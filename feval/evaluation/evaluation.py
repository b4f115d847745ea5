"""Evaluate a method on a dataset: how often it is right, what it consumed, per question and on
average.

The method sees pools and orders, or metered LLMs. The gold answers are looked at here, after the
method has decided.

Where a number of `feval run` comes from, file by file, in exact order. The accuracy:

    estimators/plurality.py      counts votes, and gives the chance that a vote over n is right,
    estimators/per_question.py   once for questions that cannot differ; ties are its quadrature
    methods/vote.py              with what no answer does, `plurality_is_right`
    methods/<method>.py          with the method's fields: `exact`, or `decide` for seeded draws
    evaluation/evaluation.py     `evaluate`: mean of `right` [Q], and its interval
    report/tables/tables.py      the cell, in per cent by `report/text.py`

The USD per 1,000 questions:

    estimators/plurality.py      `mean_output_tokens`
    methods/<method>.py          what is asked for; of one request `self_consistency.OneRequest`
    evaluation/replicates.py     `expectation` puts it into a ledger, with the prompt's tokens
    evaluation/measures.py       `QuestionLedger`: tokens billed, their sum and their mean
    cards/billing.py             eq. (1): USD of tokens
    report/tables/tables.py      the cell, by `cost_number` and `report/text.py`

Both begin in cli/evaluate.py, the command; `evaluating.open_request` loads the recordings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from feval import cards, executors, methods
from feval.arguments import checked
from feval.cards.billing import billing_rule
from feval.errors import (
    NotExactError,
    NotRecordedError,
    ShortPoolError,
    UnlabelledError,
    UsageError,
    require_known,
)
from feval.evaluation import TIME_LIMIT
from feval.evaluation.cautions import (
    mixed_counters,
    not_exact,
    other_models,
    probes_for_nothing,
    uncompared,
    unpaid_scores,
    unscored_cots,
)
from feval.evaluation.fitting import Fit, fits, ready
from feval.evaluation.measures import Averages, QuestionLedger
from feval.evaluation.questions import (
    ByRow,
    ClusterNames,
    cluster_sizes,
    question_clusters,
    question_set,
    splits,
)
from feval.evaluation.replicates import (
    Drawing,
    Draws,
    Outcome,
    default_replicates,
    draws,
    expectation,
    replicated,
    scores_read,
    scoring_costs,
    together,
)
from feval.evaluation.results import DatasetResult, interval_ends, rests_on
from feval.evaluation.user_methods import MethodFile, learns, require_arguments
from feval.executors import Progress, silent
from feval.lazy import Plottable
from feval.methods.fields import json_field, set_fields
from feval.methods.protocol import BatchMethod, Floats, Rows, capabilities, is_exact, may_search
from feval.replay import LLM, ORDERS, Timing, load, without_gaps
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.cards import ServingProfile
    from feval.methods.protocol import ErrorShares, ExactMethod, Method, MonteCarloPart
    from feval.recording import Recording
    from feval.replay import Dataset

ERRORS = ("no_answer", "wrong_vote", "stopped_early", "routed_wrong")
"""How a wrong answer came about."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Evaluation(Averages, DatasetResult, Plottable):
    """One method on Q questions of one dataset. Numbers per question are means over its draws.

    Every measure is an attribute, [Q] as `usd`, `tokens`, `calls`, `samples`, `output_tokens` or
    `sequential_tokens`, and its mean as `usd_per_question`; `None` where it is not known. See
    `feval.evaluation.measures.MEASURES`.

    Attributes:
        method: name of the method.
        fields: its hyper-parameters.
        kind: "exact", "recorded" or "seeded".
        replicates: draws per question (seeded), 1 (recorded), `None` (exact).
        question_ids: Q ids.
        question_keys: [Q] keys to sort questions by where their recorded order must make no
            difference.
        right: [Q] probability that the answer is the gold.
        ledger: what the method consumed.
        error_shares: returns how wrong answers came about, see `no_answer`, `stopped_early` and
            `routed_wrong`. For an exact evaluation it is computed on the first call.
        draw_again: gives `draws`.
        train_questions: how many other questions were set aside for training; 0 for none.
        accuracy_low, accuracy_high: ends of the confidence interval, `None` where none was asked
            for.
    """

    method: str
    fields: RecordLike
    kind: str
    replicates: int | None
    question_ids: Sequence[str]
    question_keys: npt.NDArray[np.uint64]
    right: Floats
    ledger: QuestionLedger = field(repr=False)
    error_shares: Callable[[], ErrorShares]
    draw_again: Callable[[], Draws] = field(repr=False)
    train_questions: int = 0
    accuracy_low: float | None = None
    accuracy_high: float | None = None

    @cached_property
    def accuracy(self) -> float:
        """Mean over questions of the probability of being right."""
        return float(self.right.mean())

    @cached_property
    def draws(self) -> Draws:
        """The answer to every question in every draw, and how right it is; the method is asked
        again.

        Raises:
            UsageError: the evaluation is exact, and has no draws.
        """
        if self.kind == "exact":
            raise UsageError(
                "An exact evaluation is an expectation over all draws, of which it made none; take"
                " order='seeded' or 'recorded'."
            )
        return self.draw_again()

    @property
    def usd_per_right(self) -> float | None:
        """Mean USD over accuracy, infinite where nothing is right; `None` where USD are not
        known.
        """
        paid = self.usd_per_question
        return None if paid is None else paid / self.accuracy if self.accuracy else math.inf

    @property
    def cost_of_pass(self) -> dict[str, float | None]:
        """What a right answer costs whoever asks again until one is (arXiv 2504.13359): `mean` over
        questions of USD over accuracy, as of independent retries with a perfect verifier, infinite
        where a question is never right; `never_right`, how many are; `mean_of_others`. `None` for
        what is not known.
        """
        can = self.right > 0
        never = len(can) - int(can.sum())
        others = None
        if self.usd is not None and can.any():
            others = float((self.usd[can] / self.right[can]).mean())
        mean = math.inf if self.usd is not None and never else others
        return {"mean": mean, "never_right": never, "mean_of_others": others}

    def _paid(self) -> Sequence[tuple[str, Any]]:
        return [(self.method, self)]

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
        parts = self.no_answer, self.stopped_early, self.routed_wrong
        none, early, routed = (None if part is None else float(part.mean()) for part in parts)
        if none is None or early is None or routed is None:
            return dict.fromkeys(ERRORS) | {"no_answer": none}
        vote = max(1 - self.accuracy - none - early - routed, 0.0)  # rounding
        return dict(zip(ERRORS, (none, vote, early, routed), strict=True))

    def records(self) -> list[Record]:
        """One row of name -> number, as tables hold it; `feval.evaluation.measures.MEANS` says
        which measures they are.
        """
        own = {name: getattr(self, name) for name in ("accuracy", "accuracy_low", "accuracy_high")}
        averages = self.ledger.averages("always", "files", cost=self.cost)
        return [{"method": self.method, "llms": self.llm, "kind": self.kind} | own | averages]

    def to_dict(self) -> Record:
        """The averages as JSON values: what `feval run --json` prints."""
        names = (
            "method",
            "kind",
            "accuracy",
            "accuracy_low",
            "accuracy_high",
            "replicates",
            "seed",
        )
        result = self._shared_dict() | {
            **{name: getattr(self, name) for name in names},
            "fields": {name: json_field(value) for name, value in self.fields.items()},
            "llms": list(self.llms),
            **self.ledger.averages("always", "curves", "files", "used", cost=self.cost),
            "errors": self.errors(),
            "usd_per_right": _finite(self.usd_per_right),
            "cost_of_pass": {name: _finite(each) for name, each in self.cost_of_pass.items()},
            "billed": self.ledger.bill_rows(),
        }
        if self.errors_estimate is not None:
            result["errors_estimate"] = asdict(self.errors_estimate)
        if self.train_questions:
            result["train_questions"] = self.train_questions
        if self.kind == "recorded":
            named = {name: getattr(self, name) for name in _TOTALS}
            whole = self.right if (self.right % 1 == 0).all() else None  # no partial credit
            totals = {"correct": whole, "traces": self.samples} | named
            result |= {
                name: None if each is None else int(each.sum()) for name, each in totals.items()
            }
        return result


def _finite(value: float | None) -> float | None:
    return None if value == math.inf else value


_TOTALS = ("samples", "output_tokens", "sequential_tokens", "longest_trace_tokens")


@checked
@executors.reports("evaluating")
def evaluate(
    method: BatchMethod | Method | ExactMethod,
    dataset: Dataset | str,
    llms: LLM | str | Sequence[LLM | str],
    *,
    recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
    right: str | None = None,
    order: str | None = None,
    replicates: int | None = None,
    seed: int | None = None,
    rows: Sequence[int] | Rows | None = None,
    unlabelled: str = "refuse",
    short_pools: str = "refuse",
    train_fraction: float | None = None,
    folds: int | None = None,
    group: str | None = None,
    split_seed: int = 0,
    cost: str | None = None,
    serving: str | Path | ServingProfile | None = None,
    parallel: int | None = None,
    clusters: ClusterNames | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    time_limit: float | None = TIME_LIMIT,
    confidence: float | None = 0.95,
    progress: Progress = silent,
) -> Evaluation:
    """Evaluate a method on a dataset.

        evaluate(SelfConsistency(5), "tiny_sums", "feval/tiny-42k", recording="my-recording")

    Args:
        method: a built-in method, any callable `(question, *llms) -> answer`, or the oracle.
        dataset: from `load`; or its id, which is loaded from `recording`.
        llms: from the same `load`, in the order the method wants them; or names, with an id.
        recording: where to load from, as for `load`.
        right: what says which CoTs are right, as for `load`.
        order: "exact" (expectation over all draws; the default where the method has one, for its
            `cost`, too), "seeded" (the default otherwise, also where these pools have too many
            different answers for an expectation) or "recorded".
        replicates: how many draws of every question, for "seeded"; `None` for
            `feval.evaluation.replicates.default_replicates`.
        seed: of the draws; `None` for that of the load.
        rows: which questions, by row; `None` for all.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer CoTs of some LLM than the method may
            ask for.
        train_fraction: share of the questions set aside to fit a method that learns; every method
            is evaluated on the rest. A method that was given what it would learn (a temperature,
            thresholds) keeps it.
        folds: in its place, so many parts of the questions: each is judged by what was learnt from
            all others, so that every question is judged once.
        group: a feature; questions with the same value of it are never learnt from and judged.
            Nor are those with the same text, or of one cluster.
        split_seed: of the split or the folds, see `train_test_rows`.
        cost: what will be looked at, one of `feval.evaluation.measures.COSTS`; seconds are replayed
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
        confidence: level of the interval over questions (`estimators.intervals`); `None`
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
    asked = [llms] if isinstance(llms, (LLM, str)) else list(llms)
    named = [isinstance(each, str) for each in (dataset, *asked)]
    loading = {"recording": recording, "right": right}
    if any(named) != all(named) or (any(loading.values()) and not named[0]):
        raise UsageError(
            "An evaluation takes a dataset and LLMs from `load`, or with recording=PLACE the names"
            f" of both; {dataset!r:.60}, {llms!r:.60}, {loading!r:.80} was given. What says which"
            " CoTs are right is an argument of `load`, too."
        )
    used = cast("list[LLM]", asked)
    if isinstance(dataset, str):
        dataset, used = load(dataset, cast("list[str]", asked), recording, right=right)
    if not used or (replicates is not None and replicates < 1) or workers < 1:
        raise UsageError(
            f"An evaluation needs an LLM, a replicate and a worker; {len(used)}, {replicates} and"
            f" {workers} were given."
        )
    dataset.require(used, steps=may_search(method))
    if isinstance(method, MethodFile):
        method = cast("Any", method.started(time_limit))
    used = used if seed is None else [llm.seeded(seed) for llm in used]
    if serving is not None:
        serving = cards.serving_profile(serving)
    timing = Timing.from_options(cost, serving, parallel)
    kind, inexact = _kind(method, order, cost, parallel), None
    learnt: list[Fit] = []
    with named_errors(method, used):
        most = budgets(method, used)
        questions = question_set(
            dataset, most, rows=rows, unlabelled=unlabelled, short_pools=short_pools, by_cot=True
        )
        chosen = questions.rows
        split = splits(dataset, chosen, train_fraction, folds, split_seed, group, clusters)
        if split:
            chosen = np.sort(np.concatenate([each.test for each in split]))
        replicates = default_replicates(len(chosen)) if replicates is None else replicates
        if not len(chosen):
            raise UsageError(
                f"An evaluation needs a question; {dataset.id} was to be evaluated on none."
            )
        if split and learns(method):
            learnt = fits(method, dataset, used, split, time_limit)
            parts = [(each.method, each.rows) for each in learnt]
        else:
            parts = [(ready(method, dataset, used, chosen), chosen)]
        if len(parts) == 1:
            [(method, _)] = parts
        elif capabilities(parts[0][0]).whole_set:
            raise UsageError(
                f"{methods.method_name(method)} decides on a question by the others, and folds are"
                " judged apart from each other; take --train-fraction (in Python: train_fraction)."
            )
        unscored, unpaid = _unscored(parts, used), _unpaid(*parts[0], used)
        timing = None if timing is None else timing.require(used, chosen)
        for llm in used:
            llm.pool.rows(chosen).stating(llm.stated)  # all that state none are counted at once
        outcomes: list[Outcome] = []

        def asking(part: tuple[Any, Rows]) -> tuple[Any, Dataset, list[LLM], Rows]:
            return part[0], dataset, used, part[1]

        if kind == "exact":
            try:
                outcomes = [expectation(each, dataset, used, rows, timing) for each, rows in parts]
            except NotExactError as error:
                if order is not None:
                    raise
                kind, inexact = "seeded", error.reason
        drawing = Drawing(kind, replicates, time_limit, timing)
        if kind != "exact":
            with executors.opened(workers, given=executor) as opened:
                done = 0

                def counted(own: int, _: int) -> None:
                    progress(done + own, len(chosen))

                for part in parts:
                    outcomes.append(replicated(*asking(part), drawing, opened, counted))
                    done += len(part[1])
        places = np.searchsorted(chosen, np.concatenate([rows for _, rows in parts]))
        outcome = together(outcomes, places)

    def draw_again() -> Draws:
        own = [draws(*asking(part), drawing._replace(timing=None)) for part in parts]
        answer, right = (
            np.concatenate([getattr(each, name) for each in own], axis=1)[:, np.argsort(places)]
            for name in ("answer", "right")
        )
        return Draws(answer, right)

    grouped = None if confidence is None else question_clusters(dataset, chosen, clusters)
    low, high = next(interval_ends(outcome.right[:, None], confidence, grouped))
    probed = outcome.ledger.mean("probe_calls")
    drawn = {"exact": None, "recorded": 1, "seeded": replicates}[kind]
    return Evaluation(
        **rests_on(dataset, used, chosen),
        method=methods.method_name(method),
        fields=dict(method.settings) if isinstance(method, MethodFile) else set_fields(method),
        kind=kind,
        replicates=drawn,
        question_ids=ByRow(dataset.question_ids.__getitem__, chosen),
        question_keys=dataset.question_keys[without_gaps(chosen)],
        right=outcome.right,
        ledger=outcome.ledger,
        error_shares=outcome.error_shares,
        draw_again=draw_again,
        train_questions=len(split[0].train) if len(split) == 1 else 0,
        learnt=tuple(learnt),
        accuracy_low=low,
        accuracy_high=high,
        confidence=confidence,
        left_out=questions.left_out,
        clusters=cluster_sizes(grouped),
        cautions=(
            *mixed_counters(llm.counter for llm in used),
            *probes_for_nothing(
                [llm.name for llm in used if probed and llm.pool.has_uncounted_probes()]
            ),
            *uncompared(outcome.uncompared, len(chosen) * (drawn or 1)),
            *unscored_cots(unscored),
            *unpaid_scores(unpaid if outcome.ledger.mean("usd") is not None else []),
            *other_models(used),
            *(method.cautions([llm.name for llm in used]) if hasattr(method, "cautions") else ()),
            *not_exact(inexact),
            *_overspent(method, learnt, outcome.ledger),
        ),
        cost=cost,
        timing=timing,
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
        callable(method)
        or isinstance(method, (BatchMethod, MethodFile))
        or capabilities(method).exact
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
        return [] if capabilities(method).searches else list(zip(llms, draws, strict=True))
    if isinstance(method, MethodFile):
        method.host.require_arguments(len(llms))
    else:
        require_arguments(method, methods.method_name(method), len(llms))
    return []


def _unscored(parts: Sequence[tuple[Any, Rows]], llms: Sequence[LLM]) -> dict[str, tuple[int, int]]:
    """LLM -> how many of its CoTs lack the score that the method compares them by, and how many
    there are; of a search, steps instead of CoTs.
    """
    counts: dict[str, tuple[int, int]] = {}
    for method, rows in parts if hasattr(parts[0][0], "ratings") else ():
        pools = [llm.pool.rows(rows) for llm in llms]
        for pool, ratings in zip(pools, method.ratings(pools), strict=True):
            compared = pool.codes >= (-1 if capabilities(method).searches else 0)
            unscored = 0 if ratings is None else int((compared & np.isnan(ratings)).sum())
            if unscored:
                before = counts.get(pool.llm, (0, 0))
                counts[pool.llm] = before[0] + unscored, before[1] + int(compared.sum())
    return counts


def _overspent(method: Any, learnt: Sequence[Fit], ledger: QuestionLedger) -> Iterator[str]:
    """Yield a sentence where what was fitted to a mean cost spends more where it is judged."""
    budget = getattr(method, "budget", None) if learnt else None
    if learnt and (total := getattr(method, "total_budget", None)) is not None:
        budget = total / len(learnt[0].rows)
    spent = ledger.mean("usd" if learnt and learnt[0].unit == "USD" else "tokens")
    if isinstance(budget, (int, float)) and spent is not None and spent > budget * (1 + 1e-9) > 0:
        unit, times = (
            ("USD per 1,000 questions", 1000)
            if learnt[0].unit == "USD"
            else ("tokens per question", 1)
        )
        yield (
            f"It was fitted to a mean cost of {times * budget:.6g} {unit}, and takes"
            f" {times * spent:.4g} where it is judged, {100 * (spent / budget - 1):.3g} % more."
        )


def _unpaid(method: Any, rows: Rows, llms: Sequence[LLM]) -> list[str]:
    """The scorers whose scores a method reads for nothing, though nobody asked for that."""
    pools = [llm.pool.rows(rows) for llm in llms]
    read = [] if billing_rule(llms[0].billing).scorers else scores_read(method, pools)
    names = dict.fromkeys(scores.scorer.name for scores in read if scores is not None)
    return [*names] if names and scoring_costs(method, llms, pools) is None else []


def _kind(method: object, order: str | None, cost: str | None, parallel: int | None) -> str:
    """The kind of evaluation that was asked for, or the default."""
    exact = capabilities(method).exact
    if order is None:
        return "exact" if is_exact(method, cost, parallel) else "seeded"
    require_known("order", order, ORDERS)
    if order == "exact" and not exact:
        raise UsageError(
            f"No exact expectation over all draws is known for {methods.method_name(method)}; take"
            " --order seeded or recorded (in Python: order='seeded')."
        )
    if order != "exact" and not (callable(method) or isinstance(method, (BatchMethod, MethodFile))):
        raise UsageError(
            f"The {methods.method_name(method)} is an expectation over all draws; take --order"
            " exact."
        )
    return order


@contextmanager
def named_errors(method: object, llms: Sequence[LLM]) -> Iterator[None]:
    """Add to an error about the recording which method it stops, and what that method needs."""
    try:
        yield
    except UnlabelledError:  # whatever the method
        raise
    except (ShortPoolError, NotRecordedError) as error:
        needs = capabilities(method).needs
        advice = f" {needs}" if needs else ""
        if isinstance(error, ShortPoolError):
            pool = min(llm.pool.smallest for llm in llms)
            advice = ""
            for name in ("width", "budget", "samples", "n"):  # the last that is too large is named
                if isinstance(most := getattr(method, name, 0), int) and most > pool > 0:
                    set_to = f"{name}={pool}"
                    advice = f" Its budget is the field {name}: --set {set_to}."
        raise type(error)(
            f"The method {methods.method_name(method)} cannot be evaluated: {error}{advice}"
        ) from error
