"""The form of a receipt: JSON that pins what numbers were computed from, the request, and the
numbers.

Everything in a receipt is data from anywhere: it is checked here, and nothing that it names is
opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from feval import __version__, hub
from feval.cards import PriceList
from feval.cards.reading import parse_json, read_regular
from feval.comparison.comparison import Comparison, load_compared
from feval.comparison.plan import ComparisonRequest, path_from
from feval.errors import FevalError, UsageError, require_known
from feval.evaluation import MethodFile, make_method
from feval.evaluation.fitting import Fit
from feval.evaluation.requests import (
    MOST_NAMES,
    CurveRequest,
    EstimateRequest,
    GradeRequest,
    Request,
    RunRequest,
    SurfaceRequest,
)
from feval.hub import is_address
from feval.recording.layout.format import Record, cached_from, is_safe_path
from feval.replay import LLM, Dataset
from feval.replay.draws import SCHEME as DRAWS

SCHEME = 9
"""The scheme of receipts, raised when numbers come, go or mean something else: receipts of another
one are computed again.
"""
_MOST_BYTES = 64 << 20

REQUESTS: Mapping[str, type[Request]] = {
    "run": RunRequest,
    "curve": CurveRequest,
    "surface": SurfaceRequest,
    "compare": ComparisonRequest,
    "estimate": EstimateRequest,
    "grade": GradeRequest,
}
"""Kind of receipt -> what its request must be."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it cannot be shown on a terminal")
    return text


def _beside(name: str) -> str:
    if not is_safe_path(name) or "/" in name:
        raise ValueError("it is not the name of a file beside the receipt")
    return _printable(name)


class PinnedRecording(Request):
    """A recording by its hash, and where it was, as a path from the receipt's folder or an
    address.
    """

    hash: str
    path: str


class PinnedPrices(Request):
    """A price list by its id and digest; one that is no card of feval's own with all that it
    says.
    """

    id: str
    digest: str
    date: str | None = None
    source: str | None = None
    prices: Record | None = None

    def held(self) -> PriceList | None:
        """The list that the receipt holds; `None` where it names a card."""
        own = self.model_dump(exclude={"digest"})
        return None if self.prices is None else PriceList(**own)


class Receipt(Request):
    """A receipt.

    Attributes:
        feval_receipt: its `SCHEME`.
        feval: version of feval that wrote it.
        draws: scheme of the draws.
        prices: the price list; `None` where dollars were switched off.
        counters: who counted the tokens of each LLM.
        served: of each LLM, the CoTs by the model that answered, where replies say it.
        learnt: of methods that say something of each question beforehand, what they say and the
            fields that they learnt, by `feval.evaluation.fitting.Fit.key`.
        files: name -> sha256 of the files of the same result, which lie beside the receipt.
        request: what was asked for, as `REQUESTS[kind]` holds it.
    """

    noun = "It"

    feval_receipt: int
    kind: str
    feval: Annotated[str, AfterValidator(_printable)]
    draws: str
    recordings: Annotated[
        tuple[PinnedRecording, ...], Field(strict=False, min_length=1, max_length=MOST_NAMES)
    ]
    prices: PinnedPrices | None
    counters: dict[str, str]
    served: dict[str, dict[str, int]] = {}  # noqa: RUF012  pydantic copies it
    learnt: dict[str, Record] = {}  # noqa: RUF012  pydantic copies it
    files: Annotated[
        dict[Annotated[str, AfterValidator(_beside)], str], Field(max_length=MOST_NAMES)
    ] = {}  # noqa: RUF012  pydantic copies it
    request: Record
    numbers: Record

    def parsed_request(self) -> Request:
        """The request, checked: a kind that nobody knows is an `UnknownNameError`, a malformed
        field a `UsageError`.
        """
        require_known("kind of receipt", self.kind, REQUESTS)
        model = REQUESTS[self.kind]
        return model.parse(model.noun, self.request)


def is_receipt(path: Path) -> bool:
    """Whether a path is a file, as a receipt is; a recording is a folder."""
    return path.suffix == ".json" and path.name != "manifest.json" and not path.is_dir()


def local_receipt(place: Path) -> Path:
    """The file of a receipt; one on the Hub is fetched into the cache."""
    return hub.fetch_file(place, most_bytes=_MOST_BYTES) if is_address(place) else place


def read_receipt(path: Path) -> Receipt:
    """Read a receipt and check its form.

    Raises:
        UsageError: the file is not a receipt, is damaged, or is of another scheme or of other
            draws.
    """
    try:
        content = parse_json(read_regular(path, _MOST_BYTES))
    except OSError as error:
        raise UsageError(
            f"The receipt {path} cannot be read: {error.strerror or error}."
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not a receipt: it is not valid JSON ({error}).") from error
    if not isinstance(content, dict) or "feval_receipt" not in content:
        raise UsageError(
            f"{path} is not a receipt. feval run, curve, surface, compare, estimate and grade write"
            " receipt.json beside their numbers."
        )
    if (content["feval_receipt"], content.get("draws", DRAWS)) != (SCHEME, DRAWS):
        raise UsageError(
            f"{path} is a receipt of scheme {content['feval_receipt']!r:.40} with"
            f" {content.get('draws')!r:.40}, and feval {__version__} verifies scheme {SCHEME} with"
            f" {DRAWS!r}: compute its numbers again."
        )
    try:
        receipt = Receipt(**content)
        if receipt.kind in REQUESTS:
            receipt.parsed_request()
    except UsageError as error:
        raise UsageError(f"{path} is a damaged receipt. {error} Take an unchanged copy.") from error
    require_known("kind of receipt", receipt.kind, REQUESTS)
    return receipt


def comparison_receipt(comparison: Comparison, base: Path, folder: Path) -> Record:
    """The receipt of a comparison whose paths start from `base`, to lie in `folder`."""
    dataset, llms = load_compared(comparison, base)
    moved = comparison.plan.moved(base, folder)
    sources = {
        there.method: _source(entry.method, comparison.methods.get(entry.method))
        for entry, there in zip(comparison.plan.entries, moved.entries, strict=True)
        if ":" in entry.method
    }
    request = ComparisonRequest(plan=moved, sources=sources)
    learnt = [each for curve in comparison.curves for one in curve.points for each in one.learnt]
    return receipt(request, comparison_numbers(comparison), dataset, llms, folder, learnt)


def _source(name: str, method: Any) -> str | None:
    """The hash of the file that was run; `None` where there is none, and the method is missing from
    the comparison.
    """
    try:
        if callable(method) and not isinstance(method, MethodFile):  # a function of the caller's
            method = make_method(name)
        source: str | None = getattr(method, "source_sha256", None)
    except FevalError:
        return None
    return source


def comparison_numbers(comparison: Comparison) -> Record:
    """The numbers of a comparison; why a user's method is missing is left out, since that names
    files and time limits.
    """
    numbers = {name: value for name, value in comparison.to_dict().items() if name != "plan"}
    users = [entry for entry in comparison.plan.entries if ":" in entry.method]
    labels = {
        label for entry in users for label in (entry.label, *(label for label, _ in entry.points()))
    }
    numbers["missing"] = [
        {"label": row["label"]} if row["label"] in labels else row for row in numbers["missing"]
    ]
    return numbers


def receipt(
    request: Request,
    numbers: Record,
    dataset: Dataset,
    llms: Sequence[LLM],
    folder: Path,
    learnt: Sequence[Fit] = (),
) -> Record:
    """The receipt of the numbers of an evaluation, curve, surface, forecast or grading, with the
    `load` that they were computed from.

    Recordings are named by their path from `folder`, where the receipt will lie, so that both can
    be moved together.
    """
    prices = llms[0].prices
    served = {llm.name: dict(llm.served.names) for llm in llms if llm.served is not None}
    said = {each.key: each.data for each in learnt if each.data}
    recordings = zip(dataset.recording_hashes, dataset.recording_paths, strict=True)
    content = {
        "feval_receipt": SCHEME,
        "kind": next(kind for kind, model in REQUESTS.items() if type(request) is model),
        "feval": __version__,
        "draws": DRAWS,
        "recordings": [
            {"hash": name, "path": cached_from(path) or path_from(folder, path)}
            for name, path in recordings
        ],
        "prices": prices
        and (
            {"id": prices.id, "digest": prices.digest}
            | ({} if prices.is_shipped else prices.to_json())
        ),
        "counters": {llm.name: llm.counter for llm in llms},
        **({"served": served} if served else {}),
        **({"learnt": said} if said else {}),
        "request": request.pinned(),
        "numbers": numbers,
    }
    # what a reader will see
    parsed: Record = json.loads(json.dumps(content, allow_nan=False))
    return parsed
