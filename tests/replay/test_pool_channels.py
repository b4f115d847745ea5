"""Scores and log-probabilities of a loaded LLM: lazily read, in the row order of the load, cached,
named when missing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import loads

import numpy as np
import pyarrow as pa
import pytest
from small import SCORER, pool, scored_pool, write_rows, write_scored_toy, write_toy

from feval.errors import NotRecordedError, ShortPoolError, UnknownNameError
from feval.evaluation.evaluation import evaluate
from feval.methods import BestOfN, ConfidenceWeighted
from feval.recording import ScorerInfo, ScoreRows, add_scores
from feval.recording.parquet import logprobs_of_tables
from feval.replay import LLM, load

ANSWERS = {
    "strong": [["a", "b", None, "a"], ["c", "c"], ["d", "e", "d"]],
    "weak": [["a"], ["c", None, "b"], ["d"]],
}
GOLDS = ["a", "c", "d"]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scored_toy(tmp_path_factory.mktemp("channels") / "toy", ANSWERS, GOLDS)


def check(llm: LLM, order: list[int]) -> None:
    """All channels against the rows that were written; `order[row]` is the question's number."""
    scores, kept = llm.pool.scores(), llm.pool.logprobs()
    for row, index in enumerate(order):
        rich, given = scored_pool(llm.name, index, ANSWERS[llm.name][index])
        for sample in range(len(rich.answers)):
            place = (
                list(given.sample_indices).index(sample) if sample in given.sample_indices else None
            )
            assert scores.scored[row, sample] == (place is not None)
            score = None if place is None else given.scores[place]
            assert scores.values[row, sample] == pytest.approx(
                math.nan if score is None else score, nan_ok=True
            )
            steps = None if place is None else (given.step_scores or [])[place]
            assert scores.steps(row, sample).tolist() == (steps or [])
            sequence = (rich.sequence_logprobs or [])[sample]
            assert kept.sequence[row, sample] == pytest.approx(
                math.nan if sequence is None else sequence, nan_ok=True
            )
            assert kept.confidences.of(row, sample).tolist() == (
                (rich.token_confidences or [])[sample] or []
            )
            assert kept.logprobs.of(row, sample).tolist() == (
                (rich.token_logprobs or [])[sample] or []
            )


def test_channels_come_from_the_recording_and_are_read_once(
    scored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, llms = load("toy", recording=scored)
    for llm in llms:
        check(llm, [0, 1, 2])
    assert llms[0].pool.scores() is llms[0].pool.scores(SCORER.name)
    assert llms[0].pool.aggregated(None, "min") is llms[0].pool.aggregated(SCORER.name, "min")
    monkeypatch.setattr("feval.recording.reader.Recording.scores", None)
    check(llms[0], [0, 1, 2])


def test_rows_of_a_pool_have_their_channels(scored: Path) -> None:
    _, [strong, _] = load("toy", recording=scored)
    part = strong.pool.rows(np.array([2, 0]))
    assert part.scores().values == pytest.approx(strong.pool.scores().values[[2, 0]], nan_ok=True)
    assert part.scores().steps(1, 3).tolist() == strong.pool.scores().steps(0, 3).tolist()
    assert (
        part.logprobs().confidences.of(0, 1).tolist()
        == strong.pool.logprobs().confidences.of(2, 1).tolist()
    )
    assert part.rows(np.array([1])).aggregated(None, "last") == pytest.approx(
        strong.pool.aggregated(None, "last")[[0]], nan_ok=True
    )
    assert strong.pool.rows(np.array([], np.intp)).logprobs().sequence.shape == (0, 4)


def test_recordings_opened_together_keep_each_question_with_its_channels(
    scored: Path, tmp_path: Path
) -> None:
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
    _, [strong, weak] = load(
        "toy", ["strong", "weak"], [_only(scored, "strong", tmp_path / "strong"), other]
    )
    check(strong, [0, 1, 2])
    check(weak, [0, 1, 2])
    _, [weak, strong] = load(
        "toy", ["weak", "strong"], [other, _only(scored, "strong", tmp_path / "again")]
    )
    check(weak, backwards)
    check(strong, backwards)


def _only(recording: Path, llm: str, out: Path) -> Path:
    from feval.recording import select

    return select(recording, out, llms=[llm])


def test_a_response_gives_channels_in_draw_order(scored: Path) -> None:
    _, [strong, _] = load("toy", recording=scored)
    for row in range(3):
        response = strong(row)
        samples = list(response.samples)
        scores = strong.pool.scores()
        known = [None if math.isnan(v) else v for v in scores.values[row, samples].tolist()]
        assert response.scores() == response.scores(SCORER.name, "score") == known
        assert response.step_scores() == [scores.steps(row, s).tolist() for s in samples]
        expected = [math.prod(steps) if steps else None for steps in response.step_scores()]
        assert response.scores(aggregate="prod") == pytest.approx(expected)
        rich, given = scored_pool("strong", row, ANSWERS["strong"][row])
        assert response.sequence_logprobs == [(rich.sequence_logprobs or [])[s] for s in samples]
        for s, result, logprob in zip(
            samples, response.sequence_probabilities, response.sequence_logprobs, strict=True
        ):
            assert result == (
                None
                if logprob is None
                else pytest.approx(math.exp(logprob / rich.output_tokens[s]))
            )
        for s, confidences in zip(samples, response.token_confidences, strict=True):
            assert (None if confidences is None else confidences.tolist()) == (
                rich.token_confidences or []
            )[s]
        for s, tokens in zip(samples, response.scoring_tokens(), strict=True):
            place = list(given.sample_indices).index(s) if s in given.sample_indices else None
            assert tokens == (None if place is None else ((given.prompt_tokens or [])[place], 1))
        for s, whole, own in zip(
            samples,
            response.scoring_tokens(),
            response.scoring_tokens(prefix_cached=True),
            strict=True,
        ):
            assert own == (None if whole is None else (whole[0] - 7 - rich.output_tokens[s], 1))


def test_a_missing_channel_is_told_with_what_there_is(scored: Path, tmp_path: Path) -> None:
    _, [bare] = load("toy", recording=write_toy(tmp_path / "bare", {"alpha": [["a", "b"]]}, ["a"]))
    with pytest.raises(NotRecordedError, match=r"alpha on toy has no scores\. .*feval score"):
        bare.pool.scores()
    with pytest.raises(
        NotRecordedError, match=r"no log-probabilities of alpha on toy.*feval record --logprobs K"
    ):
        bare("toy/0").sequence_logprobs  # noqa: B018  the property raises
    _, [strong, _] = load("toy", recording=scored)
    with pytest.raises(NotRecordedError, match="no scores by 'nobody'; it has scores by judge:toy"):
        strong("toy/0").scores("nobody")
    with pytest.raises(UnknownNameError, match="aggregate"):
        strong("toy/0").scores(aggregate="mode")
    plain = [ScoreRows("toy/0", [0], [0.5])]
    both = add_scores(
        scored, tmp_path / "both", ScorerInfo("other", "judge"), {("toy", "strong"): plain}
    )
    _, [strong, _] = load("toy", recording=both)
    with pytest.raises(
        NotRecordedError, match=r"judge:toy, other\. Name one of them: --set scorer=judge:toy"
    ):
        strong.pool.scores()
    assert strong("toy/0").scores("other").count(0.5) == 1
    with pytest.raises(NotRecordedError, match="no step scores to take 'min' of"):
        strong.pool.aggregated("other", "min")
    with pytest.raises(
        NotRecordedError, match=r"tokens that .* took to score .* were not recorded"
    ):
        strong("toy/0").scoring_tokens("other")


def test_steps_without_scores_name_the_aggregates(tmp_path: Path) -> None:
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


def test_a_probability_without_tokens_kept_takes_the_counted_ones(tmp_path: Path) -> None:
    rows = replace(pool(0, ["a", "b"], tokens=[4, 0]), sequence_logprobs=[-2.0, -1.0])
    _, [llm] = load("toy", recording=write_rows(tmp_path / "r", ["a"], ("alpha", [rows])))
    assert llm.pool.sequence_probabilities()[0] == pytest.approx(
        [math.exp(-0.5), math.nan], nan_ok=True
    )


def test_a_pool_travels_to_another_process_without_its_arrays_of_channels(scored: Path) -> None:
    _, [strong, _] = load("toy", recording=scored)
    check(strong, [0, 1, 2])
    sent = ForkingPickler.dumps(strong.pool.rows(np.array([2, 0])))
    received = loads(sent)  # noqa: S301  made here
    assert received.scores().values == pytest.approx(
        strong.pool.scores().values[[2, 0]], nan_ok=True
    )
    fresh = ForkingPickler.dumps(load("toy", recording=scored)[1][0].pool.rows(np.array([2, 0])))
    assert len(sent) == len(fresh)


def test_methods_over_channels_are_evaluated(scored: Path) -> None:
    dataset, [strong, _] = load("toy", recording=scored)
    best = BestOfN(2, aggregate="score")
    exact = evaluate(best, dataset, strong, confidence=None)
    assert exact.kind == "exact"
    seeded = evaluate(best, dataset, strong, order="seeded", replicates=4000, confidence=None)
    assert seeded.right == pytest.approx(exact.right, abs=0.035)  # four standard errors
    assert seeded.tokens == pytest.approx(exact.tokens, rel=0.01)
    part = evaluate(
        best, dataset, strong, order="seeded", replicates=50, rows=[2, 0], confidence=None
    )
    whole = evaluate(best, dataset, strong, order="seeded", replicates=50, confidence=None)
    assert part.right.tolist() == whole.right[[2, 0]].tolist()
    judged = ConfidenceWeighted(2, SCORER.name)
    fitted = judged.fit([strong.pool.rows(np.array([0, 1]))], dataset.gold[:2])
    result = evaluate(fitted, dataset, strong, order="recorded", rows=[2], confidence=None)
    free = evaluate(
        replace(fitted, self_check="free"),
        dataset,
        strong,
        order="recorded",
        rows=[2],
        confidence=None,
    )
    checks = [
        tokens for tokens in strong.ask(2, None).sample(2).scoring_tokens() if tokens is not None
    ]
    assert result.tokens is not None
    assert free.tokens is not None
    assert result.calls[0] - free.calls[0] == len(checks)
    assert result.tokens[0] - free.tokens[0] == sum(prompt + output for prompt, output in checks)
    with pytest.raises(ShortPoolError, match="needs 3"):
        BestOfN(3, aggregate="score").exact(strong.pool, dataset.gold)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([("toy/0", 0), ("toy/9", 0)], "not recorded"),
        ([("toy/0", 0), ("toy/0", 2)], "not recorded"),
        ([("toy/1", 0), ("toy/0", 1)], "out of order"),
        ([("toy/0", 1), ("toy/0", 1)], "out of order"),
    ],
)
def test_tables_of_log_probabilities_that_do_not_fit_are_refused(
    places: list[tuple[str, int]], words: str
) -> None:
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
        logprobs_of_tables(tables, ["toy/0", "toy/1"], (2, 2))
    kept = logprobs_of_tables(tables[:1], ["toy/0", "toy/1"], (2, 2))
    assert kept.logprobs.lengths().sum() == 1
    assert kept.confidences.lengths().sum() == 0
