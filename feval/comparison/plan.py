"""What a comparison computes: a `Plan`, and the small TOML file that holds one (a "comparison
file").

    dataset = "tiny_sums"
    recordings = ["feval-demo/recording"]
    cost = "usd"

    [[method]]
    name = "self-consistency"
    llms = ["feval/tiny-42k"]
    budgets = { n = [1, 2, 5, 10, 20, 40] }

A file that cannot be understood (an unknown key, a value of the wrong type) is refused as a whole.
What only shows when methods are made and run (an unknown method, a budget above the pool) is not
checked here; `feval.compare` lists it as missing, with the reason.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
)

from feval.arguments import checked
from feval.cards import serving_profile
from feval.cards.prices import moved_prices
from feval.cards.reading import read_toml
from feval.comparison.flips import VariedPrice
from feval.errors import FevalError, OutOfRangeError, UsageError
from feval.evaluation import MethodFile, make_method
from feval.evaluation.measures import COSTS
from feval.evaluation.questions import read_clusters
from feval.evaluation.requests import (
    MOST_NAMES,
    SHORT,
    EvaluationOptions,
    Names,
    Request,
    beside,
    checked_by,
    not_empty,
    one_of,
    option,
)
from feval.hub import is_address
from feval.lazy import Displayable
from feval.replay import ORDERS
from feval.values import Record, RecordLike, without_none

_ONE_OF_COSTS = "|".join(COSTS)
_MAX_POINTS, _MAX_ALL_POINTS = 1000, 10_000


def _listed(value: Any) -> Any:
    """A list of one text may be written as the text."""
    return [value] if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """A value of a method's field that JSON can hold: infinities become text, which every field
    takes in their place.
    """
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    # only NaN differs from itself
    if value is None or (isinstance(value, (str, int, float)) and value == value):
        return value
    raise ValueError(f"{value!r:.80} is not text, a number, true, false or a list")


def _swept(budgets: Any) -> Any:
    """The field that varies and its values, as a comparison file writes them: { n = [1, 5, 20]
    }.
    """
    if not isinstance(budgets, Mapping):
        return budgets
    if len(budgets) != 1:
        raise ValueError("write one field with its values, such as { n = [1, 5, 20] }")
    ((name, values),) = budgets.items()
    if not isinstance(values, (list, tuple)) or not 1 <= len(values) <= _MAX_POINTS:
        raise ValueError(f"{name} takes a list of 1 to {_MAX_POINTS:,} values")
    if len({repr(value) for value in values}) < len(values):
        raise ValueError(f"a value of {name} comes twice; each is one point")
    return name, values


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


Text = Annotated[str, AfterValidator(_filled)]


class ComparedMethod(Request):
    """One method of a comparison.

    Attributes:
        label: what it is called in tables and pictures; unique within the comparison.
        method: a name of `feval ls methods`, or `FILE.py:FUNCTION`.
        fields: those that differ from the method's defaults.
        llms: names, in the order the method wants them.
        sweep: the field that is the budget, and its values; `None` for a single point.
        train_fraction: share of the questions that it alone learns from, where the plan sets none
            aside for all methods; it is judged on the others, they on all.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    noun = "The method"

    label: Text
    method: Text = Field(validation_alias="name")
    fields: Annotated[Record, AfterValidator(_plain)] = {}  # noqa: RUF012  pydantic copies it
    llms: Annotated[Names, BeforeValidator(_listed)]
    sweep: Annotated[
        tuple[str, Annotated[tuple[Any, ...], Field(strict=False), AfterValidator(_plain)]] | None,
        BeforeValidator(_swept),
    ] = Field(None, validation_alias="budgets")
    train_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None

    def model_post_init(self, _: Any) -> None:
        """Check that the budget is not among the fields as well."""
        if self.swept in self.fields:
            raise UsageError(
                f"The method {self.label!r} has {self.swept} both among its fields and as its"
                " budget."
            )

    @property
    def swept(self) -> str:
        """The field that is the budget; empty for a single point."""
        return "" if self.sweep is None else self.sweep[0]

    def points(self) -> tuple[tuple[str, Record], ...]:
        """Every point: its label, and its fields with that of the budget."""
        if self.sweep is None:
            return ((self.label, dict(self.fields)),)
        name, values = self.sweep
        return tuple(
            (f"{self.label}, {name}={value}", {**self.fields, name: value}) for value in values
        )

    def make(self, settings: RecordLike, users_methods: RecordLike) -> Any:
        """The method itself, as `make_method` gives it; a user's method is the one given, or the
        error given for it.
        """
        if ":" not in self.method:
            return make_method(self.method, settings)
        method = users_methods.get(self.method) or UsageError(_unnamed(self.method, self.method))
        if isinstance(method, FevalError):
            raise method
        if settings and not isinstance(method, MethodFile):
            raise UsageError(
                f"{self.method} is a function that was given as it is; {', '.join(settings)} can be"
                " set of a method from a file (FILE.py:NAME)."
            )
        return make_method(method, settings) if settings else method

    def to_dict(self) -> Record:
        """The method as a comparison file holds it."""
        table: Record = {"name": self.method, "label": self.label, "llms": list(self.llms)}
        if self.fields:
            table["fields"] = {name: _lists(value) for name, value in self.fields.items()}
        if self.sweep is not None:
            table["budgets"] = {self.sweep[0]: _lists(self.sweep[1])}
        if self.train_fraction is not None:
            table["train_fraction"] = self.train_fraction
        return table


def _unnamed(method: str, place: str) -> str:
    return (
        f"The comparison names {method!r}, Python code in a file. A comparison file runs no code by"
        f" itself: read that code, and pass --method {place} (in Python:"
        f" methods=[{place!r}]) to have it run."
    )


def _methods(tables: Any) -> Any:
    """The methods in a comparison file; one without a label is called by its name, with its LLMs
    where several share it.
    """
    if not isinstance(tables, (list, tuple)) or not all(
        isinstance(table, (Mapping, ComparedMethod)) for table in tables
    ):
        raise UsageError(
            "The methods of a comparison file are tables, each under a line [[method]]."
        )
    names = [table.get("name") for table in tables if isinstance(table, Mapping)]
    return tuple(
        (
            _method(place, table, names.count(table.get("name")) > 1)
            if isinstance(table, Mapping)
            else table
        )
        for place, table in enumerate(tables, 1)
    )


def _method(place: int, table: RecordLike, shared: bool) -> ComparedMethod:
    name = table.get("name")
    named = isinstance(name, str)
    where = f"Method {place} of the comparison file" + (f" ({name})" if named and name else "")
    misplaced = next(
        (key for key in ("dataset", "recordings", "seed", "billing") if key in table), None
    )
    if misplaced is not None:
        raise UsageError(
            f"{where} has a {misplaced} of its own, but methods are compared on one {misplaced};"
            " move it to the top of the file."
        )
    llms = _listed(table.get("llms"))
    label = name if named else "?"
    if shared and isinstance(llms, (list, tuple)) and all(isinstance(llm, str) for llm in llms):
        label = f"{label} ({' > '.join(llms)})"
    return ComparedMethod.parse(where, {"label": label} | dict(table))


class Plan(Displayable, EvaluationOptions):
    """A comparison before it is computed: the options of `evaluate` that all methods share, and the
    methods.

    Attributes:
        dataset: id; every method is judged on its questions.
        recordings: folders, relative to the comparison file.
        entries: the methods.
        seed: random seed for draws, split and resamples.
        replicates: draws of every question where there is no exact expectation; `None` as for
            `evaluate`.
        order: "exact", "seeded" or "recorded", for all methods; `None` for exact if every method
            has such a form, else seeded; "mixed" for exact where there is such a form and seeded
            elsewhere, each method marked with its kind.
        billing: how prompts are paid.
        right: what says which CoTs are right, as for `load`.
        prices: id or file of a price list, "none", or `None` for the recordings' own.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read, for all
            methods.
        short_pools: "refuse" a budget that some pool cannot serve, or "drop" questions with fewer
            CoTs of an LLM than the largest budget of the comparison, for all methods.
        train_fraction: share of the questions that methods which learn are fitted on; all methods
            are judged on the others.
        folds, group: in place of the share, and what stays together, as for `evaluate`.
        split_seed: random seed of the split or the folds.
        confidence: of every interval.
        resamples: of the bootstrap over questions.
        cost: what a budget is counted in, one of `COSTS`.
        serving, parallel: where seconds come from, as for `evaluate`; a comparison file has the
            profile's name, file or table.
        clusters: question id -> cluster, of those that are one piece of evidence; a comparison file
            has these, or names a file.
        costs: budgets per question, counted in this (USD for "usd"), at which methods are compared;
            none for a few that they share.
        accuracies: in [0, 1], whose cost is asked for; none for a few that the methods share.
        vary: a price that varies, see `VariedPrice`; `None` for none.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    noun = "The comparison"
    orders: ClassVar[Collection[str]] = (*ORDERS, "mixed")

    dataset: str
    recordings: Annotated[Names, BeforeValidator(_listed)]
    entries: Annotated[
        tuple[ComparedMethod, ...], BeforeValidator(_methods), AfterValidator(not_empty)
    ] = Field(validation_alias="method", max_length=MOST_NAMES)
    seed: int = option(0, "Random seed for draws, split and resamples.", ge=0)
    confidence: float = option(0.95, "Of every interval.", rare=True, gt=0, lt=1)
    resamples: int = option(10_000, "Of the bootstrap.", rare=True, ge=1, le=100_000)
    cost: Annotated[str, one_of("cost", COSTS)] = option(
        "usd", "What a budget is counted in, per question; usd is shown per 1,000.", _ONE_OF_COSTS
    )
    costs: Annotated[tuple[Annotated[float, Field(gt=0)], ...], SHORT] = ()
    accuracies: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], SHORT] = ()

    vary: Annotated[str | None, checked_by(VariedPrice.parse)] = option(
        None, "Price at which the cheaper method may change: input, output, ...", "LLM=RATE"
    )

    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """Where its paths start from: the folder of the file that it was read from, else the
        working folder.
        """
        return self._folder

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_dict() == other.to_dict()

    def changed(self, **values: Any) -> Self:
        """The same plan, of the same file, with other values in some fields, checked like a new
        one.
        """
        return super().changed(**values).in_folder(self.folder)

    def learning(self, entry: ComparedMethod) -> Self:
        """The same plan, with the share of the questions that a method learns from."""
        share = None if self.folds else self.train_fraction or entry.train_fraction
        return self.model_copy(update={"train_fraction": share})

    def in_folder(self, folder: Path) -> Self:
        """The same plan, whose paths start from a folder."""
        plan = self.model_copy()
        plan._folder = folder  # noqa: SLF001  a plan of this class
        return plan

    def model_post_init(self, context: Any) -> None:
        """Check the order, and that no two methods share a label."""
        super().model_post_init(context)
        points = sum(1 if entry.sweep is None else len(entry.sweep[1]) for entry in self.entries)
        if points > _MAX_ALL_POINTS:
            raise OutOfRangeError(
                f"A comparison has at most {_MAX_ALL_POINTS:,} points, which are the budgets of all"
                f" its methods; this one has {points:,}. Leave out some."
            )
        labels = [entry.label for entry in self.entries]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise UsageError(
                f"Two methods of the comparison are labelled {twice!r}; give each a label of its"
                " own (label = ...), since tables and pictures tell them apart by it."
            )

    @classmethod
    @checked
    def read(cls, path: str | Path) -> Plan:
        """Read a comparison file, from whose folder paths start; the `UsageError` for a bad one
        names the method and the key.
        """
        content = read_toml(
            Path(path), "The comparison file", "See docs/comparing.md for an example."
        )
        if isinstance(profile := content.get("serving"), str):
            content["serving"] = serving_profile(beside(Path(path).parent, profile))
        if isinstance(clusters := content.get("clusters"), str):
            content["clusters"] = read_clusters(Path(path).parent / clusters)
        return cls.from_dict(content).in_folder(Path(path).parent)

    @classmethod
    def from_dict(cls, content: RecordLike) -> Plan:
        """The plan in the content of a comparison file; unknown keys and wrong types are a
        `UsageError`.
        """
        return cls.parse("The comparison file", without_none(content))

    def to_dict(self) -> Record:
        """The plan as JSON values; `from_dict` takes it back."""
        names = dict.fromkeys(("dataset", "recordings", *type(self).model_fields))
        values = {name: _lists(getattr(self, name)) for name in names if name != "entries"}
        content = {
            name: value for name, value in values.items() if value is not None and value != []
        }
        return content | {"method": [entry.to_dict() for entry in self.entries]}

    def to_toml(self) -> str:
        """The text of the comparison file."""
        content = self.to_dict()
        methods = content.pop("method")
        blocks = ["".join(f"{key} = {_toml(value)}\n" for key, value in content.items())]
        for method in methods:
            lines = (f"{key} = {_toml(value)}\n" for key, value in method.items())
            blocks.append("[[method]]\n" + "".join(lines))
        return "\n".join(blocks)

    def places(self, base: Path) -> tuple[list[str | Path], str | None]:
        """Where the recordings and the price list are, for a file in the folder `base`."""
        prices = self.prices and moved_prices(self.prices, partial(beside, base))
        return [place if is_address(place) else base / place for place in self.recordings], prices

    def users_methods(self, names: Sequence[str | MethodFile], base: Path) -> Record:
        """The users' methods of the plan by their name in it; one whose file is absent stands as
        the error that says so.

        Raises:
            UsageError: a file is there and is none of those that `names` give as FILE.py:FUNCTION:
                a plan runs no code by itself.
        """
        given = [method for name in names if isinstance(method := make_method(name), MethodFile)]
        for learner in (str(entry.fields.get("learner", "")) for entry in self.entries):
            if ":" in learner and str(make_method(learner)) not in map(str, given):
                raise UsageError(_unnamed(learner, learner))
        methods: Record = {}
        for name in dict.fromkeys(entry.method for entry in self.entries if ":" in entry.method):
            path, _, function = name.rpartition(":")
            place = f"{base / path}:{function}"
            try:
                named = make_method(place)
            except FevalError as error:
                methods[name] = error
                continue
            same = (
                method
                for method in given
                if method.function == function and method.path.samefile(named.path)
            )
            if (method := next(same, None)) is None:
                raise UsageError(_unnamed(name, place))
            methods[name] = method
        return methods

    def moved(self, old: Path, new: Path) -> Plan:
        """The plan for a file in another folder: paths of recordings, price lists and users'
        methods lead to the same files.
        """

        def along(path: str) -> str:
            return path if is_address(path) else path_from(new, old / path)

        def entry(method: ComparedMethod) -> ComparedMethod:
            path, colon, function = method.method.rpartition(":")
            return method.changed(method=f"{along(path)}:{function}") if colon else method

        def file(prices: str) -> str:
            return along(prices) if os.path.isfile(old / prices) else prices  # noqa: PTH113  this never raises

        prices = self.prices and moved_prices(self.prices, file)
        recordings = tuple(map(along, self.recordings))
        plan = self.changed(
            recordings=recordings, entries=tuple(map(entry, self.entries)), prices=prices
        )
        return plan.in_folder(new)


def _parsed(content: Any) -> Any:
    if not isinstance(content, (Mapping, Plan)):
        raise ValueError("it is not an object")  # noqa: TRY004  pydantic wants it
    return Plan.from_dict(content) if isinstance(content, Mapping) else content


class ComparisonRequest(Request):
    """What `feval compare` computes; in a receipt the plan's paths start from the receipt's folder.

    `sources` has the hash of the file of each user's method, by its name in the plan; `None` where
    it could not be read.
    """

    plan: Annotated[Plan, BeforeValidator(_parsed), PlainSerializer(Plan.to_dict)]
    sources: dict[str, str | None]


def path_from(folder: Path, path: Path) -> str:
    """A path with "/" between its parts, as it starts from a folder; on another drive it stays
    absolute.

    Where links lead on the way, ".." is the folder above the one that they lead to; so the way is
    one without links, but for the last name, which may be a link that somebody changes.
    """
    real = Path(os.path.realpath(path.parent), path.name)
    try:
        return Path(os.path.relpath(real, os.path.realpath(folder))).as_posix()
    except ValueError:
        return real.as_posix()


def _lists(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def _toml(value: Any) -> str:
    """A value in TOML's spelling."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON escapes are TOML escapes, but for the delete character, which TOML wants escaped as
        # well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        bare = re.compile(r"[A-Za-z0-9_-]+")
        pairs = ((key if bare.fullmatch(key) else _toml(key), value[key]) for key in value)
        return f"{{ {', '.join(f'{key} = {_toml(inner)}' for key, inner in pairs)} }}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    raise UsageError(
        f"A comparison file holds text, numbers, true, false, lists and tables; {value!r:.80}"
        " cannot be written."
    )
