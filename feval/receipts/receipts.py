"""Receipts: JSON that pins what a number was computed from, so that anybody can compute it again.

A receipt holds what was asked for, what it was computed from (recording hashes, price list, draw scheme, version, the source of a
user's method) and the numbers. Verifying it does the same again and compares: words and integers must be the same, other numbers
equal to 1e-12. A receipt is data: it never makes feval run code that it names; a user's method must be given again.

A receipt also holds the version of what its numbers mean (`feval.receipts.semantics`). Where those of an older one come out otherwise, the
check says what has changed since: they are neither confirmed nor called wrong.
"""

from __future__ import annotations

import json
import math
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feval import __version__, hub
from feval.cards.cards import price_ids
from feval.cards.prices import price_list
from feval.comparison.comparison import compare
from feval.comparison.plan import Plan, path_from
from feval.comparison.traces import opened
from feval.errors import (
    ConflictError,
    FevalError,
    MethodError,
    RecordingError,
    UnknownNameError,
    UnlabelledError,
    UsageError,
)
from feval.evaluation.curves import method_curve, self_consistency_curve
from feval.evaluation.evaluation import evaluate
from feval.evaluation.specs import MethodFile, make_method
from feval.forecast import estimate
from feval.hub import is_address, open_place
from feval.receipts import semantics
from feval.receipts.grading import Consumed, grade_answers
from feval.recording.layout.origin import cached_from
from feval.replay.draws import SCHEME
from feval.replay.loading import load

if TYPE_CHECKING:
    from feval.cards.prices import PriceList
    from feval.comparison.comparison import Comparison
    from feval.comparison.plan import Entry
    from feval.forecast import Forecast
    from feval.receipts.grading import Grade
    from feval.recording import Recording
    from feval.replay.loading import LLM, Dataset

__all__ = [
    "Difference",
    "ReceiptCheck",
    "compare_receipt",
    "curve_receipt",
    "estimate_receipt",
    "grade_receipt",
    "is_receipt",
    "local_receipt",
    "pins",
    "read_receipt",
    "run_receipt",
    "verify_receipt",
]

FORMAT = 1
TOLERANCE = 1e-12
_ROUNDING = 1e-15  # of shares that should be nothing
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Difference:
    """A number that came out otherwise.

    Attributes:
        where: its place, such as "accuracy" or "points[3].usd_per_question".
        receipt: what the receipt says; `None` for nothing.
        now: what came out.
    """

    where: str
    receipt: Any
    now: Any

    def __str__(self) -> str:
        if _number(self.receipt) and _number(self.now):
            return f"{self.where}: the receipt says {self.receipt!r}, now {self.now!r}, {self.now - self.receipt:+.3g}"
        return f"{self.where}: the receipt says {self.receipt!r:.80}, now {self.now!r:.80}"


@dataclass(frozen=True)
class ReceiptCheck:
    """The outcome of verifying a receipt.

    Attributes:
        kind: "run", "curve", "compare", "estimate" or "grade".
        numbers: how many values were compared.
        differences: those that came out otherwise.
        notes: sentences on what differs without being a number: the version of feval, and why numbers of an older receipt cannot
            be computed any more.
        semantics: version of what the receipt's numbers mean.
        changes: what has changed since that version, where something came out otherwise; else empty.
    """

    kind: str
    numbers: int
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    semantics: int = semantics.VERSION
    changes: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether everything came out as the receipt says."""
        return not self.differences and not self.changes

    @property
    def outdated(self) -> bool:
        """Whether something came out otherwise, and what numbers mean has changed since the receipt was written."""
        return bool(self.changes)


# -- writing ----------------------------------------------------------------------------------------------------------


def pins(dataset: Dataset, llms: Sequence[LLM], folder: Path) -> dict[str, Any]:
    """What numbers of a load rest on.

    Args:
        dataset: from `load`.
        llms: from the same `load`.
        folder: where the receipt will lie; recordings are named by their path from there, so that both can be moved together.
    """
    listed = llms[0].prices
    recordings = zip(dataset.recording_hashes, dataset.recording_paths, strict=True)
    return {
        "feval": __version__,
        "draws": SCHEME,
        "semantics": semantics.VERSION,
        "recordings": [{"hash": own, "path": _path_from(folder, path)} for own, path in recordings],
        "prices": None if listed is None else {"id": listed.id, "digest": listed.digest},
        "counters": {llm.name: llm.counter for llm in llms},
    }


def run_receipt(request: Mapping[str, Any], numbers: Mapping[str, Any], pinned: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt of one evaluation.

    Args:
        request: method, settings, dataset, llms and the arguments of `evaluate`, all as JSON values; a user's method adds
            "source_sha256".
        numbers: what came out, `Evaluation.to_dict()`.
        pinned: from `pins`.
    """
    return _receipt("run", request, numbers, pinned)


def curve_receipt(request: Mapping[str, Any], numbers: Mapping[str, Any], pinned: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt of a curve.

    Args:
        request: as for `run_receipt`, with the swept "field" (`None` for the plain curve of self-consistency) and its "values".
        numbers: `Curve.to_dict()`.
        pinned: from `pins`.
    """
    return _receipt("curve", request, numbers, pinned)


def estimate_receipt(
    told: Forecast, billing: str, choices: Mapping[str, str], pinned: Mapping[str, Any]
) -> dict[str, Any]:
    """The receipt of a forecast.

    Args:
        told: what was estimated.
        billing: of the load; no number depends on it.
        choices: `unlabelled` and `short_pools`, as `estimate` took them.
        pinned: from `pins`.
    """
    names = ("g", "replicate", "confidence", "resamples", "simulations", "seed", "dataset")
    request = {name: getattr(told, name) for name in names}
    methods = [own.method for own in told.estimates]
    request |= {"llms": [told.llm], "m": list(told.m), "methods": methods, "billing": billing, **choices}
    return _receipt("estimate", request, told.to_dict(), pinned)


def compare_receipt(told: Comparison, base: Path, folder: Path) -> dict[str, Any]:
    """The receipt of a comparison.

    Args:
        told: what was compared.
        base: the folder that the plan's paths start from.
        folder: where the receipt will lie.
    """
    dataset, llms = opened(told, base)
    plan, moved = told.plan, told.plan.moved(base, folder)
    sources: dict[str, str | None] = {}
    for entry, there in zip(plan.entries, moved.entries, strict=True):
        path, colon, function = entry.method.rpartition(":")
        try:
            if colon:
                sources[there.method] = make_method(f"{base / path}:{function}").source_sha256
        except FevalError:  # it is among what is missing, and there is no source to pin
            sources[there.method] = None
    request = {"plan": moved.to_dict(), "sources": sources}
    return _receipt("compare", request, _compared(told), pins(dataset, llms, folder))


def grade_receipt(told: Grade, dataset: Dataset, llms: Sequence[LLM], folder: Path) -> dict[str, Any]:
    """The receipt of answers that were worked out elsewhere: they are kept in it, with what they were made of.

    Args:
        told: the answers, graded.
        dataset: from the `load` that they were graded with.
        llms: from the same `load`.
        folder: where the receipt will lie.
    """
    return _receipt("grade", told.request(), told.to_dict(), pins(dataset, llms, folder))


def _compared(told: Comparison) -> dict[str, Any]:
    """The numbers of a comparison; why a user's method is missing is left out, since it names files and time limits."""
    numbers = {name: value for name, value in told.to_dict().items() if name != "plan"}
    own = {label for entry in told.plan.entries if ":" in entry.method for label, _ in _labels(entry)}
    numbers["missing"] = [{"label": row["label"]} if row["label"] in own else row for row in numbers["missing"]]
    return numbers


def _labels(entry: Entry) -> Sequence[tuple[str, Any]]:
    return ((entry.label, None), *entry.points())


def _receipt(
    kind: str, request: Mapping[str, Any], numbers: Mapping[str, Any], pinned: Mapping[str, Any]
) -> dict[str, Any]:
    whole = {"feval_receipt": FORMAT, "kind": kind, **pinned, "request": dict(request), "numbers": dict(numbers)}
    parsed: dict[str, Any] = json.loads(json.dumps(whole, allow_nan=False))  # what a reader will see
    return parsed


# -- verifying --------------------------------------------------------------------------------------------------------


def is_receipt(path: Path) -> bool:
    """Whether a path is a file, as a receipt is; a recording is a folder."""
    return path.suffix == ".json" and path.name != "manifest.json" and not path.is_dir()


def local_receipt(place: Path) -> Path:
    """The file of a receipt wherever it lies; one on the Hub is fetched into the cache.

    Raises:
        HubError: it cannot be fetched.
    """
    if not is_address(place):
        return place

    return hub.fetch_file(place, most_bytes=_MOST_BYTES)


def verify_receipt(
    path: Path,
    recordings: Sequence[Path] | None = None,
    *,
    methods: Sequence[str] = (),
    prices: str | Path | None = None,
) -> ReceiptCheck:
    """Compute the numbers of a receipt again.

    Args:
        path: of the receipt.
        recordings: folders with what it was computed from; `None` looks where the receipt says: from its own folder, or, of one
            in the Hub's cache, in the repository at its commit.
        methods: users' methods that it may run, as FILE.py:FUNCTION; each must be the one the receipt pins.
        prices: a price list's id or file, where the receipt's own is not among the cards.

    Raises:
        UsageError: no receipt, one of a later format, or a user's method that was not given again.
        ConflictError: a recording, price list or method is not the one the receipt was made from.
        RecordingError: a recording cannot be read.
    """
    receipt = read_receipt(path)
    said = [found["path"] for found in receipt["recordings"]]
    given: list[str | Path] = [_said_place(path, place) for place in said] if not recordings else [*recordings]
    gone = next((place for place in given if not recordings and isinstance(place, Path) and not place.exists()), None)
    if gone is not None:
        raise RecordingError(
            f"The receipt was made from the recording in {gone}, which is no longer there. Give it with --recording, once for "
            "each that the receipt names."
        )
    opened = _opened(given, receipt)
    again = _Again(receipt["request"], opened, _prices(receipt["prices"], prices), _allowed(methods))
    version = semantics.version_of(receipt)
    changes, notes = semantics.changes_since(version), _remarks(receipt)
    try:
        numbers = json.loads(json.dumps(_RECOMPUTE[receipt["kind"]](again), allow_nan=False))
    except UnlabelledError as error:
        if not changes:
            raise
        return ReceiptCheck(receipt["kind"], 0, (), (*notes, str(error)), version, changes)
    differences: list[Difference] = []
    count = _compare("", receipt["numbers"], numbers, differences, older=bool(changes))
    _compare("counters", receipt.get("counters", {}), _counters(receipt, opened), differences)
    return ReceiptCheck(receipt["kind"], count, tuple(differences), notes, version, changes if differences else ())


def _counters(receipt: Mapping[str, Any], opened: Sequence[Recording]) -> dict[str, str | None]:
    """Who counted the tokens of each LLM for which the receipt says it; receipts of earlier versions do not."""
    dataset = receipt["request"].get("plan", receipt["request"])["dataset"]
    held = {
        llm: part["counter"] for own in opened for (where, llm), part in own.manifest.pairs.items() if where == dataset
    }
    return {llm: held.get(llm) for llm in receipt.get("counters", {})}


def _said_place(path: Path, place: str) -> str | Path:
    """Where a receipt says that a recording lies; one in the Hub's cache has it beside itself in the repository.

    Raises:
        UsageError: a receipt from the Hub names a folder of this machine, which it has no business with.
    """
    if is_address(place):
        return place
    base = cached_from(path.parent)
    if base is None:
        return path.parent / place
    repository, _, inside = base.partition("@")
    commit, _, folder = inside.partition("/")
    found = posixpath.normpath(posixpath.join("/", folder, place))
    climbs = posixpath.normpath(posixpath.join(folder, place)).startswith("..")
    if place.startswith("/") or climbs:
        raise UsageError(
            f"The receipt {path.name} of {base} says that its recording lay in {place!r:.120}, outside of the repository. Give "
            "the recording with --recording."
        )
    return f"{repository}@{commit}{found.rstrip('/')}"


def read_receipt(path: Path) -> dict[str, Any]:
    """Read a receipt and check its form; nothing that it names is opened.

    Raises:
        UsageError: no receipt, a damaged one, or one of a later format or of other draws.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is too large for a receipt.")
        read = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"The receipt {path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no receipt: it is not JSON ({error}).") from error
    if not isinstance(read, dict) or "feval_receipt" not in read:
        raise UsageError(
            f"{path} is no receipt. feval run, curve, compare, estimate and grade write receipt.json with --out."
        )
    if read["feval_receipt"] != FORMAT:
        raise UsageError(
            f"{path} is a receipt of format {read['feval_receipt']!r}; this feval reads format {FORMAT}. Use a later one."
        )
    shapes = {"kind": str, "recordings": list, "request": dict, "numbers": dict, "feval": str, "draws": str}
    wrong = [name for name, kind in shapes.items() if not isinstance(read.get(name), kind)]
    wrong += [] if isinstance(read.get("prices", 0), (dict, type(None))) else ["prices"]
    counters = read.get("counters", {})
    wrong += [] if isinstance(counters, dict) and _texts(counters, *counters) else ["counters"]
    wrong += [] if type(read.get("semantics", 0)) is int else ["semantics"]
    wrong += [] if "feval" in wrong or read["feval"].isprintable() else ["feval"]  # it is shown on a terminal
    wrong += (
        []
        if "recordings" in wrong or (read["recordings"] and all(_texts(e, "hash", "path") for e in read["recordings"]))
        else ["recordings"]
    )
    wrong += [] if "prices" in wrong or not read.get("prices") or _texts(read["prices"], "id", "digest") else ["prices"]
    if not wrong and read["kind"] not in _RECOMPUTE:
        raise UnknownNameError.of("kind of receipt", read["kind"], _RECOMPUTE)
    wrong = wrong or _wrong_request(read["kind"], read["request"])
    if wrong:
        raise UsageError(
            f"{path} is a damaged receipt: {', '.join(wrong)} is missing or malformed. Take an unchanged copy."
        )
    if semantics.version_of(read) > semantics.VERSION:
        raise UsageError(
            f"The numbers of {path} have version {read['semantics']} of their meaning; this feval {__version__} knows version "
            f"{semantics.VERSION}. Use a later one."
        )
    if read["draws"] != SCHEME:
        raise UsageError(
            f"{path} was made with the draws {read['draws']!r}; this feval {__version__} draws by {SCHEME!r}."
        )
    return read


def _path_from(folder: Path, recording: Path) -> str:
    """A recording's address where it lies in the Hub's cache, which is nobody else's; its path from a folder otherwise."""
    return cached_from(recording) or path_from(folder, recording)


def _texts(value: Any, *keys: str) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in keys)


_MOST_RESAMPLES = 1_000_000

_REQUEST: Mapping[str, Callable[[Any], bool]] = {
    "method": lambda value: isinstance(value, str),
    "dataset": lambda value: isinstance(value, str),
    "llms": lambda value: isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value),
    "settings": lambda value: isinstance(value, dict),
    "seed": lambda value: type(value) is int,
    "billing": lambda value: isinstance(value, str),
    "order": lambda value: isinstance(value, str),
    "replicates": lambda value: type(value) is int,
    "confidence": lambda value: value is None or (_number(value) and math.isfinite(value)),
}
_CHOICES: Mapping[str, Callable[[Any], bool]] = {
    name: lambda value: isinstance(value, str) for name in ("unlabelled", "short_pools")
}
_SPLIT: Mapping[str, Callable[[Any], bool]] = {
    "train_fraction": lambda value: value is None or _number(value),
    "split_seed": lambda value: type(value) is int,
}
_COMPARED: Mapping[str, Callable[[Any], bool]] = {
    "plan": lambda value: isinstance(value, dict),
    "sources": lambda value: (
        isinstance(value, dict) and all(pinned is None or isinstance(pinned, str) for pinned in value.values())
    ),
}
_ESTIMATED: Mapping[str, Callable[[Any], bool]] = {
    **{name: _REQUEST[name] for name in ("dataset", "llms", "seed", "billing", "confidence")},
    **{name: lambda value: type(value) is int for name in ("g", "replicate")},
    **{name: lambda value: type(value) is int and value <= _MOST_RESAMPLES for name in ("resamples", "simulations")},
    "m": lambda value: isinstance(value, list) and all(type(votes) is int for votes in value),
    "methods": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
}
_SWEEP: Mapping[str, Callable[[Any], bool]] = {
    "field": lambda value: value is None or isinstance(value, str),
    "values": lambda value: isinstance(value, list) and all(map(_number, value)),
}


_GRADED: Mapping[str, Callable[[Any], bool]] = {
    "run": lambda value: isinstance(value, str),
    **{name: _REQUEST[name] for name in ("dataset", "llms", "seed", "billing", "confidence")},
    "replicate": lambda value: value is None or (type(value) is int and 0 <= value <= _MOST_RESAMPLES),
    "consumed": lambda value: isinstance(value, list) and all(map(_is_consumed, value)),
    "answers": lambda value: (
        isinstance(value, dict) and all(answer is None or isinstance(answer, str) for answer in value.values())
    ),
}


def _is_consumed(entry: Any) -> bool:
    samples = entry.get("samples") if _texts(entry, "llm", "question") else None
    return isinstance(samples, list) and all(type(value) is int for value in (*samples, entry.get("requests")))


def _wrong_request(kind: str, request: Mapping[str, Any]) -> list[str]:
    """What of a request is not of the type that feval writes: a receipt is read from anywhere."""
    own = {"compare": _COMPARED, "estimate": _ESTIMATED, "grade": _GRADED}
    checks = own.get(kind) or {
        **_REQUEST,
        **(_SPLIT if kind == "run" or "train_fraction" in request else {}),
        **(_SWEEP if kind == "curve" else {}),
    }
    checks = {**checks, **{name: fits for name, fits in _CHOICES.items() if name in request}}
    return [f"request.{name}" for name, fits in checks.items() if name not in request or not fits(request[name])]


def _opened(given: Sequence[str | Path], receipt: Mapping[str, Any]) -> list[Recording]:

    opened = [open_place(place) for place in given]
    wanted = {entry["hash"]: entry["path"] for entry in receipt["recordings"]}
    found = {recording.hash: recording for recording in opened}
    for own, where in wanted.items():
        if own not in found:
            held = ", ".join(f"{r.path} has {r.hash[:16]}" for r in opened) or "none was given"
            raise ConflictError(
                f"The receipt was made from a recording with hash {own[:16]} (it lay in {where}); {held}. "
                "Give the right one with --recording."
            )
    return [found[own] for own in wanted]


def _prices(pinned: Mapping[str, Any] | None, given: str | Path | None) -> PriceList | str:
    if pinned is None:
        return "none"

    if given is None and pinned["id"] not in price_ids():  # it may be a path, and a receipt opens no file of its choice
        raise UsageError(
            f"The receipt was made with a price list {pinned['id']!r}, which is not among the cards. Give it with --prices."
        )
    listed = price_list(given if given is not None else pinned["id"])
    if listed.digest != pinned["digest"]:
        raise ConflictError(
            f"The receipt was made with a price list {pinned['id']!r} of digest {pinned['digest'][:16]}; the one at hand has "
            f"{listed.digest[:16]}. Give the right one with --prices."
        )
    return listed


def _allowed(methods: Sequence[str]) -> dict[str, Any]:
    """Users' methods by the hash of their source, which are the only ones that may run."""
    made = [make_method(name) for name in methods]
    return {f"{m.source_sha256}:{m.function}": m for m in made if isinstance(m, MethodFile)}


@dataclass(frozen=True)
class _Again:
    request: Mapping[str, Any]
    recordings: Sequence[Recording]
    prices: PriceList | str
    methods: Mapping[str, Any]

    def load(self) -> tuple[Dataset, list[LLM]]:

        asked = self.request
        return load(
            asked["dataset"],
            asked["llms"],
            list(self.recordings),
            seed=asked["seed"],
            prices=self.prices,
            billing=asked["billing"],
        )

    def choices(self) -> dict[str, Any]:
        """What was done about questions without golds and short pools; receipts of earlier versions do not say."""
        return {name: self.request[name] for name in _CHOICES if name in self.request}

    def method(self) -> Any:

        pinned = self.request.get("source_sha256")
        if pinned is None and ":" in self.request["method"]:
            raise UsageError(
                f"The receipt names {self.request['method']!r}, a user's method, without the hash of its source; it is not run."
            )
        if pinned is None:
            return make_method(self.request["method"], self.request["settings"])
        return self.users_method(self.request["method"], pinned)

    def users_method(self, function: str, pinned: str) -> Any:
        """The user's method with the source that the receipt pins, if it was given again."""
        key = f"{pinned}:{function}"
        if key not in self.methods:
            given = ", ".join(f"{m.path}:{m.function} has {m.source_sha256[:16]}" for m in self.methods.values())
            raise MethodError(
                f"The receipt is of a user's method, {function} in a file with sha256 {pinned[:16]}, which is run only when it "
                f"is given: --method FILE.py:{function}. {given or 'None was given'}."
            )
        return self.methods[key]


def _run_again(again: _Again) -> dict[str, Any]:

    asked = again.request
    dataset, llms = again.load()
    names = ("order", "replicates", "train_fraction", "split_seed", "confidence")
    given = {name: asked[name] for name in names}
    return evaluate(again.method(), dataset, llms, **given, **again.choices()).to_dict()


def _curve_again(again: _Again) -> dict[str, Any]:

    asked = again.request
    dataset, llms = again.load()
    given = {name: asked[name] for name in ("order", "replicates", "confidence")} | again.choices()
    if asked["field"] is None:
        return self_consistency_curve(dataset, llms[0], asked["values"], **given).to_dict()
    named = asked["method"], asked["field"], asked["values"]
    given |= {name: asked[name] for name in ("train_fraction", "split_seed") if name in asked}
    return method_curve(dataset, llms, *named, settings=asked["settings"], **given).to_dict()


def _estimate_again(again: _Again) -> dict[str, Any]:

    asked = again.request
    dataset, llms = again.load()
    names = ("g", "m", "methods", "replicate", "confidence", "resamples", "simulations")
    return estimate(dataset, llms[0], **{name: asked[name] for name in names}, **again.choices()).to_dict()


def _compare_again(again: _Again) -> dict[str, Any]:

    plan, sources = Plan.from_dict(again.request["plan"]), again.request["sources"]
    for entry in plan.entries:
        if ":" in entry.method and entry.method not in sources:
            raise UsageError(
                f"The receipt names {entry.method!r}, a user's method, without the hash of its source; it is not run. Take an "
                "unchanged copy."
            )
    methods = {
        name: MethodError(f"There was no {name!r} to be read.")
        if pinned is None
        else again.users_method(name.rpartition(":")[2], pinned)
        for name, pinned in sources.items()
    }
    # The plan's own list may be a path, and a receipt opens no file of its choice.
    listed = None if isinstance(again.prices, str) else again.prices
    plan = replace(plan, prices="none" if listed is None else None)
    return _compared(compare(plan, recordings=again.recordings, prices=listed, methods=methods))


def _grade_again(again: _Again) -> dict[str, Any]:

    asked = again.request
    dataset, llms = again.load()
    consumed = [Consumed(e["llm"], e["question"], e["requests"], tuple(e["samples"])) for e in asked["consumed"]]
    given = {name: asked[name] for name in ("run", "replicate", "confidence")}
    return grade_answers(dataset, llms, consumed, asked["answers"], **given).to_dict()


_RECOMPUTE: dict[str, Callable[[_Again], dict[str, Any]]] = {
    "run": _run_again,
    "curve": _curve_again,
    "compare": _compare_again,
    "estimate": _estimate_again,
    "grade": _grade_again,
}


def _remarks(receipt: Mapping[str, Any]) -> tuple[str, ...]:

    if receipt["feval"] == __version__:
        return ()
    return (f"The receipt was written by feval {receipt['feval']}; this is {__version__}.",)


def _compare(where: str, receipt: Any, now: Any, differences: list[Difference], *, older: bool = False) -> int:
    """Compare two JSON values; gives how many plain values were looked at.

    Args:
        where: their place.
        receipt: what the receipt says.
        now: what came out.
        differences: is extended.
        older: whether the receipt has an older version of what numbers mean, in which some were not there.
    """
    if _is_wording(where) or (older and _unsaid(where, receipt, now)):
        return 0
    if isinstance(receipt, dict) and isinstance(now, dict):
        keys = receipt if older else dict.fromkeys([*receipt, *now])
        inner = f"{where}." if where else ""
        return sum(_compare(f"{inner}{key}", receipt.get(key), now.get(key), differences, older=older) for key in keys)
    if isinstance(receipt, list) and isinstance(now, list) and len(receipt) == len(now):
        pairs = enumerate(zip(receipt, now, strict=True))
        return sum(_compare(f"{where}[{i}]", *pair, differences, older=older) for i, pair in pairs)
    if isinstance(receipt, list) and isinstance(now, list):
        differences.append(Difference(f"number of {where}", len(receipt), len(now)))
    elif not _same(receipt, now):
        differences.append(Difference(where, receipt, now))
    return 1


def _is_wording(where: str) -> bool:
    """Whether these are sentences, which may be worded better."""
    return where.rpartition(".")[2] in ("errors_unknown", "warnings")


def _unsaid(where: str, receipt: Any, now: Any) -> bool:
    """Whether it is how errors came about, in a receipt without it: exact numbers had no split, or one with gaps."""
    parent, _, place = where.rpartition(".")
    if place == "errors_estimate" or parent.rpartition(".")[2] == "errors":
        return receipt is None and now is not None
    return place == "errors" and isinstance(receipt, dict) and all(share is None for share in receipt.values())


def _same(receipt: Any, now: Any) -> bool:
    if isinstance(receipt, float) and isinstance(now, float):
        return math.isclose(receipt, now, rel_tol=TOLERANCE, abs_tol=_ROUNDING)
    return type(receipt) is type(now) and bool(receipt == now)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
