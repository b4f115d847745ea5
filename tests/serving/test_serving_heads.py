"""Heads that came before are not parsed again: whatever is sent, nothing else about an answer changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_http import request

from feval.serving.application import Call, Reply
from feval.serving.kept import Kept

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
pytest.importorskip("httptools", reason="the extra serve is not installed")

from feval.serving.asgi import Door, Limits
from feval.serving.connections import Connection
from feval.serving.server import _uvicorn

TOKEN = "a-token-of-some-length"  # noqa: S105  opens a stub


class Sent:
    """A transport that keeps what was sent."""

    def __init__(self) -> None:
        self.data = b""
        self.closed = False

    def get_extra_info(self, name: str, default: object = None) -> object:
        del name
        return default

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.data += data

    def writelines(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Answers:
    """Connections without sockets to an application that tells how often it was asked."""

    def __init__(self, most_bytes: int = 1 << 20, token: str | None = None) -> None:
        self.heads: Any = Kept(most_bytes)
        self.calls: list[Call] = []
        self.parsed = 0
        self._server = _uvicorn(Door(self._respond, token=token), Limits())
        self._server.config.load()
        self._server.server_state.default_headers = [(b"server", b"one")]

    def to(self, pieces: Sequence[bytes], *, wait: bool = True) -> tuple[list[Call], bytes, bool]:
        """What the application is asked on one connection, what goes back, and whether the connection is closed.

        Args:
            pieces: as they come.
            wait: whether a stream ends before the next piece comes.
        """
        self.calls.clear()
        return asyncio.run(self._to(pieces, turns=20 if wait else 0))

    async def _to(self, pieces: Sequence[bytes], turns: int) -> tuple[list[Call], bytes, bool]:
        connection = self._connection()
        sent = Sent()
        connection.connection_made(cast("Any", sent))
        for piece in pieces:
            if not sent.closed:
                connection.data_received(piece)
            for _ in range(turns):  # a stream is sent by a task
                await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        connection._unset_keepalive_if_required()
        return list(self.calls), sent.data, sent.closed

    def _connection(self) -> Connection:
        answers = self

        class Counting(Connection):
            def on_headers_complete(self) -> None:
                answers.parsed += 1
                super().on_headers_complete()

        state, config = self._server.server_state, self._server.config
        return Counting(config=config, server_state=state, app_state={}, limits=Limits(), heads=self.heads)

    def _respond(self, call: Call) -> Reply:
        self.calls.append(call)
        said = b"%d. %b" % (len(self.calls), call.body)
        if call.path.startswith("/missing"):
            return Reply(404, {"content-type": "text/plain"}, said)
        if call.path == "/stream":
            return Reply(200, {"content-type": "text/event-stream"}, [said, b"end"])
        return Reply(200, {"content-type": "text/plain"}, said)


REQUESTS = [
    request("GET", "/one"),
    request("POST", "/one", b"x"),
    request("POST", "/one", b"yy"),
    request("POST", "/one", b"\r\n\r\n"),
    request("GET", "/inner"),
    request("POST", "/one", request("GET", "/inner")),
    request("POST", "/run/a/v1", b"x", authorization="Bearer my-run"),
    request("POST", "/stream", b"x"),
    request("GET", "/one?query"),
    request("GET", "/one%20two"),
    request("HEAD", "/one"),
    request("POST", "/one", transfer_encoding="chunked") + b"1\r\nx\r\n0\r\n\r\n",
    request("POST", "/one", b"x", connection="close"),
    request("GET", "/one", host="elsewhere.example"),
    b"\r\n" + request("GET", "/one"),
    b"GET /one HTTP/1.1\nhost: localhost\n\n" + request("POST", "/one", b"x"),
    b"GET /one HTTP/1.0\r\nhost: localhost\r\n\r\n",
    request("POST", "/one", b"x", **{f"header_{number}": "" for number in range(300)}),
    request("GET", "/missing"),
    b"nonsense\r\n\r\n",
]


@st.composite
def pieces(draw: st.DrawFn) -> list[bytes]:
    """Some requests, most of them one piece each, some cut, at the end of their heads or anywhere, or joined with others."""
    found: list[bytes] = []
    for sent in draw(st.lists(st.sampled_from(REQUESTS), min_size=1, max_size=6)):
        how = draw(st.sampled_from(["whole", "whole", "whole", "cut", "head first", "joined"]))
        if how == "joined" and found:
            found[-1] += sent
        elif how in {"cut", "head first"}:
            end = sent.find(b"\r\n\r\n") + 4
            at = end if how == "head first" else draw(st.integers(1, len(sent) - 1))
            found += [piece for piece in (sent[:at], sent[at:]) if piece]
        else:
            found.append(sent)
    return found


@given(st.lists(pieces(), min_size=2, max_size=4), st.booleans())
@settings(max_examples=150, deadline=None)
def test_what_is_asked_and_answered_does_not_depend_on_what_came_before(sent: list[list[bytes]], wait: bool) -> None:
    knowing, new = Answers(), Answers(0)
    for one in sent:
        assert knowing.to(one, wait=wait) == new.to(one, wait=wait)


def test_a_head_is_parsed_once() -> None:
    answers = Answers()
    bodies = [b"first", b"other", b"third"]
    calls, _, _ = answers.to([request("POST", "/one", body) for body in bodies])
    assert [(call.method, call.path, call.body) for call in calls] == [("POST", "/one", body) for body in bodies]
    answers.to([request("POST", "/one", b"again")])
    assert answers.parsed == 1


@pytest.mark.parametrize("wait", [True, False])
def test_a_stream_of_a_known_head_is_asked_for_once(wait: bool) -> None:
    answers = Answers()
    calls, sent, _ = answers.to([request("POST", "/stream", b"x")] * 3, wait=wait)
    assert len(calls) == 3
    assert sent.count(b"HTTP/1.1 200") == 3
    assert [sent.index(b"%d. x" % number) for number in (1, 2, 3)] == sorted(
        sent.index(b"%d. x" % n) for n in (1, 2, 3)
    )


def test_requests_that_came_joined_are_not_taken_for_one() -> None:
    answers = Answers()
    answers.to([request("GET", "/one") + request("GET", "/inner")])
    calls, _, _ = answers.to([request("GET", "/one")])
    assert [call.path for call in calls] == ["/one"]


def test_an_answer_waits_for_the_stream_before_it() -> None:
    answers = Answers()
    plain, stream = request("POST", "/one", b"plain"), request("POST", "/stream", b"stream")
    answers.to([plain, stream])
    _, sent, _ = answers.to([stream, plain, stream, plain], wait=False)
    assert sent.index(b". stream") < sent.index(b". plain") < sent.rindex(b". stream") < sent.rindex(b". plain")


@pytest.mark.parametrize(
    ("header", "value", "kept"),
    [
        ("authorization", "Bearer my-run", 1),
        ("authorization", "Bearer my-run@3", 1),
        ("authorization", "Bearer ", 1),
        ("authorization", "Bearer sk-abc", 0),
        ("authorization", "Bearer " + "k" * 40, 0),
        ("authorization", "Basic dXNlcjpwYXNz", 0),
        ("x_api_key", "sk-ant-abc", 0),
        ("api_key", "0123456789abcdef0123456789abcdef", 0),
        ("x_feval_run", "my-run", 1),
        ("x_feval_run", "sk-abc", 0),
    ],
)
def test_a_head_with_what_may_be_a_secret_is_not_kept(header: str, value: str, kept: int) -> None:
    answers = Answers()
    calls, _, _ = answers.to([request("POST", "/one", b"x", **{header: value})] * 2)
    assert len(calls) == 2
    assert len(answers.heads) == kept


def test_what_is_kept_holds_no_other_header_and_no_body() -> None:
    answers = Answers()
    answers.to([request("POST", "/one", b"the body", cookie="a cookie", authorization="Bearer my-run")])
    [(digest, (head, length))] = [(key, value) for key, (value, _) in answers.heads._young.items()]
    assert (len(digest), length) == (32, 8)
    assert set(head.headers) == {"host", "content-length", "authorization"}


def test_with_a_token_a_known_head_still_gives_the_application_no_key() -> None:
    answers = Answers(token=TOKEN)
    calls, _, _ = answers.to([request("POST", "/one", b"x", authorization=f"Bearer {TOKEN}")] * 2)
    assert ["authorization" in call.headers for call in calls] == [False, False]
    [(refused, sent, _)] = [answers.to([request("POST", "/one", b"x", authorization="Bearer another-token-x")])]
    assert not refused
    assert b" 401 " in sent


def test_a_head_that_was_an_error_is_not_kept() -> None:
    answers = Answers()
    _, sent, closed = answers.to([request("GET", "/missing/sk-abcdef"), request("GET", "/one")])
    assert (sent.count(b" 404 "), sent.count(b" 200 "), closed) == (1, 1, False)
    assert [head.path for (head, _), _ in answers.heads._young.values()] == ["/one"]


@pytest.mark.parametrize("cut", [1 << 20, 100])
@pytest.mark.parametrize("end", [b"", request("GET", "/inner")])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    "headers", [{f"header_{number}": "v" for number in range(300)}, {"header": "v" * 70_000}], ids=["many", "long"]
)
def test_a_head_that_is_too_long_is_refused_once_and_draws_nothing(
    headers: dict[str, str], chunked: bool, end: bytes, cut: int
) -> None:
    answers = Answers()
    sent = request(
        "POST", "/one", None if chunked else b"x", **headers, **{"transfer_encoding": "chunked"} if chunked else {}
    )
    sent += b"1\r\nx\r\n0\r\n\r\n" * chunked + end
    for _ in range(2):
        calls, said, closed = answers.to([sent[:-cut], sent[-cut:]] if len(sent) > cut else [sent])
        assert not calls
        assert (said.count(b"HTTP/1.1 "), said.count(b" 431 "), closed) == (1, 1, True)


def test_what_is_kept_counts_as_large_as_it_is() -> None:
    answers = Answers(100_000)
    for number in range(100):
        answers.to([request("GET", f"/{number:0>10000}")])
        answers.to([request("GET", "/one", x_feval_question=f"{number:0>10000}")])
    assert 0 < len(answers.heads) < 10
