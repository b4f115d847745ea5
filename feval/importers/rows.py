"""Rows become questions and pools: rows must agree about their question, and each LLM has its own
CoTs.

Questions and rows lie in temporary files where they are many; CoTs are put together, question by
question, when recorded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

from feval.cards.tokens import NONE, Usage
from feval.errors import ConflictError, SourceError
from feval.importers.columns import USAGE, RowReader, examples, names_of, sentence_start, turn_names
from feval.importers.reading import Reader
from feval.importers.source import (
    ImportRequest,
    Prompt,
    Row,
    SourceContent,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
)
from feval.importers.stored_rows import StoredQuestions, StoredRows
from feval.recording.content import VERDICT, LLMInfo, ScoreRows
from feval.recording.parts import EXTRA_COLUMNS
from feval.values import without_none

_COT_COLUMNS = frozenset(column.name for column in names_of("cot").values())
_OF_LLM = ("temperature", "max_tokens", "decoding", "probe_cue", "step_stop", "step_policy")
_AS_THEY_ARE = ("reasoning", "token_logprobs", "token_confidences", "turn_prompt_tokens")
_COUNTED = ("answer", "tokens", "verdict", "node", "turns", "turn_messages")
_GRADED = {"verdict", "grader"}
_SHARED = (
    ("text", "two texts"),
    ("gold", "two gold answers"),
    ("choices", "two sets of choices"),
    ("features", "two sets of features"),
)
_PROBE = ("offset", "answer", "text", "tokens", "confidence")


_CotRow = tuple[str, Row]
"""The place of a row, and its CoT."""


@dataclass(slots=True)
class _LLM:
    """What the rows of one LLM say of it, and how many of its CoTs have what.

    `having` counts CoTs by what they have, and probes with an answer; `unanswered_probe` is the
    place of one that says nothing of it.
    """

    number: int
    decoding: Row = field(default_factory=dict)
    unanswered_probe: str = ""
    request: tuple[int, Prompt | None, int | None] = (-1, None, None)
    having: Counter[str] = field(default_factory=Counter)


class Rows:
    """Collects the questions of one source, and the CoTs by LLM (`None`: not named) and question.

    `null_stays`: answers are no answer where all of an LLM are null, rather than to be read from
    the texts.
    """

    def __init__(self, source: str, request: ImportRequest, *, null_stays: bool = False) -> None:
        self._questions = StoredQuestions(request.scratch)
        self._numbers: dict[str, int] = {}
        self.llms: dict[str | None, _LLM] = {}
        self.stored = StoredRows(request.scratch)
        self._source, self._request, self._null_stays = source, request, null_stays
        self._reader = RowReader(names_of("question", "request", "llm", "cot"))
        self._probes, self._turns = RowReader(names_of("probe")), RowReader(turn_names())
        self._others: Row = {}
        self._noted = set[str]()
        self._gaps = self._repeated = 0

    def add(self, row: Row, where: str, *, line: str | None = None, cot: bool = True) -> None:
        """Add a row of any members: a CoT with its question, request and LLM, or these alone."""
        values = self.recognised(row, self._reader, where)
        if values.get("id") is None:
            raise SourceError(
                f"{sentence_start(where)} has neither 'samples' nor an 'id'; a CoT names its"
                " question, in 'id' or 'question_id'."
            )
        self.add_row(self.add_question(values, where), values, where, line=line, cot=cot)

    def recognised(self, row: Row, reader: RowReader, where: str) -> Row:
        """Read the known columns of a row; note unknown members."""
        values, others, without_unit = reader.read(row, where)
        if not others.keys() <= self._others.keys():
            self._others = {**self._others, **others, **self._others}
        for name in without_unit:
            self._noted.add(f"{name!r} names no unit; it was read as seconds.")
        if not USAGE.keys().isdisjoint(values):
            self._settle_counts(values, where)
        return values

    def _settle_counts(self, values: Row, where: str) -> None:
        """Make the token counts of a row those of a recording, by `Usage.from_reply`."""
        prompt = "turn_prompt_tokens" if "turn_prompt_tokens" in values else "prompt_tokens"
        stated = {USAGE[name]: values.pop(name) for name in USAGE if name in values}
        usage = Usage.from_reply(values.get(prompt), values.get("tokens"), **stated)
        counts = {
            "reasoning_tokens": usage.reasoning,
            "tokens": usage.output,
            "cached_tokens": usage.cached,
            prompt: usage.prompt,
        }
        counts = without_none(counts)
        if usage.problem is not None:
            shown = ", ".join(f"{name} {count:,}" for name, count in counts.items())
            raise SourceError(
                f"{sentence_start(where)} has {usage.problem} ({shown}). 'tokens' count the"
                " reasoning, too, and 'prompt_tokens' what came from a cache: correct the counts,"
                " or leave the columns out (--map ignore=COLUMN)."
            )
        values |= counts
        for added in usage.added:
            self._noted.add(
                f"The source counts {added} beside the others, to which they were added."
            )

    def add_question(self, values: Row, where: str) -> int:
        """Add the question of a row, which must agree with earlier rows; return its number, from
        0.
        """
        name = str(values["id"])
        pairs = (values.get(each) or () for each in ("choices", "features"))
        question = SourceQuestion(name, values.get("question"), values.get("gold"), *pairs)
        number = self._numbers.setdefault(name, len(self._questions))
        if number == len(self._questions):
            self._questions.append(question)
        elif question != SourceQuestion(name, None) and question != self._questions[number]:
            known = self._questions[number]
            agreed = {
                part: _agreed(getattr(known, part), getattr(question, part), what, name, where)
                for part, what in _SHARED
            }
            if (changed := replace(known, **agreed)) != known:
                self._questions[number] = changed
        return number

    def add_row(
        self, question: int, values: Row, where: str, *, line: str | None = None, cot: bool = True
    ) -> None:
        """Add LLM, request and CoT of a row; `line` names the line whose first row of this LLM it
        is, if a line has several.
        """
        llm = self._llm_named(values.get("llm"), values, where)
        prompt, prompt_tokens = values.get("prompt"), values.get("prompt_tokens")
        if llm.request == (question, prompt, prompt_tokens):  # the same as in the row before
            prompt = prompt_tokens = None
        else:
            llm.request = question, prompt, prompt_tokens
        request = (None, None) if prompt is None else (prompt.messages, prompt.text)
        content = self._counted(llm, values, where) if cot else None
        self.stored.add(llm.number, question, (where, line, *request, prompt_tokens, content))

    def _llm_named(self, name: str | None, values: Row, where: str) -> _LLM:
        """Return an LLM; raise where a row states another decoding of it than rows before."""
        llm = self.llms.get(name) or self.llms.setdefault(name, _LLM(len(self.llms)))
        decoding = llm.decoding
        for key in _OF_LLM:
            value = values.get(key)
            if value is not None and decoding.setdefault(key, value) != value:
                example = value if key in {"temperature", "max_tokens"} else 2
                raise ConflictError(
                    f"{sentence_start(where)} has {key} {value!r:.60}, and rows before it have"
                    f" {decoding[key]!r:.60} for"
                    f" {'the same LLM' if name is None else f'the LLM {name!r}'}. CoTs of two"
                    " decodings are not one pool: give each decoding an LLM name of its own in"
                    f" 'llm', such as '{name or 'NAME'}@{key[0]}={example}'."
                )
        return llm

    def _counted(self, llm: _LLM, values: Row, where: str) -> Row:
        """Return the CoT of a row, counted."""
        cot = {
            name: value
            for name, value in values.items()
            if name in _COT_COLUMNS and (value is not None or name == "answer")
        }
        if "probes" in cot:
            cot["probes"] = self._read_probes(llm, cot["probes"], where)
        if "node" in cot:
            cot = {"ends": not {"answer", "turn_messages"}.isdisjoint(cot), "answer": None, **cot}
        if "turns" in cot:
            cot["turns"] = [
                self._turn(llm, turn, _turn_place(i, where)) for i, turn in enumerate(cot["turns"])
            ]
        having = llm.having
        having["cots"] += 1
        having["graded"] += not _GRADED.isdisjoint(values)
        for name in _COUNTED:
            if name in cot:
                having[name] += 1
        # of a conversation the LLM wrote only some, so that its text has no tokens to count
        having["words"] += "text" in cot and not cot["text"].startswith('[{"')
        if cot.get("answer") is not None:
            having["answered"] += 1
        elif "text" in cot:
            having["to be read"] += 1
        return cot

    def _turn(self, llm: _LLM, turn: Row, where: str) -> Row:
        """Return a turn of a CoT, counted as a CoT."""
        values = self.recognised(turn, self._turns, where)
        if values.get("turn_messages") is None:
            raise SourceError(
                f"{sentence_start(where)} has no 'messages'; give what was sent behind the"
                " conversation, as a text or a list of messages."
            )
        return self._counted(llm, values, where)

    def _read_probes(self, llm: _LLM, probes: Sequence[Row], where: str) -> list[list[Any]]:
        """Return the probes of a CoT by offset; each has an offset of its own, and an answer or a
        text.
        """
        read: dict[int, list[Any]] = {}
        for position, probe in enumerate(probes):
            here = f"probe {position} of {where}"
            values = self.recognised(probe, self._probes, here)
            offset = values.get("offset")
            if offset is None:
                raise SourceError(
                    f"{sentence_start(here)} has no 'offset'; give the number of output tokens of"
                    " the CoT before the probe."
                )
            if "answer" not in values and values.get("text") is None:
                raise SourceError(
                    f"{sentence_start(here)} has neither 'answer' nor 'text'; give one of them (an"
                    " answer of null says that there is no answer)."
                )
            if offset in read:
                raise ConflictError(
                    f"{sentence_start(where)} has two probes at the offset {offset:,}; remove one"
                    " of them."
                )
            read[offset] = [values.get(name) for name in _PROBE]
            llm.having["answered probes"] += values.get("answer") is not None
            if "answer" not in values:
                llm.unanswered_probe = llm.unanswered_probe or here
        return [read[offset] for offset in sorted(read)]

    def imported(
        self, reader: Reader, names: tuple[str, ...] | None = None, notes: Iterable[str] = ()
    ) -> SourceContent:
        """Return the whole source; raise where only some rows name an LLM or have an answer or a
        token count.

        The notes begin with those given and end with those of the source's reader. `names` takes
        the place of those in the request.
        """
        if names is not None:
            self._request = replace(self._request, llms=names)
        self._numbers.clear()
        chosen = self._chosen()
        unnamed = _LLM(-1)
        llms = [self._llm(self.llms.get(name, unnamed), info) for name, info in chosen]
        notes = [*notes, *self._notes(chosen)]
        return SourceContent(
            self._questions, self._all(llms, notes, reader), notes, llm_count=len(llms)
        )

    def _all(
        self, llms: Sequence[SourceLLM], notes: list[str], reader: Reader
    ) -> Iterator[SourceLLM]:
        """Yield the LLMs; what is known of their pools once they were read is noted then."""
        yield from llms
        if self._gaps:
            notes.append(
                f"The sample numbers of {self._gaps} pools have gaps; the samples were renumbered"
                " in their order."
            )
        notes += counted_notes(
            (
                "CoTs that are alike in all to one of another file (leave files that overlap out)",
                self._repeated,
            )
        )
        notes += reader.notes()

    def _chosen(self) -> list[tuple[str | None, LLMInfo]]:
        """Return the LLMs to import: the name in the rows, and name and decoding in the
        recording.
        """
        infos = []
        for name, llm in self.llms.items():
            stated = llm.decoding
            steps = {
                key: stated[f"step_{key}"] for key in ("stop", "policy") if f"step_{key}" in stated
            }
            decoding = stated.get("decoding", {}) | ({"steps": steps} if steps else {})
            limits = stated.get("temperature"), stated.get("max_tokens")
            infos.append(LLMInfo(name or "", *limits, decoding))
        if list(self.llms) == [None] or not self.llms:
            return [(None, self._request.llm_of(self._source, infos[0] if infos else LLMInfo("")))]
        if None in self.llms:
            _, [(without, *_), *_] = next(self.stored.questions(self.llms[None].number))
            raise SourceError(
                f"Some lines of {self._source} name an LLM and others do not ({without}); name it"
                " on each line, or on none."
            )
        return list(self._request.chosen_llms(self._source, infos))

    def _llm(self, llm: _LLM, info: LLMInfo) -> SourceLLM:
        if llm.having["node"] and llm.having["turns"]:
            raise SourceError(
                f"{self._source} has both CoTs with 'turns' and nodes of trees for one LLM; give"
                " each an LLM name of its own, or the turns as nodes with 'turn_messages'."
            )
        self._all_or_none(llm, "node")
        stored = self._all_or_none(
            llm, "answer", " (an answer of null says that there is no answer)"
        )
        if llm.having["verdict"] and not llm.having["answered"] and not self._has_golds:
            stored = True  # what no gold is compared with need not be read
        # as a table of several LLMs has it, of which only some have answers
        elif stored and not self._null_stays and llm.having["to be read"] == llm.having["cots"]:
            self._noted.add(
                f"All answers of {info.name} are null, so they were read from the texts."
            )
            stored = False
        if llm.having["graded"] and not llm.having["verdict"]:
            self._noted.add(f"No CoT of {info.name} has a verdict, though a column is for them.")
        counted = self._all_or_none(llm, "tokens")
        probes_answered = llm.having["answered probes"] > 0
        if probes_answered and llm.unanswered_probe:
            raise SourceError(
                f"Some probes in {self._source} have an 'answer', and {llm.unanswered_probe} has"
                " none; give it to all probes of an LLM or to none (an answer of null says that"
                " there is no answer)."
            )
        return SourceLLM(
            info,
            self._pools(llm, stored=stored, counted=counted),
            counted,
            llm.decoding.get("probe_cue"),
            probes_answered,
            None if counted or llm.having["words"] else NONE,
        )

    @cached_property
    def _has_golds(self) -> bool:
        """Whether some question has a gold; asked when all rows are in."""
        given = self._request.questions or ()
        return any(question.gold is not None for question in (*given, *self._questions))

    def _all_or_none(self, llm: _LLM, name: str, hint: str = "") -> bool:
        """Return whether the CoTs have a value; raise where only some have."""
        count, cots = llm.having[name], llm.having["cots"]
        if 0 < count < cots:
            lacking = next(
                place
                for *_, rows in self._by_question(llm)
                for place, cot in rows
                if name not in cot
            )
            raise SourceError(
                f"{count} of {cots} samples in {self._source} have {name!r}, and {lacking} has"
                f" none; give it to all samples of an LLM or to none{hint}."
            )
        return count > 0

    def _pools(self, llm: _LLM, *, stored: bool, counted: bool) -> Iterator[SourcePool]:
        """Yield the pool of each question; an empty one where the LLM was not asked."""
        done, empty = 0, SourcePool([], [], [])
        for number, prompt, prompt_tokens, rows in self._by_question(llm):
            yield from repeat(empty, number - done)
            question, cots = self._questions[number].id, [cot for _, cot in rows]
            others: Row = {"prompt": prompt, "prompt_tokens": prompt_tokens}
            others["grader"] = _grader(rows, question)
            if llm.having["node"] or llm.having["turn_messages"]:
                cots, others["parents"], others["ends"] = _ordered_tree(cots, question)
            if llm.having["turn_messages"]:
                others["messages"] = [cot.get("turn_messages") for cot in cots]
            yield _pool(question, cots, others, stored=stored, counted=counted)
            done = number + 1
        yield from repeat(empty, len(self._questions) - done)

    def _by_question(
        self, llm: _LLM
    ) -> Iterator[tuple[int, Prompt | None, int | None, list[_CotRow]]]:
        """Yield number, request, prompt tokens and ordered CoTs of each question that an LLM was
        asked.
        """
        for number, rows in self.stored.questions(llm.number):
            question, prompt, prompt_tokens, cots = self._questions[number].id, None, None, []
            lines = [line for _, line, *_ in rows if line is not None]
            if len(lines) > 1:
                raise ConflictError(
                    f"{sentence_start(lines[1])} has the question id {question!r} a second time,"
                    f" after {lines[0]}. Give each question its own id, or write one line per CoT."
                )
            for place, _, messages, text, tokens, cot in rows:
                if messages is not None:
                    prompt = _agreed(prompt, Prompt(messages, text), "two prompts", question, place)
                prompt_tokens = _agreed(
                    prompt_tokens, tokens, "two prompt token counts", question, place
                )
                if cot is not None:
                    cots.append((place, cot))
            ordered, first = self._ordered(cots, question), dict[str, str]()
            files = [place.rpartition(" of ")[2] for place, _ in cots]
            for (place, cot), file in zip(cots, files, strict=True) if len({*files}) > 1 else ():
                alike = repr(cot | {"sample": None}) if cot.get("text") else place
                self._repeated += first.setdefault(alike, file) != file
            if llm.having["turns"] and llm.having["turn_messages"]:
                ordered = [node for row in ordered for node in _chained(*row)]
            yield number, prompt, prompt_tokens, ordered

    def _ordered(self, rows: list[_CotRow], question: str) -> list[_CotRow]:
        """Return the CoTs in the order of their numbers, or of the rows where none is numbered."""
        names: list[Any] = [cot.get("sample") for _, cot in rows]
        kinds = {type(name) for name in names}
        if kinds <= {type(None)}:
            return rows
        if len(kinds) > 1:
            odd = next(i for i, name in enumerate(names) if type(name) is not type(names[0]))
            raise SourceError(
                f"{sentence_start(rows[odd][0])} and {rows[0][0]} number the CoTs of question"
                f" {question!r} in two ways. Give 'sample' as a whole number from 0 on each line,"
                " or on none."
            )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            places = [place for place, cot in rows if cot["sample"] == twice]
            raise ConflictError(
                f"Question {question!r} has a sample number twice: {twice!r} on {places[0]} and on"
                f" {places[1]}. Remove one of them, or name their LLMs in 'llm' if they are of two."
            )
        if kinds == {str}:
            return rows
        self._gaps += max(names) - min(names) != len(names) - 1
        return sorted(rows, key=lambda row: row[1]["sample"])

    def _notes(self, chosen: Sequence[tuple[str | None, LLMInfo]]) -> list[str]:
        notes = sorted(self._noted)
        if self._others:
            notes.insert(0, f"Unknown members, which were not imported: {examples(self._others)}.")
        left_out = ", ".join(name for name in self.llms if name and name not in dict(chosen))
        if left_out:
            notes.append(
                f"The source also has CoTs of {left_out:.400}, which were left out, as requested."
            )
        return notes + [
            f"The source calls the LLM {name!r}; it was recorded as {info.name!r}, as requested."
            for name, info in chosen
            if name and name != info.name
        ]


def collected(
    source: Path,
    request: ImportRequest,
    questions: Iterable[tuple[Row, Sequence[Row], str]],
    reader: Reader,
    notes: Iterable[str],
) -> SourceContent:
    """Return a source whose questions are given with their CoTs: columns that these share, those of
    each, and the question's place. Answers that are null are no answers.
    """
    rows = Rows(source.name, request, null_stays=True)
    for about, cots, where in questions:
        for sample, cot in enumerate(cots):
            line = None if sample else where
            rows.add({**about, **cot}, f"sample {sample} of {where}", line=line)
        if not cots:
            rows.add(about, where, line=where, cot=False)
    return rows.imported(reader, notes=notes)


def _agreed(known: Any, value: Any, what: str, name: str, where: str) -> Any:
    missing = (None, ())
    if known not in missing and value not in missing and known != value:
        before, here = (
            repr(each.text if isinstance(each, Prompt) else each) for each in (known, value)
        )
        raise ConflictError(
            f"Question {name!r} has {what}: {before:.80} before, and {here:.80} on {where}. "
            "Remove one of them or give each its own id."
        )
    return value if known in missing else known


def _pool(
    question: str, cots: Sequence[Row], others: Row, *, stored: bool, counted: bool
) -> SourcePool:
    names = set[str]().union(*cots)

    def column(name: str) -> list[Any] | None:
        """Return the values of a column; `None` where no CoT has one."""
        return [cot.get(name) for cot in cots] if name in names else None

    return SourcePool(
        texts=[cot.get("text") for cot in cots],
        answers=[cot.get("answer") for cot in cots] if stored else None,
        tokens=[cot["tokens"] for cot in cots] if counted else None,
        finish_reasons=[cot.get("finish_reason", "unknown") for cot in cots],
        extra={name: values for name in EXTRA_COLUMNS if (values := column(name)) is not None},
        sequence_logprobs=[
            cot["sequence_logprob"]
            if "sequence_logprob" in cot
            else math.fsum(cot["token_logprobs"])  # of the whole CoT: the sum of its tokens'
            if "token_logprobs" in cot
            else None
            for cot in cots
        ]
        if names & {"sequence_logprob", "token_logprobs"}
        else None,
        scores=_scores(question, cots) if names & {"score", "step_scores"} else {},
        graded=_scores(question, [{"score": _by_grader(cot)} for cot in cots])
        if "verdict" in names
        else {},
        probes=[
            [sample, *probe] for sample, cot in enumerate(cots) for probe in cot.get("probes", ())
        ],
        **others | {name: column(name) for name in _AS_THEY_ARE},
    )


def _scores(question: str, cots: Sequence[Row]) -> dict[str, ScoreRows]:
    """Return the scores of each scorer."""
    scorers = dict.fromkeys(
        name for cot in cots for column in ("score", "step_scores") for name in cot.get(column, ())
    )
    scores = {}
    for scorer in scorers:
        scored = [
            (place, *pair)
            for place, cot in enumerate(cots)
            if (pair := [cot.get(each, {}).get(scorer) for each in ("score", "step_scores")])
            != [None, None]
        ]
        scores[scorer] = ScoreRows(question, *map(list, zip(*scored, strict=True)))
    return scores


def _by_grader(cot: Row) -> Row:
    verdict: float | Row = cot.get("verdict", {})
    return verdict if isinstance(verdict, dict) else {cot.get("grader", VERDICT): verdict}


def _grader(rows: Sequence[_CotRow], question: str) -> str:
    """Return who gave the verdicts of a question's CoTs that are no objects."""
    places = {
        grader: place
        for place, cot in rows
        if not isinstance(cot.get("verdict", {}), dict)
        for grader in _by_grader(cot)
    }
    if len(places) > 1:
        graders = (f"{name!r:.80} ({place})" for name, place in places.items())
        raise ConflictError(
            f"Question {question!r:.80} has verdicts of {len(places)} graders:"
            f" {', '.join(graders):.300}. One says how right its CoTs are, {VERDICT!r} where none"
            " is named: import the verdicts of one of them."
        )
    return next(iter(places), "")


def _turn_place(position: int, where: str) -> str:
    """Return what messages call a turn of a CoT."""
    return f"turn {position} of {where}"


def _chained(where: str, cot: Row) -> Iterator[tuple[str, Row]]:
    """Yield a CoT and its turns, each with its place, as nodes: each replies to the one before."""
    own = {name: value for name, value in cot.items() if name != "turns"}
    parent: dict[str, str] = {}
    for position, each in enumerate([own, *cot.get("turns", ())]):
        here = _turn_place(position - 1, where) if position else where
        yield here, {**each, **parent, "node": here, "ends": True}
        parent = {"parent": here}


def _ordered_tree(
    steps: Sequence[Row], question: str
) -> tuple[list[Row], list[int | None], list[bool]]:
    """Return the steps of a question, each behind its parent and beside its siblings, with their
    parents and ends.

    Siblings stay in their order. What is no tree is a `SourceError`, a name that comes twice a
    `ConflictError`.
    """
    children: dict[str | None, list[Row]] = {}
    by_name: dict[str, Row] = {}
    for step in steps:
        if by_name.setdefault(step["node"], step) is not step:
            raise ConflictError(
                f"Question {question!r} has the node {step['node']!r:.60} twice; give each its own"
                " name."
            )
        children.setdefault(step.get("parent"), []).append(step)
    for step in steps:
        if problem := _problem_of(step, by_name):
            raise SourceError(f"The node {step['node']!r:.60} of question {question!r} {problem}")
    ordered = list(children.get(None, ()))
    for step in ordered:  # it grows as it goes
        ordered += children.get(step["node"], ())
    places = {step["node"]: place for place, step in enumerate(ordered)}
    if len(ordered) < len(steps):
        lost = next(name for name in by_name if name not in places)
        raise SourceError(
            f"The node {lost!r:.60} of question {question!r} comes back to itself from parent to"
            " parent; a first step has no 'parent'."
        )
    parents = [places[step["parent"]] if "parent" in step else None for step in ordered]
    return ordered, parents, [step["ends"] for step in ordered]


def _problem_of(step: Row, by_name: Mapping[str, Row]) -> str:
    """Return what is wrong with a step of a tree, as the end of a sentence; empty if nothing is."""
    parent = by_name.get(step["parent"]) if "parent" in step else None
    if "parent" in step and parent is None:
        return f"has the parent {step['parent']!r:.60}, and the question has no such node."
    goes_on_from_an_end = parent is not None and parent["ends"]
    if "turn_messages" in step:
        if not (goes_on_from_an_end and step["ends"]):
            return (
                "has 'turn_messages' and is no turn: it should end, 'ends', and so should the CoT"
                " that it replies to, 'parent'."
            )
    elif goes_on_from_an_end:
        return (
            f"goes on from the node {step['parent']!r:.60}, which ends a solution or has an answer."
        )
    if step.get("answer") is not None and not step["ends"]:
        return "has an answer and 'ends' is false; only a step that ends a solution has an answer."
    return ""
