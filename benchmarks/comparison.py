"""Comparisons: paired differences of two curves against a gather loop, and ten methods over ten
budgets in one go.

Data are synthetic and seeded, as in `benchmarks/curve.py`.
"""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

from benchmarks.curve import GATHER_RESAMPLES, synthetic_values
from benchmarks.measure import Goal, Workspace, cpu_ms, python
from benchmarks.reference import LLM_NAMES

POINTS = 40
RESAMPLES = 10_000

DIFFERENCES = """
import json
from benchmarks.comparison import paired_differences
from benchmarks.curve import synthetic_values
from benchmarks.open import resident_mb

values = synthetic_values()
paired_differences(values, 10)
before = resident_mb("VmRSS")
paired_differences(values)
print(json.dumps(resident_mb("VmHWM") - before))
"""

# Measured in a fresh process: the plan, every evaluation, all statistics and all files of a
# comparison.
WHOLE = """
import io, json, sys, time
from pathlib import Path
from benchmarks.comparison import plan
from feval import PriceList, reprice
from feval.comparison import compare
from feval.report.tables import questions_parquet
from feval.report.tables.comparisons import comparison_tables, results_csv

started = time.process_time()
comparison = compare(plan(sys.argv[1]))
evaluated = time.process_time()
json.dumps(comparison.to_dict()), results_csv(comparison)
comparison_tables(comparison)
questions_parquet(comparison, io.BytesIO())
written = time.process_time()
names = {name for curve in comparison.curves for name in curve.entry.llms}
lists = [
    PriceList(f"list-{i}", "2026-11-01", "made up", {name: (i + 1.0, 2.0) for name in names})
    for i in range(10)
]
before = time.process_time()
repriced = reprice(comparison, lists)
print(json.dumps({
    "compare_s": evaluated - started,
    "files_s": written - evaluated,
    "reprice_s": time.process_time() - before,
    "repriced": sum(len(curve.points) for curves in repriced for curve in curves),
    "methods": len(comparison.curves),
    "points": sum(len(curve.points) for curve in comparison.curves),
    "missing": [f"{one.label}: {one.reason}" for one in comparison.missing],
}))
"""


def paired_differences(
    values: npt.NDArray[np.float64], resamples: int = RESAMPLES
) -> list[tuple[float, ...]]:
    """Difference, interval, flips and p-value of two curves at each of their points.

    Args:
        values: [Q, 2 P] values per question, the one curve's columns before the other's.
        resamples: of the bootstrap.
    """
    from feval.estimators.comparisons import flip_probability
    from feval.estimators.intervals import bootstrap_means, difference_test

    points = values.shape[1] // 2
    means = bootstrap_means(values, resamples=resamples)
    test = difference_test(values[:, :points] - values[:, points:])
    rows = []
    for i in range(points):
        observed, resampled = (
            float((values[:, i] - values[:, points + i]).mean()),
            means[:, i] - means[:, points + i],
        )
        flips = flip_probability(observed, resampled)
        rows.append((observed, test.low[i], test.high[i], flips, test.p_value[i]))
    return rows


def differences() -> list[Goal]:
    """Paired differences of two curves of 40 points against a loop that gathers each resample."""
    values = synthetic_values(columns=2 * POINTS)
    rng = np.random.default_rng(0)

    def gather() -> None:
        means = [
            values[rng.integers(0, len(values), len(values))].mean(axis=0)
            for _ in range(GATHER_RESAMPLES)
        ]
        resampled = np.array(means)[:, :POINTS] - np.array(means)[:, POINTS:]
        (resampled > 0).mean(axis=0)

    ms = cpu_ms({"gather": gather, "paired": lambda: paired_differences(values)})
    loop = ms["gather"] * RESAMPLES / GATHER_RESAMPLES
    note = f"{ms['paired']:.0f} ms against {loop:.0f} ms"
    return [
        Goal(
            "paired differences, 10,000 resamples x 2 x 40 points, over a loop",
            loop / ms["paired"],
            5,
            "x",
            True,
            note,
        ),
        Goal("its memory over the imports", json.loads(python(["-c", DIFFERENCES])), 20, "MB"),
    ]


def plan(recording: str) -> object:
    """Ten methods over ten budgets on three LLMs."""
    from feval.comparison.plan import Plan

    one, two, three = LLM_NAMES[:3]
    counts = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40]
    windows = [3, 4, 5, 6, 7, 8, 9, 10, 20, 40]
    shares = [f"0.{n}" for n in range(50, 100, 5)]

    def entry(
        label: str, name: str, llms: list[str], field: str, values: list[object], **fields: object
    ) -> object:
        return {
            "label": label,
            "name": name,
            "llms": llms,
            "budgets": {field: values},
            "fields": fields,
        }

    methods = [
        *(
            entry(f"SC {llm}", "self-consistency", [llm], "n", [*counts])
            for llm in (one, two, three)
        ),
        *(
            entry(f"ESC {llm}", "early-stopping", [llm], "window", [*windows], answer="window")
            for llm in (one, two)
        ),
        *(
            entry(f"AC {llm}", "adaptive-consistency", [llm], "threshold", [*shares])
            for llm in (one, two)
        ),
        entry("switch", "model-switch", [one, two, three], "samples", list(range(1, 11))),
        entry(
            "switch by samples",
            "model-switch",
            [two, one],
            "samples",
            list(range(1, 11)),
            normaliser="samples",
        ),
        entry("MoT", "mixture-of-thoughts", [one, three], "threshold", [*shares]),
    ]
    return Plan.from_dict(
        {
            "dataset": "gsm8k",
            "recordings": [recording],
            "order": "mixed",
            "cost": "tokens",
            "method": methods,
        }
    )


def whole(workspace: Workspace) -> list[Goal]:
    """Ten methods x ten budgets on 1319 x 40 x 3 LLMs, in a fresh process."""
    measured = json.loads(python(["-c", WHOLE, str(workspace.recording(3))]))
    if measured["missing"]:
        raise RuntimeError("; ".join(measured["missing"]))
    note = (
        f"{measured['methods']} methods, {measured['points']} points; files"
        f" {measured['files_s']:.1f} s"
    )
    seconds = measured["compare_s"] + measured["files_s"]
    return [
        Goal(
            "comparison, 10 methods x 10 budgets, 1319 x 40 x 3 LLMs", seconds, 45, "s", note=note
        ),
        Goal("its points at ten price lists", measured["reprice_s"], 1, "s",
             note=f"{measured['repriced']} points"),
    ]  # fmt: skip


def goals(workspace: Workspace) -> list[Goal]:
    """Measure comparisons."""
    return [*differences(), *whole(workspace)]
