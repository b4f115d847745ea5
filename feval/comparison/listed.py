"""A comparison from a recording and a list of methods, as `feval.compare` takes them in Python,
without a comparison file.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from feval.cards import PriceList
from feval.comparison.plan import ComparedMethod, Plan
from feval.comparison.runner import FailedMethod
from feval.errors import FevalError, ShortPoolError, UsageError
from feval.evaluation.curves import budget_field, swept_cascade
from feval.evaluation.method_names import field_names, is_in_range, make_method, takes_several
from feval.methods import METHODS
from feval.methods.protocol import capabilities
from feval.recording import Recording
from feval.recording.arrays import are_verdicts
from feval.replay import LLM, load, only_dataset
from feval.values import Record, RecordLike

_SUGGESTED_COUNTS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 60, 80, 100)
_FORM = "(label, method, LLMs, budgets)"
_Row = tuple[str, Sequence[str], Record, str, Sequence[Any]]


class MethodList(NamedTuple):
    """A plan, the users' methods in it by their name in the plan, and usual methods that it
    lacks.
    """

    plan: Plan
    methods: RecordLike
    absent: tuple[FailedMethod, ...] = ()


def listed_plan(
    recordings: Sequence[Recording],
    methods: Any,
    *,
    dataset: str | None = None,
    llms: Sequence[str] | None = None,
    budgets: Any = None,
    fields: RecordLike | None = None,
    price_list: PriceList | str | None = None,
    **options: Any,
) -> MethodList:
    """The plan that compares methods on opened recordings.

    Args:
        recordings: opened recordings.
        methods: what `feval.compare` takes; none for the usual ones that the recordings support.
        dataset: id; needed where several are recorded.
        llms: names; `None` for all that were recorded.
        budgets: of methods that name none themselves: {field: values}, or values of the field that
            counts CoTs.
        fields: of every method that has them.
        price_list: what the LLMs are paid by, where it is not what the recordings name.
        options: other fields of `Plan`.

    Raises:
        UsageError: several datasets and none is named, or a method in a form that is none.
        UnknownNameError: no such method or field.
        ShortPoolError: an LLM has no CoT on some question.
    """
    if isinstance(methods, str) or not isinstance(methods, Sequence):
        methods = [methods]
    dataset = only_dataset(dataset, recordings)
    loading: Record = {"prices": price_list, "right": options.get("right")}
    questions, replayed = load(dataset, llms, list(recordings), **loading)
    drop = options.get("short_pools") == "drop"
    most = {llm.name: llm.pool.usual if drop else llm.pool.smallest for llm in replayed}
    if empty := next((name for name, cots in most.items() if not cots), None):
        raise ShortPoolError(
            f"{empty} has no recorded CoT on some question of {dataset}, so no budget fits. Leave"
            " such questions out with --drop short-pools, or name"
            " other LLMs."
        )
    places = [recording.address or str(recording.path) for recording in recordings]
    paid = replayed[0].states_usd
    cost = "usd" if paid or all(llm.price is not None for llm in replayed) else "tokens"
    if not paid and any(int(llm.pool.prompt_tokens.min()) < 0 for llm in replayed):
        # the nearest to dollars that every LLM has
        cost = "output-tokens" if all(llm.is_counted for llm in replayed) else "samples"
    trees = frozenset(llm.name for llm in replayed if llm.pool.channels.has_steps)
    users: Record = {}
    absent: list[FailedMethod] = []
    share, seed = options.get("train_fraction"), options.get("split_seed")

    def cascade(names: Sequence[str]) -> Record:
        asked = replayed
        try:
            if set(names) - set(most):  # those of a method alone
                _, asked = load(dataset, names, recordings, **loading)
            asked = [llm for llm in asked if llm.name in names and llm.name not in trees]
            table = swept_cascade(questions, asked, train_fraction=share, split_seed=seed)
        except FevalError as error:
            absent.append(FailedMethod("cascade", str(error)))
            return {}
        if len(table["llms"]) < len(asked):
            table["label"] = f"cascade ({' > '.join(table['llms'])})"
        return table

    if methods:
        lister = _Lister(most, trees, budgets, fields or {}, users, None if share else cascade)
        tables = _labelled([table for given in methods for table in lister.tables(given)])
    else:
        tables = list(_suggested(replayed, most))
        for table in tables:
            if len(replayed) > 1 and len(table["llms"]) == 1:
                table["label"] = f"{table.get('label', table['name'])} ({table['llms'][0]})"
        if whole := [llm.name for llm in replayed if llm.name not in trees]:
            tables += filter(None, [cascade(whole)])
    content = {"dataset": dataset, "recordings": places, "method": tables, "cost": cost}
    return MethodList(Plan.from_dict(content).changed(**options), users, tuple(absent))


def _suggested(llms: Sequence[LLM], most: Mapping[str, int]) -> Iterator[Record]:
    """The usual methods that the recordings support, over budgets that the pools can serve.

    Cascades ask the LLMs in their order: the cheap ones come first.
    """
    whole = [llm for llm in llms if not llm.pool.channels.has_steps]
    answered = [llm for llm in whole if (llm.pool.codes >= 0).any()]
    for llm in whole:
        if llm in answered:
            yield from _suggested_methods([llm.name], most[llm.name])
        else:
            yield {"name": "single-call", "llms": [llm.name]}
        for fields in _rated(llm):
            label = f"best-of-n by {fields['scorer']}" if fields else "best-of-n"
            row = "best-of-n", [llm.name], fields, "n", _usual_counts(most[llm.name])
            yield from ({"label": label} | table for table in _tables([row]))
    if len(whole) > 1 and answered == whole:
        names = [llm.name for llm in whole]
        yield from _suggested_methods(names, min(most[name] for name in names))
    for llm in llms:
        if llm not in whole:
            yield from _tables(_searches(llm))
    for llm in whole:
        yield from _tables(_depths(llm, most[llm.name]))


def _tables(rows: Iterable[_Row]) -> list[Record]:
    """Methods, LLMs, fields and budgets as a comparison file writes them, where there are
    budgets.
    """
    return [
        {"name": name, "llms": list(llms), "fields": fields, "budgets": {swept: values}}
        for name, llms, fields, swept, values in rows
        if values
    ]


def _usual_counts(most: int) -> list[int]:
    """The usual numbers of CoTs up to a most."""
    return [n for n in _SUGGESTED_COUNTS if n <= most]


def _suggested_methods(llms: Sequence[str], most: int) -> list[Record]:
    """Methods on one LLM, or on several together, whose pools have so many CoTs, as a comparison
    file writes them.
    """
    counts, budget = _usual_counts(most), {"budget": min(40, most)}
    rows: list[_Row]
    if len(llms) == 1:
        windows = [n for n in (3, 4, 5, 8, 10) if 2 * n <= budget["budget"]]
        shares = ["0.6", "0.7", "0.8", "0.9", "0.95", "0.99"] if most >= 5 else []
        rows = [
            ("self-consistency", llms, {}, "n", counts),
            # The window's answer, as in ESC's own code: its expectation over all draws takes
            # milliseconds, the other answer's seconds.
            ("early-stopping", llms, budget | {"answer": "window"}, "window", windows),
            ("adaptive-consistency", llms, budget, "threshold", shares),
        ]
    else:
        fields = {"samples": min(20, most), "strong_samples": min(3, most)}
        # of one CoT, whose answer has all votes, all of them are the same
        thresholds = ["0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"] if most > 1 else []
        rows = [
            ("model-switch", llms, {}, "samples", counts),
            ("mixture-of-thoughts", (llms[0], llms[-1]), fields, "threshold", thresholds),
        ]
    return _tables(rows)


def _rated(llm: LLM) -> list[dict[str, str]]:
    """For each scorer of single CoTs the fields of a method that name it: none where it is the only
    scorer.
    """
    scorers = llm.pool.channels.scorers()
    return [
        {"scorer": name} if len(scorers) > 1 else {} for name in scorers if not are_verdicts(name)
    ]


def _searches(llm: LLM) -> Iterator[_Row]:
    """Methods for an LLM that was recorded as trees or turn by turn, with paths that every question
    with CoTs can serve.
    """
    parents = llm.pool.steps().parents.astype(np.int64)
    places = np.arange(len(parents))[:, None] * (parents.shape[1] + 1) + parents + 1
    roots, children = (parents == -1).sum(axis=1), np.bincount(places[parents >= -1])
    # where there are any
    first, branch = (int(counts[counts > 0].min()) for counts in (roots, children))
    names = [llm.name]
    if llm.pool.channels.has_turns:
        # Several replies to a CoT have no exact form.
        answer = {} if np.bincount(places[parents >= 0]).max(initial=0) <= 1 else {"answer": "all"}
        counts = [2 * n for n in _usual_counts(first)]
        yield "sequential-revision", names, {"turns": 2} | answer, "n", counts
    elif scored := _rated(llm):
        width, own = min(branch, 2), scored[0]
        counts = [width * n for n in _usual_counts(first // width)]
        for name in ("beam-search", "dvts"):
            yield name, names, own | {"width": width}, "n", counts
        yield "particle-filtering", names, own, "n", _usual_counts(branch)
    else:
        yield "path-consistency", names, {"window": 1}, "n", _usual_counts(branch)


def _depths(llm: LLM, most: int) -> Iterator[_Row]:
    """Methods for probed traces, on the scale of their probes; `most` traces can be had on every
    question.

    These have exact forms. With Parallel-Probe, which has none, all methods of the comparison would
    be drawn.
    """
    if not llm.pool.channels.has_probes or not ((probes := llm.pool.probes()).codes >= 0).any():
        return
    longest, last = int(probes.counts().max()), int(probes.offsets.max())
    first, width = probes.interval or max(1, last // longest), min(16, most)
    tokens = [first << k for k in range(16) if first << k <= last]
    streaks = [n for n in (2, 3, 5, 8, 14, 20) if n <= longest]
    yield "token-budget", [llm.name], {"n": width}, "tokens", tokens
    yield "answer-convergence", [llm.name], {"width": width}, "streak", streaks


@dataclass(frozen=True)
class _Lister:
    """Makes tables of a comparison file from what a caller listed.

    Attributes:
        most: LLM -> CoTs that every question can give.
        trees: those of them that were recorded as trees.
        budgets: of methods that name none.
        fields: of every method that has them.
        users: users' methods, by their name in the plan.
        cascade: gives the swept cascade of some LLMs, empty for none; `None` where a share of the
            questions is set aside for all methods.
    """

    most: Mapping[str, int]
    trees: frozenset[str]
    budgets: Any
    fields: RecordLike
    users: Record
    cascade: Callable[[Sequence[str]], Record] | None

    def tables(self, given: Any) -> Iterator[Record]:
        """One entry for each LLM, or for each group of LLMs that the method takes together."""
        if isinstance(given, ComparedMethod):
            given = given.to_dict()
        if isinstance(given, Mapping):
            yield dict(given)
            return
        label, method, llms, budgets = _parts(given)
        name, settings = self._named(method)
        if label is None and settings:
            label = f"{name}({', '.join(f'{field}={value}' for field, value in settings.items())})"
        groups = self._groups(method if ":" in name else METHODS.get(name), llms)
        budgets = self.budgets if budgets is None else budgets
        known = () if ":" in name else field_names(name)
        settings = {
            field: value for field, value in self.fields.items() if field in known
        } | settings
        for group in groups:
            table: Record = {"name": name, "llms": list(group), "fields": settings}
            if (
                name == "cascade"
                and not (settings or isinstance(budgets, Mapping))
                and self.cascade
            ):
                table |= self.cascade(group)
            elif budgets is not None:
                table |= _swept(name, settings, budgets)
            elif method in METHODS:
                usual = self._usual(name, group, settings)
                table |= usual | {"fields": usual.get("fields", {}) | settings}
            if label is not None:
                table["label"] = f"{label} ({' > '.join(group)})" if len(groups) > 1 else label
            yield table

    def _named(self, method: Any) -> tuple[str, Record]:
        """Name and fields of a method: text, a value or a class of `feval.methods`, or a function
        of the caller's.
        """
        if isinstance(method, str):
            made = make_method(method)
            if ":" in method:
                self.users[method] = made
            return method, {}
        kind = method if isinstance(method, type) else type(method)
        name = next((name for name, known in METHODS.items() if known is kind), None)
        if name is not None:
            return name, {} if kind is method else _settings(method)
        if not callable(method):
            raise UsageError(
                "A method is a name of `feval ls methods`, a value such as SelfConsistency(20), a"
                f" function, or {_FORM}; {method!r:.80} was given."
            )
        name = _place(method)
        if self.users.setdefault(name, method) is not method:
            raise UsageError(f"Two functions are called {name}; give one of them another name.")
        return name, {}

    def _groups(self, method: Any, llms: Sequence[str] | None) -> list[tuple[str, ...]]:
        """The LLMs of each entry: those of a method that takes several together, else each
        alone.
        """
        names = tuple(self.most if llms is None else llms)
        if takes_several(method):
            return [names]
        if llms is None and isinstance(method, type):
            names = tuple(
                name for name in names if (name in self.trees) is capabilities(method).searches
            )
        return [(name,) for name in names]

    def _usual(self, name: str, llms: Sequence[str], settings: RecordLike) -> Record:
        """What `feval compare --init` would write for a method, or the usual numbers of CoTs that
        it accepts.
        """
        most = min((self.most[llm] for llm in llms if llm in self.most), default=1)
        for table in _suggested_methods(llms, most):
            if table["name"] == name and settings.keys().isdisjoint(table["budgets"]):
                return table
        if (counted := budget_field(name)) is None or counted in settings:
            return {}
        counts = [n for n in _usual_counts(most) if is_in_range(name, {**settings, counted: n})]
        return {"budgets": {counted: counts}} if counts else {}


def _swept(name: str, settings: RecordLike, budgets: Any) -> Record:
    """The fields and budgets of an entry, for budgets that a caller gave; a method that counts no
    CoTs has none.
    """
    if not isinstance(budgets, Mapping):
        counted = None if ":" in name else budget_field(name)
        budgets = {} if counted is None else {counted: budgets}
    sweep = {
        field: (
            list(values)
            if isinstance(values, Iterable) and not isinstance(values, str)
            else [values]
        )
        for field, values in budgets.items()
    }
    kept = {field: value for field, value in settings.items() if field not in sweep}
    return {"fields": kept} | ({"budgets": sweep} if sweep else {})


def _parts(given: Any) -> tuple[str | None, Any, Sequence[str] | None, Any]:
    """Label, method, LLMs and budgets of what was given for a method; `None` for what is left
    out.
    """
    if not isinstance(given, (tuple, list)):
        return None, given, None, None
    if not 2 <= len(given) <= 4 or not isinstance(given[0], str):
        raise UsageError(
            f"A method with a label is {_FORM}, of which the last two may be left out;"
            f" {given!r:.100} was given."
        )
    label, method, llms, budgets = (*given, None, None)[:4]
    if len(given) == 3 and not _are_names(llms):
        llms, budgets = None, llms  # the LLMs were left out
    if llms is not None and not _are_names(llms):
        raise UsageError(
            f"The LLMs of the method labelled {label!r:.80} are names, {_FORM}; {llms!r:.100} was"
            " given."
        )
    return label, method, [llms] if isinstance(llms, str) else llms, budgets


def _are_names(llms: Any) -> bool:
    return isinstance(llms, str) or (
        isinstance(llms, Sequence) and len(llms) > 0 and all(isinstance(llm, str) for llm in llms)
    )


def _settings(method: Any) -> Record:
    """The fields in which a method differs from its defaults."""
    return {
        each.name: value
        for each in dataclasses.fields(method)
        if each.init and (value := getattr(method, each.name)) != each.default
    }


def _place(function: Any) -> str:
    """The name of a function in a plan: FILE.py:FUNCTION where it stands in a file, so that `feval
    verify` can find it.
    """
    name = getattr(function, "__name__", type(function).__name__)
    try:
        path = inspect.getsourcefile(function)
    except TypeError:
        path = None
    inner = getattr(function, "__qualname__", "") != name or name == "<lambda>"
    return f"{path if path is not None and Path(path).is_file() and not inner else 'python'}:{name}"


def _labelled(tables: Sequence[Record]) -> list[Record]:
    """The same tables, all with a label: where several have it, with their LLMs."""
    labels = [
        table.get("label") or str(table.get("name", "")).rpartition(":")[2] for table in tables
    ]
    several = {label for label, count in Counter(labels).items() if count > 1}
    return [
        {"label": f"{label} ({' > '.join(table.get('llms', ()))})" if label in several else label}
        | table
        for label, table in zip(labels, tables, strict=True)
    ]
