"""Score a recording: every CoT goes to a scorer once, every score is in a journal before it counts,
then all is sealed.

    recording ─▶ CoTs not yet in the journal ─▶ engine ─▶ scorer ─▶ journal ─▶ derived recording
    with scores

Whatever stops a run leaves the journal beside `out`; the same command continues from there. It is
removed when the new recording has been verified.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from feval.errors import NotRecordedError, StorageError, UsageError
from feval.recording import Recording, ScoreRows, add_scores, open_recording
from feval.recording.steps import conversation, path_texts
from feval.report.text import counted
from recorders.scoring.missing_scores import ScoringTask, check_named, finish, is_written
from recorders.scoring.score_journal import REFUSED, CoTKey, Replies, Score, ScoreJournal
from recorders.scoring.scorer import Item, Scorer

_UNSCORED = " no score: "

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ScoringResult:
    """A recording with scores, and counts of what the scorer returned.

    Attributes:
        path: the new recording.
        recording_hash: its hash.
        scorer: name of the scorer in it.
        cots: CoTs that were given to the scorer.
        new: how many of them in this run; the others were in the journal, or in the recording
            before.
        with_score: CoTs with a score or step scores.
        unreadable: CoTs whose score could not be read in the scorer's reply.
        refused: CoTs that the scorer refused to score.
        without_text: CoTs that have no text and were not given to it.
        notes: sentences about anything unusual.
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


@dataclass(frozen=True, slots=True)
class CoTScoring(ScoringTask[ScoringResult]):
    """Every CoT of a recording is given to a scorer; made by `CoTScoring.of`.

    `earlier` has the pairs that the scorer has scored already; there only the `refused` CoTs are
    asked for, other scores stay.
    """

    source: Recording
    scorer: Scorer
    pairs: Sequence[Pair]
    earlier: Collection[Pair]
    refused: frozenset[CoTKey]
    retry_refused: bool

    @classmethod
    def of(
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
        pairs = _pairs(source, datasets, llms)
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
        return cls(source, scorer, pairs, scored, frozenset(refused), retry_refused)

    def asked(self) -> dict[str, Any]:
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
                        sent = (
                            conversation(sample, parents, pool.texts, turns, pool.prompt)
                            if turns
                            else pool.prompt
                        )
                        own = questions[pool.question_id], text, pool.answers[sample], sent
                        item = Item(*own, llm=llm, sample=sample)
                    items.append((key, item))
                yield items

    def seal(self, journal: ScoreJournal, out: Path, new: int, without_text: int) -> ScoringResult:
        """Write the derived recording."""
        source, scorer = self.source, self.scorer
        replies, states = journal.replies(), Counter[str]()
        rows = {pair: self._rows(pair, replies, states) for pair in self.pairs}
        if is_written(out):
            deque(chain.from_iterable(rows.values()), maxlen=0)  # counts
        else:
            add_scores(
                source.path,
                out,
                scorer.info,
                rows,
                operation={"kind": scorer.info.kind, **scorer.facts},
                notes=_notes(scorer.info.name, states, without_text),
                replacing=bool(self.earlier),
                without_notes=[
                    note
                    for note in source.manifest.raw["notes"]
                    if self.earlier and _is_note_of(scorer, note)
                ],
            )
        notes = _notes(scorer.info.name, states, without_text)
        return ScoringResult(
            path=out,
            recording_hash=finish(out, journal, "scores"),
            scorer=scorer.info.name,
            cots=sum(states.values()),
            new=new,
            with_score=states["scored"],
            unreadable=states["unreadable"],
            refused=states["refused"],
            without_text=without_text,
            notes=(*scorer.warnings, *([journal.recovered] if journal.recovered else []), *notes),
        )

    def _rows(self, pair: Pair, replies: Replies, states: Counter[str]) -> Iterator[ScoreRows]:
        """Yield the scores of a pair, those that stay and those of the journal, and count them by
        state.
        """
        earlier = iter(
            _recorded_scores(self.source, pair, self.scorer.info.name)
            if pair in self.earlier
            else ()
        )
        name, recorded = next(earlier, (None, {}))
        for question in self.source.votes(pair[0]).question_ids:
            scores = {}
            if question == name:
                scores = {
                    sample: score
                    for sample, score in recorded.items()
                    if score.problem != "refused"
                }
                name, recorded = next(earlier, (None, {}))
            if scores := scores | replies(CoTKey(*pair, question, 0)):
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


def _pairs(
    source: Recording, datasets: Sequence[str] | None, llms: Sequence[str] | None
) -> list[Pair]:
    check_named(source, datasets, llms)
    pairs = [
        (dataset, llm)
        for dataset, llm in source.manifest.pairs
        if (datasets is None or dataset in datasets) and (llms is None or llm in llms)
    ]
    if not pairs:
        raise NotRecordedError(
            f"{source.path} holds no CoTs of what was named; `feval info` shows what it holds."
        )
    return pairs


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


def _state(score: Score) -> str:
    return score.problem or (
        "none" if score.score is None and score.step_scores is None else "scored"
    )


def _is_note_of(scorer: Scorer, note: str) -> bool:
    """Whether a note says what an earlier run of the scorer left without a score."""
    return _UNSCORED in note and scorer.info.name in note


def _notes(name: str, states: Mapping[str, int], without_text: int) -> Iterator[str]:
    total = sum(states.values())
    for count, why in (
        (states["unreadable"], f"what {name} said holds none that can be read"),
        (states["refused"], f"{name} refused them"),
        (states["none"], f"{name} gave none"),
    ):
        if count:
            yield (
                f"{count:,} of {counted(total, 'CoT')}"
                f" {'has' if count == 1 else 'have'}{_UNSCORED}{why}."
            )
    if without_text:
        yield f"CoTs without text, which were not given to {name}: {without_text:,}."
