"""The server, its switches, and what tests ask of it."""

import re
import threading
from collections import Counter
from typing import NamedTuple

from loopback import Loopback

from hub_double.repositories import Dataset, HubError, is_lfs, sha256


class Request(NamedTuple):
    """One request as it came in; `host` is where it was sent, `token` what it carried."""

    method: str
    path: str
    host: str
    token: str | None


class Failure(NamedTuple):
    """An answer that stands in for the right one: to requests whose method and path contain
    `where`.

    With `late` the request is carried out first, as when an answer is lost on its way back.
    """

    status: int
    where: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    late: bool = False


class HubDouble(Loopback):
    """The server. Start it with `with`; it serves until the block is left."""

    def __init__(self):
        from hub_double.reading import handler

        self.lock = threading.RLock()
        self.reset()
        super().__init__(handler(self))

    def reset(self):
        """Become an empty Hub with every switch off; answers that are waiting are sent."""
        if hasattr(self, "_release"):
            self._release.set()
        self.datasets = {}
        self.objects = {}
        """What was uploaded to LFS, by its SHA-256."""
        self.requests = []
        self.sent_bytes = Counter()
        """Path -> bytes of it that were sent."""
        self.redirect = False
        """Send files in LFS from another host, as the real Hub does."""
        self.wrong_bytes = Counter()
        """How many more times a file is served with one byte changed."""
        self.cut = Counter()
        """How many more times the connection is cut in the middle of a file."""
        self.gated = set()
        """Repositories that only a request with a token may read."""
        self.delay_seconds = 0.0
        """How long every answer takes; `reset` and leaving the block end the wait."""
        self.failures = []
        """Served before anything else, each once."""
        self.uploads_left = None
        """How many more objects LFS takes before every upload is cut in its middle; `None` for
        all.
        """
        self.before_commit = None
        """Called once, when the next commit has arrived and is not made yet."""
        self._release = threading.Event()

    def __exit__(self, *_):
        self._release.set()
        super().__exit__()

    def add_dataset(self, name, files, commit=None, *, private=False):
        """Add a commit with these files, and these alone, to a repository, which is made if need
        be; `main` points to it.
        """
        dataset = self.datasets.setdefault(name, Dataset(private=private))
        return dataset.add(name, files, commit, "main")

    def files(self, name, revision="main"):
        """The files of a repository."""
        return self.datasets[name].commits[self.datasets[name].commit_of(revision)]

    def asked(self, pattern=""):
        """Method and path of the requests that match, in order."""
        lines = [f"{request.method} {request.path}" for request in self.requests]
        return [line for line in lines if re.search(pattern, line)]

    def forget(self):
        """Begin a new page: forget requests and bytes."""
        self.requests.clear()
        self.sent_bytes.clear()

    def note(self, request):
        """Write a request down; gives the failure that it is to meet, if any."""
        with self.lock:
            self.requests.append(request)
            for failure in self.failures:
                if failure.where in f"{request.method} {request.path}":
                    self.failures.remove(failure)
                    return failure
        return None

    def wait(self):
        if self.delay_seconds:
            self._release.wait(self.delay_seconds)

    def readable(self, name, token):
        if name not in self.datasets or (self.datasets[name].private and token is None):
            raise HubError(404, "RepoNotFound", "Repository not found")
        if name in self.gated and token is None:
            raise HubError(403, "GatedRepo", f"Access to dataset {name} is restricted.")
        return self.datasets[name]

    def content(self, dataset, revision, path):
        try:
            return dataset.commits[dataset.commit_of(revision)][path]
        except KeyError:
            raise HubError(404, "EntryNotFound", f"{path} does not exist on {revision}") from None

    def sent(self, path, data):
        """The bytes as they are served: wrong ones where the switch is on."""
        with self.lock:
            if not self.wrong_bytes[path]:
                return data
            self.wrong_bytes[path] -= 1
        return data[:-1] + bytes([data[-1] ^ 1])

    def is_cut(self, path):
        with self.lock:
            cut = self.cut[path] > 0
            self.cut[path] -= cut
        return cut

    def takes_upload(self):
        """Whether one more object may be uploaded."""
        with self.lock:
            if self.uploads_left is None:
                return True
            self.uploads_left -= 1
            return self.uploads_left >= 0

    def blob(self, digest):
        """A file in LFS by its hash, with a path it has."""
        for dataset in self.datasets.values():
            for files in dataset.commits.values():
                for path, data in files.items():
                    if is_lfs(path) and sha256(data) == digest:
                        return path, data
        raise HubError(404, "EntryNotFound", "no such object")
