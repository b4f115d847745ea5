"""docs/coupling.md: the example on the built-in models runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT


@pytest.mark.slow
def test_the_example_on_the_built_in_models_runs(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "feval").write_text(f'#!/bin/sh\nexec "{sys.executable}" -W error -m feval "$@"\n')
    (programs / "feval").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = ["sh", str(ROOT / "examples" / "coupled.sh"), str(tmp_path / "out"), "12", "4"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "out" / "couple" / "couple.json").read_text("utf-8"))
    assert result["llms"] == ["feval/tiny-42k", "feval/tiny-90k"]
    [pair] = result["pairs"]
    assert (pair["questions"], pair["calls"]) == (12, 4)
    assert result["noise"] == {"scheme": "gumbel-v1", "seed": 7}
    assert result["independent_from"] == "recordings"
    assert "tiny-42k - tiny-90k" in done.stdout
