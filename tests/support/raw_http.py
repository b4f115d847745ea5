"""HTTP as bytes: what no well-behaved client would send, and what comes back read without one."""

import json
import socket
from dataclasses import dataclass

TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Received:
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """Of an error in OpenAI's shape: exactly that, or the test fails."""
        value = self.json
        assert set(value) == {"error"}, value
        assert set(value["error"]) == {"message", "type", "param", "code"}, value
        assert isinstance(value["error"]["message"], str)
        assert value["error"]["message"]
        assert self.headers["content-type"] == "application/json"
        return dict(value["error"])

    @property
    def events(self):
        """The data of a stream's events."""
        assert self.headers["content-type"].startswith("text/event-stream")
        blocks = self.body.decode().removesuffix("\n\n").split("\n\n")
        assert all(block.startswith("data: ") for block in blocks), blocks
        return [block.removeprefix("data: ") for block in blocks]


class Raw:
    """One connection."""

    def __init__(self, port, *, timeout_s=TIMEOUT_S, source="127.0.0.1"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s, (source, 0))
        self._file = self.socket.makefile("rb")

    def send(self, *pieces):
        for piece in pieces:
            self.socket.sendall(piece)
        return self

    def receive(self, *, head=False):
        """Read one response; `head` where the request was HEAD."""
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        status = int(line.split()[1])
        headers = {}
        while (line := self._file.readline()) not in {b"\r\n", b""}:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if status == 100:
            return Received(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Received(status, headers, b"" if head else b"".join(iter(self._chunk, b"")))
        length = 0 if head else int(headers["content-length"])
        body = self._file.read(length)
        assert len(body) == length, f"{len(body)} of {length} bytes came"
        return Received(status, headers, body)

    def _chunk(self):
        size = self._file.readline()
        assert size.endswith(b"\r\n"), "the stream was cut off"
        piece = self._file.read(int(size, 16))
        assert self._file.readline() == b"\r\n"
        return piece

    @property
    def ended(self):
        """Whether the server closes the connection and has said no more before."""
        try:
            return self._file.read(1) == b""
        except ConnectionResetError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self._file.close()
        self.socket.close()


def request(method, path, body=None, *, host="127.0.0.1", **headers):
    """The bytes of a request; a header's name has _ for -."""
    if isinstance(body, dict):
        body = json.dumps(body).encode()
        headers.setdefault("content_type", "application/json")
    if body is not None:
        headers.setdefault("content_length", str(len(body)))
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def ask(port, method, path, body=None, **headers):
    """Send one request on a connection of its own."""
    with Raw(port) as connection:
        return connection.send(request(method, path, body, **headers)).receive(
            head=method == "HEAD"
        )
