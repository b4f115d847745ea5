"""Requests: everything that decides the numbers of a command, as one frozen value per command.

The command line parses its options into a request, a comparison file lists the methods of one, a
receipt holds it, and `feval verify` computes it again. An option of `evaluate` is declared once, as
a field of `EvaluationOptions`: the command line offers it, comparison files take it as a key,
receipts record it, and `arguments` hands it to `evaluate`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    model_validator,
)

from feval.cards import ServingProfile, serving_profile
from feval.cards.billing import billing_rule, billing_text
from feval.cards.reading import sentence
from feval.errors import OutOfRangeError, UnknownNameError, UsageError, require_known
from feval.evaluation.curves import Curve, method_curve, self_consistency_curve
from feval.evaluation.measures import COSTS
from feval.evaluation.questions import CHOICES, Rows, Split, read_clusters, splits
from feval.evaluation.replicates import default_replicates
from feval.replay import LLM, ORDERS, Dataset, checked_rule
from feval.values import Record, RecordLike

MOST_RESAMPLES = 1_000_000
MOST_REPLICATES = 100_000
MOST_NAMES = 1000
"""How many recordings, LLMs, methods or files a request or a receipt may name."""
MOST_VALUES = 10_000
"""How many values a budget may have."""

SHORT, LONG, LONGEST = (
    Field(strict=False, max_length=most) for most in (MOST_NAMES, MOST_VALUES, MOST_RESAMPLES)
)
"""Fields that are lists, as JSON has them, of names, of values of a budget, or of CoTs."""

_T = TypeVar("_T")
_RANGE_ERRORS = {
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "finite_number",
}


def option(
    default: Any,
    text: str,
    metavar: str | None = None,
    *,
    rare: bool = False,
    read: Callable[[str], Any] | None = None,
    **bounds: Any,
) -> Any:
    """A field of a request that is an option of the commands.

    Args:
        default: its default, which receipts of versions without the option stand for.
        text: its help on the command line.
        metavar: what stands for its value in the help; `None` for its type.
        rare: whether it is left to files and Python, to keep the command line short.
        read: makes its value of text in a file; `None` for what its type says.
        bounds: as for `pydantic.Field`.
    """
    extra: Any = {"metavar": metavar, "rare": rare, "read": read}
    return Field(default, description=text, json_schema_extra=extra, **bounds)


def checked_by(check: Callable[[Any], object]) -> AfterValidator:
    """A check that leaves a value, or `None`, as it is unless `check` raises an error for it."""

    def checked(value: Any) -> Any:
        if value is not None:
            check(value)
        return value

    return AfterValidator(checked)


def one_of(noun: str, known: Collection[str]) -> AfterValidator:
    """A check that a value is among the known ones, which raises `UnknownNameError` with the
    nearest.
    """
    return checked_by(lambda value: require_known(noun, value, known))


def not_empty(values: tuple[_T, ...]) -> tuple[_T, ...]:
    """A check that there is at least one value."""
    if not values:
        raise ValueError("name at least one")
    return values


Names = Annotated[tuple[str, ...], SHORT, AfterValidator(not_empty)]


OneLLM = Annotated[tuple[str, ...], Field(strict=False, min_length=1, max_length=1)]
Numbers = Annotated[tuple[int, ...], LONG]
Limits = Annotated[tuple[int | None, ...], LONG]


def beside(folder: Path, name: str) -> str:
    """The path of a file in a folder, where it is there, else the name as it is."""
    path = str(folder / name)
    return path if os.path.isfile(path) else name  # noqa: PTH113  a name too long is no file


def _clusters() -> Any:
    text = "CSV of questions that belong together: question id, cluster."
    return option(None, text, rare=True, read=read_clusters)


class Request(BaseModel):
    """Base of all requests: frozen, with no unknown fields and no conversions. What does not fit
    raises a `FevalError`.
    """

    # Built on first use: a command needs one request of many.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    noun: ClassVar[str] = "The request"

    def __init__(self, noun: str | None = None, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise usage_error(error, noun or self.noun, type(self)) from error

    @classmethod
    def parse(cls, noun: str, values: RecordLike) -> Self:
        """A request from outside; `noun` is what error messages call it."""
        return cls(noun, **values)

    def changed(self, **values: Any) -> Self:
        """The same request with other values in some fields, checked like a new one."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set} | values)

    def pinned(self) -> Record:
        """The request as a receipt holds it: JSON values, without the price list, which the receipt
        pins by its hash.
        """
        return self.model_dump(mode="json", exclude={"prices"})


def usage_error(error: ValidationError, subject: str, model: type[BaseModel]) -> UsageError:
    """The error that fits what pydantic found; its sentence is about a subject, such as "The
    request".
    """
    first = error.errors(include_url=False)[0]
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        names = [str(field.validation_alias or name) for name, field in model.model_fields.items()]
        return UnknownNameError.among(
            f"field of {subject[:1].lower()}{subject[1:]}", str(first["loc"][0]), names
        )
    kind = OutOfRangeError if first["type"] in _RANGE_ERRORS else UsageError
    return kind(f"{subject} {sentence(error)}.")


class ReplayOptions(Request):
    """How recordings are loaded: the arguments of `load`."""

    seed: int = option(0, "Random seed for draws and resamples.")
    billing: Annotated[str, checked_by(billing_rule)] = option(
        "once", "How prompts are paid: once, per_round or per_sample.", "RULE"
    )
    cache: str | None = option(
        None, "Prompt tokens at a cache's prices: none, recorded or prefix:LEAST,BLOCK.", "RULE",
        exclude=True,
    )  # fmt: skip
    scorer_cost: str | None = option(
        None,
        "USD per score that is read, recorded or none. Default: what was recorded, where all of it"
        " was.",
        "USD",
        exclude=True,
    )
    prices: str | None = option(
        None, "Id or file of a price list, recorded, or none. Default: the recording's.", "LIST"
    )
    right: Annotated[str | None, AfterValidator(checked_rule)] = option(
        None,
        "What says which CoTs are right: gold, verdict or 'verdict>=0.5'. Default: a question's"
        " gold where it has one, else verdicts.",
        "RULE",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_billing(cls, values: Any) -> Any:
        """The billing holds the cache and what scores cost, so that every number names them."""
        if isinstance(values, dict) and (values.get("cache") or values.get("scorer_cost")):
            values = dict(values)
            more = values.pop("cache", None), values.pop("scorer_cost", None)
            values["billing"] = billing_text(values.get("billing", "once"), *more)
        return values

    def loading(self) -> Record:
        """The keyword arguments of `load`."""
        return {name: getattr(self, name) for name in ReplayOptions.model_fields}


class QuestionOptions(ReplayOptions):
    """Which questions count."""

    unlabelled: Annotated[str, one_of("choice for unlabelled", CHOICES)] = option(
        "refuse", "Questions without a gold answer that can be read.", rare=True
    )
    short_pools: Annotated[str, one_of("choice for short_pools", CHOICES)] = option(
        "refuse", "Questions with fewer CoTs than the largest budget.", rare=True
    )

    def arguments(self) -> Record:
        """The keyword arguments of what computes the numbers, such as `estimate`: all fields but
        what is loaded.
        """
        loaded = {*ReplayOptions.model_fields, "dataset", "llms"}
        return {name: getattr(self, name) for name in type(self).model_fields if name not in loaded}


class EvaluationOptions(QuestionOptions):
    """How a method is evaluated: the arguments of `evaluate`."""

    orders: ClassVar[Collection[str]] = ORDERS

    order: str | None = option(
        None, "exact, seeded or recorded. Default: exact where the method has such a form.", "KIND"
    )
    replicates: int | None = option(
        None,
        "Draws per question, for --order seeded. Default: 100; beyond 20,000 questions fewer, at"
        " least 10.",
        ge=1,
        le=MOST_REPLICATES,
    )
    train_fraction: float | None = option(
        None, "Share of the questions to learn from; the others are judged.", "SHARE", gt=0, lt=1
    )
    folds: int | None = option(
        None, "Learn in so many folds; each question is judged by the others.", ge=2
    )
    group: str | None = option(None, "Feature whose questions stay in one fold.", "FEATURE")
    split_seed: int = option(0, "Random seed of that split.", rare=True)
    cost: Annotated[str | None, one_of("cost", COSTS)] = option(
        None, "What costs are counted in; usd is shown per 1,000 questions.", "|".join(COSTS)
    )
    serving: Annotated[
        InstanceOf[ServingProfile] | None,
        # from its fields: a request holds it whole, and names no file to be opened
        BeforeValidator(lambda it: serving_profile(it) if isinstance(it, Mapping) else it),
    ] = option(
        None,
        "Name or file of a serving profile, to model seconds.",
        rare=True,
        read=serving_profile,
    )
    parallel: int | None = option(
        None, "CoTs generated at once, for recorded seconds. Default: a round's.", rare=True, ge=1
    )
    clusters: dict[str, str] | None = _clusters()
    confidence: float | None = option(0.95, "Of the intervals.", rare=True)

    def model_post_init(self, _: Any) -> None:
        """Check the order here, since subclasses know others."""
        if self.order is not None:
            require_known("order", self.order, self.orders)

    def arguments(self) -> Record:
        """The keyword arguments of `evaluate`."""
        return {
            name: getattr(self, name)
            for name in EvaluationOptions.model_fields
            if name not in ReplayOptions.model_fields
        }

    def with_replicates(self, questions: int) -> Self:
        """The same with a number of replicates: the default for so many questions where there is
        none.
        """
        if self.replicates is not None:
            return self
        return self.changed(replicates=default_replicates(questions))

    def split(self, dataset: Dataset, rows: Rows) -> list[Split]:
        """The split, or one for each fold; nothing where nothing is learnt."""
        names = "train_fraction", "folds", "split_seed", "group", "clusters"
        return splits(dataset, rows, **{name: getattr(self, name) for name in names})

    def judged(self, dataset: Dataset, rows: Rows) -> Rows:
        """Those of the rows that are judged."""
        split = self.split(dataset, rows)
        return np.sort(np.concatenate([each.test for each in split])) if split else rows

    def split_text(self) -> str | None:
        """How the questions are split, in words for a reader; `None` where nothing is learnt."""
        if self.folds is not None:
            return f"{self.folds} folds, split seed {self.split_seed}; each judged by the others"
        if self.train_fraction is None:
            return None
        return (
            f"{100 * self.train_fraction:g} % of the questions, split seed {self.split_seed};"
            " judged on the others"
        )


class RunRequest(EvaluationOptions):
    """What `feval run` computes: one method on one dataset.

    Attributes:
        method: a name of `feval ls methods`, or that of a user's function.
        settings: fields that differ from the method's defaults.
        dataset: id.
        llms: names, in the order the method wants them.
        source_sha256: hash of the file that a user's method is in; `None` for a built-in method.
    """

    method: str
    settings: Record
    dataset: str
    llms: Names
    source_sha256: str | None = None


# the options of `self_consistency_curve`
_PLAIN = ("order", "replicates", "unlabelled", "short_pools", "clusters", "confidence")


class CurveRequest(RunRequest):
    """What `feval curve` computes: one method over the values of one of its fields.

    Attributes:
        field: the field that varies; `None` for the plain curve of self-consistency over n.
        values: its values.
        measures: what so many single calls reach, in place of a method.
    """

    measures: Annotated[tuple[str, ...], SHORT] = ()
    field: str | None
    values: Annotated[tuple[int | float, ...], LONG]

    def simplest(self) -> CurveRequest:
        """The same, as a plain curve of self-consistency where it is one: nothing else is set."""
        default = EvaluationOptions().arguments()
        is_plain = (self.method, self.field) == ("self-consistency", "n") and not (
            self.settings
            or len(self.llms) > 1
            or any(
                default[name] != value
                for name, value in self.arguments().items()
                if name not in _PLAIN
            )
        )
        return self.changed(field=None) if is_plain else self

    def compute(self, dataset: Dataset, llms: Sequence[LLM], **running: Any) -> Curve:
        """The curve, from what `load` gave for this request; `running` are an executor and
        progress.
        """
        options = self.arguments() | running
        if self.field is not None:
            options |= {"settings": self.settings, "measures": self.measures}
            return method_curve(dataset, llms, self.method, self.field, self.values, **options)
        plain = {name: options[name] for name in (*_PLAIN, *running)}
        plain["order"] = self.order or "exact"
        return self_consistency_curve(dataset, llms[0], list(map(int, self.values)), **plain)


class SurfaceRequest(QuestionOptions):
    """What `feval surface` computes: votes over n traces cut after so many tokens; see
    `feval.evaluation.surfaces.surface`.

    Attributes:
        dataset: id.
        llms: name of the one LLM.
        n: numbers of traces.
        tokens: limits of output tokens, `None` among them for no limit.
    """

    dataset: str
    llms: OneLLM
    n: Numbers | None = None
    tokens: Limits | None = None
    clusters: dict[str, str] | None = _clusters()
    confidence: float | None = option(0.95, "Of the intervals.", rare=True)


class EstimateRequest(QuestionOptions):
    """What `feval estimate` computes: the accuracy of votes, forecast from a few calls; see
    `feval.forecast.estimate`.
    """

    dataset: str
    llms: OneLLM
    g: int
    m: Numbers
    methods: Annotated[tuple[str, ...], SHORT]
    replicate: int = option(0, "Which draw of calls.", rare=True, ge=0)
    confidence: float = option(0.95, "Of the intervals.", rare=True)
    resamples: int = option(10_000, "Of the bootstrap.", rare=True, le=MOST_RESAMPLES)
    simulations: int = option(100, "Votes simulated per question.", rare=True, le=MOST_RESAMPLES)


class BudgetPlanRequest(QuestionOptions):
    """What `feval plan` computes: what a budget buys, judged by a pilot; see
    `feval.forecast.plan`.
    """

    dataset: str
    llms: OneLLM
    budget_usd: float | None = None
    budget_tokens: float | None = None
    questions: int | None = option(
        None, "How many are to be answered. Default: as many as the pilot has."
    )
    most_votes: int = option(41, "The largest vote that is looked at.", rare=True)
    family: int = option(
        1, "Plans made at once: what is certified together holds in all of them.", rare=True, ge=1
    )


class Consumption(Request):
    """What a program was handed of one LLM on one question.

    Attributes:
        llm: name of the variant.
        question: its id.
        requests: how many it took.
        samples: recorded places of the CoTs, in the order in which they were handed out; recycled
            ones come again.
        tokens: how many tokens of each it was handed, `None` for all of them; `None` where no CoT
            was cut.
        passes: in how many passes of the program; more than one is a program that was run twice
            under one name.
    """

    llm: str
    question: str
    requests: int
    samples: Annotated[tuple[int, ...], LONGEST]
    tokens: Annotated[tuple[int | None, ...], LONGEST] | None = None
    passes: int = 1


class GradeRequest(Request):
    """What `feval grade` computes: the answers that a program gave for the CoTs it was handed; see
    `grade_answers`.
    """

    run: str
    replicate: int | None = Field(ge=0, le=MOST_RESAMPLES)
    dataset: str
    llms: Names
    seed: int
    billing: str
    right: Annotated[str | None, AfterValidator(checked_rule)] = None
    confidence: float | None
    consumed: Annotated[tuple[Consumption, ...], LONGEST]
    answers: dict[str, str | None]
