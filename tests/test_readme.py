"""The README does what it says: every block of it runs, in order, in an empty folder, and prints what it shows.

Set-up commands are the exception: `.ci/run` runs the real ones. What the README shows in a `text` block must be in the output of
the block before it, line by line.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")

# What a set-up line stands for where feval is installed already.
SET_UP = {
    "sh examples/demo.sh": "feval demo",
    ". .venv/bin/activate": "true",
    "pip install .": "true",
    "sh tests/run.sh": "true",
    ".ci/run": "true",
}
FEVAL = f"""#!/bin/sh
exec "{sys.executable}" -c 'from feval.cli import main; main()' "$@"
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text."""

    language: str
    text: str


def blocks() -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)]


def run(block: Block, folder: Path, environment: dict[str, str]) -> str:
    if block.language == "sh":
        script = "\n".join(SET_UP.get(line.split("  #")[0].strip(), line) for line in block.text.splitlines())
        command = ["sh", "-eu", "-c", script]
    else:
        command = [sys.executable, "-W", "error", "-c", block.text]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{block.text}\nsays:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose `feval` is this checkout's, without a user's own settings."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "feval").write_text(FEVAL)
    (programs / "feval").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FEVAL_")}
    return kept | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}


def test_every_block_runs_and_prints_what_it_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    said = ""
    for block in blocks():
        if block.language == "text":
            missing = [
                line for line in block.text.splitlines() if line.rstrip() not in map(str.rstrip, said.splitlines())
            ]
            assert missing == [], f"the README shows lines that were not printed; printed was:\n{said}"
        else:
            said = run(block, folder, environment)


def test_blocks_are_of_languages_that_are_tested() -> None:
    assert {block.language for block in blocks()} == {"sh", "python", "text"}


def test_the_two_set_up_commands_come_first_and_exist() -> None:
    for command in ("sh examples/demo.sh", "sh tests/run.sh"):
        assert re.search(rf"^{re.escape(command)}\b", README, re.MULTILINE)
        assert (ROOT / command.split()[1]).is_file()


def test_links_and_pictures_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 200
