"""Verify receipts: compute what was asked for again, and compare.

Words and integers must be the same, other numbers equal to 1e-12. A receipt is data: it never makes
feval run code that it names, nor open a file of its choice; a user's method and a price list of the
user's own must be given again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import posixpath
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from feval import __version__
from feval.arguments import checked
from feval.cards import PriceList, price_ids, price_list
from feval.cards.prices import GENAI
from feval.cards.reading import open_regular
from feval.comparison import compare
from feval.comparison.plan import ComparisonRequest
from feval.errors import ConflictError, FevalError, MethodError, RecordingError, UsageError
from feval.evaluation import MethodFile, evaluate, make_method, surface
from feval.evaluation.fitting import given_fits
from feval.evaluation.requests import (
    CurveRequest,
    EstimateRequest,
    Request,
    RunRequest,
    SurfaceRequest,
)
from feval.executors import UncountedProgress, reports, silent
from feval.forecast import estimate
from feval.hub import is_address, open_place
from feval.methods.learners import only_named
from feval.receipts.document import Receipt, comparison_numbers, read_receipt
from feval.receipts.grading import grade_answers
from feval.recording import Recording
from feval.recording.layout.format import Record, cached_from
from feval.replay import load
from feval.values import frozen

TOLERANCE = 1e-12
_ROUNDING = 1e-15  # of shares that should be nothing


@frozen
class ChangedValue:
    """A value that came out otherwise; `where` is its place, such as "accuracy" or
    "points[3].usd_per_question".
    """

    where: str
    receipt: Any
    now: Any

    def __str__(self) -> str:
        if _is_number(self.receipt) and _is_number(self.now):
            return (
                f"{self.where}: the receipt says {self.receipt!r}, now {self.now!r},"
                f" {self.now - self.receipt:+.3g}"
            )
        return f"{self.where}: the receipt says {self.receipt!r:.80}, now {self.now!r:.80}"


@frozen
class ReceiptCheck:
    """The outcome of verifying a receipt.

    Attributes:
        kind: "run", "curve", "surface", "compare", "estimate" or "grade".
        numbers: how many values were compared.
        notes: sentences on what differs without being a number: the version of feval, and files
            that lie elsewhere.
        files: sentences on files beside the receipt that are not those of its result.
    """

    kind: str
    numbers: int
    differences: tuple[ChangedValue, ...]
    notes: tuple[str, ...]
    files: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether everything came out as the receipt says."""
        return not (self.differences or self.files)


@checked
@reports("verifying")
def verify_receipt(
    path: Path,
    recordings: Sequence[Path] | None = None,
    *,
    methods: Sequence[str | MethodFile] = (),
    prices: str | Path | None = None,
    refit: bool = False,
    executor: Executor | None = None,
    progress: UncountedProgress = silent,
) -> ReceiptCheck:
    """Compute the numbers of a receipt again.

    Args:
        path: the receipt.
        recordings: folders with what it was computed from; `None` looks where the receipt says:
            from its own folder, or, for one in the Hub's cache, in the repository at its commit.
        methods: users' methods that it may run, as FILE.py:FUNCTION; each must be the one the
            receipt pins.
        prices: a price list's id or file, where the receipt's own is a card that is not there; to
            be compared with prices that the receipt holds.
        refit: whether methods whose receipt holds what they say of each question learn it again.
        executor: of processes or a cluster, see `feval.evaluate`; `None` for this process.
        progress: called with (parts done, parts in all) of what is computed.

    Raises:
        UsageError: the file is not a receipt or of another scheme, or a user's method was not given
            again.
        ConflictError: a recording, price list or method is not the one the receipt was made from.
        RecordingError: a recording cannot be read.
    """
    receipt = read_receipt(path)
    places = (
        [*recordings]
        if recordings
        else [_place(path, pinned.path) for pinned in receipt.recordings]
    )
    # Unlike Path.exists, os.path.exists does not raise where a stranger's receipt names what cannot
    # be a path.
    named = () if recordings else places
    gone = [each for each in named if isinstance(each, Path) and not os.path.exists(each)]  # noqa: PTH110  as above
    if gone:
        raise RecordingError(
            f"The receipt was made from the recording in {gone[0]}, which is no longer there. Give"
            " it with --recording DIR (in Python: recordings=[...]), once for each that the receipt"
            " names."
        )
    opened = _open(places, receipt)
    request = receipt.parsed_request()
    made = [make_method(name) for name in methods]
    users = {f"{m.source_sha256}:{m.function}": m for m in made if isinstance(m, MethodFile)}
    running = {"executor": executor, "progress": progress}
    notes = (
        []
        if receipt.feval == __version__
        else [f"The receipt was written by feval {receipt.feval}; this is {__version__}."]
    )
    inputs = _Inputs(opened, _pinned_prices(receipt, prices, notes), users, running)
    files = _changed_files(path, receipt.files, notes)
    try:
        with given_fits(None if refit else receipt.learnt), only_named([*map(str, made)]):
            computed = _computed(request, inputs)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if refit or not receipt.learnt:
            raise
        raise UsageError(
            f"What the receipt holds of a fitted method is damaged ({error!s:.80}). Take an"
            " unchanged copy, or let it learn again: --refit (in Python: refit=True)."
        ) from error
    numbers = json.loads(json.dumps(computed, allow_nan=False))
    differences: list[ChangedValue] = []
    count = _compare("", receipt.numbers, numbers, differences)
    _compare("counters", receipt.counters, _counters(receipt, request, opened), differences)
    return ReceiptCheck(receipt.kind, count, tuple(differences), tuple(notes), files)


def _changed_files(path: Path, files: Mapping[str, str], notes: list[str]) -> tuple[str, ...]:
    """Say which files beside a receipt are not those of its result; for a receipt that lies alone,
    extend the notes.
    """
    if cached_from(path.parent) is not None or not any(
        os.path.exists(path.parent / name)  # noqa: PTH110  never raises
        for name in files
    ):
        if files:
            names = ", ".join(files)
            notes.append(f"Files of this result that do not lie beside the receipt: {names}.")
        return ()
    states = {name: _state(path.parent / name, sha256) for name, sha256 in files.items()}
    return tuple(
        f"{name}, a file of this result, {state}." for name, state in states.items() if state
    )


def _state(path: Path, sha256: str) -> str:
    """What is wrong with a file, as a predicate; empty for a file with the hash."""
    try:
        with open_regular(path) as file:
            now = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return (
        "" if now == sha256 else f"differs: the receipt says SHA-256 {sha256[:16]}, now {now[:16]}"
    )


def _place(path: Path, place: str) -> str | Path:
    """Where a receipt says that a recording is; for a receipt in the Hub's cache, inside the
    repository that it is from.
    """
    if is_address(place):
        return place
    base = cached_from(path.parent)
    if base is None:
        return path.parent / place
    repository, _, inside = base.partition("@")
    commit, _, folder = inside.partition("/")
    if place.startswith("/") or posixpath.normpath(posixpath.join(folder, place)).startswith(".."):
        raise UsageError(
            f"The receipt {path.name} of {base} says that its recording was in {place!r:.120},"
            " outside of the repository. Give the recording:"
            " --recording DIR (in Python: recordings=[...])."
        )
    return (
        f"{repository}@{commit}{posixpath.normpath(posixpath.join('/', folder, place)).rstrip('/')}"
    )


def _open(places: Sequence[str | Path], receipt: Receipt) -> list[Recording]:
    opened = [open_place(place) for place in places]
    by_hash = {recording.hash: recording for recording in opened}
    for pinned in receipt.recordings:
        if pinned.hash not in by_hash:
            hashes = ", ".join(f"{r.path} has {r.hash[:16]}" for r in opened) or "none was given"
            raise ConflictError(
                f"The receipt was made from a recording with hash {pinned.hash[:16]} (it was in"
                f" {pinned.path}); {hashes}. Give the right one:"
                " --recording DIR (in Python: recordings=[...])."
            )
    return [by_hash[name] for name in dict.fromkeys(pinned.hash for pinned in receipt.recordings)]


def _pinned_prices(
    receipt: Receipt, option: str | Path | None, notes: list[str]
) -> PriceList | str:
    """Return the price list of a receipt; where it has the numbers, say what they are now."""
    pinned = receipt.prices
    if pinned is None:
        return "none"
    held = pinned.held()
    if held is None:
        # the id may be a path, and a receipt opens no file of its choice
        if option is None and pinned.id not in price_ids():
            raise UsageError(
                f"The receipt was made with a price list {pinned.id!r}, which is not among the"
                " cards. Give it: --prices FILE (in Python: prices=FILE)."
            )
        prices = price_list(pinned.id if option is None else option)
        if prices.digest != pinned.digest:
            raise ConflictError(
                f"The receipt was made with a price list {pinned.id!r} of digest"
                f" {pinned.digest[:16]}; the one here has {prices.digest[:16]}. Give the right one:"
                " --prices FILE (in Python: prices=FILE)."
            )
        return prices
    if option is None and not pinned.id.startswith(GENAI):
        return held
    try:
        now = price_list(pinned.id if option is None else option, held.prices)
    except FevalError as error:
        notes.append(f"The prices of {held.id} are those in the receipt. {error}")
        return held
    for llm, price in held.prices.items():
        other = now.find(llm)
        if other != price:
            notes.append(
                f"The receipt's price of {llm} in {held.id} is {price.words()}, and holds; now it"
                f" is {other.words() if other else 'not there'}."
            )
    return held


def _counters(
    receipt: Receipt, request: Request, opened: Sequence[Recording]
) -> dict[str, str | None]:
    """Who counted the tokens of each LLM that the receipt names."""
    dataset = (
        request.plan.dataset
        if isinstance(request, ComparisonRequest)
        else receipt.request["dataset"]
    )
    pairs = {pair: own for each in opened for pair, own in each.manifest.pairs.items()}
    return {llm: pairs.get((dataset, llm), {}).get("counter") for llm in receipt.counters}


@frozen
class _Inputs:
    """What a receipt pins, at hand again: recordings, the price list, and users' methods by the
    hash of their source; `running` has the arguments that say where numbers are computed.
    """

    recordings: Sequence[Recording]
    prices: PriceList | str
    methods: Mapping[str, MethodFile]
    running: Record

    def users_method(self, function: str, sha256: str | None) -> MethodFile:
        """The user's method with the source that the receipt pins, if it was given again."""
        if sha256 is None:
            raise UsageError(
                f"The receipt names {function!r}, a user's method, without the hash of its source;"
                " it is not run. Take an unchanged copy."
            )
        key = f"{sha256}:{function}"
        if key not in self.methods:
            hashes = ", ".join(
                f"{m.path}:{m.function} has {m.source_sha256[:16]}" for m in self.methods.values()
            )
            raise MethodError(
                f"This receipt is of a method from a file, {function} (SHA-256 of the file:"
                f" {sha256[:16]}...). A receipt never runs code by itself: pass --method"
                f" FILE.py:{function} (in Python: methods=['FILE.py:{function}'])."
                + (f" {hashes}." if hashes else "")
            )
        return self.methods[key]


def _computed(request: Request, inputs: _Inputs) -> Record:
    """The numbers of a request, computed again."""
    if isinstance(request, ComparisonRequest):
        return _compared(request, inputs)
    own: Any = request
    dataset, llms = load(
        own.dataset,
        own.llms,
        list(inputs.recordings),
        seed=own.seed,
        billing=own.billing,
        right=own.right,
        prices=inputs.prices,
    )
    result: Any
    if isinstance(request, CurveRequest):
        result = request.compute(dataset, llms, **inputs.running)
    elif isinstance(request, RunRequest):
        method: Any = (
            make_method(
                inputs.users_method(request.method, request.source_sha256), request.settings
            )
            if ":" in request.method or request.source_sha256 is not None
            else make_method(request.method, request.settings)
        )
        result = evaluate(method, dataset, llms, **request.arguments(), **inputs.running)
    elif isinstance(request, SurfaceRequest):
        result = surface(dataset, *llms, **request.arguments(), progress=inputs.running["progress"])
    elif isinstance(request, EstimateRequest):
        result = estimate(dataset, llms[0], **request.arguments(), **inputs.running)
    else:
        options = {name: getattr(own, name) for name in ("run", "replicate", "confidence")}
        result = grade_answers(dataset, llms, own.consumed, own.answers, **options)
    numbers: Record = result.to_dict()
    return numbers


def _compared(request: ComparisonRequest, inputs: _Inputs) -> Record:
    plan, sources = request.plan, request.sources
    for entry in plan.entries:
        if ":" in entry.method and entry.method not in sources:
            inputs.users_method(entry.method, None)
    methods = {
        name: (
            MethodError(f"There was no {name!r} to be read.")
            if sha256 is None
            else inputs.users_method(name.rpartition(":")[2], sha256)
        )
        for name, sha256 in sources.items()
    }
    # The plan's own price list may be a path, and a receipt opens no file of its choice.
    prices = None if isinstance(inputs.prices, str) else inputs.prices
    plan = plan.changed(prices="none" if prices is None else None)
    return comparison_numbers(
        compare(
            plan, recordings=inputs.recordings, prices=prices, methods=methods, **inputs.running
        )
    )


def _compare(where: str, receipt: Any, now: Any, differences: list[ChangedValue]) -> int:
    """Compare two JSON values, extend `differences`, and count the plain values."""
    if _is_wording(where, receipt, now):
        return 0
    if isinstance(receipt, dict) and isinstance(now, dict):
        inner = f"{where}." if where else ""
        keys = dict.fromkeys([*receipt, *now])
        return sum(
            _compare(f"{inner}{key}", receipt.get(key), now.get(key), differences) for key in keys
        )
    if isinstance(receipt, list) and isinstance(now, list) and len(receipt) == len(now):
        pairs = enumerate(zip(receipt, now, strict=True))
        return sum(_compare(f"{where}[{i}]", *pair, differences) for i, pair in pairs)
    if isinstance(receipt, list) and isinstance(now, list):
        differences.append(ChangedValue(f"number of {where}", len(receipt), len(now)))
    elif not _same(receipt, now):
        differences.append(ChangedValue(where, receipt, now))
    return 1


def _is_wording(where: str, receipt: Any, now: Any) -> bool:
    """Whether the values are sentences, which may be worded better; that one is there at all can be
    a result of its own.
    """
    name = where.rpartition(".")[2]
    if name in ("reason", "untested"):
        return isinstance(receipt, str) and isinstance(now, str)
    return name in ("errors_unknown", "warnings")


def _same(receipt: Any, now: Any) -> bool:
    if isinstance(receipt, float) and isinstance(now, float):
        return math.isclose(receipt, now, rel_tol=TOLERANCE, abs_tol=_ROUNDING)
    if _is_number(receipt) and _is_number(now):
        return bool(receipt == now)  # 1 and 1.0 are the same number
    return type(receipt) is type(now) and bool(receipt == now)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
