"""docs/coupling.md: its examples print what they show, and the one on the built-in models runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

PAGE = (ROOT / "docs" / "coupling.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), EXAMPLES)
def test_examples_print_what_they_show(code: str, shown: str) -> None:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == shown


def test_every_python_block_is_followed_by_what_it_prints() -> None:
    assert len(EXAMPLES) == len(re.findall(r"^```python$", PAGE, re.MULTILINE)) == 3


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
    told = json.loads((tmp_path / "out" / "couple" / "couple.json").read_text("utf-8"))
    assert told["llms"] == ["feval/tiny-42k", "feval/tiny-90k"]
    [pair] = told["pairs"]
    assert (pair["questions"], pair["calls"]) == (12, 4)
    assert told["noise"] == {"scheme": "gumbel-v1", "seed": 7}
    assert told["independent_from"] == "recordings"
    assert "tiny-42k - tiny-90k" in done.stdout
