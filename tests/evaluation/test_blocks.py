"""Evaluation in blocks of questions: the cut, and who worked on it, show in no number."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small import write_toy

from feval.errors import ConflictError, NotARecordingError
from feval.evaluation import replicates as blocks
from feval.evaluation.curves import method_curve, self_consistency_curve
from feval.evaluation.evaluation import evaluate
from feval.forecast import estimate
from feval.methods import AdaptiveConsistency, Cascade, DifficultyAdaptive, SelfConsistency
from feval.recording.verify import _check_file
from feval.replay import LLM, load
from feval.replay.loading import LoadRecipe

ANSWERS = [["abc"[(i * i + k * i + k) % 7 % 3] for i in range(8)] for k in range(11)]


@pytest.fixture
def replay(tmp_path):
    one = {"one": ANSWERS, "two": [answers[::-1] for answers in ANSWERS]}
    yield load(
        "toy",
        ["one", "two"],
        write_toy(tmp_path / "toy", one, list("abcabcabcab")),
        prices="none",
        seed=4,
    )
    blocks._loaded.cache_clear()


@pytest.fixture(params=["blocks", "tasks"])
def executor(request, monkeypatch):
    """Blocks of three questions in this process; tasks of one question on an executor."""
    monkeypatch.setattr(blocks, "_QUESTIONS", 3)
    monkeypatch.setattr("feval.evaluation.replicates._CHUNK_CODES", 50)
    monkeypatch.setattr(blocks, "_TRIAL_SECONDS", 1e-9)
    monkeypatch.setattr(blocks, "_TASK_SECONDS", 1e-9)
    if request.param == "blocks":
        yield None
    else:
        with ThreadPoolExecutor(3) as threads:
            yield threads


@pytest.fixture
def whole(replay):
    """What comes out in one piece."""
    return computed(replay, None)


def computed(replay, executor):
    dataset, [one, two] = replay
    seeded = {"order": "seeded", "replicates": 5, "executor": executor}
    recorded = {"order": "recorded", "executor": executor}
    estimated = {"methods": ("unbiased", "plug-in"), "executor": executor}
    evaluations = [
        evaluate(AdaptiveConsistency(budget=6), dataset, one, **seeded, rows=[9, 1, 2, 3, 4, 7]),
        evaluate(
            Cascade(thresholds=(0.7,), score="vote-share", samples=3), dataset, [one, two], **seeded
        ),
        evaluate(DifficultyAdaptive(budget=4, ranking="prompt-length"), dataset, one, **seeded),
    ]
    names = ("right", "calls", "samples", "tokens", "no_answer", "stopped_early", "routed_wrong")
    return {
        "evaluations": [evaluation.to_dict() for evaluation in evaluations],
        "questions": [
            getattr(evaluation, name).tolist() for evaluation in evaluations for name in names
        ],
        "plain": self_consistency_curve(dataset, one, [1, 4, 8], **seeded).to_dict(),
        "recorded": self_consistency_curve(dataset, one, [2, 3], **recorded).to_dict(),
        "swept": method_curve(dataset, [one], "self-consistency", "n", [1, 3], **seeded).to_dict(),
        "estimated": estimate(dataset, one, g=3, m=[1, 3], **estimated).to_dict(),
    }


# In this order: the whole is computed before the fixture `executor` makes the cut small.
def test_the_cut_shows_in_no_number(whole, executor, replay):
    assert computed(replay, executor) == whole


def test_orders_stay_small_whatever_the_number_of_questions(executor, replay, monkeypatch):
    orders, drawn = LLM.orders, []

    def spied(*arguments):
        drawn.append(orders(*arguments))
        return drawn[-1]

    monkeypatch.setattr(LLM, "orders", spied)
    seen = []
    evaluate(SelfConsistency(4), replay[0], replay[1][0], order="seeded", replicates=30,
    executor=executor,
             progress=lambda *done: seen.append(done))  # fmt: skip
    assert max(each.size for each in drawn) <= 50
    assert seen[-1] == (11, 11)
    assert [done for done, _ in seen] == ([3, 6, 9, 11] if executor is None else [*range(1, 12)])


def test_a_worker_says_that_it_needs_the_recording_and_the_right_one(tmp_path, replay):
    recipe = LoadRecipe.from_loaded(*replay)
    place = Path(recipe.recordings[0][0])
    place.rename(tmp_path / "elsewhere")
    with pytest.raises(
        NotARecordingError,
        match=r"A worker cannot open the recording: .* same path, or from the Hub",
    ):
        blocks.question_block(lambda *_: None, SelfConsistency(1), recipe, slice(0, 1))
    with pytest.raises(
        NotARecordingError, match=r"A worker finds no recording in .* from the same path"
    ):
        _check_file(place, None, "README.md", {})
    write_toy(place, {"one": ANSWERS[:2], "two": ANSWERS[:2]}, ["a", "b"])
    with pytest.raises(ConflictError, match="has changed: its hash was"):
        blocks.question_block(lambda *_: None, SelfConsistency(1), recipe, slice(0, 1))


def test_threads_of_one_worker_load_a_recording_once(replay, monkeypatch):
    load_once, loads = LoadRecipe.load, []

    def spied(recipe):
        loads.append(recipe)
        time.sleep(0.05)  # others would begin meanwhile
        return load_once(recipe)

    monkeypatch.setattr(LoadRecipe, "load", spied)
    recipe = LoadRecipe.from_loaded(*replay)
    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(blocks.loaded, [recipe] * 4)
    assert len(loads) == 1
    assert all(other is first for other in others)
