"""Score a recording: every CoT goes to a scorer once, every score is in a journal before it counts,
then all is sealed.

    recording ─▶ CoTs not yet in the journal ─▶ engine ─▶ scorer ─▶ journal
    ─▶ derived recording with scores

Whatever stops a run leaves the journal beside `out`; the same command continues from there. It is
removed when the new recording has been verified.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

from feval.cards import count_words
from feval.errors import (
    DamagedRecordingError,
    FevalError,
    NotRecordedError,
    StorageError,
    UsageError,
)
from feval.executors import reports
from feval.recording import Recording, ScorerInfo, ScoreRows, open_recording, verify_recording
from feval.recording.arrays import conversation, path_texts
from feval.recording.derived.rewriting import add_scorers
from feval.recording.parts import SparseRows
from feval.recording.reader import pairs_of
from feval.report.text import counted
from feval.values import Record, frozen, inside
from recorders.asking.engine import Assignment, Control, Progress, RunBar, TokenEstimate, ask, run
from recorders.asking.pace import (
    Budget,
    CostEstimate,
    Limits,
    check_cost_limit,
    cost as usd_of,
    find_price,
)
from recorders.errors import InterruptedByUser, RefusalError
from recorders.journal import is_written, journal_folder
from recorders.scoring.scorers import LOCAL
from recorders.scoring.scores import REFUSED, CoTKey, Item, Replies, Score, ScoreJournal, Scorer

Pair = tuple[str, str]
ScoreBatch = list[tuple[CoTKey, Item]]
NewScores = list[tuple[ScorerInfo, Mapping[Pair, Iterator[ScoreRows]]]]
"""What is written: scorers, and their scores by dataset and LLM."""


@frozen
class ScoringResult:
    """A recording with scores, and counts of what the scorer returned.

    Attributes:
        path: the new recording.
        recording_hash: its hash.
        scorer: name of the scorer in it; of verdicts, without the LLM compared with.
        new: requests answered in this run; the others were in the journal, or in the recording
            before.
        counts: see `CoTScoring.counts` and `PairwiseComparison.counts`.
        notes: sentences about anything unusual.
    """

    path: Path
    recording_hash: str
    scorer: str
    new: int
    counts: Mapping[str, int]
    notes: tuple[str, ...]


class ScoringTask(ABC):
    """What a scorer is asked about a recording.

    Attributes:
        unit: names what is asked about, in messages.
        nouns: what gets a score, and what the score is called, in messages.
        remark: a sentence for the user about what is not asked; empty if there is none.
        earlier: pairs of dataset and LLM whose scores are there already and are replaced.
    """

    unit: ClassVar[str] = "CoTs"
    nouns: ClassVar[tuple[str, str]] = "CoT", "score"
    source: Recording
    scorer: Scorer
    retry_refused: bool
    remark = ""
    earlier: Collection[Pair] = ()

    @property
    def identity(self) -> Record:
        """What must be equal for a journal to be continued."""
        info = self.scorer.info
        about = {"recording": self.source.hash, "scorer": info.name, "kind": info.kind}
        return about | {"parameters": dict(info.parameters), **self.asked()}

    @abstractmethod
    def asked(self) -> Record:
        """Return what of the recording the scorer is shown, and in which way."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Number of everything that is asked about, items without text included."""

    @property
    @abstractmethod
    def may_seal_unasked(self) -> bool:
        """Whether there may be something to seal though nothing was asked."""

    @abstractmethod
    def items(self) -> Iterator[list[tuple[CoTKey, Item | None]]]:
        """Yield everything that is asked about, question by question; `None` where there is nothing
        to ask.
        """

    @abstractmethod
    def scores(self, replies: Replies, states: Counter[str]) -> NewScores:
        """Return the scores to write, which count by state what they come from as they are read."""

    @abstractmethod
    def counts(self, states: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers of a result."""

    def notes(self, states: Mapping[str, int]) -> Iterator[str]:
        """Yield what is unusual about the scores, in sentences."""
        name, (item, score) = self.scorer.info.name, self.nouns
        for state, why in (
            ("abstained", f"{name} said that it cannot judge"),
            ("unreadable", f"what {name} said holds none that can be read"),
            ("refused", f"{name} refused them"),
            ("none", f"{name} gave none"),
            ("missing", "a text was not kept"),
        ):
            if count := states[state]:
                have = "has" if count == 1 else "have"
                yield f"{count:,} of {counted(total(states), item)} {have} no {score}: {why}."

    def seal(self, journal: ScoreJournal, out: Path, new: int, without_text: int) -> ScoringResult:
        """Make the derived recording, unless it is there, from a journal with all scores, `new` of
        them from this run; verify it, and remove the journal.
        """
        source, scorer, what = self.source, self.scorer, f"{self.nouns[1]}s"
        states = Counter(without_text=without_text)
        scores = self.scores(journal.scores, states)
        if is_written(out):
            deque(chain.from_iterable(each for _, rows in scores for each in rows.values()), 0)
        else:
            add_scorers(
                source.path,
                out,
                scores,
                operation={
                    "kind": scorer.info.kind, **scorer.facts, "scorer": scorer.info.name,
                },
                notes=self.notes(states),
                replacing=bool(self.earlier),
                without_notes=[
                    note  # of what an earlier run left without a score
                    for note in source.manifest.raw["notes"]
                    if self.earlier and " no score: " in note and scorer.info.name in note
                ],
            )  # fmt: skip
        # If it does not verify, the journal stays.
        if problems := verify_recording(out).problems:
            raise StorageError(
                f"{out} was written but does not verify: {problems[0]} The {what} are kept in"
                f" {journal.folder}; check the disk, remove {out} and run the same command again."
            )
        journal.remove()
        said = filter(None, [*scorer.warnings, journal.recovered, self.remark])
        return ScoringResult(
            out,
            open_recording(out).hash,
            scorer.info.name,
            new,
            self.counts(states),
            (*said, *self.notes(states)),
        )

    def batches(self, journal: ScoreJournal | None, counts: Counter[str]) -> Iterator[ScoreBatch]:
        """Yield what a journal lacks, some CoTs of one question at a time; items without a text are
        counted.
        """
        again = frozenset(journal.refused if journal is not None and self.retry_refused else ())
        for question in self.items():
            counts["without_text"] += sum(item is None for _, item in question)
            items = [
                (key, item)
                for key, item in question
                if item is not None and (journal is None or key not in journal or key in again)
            ]
            for start in range(0, len(items), self.scorer.batch):
                yield items[start : start + self.scorer.batch]


class _MissingScores(Assignment[ScoreBatch, list[Score]]):
    """The scores of a task that a journal lacks."""

    ACTIVITY, DONE = "Scoring", "scored"

    journal: ScoreJournal

    def __init__(
        self, task: ScoringTask, journal: ScoreJournal, budget: Budget, limits: Limits
    ) -> None:
        self.journal, self.budget, self._scorer = journal, budget, task.scorer
        self.total, self.unit = task.total, task.unit
        self.has_replies = len(journal) > 0
        self.concurrency = task.scorer.concurrency
        # What runs on this machine takes as long as it takes.
        self.timeout_s = None if task.scorer.info.kind in LOCAL else limits.timeout_s
        self.counts = Counter[str]()
        self._returned: deque[ScoreBatch] = deque()
        self._batches = task.batches(journal, self.counts)
        budget.pay(journal.prompt_tokens, journal.output_tokens)
        if budget.is_limited and journal.replies_with_usage < len(journal):
            for question in task.items():
                scores = {
                    group: journal.scores(group)
                    for group in {key._replace(sample=0) for key, _ in question}
                }
                for key, item in question:
                    score = scores[key._replace(sample=0)].get(key.sample)
                    if item is not None and score is not None:
                        self._pay_if_uncounted(item, score)

    @property
    def done(self) -> int:
        return len(self.journal) + self.counts["without_text"]

    def next_batch(self) -> ScoreBatch | None:
        return self._returned.popleft() if self._returned else next(self._batches, None)

    def put_back(self, batch: ScoreBatch) -> None:
        self._returned.appendleft(batch)

    def label(self, batch: ScoreBatch) -> str:
        return repr(batch[0][0])

    def estimate(self, batch: ScoreBatch) -> TokenEstimate:
        cost = self._scorer.request_cost
        longest = 0 if cost is None else cost.max_tokens * len(batch)
        return TokenEstimate(sum(self._prompt_tokens(item) for _, item in batch), longest, longest)

    async def send(self, batch: ScoreBatch) -> list[Score]:
        return await self._scorer.score([item for _, item in batch])

    def pay(self, batch: ScoreBatch, reply: list[Score]) -> float:
        tokens = 0.0
        for (_, item), score in zip(batch, reply, strict=True):
            if self._pay_if_uncounted(item, score):
                continue
            prompt, output = score.prompt_tokens or 0, score.output_tokens or 0
            tokens += prompt + output
            self.budget.pay(prompt, output)
            if self._scorer.request_cost is not None:
                self.budget.learn(len(self._scorer.request_cost.text(item)), prompt)
        return tokens

    def accept(self, batch: ScoreBatch, reply: list[Score]) -> None:
        self.journal.add([(key, score) for (key, _), score in zip(batch, reply, strict=True)])

    def refuse(self, batch: ScoreBatch, error: RefusalError) -> None:
        self.journal.add(
            [(key, Score(verdict=REFUSED + error.reason, problem="refused")) for key, _ in batch]
        )

    def _prompt_tokens(self, item: Item) -> float:
        cost = self._scorer.request_cost
        return 0.0 if cost is None else self.budget.prompt_tokens(len(cost.text(item)))

    def _pay_if_uncounted(self, item: Item, score: Score) -> bool:
        """Charge for a reply without token counts as if it were as long as possible; return whether
        it was one.
        """
        if score.prompt_tokens is not None and score.output_tokens is not None:
            return False
        cost = self._scorer.request_cost
        if cost is not None and score.problem != "refused":
            self.budget.pay(self._prompt_tokens(item), cost.max_tokens)
        return True


@reports("scoring", RunBar)
def run_scoring(
    task: ScoringTask,
    out: str | Path,
    *,
    limits: Limits | None = None,
    prices: str = "none",
    cost_limit_usd: float | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ScoringResult:
    """Ask for every score that is missing, and write all scores into a derived recording.

    In the main thread, the first Ctrl-C, SIGTERM or SIGHUP waits for replies in flight, the second
    for nothing. The journal is beside `out`: if the run ends early, it keeps what was scored, and
    the same call continues. Nothing is sent that could pass `cost_limit_usd`, which covers earlier
    runs, if every reply in flight were as long as allowed.
    """
    out = Path(out)
    if is_written(out):
        return _written_before(task, out)
    # Scores may cost money, and a damaged recording cannot be sealed again with them.
    if problems := verify_recording(task.source.path).problems:
        raise DamagedRecordingError(
            f"{task.source.path} does not verify: {problems[0]} Nothing was scored. `feval verify`"
            " lists all problems."
        )
    scorer, limits, control = task.scorer, limits or Limits(), Control()
    cost = scorer.request_cost
    price = None if cost is None else find_price(prices, cost.model)
    check_cost_limit(cost_limit_usd, price, f"the scorer {scorer.info.name!r}", prices)
    with ScoreJournal.open(journal_folder(out), task.identity) as journal:
        scores = _MissingScores(task, journal, Budget(price, cost_limit_usd), limits)
        asking = ask(scores, limits=limits, progress=progress, control=control)
        try:
            outcome = run(asking, control, scorer.aclose, blocks=scorer.info.kind == "python")
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            raise InterruptedByUser(
                f"Scoring was interrupted: {scores.done:,} of {scores.total:,} {scores.unit} are"
                f" scored, in {journal.folder}, and the same command continues from there.",
                128 + control.signal,
            ) from error
        if outcome.error is not None:
            raise outcome.error
        if not len(journal) and not task.may_seal_unasked:
            journal.remove()
            raise NotRecordedError(
                f"{task.source.path} holds no text of the {task.total:,} {task.unit} that were"
                " named, and a scorer reads texts. Import or record it with its texts."
            )
        return task.seal(journal, out, outcome.new, scores.counts["without_text"])


def _written_before(task: ScoringTask, out: Path) -> ScoringResult:
    """Finish a run that was killed after it wrote `out` and before it removed the journal; refuse
    any other `out`.
    """
    if (journal_folder(out) / ScoreJournal.NAME).exists() and _is_made_from(out, task):
        with ScoreJournal.open(journal_folder(out), task.identity) as journal:
            without_text = 0
            for key, item in chain.from_iterable(task.items()):
                without_text += item is None
                if item is not None and key not in journal:
                    break
            else:
                return task.seal(journal, out, 0, without_text)
    raise StorageError(
        f"{out} exists already; a recording is never overwritten. Name another folder."
    )


def _is_made_from(out: Path, task: ScoringTask) -> bool:
    try:
        made = open_recording(out).manifest.raw
    except FevalError:
        return False
    parents = [parent.get("hash") for parent in made.get("parents", ())]
    return (
        parents == [task.source.hash]
        and inside(made, "operation", "scorer") == task.scorer.info.name
    )


def estimate_scoring(task: ScoringTask, out: str | Path, prices: str) -> CostEstimate:
    """Return what `run_scoring` would ask for and cost, without asking; a scorer made with
    `asks=False` needs no key.
    """
    folder = journal_folder(out)
    if not (folder / ScoreJournal.NAME).exists():
        return _estimate(task, None, prices)
    with ScoreJournal.open(folder, task.identity) as journal:
        return _estimate(task, journal, prices)


def _estimate(task: ScoringTask, journal: ScoreJournal | None, prices: str) -> CostEstimate:
    cost = task.scorer.request_cost
    cots = calls = words = 0
    for batch in task.batches(journal, Counter()):
        cots += len(batch)
        calls += len(batch) if task.scorer.info.kind in LOCAL else 1
        words += 0 if cost is None else sum(count_words(cost.text(item)) for _, item in batch)
    if cost is None:
        return CostEstimate(cots, calls, None, None, None, "nothing", at_most=False)
    if journal is not None and (replies := journal.replies_with_usage):
        prompt, output = (
            round(cots * tokens / replies)
            for tokens in (journal.prompt_tokens, journal.output_tokens)
        )
        basis, at_most = "the mean of the replies in the journal", False
    else:
        prompt, output, at_most = words, cots * cost.max_tokens, bool(cost.max_tokens)
        bound = (
            f", and an upper bound: {cost.max_tokens} output tokens for every reply"
            if at_most
            else ""
        )
        basis = f"the words of the prompts{bound}"
    dollars = usd_of(find_price(prices, cost.model), prompt, output)
    return CostEstimate(cots, calls, prompt, output, dollars, basis, at_most)


@dataclass(frozen=True)
class CoTScoring(ScoringTask):
    """Every CoT of a recording is given to a scorer; made by `CoTScoring.from_recording`.

    `earlier` has the pairs that the scorer has scored already; there only the `refused` CoTs are
    asked for, other scores stay.
    """

    source: Recording
    scorer: Scorer
    pairs: Sequence[Pair]
    refused: frozenset[CoTKey]
    retry_refused: bool
    earlier: Collection[Pair]

    @classmethod
    def from_recording(
        cls,
        recording: str | Path,
        scorer: Scorer,
        *,
        datasets: Sequence[str] | None = None,
        llms: Sequence[str] | None = None,
        retry_refused: bool = False,
    ) -> CoTScoring:
        """Return what is to be scored in a recording: some datasets and LLMs, or all.

        `retry_refused` asks again for the CoTs that the scorer refused, in the journal or in a
        recording that holds its scores, whose other scores are kept.
        """
        source = open_recording(recording)
        pairs = pairs_of(source, datasets, llms)
        scored = [pair for pair in pairs if scorer.info.name in source.scorers(*pair)]
        if scored and not retry_refused:
            dataset, llm = scored[0]
            raise StorageError(
                f"{source.path} holds scores of {llm} on {dataset} by {scorer.info.name!r} already;"
                " give the scorer another --name, or take --retry-refused to ask again for the"
                " CoTs that it refused."
            )
        if scored and source.scorer_info(scorer.info.name) != scorer.info:
            raise StorageError(
                f"The scores by {scorer.info.name!r} in {source.path} were given by another scorer"
                " or with other parameters, so its refused CoTs are not asked for again; name the"
                " same scorer, or give this one another --name."
            )
        refused = {
            CoTKey(*pair, question, sample)
            for pair in scored
            for question, scores in _recorded_scores(source, pair, scorer.info.name)
            for sample, score in scores.items()
            if score.problem == "refused"
        }
        if scored == pairs and not refused:
            raise UsageError(
                f"{source.path} holds no CoT that {scorer.info.name!r} refused, so there is nothing"
                " to ask again."
            )
        return cls(source, scorer, pairs, frozenset(refused), retry_refused, scored)

    def asked(self) -> Record:
        """Return the pairs of dataset and LLM."""
        return {"pairs": [list(pair) for pair in self.pairs]}

    @property
    def may_seal_unasked(self) -> bool:
        """Whether earlier scores are kept."""
        return bool(self.earlier)

    @property
    def total(self) -> int:
        """CoTs to score, those without a text included."""
        fresh: int = sum(
            self.source.manifest.pairs[pair]["cots"]
            for pair in self.pairs
            if pair not in self.earlier
        )
        return fresh + len(self.refused)

    def items(self) -> Iterator[list[tuple[CoTKey, Item | None]]]:
        """Yield all CoTs to score, question by question; `None` where there is no text."""
        for dataset, llm in self.pairs:
            questions = {question.id: question for question in self.source.questions(dataset)}
            stop = str(dict(self.source.llm_info(llm).decoding.get("steps", {})).get("stop", ""))
            for pool in self.source.pools(dataset, llm):
                items: list[tuple[CoTKey, Item | None]] = []
                turns, parents = pool.messages, pool.parents or [None] * len(pool.texts)
                calls = pool.extra.get("tool_calls")
                texts = (
                    pool.texts
                    if pool.parents is None or turns
                    else path_texts(pool.texts, parents, stop)
                )
                for sample, text in enumerate(texts):
                    key = CoTKey(dataset, llm, pool.question_id, sample)
                    if (dataset, llm) in self.earlier and key not in self.refused:
                        continue
                    item = None
                    if text is not None:
                        said = pool.texts, turns, calls, pool.prompt
                        sent = conversation(sample, parents, *said) if turns else pool.prompt
                        own = questions[pool.question_id], text, pool.answers[sample], sent
                        item = Item(*own, llm=llm, sample=sample)
                    items.append((key, item))
                yield items

    def scores(self, replies: Replies, states: Counter[str]) -> NewScores:
        """Return the scores of each pair, earlier ones included."""
        return [
            (self.scorer.info, {pair: self._rows(pair, replies, states) for pair in self.pairs})
        ]

    def counts(self, states: Mapping[str, int]) -> dict[str, int]:
        """Return the numbers of CoTs: that were given to the scorer (`cots`), with a score or step
        scores, with one that could not be read in the scorer's reply, refused, and without a text,
        which were not given to it.
        """
        numbers = {"cots": total(states), "with_score": states["scored"]}
        return numbers | {name: states[name] for name in ("unreadable", "refused", "without_text")}

    def notes(self, states: Mapping[str, int]) -> Iterator[str]:
        """Yield what is unusual about the scores, in sentences."""
        yield from super().notes(states)
        if count := states["without_text"]:
            name = self.scorer.info.name
            yield f"CoTs without text, which were not given to {name}: {count:,}."

    def _rows(self, pair: Pair, replies: Replies, states: Counter[str]) -> Iterator[ScoreRows]:
        """Yield the scores of a pair, those that stay and those of the journal, and count them by
        state.
        """
        recorded = _recorded_scores(self.source, pair, self.scorer.info.name)
        earlier = SparseRows(recorded if pair in self.earlier else (), {})
        for question in self.source.votes(pair[0]).question_ids:
            kept = {
                sample: score
                for sample, score in earlier.take(question).items()
                if score.problem != "refused"
            }
            if scores := kept | replies(CoTKey(*pair, question, 0)):
                states.update(map(_state, scores.values()))
                yield score_rows(question, scores, steps=True)


def _recorded_scores(
    source: Recording, pair: Pair, scorer: str
) -> Iterator[tuple[str, dict[int, Score]]]:
    """Yield the scores in a recording: question id, and the scores by sample."""
    for rows in source.score_rows(*pair, scorer):
        scores = {}
        empty = [None] * len(rows.sample_indices)
        columns = (rows.step_scores, rows.verdicts, rows.prompt_tokens, rows.output_tokens)
        for sample, score, steps, verdict, prompt, output in zip(
            rows.sample_indices, rows.scores, *(column or empty for column in columns), strict=True
        ):
            problem = None
            if score is None and steps is None and verdict is not None:
                problem = "refused" if verdict.startswith(REFUSED) else "unreadable"
            steps = None if steps is None else tuple(steps)
            scores[sample] = Score(score, steps, verdict, prompt, output, problem)
        yield rows.question_id, scores


def score_rows(question_id: str, scores: Mapping[int, Score], *, steps: bool) -> ScoreRows:
    """Return the scores of some CoTs of a question, by sample index, as a recording stores them;
    `steps` adds their column.
    """
    samples = sorted(scores)
    rows = [scores[sample] for sample in samples]
    return ScoreRows(
        question_id,
        samples,
        [row.score for row in rows],
        [row.step_scores for row in rows] if steps else None,
        [row.verdict for row in rows],
        [row.prompt_tokens for row in rows],
        [row.output_tokens for row in rows],
    )


_STATES = (
    "scored", "contradicted", "same_text", "missing", "refused", "unreadable", "abstained", "none",
)  # fmt: skip


def _state(score: Score) -> str:
    return score.problem or (
        "none" if score.score is None and score.step_scores is None else "scored"
    )


def total(states: Mapping[str, int]) -> int:
    """Return how many CoTs or comparisons have a state."""
    return sum(states[state] for state in _STATES)
