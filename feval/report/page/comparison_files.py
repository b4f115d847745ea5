"""The files of a comparison that people look at: the picture as PNG and SVG, and the page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, BinaryIO, cast
from warnings import warn

from feval.comparison.comparison import load_compared, traces
from feval.errors import FevalWarning
from feval.evaluation.surface import coarse_surface
from feval.evaluation.user_methods import TIME_LIMIT
from feval.receipts.document import comparison_receipt
from feval.report import pictures, tables
from feval.report.files import Content, check_folder, encoded, save_files, save_sealed
from feval.report.page.document import verification
from feval.report.page.page import comparison_page
from feval.report.page.questions import Caps
from feval.report.tables.comparisons import results_csv

if TYPE_CHECKING:
    from feval.comparison.comparison import Comparison


IN_MEMORY = 1 << 26
"""Bytes of `questions.parquet`; a larger one waits in the temporary folder."""


def save_comparison(comparison: Comparison, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write what `feval compare --out` writes; a function that stands in no file leaves the receipt
    out, with a warning.
    """
    check_folder(folder, "another folder")
    unnamed = [name.partition(":")[2] for name in comparison.methods if name.startswith("python:")]
    with SpooledTemporaryFile(IN_MEMORY) as questions:
        files = result_files(comparison, folder, cast("BinaryIO", questions), sealed=not unnamed)
        if not unnamed:
            return save_sealed(
                folder,
                files,
                comparison_receipt(comparison, comparison.base, folder),
                replace=overwrite,
            )
        warn(
            f"No receipt was written: {', '.join(unnamed)} stands in no file, so that nobody can"
            " run it again. Write it to a file and name it FILE.py:FUNCTION.",
            FevalWarning,
            stacklevel=4,
        )
        return save_files(folder, files, replace=overwrite)


def result_files(
    comparison: Comparison,
    out: Path,
    questions: BinaryIO,
    *,
    time_limit: float | None = TIME_LIMIT,
    sealed: bool = True,
) -> dict[str, Content]:
    """Return all files of a comparison for the folder `out`, by name, but for the receipt beside
    them where it is `sealed`.

    `questions` is an open file that `questions.parquet` is written to.
    """
    receipt = "receipt.json" if sealed else None
    tables.questions_parquet(comparison, questions)
    return {
        "comparison.json": encoded(comparison.to_dict()),
        "comparison.toml": comparison.plan.moved(comparison.base, out).to_toml().encode(),
        "results.csv": results_csv(comparison).encode(),
        "results.parquet": tables.results_parquet(comparison),
        "questions.parquet": questions,
        **comparison_files(
            comparison, base=comparison.base, receipt=receipt, time_limit=time_limit
        ),
    }


def comparison_files(
    comparison: Comparison,
    *,
    base: Path = Path(),
    receipt: str | None = None,
    time_limit: float | None = TIME_LIMIT,
    caps: Caps | None = None,
) -> dict[str, bytes]:
    """Return `comparison.png`, `comparison.svg` and `report.html` by name.

    The plan's paths are relative to `base`; `receipt` is the file name of the receipt beside the
    page; a user's method may take `time_limit` seconds on a question while it is traced for the
    page.
    """
    dataset, llms = load_compared(comparison, base)
    caps = caps or Caps()
    followed = traces(
        comparison,
        dataset,
        llms,
        questions=caps.questions,
        closely=caps.deep,
        time_limit=time_limit,
    )
    page = comparison_page(
        comparison,
        dataset,
        llms,
        traces=followed,
        surfaces=[surface for llm in llms if (surface := coarse_surface(dataset, llm)) is not None],
        caps=caps,
        verify=_verify(comparison, receipt),
    )
    picture = pictures.comparison(comparison)
    return {
        "comparison.png": picture.png(),
        "comparison.svg": picture.svg(),
        "report.html": page.encode(),
    }


def _verify(comparison: Comparison, receipt: str | None) -> Sequence[str]:
    if receipt is None:
        return ()
    methods = dict.fromkeys(
        curve.entry.method for curve in comparison.curves if ":" in curve.entry.method
    )
    users = "".join(f" --method {shlex.quote(method)}" for method in methods)
    return verification(receipt, users)
