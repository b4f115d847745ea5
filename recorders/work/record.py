"""Record an LLM on a dataset, from questions to a verified recording: what `feval record` does.

    work = Work(questions, "gsm8k", "gpt-4o-mini@t=0.8", messages, "gsm8k@1", Decoding(temperature=0.8))
    record_dataset(work, backend, "my-recording")

The journal lies beside the recording, in `my-recording.journal/`, from the first reply until the recording is verified. The same
call again goes on where the last one stopped; once the recording is there, it does nothing.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feval.answers import EXTRACTOR_VERSION, KINDS
from feval.answers.equality import named_equality
from feval.cards.cards import find_dataset_card, thoughts_of
from feval.cards.prices import Price, price_list
from feval.cards.tokens import token_counter
from feval.errors import ConflictError, FevalError, UnknownNameError, UsageError
from feval.recording import DatasetInfo, LLMInfo, Question, Recording, verify_recording
from feval.recording.layout.format import LeafHash, check_name
from feval.recording.leaves import llm_leaf, question_line
from recorders.asking.budget import Estimate, check_cost_limit, estimate
from recorders.asking.engine import Control, Outcome, Progress, record
from recorders.asking.pace import Limits
from recorders.asking.plan import Plan
from recorders.errors import InterruptedByUser, MissingError, RecorderError
from recorders.journal.journal import JOURNAL, MODES, Journal, journal_folder, utc_now
from recorders.request import Backend, Decoding, Message, Request
from recorders.work.seal import seal
from recorders.work.sealed import begin_with, is_sealed

__all__ = ["Work", "estimate_dataset", "record_dataset"]


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be recorded; two works with equal identity share a journal.

    Attributes:
        questions: in order.
        dataset: its id.
        llm_name: of the LLM in the recording, such as "gpt-4o-mini@t=0.8"; what stands before "@" finds the price.
        messages: what is sent for a question.
        prompt_version: names the prompt; a changed prompt is a new version.
        decoding: how samples are drawn.
        samples: CoTs per question.
        model: as the provider calls it; `None`: what stands before "@" in `llm_name`.
        answer_kind: a key of `feval.answers.KINDS`; `None`: as the dataset's card says.
        notes: sentences for the recording, about its questions.
        equality: of answers, see `feval.answers.equality.named_equality`; `None`: that of the answer kind.

    Raises:
        AnswerError: answers would be compared by math-verify, which is not installed.
        UsageError: there is no question, or the answer kind is not known or cannot be extracted from texts, or a name or text
            cannot be stored in a recording.
        OutOfRangeError: a setting that no server takes.
    """

    questions: Sequence[Question]
    dataset: str
    llm_name: str
    messages: Callable[[Question], Sequence[Message]]
    prompt_version: str
    decoding: Decoding = field(default_factory=Decoding)
    samples: int = 40
    model: str | None = None
    answer_kind: str | None = None
    notes: Sequence[str] = ()
    equality: str | None = None

    def __post_init__(self) -> None:
        if not self.questions:
            raise UsageError(f"There is no question of {self.dataset} to ask; give at least one.")
        named_equality(self.kind(), self.equality)
        self.decoding.check()
        self._check_storable()

    def _check_storable(self) -> None:
        """Refuse before anything is paid for what could not be sealed."""
        check_name("dataset", self.dataset)
        check_name("LLM", self.llm_name)
        llm_leaf(self.llm_info(), "usage")
        leaf, seen = LeafHash(), set[str]()
        for question in self.questions:
            check_name("question", question.id)
            leaf.add(question_line(question))
            if question.id in seen:
                raise ConflictError(f"{self.dataset} has the question id {question.id!r} twice; give each its own.")
            seen.add(question.id)

    def kind(self) -> str:
        """The answer kind."""
        card = find_dataset_card(self.dataset)
        kind = self.answer_kind or (card.answer_kind if card else None)
        if kind is None:
            raise UsageError(
                f"There is no card for the dataset {self.dataset!r}, so its kind of answers is not known; pass it, --answer-kind "
                f"KIND (one of {', '.join(KINDS)})."
            )
        if kind not in KINDS:
            raise UnknownNameError.of("answer kind", kind, KINDS)
        if kind == "verbatim":
            raise UsageError(
                "Verbatim answers are not extracted from texts; choose another answer kind for a recording."
            )
        return kind

    def plan(self) -> Plan:
        """The requests."""
        model = self.model or self.llm_name.split("@", 1)[0]
        requests = [
            Request(self.dataset, question.id, tuple(self.messages(question)), model, self.decoding)
            for question in self.questions
        ]
        return Plan(requests, self.samples)

    def identity(self) -> dict[str, Any]:
        """What a journal must be of, to be gone on with."""
        return {
            "dataset": self.dataset,
            "llm": self.llm_name,
            "model": self.model or self.llm_name.split("@", 1)[0],
            "prompt": self.prompt_version,
            "decoding": self.decoding.content() | {"seed": self.decoding.seed},
        }

    def dataset_info(self, requests: Sequence[Request]) -> DatasetInfo:
        """The dataset as it goes into the recording."""
        card = find_dataset_card(self.dataset)
        systems = {next((m.content for m in r.messages if m.role == "system"), None) for r in requests}
        system = systems.pop() if len(systems) == 1 else None
        kind = self.kind()
        title, licence = (card.title, card.licence) if card else (self.dataset, None)
        equality = named_equality(kind, self.equality)
        return DatasetInfo(self.dataset, title, kind, EXTRACTOR_VERSION, system, licence, equality)

    def llm_info(self) -> LLMInfo:
        """The LLM as it goes into the recording: decoding parameters that were not sent are left out."""
        content = self.decoding.content() | {"seed": self.decoding.seed}
        temperature, max_tokens = content.pop("temperature"), content.pop("max_tokens")
        sent = {name: value for name, value in content.items() if value not in (None, [], {})}
        names = {"model": self.model or self.llm_name.split("@", 1)[0], "prompt": self.prompt_version}
        return LLMInfo(self.llm_name, temperature, max_tokens, names | sent)


def record_dataset(
    work: Work,
    backend: Backend,
    out: str | Path,
    *,
    mode: str = "new_episodes",
    limits: Limits | None = None,
    prices: str = "2025-06-02",
    cost_limit_usd: float | None = None,
    counter: str = "usage",
    other_counter: str = "words",
    partial: bool = False,
    journal: str | Path | None = None,
    keep_journal: bool = False,
    start: str | Path | Recording | None = None,
    progress: Callable[[Progress], None] | None = None,
    sealing: Callable[[int], None] | None = None,
    acknowledged: Callable[[Sequence[tuple[str, int]]], None] | None = None,
    backend_notes: MutableSequence[str] | None = None,
    now: Callable[[], str] = utc_now,
) -> Path:
    """Ask for what is missing, seal, verify, and remove the journal.

    In the main thread, the first Ctrl-C waits for the replies in flight, the second for nothing, nor does SIGTERM or SIGHUP.

    Args:
        work: what is to be recorded.
        backend: whom to ask; it is closed at the end.
        out: folder of the recording to make.
        mode: a key of `recorders.journal.journal.MODES`.
        limits: how fast to ask.
        prices: price list of the recording, by id, or "none".
        cost_limit_usd: what the recording may cost, earlier runs included.
        counter: who counts tokens: "usage" (the provider), or a name that `feval.cards.tokens.token_counter` knows.
        other_counter: counts instead, where the provider does not count everything.
        partial: seal what there is, if the run ends early for another reason than Ctrl-C, or may not ask. Pools may then have
            different sizes.
        journal: the journal's folder; `None`: `OUT.journal` beside the recording.
        keep_journal: leave the journal where it is, to top it up later into another recording.
        start: a recording of the same work with fewer questions or CoTs: what it holds is not asked for again.
            An open one is taken as it is, see `recorders.work.sealed.begin_with`.
        progress: told where the run is.
        sealing: told how many questions are sealed.
        acknowledged: told (key, sample) of CoTs, after they are on the disk.
        backend_notes: a list to which the backend adds sentences about what the server does.
        now: the time as it is recorded.

    Returns:
        The recording's folder.

    Raises:
        StoppedError: recording ended early (`InterruptedByUser`, `CostLimitReached`, or requests that failed too often).
        BackendError: no request works, and why.
        JournalError: the journal is damaged, locked or of something else, or the mode forbids to ask for what is missing.
        StorageError: `out` is another recording, or the disk said no.
        ConflictError: `start` is of something else.
        UsageError: a name or number that cannot work.
    """
    out = Path(out)
    price = _price(prices, work.llm_name)
    _check_noise(work, backend)
    plan, identity = work.plan(), work.identity()
    folder = journal_folder(out) if journal is None else Path(journal)
    check_cost_limit(cost_limit_usd, price, work.llm_name, prices)
    _checked_mode(mode)
    if is_sealed(out, identity, work.questions, work.samples, mode):
        if folder.is_dir() and not keep_journal:
            _remove_leftover(out, folder, identity)
        return out
    # A vocabulary is fetched before anything is paid for.
    token_counter(other_counter if counter == "usage" else counter)
    with Journal.open(folder, identity, mode=mode, about={"backend": backend.name}) as held, _never_empty(held):
        if start is not None:
            begin_with(
                start if isinstance(start, Recording) else Path(start), held, identity, work.questions, plan.requests
            )
        asking = record(
            plan,
            backend,
            held,
            limits=limits,
            price=price,
            cost_limit_usd=cost_limit_usd,
            progress=progress,
            acknowledged=acknowledged,
            backend_notes=backend_notes,
            control=(control := Control()),
            now=now,
            thoughts=thoughts_of(work.llm_name),
        )
        ended = _run(asking, backend, control)
        if ended is not None and not (partial and held.totals.cots and not isinstance(ended, InterruptedByUser)):
            raise ended
        seal(
            held,
            out,
            dataset=work.dataset_info(plan.requests),
            questions=work.questions,
            requests=plan.requests,
            llm=work.llm_info(),
            operation={"name": "record", "backend": backend.name, "samples": work.samples, **identity},
            prices=prices if prices == "none" else price_list(prices).id,
            counter=counter,
            other_counter=other_counter,
            notes=[*work.notes, *([] if ended is None else [f"Recording ended early. {ended}"])],
            progress=sealing,
        )
        if not keep_journal:
            held.remove()
    return out


def _check_noise(work: Work, backend: Backend) -> None:
    if work.decoding.noise_seed is not None and not backend.shares_noise:
        raise UsageError(
            f"Coupled samples need a model that draws with noise from here; the backend {backend.name!r} asks a server, which "
            "draws with its own. Use the backend 'tiny' or 'transformers', or leave --coupled out."
        )


def estimate_dataset(
    work: Work,
    out: str | Path,
    *,
    mode: str = "new_episodes",
    limits: Limits | None = None,
    prices: str = "2025-06-02",
    journal: str | Path | None = None,
    start: str | Path | Recording | None = None,
    output_tokens_per_cot: float | None = None,
) -> Estimate:
    """What `record_dataset` would ask for and cost, without asking.

    Args:
        work: what is to be recorded.
        out: folder of the recording to make.
        mode: a key of `recorders.journal.journal.MODES`; with "all", what is in the journal does not count.
        limits: how many samples go into one request.
        prices: price list, by id, or "none".
        journal: the journal's folder; `None`: `OUT.journal` beside the recording.
        start: as for `record_dataset`.
        output_tokens_per_cot: mean length from an earlier recording, where the journal has none.

    Raises:
        JournalError: the journal is damaged, locked or of something else.
        StorageError: `out` is another recording.
        UsageError: a name that cannot work.
    """
    _checked_mode(mode)
    if is_sealed(Path(out), work.identity(), work.questions, work.samples, mode):
        return Estimate(0, 0, 0, 0, 0.0, "the recording, which is sealed and complete", at_most=False)
    folder = journal_folder(out) if journal is None else Path(journal)
    options: dict[str, Any] = {"price": _price(prices, work.llm_name), "limits": limits}
    options["output_tokens_per_cot"] = output_tokens_per_cot
    plan = work.plan()
    if mode != "all" and not (folder / JOURNAL).exists() and start is not None:
        with tempfile.TemporaryDirectory() as place, Journal.open(place, work.identity()) as held:
            begin_with(
                start if isinstance(start, Recording) else Path(start),
                held,
                work.identity(),
                work.questions,
                plan.requests,
            )
            return estimate(plan, held, **options)
    if mode == "all" or not (folder / JOURNAL).exists():
        return estimate(plan, **options)
    with Journal.open(folder, work.identity()) as held:
        return estimate(plan, held, **options)


def _checked_mode(mode: str) -> None:
    if mode not in MODES:
        raise UnknownNameError.of("record mode", mode, MODES)


def _price(prices: str, llm: str) -> Price | None:
    return None if prices == "none" else price_list(prices).find(llm)


def _run(asking: Coroutine[Any, Any, Outcome], backend: Backend, control: Control) -> RecorderError | None:
    """Ask until everything is there or something stops it; what stopped it."""

    async def whole() -> Outcome:
        try:
            with _interruptible(control):
                return await asking
        finally:
            await backend.aclose()

    try:
        error = _in_a_loop(whole(), control).error
    except MissingError as missing:
        return missing
    if isinstance(error, InterruptedByUser) and control.signal is not None:
        error.exit_code = 128 + control.signal
    return error


def _in_a_loop(work: Coroutine[Any, Any, Outcome], control: Control) -> Outcome:
    """Run a coroutine to its end, in a thread of its own where a loop runs already, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, "recorder") as thread:
        result = thread.submit(asyncio.run, work)
        while True:
            try:
                return result.result()
            except KeyboardInterrupt:
                control.interrupt_from_elsewhere()


@contextmanager
def _interruptible(control: Control) -> Iterator[None]:
    """Let Ctrl-C stop the run in two steps, and SIGTERM and SIGHUP at once, where signals can be had: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = [number for number in before if before[number] not in (signal.SIG_IGN, None)]
    for number in handled:
        if number == signal.SIGINT:
            loop.add_signal_handler(number, control.interrupt)
        else:
            loop.add_signal_handler(number, control.ended_by, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


@contextmanager
def _never_empty(journal: Journal) -> Iterator[None]:
    """Remove a journal without any CoT after a failure: it would only stand in the way of the corrected command."""
    try:
        yield
    except FevalError:
        if not journal.totals.cots:
            journal.remove()
        raise


def _remove_leftover(out: Path, folder: Path, identity: Mapping[str, Any]) -> None:
    """Remove the journal of a run that was killed between sealing and removing it, once the recording verifies."""
    if verify_recording(out).ok and (folder / JOURNAL).exists():
        with Journal.open(folder, identity) as held:
            held.remove()
