"""Every example says what it takes, also where the packages that it shows are not installed."""

import os
import shutil
import subprocess
import sys

import pytest
from places import ROOT

EXAMPLES = ROOT / "examples"

COMMANDS = {
    "calibration_study.py": [sys.executable, "-W", "error"],
    "compare_methods.py": [sys.executable, "-W", "error"],
    "learn_budget.py": [sys.executable, "-W", "error"],
    "self_consistency_litellm.py": [sys.executable, "-W", "error"],
    "self_consistency_openai.py": [sys.executable, "-W", "error"],
    "coupled.sh": ["sh"],
    "record_demo.sh": ["sh"],
    "self_consistency.mjs": ["node"],
}
# `feval run` and `inspect eval` run them
WITHOUT_ARGUMENTS = {"debate.py", "inspect_task.py", "self_refine.py"}
OF_ANOTHER_COMMAND = {"demo.sh"}  # hands its arguments to `feval demo`


def run(name, *arguments, folder):
    command = COMMANDS[name]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not on this machine")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_example_is_looked_at():
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in {".py", ".sh", ".mjs"}}
    assert there == {*COMMANDS, *WITHOUT_ARGUMENTS, *OF_ANOTHER_COMMAND}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_printed_and_nothing_is_done(name, tmp_path):
    done = run(name, "--help", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert name in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["compare_methods.py", "calibration_study.py", "learn_budget.py"])
def test_a_recording_that_is_not_there_is_a_sentence(name, tmp_path):
    done = run(name, "nowhere", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: No recording at ")


@pytest.mark.parametrize("name", ["coupled.sh", "record_demo.sh"])
def test_a_script_without_its_argument_says_so(name, tmp_path):
    done = run(name, folder=tmp_path)
    assert done.returncode != 0
    assert f"usage: sh examples/{name} OUT" in done.stderr


def test_a_policy_learns_by_playing(tmp_path):
    pytest.importorskip("gymnasium", reason="Gymnasium is not installed")
    recording = str(ROOT / "recorders" / "tiny" / "recording")
    done = run("learn_budget.py", recording, "--episodes", "40", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    _, *rows = done.stdout.splitlines()
    worth = {row.split()[0]: float(row.split()[-1]) for row in rows}
    assert len(worth) == 4
    assert worth["learnt"] > worth["feval/tiny-42k"] + 0.1
