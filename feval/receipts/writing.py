"""Write receipts: what numbers were computed from, what was asked for, and the numbers, as JSON
values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feval import __version__
from feval.comparison.plan import ComparisonRequest, path_from
from feval.comparison.traces import load_compared
from feval.errors import FevalError
from feval.evaluation.method_names import make_method
from feval.evaluation.user_methods import MethodFile
from feval.receipts.format import REQUESTS, SCHEME
from feval.recording.layout.origin import cached_from
from feval.replay.draws import SCHEME as DRAWS

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison
    from feval.evaluation.curves import Curve
    from feval.evaluation.evaluation import Evaluation
    from feval.evaluation.requests import (
        CurveRequest,
        EstimateRequest,
        GradeRequest,
        Request,
        RunRequest,
        SurfaceRequest,
    )
    from feval.evaluation.surface import Surface
    from feval.forecast import Forecast
    from feval.receipts.grading import Grade
    from feval.replay import LLM, Dataset


def receipt(
    request: RunRequest | CurveRequest | SurfaceRequest | EstimateRequest | GradeRequest,
    result: Evaluation | Curve | Surface | Forecast | Grade,
    dataset: Dataset,
    llms: Sequence[LLM],
    folder: Path,
) -> dict[str, Any]:
    """The receipt of one evaluation, curve, surface, forecast or grading, with the `load` that it
    was computed from.

    Recordings are named by their path from `folder`, where the receipt will lie, so that both can
    be moved together.
    """
    return _receipt(request, result.to_dict(), dataset, llms, folder)


def comparison_receipt(comparison: Comparison, base: Path, folder: Path) -> dict[str, Any]:
    """The receipt of a comparison whose paths start from `base`, to lie in `folder`."""
    dataset, llms = load_compared(comparison, base)
    moved = comparison.plan.moved(base, folder)
    users = [
        (entry, there)
        for entry, there in zip(comparison.plan.entries, moved.entries, strict=True)
        if ":" in entry.method
    ]
    sources = {
        there.method: _source(entry.method, comparison.methods.get(entry.method))
        for entry, there in users
    }
    request = ComparisonRequest(plan=moved, sources=sources)
    return _receipt(request, comparison_numbers(comparison), dataset, llms, folder)


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


def comparison_numbers(comparison: Comparison) -> dict[str, Any]:
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


def _receipt(
    request: Request, numbers: dict[str, Any], dataset: Dataset, llms: Sequence[LLM], folder: Path
) -> dict[str, Any]:
    prices = llms[0].prices
    served = {llm.name: dict(llm.served.names) for llm in llms if llm.served is not None}
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
        "prices": None if prices is None else {"id": prices.id, "digest": prices.digest},
        "counters": {llm.name: llm.counter for llm in llms},
        **({"served": served} if served else {}),
        "request": request.pinned(),
        "numbers": numbers,
    }
    # what a reader will see
    parsed: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    return parsed
