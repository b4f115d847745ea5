"""Fit what learns on some questions, to be judged on others.

A method is handed `Training`, which holds nothing of the questions that it is judged on. One that
says something of each question beforehand (`Predicting`) is then asked for that, and decides by it
alone: it goes into receipts as data, and `given_fits` has evaluations take it from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import evaluation, methods
from feval.arguments import checked
from feval.cards.billing import PICODOLLARS
from feval.errors import UsageError
from feval.evaluation import TIME_LIMIT
from feval.evaluation.questions import ByRow, Split, question_clusters
from feval.evaluation.replicates import scoring_costs
from feval.evaluation.user_methods import MethodFile
from feval.methods.fields import json_field, set_fields
from feval.methods.protocol import (
    STATED,
    Integers,
    Predicting,
    Predictions,
    Questions,
    Rows,
    Training,
    capabilities,
)
from feval.replay import without_gaps
from feval.values import Record, RecordLike, frozen

if TYPE_CHECKING:
    from feval.replay import LLM, Dataset


def questions_of(dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> Questions:
    """Some questions as a method that has learnt sees them before it asks anything."""
    prices = [STATED if llm.states_usd else llm.price for llm in llms]

    def text(row: int) -> str:
        entry = dataset[row]
        return "\n".join([entry.question, *(f"{label}) {own}" for label, own in entry.choices)])

    pools = [llm.pool.rows(rows) for llm in llms]
    return Questions(
        [
            replace(pool, output_tokens=pool.stating(["picodollars"]).amounts["picodollars"])
            if llm.states_usd
            else pool
            for llm, pool in zip(llms, pools, strict=True)
        ],
        texts=ByRow(text, rows),
        features=ByRow(lambda row: dataset[row].features, rows),
        replies=lambda llm: ByRow(llms[llm].texts, rows),
        prices=[price for price in prices if price] if all(prices) else (),
        billing=llms[0].billing,
    )


@checked
def training(
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    method: Any = None,
    *,
    groups: Integers | None = None,
) -> Training:
    """Some questions as a method learns from them: `method.fit(training(dataset, llms, rows))`.

    Args:
        dataset: from `load`.
        llms: from the same `load`, in the order the method wants them.
        rows: of the training questions, such as `train_test_rows` gives them.
        method: who learns; only one that chooses among CoTs can learn where several answers to a
            question are right.
        groups: [Q] equal where questions stay together; `None` for those with equal texts.

    Raises:
        UsageError: what is right is no party of answers, and the method needs that, or CoTs that
            are right or wrong; or an LLM is from another `load`.
    """
    dataset.require(llms)
    own, gold = questions_of(dataset, llms, rows), dataset.gold[rows]
    judges = evaluation.judged(method, dataset, llms, rows) if dataset.rightness else None
    values = {each.name: getattr(own, each.name) for each in fields(own)}
    if judges:
        values["pools"], gold = judges.to_learn_from(method, own.pools)
    groups = question_clusters(dataset, rows) if groups is None else groups
    return Training(gold=gold, groups=() if groups is None else tuple(groups.tolist()), **values)


@frozen
class Fit:
    """What a method has learnt from some questions, and what that took.

    Attributes:
        method: the fitted method, ready to decide on the questions in `rows`.
        rows: where it is judged.
        questions: how many it has learnt from.
        cost: of all their CoTs, each prompt paid once per LLM, and of their scores where somebody
            pays for these (`scorer_cost`), in `unit`; `None` where it is not known.
        unit: "USD" or "tokens".
        key: which fit it is, among those of a receipt.
        found: the fields that it has learnt.
    """

    method: Any
    rows: Rows
    questions: int
    cost: float | None
    unit: str
    key: str
    found: tuple[str, ...] = ()

    def to_dict(self) -> Record:
        """What was learnt, and from how much, as JSON values."""
        own = {"questions": self.questions, "cost": self.cost, "unit": self.unit}
        return own | {"fields": fields_of(self.method)}

    @property
    def data(self) -> Record:
        """What a receipt holds of a method that decides by `predictions`; nothing for another."""
        said = getattr(self.method, "predictions", None)
        return {} if said is None else {"fields": fields_of(self.method), "said": said.to_dict()}


_GIVEN: ContextVar[RecordLike | None] = ContextVar("given_fits", default=None)


@contextmanager
def given_fits(fits: RecordLike | None) -> Iterator[None]:
    """Have `evaluate` take what was learnt from here, by `Fit.key`, where it has something, and not
    learn it again.
    """
    token = _GIVEN.set(fits)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def fits(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    splits: Sequence[Split],
    time_limit: float | None = TIME_LIMIT,
) -> list[Fit]:
    """A method fitted on the training rows of each split, ready for the others.

    Raises:
        UsageError: as for `training`, or by the method.
    """
    return [_fit(method, dataset, llms, *split, time_limit) for split in splits]


def _fit(
    method: Any,
    dataset: Dataset,
    llms: Sequence[LLM],
    rows: Rows,
    judged: Rows,
    groups: Integers,
    time_limit: float | None,
) -> Fit:
    train = training(dataset, llms, rows, method, groups=groups)
    each = [
        train.price(llm, pool.prompt_tokens, pool.output_tokens.sum(axis=1))
        for llm, pool in enumerate(train.pools)
    ]
    cost = float(np.sum(each))
    if train.prices and (scoring := scoring_costs(method, llms, train.pools)) is not None:
        cost += float(np.sum(scoring)) / PICODOLLARS
    names = [methods.method_name(method), fields_of(method), [llm.name for llm in llms]]
    keys = sorted(train.keys.tolist())
    key = hashlib.sha256(json.dumps([*names, keys]).encode()).hexdigest()[:32]
    given, before = (_GIVEN.get() or {}).get(key), fields_of(method)
    if isinstance(method, MethodFile):
        method = method.started(time_limit)
        method.host.fit((dataset, llms, rows, train), time_limit)
    elif given is not None and isinstance(method, Predicting):
        method = _taken(method, given)
    else:
        fitted = method.fit(train)
        if not callable(fitted) and not hasattr(fitted, "decide"):
            raise UsageError(
                f"`fit` of {names[0]} returned {fitted!r:.60}; it returns the fitted method."
            )
        method = ready(fitted, dataset, llms, judged)
    found = tuple(name for name, value in fields_of(method).items() if value != before.get(name))
    known = None if np.isnan(cost) else cost
    return Fit(method, judged, len(rows), known, train.unit, key, found)


def ready(method: Any, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> Any:
    """A method that was fitted, with what it says of some questions.

    Raises:
        UsageError: it has learnt from some of these questions, from other LLMs or at other prices.
    """
    if not isinstance(method, Predicting):
        return method
    known = method.learnt_from
    if known is not None:
        name, questions = methods.method_name(method), questions_of(dataset, llms, rows)
        asked = questions.origin
        seen = int(np.isin(dataset.question_keys[without_gaps(rows)], known.keys).sum())
        if asked.llms != known.llms:
            raise UsageError(
                f"{name} has learnt from {', '.join(known.llms)}, and is to be judged with"
                f" {', '.join(asked.llms)}; fit it again on these LLMs."
            )
        if asked.prices != known.prices:
            raise UsageError(
                f"{name} has learnt at other prices than those that it is to be judged at; fit it"
                " again at these prices."
            )
        if seen:
            raise UsageError(
                f"{name} has learnt from {seen} of the {len(rows)} questions that it is to be"
                " judged on; take others (rows, train_test_rows)."
            )
        if method.model is not None:
            method = method.predicted(questions)
    # no learner goes to another process
    return method.having(model=None)


def fields_of(method: Any) -> Record:
    """The fields of a method as JSON values."""
    own = dict(method.settings) if isinstance(method, MethodFile) else set_fields(method)
    return {name: json_field(value) for name, value in own.items()}


def _taken(method: Any, given: Any) -> Any:
    """A method with what a receipt says that it has learnt, which may be anything."""
    if not isinstance(given, Mapping) or not isinstance(given.get("fields"), Mapping):
        raise UsageError("What the receipt holds of a fitted method is damaged.")
    own = fields_of(method)
    learnt = {name: value for name, value in given["fields"].items() if own.get(name, ...) != value}
    if others := set(learnt) - set(capabilities(method).learns):
        raise UsageError(
            "The receipt's fitted method differs from the one that was fitted in what nobody"
            f" learns: {sorted(others)}."
        )
    return replace(method, **learnt).having(predictions=Predictions.from_dict(given.get("said")))
