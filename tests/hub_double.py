"""A Hugging Face Hub in memory, on loopback, for the real client: repositories of the type dataset, read-only so far.

    with HubDouble() as hub:
        commit = hub.add_dataset("openai/gsm8k", {"main/test-00000-of-00001.parquet": data})
        HfApi(endpoint=hub.url).dataset_info("openai/gsm8k", revision=commit)

What it answers is what the client asks: names, commits, sizes and hashes are right, and `HEAD` and `GET` of a file honour ranges.
Its faults are switched on by attributes: `redirect`, `wrong_bytes`, `cut`, `gated`, `delay_seconds`, and a list of `failures`,
which are served to the next requests. Every request is written down in `requests`.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

TREE_PAGE = 50


class Request(NamedTuple):
    """One request as it came in; `host` is where it was sent, `token` what it carried."""

    method: str
    path: str
    host: str
    token: str | None


class Failure(NamedTuple):
    """An answer that stands in for the right one: to requests whose path contains `where`."""

    status: int
    where: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class HubError(Exception):
    """What the Hub answers when it cannot: a status, its own code for it, and words."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status, self.code = status, code


@dataclass
class Dataset:
    """A repository: its commits (path -> bytes), newest last, and what names point to."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)

    def commit_of(self, revision: str) -> str:
        commit = self.refs.get(revision, revision)
        if commit not in self.commits:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit


def is_lfs(path: str) -> bool:
    """Whether the Hub would keep the file in LFS: by its name, as `.gitattributes` says for Parquet."""
    return path.endswith((".parquet", ".npz", ".zst"))


def git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pointer(data: bytes) -> bytes:
    """The small file that git holds in place of one in LFS."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256(data)}\nsize {len(data)}\n".encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that hung up is no news."""


class HubDouble:
    """The server. Start it with `with`; it serves until the block is left."""

    def __init__(self) -> None:
        self.datasets: dict[str, Dataset] = {}
        self.requests: list[Request] = []
        self.redirect = False
        """Send files in LFS from another host, as the real Hub does."""
        self.wrong_bytes: Counter[str] = Counter()
        """How many more times a file is served with one byte changed."""
        self.cut: Counter[str] = Counter()
        """How many more times the connection is cut in the middle of a file."""
        self.gated: set[str] = set()
        """Repositories that only a request with a token may read."""
        self.delay_seconds = 0.0
        """How long every answer takes; leaving the block ends the wait."""
        self.failures: list[Failure] = []
        """Served before anything else, each once."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add_dataset(self, name: str, files: Mapping[str, bytes], commit: str | None = None) -> str:
        """Add a commit with these files, and these alone, to a repository, which is made if need be; `main` points to it."""
        dataset = self.datasets.setdefault(name, Dataset())
        if commit is None:
            account = json.dumps([name, len(dataset.commits), {path: sha256(data) for path, data in files.items()}])
            commit = hashlib.sha1(account.encode(), usedforsecurity=False).hexdigest()
        dataset.commits[commit] = dict(files)
        dataset.refs["main"] = commit
        return commit

    def asked(self, pattern: str = "") -> list[str]:
        """Method and path of the requests that match, in order."""
        lines = [f"{request.method} {request.path}" for request in self.requests]
        return [line for line in lines if re.search(pattern, line)]

    def note(self, request: Request) -> Failure | None:
        """Write a request down; gives the failure that it is to meet, if any."""
        with self._lock:
            self.requests.append(request)
            for failure in self.failures:
                if failure.where in request.path:
                    self.failures.remove(failure)
                    return failure
        return None

    def wait(self) -> None:
        if self.delay_seconds:
            self._closing.wait(self.delay_seconds)

    def readable(self, name: str, token: str | None) -> Dataset:
        if name not in self.datasets:
            raise HubError(404, "RepoNotFound", "Repository not found")
        if name in self.gated and token is None:
            raise HubError(403, "GatedRepo", f"Access to dataset {name} is restricted.")
        return self.datasets[name]

    def content(self, dataset: Dataset, revision: str, path: str) -> bytes:
        try:
            return dataset.commits[dataset.commit_of(revision)][path]
        except KeyError:
            raise HubError(404, "EntryNotFound", f"{path} does not exist on {revision}") from None

    def sent(self, path: str, data: bytes) -> bytes:
        """The bytes as they are served: wrong ones where the switch is on."""
        with self._lock:
            if not self.wrong_bytes[path]:
                return data
            self.wrong_bytes[path] -= 1
        return data[:-1] + bytes([data[-1] ^ 1])

    def is_cut(self, path: str) -> bool:
        with self._lock:
            cut = self.cut[path] > 0
            self.cut[path] -= cut
        return cut

    def blob(self, digest: str) -> tuple[str, bytes]:
        """A file in LFS by its hash, with a path it has."""
        for dataset in self.datasets.values():
            for files in dataset.commits.values():
                for path, data in files.items():
                    if is_lfs(path) and sha256(data) == digest:
                        return path, data
        raise HubError(404, "EntryNotFound", "no such object")


def info_of(name: str, dataset: Dataset, commit: str, *, blobs: bool) -> dict[str, Any]:
    return {
        "_id": hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()[:24],
        "id": name,
        "author": name.split("/", maxsplit=1)[0],
        "sha": commit,
        "lastModified": "2026-01-31T00:00:00.000Z",
        "createdAt": "2026-01-31T00:00:00.000Z",
        "private": False,
        "gated": False,
        "disabled": False,
        "tags": [],
        "downloads": 0,
        "likes": 0,
        "siblings": [_sibling(path, data, blobs=blobs) for path, data in sorted(dataset.commits[commit].items())],
    }


def _sibling(path: str, data: bytes, *, blobs: bool) -> dict[str, Any]:
    sibling: dict[str, Any] = {"rfilename": path}
    if blobs:
        sibling |= {"size": len(data), "blobId": git_blob(pointer(data) if is_lfs(path) else data)}
        if is_lfs(path):
            sibling["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": len(pointer(data))}
    return sibling


def tree_of(files: Mapping[str, bytes], folder: str, *, recursive: bool) -> Iterator[dict[str, Any]]:
    prefix = f"{folder}/" if folder else ""
    inside = {path.removeprefix(prefix): data for path, data in sorted(files.items()) if path.startswith(prefix)}
    if folder and not inside:
        raise HubError(404, "EntryNotFound", f"{folder} does not exist")
    folders = sorted({path[: cut.start()] for path in inside for cut in re.finditer("/", path)})
    for name in folders:
        if recursive or "/" not in name:
            oid = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
            yield {"type": "directory", "path": prefix + name, "size": 0, "oid": oid}
    for path, data in inside.items():
        if recursive or "/" not in path:
            item: dict[str, Any] = {"type": "file", "path": prefix + path, "size": len(data), "oid": git_blob(data)}
            if is_lfs(path):
                lfs = {"oid": sha256(data), "size": len(data), "pointerSize": len(pointer(data))}
                item |= {"oid": git_blob(pointer(data)), "lfs": lfs}
            yield item


def _handler(hub: HubDouble) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        _cut_short = False

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            """Keep standard error clean."""

        @property
        def _token(self) -> str | None:
            """The bearer token; a password in the address is none."""
            sent = self.headers.get("Authorization", "")
            return sent if sent.startswith("Bearer ") else None

        def _answer(self) -> None:
            address = urlsplit(self.path)
            host = self.headers.get("Host", "").partition(":")[0]
            failure = hub.note(Request(self.command, unquote(address.path), host, self._token))
            hub.wait()
            if failure is not None:
                self._send(failure.status, b'{"error": "as ordered"}', dict(failure.headers))
                return
            try:
                self._route(address.path, {key: values[-1] for key, values in parse_qs(address.query).items()})
            except HubError as error:
                body = json.dumps({"error": str(error)}).encode()
                self._send(error.status, body, {"X-Error-Code": error.code, "X-Error-Message": str(error)})

        def _route(self, path: str, query: dict[str, str]) -> None:
            for pattern, method in self.ROUTES:
                if found := re.fullmatch(pattern, path):
                    method(self, *(unquote(part or "") for part in found.groups()), query=query)
                    return
            raise HubError(404, "EntryNotFound", f"The double knows no {path}")

        def _whoami(self, *, query: dict[str, str]) -> None:
            if self._token is None:
                raise HubError(401, "", "Invalid username or password.")
            token = {"accessToken": {"role": "write"}}
            self._json({"type": "user", "name": "somebody", "fullname": "Somebody", "orgs": [], "auth": token})

        def _harnesses(self, *, query: dict[str, str]) -> None:
            self._json({"standardEnvVars": [], "harnesses": {}})

        def _info(self, name: str, revision: str, *, query: dict[str, str]) -> None:
            dataset = hub.readable(name, self._token)
            commit = dataset.commit_of(revision or "main")
            self._json(info_of(name, dataset, commit, blobs=query.get("blobs", "").lower() == "true"))

        def _tree(self, name: str, revision: str, folder: str, *, query: dict[str, str]) -> None:
            dataset = hub.readable(name, self._token)
            files = dataset.commits[dataset.commit_of(revision)]
            items = list(tree_of(files, folder, recursive=query.get("recursive", "").lower() == "true"))
            start = int(query.get("cursor", "0"))
            headers = {}
            if start + TREE_PAGE < len(items):
                again = "&".join(f"{key}={quote(value)}" for key, value in query.items() if key != "cursor")
                address = f"{hub.url}{urlsplit(self.path).path}?{again}&cursor={start + TREE_PAGE}"
                headers["Link"] = f'<{address}>; rel="next"'
            self._json(items[start : start + TREE_PAGE], headers)

        def _refs(self, name: str, *, query: dict[str, str]) -> None:
            refs = hub.readable(name, self._token).refs
            branches = [{"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": at} for ref, at in refs.items()]
            self._json({"branches": branches, "tags": [], "converts": []})

        def _resolve(self, name: str, revision: str, path: str, *, query: dict[str, str]) -> None:
            dataset = hub.readable(name, self._token)
            data = hub.content(dataset, revision, path)
            headers = {"X-Repo-Commit": dataset.commit_of(revision), "Accept-Ranges": "bytes"}
            if not is_lfs(path):
                self._file(path, data, {**headers, "ETag": f'"{git_blob(data)}"'})
                return
            linked = {"X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
            if hub.redirect:
                elsewhere = f"http://localhost:{hub.port}/objects/{sha256(data)}"
                self._send(
                    302, b"", {**headers, **linked, "Location": elsewhere, "ETag": f'"{git_blob(pointer(data))}"'}
                )
            else:
                self._file(path, data, {**headers, **linked, "ETag": f'"{sha256(data)}"'})

        def _object(self, digest: str, *, query: dict[str, str]) -> None:
            path, data = hub.blob(digest)
            self._file(path, data, {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"})

        def _file(self, path: str, data: bytes, headers: dict[str, str]) -> None:
            if self.command == "GET":
                data = hub.sent(path, data)
                self._cut_short = hub.is_cut(path)
            wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
            if wanted is None or wanted.groups() == ("", ""):
                self._send(200, data, {"Content-Type": "application/octet-stream", **headers})
                return
            first, last = wanted.groups()
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(len(data), int(last) + 1 if first and last else len(data))
            if start >= stop:
                self._send(416, b"", {**headers, "Content-Range": f"bytes */{len(data)}"})
                return
            self._send(206, data[start:stop], {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"})

        def _json(self, value: Any, headers: Mapping[str, str] = {}) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self._cut_short:
                self.wfile.write(body[: len(body) // 2])
                self._cut_short, self.close_connection = False, True
            elif self.command != "HEAD":
                self.wfile.write(body)

        # Addresses are matched as they were sent: a quoted slash in a revision is part of it.
        ROUTES = (
            (r"/api/whoami-v2", _whoami),
            (r"/api/agent-harnesses", _harnesses),
            (r"/api/datasets/([^/]+/[^/]+)/refs", _refs),
            (r"/api/datasets/([^/]+/[^/]+)(?:/revision/([^/]+))?", _info),
            (r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", _tree),
            (r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", _resolve),
            (r"/objects/([0-9a-f]{64})", _object),
        )

    return Handler
