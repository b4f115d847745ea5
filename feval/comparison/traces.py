"""What each method of a comparison did on each question in one draw: how many CoTs it took of each LLM, and its answer.

A comparison holds averages over draws; to look at a question, one draw must be followed. It is the first seeded one (replicate
0), or the recorded order where the comparison was made in that. Nothing is measured here: numbers are the comparison's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import FevalError
from feval.evaluation.evaluation import called, decisions, fit, train_test_rows
from feval.evaluation.specs import make_method
from feval.evaluation.user_methods import TIME_LIMIT
from feval.hub import is_address
from feval.methods.protocol import BatchMethod
from feval.replay.loading import load

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison, Entry, MethodCurve, Plan
    from feval.evaluation.evaluation import Evaluation
    from feval.methods.decisions import Decisions
    from feval.replay.loading import LLM, Dataset

__all__ = ["Trace", "Traces", "budget_label", "judged_rows", "opened", "traces"]

Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Trace:
    """One method at one budget in one draw, on Q questions.

    Attributes:
        label: of the method's curve.
        budget: the swept field and its value, such as "n = 5"; empty where nothing is swept.
        llms: names, in the order the method was given them.
        answer: [Q] codes, -1 for no answer; a code beyond the candidates is an answer that no CoT gave.
        cots: [L, Q] CoTs taken of each LLM.
    """

    label: str
    budget: str
    llms: tuple[str, ...]
    answer: Integers = field(repr=False)
    cots: Integers = field(repr=False)


@dataclass(frozen=True, eq=False)
class Traces:
    """The traces of a comparison.

    Attributes:
        order: "recorded" or "seeded" (then it is replicate 0).
        rows: [Q] rows of the questions that the methods were judged on.
        curves: per curve of the comparison, the traces of its points.
        missing: (label, sentence) of every method that could not be followed.
    """

    order: str
    rows: Rows
    curves: tuple[tuple[Trace, ...], ...]
    missing: tuple[tuple[str, str], ...]


def opened(comparison: Comparison, base: Path = Path()) -> tuple[Dataset, list[LLM]]:
    """The dataset of a comparison and the LLMs that its curves name, loaded as the comparison loads them.

    Args:
        comparison: what was compared.
        base: folder that the plan's paths start from.

    Raises:
        RecordingError: a recording cannot be read.
        NotRecordedError: the recordings lack the dataset or an LLM.
    """
    plan = comparison.plan
    names = list(dict.fromkeys(name for curve in comparison.curves for name in curve.entry.llms))
    prices = plan.prices if not plan.prices or not (base / plan.prices).is_file() else str(base / plan.prices)
    folders = [place if is_address(place) else base / place for place in plan.recordings]
    return load(plan.dataset, names, folders, seed=plan.seed, prices=prices, billing=plan.billing)


def traces(
    comparison: Comparison,
    dataset: Dataset,
    llms: Sequence[LLM],
    *,
    base: Path = Path(),
    time_limit: float | None = TIME_LIMIT,
) -> Traces:
    """Follow every method of a comparison through one draw of every question.

    Args:
        comparison: what was compared.
        dataset: that it was made on.
        llms: all that it names, from the same `load`.
        base: folder that the plan's paths start from, such as those of users' methods.
        time_limit: seconds that a user's method may take on one question; `None` for no limit.
    """
    dataset.require(llms)
    order = "recorded" if comparison.plan.order == "recorded" else "seeded"
    by_name = {llm.name: llm.seeded(comparison.plan.seed) for llm in llms}
    left_out = {*comparison.left_out.unlabelled, *comparison.left_out.short_pools}
    split = np.array([row for row, name in enumerate(dataset.question_ids) if name not in left_out], np.intp)
    judged = judged_rows(comparison, dataset)
    follow = _Follower(comparison.plan, dataset, by_name, split, judged, order, base, time_limit)
    curves, missing = [], []
    for curve in comparison.curves:
        try:
            curves.append(follow.curve(curve))
        except FevalError as error:
            curves.append(())
            missing.append((curve.label, str(error)))
    return Traces(order, follow.rows, tuple(curves), tuple(missing))


def judged_rows(comparison: Comparison, dataset: Dataset) -> Rows:
    """[Q] rows of the questions that a comparison was made on."""
    told = next((point for curve in comparison.curves for point in curve.points), None)
    if told is None:
        return np.arange(len(dataset))
    places = {name: row for row, name in enumerate(dataset.question_ids)}
    return np.array([places[name] for name in told.question_ids], np.intp)


def budget_label(entry: Entry, told: Evaluation) -> str:
    """The swept field of a point and its value, such as "n = 5"; empty where nothing is swept."""
    return f"{entry.sweep[0]} = {told.fields.get(entry.sweep[0])}" if entry.sweep else ""


@dataclass(frozen=True, eq=False)
class _Follower:
    """Runs methods on one draw; `split` are the rows that training and judged questions were chosen from."""

    plan: Plan
    dataset: Dataset
    llms: Mapping[str, LLM]
    split: Rows
    rows: Rows
    order: str
    base: Path
    time_limit: float | None

    def curve(self, curve: MethodCurve) -> tuple[Trace, ...]:
        found = []
        for told in curve.points:
            llms = [self.llms[name] for name in told.llms]
            decided = self._decided(self._method(curve.entry, told, llms), llms)
            cots = np.stack([ledger.cots[0] for ledger in decided.ledgers])
            found.append(Trace(curve.label, budget_label(curve.entry, told), told.llms, decided.answer[0], cots))
        return tuple(found)

    def _method(self, entry: Entry, told: Evaluation, llms: Sequence[LLM]) -> Any:

        settings = dict(entry.fields)
        if entry.sweep:
            settings[entry.sweep[0]] = told.fields[entry.sweep[0]]
        path, colon, function = entry.method.rpartition(":")
        method = make_method(f"{self.base / path}:{function}" if colon else entry.method, settings)
        if self.plan.train_fraction is not None and hasattr(method, "fit"):
            train, _ = train_test_rows(self.dataset, self.plan.train_fraction, self.plan.split_seed, self.split)
            method = fit(method, self.dataset, llms, train)
        return method

    def _decided(self, method: Any, llms: Sequence[LLM]) -> Decisions:

        if isinstance(method, BatchMethod):
            return next(iter(decisions(method, llms, order=self.order, rows=self.rows)))
        replicate = 0 if self.order == "seeded" else None
        return called(method, self.dataset, llms, self.rows, replicate, self.time_limit)
