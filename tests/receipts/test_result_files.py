"""Several files of one result: the receipt pins the files beside it, goes first and comes last."""

import json
import os
import shutil
from contextlib import suppress

import pytest
from command_line import feval, said
from places import read_json
from small import letters, write_toy

from feval.errors import UsageError
from feval.publish.release import result_files
from feval.receipts.document import read_receipt
from feval.receipts.verifying import verify_receipt
from feval.report.files import save_files

pytestmark = pytest.mark.usefixtures("blank_pictures")

POOLS = letters("aaba", "xy-y", "bbbb")
PLAN = """dataset = "toy"
recordings = ["toy"]
resamples = 50
[[method]]
name = "self-consistency"
llms = ["gpt-3.5-turbo"]
budgets = { n = [1, 2] }
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return write_toy(
        tmp_path_factory.mktemp("results") / "toy", {"gpt-3.5-turbo": POOLS}, ["a", "y", "b"]
    )


@pytest.fixture(scope="module")
def drawn(toy):
    out = toy.parent / "out"
    said("curve self-consistency --n 1..3 --recording", toy, "--out", out)
    return out


@pytest.fixture
def curve(drawn):
    """A copy beside the recording, to be spoilt."""
    copy = drawn.parent / "copy"
    yield shutil.copytree(drawn, copy)
    shutil.rmtree(copy)


def test_a_receipt_pins_every_file_beside_it(curve):
    files = read_json(curve / "receipt.json")["files"]
    assert set(files) == {path.name for path in curve.iterdir()} - {"receipt.json"}
    said("verify", curve)
    # lists what is of the result, not what is in the folder
    (curve / "notes.txt").write_text("mine")
    said("verify", curve)


def test_a_file_that_differs_or_is_missing_is_named(curve):
    (curve / "curve.csv").write_text("n\n")
    (curve / "curve.png").unlink()
    (curve / "curve.svg").unlink()
    os.mkfifo(curve / "curve.svg")
    done = feval("verify", curve)
    assert done.exit_code == 1
    assert "curve.csv, a file of this result, differs: the receipt says SHA-256" in done.stderr
    assert "curve.png, a file of this result, is missing." in done.stderr
    assert "curve.svg, a file of this result, cannot be read: it is no regular file." in done.stderr
    assert "is right" not in done.stdout
    assert len(json.loads(feval("verify", curve, "--json").stdout)["files"]) == 3


def test_a_receipt_that_lies_alone_is_checked_by_its_numbers(curve):
    for path in curve.glob("curve.*"):
        path.unlink()
    check = verify_receipt(curve / "receipt.json")
    assert check.equal
    assert check.notes == (
        (
            "Files of this result that do not lie beside the receipt: curve.csv, curve.parquet,"
            " curve.json, curve.png, curve.svg."
        ),
    )


@pytest.mark.parametrize(
    "name", ["../toy/manifest.json", "/etc/passwd", "..", "", "a\\b", "C:a", "\x1b[31m"]
)
def test_a_receipt_names_no_file_elsewhere(name, curve):
    path = curve / "receipt.json"
    path.write_text(json.dumps(read_json(path) | {"files": {name: "0" * 64}}))
    with pytest.raises(UsageError, match="damaged receipt"):
        read_receipt(path)


class _Killed(BaseException):
    """Ends the process as a kill does: nothing of ours runs after it."""


def kill_after(steps, patch):
    """Let only so many renames and removals happen, and then no cleaning up."""
    left = iter(range(steps))

    def limited(original):
        def step(path, *target):
            if path.suffix == ".part" and not target:
                return
            if next(left, None) is None:
                raise _Killed
            original(path, *target)

        return step

    for name in ("replace", "unlink"):
        patch.setattr(f"feval.report.files.os.{name}", limited(getattr(os, name)))


def test_a_kill_leaves_no_receipt_that_passes_beside_files_of_another_run(tmp_path, monkeypatch):
    names = ("a.csv", "b.png", "c.json", "receipt.json")
    old, new = ({name: f"{run} {name}".encode() for name in names} for run in ("old", "new"))
    states = []
    for steps in range(6):
        for name in names:
            (tmp_path / name).write_bytes(old[name])
        with monkeypatch.context() as patch, suppress(_Killed):
            kill_after(steps, patch)
            save_files(tmp_path, new, replace=True)
        there = {
            name: (tmp_path / name).read_bytes() for name in names if (tmp_path / name).exists()
        }
        states.append("old" if there == old else "new" if there == new else "receipt.json" in there)
    assert states == ["old", False, False, False, False, "new"]


def test_a_comparison_is_pinned_and_stays_so_when_it_is_published(toy):
    plan, out = toy.parent / "plan.toml", toy.parent / "compared"
    plan.write_text(PLAN)
    said("compare", plan, "--out", out)
    hash_ = read_json(toy / "manifest.json")["recording_hash"]
    copy = toy / "results" / "compared"
    copy.mkdir(parents=True)

    def published():
        for path, content in result_files([out], hash_).items():
            data = content if isinstance(content, bytes) else content.read_bytes()
            (toy / path).write_bytes(data)
        return verify_receipt(copy / "receipt.json")

    check = published()
    assert (check.files, check.equal) == ((), True)
    (out / "comparison.json").write_text(
        (out / "comparison.json").read_text().replace("toy", "joy", 1)
    )
    [changed] = published().files
    assert changed.startswith("comparison.json, a file of this result, differs")


def test_lists_of_a_receipt_are_bounded(curve):
    path = curve / "receipt.json"
    whole = read_json(path)
    request = whole["request"]
    for part, bound in (
        ({"recordings": whole["recordings"] * 1001}, "1000"),
        ({"files": {str(n): "" for n in range(1001)}}, "1000"),
        ({"request": request | {"llms": ["a"] * 1001}}, "1000"),
        ({"request": request | {"values": [1] * 10_001}}, "10000"),
    ):
        path.write_text(json.dumps(whole | part))
        with pytest.raises(UsageError, match=bound):
            read_receipt(path)
