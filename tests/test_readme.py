"""The README does what it says: every block of it runs, in order, in an empty folder, and prints what it shows.

Set-up commands are the exception: `.ci/run` runs the real ones. What the README shows in a `text` block must be in the output of
the block before it, line by line.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hub_double import HubDouble
from hub_settings import TOKEN
from places import ROOT

from feval.evaluation.method_names import field_names
from feval.methods import METHODS
from feval.methods.protocol import has_exact_form
from feval.recording import open_recording, verify_recording
from recorders.demo import bundled_recording

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


def run_page(text: str, folder: Path, environment: dict[str, str]) -> None:
    """Run the blocks of a page in order; what a `text` block shows must have been printed by the block before it."""
    said = ""
    for block in blocks(text):
        if block.language == "text":
            missing = [
                line for line in block.text.splitlines() if line.rstrip() not in map(str.rstrip, said.splitlines())
            ]
            assert missing == [], f"the page shows lines that were not printed; printed was:\n{said}"
        else:
            said = run(block, folder, environment)


@pytest.mark.slow
def test_every_block_runs_and_prints_what_it_shows(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with HubDouble() as hub:
        own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        run_page(README, folder, environment | own)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["methods", "numbers", "receipts", "environment", "depth", "exporting"])
def test_the_pages_on_methods_run_beside_the_demo(page: str, tmp_path: Path, environment: dict[str, str]) -> None:
    with bundled_recording() as recording:
        shutil.copytree(recording, tmp_path / "feval-demo" / "recording")
    run_page((ROOT / "docs" / f"{page}.md").read_text("utf-8"), tmp_path, environment)


def test_the_examples_of_coupling_print_what_they_show(tmp_path: Path, environment: dict[str, str]) -> None:
    page = blocks((ROOT / "docs" / "coupling.md").read_text("utf-8"))
    offline = [f"```{block.language}\n{block.text}```\n" for block in page if block.language != "sh"]
    assert len(offline) == 6
    run_page("\n".join(offline), tmp_path, environment)


def test_the_example_compares_methods_on_any_recording(tmp_path: Path, environment: dict[str, str]) -> None:
    with bundled_recording() as recording:
        line = Block("sh", f'"{sys.executable}" -W error "{ROOT}/examples/compare_methods.py" "{recording}"')
        said = run(line, tmp_path, environment)
    rows = {(row[:22].strip(), row[22:58].strip()): row[58:].split() for row in said.splitlines()[2:]}
    assert len(rows) == 5 * 3 + 2
    assert rows["5 votes", "feval/tiny-42k"][4] == "5.00"
    assert float(rows["until settled", "feval/tiny-42k"][4]) < float(rows["40 votes", "feval/tiny-42k"][4]) == 40


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_described_with_all_its_fields(name: str) -> None:
    text = (ROOT / "docs" / "methods.md").read_text("utf-8")
    sections = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    [section] = [body for title, body in sections if name in title.split(" and ")]
    documented = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(documented))) == sorted(field_names(name))
    [row] = re.findall(rf"^\| \[{name}\].*\|$", text, re.MULTILINE)
    assert (row.split("|")[4].strip() == "yes") == has_exact_form(METHODS[name])


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


@pytest.mark.slow
def test_the_recipes_of_recording_run_as_they_stand(tmp_path: Path, environment: dict[str, str]) -> None:
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    recipes = (ROOT / "docs" / "recording.md").read_text("utf-8").partition("## Three recipes\n")[2]
    for name, port in zip(("8123", "8124"), free_ports(2), strict=True):
        recipes = recipes.replace(name, str(port))
    programs, _, others = environment["PATH"].partition(os.pathsep)
    environment |= {
        "PATH": os.pathsep.join([programs, str(Path(sys.executable).parent), others])
    }  # `python` is this one
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


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_and_pictures_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text("utf-8"))
    beside = (ROOT / page).parent
    assert [target for target in targets if "://" not in target and not (beside / target).exists()] == []


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 200
