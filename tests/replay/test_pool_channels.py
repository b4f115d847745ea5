"""Scores and log-probabilities of a loaded LLM: lazily read, in the row order of the load, cached,
named when missing.
"""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from places import read_data
from small import SCORER, letters, pool, scored_pool, write_rows, write_scored_toy, write_toy

from feval.errors import NotRecordedError, UnknownNameError
from feval.recording import ScorerInfo, ScoreRows, add_scores, select
from feval.recording.parquet.reading import arrays_of_tables
from feval.replay import load

ANSWERS = {"strong": letters("ab-a", "cc", "ded"), "weak": letters("a", "c-b", "d")}
GOLDS = ["a", "c", "d"]


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    return write_scored_toy(tmp_path_factory.mktemp("channels") / "toy", ANSWERS, GOLDS)


def written(llm, index):
    """What was written of the CoTs of a question; `None` for nothing."""
    rich, given = scored_pool(llm, index, ANSWERS[llm][index])
    columns = (given.scores, given.step_scores or (), given.prompt_tokens or ())
    by_sample = dict(zip(given.sample_indices, zip(*columns, strict=True), strict=True))
    rows = [by_sample.get(sample, (None,) * 3) for sample in range(len(rich.answers))]
    return {
        "scores": [score for score, _, _ in rows],
        "steps": [steps or [] for _, steps, _ in rows],
        "scoring": [prompts and (prompts, 1) for _, _, prompts in rows],
        "own": [
            prompts and (prompts - 7 - tokens, 1)
            for (_, _, prompts), tokens in zip(rows, rich.output_tokens, strict=True)
        ],
        "sequence": list(rich.sequence_logprobs or ()),
        "probability": [
            None if value is None else math.exp(value / tokens)
            for value, tokens in zip(rich.sequence_logprobs or (), rich.output_tokens, strict=True)
        ],
        "confidences": list(rich.token_confidences or ()),
    }


def check(llm, order):
    """All channels, in draw order, against what was written; `order[row]` is the question's
    number.
    """
    for row, index in enumerate(order):
        response = llm(row)
        expected = {
            name: [column[sample] for sample in response.samples]
            for name, column in written(llm.name, index).items()
        }
        assert response.scores() == response.scores(SCORER.name, "score") == expected["scores"]
        assert response.step_scores() == expected["steps"]
        assert response.scores(aggregate="prod") == pytest.approx(
            [math.prod(steps) if steps else None for steps in expected["steps"]]
        )
        assert response.scoring_tokens() == expected["scoring"]
        assert response.scoring_tokens(prefix_cached=True) == expected["own"]
        assert response.sequence_logprobs == expected["sequence"]
        assert response.sequence_probabilities == pytest.approx(expected["probability"])
        seen = [None if each is None else each.tolist() for each in response.token_confidences]
        assert seen == expected["confidences"]
        kept = llm.pool.logprobs().logprobs
        sums = [float(kept.of(row, sample).sum()) for sample in response.samples]
        assert sums == pytest.approx([value or 0 for value in expected["sequence"]])


def test_channels_come_from_the_recording_and_are_read_once(scored, monkeypatch):
    _, llms = load("toy", recording=scored)
    for llm in llms:
        check(llm, [0, 1, 2])
    assert llms[0].pool.scores() is llms[0].pool.scores(SCORER.name)
    assert llms[0].pool.aggregated(None, "min") is llms[0].pool.aggregated(SCORER.name, "min")
    monkeypatch.setattr("feval.recording.reader.Recording.scores", None)
    check(llms[0], [0, 1, 2])


def test_rows_of_a_pool_have_their_channels(scored):
    _, [strong, _] = load("toy", recording=scored)
    check(strong, [0, 1, 2])
    part = strong.pool.rows(np.array([2, 0]))
    for aggregate in ("score", "mean", "last"):
        assert part.aggregated(None, aggregate) == pytest.approx(
            strong.pool.aggregated(None, aggregate)[[2, 0]], nan_ok=True
        )
    logprobs, whole = part.logprobs(), strong.pool.logprobs()
    assert logprobs.sequence == pytest.approx(whole.sequence[[2, 0]], nan_ok=True)
    lengths = whole.confidences.lengths()[[2, 0]]
    assert logprobs.confidences.lengths().tolist() == lengths.tolist()
    assert part.rows(np.array([1])).scores().values == pytest.approx(
        strong.pool.scores().values[[0]], nan_ok=True
    )
    assert strong.pool.rows(np.array([], np.intp)).logprobs().sequence.shape == (0, 4)


def test_recordings_opened_together_keep_each_question_with_its_channels(scored, tmp_path):
    backwards = [2, 0, 1]
    made = {index: scored_pool("weak", index, ANSWERS["weak"][index]) for index in backwards}
    rows = [made[i][0] for i in backwards]
    write_rows(tmp_path / "plain", {i: GOLDS[i] for i in backwards}, ("weak", rows))
    other = add_scores(
        tmp_path / "plain",
        tmp_path / "other",
        SCORER,
        {("toy", "weak"): [made[i][1] for i in backwards]},
    )
    only = select(scored, tmp_path / "only", llms=["strong"])
    _, [strong, weak] = load("toy", ["strong", "weak"], [only, other])
    check(strong, [0, 1, 2])
    check(weak, [0, 1, 2])
    again = select(scored, tmp_path / "again", llms=["strong"])
    _, [weak, strong] = load("toy", ["weak", "strong"], [other, again])
    check(weak, backwards)
    check(strong, backwards)


def test_a_missing_channel_is_told_with_what_there_is(scored, tmp_path):
    _, [bare] = load("toy", recording=write_toy(tmp_path / "bare", {"alpha": [["a", "b"]]}, ["a"]))
    plain = [ScoreRows("toy/0", [0], [0.5])]
    out, other = tmp_path / "both", ScorerInfo("other", "judge")
    _, [both, _] = load("toy", recording=add_scores(scored, out, other, {("toy", "strong"): plain}))
    strong = load("toy", recording=scored)[1][0]("toy/0")
    for ask, words in (
        (bare.pool.scores, r"alpha on toy has no scores\. .*feval score"),
        (
            lambda: bare("toy/0").sequence_logprobs,
            "no log-probabilities of alpha on toy.*feval record --logprobs K",
        ),
        (lambda: strong.scores("nobody"), "no scores by 'nobody'; it has scores by judge:toy"),
        (both.pool.scores, r"judge:toy, other\. Name one of them: scorer='judge:toy'"),
        (lambda: both.pool.aggregated("other", "min"), "no step scores to take 'min' of"),
        (
            lambda: both("toy/0").scoring_tokens("other"),
            "tokens that .* took to score .* were not recorded",
        ),
    ):
        with pytest.raises(NotRecordedError, match=words):
            ask()
    with pytest.raises(UnknownNameError, match="aggregate"):
        strong.scores(aggregate="mode")
    assert both("toy/0").scores("other").count(0.5) == 1


def test_steps_without_scores_name_the_aggregates(tmp_path):
    write_toy(tmp_path / "r", {"alpha": [["a", "b"]]}, ["a"])
    add_scores(
        tmp_path / "r",
        tmp_path / "s",
        SCORER,
        {("toy", "alpha"): [ScoreRows("toy/0", [1], [None], [[0.5, 1]])]},
    )
    _, [llm] = load("toy", recording=tmp_path / "s")
    with pytest.raises(NotRecordedError, match="take an aggregate of them: last, min, prod, mean"):
        llm.pool.aggregated()
    assert llm.pool.aggregated(None, "mean")[0, 1] == 0.75


def test_a_probability_without_tokens_kept_takes_the_counted_ones(tmp_path):
    rows = replace(pool(0, ["a", "b"], tokens=[4, 0]), sequence_logprobs=[-2.0, -1.0])
    _, [llm] = load("toy", recording=write_rows(tmp_path / "r", ["a"], ("alpha", [rows])))
    assert llm.pool.sequence_probabilities()[0] == pytest.approx(
        [math.exp(-0.5), math.nan], nan_ok=True
    )


@pytest.mark.parametrize(
    ("places", "words"), read_data("recordings.json")["places of log-probabilities"]
)
def test_tables_of_log_probabilities_that_do_not_fit_are_refused(places, words):
    tables = [
        pa.table(
            {
                "question_id": [name],
                "sample_index": pa.array([sample], pa.int32()),
                "sequence_logprob": [-1.0],
                "token_confidences": pa.array([None], pa.list_(pa.float32())),
                "token_logprobs": pa.array([[-1.0]], pa.list_(pa.float32())),
            }
        )
        for name, sample in places
    ]
    with pytest.raises(ValueError, match=words):
        arrays_of_tables("logprobs", tables, ["toy/0", "toy/1"], (2, 2))
    kept = arrays_of_tables("logprobs", tables[:1], ["toy/0", "toy/1"], (2, 2))
    assert kept["token_logprobs"].lengths().sum() == 1
    assert kept["token_confidences"].lengths().sum() == 0
