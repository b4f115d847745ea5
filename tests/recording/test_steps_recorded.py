"""Trees of steps in a recording: what is added is read, hashed and verified, in every derived
recording too.
"""

from dataclasses import replace

import numpy as np
import pytest
from places import read_data
from recorded_trees import GOLDS, TREES, tree, write_trees
from small import change_column, changed_manifest, letters, pool, restate, write_rows, write_toy

from feval.errors import ConflictError, DamagedRecordingError, NotRecordedError, UsageError
from feval.recording import Steps, extract, merge, open_recording, select, verify_recording
from feval.replay import load
from feval.report.tables.recordings import info_headline, info_tables


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    return write_trees(
        tmp_path_factory.mktemp("trees") / "toy", whole={"alpha": letters("44", "5", "1")}
    )


def test_steps_are_read_as_arrays(trees):
    recording = open_recording(trees)
    steps = recording.steps("toy", "tree")
    assert steps is not None
    assert steps.parents.tolist() == [[-1, -1, 0, 0, 1, 3, 3], [-1, *[-2] * 6], [-2] * 7]
    assert steps.ends.tolist() == [[0, 0, 1, 0, 1, 1, 1], [1, *[0] * 6], [0] * 7]
    children = [list(steps.children(0, step)) for step in range(-1, 7)]
    assert children == [[0, 1], [2, 3], [4], [], [5, 6], [], [], []]
    assert list(steps.children(2, -1)) == []
    assert recording.steps("toy", "alpha") is None
    assert (recording.has_steps("toy", "tree"), recording.has_steps("toy", "alpha")) == (
        True,
        False,
    )


def test_trees_come_back_as_they_were_added(trees):
    assert list(open_recording(trees).pools("toy", "tree")) == [
        tree(i, each) for i, each in enumerate(TREES)
    ]
    assert verify_recording(trees).problems == ()


def test_the_manifest_says_how_deep_they_are(trees):
    manifest = open_recording(trees).manifest.raw
    assert manifest["features"] == ["scores", "steps"]
    assert (manifest["pairs"][0]["depth"], manifest["pairs"][0]["branching"]) == (3, 2)
    assert "depth" not in manifest["pairs"][1]
    assert manifest["llms"][0]["decoding"]["steps"] == {"stop": "\n\n", "policy": "all children"}


@pytest.mark.parametrize(("changes", "sentence"), read_data("recordings.json")["what is no tree"])
def test_what_is_no_tree_is_refused(changes, sentence, tmp_path):
    with pytest.raises(UsageError, match=f"^tree on toy, question 'toy/0': .*{sentence}"):
        write_rows(tmp_path / "r", ["4"], ("tree", [replace(tree(0, TREES[0]), **changes)]))


def test_trees_and_whole_cots_are_two_llms(tmp_path):
    with pytest.raises(
        UsageError, match="'toy/1': steps of a tree, and whole CoTs on other questions"
    ):
        write_rows(tmp_path / "r", ["4", "4"], ("tree", [tree(0, TREES[0]), pool(1, ["4"])]))


def test_derived_recordings_keep_trees(trees, tmp_path):
    hash_ = open_recording(trees).hash
    alone = select(trees, tmp_path / "alone", llms=["tree"])
    others = select(trees, tmp_path / "others", llms=["alpha"])
    assert open_recording(others).manifest.raw["features"] == []
    first = select(trees, tmp_path / "first", questions=["toy/0"])
    rest = select(trees, tmp_path / "rest", questions=["toy/1", "toy/2"])
    extracted = extract(trees, tmp_path / "extracted", source="stored").path
    for derived in (alone, first, rest, merge([alone, others], tmp_path / "m"), extracted):
        assert verify_recording(derived).problems == ()
        assert open_recording(derived).has_steps("toy", "tree")
    assert open_recording(tmp_path / "m").hash == hash_
    joined = merge([first, rest], tmp_path / "joined")
    assert open_recording(joined).hash == hash_
    assert list(open_recording(joined).pools("toy", "tree")) == list(
        open_recording(trees).pools("toy", "tree")
    )


def test_answers_are_read_again_only_where_a_solution_ends(tmp_path):
    parent = write_trees(tmp_path / "r")
    out = extract(parent, tmp_path / "x", answer_kind="number", source="text").path
    [first, *_] = open_recording(out).pools("toy", "tree")
    assert first.answers == [None, None, "4", None, "5", "4", None]
    assert first.texts == tree(0, TREES[0]).texts
    assert verify_recording(out).problems == ()


def test_a_larger_tree_is_no_continuation(trees, tmp_path):
    grown = [[*TREES[0], (3, "5", True)], *TREES[1:]]
    with pytest.raises(ConflictError, match="with other content on 'toy/0'"):
        merge([trees, write_trees(tmp_path / "more", grown, scores=[])], tmp_path / "out")


def test_arrays_that_contradict_the_file_are_found(tmp_path):
    folder, other = write_trees(tmp_path / "r"), [*TREES]
    other[0] = [*other[0][:4], (0, "5", True), *other[0][5:]]
    swapped = write_trees(tmp_path / "other", other)
    path = "votes/toy.details"
    (folder / path).write_bytes((swapped / path).read_bytes())
    restate(folder, path)
    [problem] = verify_recording(folder).problems
    assert problem.startswith(
        f"{path}: it contradicts the Parquet files (tree: parents on 'toy/0')"
    )


def test_steps_that_are_missing_are_never_read_as_whole_cots(trees, tmp_path):
    path = "steps/toy/tree.parquet"
    folder = write_trees(tmp_path / "unlisted")
    with changed_manifest(folder) as manifest:
        del manifest["files"][path], manifest["pairs"][0]["depth"]
    assert open_recording(folder).has_steps("toy", "tree")
    for derived in (
        lambda: select(folder, tmp_path / "s", questions=["toy/0"]),
        lambda: merge([folder, trees], tmp_path / "m"),
    ):
        with pytest.raises(DamagedRecordingError, match=f"does not list {path}"):
            derived()
    whole = write_trees(tmp_path / "whole", [[], [], []], scores=[[], [], []])
    for name in ("votes/toy.votes", "votes/toy.details"):
        (folder / name).write_bytes((whole / name).read_bytes())
        restate(folder, name)
    with pytest.raises(
        DamagedRecordingError, match="steps of tree on toy, and its votes files have none"
    ):
        load("toy", ["tree"], folder)[1][0].pool.steps()


@pytest.mark.parametrize(
    ("llms", "headline", "heading"),
    [
        (["tree"], ": 8 steps, 1 LLM", "steps"),
        (["alpha"], ": 4 CoTs, 1 LLM", "CoTs"),
        (["tree", "alpha"], ": 4 CoTs, 8 steps, 2 LLMs", "CoTs, steps"),
    ],
)
def test_info_calls_steps_steps(llms, headline, heading, trees, tmp_path):
    recording = open_recording(select(trees, tmp_path / "r", llms=llms))
    assert headline in info_headline(recording)
    [pools] = [table for table in info_tables(recording) if table.title == "pools"]
    assert [column.name for column in pools.columns][2] == heading
    assert {row[1]: row[4] for row in pools.rows} == {
        llm: "-" if llm == "tree" else "0.00" for llm in llms
    }


def test_a_forged_tree_is_not_linked(trees, tmp_path):
    path = "steps/toy/tree.parquet"
    parts = [
        select(trees, tmp_path / f"{i}", questions=[f"toy/{i}"], llms=["tree"]) for i in range(2)
    ]
    change_column(parts[0], path, "ends", lambda ends: [True, *ends[1:]])
    other = select(trees, tmp_path / "other", llms=["alpha"])
    unlike = write_toy(tmp_path / "unlike", {"beta": [["4"]]}, ["4"], dataset="other")
    for beside in (parts[1], other, unlike):
        with pytest.raises(
            DamagedRecordingError,
            match=r"0.*: tree on toy, question 'toy/0': step 2 goes on from step 0",
        ):
            merge([parts[0], beside], tmp_path / "m")
        assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("parents", "ends"),
    [([0, 0], [0, 1]), ([-1, -2], [0, 1]), ([-1, 0], [1, 1]), ([-1, 0], [0, 0]), ([-1], [0])],
)
def test_arrays_that_are_no_trees_are_refused(parents, ends):
    steps = Steps(np.array([parents]), np.array([ends]))
    with pytest.raises(ValueError, match="step"):
        steps.check(np.array([[-1, 0]]), np.array([2]))


def test_steps_are_no_samples(trees):
    dataset, [llm, alpha] = load("toy", ["tree", "alpha"], trees)
    with pytest.raises(
        UsageError, match="tree was recorded on toy as trees of steps, which are no whole CoTs"
    ):
        llm("toy/0", 1)
    with pytest.raises(UsageError, match="trees of steps"):
        llm.ask("toy/0").sample(1)
    with pytest.raises(UsageError, match="trees of steps"):
        dataset.require([alpha, llm])
    with pytest.raises(NotRecordedError, match="alpha on toy was recorded as whole CoTs"):
        alpha.pool.steps()
    assert len(GOLDS) == len(dataset)


def test_steps_of_two_recordings_are_in_the_joined_order(trees, tmp_path):
    one = select(trees, tmp_path / "one", questions=["toy/1"])
    two = select(trees, tmp_path / "two", questions=["toy/0"])
    parts = [
        select(merge([one, two], tmp_path / "m"), tmp_path / "t", llms=["tree"]),
        tmp_path / "a",
    ]
    select(merge([two, one], tmp_path / "n"), parts[1], llms=["alpha"])
    _, [alpha, llm] = load("toy", ["alpha", "tree"], parts)
    assert list(alpha.question_ids) == ["toy/0", "toy/1"]
    assert list(open_recording(parts[0]).votes("toy").question_ids) == ["toy/1", "toy/0"]
    assert llm.pool.steps().children(0, 0) == range(2, 4)
    assert llm.pool.rows(np.array([1])).steps().parents.tolist() == [[-1, *[-2] * 6]]
