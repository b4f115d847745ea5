"""Reward models behind HTTP and on this machine: what is sent, and how replies are read."""

import sys
import threading

import numpy as np
import pytest
from loopback import Server
from places import read_data
from scoring_doubles import KEY, rewards, run, score

from feval.errors import UsageError
from feval.recording import open_recording
from recorders import errors
from recorders.asking.pace import Limits
from recorders.errors import Transient
from recorders.scoring.scorers import make_scorer


def test_a_reward_model_gets_all_cots_of_a_question(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", KEY)
    with Server(rewards) as server:
        done = run(toy, tmp_path / "out", f"http:{server.url}/reward", key_variable="MY_KEY")
        assert len(server.seen) == 4
        path, headers, body = next(seen for seen in server.seen if len(seen[2]) == 3)
        assert (path, headers["authorization"]) == ("/reward", f"Bearer {KEY}")
        assert body[2] == {
            "question": "What is question 0?",
            "text": "Thinking about 0, sample 2. The answer is None.",
            "answer": None,
        }
        assert done.scorer == f"http:{server.url}/reward"
    assert open_recording(tmp_path / "out").scores("toy", "alpha", done.scorer).values[0, 0] == 44.0
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes()


def test_rewards_may_be_steps_null_or_nonsense(toy, tmp_path):
    answers = {"4": [1, 0.5], "9": None, "5": "high", "7": True}

    def answer(_, body):
        return 200, {"scores": [answers.get(item["answer"], 0.25) for item in body]}

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", server.url, name="rm")  # the URL alone will do
    assert (done.counts["with_score"], done.counts["unreadable"]) == (5, 1)
    recording = open_recording(tmp_path / "out")
    assert recording.scores("toy", "alpha", "rm").steps.of(0, 1).tolist() == [1.0, 0.5]
    assert recording.scores("toy", "alpha", "rm").values[0, 2] == 0.25


@pytest.mark.parametrize(
    ("status", "value", "error", "message"),
    [
        *read_data("replies.json")["wrong words of reward models"],
        (
            200,
            {"scores": [1.0] * 99},
            "Fatal",
            r"did not answer with one score for each CoT: .* received 99 for \d CoTs",
        ),
        (200, b"<html>", "Transient", "not valid JSON"),
        (401, {"error": {"message": f"bad key {KEY}"}}, "Fatal", r"bad key \[key\]"),
    ],
)
def test_what_a_reward_model_says_wrong_is_said(
    toy, tmp_path, monkeypatch, status, value, error, message
):
    monkeypatch.setenv("MY_KEY", KEY)
    with (
        Server(lambda *_: (status, value)) as server,
        pytest.raises(getattr(errors, error), match=message) as caught,
    ):
        run(toy, tmp_path / "out", f"http:{server.url}", key_variable="MY_KEY")
    assert KEY not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_refused_cot_has_no_score_where_others_have(toy, tmp_path):
    def answer(_, body):
        if "question 1" in body[0]["question"]:
            return 400, {"error": "too strange"}
        return rewards("", body)

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", f"http:{server.url}", name="rm")
    assert (done.counts["with_score"], done.counts["refused"]) == (4, 3)
    assert done.notes == ("3 of 7 CoTs have no score: rm refused them.",)
    [rows] = [
        r
        for r in open_recording(tmp_path / "out").score_rows("toy", "alpha", "rm")
        if r.question_id == "toy/1"
    ]
    assert "too strange" in (rows.verdicts or [""])[0]  # type: ignore[operator]


@pytest.mark.parametrize("wrapped", [False, True])
def test_vllm_scores_pairs(toy, tmp_path, wrapped):
    def answer(path, body):
        assert path == "/v1/score"
        assert (body["model"], body["text_1"][:7]) == ("rm/model", "What is")
        scores = [len(text) for text in body["text_2"]]
        data = [{"index": i, "score": [s] if wrapped else s} for i, s in enumerate(scores)]
        return 200, {"object": "list", "data": data[::-1]}

    with Server(answer) as server:
        done = run(toy, tmp_path / "out", "vllm-score:rm/model", base_url=f"{server.url}/v1")
    assert open_recording(tmp_path / "out").scores("toy", "alpha", done.scorer).values[
        0
    ].tolist() == [44.0, 44.0, 47.0]


def test_local_reward_models(toy, tmp_path):
    torch = pytest.importorskip("torch", reason="torch (extra `coupled`) is not installed")
    transformers = pytest.importorskip(
        "transformers", reason="transformers (extra `coupled`) is not installed"
    )
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(
        models.BPE(vocab={bytes([b]).decode("latin-1"): b for b in range(128)}, merges=[])
    )
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="\x00")  # noqa: S106  a token of text
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    for labels, kind in ((1, "LlamaForSequenceClassification"), (2, "LlamaForTokenClassification")):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=128, num_labels=labels, pad_token_id=0, **sizes
        )
        getattr(transformers, kind)(config).save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
        done = run(toy, tmp_path / f"out-{labels}", f"transformers:{tmp_path / kind}", name="rm")
        assert done.counts["with_score"] == 7
        scores = open_recording(done.path).scores("toy", "alpha", "rm")
        values = scores.values[0] if labels == 1 else scores.aggregated("last")[0]
        assert np.isfinite(values).all()
        assert len(scores.steps.of(0, 0)) == labels - 1


def test_a_local_model_without_its_packages_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        UsageError, match=r"needs torch and transformers .*: pip install 'feval\[coupled\]'"
    ):
        make_scorer(f"transformers:{tmp_path}")


def test_a_slow_reward_model_is_named_with_the_limit(toy, tmp_path):
    late = threading.Event()

    def answer(_, body):
        late.wait(20)
        return rewards("", body)

    with Server(answer) as server:
        made = make_scorer(f"http:{server.url}", timeout_s=0.2)
        try:
            with pytest.raises(
                Transient,
                match=r"failed once each.* 127.* did not answer within 0.2 s. .* nothing is scored",
            ):
                score(toy, tmp_path / "out", made, limits=Limits(retries=0))
        finally:
            late.set()


def test_steps_are_paragraphs_or_lines():
    from recorders.scoring.scorers import steps_of

    assert steps_of("one\nline\n\ntwo\n\n\n three ") == ["one\nline", "two", "three"]
    assert steps_of("one\ntwo\n") == ["one", "two"]
    assert steps_of("one") == ["one"]
    assert steps_of(" ") == [""]
