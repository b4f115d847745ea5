"""`stop` and a tighter limit cut recorded CoTs where a live LLM would have ended; what cannot be
cut here is refused.

Tokens are counted in words, 1.365 each, rounded: of 1 to 12 words these are 1, 3, 4, 5, 7, 8, 10,
11, 12, 14, 15 and 16 tokens.
"""

import json
import re

import orjson
import pytest
from serving_doubles import asked_by_text, body, error, events, opened, post, reply_to, rows, write

from feval.answers.thoughts import split
from feval.errors import FevalError
from feval.receipts.verifying import verify_receipt
from feval.recording import LLMInfo, open_recording
from feval.serving import grade
from feval.serving.grading import grade_saved, read_ledger

QUESTION = "How many apples are three and four apples?"
REPLY = "Three and four is 7. STOP The answer is 9. END"  # 11 words, 15 tokens
MODEL = "gpt-3.5-turbo"


def recorded(out, cots, counter="words", **decoding):
    """A recording of one question; a CoT has text and tokens, and what else differs from a plain
    one.
    """
    questions = asked_by_text([QUESTION], answer="7", answer_key="7")

    def column(name, other=None):
        values = [cot.get(name, other) for cot in cots]
        return values if any(name in cot for cot in cots) or other else None

    own = rows(
        questions[0],
        len(cots),
        texts=column("text", REPLY),
        output_tokens=column("tokens", 15),
        raw_answers=column("answer", "9"),
        answers=column("answer", "9"),
        finish_reasons=column("finish", "stop"),
        reasoning=column("reasoning"),
        reasoning_marks=column("marks"),
        token_logprobs=column("logprobs"),
        extra={"reasoning_tokens": hidden} if (hidden := column("hidden")) else {},
    )
    info = LLMInfo(MODEL, **({"temperature": 0.7, "max_tokens": 64} | decoding))
    return write(out, [(info, [own])], questions, kind="number", counter=counter)


def inline(raw, tokens):
    """A CoT with thoughts in its text."""
    parts = split(raw)
    return {
        "text": parts.reply,
        "reasoning": parts.reasoning,
        "marks": parts.marks,
        "tokens": tokens,
    }


def served(path, **options):
    return opened(path, order="recorded", **options)


APART = {"text": REPLY, "reasoning": "I add STOP them up", "tokens": 7 + 15}
# 18 words: both marks are words
TAGGED = inline(f"<think>\nI add STOP them up\n</think>\n\n{REPLY}", 25)
OPENED = inline(f"I add STOP them up\n</think>\n{REPLY}", 23)  # 17 words
HIDDEN = {"text": REPLY, "hidden": 20, "tokens": 35}
# 12 words
TWICE = inline("<think>\na b\n</think>\n\nOne two. <think>\nc d\n</think>\n\nThree four.", 16)


@pytest.mark.parametrize(
    ("cot", "fields", "text", "reasoning", "finish", "tokens"),
    [
        ({}, {"max_tokens": 13}, "Three and four is 7. STOP The answer is", None, "length", 12),
        ({}, {"max_completion_tokens": 7, "max_tokens": 4}, "Three and four", None, "length", 4),
        ({}, {"max_tokens": 15}, REPLY, None, "stop", 15),
        ({}, {"stop": "STOP"}, "Three and four is 7. ", None, "stop", 7),
        ({}, {"stop": ["END", " STOP", "and"]}, "Three ", None, "stop", 1),
        ({}, {"stop": "Three"}, "", None, "stop", 0),
        ({}, {"stop": "STOP", "max_tokens": 7}, "Three and four is 7.", None, "length", 7),
        (
            {"finish": "length"},
            {"stop": "answer"},
            "Three and four is 7. STOP The ",
            None,
            "stop",
            10,
        ),
        ({"tokens": 9}, {"max_tokens": 8}, "Three and four is 7. STOP", None, "length", 8),
        # never more than were recorded
        ({"tokens": 6}, {"stop": "STOP"}, "Three and four is 7. ", None, "stop", 6),
        (APART, {"max_tokens": 7}, "", "I add STOP them up", "length", 7),
        (APART, {"max_tokens": 11}, "Three and four", "I add STOP them up", "length", 11),
        (APART, {"stop": "STOP"}, "Three and four is 7. ", "I add STOP them up", "stop", 14),
        (TAGGED, {"max_tokens": 9}, "", "I add STOP them up", "length", 8),
        (TAGGED, {"max_tokens": 12}, "Three and", "I add STOP them up", "length", 12),
        (TAGGED, {"stop": "STOP"}, "Three and four is 7. ", "I add STOP them up", "stop", 16),
        (
            OPENED,
            {"stop": ["STOP"], "max_tokens": 20},
            "Three and four is 7. ",
            "I add STOP them up",
            "stop",
            15,
        ),
        (TWICE, {"max_tokens": 11}, "One two. ", "a bc", "length", 11),
        (HIDDEN, {"max_tokens": 20}, "", None, "length", 20),
        (HIDDEN, {"max_tokens": 25}, "Three and four is", None, "length", 25),
        (HIDDEN, {"stop": "STOP"}, "Three and four is 7. ", None, "stop", 27),
    ],
)
@pytest.mark.parametrize("kind", ["chat", "stream", "completion"])
def test_a_cot_ends_where_a_live_llm_would_have(
    kind, cot, fields, text, reasoning, finish, tokens, tmp_path
):
    with served(recorded(tmp_path / "r", [cot])) as app:
        if kind == "completion":
            fields = {"model": MODEL, "prompt": QUESTION} | fields
            reply = body(app.respond(post(orjson.dumps(fields), of="completions")))
            [choice] = reply["choices"]
            found, reasoning = choice["text"], None
        elif kind == "chat":
            reply = body(reply_to(app, QUESTION, **fields))
            [choice] = reply["choices"]
            found = choice["message"]["content"]
            assert (
                choice["message"].get("reasoning")
                == choice["message"].get("reasoning_content")
                == reasoning
            )
        else:
            *chunks, reply = events(
                reply_to(
                    app, QUESTION, stream=True, stream_options={"include_usage": True}, **fields
                )
            )
            deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
            found, choice = (
                "".join(delta.get("content") or "" for delta in deltas),
                chunks[-1]["choices"][0],
            )
            assert "".join(delta.get("reasoning") or "" for delta in deltas) == (reasoning or "")
        assert (found, choice["finish_reason"], reply["usage"]["completion_tokens"]) == (
            text,
            finish,
            tokens,
        )
        thoughts = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert thoughts == (min(20, tokens) if "hidden" in cot else None)
        assert app.ledger("default")["output_tokens"] == tokens


def test_some_of_n_are_cut_and_each_answer_is_read_anew(tmp_path):
    cots = [
        {},
        {"text": "It is 9.", "tokens": 4},
        {"text": "Let me see. Hmm, what STOP 9.", "tokens": 10},
    ]
    path, ledger = recorded(tmp_path / "r", cots), tmp_path / "ledger.jsonl"
    with served(path, ledger=ledger) as app:
        reply = reply_to(app, QUESTION, n=3, stop=["STOP"])
        choices = body(reply)["choices"]
        assert [choice["message"]["content"] for choice in choices] == [
            "Three and four is 7. ", "It is 9.", "Let me see. Hmm, what "
        ]  # fmt: skip
        assert reply.headers["x-feval-cut"] == "2"
        assert "x-feval-ignored" not in reply.headers
        assert body(reply)["usage"]["completion_tokens"] == 7 + 4 + 7
        reply_to(app, QUESTION, feval={"sample": 1})
        reply_to(app, QUESTION, feval={"sample": 0}, max_tokens=4)
        result = app.ledger("default", detail=True)
        assert [(entry["samples"], entry["tokens"]) for entry in result["asked"]] == [
            ([0, 1, 2, 1, 0], [7, None, 7, None, 4])
        ]
        assert (result["output_tokens"], result["cut"]) == (7 + 4 + 7 + 4 + 4, 3)
        live = grade(app, "default", {"q0": "7"})
    lines = [json.loads(line) for line in ledger.read_text().splitlines()[1:]]
    assert [(line.get("tokens"), line.get("answers")) for line in lines] == [
        ([7, None, 7], ["7", "9", None]),
        (None, None),
        ([4], [None]),  # "Three and four" is no answer
    ]
    assert live.grade.to_dict()["tokens"] == result["prompt_tokens"] + result["output_tokens"]
    assert live.grade.to_dict()["usd"] == pytest.approx(result["usd"], rel=1e-12)
    assert any("cut, which cost what came before: 3." in remark for remark in live.remarks())
    saved = grade_saved(read_ledger(ledger), "default", {"q0": "7"}, [open_recording(path)])
    assert saved.grade.to_dict() == live.grade.to_dict()
    (tmp_path / "receipt.json").write_text(json.dumps(live.receipt(tmp_path)))
    assert verify_receipt(tmp_path / "receipt.json", [path]).equal
    with served(path, ledger=ledger, resume=True) as app:
        assert app.ledger("default", detail=True) == result


@pytest.mark.parametrize("tokens", [[15, 15], [99], [-1]])
def test_a_ledger_cuts_nothing_to_more_than_was_recorded(tokens, tmp_path):
    path, ledger = recorded(tmp_path / "r", [{}]), tmp_path / "ledger.json"
    with served(path) as app:
        reply_to(app, QUESTION)
        result = app.ledger("default", detail=True)
    result["asked"][0]["tokens"] = tokens
    ledger.write_text(json.dumps(result))
    with pytest.raises(FevalError, match=r"were recorded|not a ledger"):
        grade_saved(read_ledger(ledger), None, {}, [open_recording(path)])


@pytest.mark.parametrize(
    ("counter", "why"),
    [
        ("usage", "the provider counted them"),
        ("tiktoken:cl100k_base", "vocabulary .* not on this machine"),
    ],
)
def test_what_cannot_be_counted_here_is_not_cut(counter, why, tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "nothing"))
    cots = [{}, {"text": "It is 9.", "tokens": 40}, {"hidden": 30, "tokens": 50}]
    with served(recorded(tmp_path / "r", cots, counter)) as app:
        assert (
            "x-feval-cut"
            not in reply_to(
                app, QUESTION, max_tokens=15, stop="nowhere", feval={"sample": 0}
            ).headers
        )
        for fields, field in (
            ({"max_completion_tokens": 39}, "max_completion_tokens"),
            ({"stop": "STOP"}, "stop"),
        ):
            reply = reply_to(app, QUESTION, n=2, **fields)
            result = error(reply)
            assert (reply.status, result["code"], result["param"]) == (400, "not_recorded", field)
            assert re.search(why, result["message"])
        hidden = body(reply_to(app, QUESTION, max_tokens=30, feval={"sample": 2}))
        assert (
            hidden["choices"][0]["message"]["content"],
            hidden["usage"]["completion_tokens"],
        ) == ("", 30)
        assert app.ledger("default")["cots"] == 2  # a request that is refused draws nothing
        assert body(reply_to(app, QUESTION, n=2, max_tokens=40))["usage"]["completion_tokens"] == 55


def test_log_probabilities_are_those_of_the_cut_text(tmp_path):
    logprobs = [-0.5 * number for number in range(15)]
    with served(
        recorded(tmp_path / "r", [{"logprobs": logprobs}, {"logprobs": logprobs[:9]}])
    ) as app:
        reply = reply_to(app, QUESTION, n=2, max_tokens=4, logprobs=True)
        cut, other = body(reply)["choices"]
        assert [token["logprob"] for token in cut["logprobs"]["content"]] == logprobs[:4]
        assert cut["feval"]["sequence_logprob"] == sum(logprobs[:4])
        assert other["logprobs"] is None  # other tokens than were counted
        assert "logprobs" in reply.headers["x-feval-unknown"].split(",")


@pytest.mark.parametrize(
    ("limit", "asked", "marked"), [(15, 20, [1]), (15, 15, []), (15, None, []), (None, 20, [1])]
)
def test_a_cot_that_ended_at_a_smaller_recorded_limit_is_marked(limit, asked, marked, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    with served(
        recorded(tmp_path / "r", [{}, {"finish": "length"}], max_tokens=limit), ledger=ledger
    ) as app:
        reply = reply_to(app, QUESTION, n=2, max_tokens=asked)
        choices = body(reply)["choices"]
        assert [choice["message"]["content"] for choice in choices] == [REPLY, REPLY]
        assert [
            n for n, choice in enumerate(choices) if choice.get("feval") == {"limited": True}
        ] == marked
        assert reply.headers.get("x-feval-limited") == ("1" if marked else None)
        assert app.ledger("default")["limited"] == len(marked)
    assert json.loads(ledger.read_text().splitlines()[1]).get("limited", []) == marked
    with served(tmp_path / "r", ledger=ledger, resume=True) as app:
        assert app.ledger("default")["limited"] == len(marked)
