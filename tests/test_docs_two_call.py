"""The examples of `docs/estimators-two-call.md` run as they stand and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "estimators-two-call.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("code", "shown"), EXAMPLES)
def test_an_example_prints_what_the_page_shows(code: str, shown: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()


def test_every_example_is_run() -> None:
    assert re.findall(r"^```(\w+)$", PAGE, re.MULTILINE) == ["python", "text"] * len(EXAMPLES)
    assert len(EXAMPLES) > 0


def test_every_function_the_page_names_exists() -> None:
    rows = re.findall(r"^\| .* \| (`.*) \| (`.*) \|$", PAGE, re.MULTILINE)
    modules = {name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    public = {name for module in modules for name in __import__(f"feval.estimators.{module}", fromlist=["_"]).__all__}
    assert {name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)} <= public
