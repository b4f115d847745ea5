"""Probes of a source: those of one generic CoT as columns, and those of an LLM on their way into
the recording.

A probe sees a prefix of its CoT only: its answer is stored or read in its own text, and never that
of the CoT or another probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from feval.answers import extract, normal_forms
from feval.answers.thoughts import reply_behind
from feval.errors import ConflictError, SourceError, UsageError
from feval.importers.shapes import sentence_start
from feval.importers.sorted_rows import SortedRows
from feval.importers.source import SourceProbes, SourceQuestion, counted_notes
from feval.recording.content import ProbeRows

_MEMBERS = ("offset", "answer", "text", "tokens", "confidence")


def probe_columns(probes: Sequence[Mapping[str, Any]], where: str) -> list[list[Any]]:
    """Return the probes of one CoT as columns, by offset; each has an offset of its own, and an
    answer or a text.
    """
    for position, probe in enumerate(probes):
        if probe.get("offset") is None:
            raise SourceError(
                f"Probe {position} of {where} has no 'offset'; give the number of output tokens of"
                " the CoT before the probe."
            )
        if "answer" not in probe and probe.get("text") is None:
            raise SourceError(
                f"Probe {position} of {where} has neither 'answer' nor 'text'; give one of them (an"
                " answer of null says that there is no answer)."
            )
    offsets = Counter(probe["offset"] for probe in probes)
    if len(offsets) < len(probes):
        twice = next(offset for offset, count in offsets.items() if count > 1)
        raise ConflictError(
            f"{sentence_start(where)} has two probes at the offset {twice:,}; remove one of them."
        )
    ordered = sorted(probes, key=lambda probe: probe["offset"])
    return [[probe.get(name) for probe in ordered] for name in _MEMBERS]


def pool_probes(
    columns_by_sample: Sequence[list[list[Any]] | None], *, stored: bool
) -> SourceProbes | None:
    """Put the probes of a question's CoTs end to end, from `probe_columns`; `None` where no CoT has
    any.
    """
    samples = [
        sample for sample, columns in enumerate(columns_by_sample) if columns for _ in columns[0]
    ]
    if not samples:
        return None
    offsets, answers, texts, tokens, confidences = (
        [value for columns in columns_by_sample if columns for value in columns[place]]
        for place in range(len(_MEMBERS))
    )
    return SourceProbes(
        samples, offsets, answers if stored else None, *map(_known, (texts, tokens, confidences))
    )


def _known(values: list[Any]) -> list[Any] | None:
    return values if any(value is not None for value in values) else None


class WaitingProbes:
    """The probes of one LLM, which wait until its CoTs are written; what was unusual about their
    answers is counted.
    """

    def __init__(self, llm: str, kind: str, scratch: Path | None, *, always_text: bool) -> None:
        self._llm, self._kind, self._always_text = llm, kind, always_text
        self._rows = SortedRows(scratch)
        self._count = self._unreadable = 0

    def __len__(self) -> int:
        return self._count

    def add(self, question: int, probes: SourceProbes | None) -> None:
        """Add those of a question, by its number."""
        if probes is not None:
            self._rows.add(0, question, probes)
            self._count += len(probes.offsets)

    def rows(self, questions: Sequence[SourceQuestion], cue: str | None) -> Iterator[ProbeRows]:
        """Yield them by question, with their answers normalised."""
        for number, (columns,) in self._rows.questions(0):
            question, probes = questions[number], SourceProbes(**columns)
            raw = self._raw_answers(question, probes, cue)
            answers = normal_forms(self._kind, raw, question.choices)
            self._unreadable += answers.count(None) - list(raw).count(None)
            yield ProbeRows(
                question.id,
                probes.sample_indices,
                probes.offsets,
                raw,
                answers,
                probes.texts,
                probes.output_tokens,
                probes.confidences,
            )

    def _raw_answers(
        self, question: SourceQuestion, probes: SourceProbes, cue: str | None
    ) -> Sequence[str | None]:
        """Return the stored answers, or those read in the texts as the ends of replies that begin
        with the cue.
        """
        if probes.answers is not None and not self._always_text:
            return probes.answers
        texts = probes.texts or [None] * len(probes.offsets)
        if self._always_text and None in texts:
            raise UsageError(
                "Answers from the texts were asked for (--answers text), and probes of question"
                f" {question.id!r} have no text; take the stored answers."
            )
        if self._kind == "verbatim" and any(texts):
            raise UsageError(
                f"Verbatim answers are the stored ones, and the probes of question {question.id!r}"
                " have texts alone; choose an answer kind that can be extracted from them,"
                " --answer-kind KIND."
            )
        replies = {text: reply_behind(cue, text) for text in set(texts) if text is not None}
        answer_of = {
            text: None if reply is None else extract(self._kind, reply, question.choices)
            for text, reply in replies.items()
        }
        return [None if text is None else answer_of[text] for text in texts]

    def notes(self) -> list[str]:
        """Return what was unusual, once all rows were taken."""
        return counted_notes(
            (
                (
                    f"Raw answers of probes of {self._llm} that cannot be read as {self._kind} and"
                    " count as no answer"
                ),
                self._unreadable,
            )
        )
