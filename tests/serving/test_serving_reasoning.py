"""Recorded reasoning is served: under both names that clients read, before the reply in a stream,
with its tokens.
"""

import orjson
from serving_doubles import (
    asked_by_text,
    body,
    chat,
    events,
    opened,
    reply_to,
    rows,
    simple,
    user,
    write,
)

from feval.recording import LLMInfo

THOUGHTS = ["First thought.", "Another one.", None, "The last."]


def serving(tmp_path, **fields):
    own = {"reasoning": THOUGHTS, "extra": {"reasoning_tokens": [3, 4, 0, 5]}} | fields
    return opened(
        simple(tmp_path / "r", ["What is 1 + 1?", "What is 2 + 2?"], **own), order="recorded"
    )


def choices(application, **fields):
    return list(body(reply_to(application, "What is 2 + 2?", **fields))["choices"])


def test_a_reply_holds_the_recorded_reasoning_under_both_names(tmp_path):
    messages = [choice["message"] for choice in choices(serving(tmp_path), n=4)]
    assert [message.get("reasoning") for message in messages] == THOUGHTS
    assert [message.get("reasoning_content") for message in messages] == THOUGHTS
    assert [message["content"] for message in messages] == [
        f"q1, thought {i}: the answer is {i % 2}." for i in range(4)
    ]


def test_reasoning_tokens_are_told_where_all_are_known(tmp_path):
    application = serving(tmp_path)
    usage = body(reply_to(application, "What is 2 + 2?", n=2))["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 7}
    assert usage["completion_tokens"] == 10 + 11
    unknown = opened(
        simple(tmp_path / "u", ["?"], extra={"reasoning_tokens": [3, None, 0, 5]}), order="recorded"
    )
    first, second = (body(unknown.respond(chat("?", n=1)))["usage"] for _ in range(2))
    assert first["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert second["completion_tokens_details"] == {"reasoning_tokens": None}


def test_a_stream_gives_the_reasoning_before_the_reply(tmp_path):
    reply = serving(tmp_path).respond(
        chat("What is 2 + 2?", stream=True, stream_options={"include_usage": True})
    )
    *chunks, last = events(reply)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "refusal": None, "content": ""}
    thinking = [place for place, delta in enumerate(deltas) if "reasoning" in delta]
    speaking = [place for place, delta in enumerate(deltas) if delta.get("content")]
    assert max(thinking) < min(speaking)
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "First thought."
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "First thought."
    assert len(thinking) == 2  # word by word
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}


def test_a_reply_is_sent_back_with_its_thoughts(tmp_path):
    first, second = questions = asked_by_text(["What is 1 + 1?", "And then?"])
    before = [user(first.text), {"role": "assistant", "content": "It is 2."}]
    prompt = orjson.dumps([*before, user(second.text)]).decode()
    pools = [
        rows(first, size=1, texts=["It is 2."], reasoning=["Hm."]),
        rows(second, size=1, prompt=prompt),
    ]
    application = opened(write(tmp_path / "r", [(LLMInfo("m"), pools)], questions))
    [choice] = body(application.respond(chat(first.text, model="m")))["choices"]
    sent = [before[0], choice["message"], user(second.text)]
    assert sent[1]["reasoning"] == "Hm."
    reply = application.respond(chat(second.text, model="m", messages=sent))
    assert reply.headers["x-feval-match"] == "request"
