"""Searches over recorded trees in evaluations: the same numbers in every form, and what is
refused.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import said
from recorded_trees import write_full_trees, write_trees
from small import numbers

from feval import METHODS, SelfConsistency, evaluate, import_recording, load, method_curve
from feval.errors import MethodError, NotRecordedError, OutOfRangeError, UsageError
from feval.evaluation.method_names import make_method
from feval.evaluation.replicates import drawn_orders
from feval.methods import BeamSearch, ParticleFiltering
from feval.serving.library import Library

ROOT = Path(__file__).parents[2]
GOLDS = ["a", "b", "c", "a", "b", "a"]
FILE = """
def beam(question, llm):
    steps = llm.expand(None, 4)
    finished = [step for step in steps if step.ends]
    while kept := sorted((s for s in steps if not s.ends), key=lambda s: -(s.score() or 0))[:1]:
        steps = llm.expand(kept[0], 4)
        finished += [step for step in steps if step.ends]
    sums = {}
    for step in finished:
        if step.answer is not None and step.score() is not None:
            sums[step.answer] = sums.get(step.answer, 0) + step.score()
    return max(sums, key=sums.get, default=None)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_full_trees(tmp_path_factory.mktemp("trees") / "toy", GOLDS)


@pytest.fixture(scope="module")
def replay(folder):
    return load("toy", recording=folder, seed=4)


@pytest.mark.parametrize("order", ["recorded", "seeded"])
def test_every_form_gives_the_same_numbers(order, replay, tmp_path):
    """The method of the file is beam search where a missing score ranks as 0."""
    file = tmp_path / "beam.py"
    file.write_text(FILE)
    batch = BeamSearch(4, 4)
    first, second = (
        numbers(evaluate(each, *replay, order=order, replicates=3))
        for each in (batch, batch.__call__)
    )
    assert first == second
    if order == "recorded":
        own = evaluate(make_method(f"{file}:beam"), *replay, order=order)
        assert own.samples.tolist() == first["samples"]


def test_blocks_and_curves(replay):
    dataset, llms = replay
    curve = method_curve(
        dataset, llms, "beam-search", "n", [4, 8], settings={"width": 4}, replicates=4
    )
    assert [point.n for point in curve.points] == [4, 8]
    alone = [
        evaluate(ParticleFiltering(3), dataset, llms, rows=[row], replicates=4).samples[0]
        for row in range(3)
    ]
    assert evaluate(ParticleFiltering(3), dataset, llms, replicates=4).samples[:3].tolist() == alone


def test_trees_and_whole_cots_are_not_taken_for_each_other(replay, tmp_path):
    with pytest.raises(
        UsageError, match="tree was recorded on toy as trees of steps, which are no whole CoTs"
    ):
        evaluate(SelfConsistency(2), *replay)
    with pytest.raises(
        MethodError, match="on question 'toy/0' failed: tree was recorded on toy as trees of steps"
    ):
        evaluate(lambda question, llm: llm.sample(1).answers[0], *replay)
    dataset, llms = load(
        "toy", ["alpha"], write_trees(tmp_path / "r", whole={"alpha": [["4"]] * 3})
    )
    with pytest.raises(
        NotRecordedError,
        match="beam-search cannot be evaluated: alpha on toy was recorded as whole",
    ):
        evaluate(BeamSearch(4, 4), dataset, llms, unlabelled="drop")
    with pytest.raises(
        NotRecordedError, match="asks tree for 4 first steps on question 'toy/1', and 1 was"
    ):
        evaluate(
            METHODS["dvts"](4, 4),
            *load("toy", ["tree"], tmp_path / "r"),
            unlabelled="drop",
            rows=[1],
        )


def test_a_tree_beyond_what_draws_number_is_refused_in_every_order():
    with pytest.raises(
        OutOfRangeError, match="Draws reach 65534 CoTs per question; a pool has 65535"
    ):
        next(drawn_orders(None, "recorded", 1, 65_535, np.arange(1)))


def test_steps_are_not_served_as_cots(folder):
    with pytest.raises(UsageError, match="tree was recorded on toy as trees of steps"):
        Library(folder)


def test_the_page_of_steps_runs(tmp_path):
    out = import_recording(
        "jsonl",
        ROOT / "examples" / "tree.jsonl",
        tmp_path / "trees",
        dataset="toy",
        answer_kind="number",
    )
    options = "--set n=2 --set width=2 --set aggregate=min --json --order recorded --recording"
    assert json.loads(said("run beam-search", options, out))["correct"] == 2
    names = {}
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "depth.md").read_text("utf-8"), re.DOTALL
    )
    [code] = [block for block in blocks if "def greedy(" in block]
    exec(code, names)  # noqa: S102  the page's own example
    assert evaluate(names["greedy"], *load("toy", recording=out), order="recorded").accuracy == 1.0
