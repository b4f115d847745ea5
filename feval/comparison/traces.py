"""What each method of a comparison did on each question in one draw: how many CoTs it took of each
LLM, and its answer.

A comparison holds averages over draws; to look at a question, one draw is followed: the first
seeded one (replicate 0), or the recorded order for a comparison in that order. Nothing is measured
here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from feval.errors import FevalError
from feval.evaluation.replicates import called, decisions, method_answers
from feval.evaluation.training import fit
from feval.evaluation.user_methods import TIME_LIMIT, learns
from feval.methods.protocol import BatchMethod, capabilities
from feval.replay import load

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.comparison.plan import ComparedMethod, Plan
    from feval.comparison.runner import MethodCurve
    from feval.evaluation.evaluation import Evaluation
    from feval.methods.protocol import Decisions
    from feval.replay import LLM, Dataset

Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Trace:
    """One method at one budget in one draw, on Q questions.

    Attributes:
        budget: the swept field and its value, such as "n = 5"; empty where nothing is swept.
        llms: names, in the order the method was given them.
        answer: [Q] codes, -1 for no answer; a code beyond the candidates is an answer that no CoT
            gave.
        cots: [L, Q] CoTs taken of each LLM.
        grown: of the first questions, per LLM, recorded place and tokens of every trace or step
            that it was handed; empty for a built-in method that takes CoTs whole.
    """

    label: str
    budget: str
    llms: tuple[str, ...]
    answer: Integers = field(repr=False)
    cots: Integers = field(repr=False)
    grown: tuple[Sequence[Sequence[tuple[int, int]]], ...] = field(default=(), repr=False)


@dataclass(frozen=True, eq=False)
class Traces:
    """The traces of a comparison.

    Attributes:
        order: "recorded", or "seeded" for replicate 0.
        rows: [Q] rows of the questions that were followed.
        judged: number of questions that the methods were judged on; those followed are the first of
            them.
        curves: per curve of the comparison, the traces of its points.
        missing: (label, reason) of every method that could not be followed.
    """

    order: str
    rows: Rows
    judged: int
    curves: tuple[tuple[Trace, ...], ...]
    missing: tuple[tuple[str, str], ...]


def load_compared(comparison: Comparison, base: Path = Path()) -> tuple[Dataset, list[LLM]]:
    """What a comparison was made on: its dataset, and the LLMs that its curves name; paths start
    from `base`.
    """
    plan = comparison.plan
    names = list(dict.fromkeys(name for curve in comparison.curves for name in curve.entry.llms))
    if comparison.loaded is not None and list(comparison.loaded[1]) == names:
        return comparison.loaded[0], [*comparison.loaded[1].values()]
    folders, prices = plan.places(base)
    return load(plan.dataset, names, folders, **plan.loading() | {"prices": prices})


def traces(
    comparison: Comparison,
    dataset: Dataset,
    llms: Sequence[LLM],
    *,
    questions: int | None = None,
    closely: int = 0,
    time_limit: float | None = TIME_LIMIT,
) -> Traces:
    """Follow every method of a comparison through one draw of the first questions, or of all.

    On the first `closely` of them methods on traces and searches are followed into traces and
    steps, too. `dataset` and `llms` come from `load_compared`.
    """
    dataset.require(llms, steps=True)
    order = "recorded" if comparison.plan.order == "recorded" else "seeded"
    by_name = {llm.name: llm.seeded(comparison.plan.seed) for llm in llms}
    left_out = {*comparison.left_out.unlabelled, *comparison.left_out.short_pools}
    split = np.arange(len(dataset))
    if left_out:
        split = np.array(
            [row for row, name in enumerate(dataset.question_ids) if name not in left_out], np.intp
        )
    judged = judged_rows(comparison, dataset)
    first = judged[:questions]
    follow = _Follower(
        comparison.plan,
        dataset,
        by_name,
        split,
        judged,
        first,
        closely,
        order,
        comparison.methods,
        time_limit,
    )
    curves, missing = [], []
    for curve in comparison.curves:
        try:
            curves.append(follow.curve(curve))
        except FevalError as error:
            curves.append(())
            missing.append((curve.label, str(error)))
    return Traces(order, first, len(judged), tuple(curves), tuple(missing))


def judged_rows(comparison: Comparison, dataset: Dataset) -> Rows:
    """[Q] rows of the questions that a comparison was made on."""
    first = next((point for curve in comparison.curves for point in curve.points), None)
    if first is None:
        return np.arange(len(dataset))
    by_key = np.argsort(dataset.question_keys, kind="stable")
    return by_key[np.searchsorted(dataset.question_keys, first.question_keys, sorter=by_key)]


def budget_label(entry: ComparedMethod, point: Evaluation) -> str:
    """The swept field of a point and its value, such as "n = 5"; empty where nothing is swept."""
    return f"{entry.sweep[0]} = {point.fields.get(entry.sweep[0])}" if entry.sweep else ""


@dataclass(frozen=True, eq=False)
class _Follower:
    """Runs methods on one draw of some judged questions; training and judged ones were chosen from
    the rows in `split`.
    """

    plan: Plan
    dataset: Dataset
    llms: Mapping[str, LLM]
    split: Rows
    judged: Rows
    rows: Rows
    closely: int
    order: str
    methods: Mapping[str, Any]
    time_limit: float | None

    def curve(self, curve: MethodCurve) -> tuple[Trace, ...]:
        followed = []
        for point in curve.points:
            llms = [self.llms[name] for name in point.llms]
            method = self._method(curve.entry, point, llms)
            decided = self._decided(method, llms)
            shown = slice(len(self.rows))
            cots = np.stack([ledger.cots[0, shown] for ledger in decided.ledgers])
            answer = decided.answer[0, shown]
            grown = tuple(self._grown(method, llms, decided))
            followed.append(
                Trace(
                    curve.label, budget_label(curve.entry, point), point.llms, answer, cots, grown
                )
            )
        return tuple(followed)

    def _method(self, entry: ComparedMethod, point: Evaluation, llms: Sequence[LLM]) -> Any:
        swept = {entry.sweep[0]: point.fields[entry.sweep[0]]} if entry.sweep else {}
        method = entry.make({**entry.fields, **swept}, self.methods)
        train, _ = self.plan.split(self.dataset, self.split)
        return (
            fit(method, self.dataset, llms, train, self.time_limit)
            if len(train) and learns(method)
            else method
        )

    def _decided(self, method: Any, llms: Sequence[LLM]) -> Decisions:
        if isinstance(method, BatchMethod):
            rows = self.judged if capabilities(method).whole_set else self.rows
            return next(iter(decisions(method, llms, order=self.order, rows=rows)))
        return called(method, self.dataset, llms, self.rows, self._replicate, self.time_limit)

    def _grown(
        self, method: Any, llms: Sequence[LLM], decided: Decisions
    ) -> Iterator[Sequence[Sequence[tuple[int, int]]]]:
        """Traces and steps are known to the readable form, which has the same draw and ledger as
        the batch form.
        """
        rows = self.rows[: self.closely]
        deep = len(rows) > 0 and any(
            llm.pool.channels.has_probes or llm.pool.channels.has_steps for llm in llms
        )
        if isinstance(method, BatchMethod):
            probing = any(ledger.probe_calls is not None for ledger in decided.ledgers)
            deep &= callable(method) and (probing or capabilities(method).searches)
        if deep:
            closely = method_answers(
                method, self.dataset, llms, rows, self._replicate, self.time_limit, closely=True
            )
            yield from (one.grown for one in closely)

    @property
    def _replicate(self) -> int | None:
        return 0 if self.order == "seeded" else None
