"""Exact beside seeded methods in one comparison: they agree within Monte Carlo error, and each says
which it is.
"""

import numpy as np
import pytest

from feval import compare
from feval.comparison.plan import Plan
from recorders.demo import bundled_recording

REPLICATES = 200
LLMS = ["feval/tiny-42k", "feval/tiny-160k"]


def test_exact_and_seeded_methods_in_one_comparison():
    with bundled_recording() as folder:
        plan = Plan.from_dict({
            "dataset": "tiny_sums", "recordings": [str(folder)], "resamples": 100,
            "replicates": REPLICATES, "order": "mixed",
            "method": [
                {"name": "self-consistency", "llms": LLMS[:1], "budgets": {"n": [1, 5]}},
                {"name": "early-stopping", "llms": LLMS[:1], "budgets": {"budget": [10, 40]}},
                {"name": "model-switch", "llms": LLMS, "budgets": {"samples": [2, 5]}},
            ],
        })  # fmt: skip
        mixed, seeded = compare(plan), compare(plan.changed(order="seeded"))
    assert mixed.kinds == ("exact", "seeded")
    assert [{point.kind for point in curve.points} for curve in mixed.curves] == [
        {"exact"},
        {"exact"},
        {"seeded"},
    ]
    assert {point.kind for curve in seeded.curves for point in curve.points} == {"seeded"}
    assert [point.replicates for point in mixed.curves[0].points] == [None, None]
    assert any("Exact and seeded methods" in warning for warning in mixed.warnings)
    for one, other in zip(mixed.curves, seeded.curves, strict=True):
        for exact, drawn in zip(one.points, other.points, strict=True):
            spread = np.sqrt((exact.right * (1 - exact.right)).sum() / REPLICATES) / len(
                exact.right
            )
            assert abs(exact.accuracy - drawn.accuracy) <= 4 * spread + 1e-12
            assert exact.samples.mean() == pytest.approx(drawn.samples.mean(), rel=0.05)
            assert sum(exact.errors().values()) == pytest.approx(1 - exact.accuracy)
