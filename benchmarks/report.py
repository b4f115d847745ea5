"""The report of a comparison: page and pictures of three methods at seven budgets on 1,319
questions x 40 CoTs x 3 LLMs.

The baseline is one run of self-consistency with n = 20 in the reference's manner, on the same
synthetic content. How long the page takes to open is measured in headless Chromium where one is
installed, by its own clock, from navigation until it is ready.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms
from feval.comparison.comparison import Comparison, compare
from feval.comparison.plan import ComparedMethod, Plan
from feval.recording import open_recording

BUDGETS = (1, 2, 3, 5, 10, 20, 40)


def goals(workspace: Workspace) -> list[Goal]:
    """Measure the report."""
    result = _comparison(workspace)
    archive = reference.load(workspace.archive(1), reference.LLM_NAMES[:1])
    from feval.report import pictures
    from feval.report.page.page import comparison_files

    files = comparison_files(result)
    spent = cpu_ms(
        {
            "files": lambda: comparison_files(result),
            "picture": lambda: pictures.comparison(result).png(),
            "run": lambda: reference.self_consistency_run(archive[0], archive[1][0]),
        }
    )
    size = len(files["report.html"]) / 1e6
    values = [
        Goal(
            "report: page, PNG and SVG",
            spent["files"] / 1000,
            20,
            "s",
            note=f"{spent['files'] / spent['run']:.1f} runs",
        ),
        Goal("report: PNG", spent["picture"] / 1000, 2, "s"),
        Goal("report: size of the page", size, 16, "MB"),
    ]
    return [*values, *_opening(files["report.html"])]


def _comparison(workspace: Workspace) -> Comparison:
    recording = workspace.recording(3)
    opened = open_recording(recording)
    dataset = opened.dataset_ids()[0]
    names = opened.llm_names(dataset)
    sweep = ("n", BUDGETS)
    entries = [
        ComparedMethod(
            label=f"votes of {name}", method="self-consistency", llms=(name,), sweep=sweep
        )
        for name in names
    ]
    return compare(
        Plan(dataset=dataset, recordings=(str(recording),), entries=tuple(entries), resamples=500)
    )


def _opening(page: bytes) -> list[Goal]:
    from chromium import CHROMIUM, tab

    if CHROMIUM is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_bytes(page)
        with tab(Path(folder)) as browser:
            browser.open(path)  # once to have it in the page cache
            browser.open(path)
            ready = browser.value("performance.now()")
            heap = browser.value("performance.memory.usedJSHeapSize")
    return [
        Goal("report: opening the page in Chromium", ready / 1000, 5, "s"),
        Goal("report: JavaScript heap of the page", heap / 1e6, None, "MB"),
    ]
