"""Score a recording: every CoT goes to a scorer once, every score is in a journal before it counts, then all is sealed.

    recording ─▶ CoTs not yet in the journal ─▶ pace ─▶ scorer ─▶ journal ─▶ derived recording with scores

Whatever stops a run leaves the journal beside `out`; the same command goes on from there. It is removed when the new
recording has been verified.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feval.errors import DamagedRecordingError, NotRecordedError, StorageError
from feval.recording import Recording, ScoreRows, add_scores, open_recording, verify_recording
from feval.report.text import counted
from recorders.errors import Fatal, InterruptedByUser, RateLimited, RecorderError, Refused, StoppedError, Transient
from recorders.journal import journal_folder
from recorders.pace import Limits, Pace, backoff
from recorders.score_journal import CoTKey, Scored, ScoreJournal
from recorders.scorers import Item, Scorer

__all__ = ["Scoring", "score"]

_REFUSALS_UNTIL_HOPELESS = 8


@dataclass(frozen=True, slots=True)
class Scoring:
    """A recording with scores, and how they came.

    Attributes:
        path: the new recording.
        recording_hash: its hash.
        scorer: name of the scorer in it.
        cots: CoTs that were given to the scorer.
        new: of these, in this run; the others were in the journal.
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
    progress: Callable[[int, int], None] | None = None,
) -> Scoring:
    """Give every CoT of a recording to a scorer, and write its scores into a derived recording.

    Args:
        recording: the folder to score; it stays as it is.
        out: the folder to make. The journal lies beside it until it is made.
        scorer: of `recorders.scorers.make_scorer`, or one of your own.
        datasets: ids of those to score; `None` for all.
        llms: names of those to score; `None` for all.
        limits: concurrency, retries and the like.
        progress: called with (CoTs scored, CoTs in all).

    Raises:
        NotRecordedError: something named is not there, or there is no CoT to score.
        DamagedRecordingError: the recording does not verify; nothing was asked.
        StorageError: `out` is there already, or the disk said no.
        JournalError: the journal is damaged, in use, or of something else.
        StoppedError: it ended early; the journal keeps what was scored, and the same call goes on.
        BackendError: no request to the scorer will ever work.
    """
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise StorageError(f"{out} is there already; a recording is never overwritten. Name another folder.")
    source = open_recording(recording)
    # Scores may cost money, and a damaged recording cannot be sealed again with them.
    if problems := verify_recording(recording).problems:
        raise DamagedRecordingError(f"{recording} does not verify: {problems[0]} Nothing was scored.")
    pairs = _pairs(source, datasets, llms, scorer.info.name)
    identity = {
        "recording": source.hash,
        "scorer": scorer.info.name,
        "kind": scorer.info.kind,
        "parameters": dict(scorer.info.parameters),
        "pairs": [list(pair) for pair in pairs],
    }
    with ScoreJournal.open(journal_folder(out), identity) as journal:
        run = _Run(source, scorer, journal, pairs, limits or Limits(), progress)
        try:
            asyncio.run(run.run())
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            raise InterruptedByUser(run.told("Interrupted")) from error
        return _seal(source, out, scorer, journal, pairs, run)


def _pairs(
    source: Recording, datasets: Sequence[str] | None, llms: Sequence[str] | None, scorer: str
) -> list[tuple[str, str]]:
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
    for dataset, llm in pairs:
        if scorer in source.scorers(dataset, llm):
            raise StorageError(
                f"{source.path} holds scores of {llm} on {dataset} by {scorer!r} already; give the scorer another --name."
            )
    return pairs


class _Run:
    """One run over what the journal lacks."""

    def __init__(
        self,
        source: Recording,
        scorer: Scorer,
        journal: ScoreJournal,
        pairs: Sequence[tuple[str, str]],
        limits: Limits,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._source, self._scorer, self._journal, self._pairs = source, scorer, journal, pairs
        self._limits, self._progress = limits, progress
        self.before = len(journal)
        self.without_text = 0
        self._total = sum(source.manifest.pairs[pair]["cots"] for pair in pairs)
        self._pending: list[tuple[CoTKey, Scored]] = []
        self._held: list[tuple[CoTKey, Scored]] = []
        self._answered = self.before > 0
        self._stopping = False
        self._task: asyncio.Task[Any] | None = None

    def told(self, what: str) -> str:
        """A sentence for whoever is told that it ended early."""
        done = len(self._journal)
        scored = f"{done:,} of {counted(self._total, 'CoT')} {'is' if done == 1 else 'are'} scored"
        return f"{what}. {scored}, in {self._journal.folder}; the same command goes on from there."

    async def run(self) -> None:
        """Score everything that is missing."""
        self._pace, self._disk, self._task = Pace(self._limits), asyncio.Lock(), asyncio.current_task()
        # Only the main thread of a program may handle signals; elsewhere Ctrl-C is somebody else's.
        with suppress(ValueError, RuntimeError, NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        batches = self._batches()
        workers = min(self._scorer.concurrency or self._limits.concurrency, self._limits.concurrency)
        async with aclosing(self._scorer):
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(workers):
                        group.create_task(self._work(batches))
            except* RecorderError as errors:
                raise _first(errors) from errors
        if self._stopping:
            raise InterruptedByUser(self.told("Interrupted"))
        if self._held:
            raise Fatal(f"Every request was refused: {self._held[0][1].verdict}")

    def _batches(self) -> Iterator[list[tuple[CoTKey, Item]]]:
        """What the journal lacks, some CoTs of one question at a time."""
        for dataset, llm in self._pairs:
            questions = {question.id: question for question in self._source.questions(dataset)}
            for pool in self._source.pools(dataset, llm):
                items = []
                for sample, text in enumerate(pool.texts):
                    key = CoTKey(dataset, llm, pool.question_id, sample)
                    if text is None:
                        self.without_text += 1
                    elif key not in self._journal:
                        question = questions[pool.question_id]
                        items.append((key, Item(question, text, pool.answers[sample], pool.prompt)))
                for start in range(0, len(items), self._scorer.batch):
                    yield items[start : start + self._scorer.batch]

    async def _work(self, batches: Iterator[list[tuple[CoTKey, Item]]]) -> None:
        for batch in batches:  # shared by all workers: each takes the next
            try:
                found = await self._scored(batch)
            except Refused as error:
                found = [Scored(verdict=error.reason, problem="refused")] * len(batch)
                self._held += [(key, one) for (key, _), one in zip(batch, found, strict=True)]
                self._check_refusals(error)
            else:
                self._answered = True
                self._held += [(key, one) for (key, _), one in zip(batch, found, strict=True)]
            if self._answered:
                held, self._held = self._held, []
                await self._acknowledge(held)
            if self._stopping:
                return

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

    def _check_refusals(self, error: Refused) -> None:
        """Before anything was scored, a refusal may be our own mistake: it is held back, and many of them end the run."""
        if not self._answered and len(self._held) >= _REFUSALS_UNTIL_HOPELESS:
            raise Fatal(f"The first requests were all refused: {error.reason}")

    def _interrupt(self) -> None:
        """Ctrl-C: once, take what is in flight and end; twice, end."""
        if self._stopping and self._task is not None:
            self._task.cancel()
        self._stopping = True

    async def _acknowledge(self, scores: list[tuple[CoTKey, Scored]]) -> None:
        """Write and sync; what collects while the disk is busy goes into the next write."""
        self._pending += scores
        async with self._disk:
            mine, self._pending = self._pending, []
            if mine:
                await asyncio.to_thread(self._journal.write, mine)
        if self._progress is not None:
            self._progress(len(self._journal) + self.without_text, self._total)


def _first(errors: BaseExceptionGroup[RecorderError]) -> RecorderError:
    found: Any = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    error: RecorderError = found
    return error


def _seal(
    source: Recording,
    out: Path,
    scorer: Scorer,
    journal: ScoreJournal,
    pairs: Sequence[tuple[str, str]],
    run: _Run,
) -> Scoring:
    seen: Counter[str] = Counter()
    found: dict[tuple[str, str], dict[str, dict[int, Scored]]] = {pair: {} for pair in pairs}
    for key, scored in journal.entries():
        found[key.dataset, key.llm].setdefault(key.question_id, {})[key.sample] = scored
        seen[scored.problem or ("none" if scored.score is None and scored.step_scores is None else "scored")] += 1
    notes = tuple(_notes(scorer.info.name, seen, run.without_text))
    rows = {pair: _rows(source, pair[0], own) for pair, own in found.items()}
    operation = {"kind": scorer.info.kind, **scorer.facts}
    add_scores(source.path, out, scorer.info, rows, operation=operation, notes=notes)
    problems = verify_recording(out).problems
    if problems:
        raise StorageError(
            f"{out} was written but does not verify: {problems[0]} The scores are kept in {journal.folder}; see to the disk, "
            f"remove {out} and run the same command again."
        )
    journal.remove()
    return Scoring(
        path=out,
        recording_hash=open_recording(out).hash,
        scorer=scorer.info.name,
        cots=sum(seen.values()),
        new=sum(seen.values()) - run.before,
        with_score=seen["scored"],
        unreadable=seen["unreadable"],
        refused=seen["refused"],
        without_text=run.without_text,
        notes=(*scorer.warnings, *([journal.recovered] if journal.recovered else []), *notes),
    )


def _rows(source: Recording, dataset: str, found: Mapping[str, Mapping[int, Scored]]) -> Iterator[ScoreRows]:
    for question in source.votes(dataset).question_ids:
        if question in found:
            samples = sorted(found[question])
            scored = [found[question][sample] for sample in samples]
            yield ScoreRows(
                question,
                samples,
                [one.score for one in scored],
                [one.step_scores for one in scored],
                [one.verdict for one in scored],
                [one.prompt_tokens for one in scored],
                [one.output_tokens for one in scored],
            )


def _notes(name: str, seen: Mapping[str, int], without_text: int) -> Iterator[str]:
    total = sum(seen.values())
    for count, why in (
        (seen["unreadable"], f"what {name} said holds none that can be read"),
        (seen["refused"], f"{name} refused them"),
        (seen["none"], f"{name} gave none"),
    ):
        if count:
            yield f"{count:,} of {counted(total, 'CoT')} {'has' if count == 1 else 'have'} no score: {why}."
    if without_text:
        yield f"CoTs without text, which were not given to {name}: {without_text:,}."
