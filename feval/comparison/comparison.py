"""Compare methods on the same questions and the same draws: differences, savings, the frontier,
areas, a ranking.

Accuracies and their differences have Student's intervals, all else one set of bootstrap resamples
of questions, in which every method sees the same questions. `docs/comparing.md` says what each
number means.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, compress
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feval import executors
from feval.arguments import checked
from feval.cards import serving_profile
from feval.comparison.listed import listed_plan
from feval.comparison.plan import Plan
from feval.comparison.runner import FailedMethod, MethodCurve, Runner, kinds_of, prepared
from feval.comparison.statistics import AccuracyDifference, Statistics, statistics
from feval.errors import FevalError, FevalWarning, UsageError
from feval.estimators.arrays import Integers, Result, Rows, pareto
from feval.estimators.intervals import difference_test
from feval.evaluation import TIME_LIMIT, Evaluation
from feval.evaluation.cautions import billed_once, few_questions, mixed_counters
from feval.evaluation.fitting import fits
from feval.evaluation.questions import NONE_LEFT_OUT, LeftOut, question_clusters, read_clusters
from feval.evaluation.replicates import called, decisions, method_answers
from feval.evaluation.user_methods import learns
from feval.executors import Progress, reports, silent
from feval.lazy import Plottable, views
from feval.methods import METHODS
from feval.methods.protocol import BatchMethod, capabilities
from feval.replay import load, open_recordings
from feval.values import Pairs, Record, RecordLike

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from feval.cards import PriceList, ServingProfile
    from feval.evaluation.questions import ClusterNames
    from feval.recording import Recording
    from feval.replay import LLM, Dataset, Timing


# skewness over the square root of Q: tails of 2.5 % are wrong by more than 1.5 %, to first order
_SKEWED = 0.2
_ERRORS = ("no_answer", "stopped_early", "routed_wrong")
_OPTIONS = {*Plan.model_fields} - {"dataset", "recordings", "entries"}


class ComparedPoint(NamedTuple):
    """A point of a comparison. The attributes of its evaluation, such as `accuracy`,
    `accuracy_low` and `usd_per_question`, are its own, too.

    Attributes:
        role: "method"; "ceiling" for pass@n of an LLM, "baseline" for a single call.
        label: of the method; for the others with the LLM's name.
        point: its index in the curve.
        budget: the swept field and its value, such as "n=5", one in USD for 1,000 questions; empty
            where nothing is swept.
        evaluation: of the method at this budget.
    """

    role: str
    label: str
    point: int
    budget: str
    evaluation: Evaluation

    def __getattr__(self, name: str) -> Any:
        return getattr(self.evaluation, name)


@dataclass(frozen=True, repr=False)
class Comparison(Plottable, Statistics):
    """Methods on the same questions and draws. `print` shows the headline: the best methods, the
    frontier, significant differences.

    Attributes:
        plan: what was compared.
        curves: the methods that could be evaluated, in the plan's order.
        missing: the methods and points that could not, and why.
        baselines: a single call of each LLM.
        ceilings: pass@n of each LLM over n, labelled by the LLM: no method that chooses among its
            answers can do better.
        left_out: questions that were left out because they have no gold or too few CoTs.
        methods: users' methods by their name in the plan, with the source that was run.
        base: the folder that the plan's paths start from.
        loaded: the dataset and the LLMs that they were evaluated on; `None` loads them again where
            they are needed.
        inexact: why all methods are on seeded draws though each has an exact expectation; `None`
            where they are not.
        absent: the usual methods that the recordings do not support, and why, where no methods were
            named.
    """

    plan: Plan
    curves: tuple[MethodCurve, ...]
    missing: tuple[FailedMethod, ...]
    baselines: tuple[Evaluation, ...]
    ceilings: tuple[MethodCurve, ...]
    left_out: LeftOut = NONE_LEFT_OUT
    methods: RecordLike = field(default_factory=dict, compare=False)
    base: Path = field(default=Path(), compare=False)
    loaded: tuple[Dataset, Mapping[str, LLM]] | None = field(default=None, compare=False)
    inexact: str | None = None
    absent: tuple[FailedMethod, ...] = field(default=(), compare=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """How the methods were computed: "exact", "recorded" or "seeded"; several of these if the
        plan mixes them.
        """
        return kinds_of(self.curves)

    @property
    def timing(self) -> Timing | None:
        """Where seconds come from; `None` where nobody asked for them."""
        timings = (point.timing for _, point in self._named if point.timing is not None)
        return max(timings, key=lambda timing: timing.first_tokens, default=None)

    @property
    def counters(self) -> tuple[str, ...]:
        """The token counters of the LLMs, each once."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.counters))

    @property
    def _named(self) -> list[tuple[str, Evaluation]]:
        """Label and evaluation of every point of the methods."""
        return [(curve.label, point) for curve in self.curves for point in curve.points]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that keep a reader from being misled."""
        points = self._named
        of_points = (sentence for _, point in points for sentence in point.cautions)
        cautions = dict.fromkeys((*mixed_counters(self.counters), *of_points))
        return (
            *few_questions(self.widest.questions, self.widest.clusters),
            *billed_once(self.plan.billing, points),
            *cautions,
            *self.on_fewer,
            *self._skewed(),
            *self._not_exact(),
        )

    @property
    def on_fewer(self) -> tuple[str, ...]:
        """A sentence for methods that are judged on fewer questions than others."""
        fewer = self.learners
        sentence = (
            f"What is best, on the frontier and ranked, and differences from {', '.join(fewer)},"
            f" rest on the {min(fewer.values(), default=0):,} questions that all methods are judged"
            " on; other accuracies on all that a method is judged on."
        )
        return (sentence,) if fewer else ()

    @property
    def learners(self) -> dict[str, int]:
        """Number of questions of each method that is judged on fewer than others, since it learns
        from some.
        """
        counts = {curve.label: curve.points[0].questions for curve in self.curves}
        return {label: own for label, own in counts.items() if own < self.widest.questions}

    @property
    def widest(self) -> Evaluation:
        """A point on the most questions."""
        return max((curve.points[0] for curve in self.curves), key=lambda point: point.questions)

    def frontier_of(
        self, curves: Sequence[MethodCurve], cost: str
    ) -> list[tuple[str, float, float]]:
        """Label, mean cost and accuracy of the points of some methods that no other of theirs
        dominates, by cost: like those of `frontier`, on the questions that these methods share.
        """
        common = min((curve.points[0].question_keys for curve in curves), key=len, default=())
        found = []
        for curve in curves:
            for point in curve.points:
                if point.mean_cost(cost) is not None:
                    shared = np.isin(point.question_keys, common)
                    costs, rights = point.known_costs(cost)[shared], point.right[shared]
                    found.append((curve.label, float(costs.mean()), float(rights.mean())))
        best = pareto(*np.reshape([row[1:] for row in found], (-1, 2)).T)
        return sorted(compress(found, best), key=itemgetter(1))

    def _skewed(self) -> Iterator[str]:
        """A warning about differences that are significant by few questions, where Student's law
        fits least.
        """
        found = self.significant((*self.differences, *self.unequal_costs))
        if count := sum(abs(row.skewness) > _SKEWED for row in found):
            also = ", those not at equal cost included" * bool(self.unequal_costs)
            yield (
                f"Few questions with large differences on one side decide {count} of the"
                f" {len(found)} significant differences{also}: there, equally good methods have"
                " p-values below 0.001 in up to 0.6 % of cases."
            )

    def _not_exact(self) -> Iterator[str]:
        """A warning that kinds are mixed, or why figures differ from those of `feval curve`."""
        if len(self.kinds) > 1:
            yield (
                "Exact and seeded methods are mixed: differences between them include the noise of"
                " the draws."
            )
        names = dict.fromkeys(entry.method for entry in self.plan.entries)
        exact = [name for name in names if name in METHODS and capabilities(METHODS[name]).exact]
        if self.kinds == ("seeded",) and exact:
            since = "."
            if self.inexact is not None:
                since = f". {self.inexact}"
            elif self.plan.order is None and (
                without := [each for each in names if each not in exact]
            ):
                since = f", since {without[0]} has no exact expectation."
            yield (
                f"All methods are seeded{since} Exact figures of `feval run` and `feval curve`"
                f" ({', '.join(exact)}) differ from these by the noise of the draws."
            )

    @property
    def tests(self) -> int:
        """Number of p-values at equal cost, which are adjusted for each other."""
        return sum(row.p_value is not None for row in self.differences)

    @property
    def evidence(self) -> tuple[int, str]:
        """How many questions, or clusters of them, tests count, and which: "question" or
        "cluster".
        """
        widest = self.widest
        if widest.clusters is None:
            return widest.questions, "question"
        return widest.clusters.number, "cluster"

    def significant(self, rows: Iterable[AccuracyDifference]) -> list[AccuracyDifference]:
        """Those of some differences whose adjusted p-value is within the plan's level."""
        level = 1 - self.plan.confidence
        return [row for row in rows if row.p_holm is not None and row.p_holm <= level]

    def least_p(self, tests: int) -> float:
        """A bound of adjusted p-values with this much evidence and these tests: one method always
        right, one always wrong.
        """
        surest = difference_test(np.ones((self.evidence[0], 1)))
        return min(1.0, max(tests, 1) * float(surest.p_value[0]))

    @property
    def points(self) -> tuple[ComparedPoint, ...]:
        """Every point: of the methods, of the pass@n ceilings, and the single calls."""
        roles = ("method", "", self.curves), ("ceiling", "pass@n of ", self.ceilings)
        return (
            *(
                ComparedPoint(role, f"{of}{curve.label}", place, curve.budget_text(place), point)
                for role, of, curves in roles
                for curve in curves
                for place, point in enumerate(curve.points)
            ),
            *(
                ComparedPoint("baseline", f"single call of {point.llms[0]}", 0, "", point)
                for point in self.baselines
            ),
        )

    def __str__(self) -> str:
        return str(views().printed(self))

    def records(self) -> list[Record]:
        """A row of name -> value per point: the columns of `results.csv`; `None` for what is not
        known.
        """
        on, rows = {(point.label, point.point) for point in self.frontier}, []
        for role, label, place, budget, point in self.points:
            [numbers] = point.records()
            if swept := budget.partition("=")[0]:
                budget = f"{swept}={point.fields.get(swept)}"  # in the method's own unit
            own = {"role": role, "label": label, "point": place, "budget": budget}
            del numbers["method"]
            row = own | numbers | {"token_counter": " > ".join(dict.fromkeys(point.counters))}
            rows.append(row | {"frontier": role == "method" and (label, place) in on})
        return rows

    def per_question(self) -> Record:
        """Columns of one row per point of a method and question: lists of text, and arrays.

        `method` (label), `point` (its place in the curve), `budget` (value of the swept field, as
        text), `llms`, `kind`, `question` (id), and means over the draws: `right` (probability),
        `usd` and `tokens` (NaN where not known), `samples`, `calls`, and how errors came about:
        `no_answer`, `stopped_early`, `routed_wrong` (NaN where not known).
        """
        places = ((curve, place) for curve in self.curves for place in range(len(curve.points)))
        points = [point_columns(*place) for place in places]
        sizes = [len(point["question"]) for point in points]
        columns: Record = {}
        for name, first in points[0].items():
            values = [point[name] for point in points]
            if isinstance(first, str):
                values = [[text] * size for text, size in zip(values, sizes, strict=True)]
            if name == "question" or isinstance(first, str):
                columns[name] = list(chain.from_iterable(values))
            else:
                columns[name] = np.concatenate(list(map(np.broadcast_to, values, sizes)))
        return columns

    @reports("writing")
    def save(self, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
        """Write what `feval compare --out` writes: the page, pictures, tables, numbers and their
        receipt; return the paths.

        A function that stands in no file, such as one of a notebook, cannot be run again by others:
        then a warning takes the place of the receipt.

        Args:
            folder: made where it does not exist.
            overwrite: whether files with other content are replaced.

        Raises:
            StorageError: a file exists with other content, the folder is inside a recording, or
                writing failed.
        """
        paths: list[Path] = views().save_comparison(self, Path(folder), overwrite=overwrite)
        return paths

    def to_dict(self) -> Record:
        """All averages and statistics as JSON values; `None` for what has no finite value, see the
        classes.
        """
        widest = self.widest
        content: Record = {
            "dataset": self.plan.dataset,
            "questions": widest.questions,
            "train_questions": widest.train_questions,
            "cost": self.plan.cost,
            "recording_hashes": list(widest.recording_hashes),
            "plan": self.plan.to_dict(),
            "curves": [_curve_dict(curve) for curve in self.curves],
            "missing": [asdict(missing) for missing in self.missing],
            "baselines": [point.to_dict() for point in self.baselines],
            "ceilings": [_curve_dict(curve) for curve in self.ceilings],
            "tests": self.tests,
            "kinds": list(self.kinds),
            "warnings": list(self.warnings),
        }
        for part in fields(Statistics):
            content[part.name] = [asdict(row) for row in getattr(self, part.name)]
        if self.timing is not None:
            content["seconds"] = str(self.timing)
        if widest.judges is not None:
            content["judges"] = asdict(widest.judges)
        return content | ({"left_out": self.left_out.to_dict()} if self.left_out else {})


def point_columns(curve: MethodCurve, place: int) -> Record:
    """The columns of `Comparison.per_question` for one point: ids and numbers of its questions, and
    what all of them share.
    """
    point = curve.points[place]
    numbers = {
        name: getattr(point, name)
        for name in ("right", *point.ledger.measures("always", cost=point.cost).values(), *_ERRORS)
    }
    return {
        "method": curve.label,
        "budget": curve.budget(place),
        "llms": " > ".join(point.llms),
        "kind": point.kind,
        "point": place,
        "question": point.question_ids,
        **{name: np.nan if value is None else value for name, value in numbers.items()},
    }


def _curve_dict(curve: MethodCurve) -> Record:
    return {
        "label": curve.label,
        "llms": list(curve.entry.llms),
        "sweep": curve.entry.swept or None,
        "points": [point.to_dict() for point in curve.points],
    }


@checked
@reports("comparing")
def compare(
    recording: Plan | str | Path | Recording | Sequence[str | Path | Recording] | None,
    methods: Any = (),
    *,
    dataset: str | None = None,
    llms: Sequence[str] | None = None,
    budgets: Any = None,
    seed: int | None = None,
    replicates: int | None = None,
    order: str | None = None,
    cost: str | None = None,
    billing: str | None = None,
    cache: str | None = None,
    scorer_cost: str | None = None,
    right: str | None = None,
    prices: PriceList | str | None = None,
    unlabelled: str | None = None,
    short_pools: str | None = None,
    train_fraction: float | None = None,
    folds: int | None = None,
    group: str | None = None,
    split_seed: int | None = None,
    clusters: ClusterNames | None = None,
    serving: str | Path | ServingProfile | None = None,
    parallel: int | None = None,
    confidence: float | None = None,
    resamples: int | None = None,
    costs: Collection[float] | None = None,
    accuracies: Collection[float] | None = None,
    vary: str | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    base: str | Path | None = None,
    time_limit: float | None = TIME_LIMIT,
    recordings: Sequence[Recording] | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Compare methods on the same questions and draws.

        compare("my-recording", ["self-consistency", "early-stopping"])
        compare("my-recording", [SelfConsistency(20), ("ours", "best-of-n", "my-llm", [1, 5])])
        compare(Plan.read("plan.toml"))

    Args:
        recording: a recording or several, opened or by their places; or a plan, which names its
            recordings.
        methods: with a recording, what to compare; none for the usual ones that it supports. Each
            is

            - a name of `feval ls methods`, over the budgets that `feval compare --init` suggests;
            - a value such as `SelfConsistency(20)`, which is one point;
            - a function `(question, *llms) -> answer`, or the name FILE.py:FUNCTION of one;
            - (label, method, LLMs, budgets), of which each of the last two may be left out: names,
              and {field: values} or values of the field that counts CoTs; or a table of a
              comparison file.

            A method of one LLM is compared on each LLM, one of several on all together. With a
            plan, users' methods that it may run, as FILE.py:FUNCTION, since a plan runs no code by
            itself; or methods by their name in the plan, in place of the files it names: for an
            error, the method is missing and the error is the reason.
        dataset: id; needed where several are recorded.
        llms: names; `None` for all that were recorded, in recorded order.
        budgets: of methods that name none themselves, as above.
        seed: of draws, split and resamples. For this and all options below to `vary` `None`
            is what the plan says, and without a plan the default that `Plan` and `evaluate` have:
            0.
        replicates: draws of every question where there is no exact expectation: 100, or fewer of
            very many questions.
        order: "exact", "seeded", "recorded", or "mixed" for exact where a method has such a form;
            exact if all methods have one, else seeded.
        cost: what budgets are counted in, one of `feval.evaluation.measures.COSTS`: "usd", or
            "tokens" where an LLM has no price.
        billing: how prompts are paid: "once", "per_round" or "per_sample".
        cache: which prompt tokens cost what a cache's do, as for `load`.
        scorer_cost: who pays for the scores that methods read, as for `load`.
        right: what says which CoTs are right, as for `load`.
        prices: a price list, its id or its file: the recordings' own; "none" for no dollars.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read.
        short_pools: "refuse" or "drop" questions with fewer CoTs than the largest budget.
        train_fraction: share of the questions that methods which learn are fitted on, in (0, 1);
            all are judged on the others. No split.
        folds: in its place, as for `evaluate`: all questions are judged.
        group: feature whose questions stay together then, as for `evaluate`.
        split_seed: of the split or the folds: 0.
        clusters: which questions are one piece of evidence: question id -> cluster, or a CSV file
            of these.
        serving: name, file or value of a serving profile that models seconds.
        parallel: how many CoTs of a round are generated at once, for recorded seconds: all.
        confidence: of every interval, in (0, 1): 0.95.
        resamples: of the bootstrap over questions: 10,000.
        costs: at which methods are compared, per question in the unit of `cost`: three that a pair
            shares.
        accuracies: in [0, 1], whose cost is asked for: three that the methods share.
        vary: a price, such as "o3=output" (or "input", "cached", "written"), for `flips`: at which
            value of it the cheaper of two methods changes.
        workers: processes for all evaluations together; the numbers are the same for any number.
        executor: takes their place, see `evaluate`.
        base: the folder that the plan's paths start from; `None`: that of the file that it was read
            from.
        time_limit: seconds that a user's method from a file may take on one question; `None` for no
            limit.
        recordings: opened recordings, in place of those that the plan names.
        progress: called with (CoTs handed out per question, those of all methods and draws), which
            is how long they take.

    Raises:
        NotRecordedError: the recordings lack the dataset.
        UnlabelledError: questions have no gold answer that can be read.
        ShortPoolError: every question is to be left out because a pool is too small for the plan's
            largest budget.
        RecordingError: a recording cannot be read.
        UnknownNameError: no such method or field.
        UsageError: the plan names a user's method that was not given, or no method of it could be
            evaluated; the message gives the reasons.
    """
    # the fields of `Plan` that have arguments of the same names
    options: Record = {
        name: value for name, value in locals().items() if name in _OPTIONS and value is not None
    }
    own_prices = None if isinstance(prices, str) else prices
    if own_prices:
        del options["prices"]
    if clusters is not None:
        options["clusters"] = dict(read_clusters(clusters))
    if serving is not None:
        options["serving"] = serving_profile(serving)
    absent: tuple[FailedMethod, ...] = ()
    if isinstance(recording, Plan):
        if any(each is not None for each in (dataset, llms, budgets)):
            raise UsageError(
                "A plan states the dataset, LLMs and budgets of its methods, and a comparison was"
                " asked for with dataset, llms or budgets beside one. Leave them out and change the"
                " plan, or compare its recordings without it."
            )
        plan = recording.changed(**options) if options else recording
    else:
        recordings = open_recordings(recording)
        plan, methods, absent = listed_plan(
            recordings,
            methods,
            dataset=dataset,
            llms=llms,
            budgets=budgets,
            price_list=prices,
            **options,
        )
    folder = plan.folder if base is None else Path(base)
    missing: list[FailedMethod] = []
    with executors.opened(workers, given=executor) as opened:
        runner, curves, failed = prepared(
            plan,
            folder,
            missing,
            recordings=recordings,
            prices=own_prices,
            methods=methods,
            executor=opened,
            time_limit=time_limit,
            progress=progress,
        ).each(Runner.curve)
        missing += failed
        if not curves:
            reasons: dict[str, str] = {}
            for one in missing:
                reasons.setdefault(one.reason, f"{one.label}: {one.reason}")
            told = " ".join([*reasons.values()][:5])
            raise UsageError(f"No method of the comparison could be evaluated. {told}")
        names = dict.fromkeys(llm for curve in curves for llm in curve.entry.llms)
        asked = [runner.llms[name] for name in names]
        whole = [llm for llm in asked if not llm.pool.channels.has_steps]  # steps are no calls
        baselines = [point for llm in whole for point in runner.baseline(llm, missing)]
        ceilings = [curve for llm in whole for curve in runner.ceiling(llm, missing)]
    if len(kinds_of(curves)) > 1:  # exact and seeded points are not on the same draws
        curves = [
            replace(curve, label=f"{curve.label} [{', '.join(kinds_of([curve]))}]")
            for curve in curves
        ]
    if missing and not isinstance(recording, Plan):  # a command prints them
        left_out = ", ".join(one.label for one in missing)
        warnings.warn_explicit(
            f"Left out: {left_out}. The comparison's `missing` says why.",
            FevalWarning,
            "feval.compare",
            1,
        )
    plan, used = runner.plan, runner.loaded[0]
    grouped = question_clusters(used, _judged(used, curves), plan.clusters)
    results = statistics(plan, {curve.label: curve.points for curve in curves}, grouped)
    return Comparison(
        plan=plan,
        curves=tuple(curves),
        missing=tuple(missing),
        absent=absent,
        baselines=tuple(baselines),
        ceilings=tuple(ceilings),
        left_out=runner.left_out,
        methods=runner.methods,
        base=folder,
        loaded=runner.loaded,
        inexact=runner.inexact,
        **vars(results),
    )


class MethodTrace(Result):
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


class Traces(Result):
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
    curves: tuple[tuple[MethodTrace, ...], ...]
    missing: Pairs


def _judged(dataset: Dataset, curves: Sequence[MethodCurve]) -> Rows:
    """Rows of the questions of the curve with most."""
    keys = (curve.points[0].question_keys for curve in curves)
    every = dataset.question_keys
    return np.flatnonzero(np.isin(every, max(keys, key=len)))


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
    plan = comparison.plan
    order = "recorded" if plan.order == "recorded" else "seeded"
    replicate = None if order == "recorded" else 0
    by_name = {llm.name: llm.seeded(plan.seed) for llm in llms}
    left_out = {*comparison.left_out.unlabelled, *comparison.left_out.short_pools}
    ids = dataset.question_ids if left_out else range(len(dataset))
    asked = np.array([row for row, name in enumerate(ids) if name not in left_out], np.intp)
    judged = _judged(dataset, comparison.curves)
    rows = judged[:questions]

    def trace(curve: MethodCurve, place: int) -> MethodTrace:
        entry, point = curve.entry, curve.points[place]
        llms = [by_name[name] for name in point.llms]
        swept = {entry.swept: point.fields[entry.swept]} if entry.sweep else {}
        method = entry.make({**entry.fields, **swept}, comparison.methods)
        parts = [(method, judged)]
        if learns(method) and (split := plan.learning(entry).split(dataset, asked)):
            parts = [(e.method, e.rows) for e in fits(method, dataset, llms, split, time_limit)]
        answer, cots = np.empty(len(rows), np.int64), np.empty((len(llms), len(rows)), np.int64)
        grown: dict[int, Any] = {}
        channels = [llm.pool.channels for llm in llms]
        for method, own in parts:
            here = np.flatnonzero(np.isin(rows, own))
            deep = closely > 0 and any(own.has_probes or own.has_steps for own in channels)
            drawn = rows[here]
            if isinstance(method, BatchMethod):
                can = capabilities(method)
                drawn = own if can.whole_set else drawn
                decided = next(iter(decisions(method, llms, order=order, rows=drawn)))
                probing = any(ledger.probe_calls is not None for ledger in decided.ledgers)
                deep &= callable(method) and (probing or can.searches)
            else:
                decided = called(method, dataset, llms, drawn, replicate, time_limit)
            shown = np.isin(drawn, rows)
            answer[here] = decided.answer[0, shown]
            cots[:, here] = [ledger.cots[0, shown] for ledger in decided.ledgers]
            # Traces and steps are known to the readable form, which has the same draw and ledger
            # as the batch form.
            near = rows[here[here < closely]]
            handed = method, dataset, llms, near, replicate, time_limit
            close = method_answers(*handed, closely=True) if deep else ()
            grown |= {row: one.grown for row, one in zip(near.tolist(), close, strict=False)}
        return MethodTrace(
            curve.label,
            curve.budget_text(place),
            point.llms,
            answer,
            cots,
            tuple(grown[row] for row in rows.tolist() if row in grown),
        )

    curves: list[tuple[MethodTrace, ...]] = []
    missing = []
    for curve in comparison.curves:
        try:
            curves.append(tuple(trace(curve, place) for place in range(len(curve.points))))
        except FevalError as error:
            curves.append(())
            missing.append((curve.label, str(error)))
    return Traces(order, rows, len(judged), tuple(curves), tuple(missing))
