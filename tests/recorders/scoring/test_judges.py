"""Judges and self-checks: what is sent, and how replies are read."""

import pytest
from loopback import Server
from places import read_data
from scoring_doubles import KEY, chat, needs_client, run, token

from feval.recording import Question, open_recording
from recorders.errors import Fatal
from recorders.scoring import scorers
from recorders.scoring.scores import Item

REPLIES = read_data("replies.json")
ITEM = Item(
    Question("q", "Which?", "gold", "gold", (("A", "one"), ("B", "two"))),
    "I take B.",
    "B",
    '[{"role": "system", "content": "Think."}, {"role": "user", "content": "Which?"}]',
)


@pytest.mark.parametrize(("text", "expected"), REPLIES["grades"])
def test_grades_of_a_judge_are_read(text, expected):
    assert scorers._grade(text, {}) == expected


@pytest.mark.parametrize(("text", "expected"), REPLIES["stated confidences"])
def test_stated_confidence_is_read(text, expected):
    assert scorers._confidence(text, {}) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([token("Yes", Yes=0.6, No=0.2, Maybe=0.2)], 0.75),
        ([token("No", No=0.5, yes=0.3, Yes=0.2)], 0.5),
        ([token("**"), token(" Yes", **{" Yes": 0.9, "\u2581no": 0.1})], 0.9),
        ([{"token": "No", "logprob": -0.1, "top_logprobs": []}], 0.0),
        ([token("Maybe", Maybe=1.0)], None),
        ([token("\n")], None),
    ],
)
def test_p_true_is_read_at_the_first_word(tokens, expected):
    probability = scorers._p_true("", {"logprobs": {"content": tokens}})
    assert probability == (None if expected is None else pytest.approx(expected))


def test_p_true_needs_log_probabilities():
    for choice in ({}, {"logprobs": None}, {"logprobs": {"content": []}}):
        with pytest.raises(Fatal, match="no log-probabilities"):
            scorers._p_true("Yes", choice)


def test_judges_see_question_options_and_cot():
    system, user = scorers._judging(ITEM)
    assert "Score: N" in system["content"]
    assert "Which?\n(A) one\n(B) two" in user["content"]
    assert "I take B." in user["content"]
    assert "gold" not in system["content"] + user["content"]


@needs_client
def test_what_a_judge_thinks_is_not_its_verdict(toy, tmp_path):
    with Server(lambda *_: (200, chat("<think>Score: 2? Yes.</think>\nI am done."))) as server:
        assert (
            run(toy, tmp_path / "none", "judge:m", base_url=f"{server.url}/v1").counts["with_score"]
            == 0
        )
    with Server(lambda *_: (200, chat("Score: 2? No.</think>\nScore: 9"))) as server:
        run(toy, tmp_path / "scored", "judge:m", base_url=f"{server.url}/v1")
    rows = next(open_recording(tmp_path / "scored").score_rows("toy", "alpha", "judge:m"))
    assert set(rows.scores) == {0.9}


def test_self_checks_go_on_in_the_same_chat():
    messages = scorers.CHECKS["verbal"].ask(ITEM)
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == "I take B."
    without = scorers.CHECKS["p-true"].ask(Item(ITEM.question, "t", None, None))
    assert without[0] == {"role": "user", "content": "Which?\n(A) one\n(B) two"}
    deep = scorers.CHECKS["p-true"].ask(Item(ITEM.question, "t", None, "[" * 100_000))
    assert deep == without


@needs_client
@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        ("judge", chat(f"Fine; your key is {KEY}.\nScore: 5")),
        ("verbal", chat("50%")),
        ("p-true", chat("Yes", logprobs=[token("Yes", Yes=0.3, No=0.3)])),
    ],
)
def test_an_endpoint_is_asked_through_the_official_client(toy, tmp_path, monkeypatch, kind, reply):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    unclear = chat("no idea", logprobs=[token("Hm", Hm=1.0)])
    with Server(lambda _, body: (200, unclear if "sample 2" in str(body) else reply)) as server:
        done = run(toy, tmp_path / "out", f"{kind}:some/model", base_url=f"{server.url}/v1")
        path, headers, body = server.seen[0]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert {"model": "some/model", "temperature": 0.0}.items() <= body.items()
    assert ("top_logprobs" in body) == (kind == "p-true")
    assert (done.counts["with_score"], done.counts["unreadable"]) == (6, 1)
    assert done.notes == (
        f"1 of 7 CoTs has no score: what {kind}:some/model said holds none that can be read.",
    )
    recording = open_recording(tmp_path / "out")
    [rows, _] = recording.score_rows("toy", "alpha", done.scorer)
    assert (rows.scores, rows.verdicts[2]) == ([0.5, 0.5, None], "no idea")
    assert (rows.prompt_tokens, rows.output_tokens) == ([11] * 3, [3] * 3)
    assert recording.manifest.raw["operation"]["base_url"] == f"{server.url}/v1"
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()
    assert KEY not in str(rows)


@pytest.mark.parametrize(
    "data", [[{"index": None, "score": 1}], [{"score": 1}, {"score": 2}], {"0": 1}, None]
)
def test_pairs_without_places_are_an_error(toy, tmp_path, data):
    with (
        Server(lambda *_: (200, {"data": data})) as server,
        pytest.raises(Fatal, match="expected a list `data`"),
    ):
        run(toy, tmp_path / "out", "vllm-score:m", base_url=f"{server.url}/v1")


@needs_client
def test_a_filtered_reply_is_a_refusal(toy, tmp_path):
    filtered = chat("")
    filtered["choices"][0]["finish_reason"] = "content_filter"

    def answer(_, body):
        return 200, filtered if "question 1" in str(body) else chat("Score: 5")

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", "judge:m", base_url=f"{server.url}/v1")
    assert (done.counts["with_score"], done.counts["refused"], done.counts["unreadable"]) == (
        4,
        3,
        0,
    )
    [_, rows] = open_recording(tmp_path / "out").score_rows("toy", "alpha", "judge:m")
    assert rows.verdicts == ["Refused: a content filter stopped the reply."]
    assert rows.prompt_tokens == [11]
