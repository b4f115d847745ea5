"""Self-consistency on the replay against one run of the baseline: the exact curve of every n at
once, and seeded replicates.
"""

from __future__ import annotations

import json

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms, python

REPLICATES = 1000

MEMORY = """
import json, sys
from feval import evaluate
from feval.methods import SelfConsistency
from feval.replay import load
from benchmarks import reference
from benchmarks.open import resident_mb

dataset, llms = load(reference.DATASET, reference.LLM_NAMES[:1], sys.argv[1])
evaluate(SelfConsistency(20), dataset, llms, order="seeded", replicates=1)
before = resident_mb("VmRSS")
evaluate(SelfConsistency(20), dataset, llms, order="seeded", replicates=int(sys.argv[2]))
print(json.dumps(resident_mb("VmHWM") - before))
"""


def goals(workspace: Workspace) -> list[Goal]:
    """The exact curve, with and without intervals, and 1,000 replicates."""
    from feval.evaluation.curves import self_consistency_curve
    from feval.evaluation.evaluation import evaluate
    from feval.methods import SelfConsistency
    from feval.replay import load

    names = reference.LLM_NAMES[:1]
    questions, (baseline,) = reference.load(workspace.archive(1), names)
    dataset, [llm] = load(reference.DATASET, names, workspace.recording(1))
    ms = cpu_ms(
        {
            "baseline": lambda: reference.self_consistency_run(questions, baseline),
            "thrifty baseline": lambda: reference.self_consistency_run(
                questions, baseline, thrifty=True
            ),
            "exact": lambda: self_consistency_curve(dataset, llm, range(1, 41), confidence=None),
            "intervals": lambda: self_consistency_curve(dataset, llm, range(1, 41)),
            "replicates": lambda: evaluate(
                SelfConsistency(20), dataset, [llm], order="seeded", replicates=REPLICATES
            ),
        }
    )
    run, thrifty, exact, each = (
        ms["baseline"],
        ms["thrifty baseline"],
        ms["exact"],
        ms["replicates"] / REPLICATES,
    )
    grown = json.loads(python(["-c", MEMORY, str(workspace.recording(1)), str(REPLICATES)]))
    return [
        Goal(
            "exact curve, n = 1..40, with costs",
            run / exact,
            10,
            "x",
            True,
            f"{exact:.1f} ms against {run:.0f} ms",
        ),
        Goal(
            "the same against the thrifty baseline",
            thrifty / exact,
            None,
            "x",
            note=f"{thrifty:.0f} ms",
        ),
        Goal("the same with intervals (10,000 resamples)", ms["intervals"], None, "ms"),
        Goal(
            "1,000 replicates of n = 20, per run",
            run / each,
            300,
            "x",
            True,
            f"{each:.3f} ms against {run:.0f} ms",
        ),
        Goal("the same against the thrifty baseline", thrifty / each, None, "x"),
        Goal("memory of 1,000 replicates, their result included", grown, None, "MB"),
    ]
