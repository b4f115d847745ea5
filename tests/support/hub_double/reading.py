"""What the server answers to those who look and download."""

import json
import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from hub_double.hub import Request
from hub_double.repositories import (
    PULL_REQUEST,
    HubError,
    git_blob,
    info_of,
    is_lfs,
    items_at,
    pointer,
    sha256,
    tree_of,
)
from hub_double.writing import Writing


def handler(hub):
    """The class that answers for one Hub."""
    return type("BoundHandler", (Handler,), {"hub": hub})


class Handler(Writing, BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    _cut_short = False
    _silent = False

    def do_GET(self):
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  as the base class calls them

    def log_message(self, *_):
        """Keep standard error clean."""

    @property
    def token(self):
        """The bearer token; a password in the address is none."""
        sent = self.headers.get("Authorization", "")
        return sent if sent.startswith("Bearer ") else None

    def _answer(self):
        address = urlsplit(self.path)
        host = self.headers.get("Host", "").partition(":")[0]
        failure = self.hub.note(Request(self.command, unquote(address.path), host, self.token))
        self.hub.wait()
        if failure is not None:
            if failure.late:
                self._silent = True
                self._routed(address.path, address.query)
                self._silent = False
            else:
                self.body()
            self.send(failure.status, b'{"error": "as ordered"}', dict(failure.headers))
            return
        self._routed(address.path, address.query)

    def _routed(self, path, query):
        try:
            self._route(path, {key: values[-1] for key, values in parse_qs(query).items()})
        except HubError as error:
            body = json.dumps({"error": str(error)}).encode()
            self.body()
            self.send(
                error.status, body, {"X-Error-Code": error.code, "X-Error-Message": str(error)}
            )

    def _route(self, path, query):
        for methods, pattern, answer in (*READING, *Writing.ROUTES):
            if self.command in methods and (found := re.fullmatch(pattern, path)):
                answer(self, *(unquote(part or "") for part in found.groups()), query=query)
                return
        raise HubError(404, "EntryNotFound", f"The double knows no {self.command} {path}")

    def _whoami(self, *, query):
        if self.token is None:
            raise HubError(401, "", "Invalid username or password.")
        token = {"accessToken": {"role": "write"}}
        self.json(
            {"type": "user", "name": "somebody", "fullname": "Somebody", "orgs": [], "auth": token}
        )

    def _harnesses(self, *, query):
        self.json({"standardEnvVars": [], "harnesses": {}})

    def _info(self, name, revision, *, query):
        dataset = self.hub.readable(name, self.token)
        commit = dataset.commit_of(revision or "main")
        self.json(info_of(name, dataset, commit, blobs=query.get("blobs", "").lower() == "true"))

    def _tree(self, name, revision, folder, *, query):
        dataset = self.hub.readable(name, self.token)
        files = dataset.commits[dataset.commit_of(revision)]
        items = list(tree_of(files, folder, recursive=query.get("recursive", "").lower() == "true"))
        self.json(items)

    def _paths_info(self, name, revision, *, query):
        dataset = self.hub.readable(name, self.token)
        sent = self.body()
        is_json = self.headers.get("Content-Type", "").startswith("application/json")
        paths = json.loads(sent)["paths"] if is_json else parse_qs(sent.decode()).get("paths", [])
        self.json(list(items_at(dataset.commits[dataset.commit_of(revision)], paths)))

    def _refs(self, name, *, query):
        dataset = self.hub.readable(name, self.token)
        requests = {ref: at for ref, at in dataset.refs.items() if ref.startswith(PULL_REQUEST)}
        found = {
            "branches": [
                {"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": at}
                for ref, at in dataset.refs.items()
                if ref not in requests
            ],
            "tags": [
                {"name": tag, "ref": f"refs/tags/{tag}", "targetCommit": at}
                for tag, at in dataset.tags.items()
            ],
            "converts": [],
        }
        if query.get("include_prs"):
            found["pullRequests"] = [
                {"name": ref, "ref": ref, "targetCommit": at} for ref, at in requests.items()
            ]
        self.json(found)

    def _resolve(self, name, revision, path, *, query):
        dataset = self.hub.readable(name, self.token)
        data = self.hub.content(dataset, revision, path)
        headers = {"X-Repo-Commit": dataset.commit_of(revision), "Accept-Ranges": "bytes"}
        if not is_lfs(path):
            self._file(path, data, {**headers, "ETag": f'"{git_blob(data)}"'})
            return
        linked = {"X-Linked-Etag": f'"{sha256(data)}"', "X-Linked-Size": str(len(data))}
        headers |= linked
        if self.hub.redirect:
            headers["Location"] = f"http://localhost:{self.hub.port}/objects/{sha256(data)}"
            self.send(302, b"", {**headers, "ETag": f'"{git_blob(pointer(data))}"'})
        else:
            self._file(path, data, {**headers, "ETag": f'"{sha256(data)}"'})

    def _object(self, digest, *, query):
        path, data = self.hub.blob(digest)
        self._file(path, data, {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"})

    def _file(self, path, data, headers):
        if self.command == "GET":
            data = self.hub.sent(path, data)
            self._cut_short = self.hub.is_cut(path)
        wanted = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, stop = int(wanted[1]) if wanted else 0, len(data)
        if wanted and wanted[2]:
            stop = min(stop, int(wanted[2]) + 1)
        self._count(path, stop - start)
        shown = f"bytes {start}-{stop - 1}/{len(data)}"
        headers = {"Content-Type": "application/octet-stream", "Content-Range": shown, **headers}
        self.send(206 if wanted else 200, data[start:stop], headers)

    def _count(self, path, size):
        if self.command == "GET":
            with self.hub.lock:
                self.hub.sent_bytes[path] += size

    def json(self, value, headers={}, status=200):  # noqa: B006  the body the hub sends
        """Answer with a JSON value."""
        self.send(
            status, json.dumps(value).encode(), {"Content-Type": "application/json", **headers}
        )

    def send(self, status, body, headers):
        """Answer."""
        if self._silent:
            return
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
READING = (
    (("GET",), r"/api/whoami-v2", Handler._whoami),
    (("GET",), r"/api/agent-harnesses", Handler._harnesses),
    (("GET",), r"/api/datasets/([^/]+/[^/]+)/refs", Handler._refs),
    (("GET",), r"/api/datasets/([^/]+/[^/]+)(?:/revision/([^/]+))?", Handler._info),
    (("GET",), r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)(?:/(.+))?", Handler._tree),
    (("POST",), r"/api/datasets/([^/]+/[^/]+)/paths-info/([^/]+)", Handler._paths_info),
    (("GET", "HEAD"), r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", Handler._resolve),
    (("GET", "HEAD"), r"/objects/([0-9a-f]{64})", Handler._object),
)
