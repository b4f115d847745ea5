"""Recorded questions to be looked at, the hardest first, with all that was recorded of each: as
JSON values, and as lines of styled text, in colour on a terminal, plain elsewhere.

Texts of LLMs and files are made visible here: no character of them steers a terminal.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from feval.errors import UnknownNameError, UsageError, spoken
from feval.estimators.arrays import Floats, Integers, Rows
from feval.recording import PoolRows, ProbeRows, Question, Recording, ScoreRows
from feval.recording.reader import recorded_on
from feval.replay import Dataset, load
from feval.report.tables.recordings import disagreements
from feval.report.tables.tables import Line, Table, TableColumn, columns
from feval.report.text import counted, percent, shortened, visible
from feval.values import Record, RecordLike, frozen

_BLOCK = 1 << 16
"""Questions that are counted at once, so that memory does not grow with their CoTs."""

_MOST_LISTED = 5
_MANY_PROBES = 12
_MOST_ANSWERS = 20
_WIDE_QUESTION, _SHORT_ANSWER = 60, 40
_FOLDED = 160  # characters of a tool call, or of what a tool replies


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """How some LLMs (L) did on the questions (Q) of a dataset.

    A CoT counts where it is whole; of an LLM that was recorded as trees, the steps that end a
    solution do.

    Attributes:
        known: the dataset.
        accuracy: [L, Q] share of the CoTs that are right, or their mean verdict; NaN where nothing
            says what is right, or there is no CoT.
        cots: [L, Q] how many there are.
        agreement: [Q] share of the CoTs of all these LLMs that give the most frequent answer; NaN
            without CoTs.
        order: [Q] rows, the lowest mean accuracy first; where that is equal the lowest agreement,
            and last those without gold.
        disagree: [Q] on how many CoTs gold and verdict disagree.
    """

    known: Dataset
    accuracy: Floats
    cots: Integers
    agreement: Floats
    order: Rows
    disagree: Integers


def overview(
    recording: Recording, dataset: str, llms: Sequence[str], right: str | None = None
) -> Overview:
    """Return how some LLMs did on each question of a dataset."""
    recording.prepare(dataset, llms)
    votes = recording.votes(dataset)
    known, _ = load(dataset, llms, recording, prices="none", right=right)
    accuracy = np.reshape([*known.right_shares().values()], (len(llms), len(votes)))
    starts = np.concatenate([[0], np.cumsum(votes.candidate_counts(), dtype=np.int64)])
    counts = np.zeros(starts[-1], np.int64)
    cots, disagree = np.zeros((len(llms), len(votes)), int), np.zeros(len(votes), int)
    for place, llm in enumerate(llms):
        own, steps = votes.llms[llm], recording.steps(dataset, llm)
        for start in range(0, len(votes), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(votes)))
            first, end = starts[rows.start], starts[rows.stop]
            codes = own.codes[rows]
            answered = codes >= 0
            given = (starts[rows, None] - first + codes)[answered]
            counts[first:end] += np.bincount(given, minlength=end - first)
        cots[place] = own.sizes if steps is None else steps.ends.sum(1)
        for grader in recording.graders(dataset, llm):
            disagree += disagreements(recording, dataset, llm, grader)[1].sum(1)
    with np.errstate(invalid="ignore"):
        largest = np.zeros(len(votes), np.int64)
        some = np.diff(starts) > 0
        if some.any():
            largest[some] = np.maximum.reduceat(counts, starts[:-1][some])
        agreement = largest / cots.sum(0)
        judged = ~np.isnan(accuracy)
        mean = np.where(judged, accuracy, 0.0).sum(0) / judged.sum(0)
    order = np.lexsort([np.nan_to_num(share, nan=np.inf) for share in (agreement, mean)])
    return Overview(known, accuracy, cots, agreement, order, disagree)


def overview_dict(shown: Overview, rows: Sequence[int]) -> list[Record]:
    """Return some questions (by row) as JSON values."""

    def by_llm(values: Any) -> Record:
        known = (None if value != value else value for value in values.tolist())
        return dict(zip(shown.known.llm_names, known, strict=True))

    return [
        {
            "dataset": shown.known.id,
            "id": shown.known.question_ids[row],
            "accuracy": by_llm(shown.accuracy[:, row]),
            "agreement": None if np.isnan(shown.agreement[row]) else float(shown.agreement[row]),
            "cots": by_llm(shown.cots[:, row]),
            "disagree": int(shown.disagree[row]),
        }
        for row in rows
    ]


def overview_table(shown: Overview, rows: Sequence[int]) -> Table:
    """Return a table of some questions (by row) with their texts; accuracies per LLM and agreement
    in per cent.
    """
    every = len(shown.order)
    notes = ["agreement: share of the CoTs of all these LLMs that give the most frequent answer"]
    if hidden := every - len(rows):
        option = spoken(f"--first {every} (in Python: first={every})")
        notes.insert(0, f"{hidden:,} easier questions are not shown; {option} shows all")
    names, some = (*shown.known.llm_names, "agreement"), bool(shown.disagree.any())
    return Table(
        title=f"{shown.known.id}, {counted(every, 'question')}, the hardest first",
        columns=(
            TableColumn("question"),
            *(TableColumn(f"{name} %", number=True) for name in names),
            TableColumn("CoTs", number=True, spare=True),
            *[TableColumn("disagree", number=True)] * some,
            TableColumn("text", spare=True),
        ),
        rows=tuple(
            (
                line["id"],
                *map(percent, (*line["accuracy"].values(), line["agreement"])),
                f"{sum(line['cots'].values()):,}",
                *[f"{line['disagree']:,}"] * some,
                shortened(shown.known[line["id"]].question, _WIDE_QUESTION),
            )
            for line in overview_dict(shown, rows)
        ),
        notes=tuple(notes),
    )


@frozen
class LLMOnQuestion:
    """What one LLM did on a question.

    Attributes:
        llm: its name.
        pool: its CoTs, or the steps of its tree.
        codes: per CoT, its answer among the question's candidates; -1 for no answer.
        scores: scorer -> a score per CoT; `None` where there is none.
        right: how right each CoT is, where the parties of the golds do not say it; else empty.
        probes: its probes; `None` where there are none.
    """

    llm: str
    pool: PoolRows
    codes: Sequence[int] = ()
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    probes: ProbeRows | None = None
    right: Sequence[float] = ()

    @property
    def is_tree(self) -> bool:
        """Whether its rows are the steps of a tree."""
        return self.pool.parents is not None

    @property
    def turns(self) -> int:
        """How many of its rows reply to a CoT."""
        return sum(sent is not None for sent in self.pool.messages or ())

    def counts(self) -> list[tuple[int, int]]:
        """(answer's code, how many CoTs gave it), the most frequent first; no answer, -1, is
        last.
        """
        ends = self.pool.ends
        counts = Counter(code for i, code in enumerate(self.codes) if ends is None or ends[i])
        return sorted(counts.items(), key=lambda item: (item[0] < 0, -item[1], item[0]))


@frozen
class RecordedQuestion:
    """A question with what was recorded of it.

    Attributes:
        dataset: id of the dataset.
        question: text, gold and choices.
        candidates: the distinct answers, by code.
        gold: code of the answer that is right, one that no CoT has where there are several, or
            none; -1 where nothing says so.
        llms: what each LLM did.
    """

    dataset: str
    question: Question
    candidates: Sequence[str]
    gold: int
    llms: Sequence[LLMOnQuestion]

    def answer(self, code: int) -> str | None:
        """Return the answer that has a code."""
        return None if code < 0 else self.candidates[code]

    def right(
        self, code: int, on: LLMOnQuestion | None = None, place: int = 0
    ) -> bool | float | None:
        """Return how right an answer is, or the CoT at a place of an LLM: a mean where its CoTs
        differ; `None` where nothing says so.
        """
        if self.gold < 0:
            return None
        given = [
            right
            for each in self.llms
            for own, right in zip(each.codes, each.right, strict=False)
            if own == code
        ]
        if not given:
            return code == self.gold
        right = sum(given) / len(given) if on is None else on.right[place]
        return bool(right) if right in (0, 1) else right


def readable(text: str | None, most: int = _FOLDED) -> str | None:
    """Return the text of a CoT; of a conversation its messages, see `by_role`."""
    try:
        return by_role(json.loads(text), most) if text and text.startswith("[{") else text
    except (ValueError, TypeError, LookupError, AttributeError):
        return text  # some other JSON


def by_role(messages: Iterable[RecordLike], most: int = _FOLDED) -> str:
    """Return messages behind their roles; of a tool call, and of what a tool replies, so many
    characters, and how many there are.
    """

    def folded(words: str) -> str:
        cut = f"{shortened(words, most)} ({len(words):,} characters)"
        return words if len(words) <= most else cut

    pieces = []
    for message in messages:
        words, role = message.get("content") or "", message["role"]
        if not isinstance(words, str):  # parts, such as texts and images
            words = "\n".join(part.get("text") or json.dumps(part) for part in words)
        calls = (f"[calls {folded(json.dumps(call))}]" for call in message.get("tool_calls") or ())
        words = folded(words) if role == "tool" else words
        pieces.append("\n".join([f"── {role} ──", *filter(None, [words]), *calls]))
    return "\n\n".join(pieces)


def recorded_questions(
    recording: Recording, dataset: str, llms: Sequence[str], rows: range, right: str | None = None
) -> Iterator[RecordedQuestion]:
    """Yield some questions of a dataset (by their rows) with all that some LLMs did; texts are read
    block by block.
    """
    recording.prepare(dataset, llms)
    votes = recording.votes(dataset)
    known, _ = load(dataset, llms, recording, prices="none", right=right)
    rightness = known.rightness
    sources = [(llm, recorded_on(recording, dataset, llm, rows)) for llm in llms]
    for row, question in zip(rows, recording.scan_questions(dataset, rows), strict=True):
        on_each = []
        for llm, source in sources:
            own, scored, probes = next(source)
            pool = own or PoolRows(question.id, [], [], [], [], [])
            size = len(pool.answers)
            codes = votes.llms[llm].codes[row, :size].tolist()
            scores = dict(_per_cot(name, each, size) for name, each in scored.items() if each)
            rights = [] if rightness is None else rightness.of_llm[llm][row, :size].tolist()
            on_each.append(LLMOnQuestion(llm, pool, codes, scores, probes, rights))
        gold = int(known.gold[row])
        yield RecordedQuestion(dataset, question, votes.candidates(row), gold, on_each)


def _per_cot(scorer: str, rows: ScoreRows, size: int) -> tuple[str, list[float | None]]:
    """Name and scores of a scorer; the lowest step scores where it gave no others."""
    own: Sequence[float | None] = rows.scores
    if rows.step_scores is not None and not any(score is not None for score in own):
        scorer = f"{scorer}, lowest step"
        own = [min(steps) if steps else None for steps in rows.step_scores]
    scores: list[float | None] = [None] * size
    for index, score in zip(rows.sample_indices, own, strict=True):
        scores[index] = score
    return scorer, scores


def find_question(recording: Recording, name: str, dataset: str | None = None) -> tuple[str, int]:
    """Return dataset and row of a question: of that id, else the only one whose id begins so, or
    whose text has the name in it.

    Upper and lower case are equal, and so is all white space.

    Raises:
        NotRecordedError: no such dataset.
        UnknownNameError: no such question.
        UsageError: several questions are meant.
    """
    if dataset is not None:
        recording.require(dataset)
    datasets = recording.dataset_ids() if dataset is None else [dataset]
    ids = []
    for each in datasets:
        recording.prepare(each, ())
        ids += [(each, row, own) for row, own in enumerate(recording.votes(each).question_ids)]
    places = [(each, row) for each, row, own in ids if own == name]
    if len(places) > 1:
        found = ", ".join(each for each, _ in places)
        raise UsageError(
            f"{len(places)} datasets have a question {name!r}; choose one: --dataset ID"
            f" (in Python: dataset=ID). They are {found}."
        )
    if places:
        return places[0]
    similar = [
        (each, row, question)
        for each in datasets
        for row, question in enumerate(recording.scan_questions(each))
        if _folded(question.id).startswith(_folded(name)) or _folded(name) in _folded(question.text)
    ]
    if not similar:
        where = f"question of {', '.join(datasets)} in {recording.path} with the id, or the words,"
        raise UnknownNameError.among(where, name, (own for *_, own in ids))
    if len(similar) > 1:
        listed = "; ".join(
            f"{question.id} ({shortened(question.text, 60)})"
            for _, _, question in similar[:_MOST_LISTED]
        )
        more = f"; and {len(similar) - _MOST_LISTED:,} more" if len(similar) > _MOST_LISTED else ""
        raise UsageError(
            f"{counted(len(similar), 'question')} have {name!r:.80} in the text or at the start of"
            f" the id; give one by its id, or more of its text: {listed}{more}."
        )
    return similar[0][:2]


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def answer_span(text: str, *answers: str | None) -> tuple[int, int] | None:
    """Return where a text says the shortest of some answers that it has: the last place where it
    stands as a word of its own.
    """
    words = {(answer or "").strip().strip(".,;:") for answer in answers} - {""}
    for word in sorted(words, key=lambda word: (len(word), word)):
        own = rf"(?<!\w)(?<!\d[.,]){re.escape(word)}(?!\w|[.,]\d)"
        if found := [*re.finditer(own, text)]:
            return found[-1].span()
    return None


def question_dict(asked: RecordedQuestion, samples: Collection[int] | None = None) -> Record:
    """Return a question with its CoTs, or some of them by sample index, as JSON values."""
    llms = [_llm_dict(asked, on, samples) for on in asked.llms]
    return {"dataset": asked.dataset, **question_values(asked.question), "llms": llms}


def question_values(question: Question) -> Record:
    """Return what a dataset says of a question, as JSON values."""
    return {
        "id": question.id,
        "question": question.text,
        "choices": [{"label": label, "text": text} for label, text in question.choices],
        "answer": question.answer,
        "answer_key": question.answer_key,
        "features": dict(question.features),
    }


def _llm_dict(
    asked: RecordedQuestion, on: LLMOnQuestion, samples: Collection[int] | None
) -> Record:
    return {
        "llm": on.llm,
        "counts": [
            {"answer": asked.answer(code), "count": count, "right": asked.right(code)}
            for code, count in on.counts()
        ],
        "samples": [
            _sample_dict(on, place, right=asked.right(code, on, place))
            for place, code in enumerate(on.codes)
            if samples is None or place in samples
        ],
    }


def _sample_dict(on: LLMOnQuestion, place: int, *, right: bool | float | None) -> Record:
    pool, tokens = on.pool, on.pool.output_tokens[place]
    sample: Record = {
        "sample": place,
        "answer": pool.answers[place],
        "right": right,
        # those that are not known are 0
        "output_tokens": None if tokens == 0 and pool.texts[place] != "" else tokens,
        "finish_reason": pool.finish_reasons[place],
        "text": pool.texts[place],
        "reasoning": pool.reasoning and pool.reasoning[place],
        "scores": {name: own[place] for name, own in on.scores.items()},
    }
    if on.probes is not None:
        rows = zip(on.probes.sample_indices, on.probes.offsets, on.probes.answers, strict=True)
        sample["probes"] = [
            {"tokens": tokens, "answer": answer} for index, tokens, answer in rows if index == place
        ]
    if pool.parents is not None and pool.ends is not None:
        sample |= {"parent": pool.parents[place], "ends": pool.ends[place]}
        if not pool.ends[place]:
            sample["right"] = None
    if pool.messages is not None and (sent := pool.messages[place]) is not None:
        sample["messages"] = json.loads(sent)
    return sample


RIGHT, WRONG, PLAIN, FAINT, HEAD = "green", "red", "", "dim", "bold"
_SAID = "black on yellow"


def question_pieces(
    asked: RecordedQuestion, *, samples: Collection[int] | None = None, reasoning: bool = False
) -> list[Line | Table]:
    """Return what to show of a question: text, gold, counts of answers, and the CoTs.

    Args:
        asked: the question.
        samples: the CoTs to show, by sample index; of a tree, steps with those before them. `None`
            for all.
        reasoning: whether thoughts are shown, or only how long they are.
    """
    question, shown = asked.question, question_dict(asked)["llms"]
    gold = ("none", FAINT) if question.answer is None else (visible(question.answer), RIGHT)
    pieces: list[Line | Table] = [
        ((f"{visible(asked.dataset)}  {visible(question.id)}", HEAD),),
        (),
        *_lines(question.text),
        *(
            ((f"  {visible(label)}  ", HEAD), (visible(text), PLAIN))
            for label, text in question.choices
        ),
        (("gold  ", HEAD), gold),
        *(((f"{visible(name)}  ", HEAD), (visible(own), PLAIN)) for name, own in question.features),
        (),
        _counts(asked, shown),
    ]
    for on, own in zip(asked.llms, shown, strict=True):
        llm = visible(on.llm)
        every = [
            # the answer that stands for all equal ones
            sample | {"answer": asked.answer(code)}
            for sample, code in zip(own["samples"], on.codes, strict=True)
        ]
        if not every:
            pieces += [(), ((f"{llm}: nothing was recorded", FAINT),)]
        elif on.is_tree:
            cots, steps = counted(len(every) - on.turns, "CoT"), counted(len(every), "step")
            turns = f"{cots} and {counted(on.turns, 'turn')}"
            pieces += [(), ((f"{llm}, {turns if on.turns else f'tree of {steps}'}", HEAD),)]
            pieces += _tree(every, samples, has_turns=on.turns > 0)
        else:
            for sample in every:
                if samples is None or sample["sample"] in samples:
                    place = sample["sample"]
                    own_answers = on.pool.raw_answers[place], on.pool.answers[place]
                    pieces += [(), *_cot(llm, sample, own_answers, reasoning=reasoning)]
    return pieces


def _counts(asked: RecordedQuestion, shown: Sequence[RecordLike]) -> Table:
    """How many CoTs of each LLM gave each answer."""
    counts = [{each["answer"]: each for each in own["counts"]} for own in shown]
    codes: dict[str | None, int] = {answer: code for code, answer in enumerate(asked.candidates)}
    total = Counter[str | None]()
    known: dict[str | None, Any] = {}
    for own in counts:
        total.update({answer: each["count"] for answer, each in own.items()})
        known |= own
    answers = sorted(
        total, key=lambda answer: (answer is None, -total[answer], codes.get(answer, -1))
    )
    rare = [
        answer
        for answer in answers[_MOST_ANSWERS:]
        if answer is not None and not known[answer]["right"]
    ]
    return Table(
        title="",
        columns=columns("answer", *(f"#{on.llm}" for on in asked.llms)),
        rows=tuple(
            (
                _verdict(known[answer])[0],
                *(f"{own[answer]['count']:,}" if answer in own else "" for own in counts),
            )
            for answer in answers
            if answer not in rare
        ),
        notes=(f"and {counted(len(rare), 'rarer answer')}",) if rare else (),
    )


def _verdict(given: RecordLike) -> tuple[str, str]:
    """An answer behind its mark, and their style."""
    answer, right = given["answer"], given["right"]
    if answer is None and not right:
        return "– no answer", FAINT
    words = "no answer" if answer is None else shortened(answer, _SHORT_ANSWER)
    if right is None:
        return f"· {words}", PLAIN
    if 0 < right < 1:
        return f"◐ {words}, {right:.2g} right", PLAIN
    return (f"✓ {words}", RIGHT) if right else (f"✗ {words}", WRONG)


def _about(sample: RecordLike, *more: str) -> tuple[str, str]:
    """Tokens and scores of a CoT or step."""
    scores = (
        f"{name} {score:.4g}" for name, score in sample["scores"].items() if score is not None
    )
    tokens = sample["output_tokens"]
    pieces = (*([] if tokens is None else [f"{tokens:,} tokens"]), *more, *scores)
    return f"  {', '.join(map(visible, pieces))}", FAINT


def _cot(
    llm: str, sample: RecordLike, answers: Sequence[str | None], *, reasoning: bool
) -> Iterator[Line]:
    finish, thoughts, text = sample["finish_reason"], sample["reasoning"], sample["text"]
    about = _about(sample, *([] if finish == "unknown" else [finish]))
    yield (f"{llm}, sample {sample['sample']}  ", HEAD), _verdict(sample), about
    # the answers of its probes, where they change
    changes = [
        next(same) for _, same in groupby(sample.get("probes", ()), lambda probe: probe["answer"])
    ]
    if changes:
        told = [
            f"from {probe['tokens']:,}: {shortened(probe['answer'] or 'no answer', 20)}"
            for probe in changes[:_MANY_PROBES]
        ]
        if len(changes) > _MANY_PROBES:
            told.append(f"and {len(changes) - _MANY_PROBES:,} more changes")
        yield ((f"probed after tokens: {', '.join(told)}", FAINT),)
    if thoughts and reasoning:
        yield from _lines(thoughts, FAINT)
    elif thoughts:
        length = counted(len(thoughts), "character")
        yield ((f"[reasoning of {length}; `reasoning` shows it]", FAINT),)
    if text is None:
        yield (("no text was recorded", FAINT),)
    else:
        yield from _highlighted(readable(text) or "", *answers)


def _highlighted(text: str, *answers: str | None) -> Iterator[Line]:
    """The lines of a text; the answer in it stands out."""
    start, end = answer_span(text, *answers) or (len(text), len(text))
    line: Line = ()
    for piece, style in ((text[:start], PLAIN), (text[start:end], _SAID), (text[end:], PLAIN)):
        first, *rest = _lines(piece, style)
        line += first
        for more in rest:
            yield line
            line = more
    yield line


def _lines(text: str, style: str = PLAIN, before: str = "") -> list[Line]:
    """The lines of a text, safe to print."""
    lines = (visible(line.replace("\t", "    ")) for line in re.split("\r?\n", text))
    return [((before + line, style),) for line in lines]


def _tree(
    steps: Sequence[RecordLike], samples: Collection[int] | None, *, has_turns: bool
) -> Iterator[Line]:
    """The steps of a tree, each behind the one it goes on from and indented."""
    children: dict[int | None, list[int]] = {}
    for place, step in enumerate(steps):
        children.setdefault(step["parent"], []).append(place)
    kept = set[int]()
    for each in range(len(steps)) if samples is None else samples:
        at: int | None = each if each < len(steps) else None
        while at is not None and at not in kept:  # a step and those before it
            kept.add(at)
            at = steps[at]["parent"]
    waiting = [(place, 0) for place in reversed(children.get(None, ()))]
    while waiting:
        place, level = waiting.pop()
        waiting += [(child, level + 1) for child in reversed(children.get(place, ()))]
        if place not in kept:
            continue
        step, indent = steps[place], "  " * level
        verdict = _verdict(step)
        answer = ((f"  {verdict[0]}", verdict[1]),) if step["ends"] else ()
        noun = "turn" if "messages" in step else "CoT" if has_turns else "step"
        yield (f"{indent}{noun} {place}", HEAD), *answer, _about(step)
        if "messages" in step:
            yield from _lines(by_role(step["messages"]), FAINT, f"{indent}  > ")
        yield from _lines(readable(step["text"]) or "", PLAIN, f"{indent}  ")
