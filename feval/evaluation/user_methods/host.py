"""A user's method in a worker process, which is ended when a time limit is up.

Whatever the user's code does (block in C, swallow every exception, exit, crash, write nonsense to
its pipe), evaluation gets an answer or raises a sentence. The process is a fresh Python in the
file's folder, not a fork, so that it holds nothing of this one; `BlindDataset` says what it is
handed. It is started with `subprocess`: workers of a cluster are daemonic, and multiprocessing
gives those no children. `worker` is the other end.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np

from feval import errors
from feval.cards.reading import require_shallow
from feval.errors import (
    DamagedRecordingError,
    FevalError,
    HubError,
    MethodError,
    NotFetchedError,
    UsageError,
)
from feval.evaluation import TIME_LIMIT
from feval.evaluation.user_methods.calling import ID, LENGTH, MethodAnswer, decoded, encoded
from feval.methods.fields import readings
from feval.methods.protocol import LEDGER_FIELDS
from feval.values import Record

if TYPE_CHECKING:
    from feval.methods.protocol import Rows, Training
    from feval.replay import LLM, Dataset
    from feval.replay.pools import Channels, Pool

    Learnt = tuple[Dataset, Sequence[LLM], Rows, Training]
    """What a method learns from: the training questions, and where they are from."""


_START_SECONDS = 120.0  # for Python and NumPy, before the user's code runs
# Running the file, which may load something large, takes no longer than so many questions may take.
_SETUP_QUESTIONS = 10
_EXIT_SECONDS = 2.0
_MOST_BYTES = 1 << 20  # of one message from the worker: far above any answer
_MOST_BILLED = 1 << 40  # tokens or calls on one question
# the worker's sentences that name the file themselves
_VERBATIM_ERRORS = {"UsageError", "UnknownNameError"}


class MethodHost:
    """Runs the method of a user's file. The process starts when first needed, and anew after it had
    to be ended.

    Every method raises `UsageError` where the file has no such callable, and `MethodError` where
    its code raised or did not end.

    Attributes:
        training: what the method has learnt from; `None` for nothing.
    """

    def __init__(
        self,
        path: Path,
        function: str,
        source: bytes,
        settings: Sequence[tuple[str, Any]],
        *,
        sandbox: bool,
    ) -> None:
        self._path, self._function, self._source, self._sandbox = path, function, source, sandbox
        self._settings = [(name, readings(value)) for name, value in settings]
        self._lock = threading.RLock()
        self._data = BlindDataset()
        self._channel: _Channel | None = None
        self._learns = False
        self.training: Learnt | None = None
        self._opened: object = None

    def start(self, seconds: float | None = TIME_LIMIT) -> None:
        """Start the process, run the user's file and let the method learn, unless that was done; in
        as much time as ten questions may take.
        """
        with self._lock:
            if self._channel is not None:
                return
            self._channel = _Channel(
                self._data, self._path.absolute().parent, sandbox=self._sandbox
            )
            self._opened = None
            self._one("ready", {}, f"Starting the method {self._function}", _START_SECONDS)
            file = {
                "path": str(self._path.absolute()),
                "function": self._function,
                "module_path": sys.path,
                "source": b64encode(self._source).decode(),
                "settings": self._settings,
            }
            limit = None if seconds is None else seconds * _SETUP_QUESTIONS
            self._learns = bool(self._one("load", file, f"The file {self._path}", limit))
            if self.training is not None:
                self.fit(self.training, seconds)

    def learns(self) -> bool:
        """Return whether the method has something left to learn."""
        self.start()
        return self._learns

    def require_arguments(self, llms: int) -> None:
        """Raise `UsageError` unless the method can be called with a question and so many LLMs."""
        with self._lock:
            self.start()
            where = f"Inspecting the method {self._function}"
            self._one("check", {"llms": llms}, where, TIME_LIMIT)

    def fit(self, training: Learnt, seconds: float | None) -> None:
        """Let the method learn, in `seconds` per training question, of ten at least."""
        with self._lock:
            self.training = None
            self.start(seconds)
            rows = training[2]
            limit = None if seconds is None else seconds * max(_SETUP_QUESTIONS, len(rows))
            where = f"The method {self._function}, learning from {len(rows)} questions,"
            self._one("fit", self._data.training(*training), where, limit)
            self.training, self._learns = training, False

    def answers(
        self,
        dataset: Dataset,
        llms: Sequence[LLM],
        rows: Rows,
        replicate: int | None,
        seconds: float | None,
        *,
        closely: bool = False,
    ) -> list[MethodAnswer]:
        """Ask the method some questions, and return its answers in the order of the rows.

        Each may take so many seconds, `None` for any time; `None` for the replicate hands CoTs out
        in recorded order. It gets the questions in an order of their own: a recording may have them
        sorted by what is right.
        """
        order = np.argsort(dataset.question_keys[rows], kind="stable")
        rows, answers = rows[order], {}
        with self._lock:
            self.start(seconds)
            where, opened = f"The method {self._function}", (dataset, *llms, rows.tobytes())
            if opened != self._opened:
                handed = self._data.questions(dataset, llms, rows)
                self._one("open", handed, f"{where}, taking its questions,", TIME_LIMIT)
                self._opened = opened
            # one draw of whole pools, [Q, S]
            drawn = [
                None
                if replicate is None
                else llm.orders([replicate], int(llm.pool.sizes[rows].max(initial=1)), rows)[0]
                for llm in llms
            ]
            request = {"orders": drawn, "seconds": seconds, "closely": closely}
            names = [repr(dataset.question_ids[row]) for row in rows.tolist()]
            wheres = [f"{where} on question {name}" for name in names]
            sizes = np.stack([llm.pool.sizes[rows] for llm in llms], axis=1).tolist()
            replies = self._exchange("ask", request, wheres, seconds)
            with closing(replies):
                for place, name, on, size in zip(order.tolist(), names, wheres, sizes, strict=True):
                    try:
                        answers[place] = _method_answer(next(replies), size, on)
                    except MethodError as error:
                        raise MethodError(str(error).replace(repr(ID), name)) from error
                next(replies, None)  # the process that gave all of them goes on
        return [answers[place] for place in range(len(rows))]

    def end(self) -> None:
        """End the process, also while another thread waits for it: that sees its pipe end, which it
        would not if the pipe were closed here.
        """
        if (channel := self._channel) is not None:
            _kill(channel.process)

    def _one(self, command: str, request: Record, where: str, seconds: float | None) -> Any:
        [value] = self._exchange(command, request, [where], seconds)
        return value

    def _exchange(
        self, command: str, request: Record, wheres: Sequence[str], seconds: float | None
    ) -> Generator[Any, None, None]:
        """Send a request and yield one reply for each place; where anything goes wrong, the process
        is ended.
        """
        channel = cast("_Channel", self._channel)
        try:
            for place, where in enumerate(wheres):
                deadline = _Deadline(where, seconds)
                if not place:
                    channel.send({"command": command} | request, deadline)
                yield channel.receive(deadline)
        except BaseException:  # Ctrl-C, and a caller who leaves before the last reply, too
            channel.end()
            self._channel = None
            raise


def _method_answer(value: Any, sizes: Sequence[int], where: str) -> MethodAnswer:
    """Return an answer that the worker gave for pools with so many CoTs; `MethodError` where it
    cannot have come about.
    """
    match value:
        case [None | str() as answer, list(ledgers), list(grown)] if (
            len(ledgers) == len(sizes)
            and all(
                isinstance(ledger, list)
                and len(ledger) == len(LEDGER_FIELDS)
                and all(type(number) is int and 0 <= number < _MOST_BILLED for number in ledger)
                and ledger[LEDGER_FIELDS.index("cots")] <= size
                for ledger, size in zip(ledgers, sizes, strict=True)
            )
            and len(grown) in {0, len(sizes)}
            and all(map(_has_possible_places, grown, sizes))
        ):
            return MethodAnswer(answer, ledgers, grown)
    raise MethodError(
        f"{where} gave a reply that is not an answer with what it took ({value!r:.80}). Leave"
        " feval's pipe alone."
    )


def _has_possible_places(grown: Any, size: int) -> bool:
    """Whether these can be places and tokens of what was handed out of a pool."""
    return isinstance(grown, list) and all(
        isinstance(each, list)
        and [*map(type, each)] == [int, int]
        and 0 <= each[0] < size
        and 0 <= each[1] < _MOST_BILLED
        for each in grown
    )


class _Deadline:
    """The end of the time for one reply; `where` says in messages what is under way."""

    def __init__(self, where: str, seconds: float | None) -> None:
        self.where, self._seconds, self._end = where, seconds, time.monotonic() + (seconds or 0)

    def wait(self, *pipe: int) -> None:
        """Wait for a pipe and an event, if they are given; `MethodError` where the time is up."""
        left = None if self._seconds is None else self._end - time.monotonic()
        in_time = left is None or left >= 0
        if pipe:
            poll = select.poll()
            poll.register(*pipe)
            in_time = bool(poll.poll(None if left is None else 1000 * max(left, 0)))
        if not in_time:
            raise MethodError(
                f"{self.where} did not come to an end in {self._seconds:g} s. Fix it, or give it"
                " more time: --time-limit SECONDS (in Python: time_limit=SECONDS)."
            )


class _Channel:
    """A started worker process, and the messages to and from it; `data` answers its calls."""

    def __init__(self, data: BlindDataset, folder: Path, *, sandbox: bool) -> None:
        command = [sys.executable, "-P", "-m", "feval.evaluation.user_methods.worker"]
        popen: Any = subprocess.Popen
        self.process = popen(
            sandboxed(command) if sandbox else command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if sandbox else None,
            cwd=folder if folder.is_dir() else None,  # on another machine it may not be there
            env=python_environment(sandbox=sandbox),
            # Ctrl-C is for the parent; and what the user's code starts is ended with the group
            start_new_session=True,
        )
        self._data, self._buffer = data, bytearray()
        self._requests = self.process.stdin.fileno()
        os.set_blocking(self._requests, False)
        printing = threading.Thread(target=_print, args=(self.process.stderr,), daemon=True)
        printing.start()
        self.end = weakref.finalize(self, _end, self.process, printing, os.getpid())

    def send(self, message: Record, deadline: _Deadline) -> None:
        """Send a message; where the process is gone, the reply that does not come says so."""
        left = memoryview(encoded(message))
        with suppress(BrokenPipeError):
            while left:
                try:
                    left = left[os.write(self._requests, left) :]
                except BlockingIOError:
                    deadline.wait(self._requests, select.POLLOUT)

    def receive(self, deadline: _Deadline) -> Any:
        """Answer calls, and return the value of the next reply.

        Raises:
            FevalError: what the worker says.
            MethodError: no reply came in time, it was none, or the process ended.
        """
        while True:
            message = self._message(deadline)
            if "call" in message:
                deadline.wait()  # calls that come without end are never waited for
                self.send(self._data.reply(message["call"]), deadline)
            elif "value" in message:
                return message["value"]
            else:
                kind, text = str(message.get("error")), f"{message.get('message')!s:.4000}"
                if kind in _VERBATIM_ERRORS:
                    raise getattr(errors, kind)(text)
                raise MethodError(f"{deadline.where} {text}")

    def _message(self, deadline: _Deadline) -> Record:
        [size] = LENGTH.unpack(self._read(LENGTH.size, deadline))
        if size > _MOST_BYTES:
            raise MethodError(
                f"{deadline.where} gave a reply of {size:,} bytes; {_MOST_BYTES:,} is the most."
            )
        try:
            message = decoded(self._read(size, deadline))
            require_shallow(message)
        except ValueError as error:
            raise MethodError(
                f"{deadline.where} wrote something to feval's pipe that is not a message"
                f" ({error!s:.80}). Leave that pipe alone."
            ) from error
        return message

    def _read(self, size: int, deadline: _Deadline) -> bytes:
        replies = self.process.stdout.fileno()
        while len(self._buffer) < size:
            deadline.wait(replies, select.POLLIN)
            if not (piece := os.read(replies, 1 << 16)):
                raise MethodError(f"{deadline.where} ended its process ({self._exit_reason()}).")
            self._buffer += piece
        piece, self._buffer = bytes(self._buffer[:size]), self._buffer[size:]
        return piece

    def _exit_reason(self) -> str:
        try:
            status: int = self.process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "it closed the pipe to feval"
        if status >= 0:
            return f"exit status {status}"
        names = {number.value: number.name for number in signal.Signals}  # not those for real time
        return f"signal {names.get(-status, -status)}"


def _print(printed: IO[bytes] | None) -> None:
    """Pass on what is printed in a sandbox, which is not handed feval's standard error: the file
    behind it could be opened.
    """
    if printed is not None:
        with printed, suppress(OSError):
            while piece := printed.read(1 << 16):
                os.write(2, piece)


def _end(process: Any, printing: threading.Thread, owner: int) -> None:
    """End a worker process and what the user's code started there."""
    if os.getpid() != owner:
        return  # in a fork of the process that started it, which goes on
    _kill(process)
    process.wait()
    printing.join(_EXIT_SECONDS)
    process.stdin.close()
    process.stdout.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class BlindDataset:
    """Makes the messages that hand something to a worker process: texts of questions, and pools
    with their draws. It answers the worker's calls about what they left out.

    The recordings, the ids and the golds stay in this process, and so do the keys of questions,
    which are made from ids. Damage to a recording ends the run here: it is nothing that a method
    could put right, or may pass over.
    """

    def __init__(self) -> None:
        self._llms: Sequence[LLM] = ()
        self._rows: list[int] = []
        self._hidden: dict[str, str] = {}
        self._channels: list[Channels] = []
        self._numbers: dict[int, tuple[LLM, list[dict[int, int]]]] = {}

    def questions(self, dataset: Dataset, llms: Sequence[LLM], rows: Rows) -> Record:
        """Return some questions and the pools of some LLMs on them."""
        self._llms, self._rows = llms, rows.tolist()
        self._hide(dataset, rows)
        prices = llms[0].prices
        return {
            "dataset": dataset.id,
            "questions": [[dataset[row].question, dataset[row].features] for row in self._rows],
            "llms": [self._with_answers(llm, rows) for llm in llms],
            "billing": llms[0].billing,
            "prices": prices and prices.to_json(),
        }

    def training(
        self, dataset: Dataset, llms: Sequence[LLM], rows: Rows, train: Training
    ) -> Record:
        """Return what there is of training questions, but for texts of CoTs, which are asked
        for.
        """
        self._hide(dataset, rows)
        self._learnt = llms, rows.tolist()
        return {
            "pools": [*map(self._pool, train.pools)],
            "gold": train.gold,
            "texts": [*train.texts],
            "features": [*train.features],
            "prices": train.prices,
            "billing": train.billing,
        }

    def _hide(self, dataset: Dataset, rows: Rows) -> None:
        """Say what no message may name: ids, and places of recordings."""
        self._hidden = {repr(dataset.question_ids[row]): repr(ID) for row in rows.tolist()}
        self._hidden |= {str(path): "The recording" for path in dataset.recording_paths}

    def _pool(self, pool: Pool) -> Record:
        """Return the arrays of a pool."""
        self._channels.append(pool.channels)
        names = (
            "llm", "codes", "output_tokens", "prompt_tokens", "sizes", "finish", "candidates",
            "clock", "amounts",
        )  # fmt: skip
        return {name: getattr(pool, name) for name in names} | {
            "owner": pool.channels.owner,
            "number": len(self._channels) - 1,
            "has_steps": pool.channels.has_steps,
        }

    def _with_answers(self, llm: LLM, rows: Rows) -> Record:
        """Return a pool with its answers, numbered as they were recorded: among all codes of a
        question is the gold's.
        """
        pool = self._pool(llm.pool.rows(rows))
        codes = np.array(pool["codes"], np.int32)
        answers: list[list[str | None]] = []
        own: list[dict[int, int]] = []
        self._numbers[pool["number"]] = llm, own
        for row, recorded in zip(self._rows, codes, strict=True):
            shown = dict.fromkeys(code for code in recorded.tolist() if code >= 0)
            numbers = {code: number for number, code in enumerate(shown)}
            own.append(numbers)
            recorded[:] = [numbers.get(code, code) for code in recorded.tolist()]
            answers.append(llm.answer_texts(row, [*shown]))
        more = {"candidates": np.array([*map(len, answers)]), "answers": answers}
        return pool | {"codes": codes} | more

    def reply(self, call: Any) -> Record:
        """Return the reply to a call, which may be anything that JSON can say; damage to a
        recording is an error here.
        """
        try:
            name, *arguments = call
            return {"value": getattr(self, f"_call_{name}")(*arguments)}
        except (DamagedRecordingError, NotFetchedError, HubError):
            raise
        except FevalError as error:
            message = str(error)
            for hidden, shown in self._hidden.items():
                message = message.replace(hidden, shown)
            return {"error": type(error).__name__, "message": message}
        except Exception as error:  # noqa: BLE001  the call comes from a stranger's code
            return {
                "error": "UsageError",
                "message": f"feval does not take the call {call!r:.80} ({error!s:.80}).",
            }

    def _call_text(self, kind: str, number: int, place: int) -> Any:
        llm, row = self._llms[number], self._rows[place]
        readers: Record = {
            "prompt": lambda row: llm.request(row).raw_text,
            "texts": llm.texts,
            "reasoning": llm.reasoning,
            "messages": llm.messages,
            "tool_calls": llm.tool_calls,
        }
        return readers[kind](row)

    def _call_reply(self, number: int, place: int) -> Any:
        llms, rows = self._learnt
        return llms[number].texts(rows[place])

    def _call_uniform(self, place: int, samples: list[int], seed: int) -> float:
        return self._llms[0].uniform(self._rows[place], samples, seed)

    def _call_channel(self, number: int, channel: str, *scorer: str) -> Any:
        channels = self._channels[number]
        reads: dict[str, Callable[..., Any]] = {
            "probes": lambda: self._probes(number),
            "scorers": lambda: [*channels.scorers()],
            "scores": channels.scores,
            "logprobs": channels.logprobs,
            "steps": channels.steps,
        }
        return reads[channel](*scorer)

    def _probes(self, number: int) -> Record:
        """Return probes with the answers that only they gave; of training questions, their own."""
        probes = self._channels[number].probes()
        if number not in self._numbers:
            return {"probes": probes, "answers": []}
        llm, numbers = self._numbers[number]
        tables, answers = [], []
        bounds = probes.starts[:: max(probes.shape[1], 1)].tolist()
        for row, known, start, stop in zip(
            self._rows, numbers, bounds[:-1], bounds[1:], strict=True
        ):
            shown = dict.fromkeys(code for code in probes.codes[start:stop].tolist() if code >= 0)
            more = [code for code in shown if code not in known]
            known.update(zip(more, range(len(known), len(known) + len(more)), strict=True))
            answers.append(llm.answer_texts(row, more))
            tables.append(
                np.array(
                    [*(known.get(code, -1) for code in range(max(known, default=-1) + 1)), -1],
                    np.int32,
                )
            )
        return {"probes": probes.recoded(tables), "answers": answers}


_FEVAL = Path(__file__).parents[2]
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")
# of the dynamic linker, and links to libraries
_SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
_WITHHELD = {"PWD", "OLDPWD"}
# In a user namespace of its own a method would have all capabilities again: it could mount the tree
# of control groups and freeze feval, or as root the system's services.
_LOCKED = ("--unshare-user", "--disable-userns", "--cap-drop", "ALL")
_ISOLATED = ("--unshare-all", "--die-with-parent", "--new-session", *_LOCKED)


def python_environment(*, sandbox: bool) -> Mapping[str, str]:
    """Return the environment of the worker process: this one's without what names recordings;
    almost none in a sandbox.
    """
    if sandbox:
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": "/tmp",  # noqa: S108  the sandbox's own /tmp
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(_FEVAL.parent),
        }
    path = os.pathsep.join([str(_FEVAL.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _WITHHELD and not name.startswith("FEVAL_")
    }
    return kept | {"PYTHONPATH": path}


def sandboxed(command: Sequence[str]) -> list[str]:
    """Return a Python command in a sandbox: no network, no home, a read-only system and kernel, its
    own /tmp and process ids.

    Raises:
        UsageError: bubblewrap is not installed, is older than 0.8, or cannot make namespaces here.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise UsageError(
            "--sandbox runs a method in bubblewrap, and there is no `bwrap` on the PATH. Install"
            " bubblewrap, or leave --sandbox out."
        )
    probe = subprocess.run(  # noqa: S603  as found on the PATH
        [bwrap, *_ISOLATED, "--ro-bind", "/", "/", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        raise UsageError(
            "--sandbox runs a method in bubblewrap, which cannot make a sandbox here"
            f" ({probe.stderr.strip():.200}). Install bubblewrap 0.8 or later and allow"
            " unprivileged user namespaces, or leave --sandbox out."
        )
    system: list[str] = []
    places = [part for place in _read_only_places() for part in ("--ro-bind", place, place)]
    for place in _SYSTEM:
        if Path(place).is_symlink():  # /lib is usually usr/lib
            system += ["--symlink", str(Path(place).readlink()), place]
        elif Path(place).is_dir():
            system += ["--ro-bind", place, place]
    system += [part for place in _SETTINGS for part in ("--ro-bind-try", place, place)]
    system += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108  the sandbox's own
    # What belongs to no process is read-only: root may write the system's settings without any
    # capability.
    for path in sorted(Path("/proc").glob("[!0-9]*")):
        if not path.is_symlink() and (path.is_dir() or path.stat().st_mode & 0o222):
            system += ["--ro-bind", str(path), str(path)]
    return [bwrap, *_ISOLATED, *system, *places, "--chdir", "/tmp", *command]  # noqa: S108  likewise


def _read_only_places() -> list[str]:
    """Return the folders of Python and of what can be imported, but for feval's own checkout and
    the working folder.
    """
    imported = [Path(place) for place in sys.path if place]
    own = {_FEVAL.parent, Path.cwd(), Path.home(), Path("/")}
    python = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parents[1]]
    places = [
        place for place in (*python, *imported) if place.is_dir() and place.absolute() not in own
    ]
    return list(dict.fromkeys(str(place.absolute()) for place in (*places, _FEVAL)))
