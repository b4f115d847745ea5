"""Recorded trees: every step is continued by its children, through the journal, the sealed
recording and every resumption.
"""

import json
from collections import Counter

import pytest
from command_line import feval, told
from killed import run
from watched import SEED, Watched, gone_on, recorded, tiny_task

from feval import BeamSearch, load
from feval.errors import FevalError, StorageError, UsageError
from feval.recording import open_recording, verify_recording
from recorders import tiny
from recorders.asking.pace import Limits
from recorders.asking.trees import Tree, child_seed
from recorders.backends.local import Tiny
from recorders.errors import Fatal, MissingError
from recorders.request import Completion

DATASET, MODEL, LLM = "tiny_sums", "feval/tiny-42k", "feval/tiny-42k@steps"
DEPTH = 4


def task(**changes):
    return tiny_task(2, **{"tree": True, "branch": 2, "depth": DEPTH} | changes)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("trees") / "r", task())


def test_each_step_is_what_the_model_writes_behind_the_path_with_the_seed_of_the_child(tree):
    assert verify_recording(tree.path).ok
    assert tree.llm_info(LLM).decoding["steps"] == {
        "first": 2,
        "branch": 2,
        "depth": DEPTH,
        "stop": ". ",
    }
    questions = {question.id: question.text for question in tree.questions(DATASET)}
    for pool in tree.pools(DATASET, LLM):
        paths = []
        numbers = []
        for step, (parent, text) in enumerate(zip(pool.parents, pool.texts, strict=True)):
            before, path = ("", ()) if parent is None else (paths[parent], numbers[parent])
            child = pool.parents[:step].count(parent)
            seed = SEED + child_seed(path, child)
            [answer] = tiny.sample(
                tiny.load_model(MODEL),
                questions[pool.question_id],
                [seed],
                tiny.TinyDecoding(max_tokens=100),
                None,
                before,
            )
            piece, stop, _ = answer.text.partition(". ")
            is_last = len(path) + 1 == DEPTH
            assert text == (answer.text if is_last or not stop else f"{piece}.")
            assert pool.ends[step] == (is_last or not stop)
            paths.append(f"{before}{text}")
            numbers.append((*path, child))
        going_on = [step for step, ends in enumerate(pool.ends) if not ends]
        assert Counter(pool.parents) == dict.fromkeys([None, *going_on], 2)


def test_a_run_that_stops_goes_on_without_asking_anything_twice(tree, tmp_path):
    again, first, second = gone_on(tmp_path / "r", task(), 31, Limits(4))
    assert again.hash == tree.hash
    assert not {*first.asked} & {*second.asked}
    assert len(first.asked) + len(second.asked) == tree.manifest.pairs[DATASET, LLM]["cots"]


def test_a_complete_tree_is_left_alone_and_another_refused(tree, tmp_path):
    backend = Watched()
    assert recorded(tree.path, task(), backend).hash == tree.hash
    with pytest.raises(StorageError, match="is another recording"):
        recorded(tree.path, task(depth=DEPTH + 1), backend)
    with pytest.raises(UsageError, match="recorded whole and anew; leave partial and start out"):
        recorded(tmp_path / "r", task(), backend, start=tree.path)
    assert backend.asked == []
    with pytest.raises(Fatal):
        recorded(tmp_path / "r", task(), Watched(5), limits=Limits(1))
    with pytest.raises(MissingError, match="of 60 steps, and the mode 'none' asks for nothing"):
        recorded(tmp_path / "r", task(), backend, mode="none")


def test_a_dry_run_says_how_many_steps_and_what_they_cost_at_most(tmp_path):
    options = (
        f"--dataset {DATASET} --llm {MODEL} --first 2 --max-tokens 50 --tree --set branch=2"
        " --set depth=4 --json --dry-run"
    )
    account = json.loads(feval(f"record {options} --out {tmp_path}/r").stdout)
    assert (account["cots"], account["calls"], account["unit"]) == (
        2 * (2 + 4 + 8 + 16),
        30,
        "step",
    )
    assert account["output_tokens"] == 2 * 16 * 50
    assert account["usd"] > 0
    expected = []
    with pytest.raises(Fatal):  # the price is there before anything is asked
        recorded(tmp_path / "r", task(), Watched(0), expected=expected.append)
    assert [(estimate.cots, estimate.usd is not None) for estimate in expected] == [(60, True)]


@pytest.mark.slow
def test_a_tree_is_recorded_scored_and_searched_from_the_command_line(tmp_path, monkeypatch):
    brief = "def brief(question, text, answer):\n    return 1 / (1 + len(text))\n"
    (tmp_path / "verifier.py").write_text(brief)
    monkeypatch.syspath_prepend(tmp_path)
    trees, scored = tmp_path / "trees", tmp_path / "scored"
    own = f"record --dataset {DATASET} --llm {MODEL} --first 3 --tree --set branch=2 --set depth=3"
    assert told(own, "--out", trees)["pairs"][0]["cots"] <= 3 * (2 + 4 + 8)
    told("score", trees, "--scorer python:verifier:brief --set name=brief --out", scored)
    settings = "--set n=2 --set width=2 --set scorer=brief --order recorded"
    result = told("run beam-search --recording", scored, settings)
    dataset, [llm] = load(DATASET, LLM, scored)
    search = BeamSearch(n=2, width=2, scorer="brief")
    right = [
        dataset.is_right(row, search(dataset[row].question, llm.ask(row, replicate=None)))
        for row in range(3)
    ]
    assert result["correct"] == sum(right)


def test_a_server_that_does_not_say_why_a_step_ended_is_refused(tmp_path):
    class Silent(Tiny):
        async def complete(self, request, samples):
            return [Completion("2 * 3 = 6", "stop", output_tokens=8) for _ in samples]

    with pytest.raises(
        Fatal, match="does not say whether a step ended at the stop text or by itself"
    ):
        recorded(tmp_path / "r", task(), Silent())


def test_wrong_trees_are_refused_before_anything_is_asked():
    for fields, message in (
        ({"depth": 0}, "depth of a tree is 1 to 65,534; 0 was given"),
        ({"depth": 16}, r"more than the 65,534 steps .*; lower depth, branch or `samples`"),
        ({"step_stop": "  "}, "stop text of the steps is empty or of blanks"),
        ({"step_template": "no place"}, "step_template holds"),
        ({"probe_every": 9}, "leave one of `tree` and probe_every out"),
        ({"tree": False}, "branch is for trees of steps; add `tree`"),
    ):
        with pytest.raises(FevalError, match=message):
            task(**fields)
    assert task(samples=6).tree == Tree(6, 2, DEPTH, ". ")
    assert Tree(6, 2, DEPTH, ". ").steps == 6 * (1 + 2 + 4 + 8)


def test_trees_are_as_deep_as_a_recording_holds():
    for branch, depth in ((1, 8), (3, 8), (4, 7), (300, 1)):
        assert task(branch=branch, depth=None).tree == Tree(branch, branch, depth, ". ")
    with pytest.raises(FevalError, match="branch of a tree is 1 to 65,534"):
        task(branch=70_000, depth=None)


KILLED = """
from pathlib import Path
from killed import logging, through_kills
from test_record_trees import Tiny, Limits, recorded, task

logged, limits = logging(Tiny, sys.argv[2]), Limits(4, samples_per_request=1)
through_kills(lambda: recorded(Path(sys.argv[1]), task(), logged(), limits=limits), 15)
"""


@pytest.mark.slow
def test_kills_while_a_tree_grows_lose_nothing_and_repeat_little(tree, tmp_path):
    run(KILLED, tmp_path / "r", tmp_path / "asked", of=__file__)
    assert open_recording(tmp_path / "r").hash == tree.hash
    steps = tree.manifest.pairs[DATASET, LLM]["cots"]
    assert steps <= len((tmp_path / "asked").read_text().split()) <= steps + 15 * 4
