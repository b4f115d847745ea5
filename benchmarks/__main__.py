"""Run the benchmarks and compare each number with its goal.

    python -m benchmarks                        everything (about ten minutes)
    python -m benchmarks open replay            some of them
    python -m benchmarks --folder /tmp/bench    keep the synthetic files there (1 GB)

Leaves with 1 if a goal was missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from benchmarks.measure import Workspace

NAMES = (
    "open", "curve", "intervals", "replay", "methods", "depth", "cascades", "routing", "confidence",
    "budget", "comparison", "estimators", "two_call",
    "startup", "importing", "recording", "report", "serving", "tiny", "hub", "coupled",
    "extraction", "executors", "scale",
)  # fmt: skip


def main() -> int:
    """Run what was asked for; 0 if every goal was met."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare feval with its goals."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}; all if left out"
    )
    parser.add_argument("--folder", type=Path, help="keep the synthetic files here")
    parser.add_argument(
        "--questions", type=int, default=1319, help="fewer for a quick look that proves nothing"
    )
    chosen = parser.parse_args()
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        # before anything imports NumPy: threads would be counted as CPU time
        os.environ[variable] = "1"
    if unknown := set(chosen.names) - set(NAMES):
        parser.error(f"no benchmark {sorted(unknown)}; there are {', '.join(NAMES)}")
    with tempfile.TemporaryDirectory(prefix="feval-bench-") as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        workspace = Workspace(folder, chosen.questions)
        missed = 0
        for name in chosen.names or NAMES:
            for goal in import_module(f"benchmarks.{name}").goals(workspace):
                print(goal.row(), flush=True)
                missed += not goal.met
    print(f"{missed} goals missed" if missed else "every goal met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
