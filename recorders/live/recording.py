"""Recording while a method runs live: what it asks, and nothing else, becomes a recording with
turns.

What a debate says depends on what its LLMs have answered, so no protocol can record it in advance.
The recording replays the method that made it, and any other that says the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from feval.cards import token_counter
from feval.errors import ConflictError, FevalError, OutOfRangeError, StorageError, UsageError
from feval.executors import Progress, reports
from feval.recording import Question
from feval.recording.verify import StepCounter
from recorders.asking.trees import LiveTurns
from recorders.errors import RecorderError
from recorders.journal import Journal, completion_of, journal_folder, never_empty, utc_now
from recorders.live.llm import Ask, LiveLLM, Numbered, live
from recorders.request import Backend, Request
from recorders.work.record import RecordingTask
from recorders.work.seal import JournaledLLM, seal

_Waiting = defaultdict[tuple[int | None, bytes], deque[dict[str, Any]]]


@reports("recording")
def record_method(
    method: Callable[..., Any],
    tasks: Sequence[RecordingTask],
    backends: Sequence[Backend],
    out: str | Path,
    *,
    at_once: int = 8,
    prices: str = "2025-06-02",
    counter: str = "usage",
    other_counter: str = "words",
    now: Callable[[], str] = utc_now,
    progress: Progress | None = None,
) -> Path:
    """Run a method on live LLMs, question by question, and seal what it asked.

    Every reply is in a journal, `OUT.journal/NUMBER` of each LLM, before the method has it. A run
    that was stopped is continued by the same call: the method runs again on all questions and is
    given what it was given before, so it should decide nothing by chance but by `llm.uniform`. It
    asks by `sample` and `reply`.

    Args:
        method: called with the question's text and a metered LLM for each task; what it returns is
            not kept.
        tasks: of the same questions; each names one LLM, such as "gpt-4o-mini@debate". The number
            of samples means nothing.
        backends: one for each task; closed at the end.
        out: folder of the recording to make.
        at_once: questions in flight.
        prices: price list of the recording, by id, or "none".
        counter: as for `recorders.work.record.record_dataset`.
        other_counter: likewise.
        now: the time as it is recorded.
        progress: called with (questions done, questions in all).

    Returns:
        The recording's folder.

    Raises:
        OutOfRangeError: no question at once.
        ConflictError: two questions or LLMs that cannot be told apart.
        StorageError: `out` exists already, or the disk refused.
        RecorderError: the method failed on a question, and why; or an LLM could not be asked.
        JournalError: the journal is damaged, locked or of another method or task.
    """
    out = Path(out)
    if out.exists():
        raise StorageError(
            f"{out} exists already; name another folder, a recording is never changed."
        )
    if at_once < 1:
        raise OutOfRangeError(
            f"A method is recorded on 1 question or more at once; {at_once} were asked for."
        )
    _check(tasks, backends)
    token_counter(other_counter if counter == "usage" else counter)
    policy = _policy(method)
    with ExitStack() as opened:
        journals = []
        for number, task in enumerate(tasks):
            folder = journal_folder(out) / str(number)
            journal = opened.enter_context(
                Journal.open(folder, task.identity() | {"policy": policy})
            )
            opened.enter_context(never_empty(journal))
            journals.append(journal)
        with ExitStack() as lent:
            llms = []
            for task, backend, journal in zip(tasks, backends, journals, strict=True):
                llm = live(
                    backend,
                    task.llm_name,
                    answer_kind=task.kind(),
                    equality=task.equality,
                    model=task.model_name(),
                    decoding=task.decoding,
                    prices=prices,
                )
                llm.journaled = Tape(journal, takes_seed=backend.takes_seed, now=now).replies
                llm.messages = task.messages
                llms.append(lent.enter_context(llm))
            _run(method, tasks[0].questions, tasks[0].dataset, llms, at_once, progress)
        requests = [task.plan().requests for task in tasks]
        dataset, questions = tasks[0].dataset_info(requests[0]), tasks[0].questions
        replies = []
        for task, journal, asked in zip(tasks, journals, requests, strict=True):
            info = task.llm_info()
            info = replace(info, decoding=dict(info.decoding) | {"protocol": {"policy": policy}})
            own = JournaledLLM(
                journal, dataset, questions, asked, info, counter, other_counter, LiveTurns()
            )
            replies.append(own)
        seal(
            replies,
            out,
            operation={
                "name": "record",
                "policy": policy,
                "llms": [task.identity() for task in tasks],
            },
            prices=prices,
            notes=tasks[0].notes,
        )
        for journal in journals:
            journal.remove()
    if journal_folder(out).is_dir():
        journal_folder(out).rmdir()
    return out


def _check(tasks: Sequence[RecordingTask], backends: Sequence[Backend]) -> None:
    if not tasks or len(tasks) != len(backends):
        raise UsageError(
            f"{len(tasks)} LLMs and {len(backends)} backends were given; give one of each, or more."
        )
    names, first = [task.llm_name for task in tasks], tasks[0]
    if len(set(names)) < len(names) or any(
        (task.dataset, task.questions) != (first.dataset, first.questions) for task in tasks
    ):
        raise ConflictError(
            f"The LLMs {', '.join(names)} need names of their own and the same questions."
        )
    for task in tasks:
        if task.tree is not None or task.probing is not None:
            raise UsageError(
                "A method is recorded in CoTs and replies; leave steps, protocol and probes of"
                f" {task.llm_name} out."
            )
        keys = [request.key() for request in task.plan().requests]
        if len(set(keys)) < len(keys):
            raise ConflictError(
                f"Two questions of {task.dataset} ask {task.llm_name} the same; leave one of them"
                " out."
            )


def _policy(method: Callable[..., Any]) -> dict[str, str]:
    """Return what names a method in a journal and a recording: its name and a hash of its source,
    or the fields of a value.
    """
    name = getattr(method, "__name__", None)
    if name is None:
        return {"name": type(method).__name__, "value": repr(method)[:200]}
    try:
        source = inspect.getsource(method)
    except (OSError, TypeError):  # typed into an interpreter
        return {"name": name}
    return {"name": name, "sha256": hashlib.sha256(source.encode()).hexdigest()}


def _run(
    method: Callable[..., Any], questions: Sequence[Question], dataset: str,
    llms: Sequence[LiveLLM], at_once: int,
    progress: Progress | None,
) -> None:  # fmt: skip
    steps = StepCounter(len(questions), progress)

    def one(question: Question) -> None:
        asked = [
            llm.ask(question.text, question.choices, dataset=dataset, question_id=question.id)
            for llm in llms
        ]
        try:
            method(question.text, *asked)
        except FevalError:
            raise
        except Exception as error:
            raise RecorderError(
                f"The method failed on the question {question.id!r:.80} ({type(error).__name__}:"
                f" {error!s:.200}). Correct it; the journal has what was asked so far."
            ) from error

    with ThreadPoolExecutor(at_once, "method") as threads:
        try:
            for _ in threads.map(one, questions):
                steps.step()
        except BaseException:
            threads.shutdown(cancel_futures=True)  # questions in flight go on to their end
            raise


class Tape:
    """What a method asks of one live LLM, in a journal: every reply is on the disk before the
    method has it, and never paid for twice.

    A method that runs again asks the same again, and is given what the journal has: replies to the
    same CoT, with the same messages, in the order in which they came.

    Args:
        journal: open; closed by its owner.
        takes_seed: whether the backend does.
        now: the time as it is recorded.
    """

    def __init__(
        self, journal: Journal, *, takes_seed: bool, now: Callable[[], str] = utc_now
    ) -> None:
        self._journal, self._takes_seed, self._now = journal, takes_seed, now
        self._disk = ThreadPoolExecutor(1, "tape")
        self._waiting: dict[str, _Waiting] = {}
        self._next: dict[str, int] = {}

    async def replies(
        self, request: Request, parent: int | None, seeds: Sequence[int], ask: Ask
    ) -> Numbered:
        """Return the replies behind a turn (by its number) that the journal has, and ask for the
        others.
        """
        key = request.key()
        if key not in self._waiting:
            waiting = self._waiting[key] = defaultdict(deque)
            for record in self._journal.cots(key):
                where = record.get("parent"), orjson.dumps(record.get("messages", []))
                waiting[where].append(record)
            self._next[key] = self._journal.next_sample(key)
        recorded = self._waiting[key][parent, orjson.dumps(request.said())]
        replies: Numbered = []
        while recorded and len(replies) < len(seeds):
            record = recorded.popleft()
            replies.append((record["sample"], completion_of(record)))
        base = request.decoding.seed if self._takes_seed else None
        # Numbered before anything comes, so that a run that goes on hands out the replies in the
        # same order.
        free = self._next[key]
        self._next[key] += len(seeds) - len(replies)
        while rest := seeds[len(replies) :]:
            fresh = await ask(rest, request)
            samples = range(free, free + len(fresh))
            self._journal.add(
                request,
                key,
                samples,
                fresh,
                recorded_at=self._now(),
                seeds=None if base is None else [base + seed for seed in rest[: len(fresh)]],
                parent=parent,
            )
            await asyncio.get_running_loop().run_in_executor(self._disk, self._journal.commit)
            replies += zip(samples, fresh, strict=True)
            free = samples.stop
        return replies
