"""Score a recording: every CoT goes to a scorer once, every score is in a journal before it counts, then all is sealed.

    recording ─▶ CoTs not yet in the journal ─▶ pace ─▶ scorer ─▶ journal ─▶ derived recording with scores

Whatever stops a run leaves the journal beside `out`; the same command goes on from there. It is removed when the new
recording has been verified.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from feval.cards.prices import Price, price_list
from feval.errors import DamagedRecordingError, NotRecordedError, StorageError, UsageError
from feval.recording import Recording, ScoreRows, add_scores, open_recording, verify_recording
from feval.report.text import counted
from recorders.asking.pace import Limits, Pace, backoff
from recorders.errors import (
    CostLimitReached,
    Fatal,
    InterruptedByUser,
    RateLimited,
    RecorderError,
    Refused,
    StoppedError,
    Transient,
)
from recorders.journal.journal import journal_folder
from recorders.scoring.cost import Purse, ScoringEstimate, estimate
from recorders.scoring.journal import REFUSED, CoTKey, Scored, ScoreJournal
from recorders.scoring.scorers import Item, Scorer

__all__ = [
    "Asked",
    "Run",
    "Scoring",
    "as_rows",
    "ask_all",
    "estimate_scoring",
    "estimate_work",
    "finish",
    "require_no_recording",
    "score",
]

Sealed = TypeVar("Sealed")

_REFUSALS_UNTIL_HOPELESS = 8
_UNSCORED = " no score: "


@dataclass(frozen=True, slots=True)
class Scoring:
    """A recording with scores, and how they came.

    Attributes:
        path: the new recording.
        recording_hash: its hash.
        scorer: name of the scorer in it.
        cots: CoTs that were given to the scorer.
        new: of these, in this run; the others were in the journal, or in the recording before.
        with_score: CoTs that got a score or step scores.
        unreadable: CoTs whose score could not be read in what the scorer said.
        refused: CoTs that the scorer refused to score.
        without_text: CoTs that have no text and were not given to it.
        notes: sentences about what was unusual.
    """

    path: Path
    recording_hash: str
    scorer: str
    cots: int
    new: int
    with_score: int
    unreadable: int
    refused: int
    without_text: int
    notes: tuple[str, ...]


def score(
    recording: str | Path,
    out: str | Path,
    scorer: Scorer,
    *,
    datasets: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
    limits: Limits | None = None,
    prices: str = "none",
    cost_limit_usd: float | None = None,
    retry_refused: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Scoring:
    """Give every CoT of a recording to a scorer, and write its scores into a derived recording.

    Args:
        recording: the folder to score; it stays as it is.
        out: the folder to make. The journal lies beside it until it is made.
        scorer: of `recorders.scoring.scorers.make_scorer`, or one of your own.
        datasets: ids of those to score; `None` for all.
        llms: names of those to score; `None` for all.
        limits: concurrency, retries and the like.
        prices: price list for the cost limit, by id, or "none".
        cost_limit_usd: what the scores may cost, earlier runs included. Nothing is sent that could pass it if every reply
            in flight were as long as it may be.
        retry_refused: ask again for the CoTs that the scorer refused: in the journal, or in a recording that holds its
            scores, which are then kept but for those.
        progress: called with (CoTs scored, CoTs in all).

    Raises:
        NotRecordedError: something named is not there, or there is no CoT to score.
        DamagedRecordingError: the recording does not verify; nothing was asked.
        StorageError: `out` is there already, or the disk said no.
        JournalError: the journal is damaged, in use, or of something else.
        StoppedError: it ended early (`InterruptedByUser`, `CostLimitReached`, or a request that failed too often); the journal
            keeps what was scored, and the same call goes on.
        BackendError: no request to the scorer will ever work.
        PriceNotFoundError: a cost limit without a price.
    """
    out = require_no_recording(out)
    work = _Work.of(recording, scorer, datasets, llms, retry_refused=retry_refused)
    return ask_all(
        work,
        out,
        lambda journal, run: _seal(work, out, journal, run),
        limits=limits,
        prices=prices,
        cost_limit_usd=cost_limit_usd,
        progress=progress,
    )


def require_no_recording(out: str | Path) -> Path:
    """Make sure that a folder to make is not there yet.

    Raises:
        StorageError: it is.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise StorageError(f"{out} is there already; a recording is never overwritten. Name another folder.")
    return out


def ask_all(
    work: Asked,
    out: Path,
    seal: Callable[[ScoreJournal, Run], Sealed],
    *,
    limits: Limits | None,
    prices: str,
    cost_limit_usd: float | None,
    progress: Callable[[int, int], None] | None,
) -> Sealed:
    """Ask for what the journal beside `out` lacks, and let `seal` make the recording; the arguments and errors of `score`."""
    # Scores may cost money, and a damaged recording cannot be sealed again with them.
    if problems := verify_recording(work.source.path).problems:
        raise DamagedRecordingError(
            f"{work.source.path} does not verify: {problems[0]} Nothing was scored. `feval verify` lists all that is wrong."
        )
    purse = Purse(work.scorer, _price(work.scorer, prices), cost_limit_usd)
    with ScoreJournal.open(journal_folder(out), work.identity) as journal:
        run = Run(work, journal, limits or Limits(), purse, progress)
        try:
            asyncio.run(run.run())
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            raise InterruptedByUser(run.told("Scoring was interrupted")) from error
        if not len(journal) and not work.settled:
            journal.remove()
            raise NotRecordedError(
                f"{work.source.path} holds no text of the {work.total:,} {work.unit} that were named, and a scorer reads texts. "
                "Import or record it with its texts."
            )
        return seal(journal, run)


def estimate_scoring(
    recording: str | Path,
    out: str | Path,
    scorer: Scorer,
    *,
    datasets: Sequence[str] | None = None,
    llms: Sequence[str] | None = None,
    prices: str = "none",
    retry_refused: bool = False,
) -> ScoringEstimate:
    """What `score` would ask for and cost, without asking.

    Args:
        recording: the folder to score.
        out: the folder to make; its journal, if there is one, says what is scored already.
        scorer: as for `score`; made with `asks=False`, it needs no key.
        datasets: as for `score`.
        llms: as for `score`.
        prices: price list, by id, or "none".
        retry_refused: as for `score`.

    Raises:
        NotRecordedError, StorageError, JournalError: as for `score`.
    """
    return estimate_work(_Work.of(recording, scorer, datasets, llms, retry_refused=retry_refused), out, prices)


def estimate_work(work: Asked, out: str | Path, prices: str) -> ScoringEstimate:
    """What is still to come of some work; the arguments and errors of `estimate_scoring`."""
    price = _price(work.scorer, prices)
    folder = journal_folder(out)
    if not (folder / ScoreJournal.NAME).exists():
        return estimate(work.scorer, work.batches(), None, price)
    with ScoreJournal.open(folder, work.identity) as journal:
        return estimate(work.scorer, work.batches(journal), journal, price)


def _price(scorer: Scorer, prices: str) -> Price | None:
    return None if prices == "none" or scorer.asking is None else price_list(prices).find(scorer.asking.model)


class Asked(ABC):
    """What a run asks a scorer about a recording.

    Attributes:
        unit: what is asked about, in the plural, for messages.
        source: the recording.
        scorer: who is asked.
        retry_refused: ask again for what a journal says was refused.
    """

    unit: ClassVar[str] = "CoTs"
    source: Recording
    scorer: Scorer
    retry_refused: bool

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a journal must be of, to be gone on with."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Number of all that is asked about, what has no text included."""

    @property
    @abstractmethod
    def settled(self) -> bool:
        """Whether there may be something to seal though nothing was asked."""

    @abstractmethod
    def items(self) -> Iterator[list[tuple[CoTKey, Item | None]]]:
        """All that is asked about, question by question; `None` where there is nothing to ask."""

    def batches(
        self, journal: ScoreJournal | None = None, without_text: Callable[[int], None] = lambda _: None
    ) -> Iterator[list[tuple[CoTKey, Item]]]:
        """What a journal lacks, some CoTs of one question at a time; tells how many of each question have no text."""
        again = frozenset(journal.refused) if journal is not None and self.retry_refused else frozenset()
        for own in self.items():
            without_text(sum(item is None for _, item in own))
            items = [
                (key, item)
                for key, item in own
                if item is not None and (journal is None or key not in journal or key in again)
            ]
            for start in range(0, len(items), self.scorer.batch):
                yield items[start : start + self.scorer.batch]


@dataclass(frozen=True, slots=True)
class _Work(Asked):
    """Which CoTs are to be scored.

    `kept` holds, for pairs that have scores by the scorer already, those that stay: question id -> sample index -> score. Only
    the CoTs in `refused` are asked for there. `retry_refused` asks again for what a journal says was refused.
    """

    source: Recording
    scorer: Scorer
    pairs: Sequence[tuple[str, str]]
    kept: Mapping[tuple[str, str], Mapping[str, Mapping[int, Scored]]]
    refused: frozenset[CoTKey]
    retry_refused: bool

    @classmethod
    def of(
        cls,
        recording: str | Path,
        scorer: Scorer,
        datasets: Sequence[str] | None,
        llms: Sequence[str] | None,
        *,
        retry_refused: bool,
    ) -> _Work:
        source = open_recording(recording)
        pairs = _pairs(source, datasets, llms)
        held = [pair for pair in pairs if scorer.info.name in source.scorers(*pair)]
        if held and not retry_refused:
            dataset, llm = held[0]
            raise StorageError(
                f"{source.path} holds scores of {llm} on {dataset} by {scorer.info.name!r} already; give the scorer another "
                "--name, or take --retry-refused to ask again for the CoTs that it refused."
            )
        if held and source.scorer_info(scorer.info.name) != scorer.info:
            raise StorageError(
                f"The scores by {scorer.info.name!r} in {source.path} were given by another scorer or with other parameters, so "
                "its refused CoTs are not asked for again; name the same scorer, or give this one another --name."
            )
        kept: dict[tuple[str, str], dict[str, dict[int, Scored]]] = {pair: {} for pair in held}
        refused = set()
        for pair in held:
            for question, sample, scored in _scored(source, pair, scorer.info.name):
                if scored.problem == "refused":
                    refused.add(CoTKey(*pair, question, sample))
                else:
                    kept[pair].setdefault(question, {})[sample] = scored
        if held == pairs and not refused:
            raise UsageError(
                f"{source.path} holds no CoT that {scorer.info.name!r} refused, so there is nothing to ask again."
            )
        return cls(source, scorer, pairs, kept, frozenset(refused), retry_refused)

    @property
    def identity(self) -> dict[str, Any]:
        """What a journal must be of, to be gone on with."""
        return {
            "recording": self.source.hash,
            "scorer": self.scorer.info.name,
            "kind": self.scorer.info.kind,
            "parameters": dict(self.scorer.info.parameters),
            "pairs": [list(pair) for pair in self.pairs],
        }

    @property
    def settled(self) -> bool:
        """Whether scores are kept."""
        return bool(self.kept)

    @property
    def total(self) -> int:
        """CoTs to score, those without a text included."""
        fresh: int = sum(self.source.manifest.pairs[pair]["cots"] for pair in self.pairs if pair not in self.kept)
        return fresh + len(self.refused)

    def items(self) -> Iterator[list[tuple[CoTKey, Item | None]]]:
        """All CoTs to score, question by question; `None` where there is no text."""
        for dataset, llm in self.pairs:
            questions = {question.id: question for question in self.source.questions(dataset)}
            for pool in self.source.pools(dataset, llm):
                found: list[tuple[CoTKey, Item | None]] = []
                for sample, text in enumerate(pool.texts):
                    key = CoTKey(dataset, llm, pool.question_id, sample)
                    if (dataset, llm) in self.kept and key not in self.refused:
                        continue
                    item = None
                    if text is not None:
                        item = Item(questions[pool.question_id], text, pool.answers[sample], pool.prompt)
                    found.append((key, item))
                yield found


def _scored(source: Recording, pair: tuple[str, str], scorer: str) -> Iterator[tuple[str, int, Scored]]:
    """The scores in a recording: question id, sample index and what was said."""
    for rows in source.score_rows(*pair, scorer):
        empty = [None] * len(rows.sample_indices)
        columns = (rows.step_scores, rows.verdicts, rows.prompt_tokens, rows.output_tokens)
        for sample, score, steps, verdict, prompt, output in zip(
            rows.sample_indices, rows.scores, *(column or empty for column in columns), strict=True
        ):
            problem = None
            if score is None and steps is None and verdict is not None:
                problem = "refused" if verdict.startswith(REFUSED) else "unreadable"
            steps = None if steps is None else tuple(steps)
            yield rows.question_id, sample, Scored(score, steps, verdict, prompt, output, problem)


def _pairs(source: Recording, datasets: Sequence[str] | None, llms: Sequence[str] | None) -> list[tuple[str, str]]:
    for dataset in datasets or ():
        source.require(dataset)
    held = {llm for _, llm in source.manifest.pairs}
    for llm in llms or ():
        if llm not in held:
            raise NotRecordedError(f"{source.path} holds no LLM {llm!r}; it holds {', '.join(sorted(held)) or 'none'}.")
    pairs = [
        (dataset, llm)
        for dataset, llm in source.manifest.pairs
        if (datasets is None or dataset in datasets) and (llms is None or llm in llms)
    ]
    if not pairs:
        raise NotRecordedError(f"{source.path} holds no CoTs of what was named; `feval info` shows what it holds.")
    return pairs


class Run:
    """One run over what the journal lacks."""

    def __init__(
        self,
        work: Asked,
        journal: ScoreJournal,
        limits: Limits,
        purse: Purse,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._work, self._scorer, self._journal = work, work.scorer, journal
        self._limits, self._purse, self._progress = limits, purse, progress
        self.new = 0
        self.without_text = 0
        self._total = work.total
        self._pending: list[tuple[CoTKey, Scored]] = []
        self._held: list[tuple[CoTKey, Scored]] = []
        self._answered = len(journal) > 0
        self._stopping = self._broke = False
        self._flying = 0
        self._task: asyncio.Task[Any] | None = None

    def told(self, what: str) -> str:
        """A sentence for whoever is told that it ended early."""
        return (
            f"{what}: {len(self._journal):,} of {self._total:,} {self._work.unit} are scored, in {self._journal.folder}, and the "
            "same command goes on from there."
        )

    async def run(self) -> None:
        """Score everything that is missing."""
        self._pace, self._disk, self._task = Pace(self._limits), asyncio.Lock(), asyncio.current_task()
        self._paid = asyncio.Condition()
        self._pay_earlier_runs()
        batches = self._work.batches(self._journal, self._count_without_text)
        workers = min(self._scorer.concurrency or self._limits.concurrency, self._limits.concurrency)
        async with aclosing(self._scorer):
            try:
                with self._interruptible():
                    async with asyncio.TaskGroup() as group:
                        for _ in range(workers):
                            group.create_task(self._score(batches))
            except* RecorderError as errors:
                raise _first(errors) from errors
        if self._stopping:
            raise InterruptedByUser(self.told("Scoring was interrupted"))
        if self._broke:
            what = f"The next request could pass the cost limit ({self._purse}), so nothing more was sent"
            raise CostLimitReached(f"{self.told(what)} Raise the limit.")
        if self._held:
            raise Fatal(
                _hopeless(f"All {len(self._held):,} CoTs", (self._held[0][1].verdict or "").removeprefix(REFUSED))
            )

    def _count_without_text(self, number: int) -> None:
        self.without_text += number

    def _pay_earlier_runs(self) -> None:
        """Count what is in the journal; where the server did not count tokens, the worst case."""
        self._purse.pay_journal(self._journal)
        if self._purse.limited and self._journal.untold:
            for own in self._work.items():
                untold = [item for key, item in own if item is not None and key in self._journal.untold]
                self._purse.pay(untold, [Scored()] * len(untold))

    async def _score(self, batches: Iterator[list[tuple[CoTKey, Item]]]) -> None:
        for batch in batches:  # shared by all workers: each takes the next
            items = [item for _, item in batch]
            reserved = await self._reserved(items)
            if reserved is None:
                return
            try:
                found = await self._replies(batch)
                self._purse.pay(items, found)
            finally:
                async with self._paid:
                    self._purse.free(reserved)
                    self._flying -= 1
                    self._paid.notify_all()
            self._held += [(key, one) for (key, _), one in zip(batch, found, strict=True)]
            if self._answered:
                held, self._held = self._held, []
                await self._acknowledge(held)
            if self._stopping:
                return

    async def _reserved(self, items: Sequence[Item]) -> float | None:
        """Dollars set aside for a batch, once there are enough; `None` where there never will be."""
        async with self._paid:
            while not (self._broke or self._stopping):
                dollars = self._purse.reserve(items)
                if dollars is not None:
                    self._flying += 1
                    return dollars
                if not self._flying:
                    self._broke = True
                    self._paid.notify_all()
                    break
                await self._paid.wait()
        return None

    async def _replies(self, batch: Sequence[tuple[CoTKey, Item]]) -> list[Scored]:
        try:
            found = await self._scored(batch)
        except Refused as error:
            found = [Scored(verdict=REFUSED + error.reason, problem="refused")] * len(batch)
            self._check_refusals(error, len(batch))
        else:
            self._answered = True
        return found

    async def _scored(self, batch: Sequence[tuple[CoTKey, Item]]) -> list[Scored]:
        """Ask until it works, or retrying is pointless."""
        failures = 0
        while True:
            number = await self._pace.acquire()
            try:
                found = await self._scorer.score([item for _, item in batch])
                self._pace.content()
                return found
            except (RateLimited, Transient) as error:
                if isinstance(error, RateLimited):
                    self._pace.limited(number, error.retry_after)
                self._pace.hold(error.retry_after)
                failures += 1
                if failures > self._limits.retries or self._stopping:
                    raise StoppedError(self.told(f"A request failed {failures} times ({error.reason})")) from error
            finally:
                self._pace.release()
            await asyncio.sleep(backoff(self._limits, failures, repr(batch[0][0])))

    def _check_refusals(self, error: Refused, number: int) -> None:
        """Before anything was scored, a refusal may be our own mistake: it is held back, and many of them end the run."""
        if not self._answered and len(self._held) + number >= _REFUSALS_UNTIL_HOPELESS:
            raise Fatal(_hopeless(f"The first {len(self._held) + number:,} CoTs", error.reason))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Let Ctrl-C stop the run in two steps where signals can be had: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
        if self._scorer.info.kind == "python":  # it blocks the loop, which could not be told
            signal.signal(signal.SIGINT, self._interrupt_function)
        else:
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

    def _interrupt(self) -> None:
        """Ctrl-C: once, take what is in flight and end; twice, end."""
        if self._stopping and self._task is not None:
            self._task.cancel()
        self._stopping = True

    def _interrupt_function(self, *_: object) -> None:
        """Ctrl-C: once, finish what the function was given and end; twice, end inside it."""
        if self._stopping:
            raise KeyboardInterrupt
        self._stopping = True

    async def _acknowledge(self, scores: list[tuple[CoTKey, Scored]]) -> None:
        """Write and sync; what collects while the disk is busy goes into the next write."""
        self._pending += scores
        async with self._disk:
            mine, self._pending = self._pending, []
            if mine:
                await asyncio.to_thread(self._journal.write, mine)
                self.new += len(mine)
        if self._progress is not None:
            self._progress(len(self._journal) + self.without_text, self._total)


def _hopeless(which: str, reason: str) -> str:
    return (
        f"{which} were refused ({reason}), so the scorer or its settings are likely wrong, and nothing was scored. Check "
        "--scorer and what its server takes, and run the command again."
    )


def _first(errors: BaseExceptionGroup[RecorderError]) -> RecorderError:
    found: Any = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    error: RecorderError = found
    return error


def _seal(work: _Work, out: Path, journal: ScoreJournal, run: Run) -> Scoring:
    source, scorer = work.source, work.scorer
    found = {pair: {question: dict(own) for question, own in work.kept.get(pair, {}).items()} for pair in work.pairs}
    for key, scored in journal.entries():
        found[key.dataset, key.llm].setdefault(key.question_id, {})[key.sample] = scored
    seen = Counter(_state(one) for pair in found.values() for own in pair.values() for one in own.values())
    notes = tuple(_notes(scorer.info.name, seen, run.without_text))
    rows = {pair: _rows(source, pair[0], own) for pair, own in found.items()}
    add_scores(
        source.path,
        out,
        scorer.info,
        rows,
        operation={"kind": scorer.info.kind, **scorer.facts},
        notes=notes,
        replacing=bool(work.kept),
        without_notes=[note for note in source.manifest.raw.get("notes", ()) if work.kept and _is_of(scorer, note)],
    )
    return Scoring(
        path=out,
        recording_hash=finish(out, journal, "scores"),
        scorer=scorer.info.name,
        cots=sum(seen.values()),
        new=run.new,
        with_score=seen["scored"],
        unreadable=seen["unreadable"],
        refused=seen["refused"],
        without_text=run.without_text,
        notes=(*scorer.warnings, *([journal.recovered] if journal.recovered else []), *notes),
    )


def finish(out: Path, journal: ScoreJournal, what: str) -> str:
    """Verify the recording that was made, remove the journal, which nobody needs any more, and return the recording's hash.

    Raises:
        StorageError: it does not verify; the journal stays.
    """
    if problems := verify_recording(out).problems:
        raise StorageError(
            f"{out} was written but does not verify: {problems[0]} The {what} are kept in {journal.folder}; see to the disk, "
            f"remove {out} and run the same command again."
        )
    journal.remove()
    return open_recording(out).hash


def as_rows(question_id: str, samples: Sequence[int], scored: Sequence[Scored], *, steps: bool) -> ScoreRows:
    """What was said of some CoTs of a question, as a recording keeps it; `steps`: with a column of step scores."""
    return ScoreRows(
        question_id,
        samples,
        [one.score for one in scored],
        [one.step_scores for one in scored] if steps else None,
        [one.verdict for one in scored],
        [one.prompt_tokens for one in scored],
        [one.output_tokens for one in scored],
    )


def _rows(source: Recording, dataset: str, found: Mapping[str, Mapping[int, Scored]]) -> Iterator[ScoreRows]:
    for question in source.votes(dataset).question_ids:
        if question in found:
            samples = sorted(found[question])
            yield as_rows(question, samples, [found[question][sample] for sample in samples], steps=True)


def _state(scored: Scored) -> str:
    return scored.problem or ("none" if scored.score is None and scored.step_scores is None else "scored")


def _is_of(scorer: Scorer, note: str) -> bool:
    """Whether a note tells what an earlier run of the scorer left without a score."""
    return _UNSCORED in note and scorer.info.name in note


def _notes(name: str, seen: Mapping[str, int], without_text: int) -> Iterator[str]:
    total = sum(seen.values())
    for count, why in (
        (seen["unreadable"], f"what {name} said holds none that can be read"),
        (seen["refused"], f"{name} refused them"),
        (seen["none"], f"{name} gave none"),
    ):
        if count:
            yield f"{count:,} of {counted(total, 'CoT')} {'has' if count == 1 else 'have'}{_UNSCORED}{why}."
    if without_text:
        yield f"CoTs without text, which were not given to {name}: {without_text:,}."
