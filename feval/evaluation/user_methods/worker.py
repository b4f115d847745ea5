"""The process that runs a user's method, started by `host`: `python -m
feval.evaluation.user_methods.worker`.

Requests come through standard input and replies go to standard output; `calling` has their form,
and no message becomes code. A request has a "command":

    ready   has Python started?                                     reply: null
    load    run the user's file                                     reply: whether the method learns
    check   can the method be called with so many LLMs?             reply: null
    fit     let the method learn from training questions            reply: null
    open    take questions and pools, in place of those before      reply: null
    ask     ask the method these questions, in one draw             each: [answer, ledgers, handed]

A reply is {"value": ...}, or {"error": class, "message": sentence}, which ends its request. Before
it may come calls, {"call": [name, ...]}, for texts and channels, which are answered in the same
way. This process opens no recording: it holds the texts of the questions, the pools and draws of
the method's LLMs, and the golds of training questions; no id and no other gold. The user's code is
not meant to see either pipe: its input is empty, and what it prints goes to standard error. The
parent ends this process when a time limit is up; if the parent dies, this process ends, too.
"""

from __future__ import annotations

import inspect
import os
import select
import signal
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from feval import errors
from feval.cards.billing import Price
from feval.errors import FevalError, MethodError, UnknownNameError, require_known
from feval.evaluation.user_methods.calling import (
    ID,
    KIND,
    LENGTH,
    call_method,
    closed_ledgers,
    contained,
    decoded,
    described,
    encoded,
    require_arguments,
)
from feval.methods.protocol import Question, Training
from feval.recording import Probes, ScorerInfo, Scores, Steps
from feval.replay import LLM, Clock
from feval.replay.meter import handed_out
from feval.replay.pools import Channel, Channels, Pool, RaggedArray, TokenLogprobs
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from feval.cards import PriceList


_GRACE_SECONDS = 5.0

Call = Callable[..., Any]
"""Asks feval's own process: (name, *arguments) -> value."""


def main() -> None:
    """Serve requests until the parent closes the pipe."""
    parent = _Parent()
    threading.Thread(target=_end_with_parent, args=(parent.requests.fileno(),), daemon=True).start()
    worker = _Worker(parent.call)
    while True:
        for reply in _replies(worker, parent.receive()):
            parent.send(reply)


class _Parent:
    """The process that started this one, at the other end of two pipes, which are out of the way of
    the user's code.
    """

    def __init__(self) -> None:
        self.requests, self._replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", 0)
        self._own, self._lock, self._interrupted = os.getpid(), threading.Lock(), False
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        sys.stdout = sys.stderr

    def receive(self) -> Record:
        """Return the next message."""
        if len(head := self.requests.read(LENGTH.size)) < LENGTH.size:
            _end()
        return decoded(self.requests.read(*LENGTH.unpack(head)), _revived)

    def send(self, message: Record) -> None:
        """Send a message."""
        if os.getpid() != self._own:
            os._exit(1)  # the user's code forked, and its child came back here
        left = memoryview(encoded(message))
        try:
            while left:
                left = left[self._replies.write(left) or 0 :]
        # the parent was killed, and the thread that waits for it has not had its turn
        except BrokenPipeError:
            _end()

    def call(self, name: str, *arguments: Any) -> Any:
        """Ask the parent for something, and return its value; `FevalError` where it refuses."""
        if os.getpid() != self._own:
            os._exit(1)
        with self._lock:
            if self._interrupted:
                raise MethodError(
                    "asked an LLM after an exception had interrupted the request before."
                )
            self._interrupted = True
            self.send({"call": [name, *arguments]})
            reply = self.receive()
            self._interrupted = False
        if "error" in reply:
            raise getattr(errors, reply["error"])(reply["message"])
        return reply["value"]


def _end_with_parent(requests: int) -> None:
    """Wait, in a thread of its own, for the parent's end, also while the method is busy."""
    poll = select.poll()
    poll.register(requests, 0)  # nothing but the end of the other side
    poll.poll()
    _end()


def _end() -> None:
    if os.getpgid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)  # together with what the user's code started
    os._exit(1)


def _replies(worker: _Worker, request: Record) -> Iterator[Record]:
    command = request.pop("command")
    try:
        for value in getattr(worker, command)(**request):
            yield {"value": value}
    except FevalError as error:
        yield {"error": type(error).__name__, "message": str(error).strip()}
    except BaseException as error:  # noqa: BLE001  also a KeyboardInterrupt that the user's code raises
        yield {"error": "MethodError", "message": f"raised {described(error)}."}


class _Worker:
    """Answers requests; every public method is a command. The parent begins the sentence of a
    `MethodError`: "The method ...".
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def ready(self) -> Iterator[None]:
        yield None

    def load(
        self, path: str, function: str, source: str, module_path: list[str], settings: list[Any]
    ) -> Iterator[bool]:
        self._name = function
        sys.path[:] = module_path
        self._method = _loaded(Path(path), function, b64decode(source), settings)
        with contained(""):
            learns = hasattr(self._method, "fit") and not getattr(self._method, "fitted", False)
        yield bool(learns)

    def check(self, llms: int) -> Iterator[None]:
        require_arguments(self._method, self._name, llms)
        yield None

    def fit(self, pools: list[Record], gold: Any, **known: Any) -> Iterator[None]:
        def replies(llm: int) -> list[list[str]]:
            return [self._call("reply", llm, place) for place in range(len(gold))]

        with contained(""):
            train = [_pool(each, self._call) for each in pools]
            self._method = self._method.fit(Training(train, gold=gold, replies=replies, **known))
        yield None

    def open(
        self, questions: list[tuple[str, Record]], llms: list[Record], **shared: Any
    ) -> Iterator[None]:
        self._questions = [Question(*each) for each in questions]
        self._llms = [BlindLLM(place, llm, shared, self._call) for place, llm in enumerate(llms)]
        yield None

    def ask(
        self, orders: Sequence[np.ndarray[Any, Any] | None], seconds: float | None, *, closely: bool
    ) -> Iterator[tuple[str | None, list[list[int]], list[list[tuple[int, int]]]]]:
        for llm, drawn in zip(self._llms, orders, strict=True):
            llm.drawn = drawn
        try:
            for place, question in enumerate(self._questions):
                metered = [llm.ask(place) for llm in self._llms]
                _end_later(seconds)
                answer = call_method(self._method, "", question, metered)
                yield (
                    answer,
                    closed_ledgers(metered),
                    [*map(handed_out, metered)] if closely else [],
                )
        finally:
            _end_later(None)


def _end_later(seconds: float | None) -> None:
    """End this process should its parent be killed while the user's code holds the interpreter:
    nothing of ours can run then.

    The parent's own limit comes first. Processor time is counted, on all cores, since a process
    that waits lets the thread run.
    """
    if hasattr(signal, "setitimer"):
        limit = 0.0 if seconds is None else (seconds + _GRACE_SECONDS) * (os.cpu_count() or 1)
        # its signal's default action is to end the process
        signal.setitimer(signal.ITIMER_PROF, limit)


class _PinnedSource(SourceFileLoader):
    """Imports the bytes that were hashed, whatever the file or a cached .pyc holds by now."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        super().__init__(name, str(path))
        self._source = source

    def path_stats(self, path: Any) -> Any:
        raise OSError(path)  # neither looks for a .pyc nor writes one

    def get_data(self, path: Any) -> bytes:  # noqa: ARG002  the interface's
        return self._source


def _loaded(path: Path, function: str, source: bytes, settings: list[Any]) -> Any:
    """Run a user's file and return its method, with what is set of it; a class is instantiated."""
    name = "feval_users_method"
    loader = _PinnedSource(name, path, source)
    module = module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    with contained(""):
        loader.exec_module(module)
    method = getattr(module, function, None)
    if not callable(method):
        names = [
            n for n, value in vars(module).items() if callable(value) and not n.startswith("_")
        ]
        raise UnknownNameError.among(
            "callable", function, names, f"It should be defined in {path}."
        )
    given = _arguments(method, function, settings) if settings else {}
    with contained(""):
        if isinstance(method, type):
            return method(**given)
        return partial(method, **given) if given else method


def _arguments(method: Any, function: str, settings: list[Any]) -> Record:
    """The keyword arguments that settings stand for, each the first of its readings, or the text
    where that is what the argument takes.
    """
    parameters = inspect.signature(method).parameters.values()
    known = {
        each.name: each.annotation in (str, "str")
        for each in parameters
        if each.kind is each.KEYWORD_ONLY
        or (
            each.kind is each.POSITIONAL_OR_KEYWORD
            and (isinstance(method, type) or each.default is not each.empty)
        )
    }
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        known = {name: False for name, _ in settings} | known
    for name, _ in settings:
        require_known("field", name, [*known], f"These can be set of {function}.")
    return {name: given[-1 if known[name] else 0] for name, given in settings}


class BlindLLM(LLM):
    """An LLM on the questions that were handed over, which are told apart by their places.

    Attributes:
        drawn: [Q, S] the draw of all questions that feval is at; `None` for the recorded order.
    """

    def __init__(self, place: int, values: Record, shared: RecordLike, call: Call) -> None:
        answers = values.pop("answers")
        self.pool = _pool(values, call, answers)
        self.name, self.dataset, self.billing = self.pool.llm, shared["dataset"], shared["billing"]
        self._prices = lambda: _price_list(shared["prices"])
        view: Any = _BlindView(place, answers, self.dataset, call)
        self._read_from(view)
        self._call = call
        self.drawn: np.ndarray[Any, Any] | None = None

    def order(self, row: int, _: int) -> tuple[int, ...]:
        """See `LLM.order`."""
        size = int(self.pool.sizes[row])
        return tuple(range(size) if self.drawn is None else self.drawn[row, :size].tolist())

    def uniform(self, row: int, places: Sequence[int], seed: int) -> float:
        """See `LLM.uniform`: it takes the question's key, which stays in feval's own process."""
        return float(self._call("uniform", row, list(places), seed))


def _price_list(values: RecordLike | None) -> PriceList | None:
    if values is None:
        return None
    # it takes long to import, and few methods ask for dollars
    from feval.cards.prices import PriceList

    return PriceList(**values)


class _BlindView:
    """What an LLM takes from a view of a recording."""

    def __init__(self, llm: int, answers: Sequence[list[str]], dataset: str, call: Call) -> None:
        self._llm, self._call = llm, call
        self._last: dict[str, tuple[int, Any]] = {}
        self.votes = SimpleNamespace(
            dataset=dataset, question_ids=[ID] * len(answers), candidates=answers.__getitem__
        )
        self.prompt, self.texts, self.reasoning, self.messages, self.tool_calls = (
            partial(self._once, name)
            for name in ("prompt", "texts", "reasoning", "messages", "tool_calls")
        )

    def row(self, place: int) -> int:
        return place

    def _once(self, name: str, _: str, row: int) -> Any:
        if self._last.get(name, (-1, None))[0] != row:
            self._last[name] = row, self._call("text", name, self._llm, row)
        return self._last[name][1]


class _BlindChannels(Channels):
    """Scores, log-probabilities and probes, which feval's own process is asked for when they are
    first looked at.
    """

    def __init__(
        self, owner: str, number: int, call: Call, answers: Sequence[list[str]], *, has_steps: bool
    ) -> None:
        super().__init__(owner)
        self._has_steps = has_steps
        self._number, self._call, self._answers = number, call, answers

    def read(self, channel: Channel, *scorer: str) -> Any:
        is_absent = channel == "steps" and not self._has_steps
        if is_absent or channel in {"duration_s", "first_token_s"}:
            return None
        value = self._call("channel", self._number, channel, *scorer)
        if channel != "probes":
            return value
        for known, more in zip(self._answers, value["answers"], strict=False):
            known += more
        return value["probes"]


_KINDS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind
    for kind in (Clock, Price, Probes, RaggedArray, ScorerInfo, Scores, Steps, TokenLogprobs)
}


def _revived(value: Record) -> Any:
    """Return the array or the data class that an object of a message stands for."""
    kind = value.pop(KIND, None)
    if kind is None:
        return value
    if "shape" in value:
        value["shape"] = tuple(value["shape"])
    if kind == "array":
        data = np.frombuffer(bytearray(b64decode(value["base64"])), value["dtype"])
        return data.reshape(value["shape"])
    return _KINDS[kind](**value)


def _pool(values: Record, call: Call, answers: Sequence[list[str]] = ()) -> Pool:
    """Return a pool from its arrays; `answers` are those of each question by code, which grow when
    probes are read.
    """
    owner, number, has_steps = (values.pop(key) for key in ("owner", "number", "has_steps"))
    channels = _BlindChannels(owner, number, call, answers, has_steps=has_steps)
    return Pool(_finish=values.pop("finish"), **values, channels=channels)


if __name__ == "__main__":
    main()
