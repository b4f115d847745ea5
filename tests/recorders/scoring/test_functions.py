"""Functions as scorers, and what every scorer has in common."""

import math
import sys
from decimal import Decimal

import numpy as np
import pytest
from loopback import Server
from places import read_data
from recorded_trees import write_trees
from recorded_turns import write_turns
from scoring_doubles import GOLDS, rewards, run, score

from feval import errors
from feval.errors import DamagedRecordingError, NotRecordedError, StorageError, UsageError
from feval.recording import open_recording, verify_recording
from feval.recording.arrays import path_texts
from recorders.errors import RecorderError
from recorders.journal import journal_folder
from recorders.scoring.scorers import make_scorer
from recorders.scoring.scores import Score, read_score


def test_a_step_is_scored_by_the_path_to_it(tmp_path, functions):
    run(write_trees(tmp_path / "r"), tmp_path / "out", f"python:{functions}:length", name="length")
    recording = open_recording(tmp_path / "out")
    values = recording.scores("toy", "tree", "length").values[0]
    sizes = [len(text or "") for text in recording.texts("toy", "tree", 0)]
    joint = len("\n\n")
    expected = [
        sizes[0],
        sizes[1],
        *(sizes[0] + joint + size for size in sizes[2:4]),
        sizes[1] + joint + sizes[4],
    ]
    expected += [sizes[0] + sizes[3] + 2 * joint + size for size in sizes[5:7]]
    assert values.tolist() == expected


def test_a_turn_is_scored_by_itself(tmp_path, functions):
    run(write_turns(tmp_path / "r"), tmp_path / "out", f"python:{functions}:length", name="length")
    recording = open_recording(tmp_path / "out")
    texts = recording.texts("toy", "m@revise", 0)
    assert recording.scores("toy", "m@revise", "length").values[0].tolist() == [
        len(text or "") for text in texts
    ]
    assert verify_recording(tmp_path / "out").problems == ()


@pytest.mark.parametrize(("texts", "stop", "path"), read_data("replies.json")["joined steps"])
def test_steps_are_joined_by_the_text_that_ended_them(texts, stop, path):
    assert list(path_texts(texts, [None, 0], stop)) == [texts[0], path]
    assert list(path_texts([None, "b"], [None, 0], stop)) == [None, None]


def test_a_function_scores_every_cot(toy, tmp_path, functions):
    done = run(toy, tmp_path / "out", f"python:{functions}:length")
    assert (
        done.counts["cots"],
        done.new,
        done.counts["with_score"],
        done.counts["unreadable"],
        done.notes,
    ) == (7, 7, 7, 0, ())
    recording = open_recording(tmp_path / "out")
    assert recording.hash == done.recording_hash
    values = recording.scores("toy", "alpha", done.scorer).values
    texts = [recording.texts("toy", "alpha", row) for row in range(2)]
    assert values[0].tolist() == [len(text or "") for text in texts[0]]
    assert values[1, 0] == len(texts[1][0] or "")
    assert np.isnan(values[1, 1:]).all()
    assert verify_recording(tmp_path / "out").problems == ()
    assert not journal_folder(tmp_path / "out").exists()
    info = recording.scorer_info(done.scorer)
    assert info.parameters["function"] == f"{functions}:length"
    assert len(info.parameters["source_sha256"]) == 64
    assert recording.manifest.raw["operation"] == {
        "name": "score",
        "kind": "python",
        "scorer": done.scorer,
    }


def test_a_scorer_never_sees_the_gold(toy, tmp_path, functions):
    run(toy, tmp_path / "out", f"python:{functions}:length", name="len")
    calls = sys.modules[functions].calls  # type: ignore[attr-defined]
    assert ("What is question 0?", "Thinking about 0, sample 2. The answer is None.", None) in calls
    assert GOLDS[0] not in repr(calls)


def test_step_scores_none_and_what_is_not_finite(toy, tmp_path, functions):
    done = run(toy, tmp_path / "out", f"python:{functions}:steps", name="steps")
    assert (done.counts["with_score"], done.counts["unreadable"]) == (5, 1)
    assert done.notes == (
        "1 of 7 CoTs has no score: what steps said holds none that can be read.",
        "1 of 7 CoTs has no score: steps gave none.",
    )
    scores = open_recording(tmp_path / "out").scores("toy", "alpha", "steps")
    assert scores.steps.of(0, 0).tolist() == [0.5, 0.25, 1.0]
    assert scores.scored.tolist() == [[True] * 3, [True, False, False]]
    assert scores.aggregated("min")[0].tolist()[:2] == [0.25, 0.25]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"ValueError: no good; scorers_of_mine.py, line 13\)\. Correct it"),
        ("wrong", "returned 'high'"),
        ("leaves", r"SystemExit: 3; scorers_of_mine.py, line \d+\)"),
        ("stumbles", r"ZeroDivisionError: .*; scorers_of_mine.py, line \d+\)"),
        ("one_argument", "takes 1 positional argument but 3 were given"),
        ("mixed", r"returned \[0.5, None\]"),
        ("named", r"returned \{'score': 1\}"),
    ],
)
def test_a_function_that_fails_is_named(toy, tmp_path, functions, name, message):
    with pytest.raises(RecorderError, match=message):
        run(toy, tmp_path / "out", f"python:{functions}:{name}")
    assert not (tmp_path / "out").exists()


def test_values_of_any_kind_of_number_are_scores():
    read = read_score
    assert read(np.float32(0.5)) == read(np.array(0.5)) == read(Decimal("0.5")) == Score(0.5)
    assert read(True) == Score(1.0)
    assert read(-3) == Score(-3.0)
    assert read(np.array([-1.0, 0.25])) == read(iter([-1, 0.25])) == Score(step_scores=(-1.0, 0.25))
    assert read([]) == read(None) == Score()
    unreadable = [
        10**400,
        math.inf,
        math.nan,
        [0.5, math.nan],
        [10**400],
        np.array(math.nan),
        Decimal("NaN"),
    ]
    assert [read(value) for value in unreadable] == [Score(problem="unreadable")] * len(unreadable)
    for value in ("0.5", b"1", 1j, {"a": 1}, [[1.0]], ["1"], object()):
        assert read(value) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = (", r"SyntaxError: .*broken_scorer.py, line 1\)\)\. Correct it"),
        ("1 / 0", r"ZeroDivisionError: division by zero; broken_scorer.py, line 1\)\. Correct it"),
        ("raise SystemExit(4)", r"SystemExit: 4; broken_scorer.py, line 1\)"),
        (
            "import no_such_thing",
            r"No module named 'no_such_thing'; broken_scorer.py, line 1\)\. Correct it, or install",
        ),
    ],
)
def test_a_module_that_fails_is_a_sentence(tmp_path, monkeypatch, source, message):
    (tmp_path / "broken_scorer.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        make_scorer("python:broken_scorer:f")


def test_only_some_pairs(toy, tmp_path, functions):
    made = make_scorer(f"python:{functions}:length", name="len")
    score(toy, tmp_path / "out", made, llms=["org/beta"], datasets=["toy"])
    recording = open_recording(tmp_path / "out")
    assert (recording.scorers("toy", "alpha"), recording.scorers("toy", "org/beta")) == (
        [],
        ["len"],
    )
    with pytest.raises(StorageError, match="by 'len' already"):
        score(tmp_path / "out", tmp_path / "again", made)
    for names in ({"llms": ["x"]}, {"datasets": ["x"]}):
        with pytest.raises(NotRecordedError, match="x"):
            score(toy, tmp_path / "again", made, **names)
    with pytest.raises(StorageError, match="exists already"):
        score(toy, tmp_path / "out", made)


@pytest.mark.parametrize(("spec", "error", "message"), read_data("commands.json")["no scorers"])
def test_a_spec_that_cannot_work_is_refused(spec, error, message):
    with pytest.raises(getattr(errors, error), match=message):
        make_scorer(spec)


def test_a_damaged_recording_is_refused_before_anything_is_asked(toy, tmp_path):
    path = next((toy / "texts").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with Server(rewards) as server:
        with pytest.raises(
            DamagedRecordingError, match=r"does not verify: texts/toy/.* Nothing was scored"
        ):
            run(toy, tmp_path / "out", f"http:{server.url}")
        assert server.seen == []


def test_nothing_is_written_into_a_recording(toy, functions):
    for spec in (toy / "inside", toy / "deep" / "inside"):
        with pytest.raises(StorageError, match="would lie inside the recording"):
            run(toy, spec, f"python:{functions}:length")
    assert sys.modules[functions].calls == []  # type: ignore[attr-defined]
    assert verify_recording(toy).problems == ()


def test_a_function_is_told_which_cot_it_scores_if_it_asks(toy, tmp_path, functions):
    path = tmp_path / f"{functions}.py"
    path.write_text(
        path.read_text()
        + """
def by_place(question, text, answer, sample, *, llm, question_id="", temperature=0.5):
    assert question.endswith(question_id[-1] + "?")
    return 10 * int(question_id[-1]) + sample + 100 * (llm == "org/beta")

def positional(question, sample, llm):
    return len(sample)
"""
    )
    run(toy, tmp_path / "out", f"python:{functions}:by_place", name="place")
    recording = open_recording(tmp_path / "out")
    assert recording.scores("toy", "alpha", "place").values[0].tolist() == [0, 1, 2]
    assert recording.scores("toy", "org/beta", "place").values[1].tolist() == [110, 111]
    run(toy, tmp_path / "b", f"python:{functions}:positional", name="length")
    text = open_recording(toy).texts("toy", "alpha", 0)[1]
    assert open_recording(tmp_path / "b").scores("toy", "alpha", "length").values[0, 1] == len(
        text or ""
    )
