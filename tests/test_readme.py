"""The README does what it says: every block of it runs, in order, in an empty folder, and prints what it shows.

Set-up commands are the exception: `.ci/run` runs the real ones. What the README shows in a `text` block must be in the output of
the block before it, line by line.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from feval.recording import open_recording, verify_recording

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


def blocks(text: str = README) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def run(block: Block, folder: Path, environment: dict[str, str]) -> str:
    if block.language == "sh":
        script = "\n".join(SET_UP.get(line.split("  #")[0].strip(), line) for line in block.text.splitlines())
        command = ["sh", "-eu", "-c", script]
    else:
        command = [sys.executable, "-W", "error", "-c", block.text]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes) as process:
        try:
            said, complained = process.communicate(timeout=300)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # a server that a block began and did not end
    assert process.returncode == 0, f"{block.text}\nsays:\n{said}{complained}"
    return said + complained


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


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


def test_the_recipes_of_recording_run_as_they_stand(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    recipes = (ROOT / "docs" / "recording.md").read_text("utf-8").partition("## Three recipes\n")[2]
    for name, port in zip(("8123", "8124"), free_ports(2), strict=True):
        recipes = recipes.replace(name, str(port))
    environment |= {"PATH": f"{environment['PATH']}{os.pathsep}{Path(sys.executable).parent}"}
    folder = tmp_path / "empty"
    folder.mkdir()
    served, proxied, twin = blocks(recipes)
    run(served, folder, environment)
    assert verify_recording(folder / "over-http").ok
    run(proxied, folder, environment)
    assert open_recording(folder / "my-run").manifest.pairs["proxied", "feval/tiny-42k"]["cots"] == 5
    assert re.fullmatch(r"27 for 0\.0000\d+ USD and 5 CoTs\n", run(twin, folder, environment))


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
