"""The scores channel: what is added is read, hashed and verified, and what was there is shared."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from command_line import feval, told
from places import read_data
from recorded_probes import ANSWERS, GOLDS
from small import content, write_toy

from feval.errors import ConflictError, NotRecordedError, UnknownNameError, UsageError
from feval.recording import (
    RecordingWriter,
    ScorerInfo,
    ScoreRows,
    add_scores,
    aggregate_scores,
    extract,
    merge,
    open_recording,
    select,
    verify_recording,
)
from feval.recording.layout.format import Part

JUDGE = ScorerInfo("org/judge", "judge", {"model": "some/model", "prompt": "v1"})
ROWS = [
    ScoreRows(
        "toy/0",
        [0, 2],
        [0.5, None],
        verdicts=["fine", None],
        prompt_tokens=[9, 9],
        output_tokens=[1, None],
    ),
    ScoreRows("toy/3", [0, 1], [None, 2], step_scores=[[0.9, 0.5, 0.8], None]),
]


@pytest.fixture
def toy(tmp_path):
    return write_toy(tmp_path / "toy", ANSWERS, GOLDS)


def add(source, out, rows=ROWS, scorer=JUDGE, **options):
    """Add scores of the CoTs of alpha."""
    return add_scores(source, out, scorer, {("toy", "alpha"): rows}, **options)


@pytest.fixture
def scored(toy, tmp_path):
    return add(toy, tmp_path / "scored", notes=["Odd."])


def test_what_is_added_is_read_as_arrays(scored):
    scores = open_recording(scored).scores("toy", "alpha", "org/judge")
    assert scores.scorer == JUDGE
    nan = math.nan
    expected = [[0.5, nan, nan], [nan, nan, nan], [nan, nan, nan], [nan, 2.0, nan]]
    np.testing.assert_array_equal(scores.values, expected)
    assert scores.scored.tolist() == [
        [True, False, True],
        [False] * 3,
        [False] * 3,
        [True, True, False],
    ]
    assert scores.prompt_tokens.tolist() == [[9, -1, 9], [-1] * 3, [-1] * 3, [-1] * 3]
    assert scores.output_tokens.tolist() == [[1, -1, -1], [-1] * 3, [-1] * 3, [-1] * 3]
    assert scores.steps.of(3, 0).tolist() == [0.9, 0.5, 0.8]
    assert (
        scores.steps.of(0, 0).tolist()
        == scores.steps.of(3, 1).tolist()
        == scores.steps.of(3, 2).tolist()
        == []
    )


def test_rows_come_back_as_they_were_added(scored):
    rows = list(open_recording(scored).score_rows("toy", "alpha", "org/judge"))
    assert rows == [ROWS[0], replace(ROWS[1], scores=[None, 2.0])]


def test_an_unknown_aggregate_is_refused_and_no_steps_are_no_scores(scored, toy, tmp_path):
    with pytest.raises(UnknownNameError, match="'max'"):
        open_recording(scored).scores("toy", "alpha", "org/judge").aggregated("max")
    scores = open_recording(add(toy, tmp_path / "s", [])).scores("toy", "alpha", "org/judge")
    assert not scores.scored.any()
    assert np.isnan(scores.aggregated("mean")).all()
    assert verify_recording(tmp_path / "s").ok


@pytest.mark.parametrize("seed", range(5))
def test_aggregates_agree_with_a_loop_over_the_rows(tmp_path, seed):
    draw = random.Random(seed)  # noqa: S311  values of a test
    sizes = [draw.choice([0, 1, 3, 5]) for _ in range(7)]

    def some(make):
        return make() if draw.random() < 0.7 else None

    def numbers():
        return [draw.uniform(-2, 2) for _ in range(draw.randrange(5))]

    write_toy(tmp_path / "r", {"alpha": [["4"] * size for size in sizes]}, ["4"] * 7)
    rows = []
    for i, size in enumerate(sizes):
        given = [sample for sample in range(size) if draw.random() < 0.8]
        scores = [some(draw.random) for _ in given]
        rows.append(ScoreRows(f"toy/{i}", given, scores, [some(numbers) for _ in given]))
    rows = [own for own in rows if own.sample_indices]
    recording = open_recording(add(tmp_path / "r", tmp_path / "s", rows))

    made = {
        "score": None,
        "min": min,
        "product": math.prod,
        "last": lambda x: x[-1],
        "mean": np.mean,
        "sum": sum,
    }
    for how, reduce in made.items():
        expected = np.full((7, max(sizes)), np.nan)
        for own in rows:
            for sample, score, steps in zip(
                own.sample_indices, own.scores, own.step_scores or [], strict=True
            ):
                if reduce is None and score is not None:
                    expected[int(own.question_id[4:]), sample] = score
                elif reduce is not None and steps:
                    expected[int(own.question_id[4:]), sample] = reduce(steps)
        values = aggregate_scores(recording, "toy", "alpha", "org/judge", how)
        np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_scores_that_a_scorer_did_not_give_are_an_error(scored, toy, tmp_path):
    steps = [ScoreRows("toy/0", [0], [None], [[0.5]])]
    with_steps = open_recording(add(toy, tmp_path / "steps", steps))
    with pytest.raises(
        NotRecordedError, match=r"gave step scores only for alpha on toy.* such as 'min'"
    ):
        aggregate_scores(with_steps, "toy", "alpha", "org/judge")
    plain = [ScoreRows("toy/0", [0], [0.5])]
    without = open_recording(add(toy, tmp_path / "plain", plain))
    with pytest.raises(NotRecordedError, match=r"no step scores .* such as 'score'"):
        aggregate_scores(without, "toy", "alpha", "org/judge", "last")
    assert aggregate_scores(without, "toy", "alpha", "org/judge")[0, 0] == 0.5
    with pytest.raises(NotRecordedError, match="holds no scores of alpha on toy by 'nobody'"):
        aggregate_scores(without, "toy", "alpha", "nobody")
    with pytest.raises(NotRecordedError, match="no log-probabilities of alpha"):
        without.logprobs("toy", "alpha")


def test_the_rest_is_linked_and_the_parent_untouched(toy, tmp_path):
    before = content(toy)
    out = add(toy, tmp_path / "scored")
    assert content(toy) == before
    path = Part("scores/org/judge", "toy", "alpha").path
    assert path.startswith("scores/toy/alpha/org--judge")
    assert content(out).keys() == before.keys() | {path}
    assert {name for name in before if not (toy / name).samefile(out / name)} == {
        "README.md",
        "manifest.json",
    }


def test_the_manifest_says_who_scored_what(toy, scored):
    raw = open_recording(scored).manifest.raw
    assert raw["scorers"] == [
        {
            "name": "org/judge",
            "kind": "judge",
            "parameters": {"model": "some/model", "prompt": "v1"},
        }
    ]
    assert raw["scores"] == [
        {
            "dataset": "toy",
            "llm": "alpha",
            "scorer": "org/judge",
            "cots": 4,
            "with_score": 2,
            "with_steps": 1,
            "prompt_tokens": 18,
            "output_tokens": 1,
        }
    ]
    assert raw["operation"] == {"name": "score", "scorer": "org/judge"}
    assert raw["notes"] == ["Odd."]
    assert raw["parents"][0]["hash"] == open_recording(toy).hash
    assert (
        "| toy | `alpha` | `org/judge` | judge | 4 | 2 | 1 |" in (scored / "README.md").read_text()
    )


def test_scores_are_content(toy, scored, tmp_path):
    same = add(toy, tmp_path / "same")
    other = add(toy, tmp_path / "other", [replace(ROWS[0], scores=[0.25, None]), ROWS[1]])
    renamed = add(toy, tmp_path / "renamed", scorer=replace(JUDGE, kind="other"))
    hashes = [open_recording(path).hash for path in (toy, scored, same, other, renamed)]
    assert hashes[1] == hashes[2]
    assert len(set(hashes)) == 4


def test_several_scorers_lie_side_by_side(scored, tmp_path):
    second = ScorerInfo("len", "python")
    rows = [ScoreRows("toy/2", [0], [3.0])]
    add_scores(
        scored, tmp_path / "both", second, {("toy", "org/beta"): rows, ("toy", "alpha"): ROWS}
    )
    recording = open_recording(tmp_path / "both")
    assert recording.scorers("toy", "alpha") == ["org/judge", "len"]
    assert recording.scorers("toy", "org/beta") == ["len"]
    assert recording.scores("toy", "org/beta", "len").values[2, 0] == 3.0
    assert verify_recording(tmp_path / "both").problems == ()
    with pytest.raises(ConflictError, match=r"already has scores of alpha on toy by 'len'"):
        add(tmp_path / "both", tmp_path / "x", scorer=second)


@pytest.mark.parametrize(("row", "message"), read_data("recordings.json")["scores that cannot be"])
def test_what_cannot_be_is_refused_and_leaves_nothing(toy, tmp_path, row, message):
    with pytest.raises((ConflictError, UsageError), match=message):
        add(toy, tmp_path / "x", [ScoreRows(*row)])
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_wrong_names_are_refused(toy, tmp_path):
    for rows, error in (
        ({("toy", "gamma"): ROWS}, NotRecordedError),
        ({("ghost", "alpha"): ROWS}, NotRecordedError),
        ({}, UsageError),
    ):
        with pytest.raises(error):
            add_scores(toy, tmp_path / "x", JUDGE, rows)
    for name, *parameters in (("",), ("a\nb",), ("a", {"x": object()})):
        with pytest.raises(UsageError):
            add(toy, tmp_path / "x", scorer=ScorerInfo(name, "python", *parameters))
    with RecordingWriter(tmp_path / "y", operation={"name": "test"}) as writer:
        writer.keep_dataset(open_recording(toy), "toy")
        with pytest.raises(ConflictError, match="added twice"):
            writer.keep_dataset(open_recording(toy), "toy")
        writer.add_rows("toy", "alpha", JUDGE, ROWS)
        with pytest.raises(ConflictError, match="of alpha on toy were added twice"):
            writer.add_rows("toy", "alpha", JUDGE, ROWS)
        with pytest.raises(ConflictError, match="two kinds or parameters"):
            writer.add_rows("toy", "org/beta", replace(JUDGE, kind="x"), [])
        with pytest.raises(UsageError, match="not added"):
            writer.add_rows("toy", "gamma", JUDGE, [])


def test_merge_joins_scores_of_the_same_cots_and_select_keeps_those_of_what_it_keeps(
    toy, scored, tmp_path
):
    lengths = add(toy, tmp_path / "len", ROWS[:1], ScorerInfo("len", "python"))
    recording = open_recording(merge([toy, lengths, scored], tmp_path / "all"))
    assert recording.scorers("toy", "alpha") == ["len", "org/judge"]
    kept, own = (
        list(each.score_rows("toy", "alpha", "org/judge"))
        for each in (recording, open_recording(scored))
    )
    assert kept == own
    other = add(toy, tmp_path / "other", ROWS[:1])
    with pytest.raises(ConflictError, match="different scores/org/judge of alpha on toy"):
        merge([scored, other], tmp_path / "x")
    first = open_recording(select(scored, tmp_path / "1", questions=["toy/0"], samples=1))
    assert first.scores("toy", "alpha", "org/judge").values.tolist() == [[0.5]]


def test_extraction_keeps_scores_and_says_what_they_saw(scored, tmp_path):
    extraction = extract(scored, tmp_path / "new", answer_kind="text")
    assert extraction.notes == (
        "toy: org/judge scored the CoTs of alpha with the answers of the parent.",
    )
    path = Part("scores/org/judge", "toy", "alpha").path
    assert (scored / path).samefile(tmp_path / "new" / path)
    assert open_recording(tmp_path / "new").scorers("toy", "alpha") == ["org/judge"]
    assert verify_recording(tmp_path / "new").problems == ()


def test_info_shows_scores(scored, toy):
    page = feval("info", scored).stdout
    assert (
        "toy      alpha  org/judge     4           2           1             18              1"
        in page
    )
    assert "org/judge  judge  model some/model, prompt v1" in page
    assert "scorer" not in feval("info", toy).stdout
    account = told("info", scored)
    assert account["scores"][0]["with_score"] == 2
    assert account["scorers"][0]["kind"] == "judge"
