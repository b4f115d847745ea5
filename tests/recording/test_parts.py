"""Parts in several files: read, verified and fetched as if they were in one."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from readings import readings
from small import (
    SCORER,
    changed_manifest,
    content,
    in_parts,
    letters,
    pool,
    restate,
    scored_pool,
    stated,
    write_rows,
)

from feval.errors import DamagedRecordingError
from feval.publish.card import Page, card
from feval.publish.front_matter import Licence, configs_of
from feval.recording import add_scores, open_recording, verify_recording
from feval.recording.verify import Part, check_leaf, check_votes, listed_parts

ANSWERS = letters("44-", "75", "", "4491", "8")
GOLDS = ["4", "5", "6", None, "8"]
CUTS = {"samples": 2, "texts": 1, "requests": 3, "reasoning": 1, "logprobs": 2, "scores": 1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A recording with every part, some of them without some questions."""
    folder = tmp_path_factory.mktemp("whole")
    rows = [scored_pool("alpha", row, answers) for row, answers in enumerate(ANSWERS)]
    thoughts = {0: ["Hm", None, "Ah"], 3: ["a", "b", None, "c"], 4: ["z"]}
    pools = [
        replace(rich, reasoning=thoughts.get(row), extra={"seed": [*range(len(rich.texts))]})
        for row, (rich, _) in enumerate(rows)
    ]
    write_rows(
        folder / "plain",
        GOLDS,
        ("alpha", pools),
        ("org/beta", [pool(1, ["5"]), pool(4, ["8", "8"])]),
    )
    return add_scores(
        folder / "plain",
        folder / "whole",
        SCORER,
        {("toy", "alpha"): [scored for _, scored in rows]},
    )


@pytest.fixture(scope="module")
def cut(whole):
    """The same recording with its files cut at different questions."""
    return in_parts(whole, whole.with_name("cut"), CUTS)


def test_parts_in_several_files_are_read_like_one(whole, cut):
    assert len(open_recording(cut).files("texts", "toy", "alpha")) == 4
    assert (
        open_recording(cut)
        .files("scores/judge:toy", "toy", "alpha")[-1]
        .endswith("/part-00002.parquet")
    )
    assert readings(cut) == readings(whole)


def test_parts_in_several_files_verify(cut):
    assert verify_recording(cut).problems == ()
    recording = open_recording(cut)
    for part in set(listed_parts(recording.manifest).values()):
        check_leaf(recording, part)
    check_votes(recording, "toy", ["alpha", "org/beta"])


@pytest.mark.parametrize(
    "old",
    [
        "texts/toy/alpha/part-00001.parquet",
        "scores/toy/alpha/judge_toy-13e54c5e/part-00000.parquet",
    ],
)
@pytest.mark.parametrize("new", ["gap", "file", "beyond"])
def test_parts_that_do_not_follow_each_other_are_refused(cut, tmp_path, old, new):
    """A gap in the numbers, one file beside several, a number without a place."""
    folder = Path(shutil.copytree(cut, tmp_path / "r"))
    [old] = [
        path for path in content(folder) if path.startswith(old[:20]) and path.endswith(old[-18:])
    ]
    stem = old.rpartition("/")[0]
    path = {
        "gap": f"{stem}/part-00017.parquet",
        "file": f"{stem}.parquet",
        "beyond": f"{stem}/part-4.parquet",
    }[new]
    with changed_manifest(folder) as manifest:
        manifest["files"][path] = manifest["files"].pop(old)
    (folder / old).rename(folder / path)
    with pytest.raises(
        DamagedRecordingError, match="a part is one file, or several numbered from 0 without a gap"
    ):
        listed_parts(open_recording(folder).manifest)
    assert any(
        "which no recording of its datasets and LLMs has" in each
        for each in verify_recording(folder).problems
    )


def test_files_in_another_order_are_found(cut, tmp_path):
    folder = Path(shutil.copytree(cut, tmp_path / "r"))
    names = [f"texts/toy/alpha/part-0000{number}.parquet" for number in (0, 1)]
    first, second = (content(folder)[name] for name in names)
    for name, data, old in zip(names, (second, first), names[::-1], strict=True):
        (folder / name).write_bytes(data)
        restate(folder, name, rows=stated(cut)["files"][old]["rows"])
    with pytest.raises(DamagedRecordingError, match="the leaf toy / alpha / texts should be"):
        check_leaf(open_recording(folder), Part("texts", "toy", "alpha"))
    assert not verify_recording(folder).ok


def test_a_pool_that_two_files_share_is_found(whole, tmp_path):
    folder = in_parts(whole, tmp_path / "r", {"texts": 5})
    path = "texts/toy/alpha/part-00000.parquet"
    table = pq.read_table(folder / path)
    for number, piece in enumerate((table.slice(0, 4), table.slice(4))):
        name = path.replace("00000", f"0000{number}")
        pq.write_table(piece, folder / name)
        restate(folder, name, rows=len(piece))
    assert verify_recording(folder).problems == (
        f"{path}: it ends before all CoTs of its last question.",
    )


def test_a_file_of_several_that_is_damaged_is_named(cut, tmp_path):
    folder = Path(shutil.copytree(cut, tmp_path / "r"))
    path = folder / "texts/toy/alpha/part-00001.parquet"
    data = path.read_bytes()
    path.write_bytes(data[:100] + bytes([data[100] ^ 255]) + data[101:])
    assert [problem.split(":")[0] for problem in verify_recording(folder).problems] == [
        "texts/toy/alpha/part-00001.parquet"
    ]
    path.unlink()
    recording = open_recording(folder)
    assert recording.texts("toy", "alpha", 0)
    with pytest.raises(DamagedRecordingError, match=r"part-00001.parquet cannot be read"):
        recording.texts("toy", "alpha", 1)


def test_the_page_of_a_recording_lists_all_files_of_a_split(whole, cut):
    configs = [configs_of(open_recording(folder)) for folder in (whole, cut)]
    splits = [
        [(c.name, s.name, s.rows, s.nulls) for c in each for s in c.splits] for each in configs
    ]
    assert splits[0] == splits[1]
    paths = {path for config in configs[1] for split in config.splits for path in split.paths}
    assert paths == {
        path for path in open_recording(cut).manifest.files if path.endswith(".parquet")
    }
    page = card(Page(open_recording(cut), "a/b", "t", [], configs[1], Licence("mit")))
    fields = yaml.safe_load(page.split("---")[1])
    [texts] = [config for config in fields["configs"] if config["config_name"] == "toy-texts"]
    assert len(texts["data_files"]) == 2
    assert texts["data_files"][0]["path"] == [
        f"texts/toy/alpha/part-0000{number}.parquet" for number in range(4)
    ]
