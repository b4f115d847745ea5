"""An OpenAI-compatible server on loopback that fails as it is told to, and otherwise answers the
same question the same way.

What it answers is a function of the question and the number of the answer: the request's seed, or
else a counter per question that moves only when an answer was sent whole. So a recording made
through faults can be compared with one made without.

Faults are told by name (`FAULTS`), either in the order of the requests, or by a function of
question and attempt. What a *reply* is like (refused, cut off, 1 MB long) is asked for by a marker
in the question, such as "[length]": the same in every run.

It is written on bare sockets, in a thread with its own event loop: no framework would send half a
body or a reset.
"""

import asyncio
import hashlib
import json
import os
import re
import signal
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from places import read_data

SLOW_S = 30.0
WORST = (
    'NUL \x00, right-to-left \u202eabc\u202c, four bytes \U0001f9ee, "quoted\\", \u2028 line,'
    " e\u0301, \ufeff BOM, \x7f"
)
HALF = "\ud83e"
BIG = "All work and no play. " * 10 + "!" * 1_000_000 + " "
REASONING = "Hm, 2 + 2. Let me think."
REFUSAL = "I cannot help with that."
EXTRA = {
    "index": 99,
    "message": {"role": "assistant", "content": "One too many."},
    "finish_reason": "stop",
}


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def question(self):
        return str(self.body["messages"][-1]["content"])


@dataclass
class Reply:
    """What is written to the socket."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    send: int | None = None  # only so many bytes of the body
    reset: bool = False  # then a reset instead of a close
    wait_s: float = 0.0


def error(status, message, headers=None, fields=None):
    told = {"message": message, "type": "error", "param": None, "code": None} | (fields or {})
    return Reply(status, json.dumps({"error": told}).encode(), dict(headers or {}))


def in_an_hour():
    """A server whose clock is an hour ahead asks for 7 seconds."""
    now = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    return {
        "date": format_datetime(now, True),
        "retry-after": format_datetime(now + timedelta(seconds=7), True),
    }


# Status, message, headers and fields of errors.
ERRORS = read_data("replies.json")["errors"]
PAGE = {"content-type": "text/html"}

# Each takes the whole reply that would have been sent, and says what is sent.
FAULTS = {name: lambda _, stated=stated: error(*stated) for name, stated in ERRORS.items()} | {
    "429 date": lambda _: error(429, "Slow down", in_an_hour()),
    "502 page": lambda _: Reply(
        502, b"<html>\n<h1>Bad Gateway</h1>" + b"x" * 5000 + b"</html>", PAGE
    ),
    "slow": lambda reply: Reply(body=reply.body, wait_s=SLOW_S),
    "reset": lambda reply: Reply(body=reply.body, send=len(reply.body) // 2, reset=True),
    "closed early": lambda reply: Reply(body=reply.body, send=len(reply.body) // 2),
    "no answer": lambda reply: Reply(status=0),
    "truncated": lambda reply: Reply(body=reply.body[: len(reply.body) // 2]),
    "not JSON": lambda _: Reply(200, b"<html>Log in to the hotel's network</html>", PAGE),
    "not an object": lambda _: Reply(body=b"[1, 2]"),
    "empty body": lambda _: Reply(),
    "wrong gzip": lambda reply: Reply(body=reply.body, headers={"content-encoding": "gzip"}),
    "empty choices": lambda reply: changed(reply, choices=[]),
    "no choices": lambda reply: changed(reply, choices=None),
    "no message": lambda reply: changed(reply, choices=[{"index": 0, "finish_reason": "stop"}]),
    "error with 200": lambda _: Reply(
        body=error(200, "Provider returned error", {}, {"code": 503}).body
    ),
    "rate error with 200": lambda _: Reply(
        body=error(200, "Upstream is busy", {}, {"code": 429}).body
    ),
    "422": lambda _: Reply(422, b'{"detail": [{"loc": ["body"], "msg": "value is not valid"}]}'),
    "405": lambda _: Reply(405, b"Method Not Allowed", {"content-type": "text/plain"}),
    "fewer": lambda reply: with_choices(reply, choices_of(reply)[:1]),
    "more": lambda reply: with_choices(reply, [*choices_of(reply), EXTRA]),
    "no usage": lambda reply: changed(reply, usage=None),
}
"""Every fault by name."""


def changed(reply, **fields):
    return Reply(body=json.dumps(json.loads(reply.body) | fields).encode())


def choices_of(reply):
    return list(json.loads(reply.body)["choices"])


def with_choices(reply, choices):
    return changed(
        reply,
        choices=choices,
        usage=usage_of(choices, json.loads(reply.body)["usage"]["prompt_tokens"]),
    )


def usage_of(choices, prompt):
    """What a reply is billed. The server's tokens are bytes, so that the counts of two replies add
    up to those of one.
    """
    messages = [choice["message"] for choice in choices]
    texts = [message["content"] or message.get("refusal") or "" for message in messages]
    reasoning = sum(len(message.get("reasoning_content", "")) for message in messages)
    output = sum(len(text.replace(HALF, "\ufffd").encode()) for text in texts) + reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "completion_tokens_details": {"reasoning_tokens": reasoning},
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def number_of(question, index):
    """The answer that the server gives: 0 to 9, the same for the same question and index."""
    return int(hashlib.sha256(f"{question}/{index}".encode()).hexdigest(), 16) % 10


def text_of(question, index):
    """The CoT that the server gives."""
    number = number_of(question, index)
    return (
        f"Let me see, for the {index}. time: {'step by step, ' * number}so the answer is {number}."
    )


class FaultyServer:
    """The server, running inside a `with` block.

    Args:
        faults: names of faults for the first requests, in the order they arrive ("" for none), or a
            function of a question and the number of its attempt (0, 1, ...) that returns such a
            name.
        takes_n: whether n is honoured; otherwise one choice comes back.
        takes_logprobs: whether logprobs are honoured.
        wants: a parameter without which requests are answered 400, as reasoning models want
            `max_completion_tokens`.
        refuses_n: whether n above 1 is answered 400.
        repeats_key: whether errors and headers repeat the credentials that were sent.
        delay_s: before every reply.
    """

    def __init__(
        self,
        faults=(),
        *,
        takes_n=True,
        takes_logprobs=True,
        wants="",
        refuses_n=False,
        repeats_key=False,
        delay_s=0.0,
    ):
        script = iter(() if callable(faults) else faults)
        self._plan = faults if callable(faults) else lambda *_: next(script, "")
        self.takes_n, self.takes_logprobs = takes_n, takes_logprobs
        self.wants, self.refuses_n = wants, refuses_n
        self.repeats_key, self.delay_s = repeats_key, delay_s
        self.seen = []
        self.sent = Counter[str]()  # choices sent whole, by question
        self.attempts = Counter[str]()  # requests, by question
        self.faulted = Counter[str]()  # by name of the fault
        self.connections = 0
        self._loop = asyncio.new_event_loop()
        self._tasks = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self):
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind, value, traceback):
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self):
        return await asyncio.start_server(
            self._serve, "127.0.0.1", 0, limit=64 * 1024 * 1024, backlog=1024
        )

    async def _stop(self):
        self._server.close()
        # a task that was cancelled before it began would be an error in asyncio's streams
        await asyncio.sleep(0)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader, writer):
        self.connections += 1
        self._tasks.add(task := asyncio.current_task())
        try:
            while seen := await _request(reader):
                self.seen.append(seen)
                if not await self._write(writer, self._reply(seen)):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _write(self, writer, reply):
        """Write a reply; whether the connection is still to be used."""
        await asyncio.sleep(reply.wait_s + self.delay_s)
        if not reply.status:
            return False
        length = str(len(reply.body))
        headers = {"content-type": "application/json", "content-length": length} | reply.headers
        if self.repeats_key:
            headers |= {"x-request-id": self._sent_key(), "x-echo": f"key: {self._sent_key()}"}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(
            f"HTTP/1.1 {reply.status} Whatever\r\n{head}\r\n".encode() + reply.body[: reply.send]
        )
        await writer.drain()
        if reply.reset:
            # Without lingering a close is a reset: what was not read yet is thrown away.
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return reply.send is None

    def _sent_key(self):
        return self.seen[-1].headers.get("authorization", "")

    def _reply(self, seen):
        if seen.path != "/v1/chat/completions":
            reply = error(404, "no such path")
        elif self.wants and self.wants not in seen.body:
            other = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
                " 'max_completion_tokens' instead."
            )
            reply = error(400, other, {}, {"param": "max_tokens"})
        elif self.refuses_n and seen.body.get("n", 1) > 1:
            reply = error(400, "'n' : number must be at most 1", {}, {"param": "n"})
        else:
            reply = self._answer_or_fail(seen)
        if self.repeats_key and reply.status >= 400:
            said = f"{reply.body.decode()} (you sent {self._sent_key()})"
            reply = error(reply.status, said, reply.headers)
        return reply

    def _answer_or_fail(self, seen):
        question = seen.question
        attempt = self.attempts[question]
        self.attempts[question] += 1
        fault = self._plan(question, attempt)
        whole = Reply(body=self._completion(seen))
        if not fault:
            self._count(seen, whole)
            return whole
        self.faulted[fault] += 1
        failed = FAULTS[fault](whole)
        if fault in {"fewer", "more", "no usage"}:
            self._count(seen, failed)
        return failed

    def _count(self, seen, reply):
        self.sent[seen.question] += min(
            len(json.loads(reply.body)["choices"]), seen.body.get("n", 1)
        )

    def _completion(self, seen):
        question, seed = seen.question, seen.body.get("seed")
        count = seen.body.get("n", 1) if self.takes_n else 1
        first = self.sent[question] if seed is None else seed
        choices = [self._choice(seen, number, first + number) for number in range(count)]
        name = hashlib.sha256(question.encode()).hexdigest()[:16]
        reply = {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion",
            "created": 1,
            "model": f"{seen.body['model']}-2026",
            "system_fingerprint": "fp_1",
            "choices": choices,
            "usage": usage_of(choices, len(question.split())),
        }
        return json.dumps(reply).encode()

    def _choice(self, seen, number, index):
        question, text = seen.question, text_of(seen.question, index)
        odd = {
            "[length]": {"content": text[: len(text) // 2]},
            "[content_filter]": {"content": None},
            "[refusal]": {"content": None, "refusal": REFUSAL},
            "[unicode]": {"content": f"{WORST} {text}"},
            "[half]": {"content": f"{HALF} {text}"},
            # one in five is enough, and five would take their time
            "[big]": {} if index % 5 else {"content": f"{BIG}{text}"},
            "[reasoning]": {"reasoning_content": REASONING},
            "[key]": {"content": f"You sent {self._sent_key()}. {text}"},
        }
        message = {"role": "assistant", "content": text}
        for marker, fields in odd.items():
            message |= fields if marker in question else {}
        finish = "eos_token" if "[finish]" in question else "stop"
        for reason in ("length", "content_filter"):
            finish = reason if f"[{reason}]" in question else finish
        choice = {"index": number, "message": message, "finish_reason": finish, "logprobs": None}
        if seen.body.get("logprobs") and self.takes_logprobs:
            choice["logprobs"] = {
                "content": logprobs_of(message["content"] or "", seen.body.get("top_logprobs", 0))
            }
        return choice


def logprobs_of(text, top):
    """One token per word; the sampled one is the likeliest."""
    return [
        {
            "token": word,
            "logprob": -0.25,
            "top_logprobs": [{"token": word, "logprob": -0.25 * (rank + 1)} for rank in range(top)],
        }
        for word in re.findall(r"\S+", text)
    ]


async def _request(reader):
    """Read a request; `None` where the other side has gone."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    body = content if content.startswith(b"--") else json.loads(content or b"{}")
    return Seen(first.split(" ")[1], headers, body)


def stated(**fields):
    return Reply(body=json.dumps(fields).encode())


class BatchServer(FaultyServer):
    """One that takes batches, too. Results come in reverse order, the list in pages of one batch.

    Args:
        faults: of lines, as of requests.
        fates: what becomes of the batches, in the order in which they come: "" (all is well),
            a status that ends one half way, or what is wrong with the results.
        trouble: by the beginning of a path, the faults of the requests there, in order; the reply
            to one that is "lost" does not come.
        metadata: whether it is kept.
        most_bytes: of a file.
    """

    def __init__(self, faults=(), fates=(), trouble=None, *, metadata=True, most_bytes=10**9):
        super().__init__(faults)
        self._fates, self._trouble = iter(fates), trouble or {}
        self._metadata, self._most_bytes = metadata, most_bytes
        self.files, self.batches, self.paths, self.looks = {}, {}, [], Counter()
        # At which request the recorder (a process id) gets a signal, and whether it is lost.
        self.kill_at, self.is_lost, self.recorder, self.signal = 0, False, None, signal.SIGKILL

    def _reply(self, seen):
        self.paths.append(seen.path)
        if len(self.paths) == self.kill_at:
            while self.recorder is None:
                time.sleep(0.001)
            os.kill(self.recorder, self.signal)
            return Reply(0) if self.is_lost else self._done(seen)
        names = next((self._trouble[at] for at in self._trouble if seen.path.startswith(at)), None)
        fault = names.pop(0) if names else ""
        if not fault or fault == "lost":
            reply = self._done(seen)
            return Reply(0) if fault else reply
        return FAULTS[fault](Reply())

    def _done(self, seen):
        kind, *rest = re.split("[/?]", seen.path.removeprefix("/v1/"))
        if kind == "chat":
            return super()._reply(seen)
        if kind == "files" and rest:
            return Reply(body=self.files[rest[0]])
        if kind == "files" and len(seen.body) > self._most_bytes:
            return error(413, "The file is too large")
        if kind == "files":
            return stated(id=self._kept(re.findall(rb'^{"custom_id".*$', seen.body, re.MULTILINE)))
        if seen.body:
            return stated(**self._taken(seen))
        if rest and rest[0] in self.batches:
            self.looks[rest[0]] += 1
            early = {"status": "in_progress"} if self.looks[rest[0]] == 1 else {}
            return stated(**self.batches[rest[0]] | early)
        newest = [*self.batches.values()][::-1]
        after = re.search("after=([^&]*)", seen.path)
        start = [batch["id"] for batch in newest].index(after[1]) + 1 if after else 0
        return stated(data=newest[start : start + 1], has_more=start + 1 < len(newest))

    def _kept(self, lines):
        name = f"file-{len(self.files)}"
        self.files[name] = b"\n".join(lines)
        return name

    def _taken(self, seen):
        file, fate = seen.body["input_file_id"], next(self._fates, "")
        lines = [json.loads(line) for line in self.files[file].splitlines()]
        whole = {"": len(lines), "twice": len(lines), "failed": 0}.get(fate, len(lines) // 2)
        output, errors = [], []
        for line in lines[:whole]:
            reply = super()._reply(Seen(line["url"], seen.headers, line["body"]))
            said = {"status_code": reply.status, "body": json.loads(reply.body)}
            (output if reply.status == 200 else errors).append(line | {"response": said})
        output.reverse()
        for line in lines[whole:]:
            told = {"response": None, "error": {"code": f"batch_{fate}", "message": fate}}
            errors += [line | told] * (fate == "expired")
        results = [json.dumps(line).encode() for line in output]
        results += [b'{"custom_id": "'] * (fate == "garbled")
        results += [results[0], b'{"custom_id": "strange"}'] if fate == "twice" else []
        status = fate if fate in {"expired", "cancelled", "failed"} else "completed"
        batch = {"id": f"batch-{len(self.batches)}", "input_file_id": file}
        batch["metadata"] = seen.body["metadata"] if self._metadata else None
        batch["errors"] = {"data": [{"code": "token_limit_exceeded", "message": "Too many"}]}
        batch["output_file_id"] = self._kept(results) if results else None
        failed = [json.dumps(line).encode() for line in errors]
        batch["error_file_id"] = self._kept(failed) if failed else None
        self.batches[batch["id"]] = batch | {"status": status}
        return batch
