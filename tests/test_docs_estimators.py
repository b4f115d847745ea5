"""The examples of `docs/estimators.md` run as they stand, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "estimators.md").read_text("utf-8")
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
    assert [line.rstrip() for line in done.stdout.splitlines()] == [line.rstrip() for line in shown.splitlines()]


def test_every_example_shows_what_it_prints() -> None:
    assert len(EXAMPLES) == len(re.findall(r"^```python$", PAGE, re.MULTILINE)) > 0
    assert re.findall(r"^```(\w+)$", PAGE, re.MULTILINE) == ["python", "text"] * len(EXAMPLES)


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE)
    assert [target for target in targets if "://" not in target and not (ROOT / "docs" / target).exists()] == []
