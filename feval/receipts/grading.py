"""Grade the answers of another program, in any language, that was handed recorded CoTs.

The program gives its answers; the ledger says which CoTs it was handed. Together they give what
`evaluate` gives for a method: accuracy with its interval over questions, and the cost in tokens and
in dollars of a dated price list (eq. 1). Golds are read only here, after the program has decided.

A question that was asked and not answered counts as wrong, since leaving it out would flatter the
accuracy. An answer without any CoT behind it is refused, since it would be free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cache

import numpy as np

from feval.cards.billing import PICODOLLARS
from feval.errors import (
    ConflictError,
    NotRecordedError,
    UnknownNameError,
    UsageError,
    require_known,
)
from feval.evaluation.cautions import few_questions, mixed_counters, other_models, uncompared
from feval.evaluation.measures import Averages, QuestionLedger, payer
from feval.evaluation.questions import cluster_sizes, question_clusters
from feval.evaluation.requests import Consumption, GradeRequest
from feval.evaluation.results import DatasetResult, interval_ends, rests_on
from feval.methods.protocol import Bools, Rows
from feval.replay import LLM, Dataset
from feval.values import Record

_NAMES = ("question", "question_id", "id")


@dataclass(frozen=True, eq=False, kw_only=True)
class Grade(Averages, DatasetResult):
    """The graded answers of one run to Q questions of one dataset, by LLMs.

    Attributes:
        run: its name.
        replicate: which draws the run was handed; `None` for the recorded order.
        dataset_questions: number of questions in the dataset.
        consumed: what was handed out, per LLM and question.
        answers: the answers as they were written, by question id; `None` for no answer. A question
            that was asked and is not in it has no answer either.
        question_ids: Q ids, in recorded order: all that were asked, and those answered with no
            answer without being asked.
        right: [Q] whether the answer is the gold.
        answered: [Q] whether there is an answer that the dataset's answer kind can read.
        golds: [Q] whether the question has a gold; without one no answer is right.
        as_drawn: whether the CoTs are the first ones of the draw, recycled ones included; false
            where some were chosen.
        ledger: what the run consumed.
        accuracy_low, accuracy_high: ends of the confidence interval, `None` where none was asked
            for.
    """

    run: str
    replicate: int | None
    dataset_questions: int
    consumed: tuple[Consumption, ...] = field(repr=False)
    answers: Mapping[str, str | None] = field(repr=False)
    question_ids: Sequence[str] = field(repr=False)
    right: Bools = field(repr=False)
    answered: Bools = field(repr=False)
    golds: Bools = field(repr=False)
    as_drawn: bool
    ledger: QuestionLedger = field(repr=False)
    accuracy_low: float | None
    accuracy_high: float | None

    @property
    def accuracy(self) -> float:
        """Share of questions whose answer is the gold."""
        return float(self.right.mean())

    @property
    def unanswered(self) -> int:
        """Number of questions that were asked and not answered."""
        return sum(name not in self.answers for name in self.question_ids)

    @property
    def asked_again(self) -> int:
        """Number of questions that were asked in more than one pass."""
        return len({entry.question for entry in self.consumed if entry.passes > 1})

    def to_dict(self) -> Record:
        """The numbers as JSON values: what `feval grade --json` prints, and a receipt holds."""
        names = ("run", "replicate", "dataset", "questions", "dataset_questions", "unanswered",
                 "accuracy", "accuracy_low", "accuracy_high", "as_drawn", "asked_again", "seed",
                 "prices", "billing")  # fmt: skip
        sums = {"requests": "calls", "samples": "samples", "tokens": "tokens"}
        by_llm = dict(zip(self.llms, self._llm_numbers(), strict=True))
        # Whole counts are priced once per LLM, as the ledger of a run does: equal to the last bit.
        dollars = None if self.usd is None else sum(own["usd"] for own in by_llm.values())
        return {
            **{name: getattr(self, name) for name in names},
            "llms": list(self.llms),
            "answered": int(self.answered.sum()),
            "without_gold": int((~self.golds).sum()),
            "correct": int(self.right.sum()),
            **({} if self.judges is None else {"judges": asdict(self.judges)}),
            **({} if self.clusters is None else {"clusters": asdict(self.clusters)}),
            **{
                name: None if (counts := self.ledger.column(of)) is None else int(counts.sum())
                for name, of in sums.items()
            },
            "usd": dollars,
            **self.ledger.averages("always"),
            "by_llm": by_llm,
        }

    def _llm_numbers(self) -> Iterator[Record]:
        ledger = self.ledger
        for place in range(len(ledger.payers)):
            requests, cots, output = (
                int(ledger.counts[name][place].sum())
                for name in ("rounds", "cots", "output_tokens")
            )
            bills = ledger.billed()
            bill = None if bills is None else bills[place]
            dollars = None if bill is None or self.usd is None else bill.usd
            if ledger.payers[place].states_usd and self.usd is not None:
                dollars = ledger.counts["picodollars"][place] / PICODOLLARS
            yield {
                "requests": requests,
                "samples": cots,
                "prompt_tokens": None if bill is None else int((bill.tokens - bill.output).sum()),
                "output_tokens": output,
                "usd": None if dollars is None else float(dollars.sum()),
            }

    def remarks(self) -> list[str]:
        """Sentences that whoever reads the accuracy must know."""
        rest = self.dataset_questions - self.questions
        nothing = self.questions - int(self.answered.sum()) - self.unanswered
        bare = int((~self.golds).sum())
        cut = sum(tokens is not None for entry in self.consumed for tokens in entry.tokens or ())
        sentences = (
            (rest, f"{_were(rest)} never asked, which leaves accuracy and cost as they are."),
            (
                self.unanswered,
                f"{_were(self.unanswered)} asked and not answered, which counts as wrong.",
            ),
            (
                nothing,
                (
                    f"{_were(nothing)} answered with no answer, or with one that cannot be read,"
                    " which counts as wrong."
                ),
            ),
            (
                bare,
                f"{_were(bare)} recorded without a gold answer, so no answer to it can be right.",
            ),
            (
                cut,
                (
                    "CoTs that a stop or a limit of the requests cut, which cost what came before:"
                    f" {cut:,}."
                ),
            ),
            (
                self.asked_again,
                (
                    f"{_were(self.asked_again)} asked again after the run had gone on to others, as"
                    " by a program that is run twice under one key: the CoTs and the cost are those"
                    " of all passes. With a key of its own, each pass gets the same CoTs and is"
                    " graded alone."
                ),
            ),
            (
                not self.as_drawn,
                "Some CoTs were chosen one by one, so the run is not a random draw.",
            ),
            (
                self.usd is None,
                (
                    "There are no dollars: an LLM has no price, its prompts' tokens were not"
                    " recorded, or CoTs that state their own were cut."
                ),
            ),
        )
        said = [sentence for applies, sentence in sentences if applies]
        return [*few_questions(self.questions, self.clusters), *said, *self.cautions]

    def request(self) -> GradeRequest:
        """What the numbers are computed from besides the recordings and the price list: a receipt's
        request.
        """
        names = ("run", "replicate", "dataset", "llms", "seed", "billing", "confidence", "consumed")
        return GradeRequest(
            **{name: getattr(self, name) for name in names},
            answers=dict(self.answers),
            right=None if self.judges is None else self.judges.right,
        )


def _were(count: int) -> str:
    return "1 question was" if count == 1 else f"{count:,} questions were"


def grade_answers(
    dataset: Dataset,
    llms: Sequence[LLM],
    consumed: Iterable[Consumption],
    answers: Mapping[str, str | None],
    *,
    run: str = "default",
    replicate: int | None = 0,
    confidence: float | None = 0.95,
) -> Grade:
    """Grade a run's answers.

    Args:
        dataset: from `load`; its golds are read here.
        llms: the LLMs that were asked, from the same `load`.
        consumed: what the run was handed; at most one entry per LLM and question.
        answers: by question id, as the program wrote them; `None` for no answer. The dataset's
            answer kind makes them canonical. See `answers_by_id`.
        run: the run's name.
        replicate: which draws it was handed; `None` for the recorded order.
        confidence: of the interval over questions; `None` for no interval.

    Raises:
        UsageError: nothing was asked, or a question was answered that was never asked.
        NotRecordedError: the recording lacks a question or a CoT.
        ConflictError: an LLM and question come twice.
    """
    dataset.require(llms)
    entries = tuple(consumed)
    if not entries:
        raise UsageError(
            f"The run {run!r} asked nothing about {dataset.id}, so there is nothing to grade."
        )
    row_of = {name: row for row, name in enumerate(dataset.question_ids)}
    placed = _placed(entries, llms, row_of, dataset.id)
    questions = {entry.question for entry in entries}
    for name in answers:
        require_known(f"question of {dataset.id} called", name, row_of)
    free = [
        name for name, answer in answers.items() if answer is not None and name not in questions
    ]
    if free:
        raise UsageError(
            f"{_were(len(free))} answered that the run {run!r} never asked, such as {free[0]!r} of"
            f" {dataset.id}: no CoT is behind the answer, so it would cost nothing. Leave it out,"
            " or name the run that asked."
        )
    rows = np.array(sorted(row_of[name] for name in {*questions, *answers}), np.intp)
    ids = [dataset.question_ids[row] for row in rows.tolist()]
    keys = {name: dataset.answer_key(name, answers.get(name)) for name in ids}
    golds = dataset.gold[rows] >= 0
    right = np.array(
        [gold and dataset.is_right(name, keys[name]) for name, gold in zip(ids, golds, strict=True)]
    )
    clusters = question_clusters(dataset, rows)
    low, high = next(interval_ends(right.astype(np.float64)[:, None], confidence, clusters))
    asked = [llm for llm in llms if llm.name in {entry.llm for entry in entries}]
    counters = tuple(llm.counter for llm in asked)
    return Grade(
        **rests_on(dataset, llms, rows) | {"counters": counters},
        run=run,
        replicate=replicate,
        dataset_questions=len(dataset),
        consumed=entries,
        answers={name: answers[name] for name in ids if name in answers},
        question_ids=ids,
        right=right,
        answered=np.array([keys[name] is not None for name in ids]),
        golds=golds,
        as_drawn=all(_is_drawn(entry, llms[place], row, replicate) for entry, place, row in placed),
        ledger=_ledger(llms, placed, rows),
        accuracy_low=low,
        accuracy_high=high,
        confidence=confidence,
        cautions=(
            *mixed_counters(counters),
            *other_models(asked),
            *uncompared(sum(dataset.is_uncompared(name, keys[name]) for name in ids), len(ids)),
        ),
        clusters=cluster_sizes(clusters),
    )


_Placed = list[tuple[Consumption, int, int]]
"""What was handed out, each with the place of its LLM and the row of its question."""


def _placed(
    entries: Sequence[Consumption], llms: Sequence[LLM], row_of: Mapping[str, int], dataset: str
) -> _Placed:
    """Check that what was handed out is in the recording: ledgers and receipts come from
    anywhere.
    """
    place_of = {llm.name: place for place, llm in enumerate(llms)}
    placed: dict[tuple[int, int], Consumption] = {}
    for entry in entries:
        if entry.llm not in place_of or entry.question not in row_of:
            raise NotRecordedError(
                f"The ledger has CoTs of {entry.llm!r} on question {entry.question!r}, which"
                f" {dataset} does not have in this recording. Give the recording that was served."
            )
        place, row = at = place_of[entry.llm], row_of[entry.question]
        size = int(llms[place].pool.sizes[row])
        if not all(0 <= sample < size for sample in entry.samples) or not (
            1 <= entry.passes <= entry.requests <= len(entry.samples)
        ):
            raise NotRecordedError(
                f"The ledger has {entry.requests} requests of {entry.llm} on question"
                f" {entry.question!r} for the CoTs {list(entry.samples)!s:.80}; {size} were"
                " recorded, numbered from 0. Give the recording that was served."
            )
        if at in placed:
            raise ConflictError(
                f"The ledger has {entry.llm} on question {entry.question!r} twice; join the two"
                " entries."
            )
        placed[at] = entry
    return [(entry, *at) for at, entry in placed.items()]


def _is_drawn(entry: Consumption, llm: LLM, row: int, replicate: int | None) -> bool:
    """Whether these CoTs are the first of the draw, whichever of several concurrent requests each
    came in.
    """
    order = range(int(llm.pool.sizes[row])) if replicate is None else llm.order(row, replicate)
    first = [order[place % len(order)] for place in range(len(entry.samples))]
    return sorted(entry.samples) == sorted(first)


def _ledger(llms: Sequence[LLM], placed: _Placed, rows: Rows) -> QuestionLedger:
    """Count what was handed out."""
    column_of, is_cut = {row: column for column, row in enumerate(rows.tolist())}, False
    prompts, rounds, cots, output, paid = np.zeros((5, len(llms), len(rows)), np.int64)
    for entry, place, row in placed:
        at, pool = (place, column_of[row]), llms[place].pool
        prompts[at], rounds[at] = pool.prompt_tokens[row], entry.requests
        cots[at] = len(entry.samples)
        recorded = pool.output_tokens[row, list(entry.samples)].tolist()
        told = _output_tokens(entry, recorded)
        output[at], is_cut = sum(told), is_cut or told != recorded
        if (llm := llms[place]).states_usd:
            paid[at] = np.rint(llm.stated_usd[row, list(entry.samples)].sum() * PICODOLLARS)
    counts: Record = {"asked": rounds > 0, "rounds": rounds, "cots": cots}
    counts |= {"output_tokens": output, "picodollars": None if is_cut else paid}
    return QuestionLedger([*map(payer, llms)], prompts, counts)


def _output_tokens(entry: Consumption, recorded: Sequence[int]) -> list[int]:
    """The tokens of each CoT as it was handed out: no more than were recorded."""
    cuts = recorded if entry.tokens is None else entry.tokens
    if len(cuts) != len(recorded) or any(
        cut is not None and not 0 <= cut <= recorded[n] for n, cut in enumerate(cuts)
    ):
        raise NotRecordedError(
            f"The ledger has CoTs of {entry.llm} on question {entry.question!r} that were cut to"
            f" {list(cuts)!s:.80} tokens; {recorded!s:.80} were recorded. Give the recording that"
            " was served."
        )
    return [whole if cut is None else cut for cut, whole in zip(cuts, recorded, strict=True)]


def answers_by_id(dataset: Dataset, posted: object) -> dict[str, str | None]:
    """Answers by question id, from any form that a program may write them in.

    Args:
        dataset: from `load`.
        posted: an object from question to answer, or a list of objects with "question" (or
            "question_id", or "id") and "answer". A question is named by its id, by its text, or by
            any text that contains it, such as a prompt. An answer is text, a number, or null for no
            answer.

    Raises:
        UsageError: another shape.
        UnknownNameError: a question that the dataset does not have; the message names the nearest
            one.
        ConflictError: a question with two different answers, or a text that belongs to two
            questions.
    """
    ids = frozenset(dataset.question_ids)

    @cache
    def by_text() -> Mapping[str, list[str]]:
        found: dict[str, list[str]] = {}
        for question, entry in dataset:
            found.setdefault(entry.question.strip(), []).append(question)
        return found

    def question_id(name: str) -> str:
        if name in ids:
            return name
        texts = by_text()
        found = [name.strip()] if name.strip() in texts else [t for t in texts if t and t in name]
        # The longest: a few-shot prompt contains several.
        longest = [text for text in found if not any(text in o and text != o for o in found)]
        questions = [question for text in longest for question in texts[text]]
        if len(questions) > 1:
            raise ConflictError(
                f"{name!r:.80} holds the text of more than one question of {dataset.id}:"
                f" {', '.join(questions[:5])}. Name each by its id."
            )
        if questions:
            return questions[0]
        advice = "Name a question by its id, or by its text as it was recorded."
        near = get_close_matches(name[:400], [text[:400] for text in texts], n=1)
        nearest = next((own[0] for text, own in texts.items() if text[:400] in near), None)
        if nearest is not None:
            advice = f"The nearest text is that of {nearest!r}. {advice}"
        raise UnknownNameError.among(f"question of {dataset.id} called", name, ids, advice)

    answers: dict[str, str | None] = {}
    for name, answer in _pairs(posted):
        question = question_id(name)
        first = answers.setdefault(question, answer)
        if first != answer and dataset.answer_key(question, first) != dataset.answer_key(
            question, answer
        ):
            raise ConflictError(
                f"Question {question!r} has two answers, {first!r:.60} and {answer!r:.60}. Keep"
                " one."
            )
    return answers


def _pairs(posted: object) -> Iterator[tuple[str, str | None]]:
    if isinstance(posted, Mapping):
        posted = [{"question": name, "answer": answer} for name, answer in posted.items()]
    if not isinstance(posted, Sequence) or isinstance(posted, str | bytes):
        raise UsageError(
            "Answers are an object from question to answer, or a list of objects with 'question'"
            f" and 'answer'; {type(posted).__name__} was given."
        )
    for entry in posted:
        has_answer = isinstance(entry, Mapping) and "answer" in entry
        named = [entry[key] for key in _NAMES if key in entry] if has_answer else []
        if len(named) != 1:
            raise UsageError(
                "An answer is an object with 'question' (its id or text) and 'answer';"
                f" {entry!r:.80} was given."
            )
        [name], answer = named, entry["answer"]
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"A question is named by its id or text; {name!r:.80} was given.")
        number = isinstance(answer, int | float) and not isinstance(answer, bool)
        if number and math.isfinite(answer):
            answer = str(answer)
        if answer is not None and not isinstance(answer, str):
            raise UsageError(
                f"The answer to {name!r:.80} is {answer!r:.80}; write text, a number, or null for"
                " no answer."
            )
        yield name, answer
