"""Small recordings to be served, and requests for them."""

import orjson

from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter
from feval.serving import Application, Call


def rows(question, size=4, **fields):
    """A pool whose texts can be told apart, and whose prompt is the question alone."""
    plain = {
        "texts": [f"{question.id}, thought {i}: the answer is {i % 2}." for i in range(size)],
        "raw_answers": [str(i % 2) for i in range(size)],
        "answers": [str(i % 2) for i in range(size)],
        "output_tokens": [10 + i for i in range(size)],
        "finish_reasons": ["stop"] * size,
        "prompt": orjson.dumps([{"role": "user", "content": question.text}]).decode(),
        "prompt_tokens": 7,
    }
    return PoolRows(question.id, **(plain | fields))


def write(
    out, pools, questions, *, dataset="toy", prices="2025-06-02", kind="verbatim", counter="words"
):
    with RecordingWriter(out, operation={"name": "test"}, prices=prices) as writer:
        writer.add_dataset(DatasetInfo(dataset, dataset, kind, "test-1"), questions)
        for llm, rows_of_llm in pools:
            writer.add_pools(dataset, llm, counter, rows_of_llm)
    return out


def asked_by_text(texts, **fields):
    return [Question(f"q{i}", text, **fields) for i, text in enumerate(texts)]


def simple(out, asked, /, *, size=4, llm="gpt-3.5-turbo", choices=(), **fields):
    """A recording of one LLM on questions q0, q1, ... with these texts."""
    questions = asked_by_text(asked, choices=choices)
    pools = [rows(question, size, **fields) for question in questions]
    return write(out, [(LLMInfo(llm, 0.7, 64), pools)], questions)


def chat(content, *, headers=None, run=None, path="", **fields):
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    body = {"model": "gpt-3.5-turbo", "messages": messages} | fields
    headers = headers or ({"x-feval-run": run} if run else {})
    return post(orjson.dumps(body), headers=headers, path=path)


def reply_to(app, content, **fields):
    return app.respond(chat(content, **fields))


def post(body, *, headers=None, path="", of="chat/completions"):
    return Call("POST", f"{path}/v1/{of}", "", dict(headers or {}), body)


def get(path, query=""):
    return Call("GET", path, query, {}, b"")


def body(reply):
    raw = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
    return orjson.loads(raw)


def events(reply):
    """The chunks of a stream, which must end as one does."""
    assert not isinstance(reply.body, bytes)
    lines = list(reply.body)
    assert lines[-1] == b"data: [DONE]\n\n"
    assert all(
        line.startswith(b"data: ") and line.endswith(b"\n\n") and line.count(b"\n") == 2
        for line in lines
    )
    return [orjson.loads(line[6:]) for line in lines[:-1]]


def error(reply):
    """The error of a reply in OpenAI's shape."""
    found = body(reply)
    assert set(found) == {"error"}
    assert set(found["error"]) == {"message", "type", "param", "code"}
    assert reply.headers["content-type"] == "application/json"
    message = found["error"]["message"]
    assert message[-1] in ".)", message
    return dict(found["error"])


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def texts_of(reply):
    assert reply.status == 200, reply.body
    return [choice["message"]["content"] for choice in body(reply)["choices"]]


def samples_of(reply):
    assert reply.status == 200, reply.body
    return [int(sample) for sample in reply.headers["x-feval-samples"].split(",")]


def opened(path, **options):
    return Application.open(path, **options)
