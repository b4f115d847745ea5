"""The README does what it says: every block of it runs, in order, in an empty folder, and prints
what it shows.

Set-up commands are the exception: `.ci/run` runs the real ones. What the README shows in a `text`
block must be in the output of the block before it, line by line.
"""

import json
import os
import re
import socket
import sys
from contextlib import ExitStack

import pytest
from pages import Block, blocks, environment_in, page, run, run_page
from places import ROOT

from feval.methods import METHODS
from feval.methods.protocol import capabilities
from feval.recording import open_recording, verify_recording
from recorders.demo import bundled_recording

README = (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def environment(tmp_path):
    with environment_in(tmp_path) as variables:
        yield variables


@pytest.mark.slow
def test_every_block_runs_and_prints_what_it_shows(tmp_path, environment):
    folder = tmp_path / "empty"
    folder.mkdir()
    run_page(README, folder, environment)


@pytest.mark.slow
def test_the_example_of_real_llms(shared, tmp_path, environment):
    [example] = [block for block in blocks(README) if "best-of-infinity" in block.text]
    (tmp_path / "jsonl").symlink_to(shared / "real/boinf/jsonl")
    assert "gpt-oss-20b" in run(example, tmp_path, environment)
    [dataset] = open_recording(tmp_path / "aime2025").dataset_ids()
    assert dataset == "aime2025"
    points = json.loads((tmp_path / "aime2025-curves/comparison.json").read_text())["curves"]
    assert len(points) == 4
    assert (tmp_path / "aime2025-curves/comparison.png").is_file()


def test_the_example_compares_methods_on_any_recording(tmp_path):
    with bundled_recording() as recording:
        line = Block(
            "sh",
            f'"{sys.executable}" -W error "{ROOT}/examples/compare_methods.py" "{recording}"',
            {},
        )
        said = run(line, tmp_path, os.environ | {"PYTHONPATH": str(ROOT)})
    rows = {
        (row[:22].strip(), row[22:58].strip()): row[58:].split() for row in said.splitlines()[2:]
    }
    assert len(rows) == 5 * 3 + 2
    assert rows["5 votes", "feval/tiny-42k"][4] == "5.00"
    assert (
        float(rows["until settled", "feval/tiny-42k"][4])
        < float(rows["40 votes", "feval/tiny-42k"][4])
        == 40
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_described(name):
    text = page("methods")
    sections = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert sum(name in title.split(" and ") and bool(body.strip()) for title, body in sections) == 1
    [row] = re.findall(rf"^\| \[{name}\].*\|$", text, re.MULTILINE)
    assert (row.split("|")[4].strip() == "yes") == capabilities(METHODS[name]).exact


def free_ports(count):
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [opened.getsockname()[1] for opened in sockets]


@pytest.mark.slow
def test_the_recipes_of_recording_run_as_they_stand(tmp_path, environment):
    pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")
    recipes = page("recording").partition("## Recipes\n")[2]
    for name, port in zip(("8123", "8124"), free_ports(2), strict=True):
        recipes = recipes.replace(name, str(port))
    folder = tmp_path / "empty"
    folder.mkdir()
    served, proxied, twin = blocks(recipes)
    run(served, folder, environment)
    assert verify_recording(folder / "over-http").ok
    run(proxied, folder, environment)
    assert (
        open_recording(folder / "my-run").manifest.pairs["proxied", "feval/tiny-42k"]["cots"] == 5
    )
    assert re.fullmatch(r"27 for 0\.0000\d+ USD and 5 CoTs\n", run(twin, folder, environment))


def test_blocks_are_of_languages_that_are_tested():
    assert {block.language for block in blocks(README)} == {"sh", "python", "text"}


def test_the_two_set_up_commands_come_first_and_exist():
    for command in ("sh examples/demo.sh", "sh tests/run.sh"):
        assert re.search(rf"^{re.escape(command)}\b", README, re.MULTILINE)
        assert (ROOT / command.split()[1]).is_file()


def test_the_readme_is_short():
    assert len(README.splitlines()) < 200
