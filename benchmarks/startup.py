"""Whole processes, from `python` to the exact curve, against `import numpy` and the baseline; what
`feval --help` imports.
"""

from __future__ import annotations

import json
import textwrap

from benchmarks.measure import ROOT, Goal, Workspace, process_ms, python

CURVES = """
import sys
from feval import load, self_consistency_curve

dataset, llms = load(sys.argv[1], None, sys.argv[2])
for llm in llms:
    points = self_consistency_curve(dataset, llm, range(1, 41), confidence=None).points
    assert points[-1].usd_per_question
"""
BASELINE = """
import sys
from pathlib import Path
from benchmarks import reference

dataset, llms = reference.load(Path(sys.argv[1]), reference.LLM_NAMES[: int(sys.argv[2])])
for llm in llms:
    reference.self_consistency_run(dataset, llm)
"""
COMMAND = """
import sys
from feval.cli import main
sys.argv = ["feval", "--help"]
main()
"""
CURVE_COMMAND = f"""
import sys
from feval.cli import main
sys.argv = ["feval", "curve", "self-consistency", "--recording", {str(ROOT / "recorders" / "tiny" / "recording")!r}]
sys.argv += ["--llm", "feval/tiny-42k", "--n", "1,5"]
main()
"""  # noqa: E501
LIBRARIES = """
import numpy, pydantic, typer, yaml

class Model(pydantic.BaseModel):
    number: int

Model(number=1)
"""
HELP = f"""
import json
try:
{textwrap.indent(COMMAND.strip(), "    ")}
except SystemExit:
    pass
heavy = [name for name in ("numpy", "scipy", "pyarrow", "matplotlib", "pydantic") if name in sys.modules]
print()
print(json.dumps(heavy))
"""  # noqa: E501


def goals(workspace: Workspace) -> list[Goal]:
    """Load and exact curve for 1 and 13 LLMs, and the commands `feval curve` and `feval --help`."""
    one, all_13 = str(workspace.recording(1)), str(workspace.recording(13))
    ms = process_ms(
        {
            "pass": ["-c", "pass"],
            "numpy": ["-c", "import numpy"],
            "curve": ["-c", CURVES, "gsm8k", one],
            "curves": ["-c", CURVES, "gsm8k", all_13],
            "baseline": ["-c", BASELINE, str(workspace.archive(1)), "1"],
            "command": ["-c", CURVE_COMMAND],
            "help": ["-c", COMMAND],
            "libraries": ["-c", LIBRARIES],
        }
    )
    numpy = ms["numpy"]
    heavy = json.loads(python(["-c", HELP]).splitlines()[-1])
    notes = {name: f"{ms[name]:.0f} ms against {numpy:.0f} ms" for name in ("curve", "command")}
    beaten = f"baseline {ms['baseline']:,.0f} ms"
    return [
        Goal(
            "whole process, load + exact curve, over import numpy",
            ms["curve"] / numpy,
            3.5,
            "x",
            note=notes["curve"],
        ),
        Goal(
            "whole process, `feval curve`, over import numpy",
            ms["command"] / numpy,
            3,
            "x",
            note=notes["command"],
        ),
        Goal(
            "the libraries alone: numpy, pydantic with one model, typer, yaml",
            ms["libraries"] / numpy,
            None,
            "x",
        ),
        Goal(
            "whole process, 13 LLMs and 13 exact curves, over import numpy",
            ms["curves"] / numpy,
            None,
            "x",
        ),
        Goal(
            "whole process against the baseline's load and one run",
            ms["baseline"] / ms["curve"],
            None,
            "x",
            note=beaten,
        ),
        Goal("feval --help: heavy packages imported", len(heavy), 0, "", note=", ".join(heavy)),
        Goal(
            "feval --help over python -c pass",
            ms["help"] / ms["pass"],
            None,
            "x",
            note=f"{ms['help']:.0f} ms",
        ),
    ]
