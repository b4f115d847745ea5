"""The process that runs a user's method, started by `process`: `python -m feval.evaluation.user_methods.worker`.

Requests come through standard input and replies go to standard output. A message is its length (four bytes, little-endian) and a
JSON text; no message becomes code. A request has a "command":

    load    run the user's file                                     reply: whether the method learns
    check   can the method be called with so many LLMs?             reply: null
    open    load recordings, in place of those loaded before        reply: null
    fit     let the method learn from some questions                reply: null
    ask     ask the method some questions, in one replicate         one reply per question: [answer, ledgers]

A reply is {"value": ...}, or {"error": class, "message": sentence}, which ends its request. The user's code sees neither pipe:
its input is empty, and what it prints goes to standard error. The parent ends this process when a time limit is up; if the parent
dies, this process ends, too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from feval.errors import FevalError, MethodError, UnknownNameError, UsageError
from feval.evaluation.user_methods.calling import LENGTH, answers, contained, described, encoded, require_arguments
from feval.replay.loading import LoadRecipe

if TYPE_CHECKING:
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM

_GRACE_SECONDS = 5.0


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    requests, replies = _take_pipes()
    queue: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_receive, args=(requests, queue), daemon=True).start()
    worker, own = _Worker(), os.getpid()
    while True:
        for reply in _replies(worker, queue.get()):
            if os.getpid() != own:
                os._exit(1)  # the user's code forked, and its child came back here
            replies.write(encoded(reply))
            replies.flush()


def _take_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the two pipes, out of the way of the user's code: it reads nothing, and prints to standard error."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, replies


def _receive(requests: IO[bytes], queue: SimpleQueue[dict[str, Any]]) -> None:
    """Read requests in a thread of its own, which notices the parent's end while the method is busy."""
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        queue.put(json.loads(requests.read(*LENGTH.unpack(head))))
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)  # together with what the user's code started
    os._exit(1)


def _replies(worker: _Worker, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    command = request.pop("command")
    try:
        for value in getattr(worker, command)(**request):
            yield {"value": value}
    except FevalError as error:
        yield {"error": type(error).__name__, "message": str(error)}
    except BaseException as error:  # noqa: BLE001  also a KeyboardInterrupt that the user's code raises
        yield {"error": "MethodError", "message": f"The process of the method {worker.name} raised {described(error)}."}


class _Worker:
    """Answers requests; every public method is a command."""

    def __init__(self) -> None:
        self.name = ""
        self._method: Any = None
        self._fitted: Any = None
        self._dataset: Dataset
        self._llms: Sequence[LLM]

    def load(self, path: str, function: str, source_sha256: str, module_path: list[str]) -> Iterator[bool]:
        self.name = function
        sys.path[:] = module_path
        self._method = _loaded(Path(path), function, source_sha256)
        with contained(f"The method {function}"):
            learns = hasattr(self._method, "fit") and not getattr(self._method, "fitted", False)
        yield bool(learns)

    def check(self, llms: int) -> Iterator[None]:
        require_arguments(self._method, self.name, llms)
        yield None

    def open(self, recipe: dict[str, Any]) -> Iterator[None]:
        self._dataset, self._llms = LoadRecipe.from_dict(recipe).load()
        _ = self._dataset[0]  # reads all questions now, and not in the first one's time
        yield None

    def fit(self, rows: list[int]) -> Iterator[None]:
        training = np.array(rows, np.intp)
        with contained(f"The method {self.name}, learning from {len(rows)} questions,"):
            pools = [llm.pool.rows(training) for llm in self._llms]
            self._fitted = self._method.fit(pools, self._dataset.gold[training])
        yield None

    def ask(self, rows: list[int], replicate: int | None, seconds: float | None, *, fitted: bool) -> Iterator[Any]:
        method = self._fitted if fitted else self._method
        replies = answers(method, self.name, self._dataset, self._llms, rows, replicate)
        try:
            for _ in rows:
                _end_later(seconds)
                yield next(replies)
        finally:
            _end_later(None)


def _end_later(seconds: float | None) -> None:
    """End this process should its parent be killed while the user's code holds the interpreter: nothing of ours can run then.

    The parent's own limit comes first. Processor time is counted, on all cores, since a process that waits lets `_receive` run.
    """
    if hasattr(signal, "setitimer"):
        limit = 0.0 if seconds is None else (seconds + _GRACE_SECONDS) * (os.cpu_count() or 1)
        signal.setitimer(signal.ITIMER_PROF, limit)  # its signal's default action is to end the process


class _PinnedSource(SourceFileLoader):
    """Imports the bytes that were hashed, whatever the file or a cached .pyc holds by now."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        super().__init__(name, str(path))
        self._source = source

    def path_stats(self, path: Any) -> Any:
        raise OSError(path)  # neither looks for a .pyc nor writes one

    def get_data(self, path: Any) -> bytes:  # noqa: ARG002  the interface's
        return self._source


def _loaded(path: Path, function: str, source_sha256: str) -> Any:
    """Run a user's file and return its method; a class is instantiated."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"The method's file {path} cannot be read: {error.strerror or error}.") from error
    if sha256(source).hexdigest() != source_sha256:
        raise MethodError(f"The method's file {path} has changed since it was named; run again.")
    name = f"feval_method_{source_sha256[:16]}"
    loader = _PinnedSource(name, path, source)
    module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    with contained(f"The file {path}"):
        loader.exec_module(module)
    method = getattr(module, function, None)
    if not callable(method):
        names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise UnknownNameError.of("callable", function, names, f"It should be defined in {path}.")
    if not isinstance(method, type):
        return method
    with contained(f"The class {function} of {path}"):
        return method()


if __name__ == "__main__":
    main()
