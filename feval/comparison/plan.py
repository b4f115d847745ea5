"""What is compared: the plan of a comparison, and the small TOML file that describes it.

    dataset = "tiny_sums"
    recordings = ["feval-demo/recording"]
    axis = "usd"

    [[method]]
    name = "self-consistency"
    llms = ["feval/tiny-42k"]
    budgets = { n = [1, 2, 5, 10, 20, 40] }

A plan that cannot be understood (a wrong key, a value of the wrong type) is refused as a whole. What only shows when methods are
made and run (an unknown method, a budget above the pool) is not looked at here; `feval.compare` keeps it with its reason.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from feval.errors import OutOfRangeError, UnknownNameError, UsageError
from feval.evaluation.question_set import CHOICES
from feval.hub import is_address
from feval.methods import METHODS

__all__ = ["AXES", "Entry", "Plan", "suggested_plan"]

AXES = ("usd", "tokens", "calls", "samples")
"""What a budget is counted in, per question: dollars, tokens billed, requests, CoTs."""

_BILLINGS = ("once", "per_round", "per_sample")
_ORDERS = ("exact", "recorded", "seeded", "mixed")
_MAX_FILE_BYTES = 1 << 20
_MAX_POINTS = 1000


@dataclass(frozen=True)
class Entry:
    """One method of a plan.

    Attributes:
        label: what it is called in tables and pictures; no two entries share one.
        method: a name of `feval ls methods`, or `FILE.py:FUNCTION`.
        fields: those that differ from the method's defaults.
        llms: names, in the order the method wants them.
        sweep: the field that is the budget, and its values; `None` for a single point.
    """

    label: str
    method: str
    fields: Mapping[str, Any]
    llms: tuple[str, ...]
    sweep: tuple[str, tuple[Any, ...]] | None = None

    def points(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Every point: its label, and its fields with that of the budget."""
        if self.sweep is None:
            return ((self.label, dict(self.fields)),)
        name, values = self.sweep
        return tuple((f"{self.label}, {name}={value}", {**self.fields, name: value}) for value in values)

    def to_dict(self) -> dict[str, Any]:
        """The entry as it stands in a plan's file."""
        told: dict[str, Any] = {"name": self.method, "label": self.label, "llms": list(self.llms)}
        if self.fields:
            told["fields"] = {name: _listed(value) for name, value in self.fields.items()}
        if self.sweep is not None:
            told["budgets"] = {self.sweep[0]: [_listed(value) for value in self.sweep[1]]}
        return told


@dataclass(frozen=True)
class Plan:
    """A comparison before it is computed.

    Attributes:
        dataset: id; every method is judged on its questions.
        recordings: folders, relative to the plan's file.
        entries: one method each.
        seed: of the draws, the split and the resamples.
        replicates: draws of every question where there is no exact expectation.
        order: "exact", "seeded" or "recorded", of all methods; `None` for exact if every method has such a form, else seeded;
            "mixed" for exact where there is such a form and seeded elsewhere, each method marked with its kind.
        billing: how prompts are paid.
        prices: id or file of a price list, "none", or `None` for the recordings' own.
        unlabelled: "refuse" or "drop" questions without a gold answer that can be read, for all methods.
        short_pools: "refuse" a budget that some pool cannot serve, or "drop" questions with fewer CoTs of an LLM than the largest
            budget of the plan, for all methods.
        train_fraction: share of the questions that methods which learn are fitted on; all methods are judged on the others.
        split_seed: of that split.
        confidence: of every interval.
        resamples: of the bootstrap over questions, and random sign flips.
        axis: what a budget is counted in.
        costs: budgets per question, in units of the axis, at which methods are compared; none for a few that they share.
        accuracies: in [0, 1], whose cost is asked for; none for a few that the methods share.
    """

    dataset: str
    recordings: tuple[str, ...]
    entries: tuple[Entry, ...]
    seed: int = 0
    replicates: int = 100
    order: str | None = None
    billing: str = "once"
    prices: str | None = None
    unlabelled: str = "refuse"
    short_pools: str = "refuse"
    train_fraction: float | None = None
    split_seed: int = 0
    confidence: float = 0.95
    resamples: int = 10_000
    axis: str = "usd"
    costs: tuple[float, ...] = ()
    accuracies: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for noun, word, known in (
            ("axis", self.axis, AXES),
            ("billing", self.billing, _BILLINGS),
            ("order", self.order, (*_ORDERS, None)),
            ("choice for unlabelled", self.unlabelled, CHOICES),
            ("choice for short_pools", self.short_pools, CHOICES),
        ):
            if word not in known:
                raise UnknownNameError.of(noun, str(word), [name for name in known if name], "Mend the plan.")
        if not self.recordings or not self.entries:
            raise UsageError("A plan names at least one recording (recordings) and one method ([[method]]); mend it.")
        self._check_ranges()
        self._check_labels()

    def _check_ranges(self) -> None:
        ranges = (
            ("replicates", self.replicates, self.replicates >= 1, "1 or more"),
            ("resamples", self.resamples, 1 <= self.resamples <= 100_000, "from 1 to 100,000"),
            ("confidence", self.confidence, 0 < self.confidence < 1, "between 0 and 1"),
            ("train_fraction", self.train_fraction, 0 < (self.train_fraction or 0.5) < 1, "between 0 and 1"),
            ("seed", self.seed, self.seed >= 0, "0 or more"),
            ("costs", self.costs, all(0 < cost < math.inf for cost in self.costs), "above 0 and finite"),
            ("accuracies", self.accuracies, all(0 <= share <= 1 for share in self.accuracies), "in [0, 1]"),
        )
        for name, value, fits, allowed in ranges:
            if not fits:
                raise OutOfRangeError(f"The plan's {name} must be {allowed}; {_shown(_listed(value))} was given.")

    def _check_labels(self) -> None:
        labels = [entry.label for entry in self.entries]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice is not None:
            raise UsageError(
                f"Two methods of the plan are labelled {twice!r}; give each a label of its own (label = ...), since tables and "
                "pictures tell them apart by it."
            )

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan from its TOML file.

        Raises:
            UsageError: the file cannot be read, is no TOML, or does not describe a comparison; the message names the method
                and the key.
        """
        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
            if len(data) > _MAX_FILE_BYTES:
                raise UsageError(f"The plan {path} is larger than {_MAX_FILE_BYTES:,} bytes; is it the right file?")
            content = tomllib.loads(data.decode("utf-8"))
        except OSError as error:
            raise UsageError(f"The plan {path} cannot be read: {error.strerror or error}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"The plan {path} is no TOML: {error}. See docs/comparing.md for an example.") from error
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Plan:
        """A plan from what its file holds.

        Raises:
            UnknownNameError: an unknown key; the message names the nearest.
            UsageError: a key that is missing, or a value of the wrong type.
        """
        given = dict(content)
        settings = [f for f in fields(cls) if f.name != "entries"]
        for key in given:
            if key not in {"method", *(f.name for f in settings)}:
                raise UnknownNameError.of("key of a plan", key, ["method", *(f.name for f in settings)])
        tables = given.get("method", [])
        if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
            raise UsageError("The methods of a plan are tables, each under a line [[method]]; mend the plan.")
        values = {f.name: _setting(f.name, given[f.name]) for f in settings if given.get(f.name) is not None}
        for key in ("dataset", "recordings"):
            if key not in values:
                raise UsageError(f"The plan does not say its {key}; add a line {key} = ... above the methods.")
        return cls(**values, entries=_entries(tables))

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values; `from_dict` takes it back."""
        told: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name != "entries" and value is not None and value != ():
                told[f.name] = list(value) if isinstance(value, tuple) else value
        return told | {"method": [entry.to_dict() for entry in self.entries]}

    def to_toml(self) -> str:
        """The plan as the text of its file."""
        told = self.to_dict()
        methods = told.pop("method")
        blocks = ["".join(f"{key} = {_toml(value)}\n" for key, value in told.items())]
        for method in methods:
            lines = (f"{key} = {_toml(value)}\n" for key, value in method.items())
            blocks.append("[[method]]\n" + "".join(lines))
        return "\n".join(blocks)

    def moved(self, old: Path, new: Path) -> Plan:
        """The plan for a file in another folder: paths of recordings, price lists and users' methods lead to the same files."""

        def along(path: str) -> str:
            return path if is_address(path) else path_from(new, old / path)

        entries = tuple(
            replace(e, method=along(e.method.rpartition(":")[0]) + ":" + e.method.rpartition(":")[2])
            if ":" in e.method
            else e
            for e in self.entries
        )
        prices = along(self.prices) if self.prices and (old / self.prices).is_file() else self.prices
        return replace(self, recordings=tuple(map(along, self.recordings)), entries=entries, prices=prices)


def path_from(folder: Path, path: Path) -> str:
    """A path as it starts from a folder.

    Where links lead on the way, ".." is the folder above the one that they lead to; so the way is one without links, but for the
    last name, which may be a link that somebody changes.

    Args:
        folder: there, or to be made.
        path: of a file or folder; on another drive than `folder` it stays absolute.

    Returns:
        The path with "/" between its parts.
    """
    own = Path(os.path.realpath(path.parent), path.name)
    try:
        return Path(os.path.relpath(own, os.path.realpath(folder))).as_posix()
    except ValueError:
        return own.as_posix()


# -- reading ------------------------------------------------------------------------------------------------------------


_TYPES: dict[str, tuple[type, ...]] = {
    "dataset": (str,), "order": (str,), "billing": (str,), "prices": (str,), "axis": (str,),
    "unlabelled": (str,), "short_pools": (str,),
    "seed": (int,), "replicates": (int,), "split_seed": (int,), "resamples": (int,),
    "train_fraction": (int, float), "confidence": (int, float),
}  # fmt: skip
_LISTS: dict[str, tuple[type, ...]] = {"recordings": (str,), "costs": (int, float), "accuracies": (int, float)}
_WORDS = {str: "text", int: "a whole number", float: "a number"}


def _setting(name: str, value: Any) -> Any:
    """A value of the plan itself, of the type it must have."""
    if name in _LISTS:
        wanted = _LISTS[name]
        if isinstance(value, str) and wanted == (str,):
            value = [value]
        if not isinstance(value, (list, tuple)) or not all(_is(item, wanted) for item in value):
            raise UsageError(
                f"The plan's {name} must be a list of {'text' if wanted == (str,) else 'numbers'}; {_shown(value)} was given."
            )
        return tuple(value)
    if not _is(value, _TYPES[name]):
        raise UsageError(f"The plan's {name} is {_WORDS[_TYPES[name][-1]]}; {_shown(value)} was given.")
    return value


def _is(value: Any, wanted: tuple[type, ...]) -> bool:
    return isinstance(value, wanted) and not isinstance(value, bool)


_KEYS = ("name", "label", "llms", "fields", "budgets")


def _entries(tables: Sequence[Mapping[str, Any]]) -> tuple[Entry, ...]:
    names = [table.get("name") for table in tables]
    return tuple(_entry(place, table, names.count(table.get("name")) > 1) for place, table in enumerate(tables, 1))


def _entry(place: int, table: Mapping[str, Any], shared: bool) -> Entry:
    """One [[method]]; without a label it is called by its name, with its LLMs where several methods share the name."""
    where = f"Method {place} of the plan" + (f" ({table['name']})" if isinstance(table.get("name"), str) else "")
    for key in table:
        if key in {"dataset", "recordings", "seed", "billing"}:
            raise UsageError(
                f"{where} has a {key} of its own, but methods are compared on one {key}; move it to the top of the plan."
            )
        if key not in _KEYS:
            raise UnknownNameError.of("key of a method", key, _KEYS, f"{where} has it.")
    name, llms = table.get("name"), table.get("llms")
    llms = [llms] if isinstance(llms, str) else llms
    if not isinstance(name, str) or not name:
        raise UsageError(f"{where} has no name; add a line name = ... (see `feval ls methods`).")
    if not isinstance(llms, (list, tuple)) or not llms or not all(isinstance(llm, str) and llm for llm in llms):
        raise UsageError(f"{where} names no LLMs; add a line llms = [...] with those it asks, in order.")
    settings, budgets = table.get("fields", {}), table.get("budgets")
    if not isinstance(settings, Mapping):
        raise UsageError(f"{where} has fields that are no table; write fields = {{ field = value }}.")
    label = table.get("label", f"{name} ({' > '.join(llms)})" if shared else name)
    if not isinstance(label, str) or not label.strip():
        raise UsageError(f"{where} has a label that is no text; {_shown(label)} was given.")
    sweep = None if budgets is None else _sweep(where, budgets)
    if sweep is not None and sweep[0] in settings:
        raise UsageError(f"{where} has {sweep[0]} both among its fields and as its budget; leave it out of the fields.")
    frozen = {key: _frozen(value, f"{where} has a field {key}") for key, value in settings.items()}
    return Entry(label, name, frozen, tuple(llms), sweep)


def _sweep(where: str, budgets: Any) -> tuple[str, tuple[Any, ...]]:
    if not isinstance(budgets, Mapping) or len(budgets) != 1:
        raise UsageError(
            f"{where} has budgets that are not one field with its values; write budgets = {{ n = [1, 5, 20] }}."
        )
    ((name, values),) = budgets.items()
    if not isinstance(values, (list, tuple)) or not 1 <= len(values) <= _MAX_POINTS:
        raise UsageError(f"{where} has budgets whose {name} is no list of 1 to {_MAX_POINTS:,} values.")
    frozen = tuple(_frozen(value, f"{where} has a budget {name}") for value in values)
    if len({repr(value) for value in frozen}) < len(frozen):
        raise UsageError(f"{where} has a value of {name} twice in its budgets; each is one point.")
    return name, frozen


def _frozen(value: Any, where: str) -> Any:
    """A value of a field, which JSON can hold as well: infinities become text, which every field takes in their place."""
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item, where) for item in value)
    if isinstance(value, Mapping):
        return {key: _frozen(item, where) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value is None or (isinstance(value, (str, int, float)) and value == value):  # NaN alone differs from itself
        return value
    raise UsageError(f"{where} that is no text, number, true, false or list; {_shown(value)} was given.")


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


# -- writing ------------------------------------------------------------------------------------------------------------


def _toml(value: Any) -> str:
    """A value in TOML's spelling."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON escapes are TOML escapes, but for the delete character, which TOML wants escaped as well.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    raise UsageError(
        f"A plan's file holds text, numbers, true, false, lists and tables; {_shown(value)} cannot be written."
    )


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key)


# -- a first plan -------------------------------------------------------------------------------------------------------


_BUDGETS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 60, 80, 100)


def suggested_plan(dataset: str, recordings: Sequence[str], most: Mapping[str, int], *, axis: str = "usd") -> Plan:
    """A plan to start from: those methods that every recording supports, over budgets that the pools can serve.

    Args:
        dataset: id.
        recordings: folders, relative to the plan's file.
        most: LLM -> CoTs of its smallest pool, in the order cascades are to ask them: the cheap ones first.
        axis: what a budget is counted in; one that every LLM has.
    """
    entries = [entry for llm, pool in most.items() for entry in _of_one(llm, pool)]
    if len(most) > 1:
        entries.extend(_of_several(tuple(most), min(most.values())))
    known = [entry for entry in entries if entry["name"] in METHODS]
    for entry in known:
        if len(most) > 1 and len(entry["llms"]) == 1:
            entry["label"] = f"{entry['name']} ({entry['llms'][0]})"
    plan = {"dataset": dataset, "recordings": list(recordings), "axis": axis, "method": known}
    return Plan.from_dict(plan)


def _of_one(llm: str, pool: int) -> list[dict[str, Any]]:
    counts = [n for n in _BUDGETS if n <= pool]
    tables: list[dict[str, Any]] = [{"name": "self-consistency", "llms": [llm], "budgets": {"n": counts}}]
    most = min(40, pool)
    # The window's answer, as in ESC's own code: its expectation over all draws takes milliseconds, the other answer's seconds.
    if windows := [n for n in (3, 4, 5, 8, 10) if 2 * n <= most]:
        fields = {"budget": most, "answer": "window"}
        tables.append({"name": "early-stopping", "llms": [llm], "fields": fields, "budgets": {"window": windows}})
    if most >= 5:
        fields, shares = {"budget": most}, ["0.6", "0.7", "0.8", "0.9", "0.95", "0.99"]
        tables.append(
            {"name": "adaptive-consistency", "llms": [llm], "fields": fields, "budgets": {"threshold": shares}}
        )
    return tables


def _of_several(llms: tuple[str, ...], pool: int) -> list[dict[str, Any]]:
    counts = [n for n in _BUDGETS if n <= pool]
    thresholds = ["0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "1"]
    return [
        {"name": "model-switch", "llms": list(llms), "budgets": {"samples": counts}},
        {
            "name": "mixture-of-thoughts",
            "llms": list(llms[:1] + llms[-1:]),
            "fields": {"samples": min(20, pool), "strong_samples": min(3, pool)},
            "budgets": {"threshold": thresholds},
        },
    ]
