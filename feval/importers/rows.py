"""Generic rows become questions and pools: rows must agree about their question, and each LLM has
its own CoTs.

Questions and rows lie in temporary files where they are many; CoTs are put together, question by
question, when recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from feval.cards.tokens import Usage
from feval.errors import ConflictError, SourceError
from feval.importers.columns import COLUMNS, USAGE, RowReader, examples, probe_names, turn_names
from feval.importers.depth.probes import pool_probes, probe_columns
from feval.importers.depth.steps import ordered_tree, steps_decoding
from feval.importers.depth.turns import chained, turn_place
from feval.importers.reading import Reader
from feval.importers.shapes import sentence_start
from feval.importers.sorted_rows import PackedRows, SortedRows
from feval.importers.source import (
    Imported,
    ImportRequest,
    Prompt,
    SourceLLM,
    SourcePool,
    SourceProbes,
    SourceQuestion,
    llm_notes,
)
from feval.importers.stored_questions import StoredQuestions
from feval.recording.content import OPTIONAL_COLUMNS, LLMInfo, ScoreRows

_T = TypeVar("_T")
_Cot = Mapping[str, Any]
_COT_COLUMNS = frozenset(column.name for column in COLUMNS if column.of == "cot")


class _CotRow(NamedTuple):
    """A CoT and the place of its row."""

    place: str
    cot: _Cot


@dataclass(slots=True)
class _LLM:
    """What the rows of one LLM say of it, and how many of its CoTs have what.

    `probe_answers`: whether a probe has an answer; `unanswered_probe`: the place of one that says
    nothing of it.
    """

    number: int
    decoding: dict[str, Any] = field(default_factory=dict)
    probe_answers: bool = False
    unanswered_probe: str = ""
    first_place: str = ""
    request: tuple[int, Prompt | None, int | None] = (-1, None, None)
    cots: int = 0
    having: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("answer", "tokens", "node", "turns", "turn_messages"), 0
        )
    )
    to_be_read: int = 0

    def count(self, later: _LLM) -> None:
        """Add the CoTs of rows further on in the source."""
        self.first_place = self.first_place or later.first_place
        self.cots += later.cots
        self.having = {name: count + later.having[name] for name, count in self.having.items()}
        self.to_be_read += later.to_be_read
        self.probe_answers |= later.probe_answers
        self.unanswered_probe = self.unanswered_probe or later.unanswered_probe


class RowsOfPiece(NamedTuple):
    """What `Rows` collected of a piece of a source; unknown members with the value of the first row
    that has them.
    """

    questions: list[SourceQuestion]
    llms: dict[str | None, _LLM]
    rows: PackedRows
    others: dict[str, Any]
    without_unit: set[str]
    added: set[str]


class Rows:
    """Collects the questions of one source, and the CoTs by LLM (`None`: not named) and question.

    Those of a piece of it are in memory, and `piece` returns them; `add_piece` adds them to the
    whole.
    """

    def __init__(self, source: str, request: ImportRequest, *, is_piece: bool = False) -> None:
        self._questions = StoredQuestions(request.scratch)
        self._numbers: dict[str, int] = {}
        self._llms: dict[str | None, _LLM] = {}
        self._rows = SortedRows(request.scratch, math.inf if is_piece else None)
        self._source, self._request = source, request
        self._probes, self._turns = RowReader(probe_names()), RowReader(turn_names())
        self._others: dict[str, Any] = {}
        self._without_unit: set[str] = set()
        self._added: set[str] = set()  # tokens that the source counts beside others
        self._gaps = 0
        self._without_answers: list[str] = []

    def keep(self, most_bytes: float) -> None:
        """Keep other numbers of bytes in memory, as where a source has the rows of several
        datasets.
        """
        self._rows.keep(most_bytes)

    def llms(self) -> list[str | None]:
        """Return the names of the LLMs so far."""
        return list(self._llms)

    def piece(self) -> RowsOfPiece:
        """Return what was collected."""
        rows = self._rows.in_memory()
        return RowsOfPiece(
            list(self._questions), self._llms, rows, self._others, self._without_unit, self._added
        )

    def add_piece(self, piece: RowsOfPiece) -> None:
        """Add the next piece of the source; raise where it contradicts those before, without saying
        on which line.
        """
        questions = [
            self.add_question(
                one.id, {"question": one.text, "gold": one.gold, "choices": one.choices}, "a line"
            )
            for one in piece.questions
        ]
        llms = []
        for name, llm in piece.llms.items():
            own = self._llm_named(name)
            self._check_decoding(name, own.decoding, llm.decoding, "a line")
            own.count(llm)
            llms.append(own.number)
        self._rows.extend(piece.rows, llms, questions)
        for member, value in piece.others.items():
            self._others.setdefault(member, value)
        self._without_unit |= piece.without_unit
        self._added |= piece.added

    def recognised(self, row: Mapping[str, Any], reader: RowReader, where: str) -> dict[str, Any]:
        """Read the known columns of a row; note unknown members."""
        values, others, without_unit = reader.recognised(row, where)
        for name, value in others.items():
            self._others.setdefault(name, value)
        self._without_unit |= without_unit
        if not USAGE.keys().isdisjoint(values):
            self._settle_counts(values, where)
        return values

    def _settle_counts(self, values: dict[str, Any], where: str) -> None:
        """Make the token counts of a row those of a recording, by the rule of `Usage.of`."""
        prompt = "turn_prompt_tokens" if "turn_prompt_tokens" in values else "prompt_tokens"
        stated = {USAGE[name]: values.pop(name) for name in USAGE if name in values}
        usage = Usage.of(values.get(prompt), values.get("tokens"), **stated)
        if usage.problem is not None:
            found = {
                "reasoning": usage.reasoning,
                "output": usage.output,
                "cache": usage.cached,
                "prompt": usage.prompt,
            }
            shown = ", ".join(
                f"{name} {count:,}" for name, count in found.items() if count is not None
            )
            raise SourceError(
                f"{sentence_start(where)} has {usage.problem} ({shown}). 'tokens' count the"
                " reasoning, too, and 'prompt_tokens' what came from a cache: correct the counts,"
                " or leave the columns out (--ignore)."
            )
        counts = {
            "reasoning_tokens": usage.reasoning,
            "cached_tokens": usage.cached,
            "tokens": usage.output,
            prompt: usage.prompt,
        }
        values |= {name: count for name, count in counts.items() if count is not None}
        self._added.update(usage.added)

    def add_question(self, name: str, values: Mapping[str, Any], where: str) -> int:
        """Add the question of a row, which must agree with earlier rows; return its number, from
        0.
        """
        text, gold, choices = (
            values.get("question"),
            values.get("gold"),
            values.get("choices") or (),
        )
        number = self._numbers.setdefault(name, len(self._questions))
        if number == len(self._questions):
            self._questions.append(SourceQuestion(name, text, gold, choices))
        elif text is not None or gold is not None or choices:
            known = self._questions[number]
            question = SourceQuestion(
                name,
                _agreed(known.text, text, "two texts", name, where),
                _agreed(known.gold, gold, "two gold answers", name, where),
                _agreed(known.choices or None, choices or None, "two sets of choices", name, where)
                or (),
            )
            if question != known:
                self._questions[number] = question
        return number

    def add_row(
        self,
        question: int,
        values: Mapping[str, Any],
        where: str,
        *,
        line: str | None = None,
        cot: bool = True,
    ) -> None:
        """Add LLM, request and CoT of a row; `line` names the line whose first row of this LLM it
        is, if a line has several.
        """
        llm = self._llm_named(name := values.get("llm"))
        self._check_decoding(name, llm.decoding, values, where)
        prompt, prompt_tokens = values.get("prompt"), values.get("prompt_tokens")
        if llm.request == (question, prompt, prompt_tokens):  # the same as in the row before
            prompt = prompt_tokens = None
        else:
            llm.request = question, prompt, prompt_tokens
        request = (None, None) if prompt is None else (prompt.messages, prompt.text)
        content = self._counted(llm, values, where) if cot else None
        self._rows.add(llm.number, question, (where, line, *request, prompt_tokens, content))

    def _llm_named(self, name: str | None) -> _LLM:
        return self._llms.get(name) or self._llms.setdefault(name, _LLM(len(self._llms)))

    def _check_decoding(
        self, llm: str | None, decoding: dict[str, Any], values: Mapping[str, Any], where: str
    ) -> None:
        for key in (
            "temperature",
            "max_tokens",
            "decoding",
            "probe_cue",
            "step_stop",
            "step_policy",
        ):
            value = values.get(key)
            if value is not None and decoding.setdefault(key, value) != value:
                name_of_llm = "the same LLM" if llm is None else f"the LLM {llm!r}"
                raise ConflictError(
                    f"{sentence_start(where)} has {key} {value!r:.60}, and rows before it have"
                    f" {decoding[key]!r:.60} for "
                    f"{name_of_llm}. CoTs of two decodings are not one pool: give each decoding an"
                    " LLM name of its own in 'llm', "
                    "such as"
                    f" '{llm or 'NAME'}@{key[0]}={value if key in {'temperature', 'max_tokens'} else 2}'."  # noqa: E501
                )

    def _counted(self, llm: _LLM, values: Mapping[str, Any], where: str) -> _Cot:
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
        llm.first_place = llm.first_place or where
        if "turns" in cot:
            cot["turns"] = [
                self._turn(llm, turn, turn_place(i, where)) for i, turn in enumerate(cot["turns"])
            ]
        llm.cots += 1
        for name in llm.having:
            llm.having[name] += name in cot
        llm.to_be_read += cot.get("answer") is None and "text" in cot
        return cot

    def _turn(self, llm: _LLM, turn: Mapping[str, Any], where: str) -> _Cot:
        """Return a turn of a CoT, counted as a CoT."""
        values = self.recognised(turn, self._turns, where)
        if values.get("turn_messages") is None:
            raise SourceError(
                f"{sentence_start(where)} has no 'messages'; give what was sent behind the"
                " conversation, as a text or a list of messages."
            )
        return self._counted(llm, values, where)

    def _read_probes(self, llm: _LLM, probes: list[dict[str, Any]], where: str) -> list[list[Any]]:
        """Return the probes of a CoT as columns."""
        read = []
        for position, probe in enumerate(probes):
            here = f"probe {position} of {where}"
            values = self.recognised(probe, self._probes, here)
            read.append(values)
            llm.probe_answers |= values.get("answer") is not None
            if "answer" not in values:
                llm.unanswered_probe = llm.unanswered_probe or here
        return probe_columns(read, where)

    def imported(self, reader: Reader, names: tuple[str, ...] | None = None) -> Imported:
        """Return the whole source; raise where only some rows name an LLM or have an answer or a
        token count.

        The notes end with those of the source's reader. `names` takes the place of those in the
        request.
        """
        if names is not None:
            self._request = replace(self._request, llms=names)
        self._numbers.clear()
        chosen = self._chosen()
        llms = [self._llm(self._llms.get(name, _LLM(-1)), info) for name, info in chosen]
        notes = self._notes(chosen)
        return Imported(self._questions, self._all(llms, notes, reader), notes, llm_count=len(llms))

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
        notes += reader.notes()

    def _chosen(self) -> list[tuple[str | None, LLMInfo]]:
        """Return the LLMs to import: the name in the rows, and name and decoding in the
        recording.
        """
        infos = [
            LLMInfo(
                name or "",
                llm.decoding.get("temperature"),
                llm.decoding.get("max_tokens"),
                llm.decoding.get("decoding", {}) | steps_decoding(llm.decoding),
            )
            for name, llm in self._llms.items()
        ]
        if list(self._llms) == [None] or not self._llms:
            return [(None, self._request.llm_of(self._source, infos[0] if infos else LLMInfo("")))]
        if None in self._llms:
            without = self._llms[None].first_place
            raise SourceError(
                f"Some lines of {self._source} name an LLM and others do"
                f" not{f' ({without})' if without else ''}; name it on each line, or on none."
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
        # as a table of several LLMs has it, of which only some have answers
        if stored and llm.to_be_read == llm.cots:
            self._without_answers.append(info.name)
            stored = False
        counted = self._all_or_none(llm, "tokens")
        if llm.probe_answers and llm.unanswered_probe:
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
        )

    def _all_or_none(self, llm: _LLM, name: str, hint: str = "") -> bool:
        """Return whether the CoTs have a value; raise where only some have."""
        count = llm.having[name]
        if 0 < count < llm.cots:
            lacking = next(
                row.place
                for *_, rows in self._by_question(llm)
                for row in rows
                if name not in row.cot
            )
            raise SourceError(
                f"{count} of {llm.cots} samples in {self._source} have {name!r}, and {lacking} has"
                f" none; give it to all samples of an LLM or to none{hint}."
            )
        return count > 0

    def _pools(self, llm: _LLM, *, stored: bool, counted: bool) -> Iterator[SourcePool]:
        """Yield the pool of each question; an empty one where the LLM was not asked."""
        done = 0
        for number, prompt, prompt_tokens, rows in self._by_question(llm):
            yield from repeat(SourcePool([], [], []), number - done)
            question, cots = self._questions[number].id, [row.cot for row in rows]
            parents, ends, messages = None, None, None
            if llm.having["node"] or llm.having["turn_messages"]:
                cots, parents, ends = ordered_tree(cots, question)
            if llm.having["turn_messages"]:
                messages = [cot.get("turn_messages") for cot in cots]
            probes = pool_probes([cot.get("probes") for cot in cots], stored=llm.probe_answers)
            pool = _pool(
                question, cots, prompt, prompt_tokens, probes, stored=stored, counted=counted
            )
            yield replace(pool, parents=parents, ends=ends, messages=messages)
            done = number + 1
        yield from repeat(SourcePool([], [], []), len(self._questions) - done)

    def _by_question(
        self, llm: _LLM
    ) -> Iterator[tuple[int, Prompt | None, int | None, list[_CotRow]]]:
        """Yield number, request, prompt tokens and ordered CoTs of each question that an LLM was
        asked.
        """
        for number, rows in self._rows.questions(llm.number):
            question, prompt, prompt_tokens, cots = self._questions[number].id, None, None, []
            _check_once(question, [line for _, line, *_ in rows if line is not None])
            for place, _, messages, text, tokens, cot in rows:
                if messages is not None:
                    prompt = _agreed(prompt, Prompt(messages, text), "two prompts", question, place)
                prompt_tokens = _agreed(
                    prompt_tokens, tokens, "two prompt token counts", question, place
                )
                if cot is not None:
                    cots.append(_CotRow(place, cot))
            ordered = self._ordered(cots, question)
            if llm.having["turns"] and llm.having["turn_messages"]:
                ordered = [_CotRow(*node) for row in ordered for node in chained(*row)]
            yield number, prompt, prompt_tokens, ordered

    def _ordered(self, rows: list[_CotRow], question: str) -> list[_CotRow]:
        """Return the CoTs in the order of their numbers, or of the rows where none is numbered."""
        names: list[Any] = [row.cot.get("sample") for row in rows]
        kinds = {type(name) for name in names}
        if kinds <= {type(None)}:
            return rows
        if len(kinds) > 1:
            odd = next(
                row.place
                for row, name in zip(rows, names, strict=True)
                if type(name) is not type(names[0])
            )
            raise SourceError(
                f"{sentence_start(odd)} and {rows[0].place} number the CoTs of question"
                f" {question!r} in two ways. Give 'sample' as a whole number from 0 on each line,"
                " or on none."
            )
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            places = [row.place for row, name in zip(rows, names, strict=True) if name == twice]
            raise ConflictError(
                f"Question {question!r} has a sample number twice: {twice!r} on {places[0]} and on"
                f" {places[1]}. Remove one of them, or name their LLMs in 'llm' if they are of two."
            )
        if kinds == {str}:
            return rows
        self._gaps += max(names) - min(names) != len(names) - 1
        return sorted(rows, key=lambda row: row.cot["sample"])

    def _notes(self, chosen: Sequence[tuple[str | None, LLMInfo]]) -> list[str]:
        notes = []
        if self._others:
            notes.append(f"Unknown members, which were not imported: {examples(self._others)}.")
        notes += [
            f"{name!r} names no unit; it was read as seconds."
            for name in sorted(self._without_unit)
        ]
        notes += [
            f"The source counts {added} beside the others, to which they were added."
            for added in sorted(self._added)
        ]
        notes += [
            f"All answers of {name} are null, so they were read from the texts."
            for name in self._without_answers
        ]
        return notes + llm_notes(list(self._llms), chosen)


def _check_once(question: str, lines: Sequence[str]) -> None:
    """Raise where several lines have the samples of one question."""
    if len(lines) > 1:
        raise ConflictError(
            f"{sentence_start(lines[1])} has the question id {question!r} a second time. Give each"
            " question its own id, or write one line per CoT."
        )


def _agreed(known: _T | None, value: _T | None, what: str, name: str, where: str) -> _T | None:
    if known is not None and value is not None and known != value:
        before, here = (
            repr(each.text if isinstance(each, Prompt) else each) for each in (known, value)
        )
        raise ConflictError(
            f"Question {name!r} has {what}: {before:.80} before, and {here:.80} on {where}. "
            "Remove one of them or give each its own id."
        )
    return known if known is not None else value


def _pool(
    question: str,
    cots: Sequence[_Cot],
    prompt: Prompt | None,
    prompt_tokens: int | None,
    probes: SourceProbes | None,
    *,
    stored: bool,
    counted: bool,
) -> SourcePool:
    names: set[str] = set().union(*cots)

    def column(name: str) -> list[Any] | None:
        """Return the values of a column; `None` where no CoT has one."""
        return [cot.get(name) for cot in cots] if name in names else None

    return SourcePool(
        texts=[cot.get("text") for cot in cots],
        answers=[cot["answer"] for cot in cots] if stored else None,
        tokens=[cot["tokens"] for cot in cots] if counted else None,
        finish_reasons=[cot.get("finish_reason", "unknown") for cot in cots],
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        extra={name: values for name in OPTIONAL_COLUMNS if (values := column(name)) is not None},
        reasoning=column("reasoning"),
        sequence_logprobs=(
            _sequence_logprobs(cots) if names & {"sequence_logprob", "token_logprobs"} else None
        ),
        token_logprobs=column("token_logprobs"),
        token_confidences=column("token_confidences"),
        scores=_scores(question, cots) if names & {"score", "step_scores"} else {},
        probes=probes,
        turn_prompt_tokens=column("turn_prompt_tokens"),
        first_token_seconds=column("first_token_s"),
    )


def _sequence_logprobs(cots: Sequence[_Cot]) -> list[float | None] | None:
    """Return the log-probability of each CoT: as given, else the sum of its tokens'."""
    sums = [
        (
            cot["sequence_logprob"]
            if "sequence_logprob" in cot
            else math.fsum(cot["token_logprobs"])
            if "token_logprobs" in cot
            else None
        )
        for cot in cots
    ]
    return sums if any(value is not None for value in sums) else None


def _scores(question: str, cots: Sequence[_Cot]) -> dict[str, ScoreRows]:
    """Return the scores of each scorer."""
    scorers = dict.fromkeys(
        name for cot in cots for column in ("score", "step_scores") for name in cot.get(column, ())
    )
    scores = {}
    for scorer in scorers:
        pairs = [
            (cot.get("score", {}).get(scorer), cot.get("step_scores", {}).get(scorer))
            for cot in cots
        ]
        scored = [position for position, pair in enumerate(pairs) if pair != (None, None)]
        scores[scorer] = ScoreRows(
            question, scored, [pairs[i][0] for i in scored], [pairs[i][1] for i in scored]
        )
    return scores
