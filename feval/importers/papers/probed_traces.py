"""Reasoning traces that were made to answer every so many tokens: the stores of AutoTTS and
Parallel-Probe (Zheng et al., 2026).

A JSON array, one object per question: `question`, `gold_answer`, `probe_freq` (the interval: output
tokens between two probes), `each_branch`, a list of traces `[probe answers, output tokens, final
answer]`, and `final_answers_trace`, the final answers once more. A trace is a CoT. Its probe
answers are those after 1, 2, 3, ... intervals; the last may lie beyond its end. There are no texts,
no requests, and no tokens of the probes themselves. The store does not name its LLM.

Answers are LaTeX-like strings. `ERR` is a reply without an answer that its authors could read. They
let it vote, and so does the answer kind `verbatim`; for all other kinds it is no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from feval.errors import ConflictError
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import (
    LARGEST,
    gold_text,
    member,
    refuse,
    scalar_text,
    sentence_start,
    whole,
)
from feval.importers.source import (
    Imported,
    ImportRequest,
    SourceLLM,
    SourcePool,
    SourceProbes,
    SourceQuestion,
    counted_notes,
    size_note,
)

_NO_ANSWER = "ERR"


def read(source: Path, request: ImportRequest) -> Imported:
    """Read one JSON file. The request names the LLM, and says whether answers are verbatim."""
    llm = request.the_llm(source.name)
    reader = Reader()
    entries = reader.entries(read_bytes(source), source.name)
    places = [_place(entry, row, source.name) for row, entry in enumerate(entries)]
    questions = [
        _question(entry, request.question_id(row), places[row]) for row, entry in enumerate(entries)
    ]
    _check_distinct(questions, source.name)
    pools = [_pool(entry, where) for entry, where in zip(entries, places, strict=True)]
    notes = (
        _notes(pools, entries, verbatim=request.answer_kind == "verbatim")
        + size_note(pools)
        + reader.notes()
    )
    if request.answer_kind != "verbatim":
        pools = list(map(_without_errors, pools))
    return Imported(questions, [SourceLLM(llm, pools, counted=True)], notes)


def _place(entry: Any, row: int, name: str) -> str:
    """Return where a question is, for the messages: its number, from 0 like its id, and the
    beginning of its text.
    """
    text = entry.get("question") if isinstance(entry, dict) else None
    return (
        f"question {row} ({text!r:.40}) of {name}"
        if isinstance(text, str)
        else f"question {row} of {name}"
    )


def _question(entry: Any, name: str, where: str) -> SourceQuestion:
    text = member(entry, "question", str, where)
    if "gold_answer" not in entry:
        member(entry, "gold_answer", str, where)
    return SourceQuestion(name, text, gold_text(entry["gold_answer"], where))


def _check_distinct(questions: Sequence[SourceQuestion], name: str) -> None:
    numbers: dict[str | None, int] = {}
    for row, question in enumerate(questions):
        if (first := numbers.setdefault(question.text, row)) != row:
            raise ConflictError(
                f"Questions {first} and {row} of {name} are the same, {question.text!r:.60}; remove"
                " one of them."
            )


def _pool(entry: dict[str, Any], where: str) -> SourcePool:
    interval = whole(entry.get("probe_freq"))
    if not interval:
        member(entry, "probe_freq", int, where)
        refuse(f"'probe_freq' of {where}", "a whole number of tokens from 1", entry["probe_freq"])
    branches = member(entry, "each_branch", list, where)
    traces = [
        _trace(branch, f"trace {number} of {where}") for number, branch in enumerate(branches)
    ]
    _check_finals(entry, branches, where)
    longest = max((len(probes) for probes, _, _ in traces), default=0)
    if interval * longest > LARGEST:
        refuse(
            f"'probe_freq' of {where}",
            f"at most {LARGEST // longest} where a trace has {longest} probes",
            interval,
        )
    columns = SourceProbes(
        [sample for sample, (probes, _, _) in enumerate(traces) for _ in probes],
        [interval * step for probes, _, _ in traces for step in range(1, len(probes) + 1)],
        [answer for probes, _, _ in traces for answer in probes],
    )
    finals, tokens = [final for _, _, final in traces], [tokens for _, tokens, _ in traces]
    return SourcePool([None] * len(traces), finals, tokens, probes=columns)


def _trace(branch: Any, where: str) -> tuple[list[str | None], int, str | None]:
    """Return the probe answers, the tokens and the final answer of a trace."""
    if not isinstance(branch, list) or len(branch) != 3:
        refuse(
            sentence_start(where), "a list of three, [probe answers, tokens, final answer]", branch
        )
    probes, tokens, final = branch
    if not isinstance(probes, list):
        refuse(f"The probe answers of {where}", "a list", probes)
    count = whole(tokens)
    if count is None:
        refuse(f"The tokens of {where}", f"a whole number from 0 to {LARGEST}", tokens)
    answers = [_answer(value, f"Probe {number}", where) for number, value in enumerate(probes)]
    return answers, count, _answer(final, "The final answer", where)


def _answer(value: Any, what: str, where: str) -> str | None:
    return (
        value if value is None or type(value) is str else scalar_text(value, f"{what} of {where}")
    )


def _check_finals(entry: dict[str, Any], branches: Sequence[Any], where: str) -> None:
    finals = member(entry, "final_answers_trace", list, where)
    if len(finals) != len(branches):
        raise ConflictError(
            f"{sentence_start(where)} has {len(branches)} traces in 'each_branch' and {len(finals)}"
            " answers in 'final_answers_trace'; there should be one for each trace. Get the file"
            " again."
        )
    for number, (final, (_, _, answer)) in enumerate(zip(finals, branches, strict=True)):
        if final != answer:
            raise ConflictError(
                f"Trace {number} of {where} ends with the answer {answer!r:.40} in 'each_branch'"
                f" and with {final!r:.40} in 'final_answers_trace'; they should be equal. Get the"
                " file again."
            )


def _without_errors(pool: SourcePool) -> SourcePool:
    """Return a pool in which `ERR` is no answer."""
    probes = pool.probes and replace(pool.probes, answers=_read(pool.probes.answers))
    return replace(pool, answers=_read(pool.answers), probes=probes)


def _read(answers: Sequence[str | None] | None) -> list[str | None]:
    return [None if answer == _NO_ANSWER else answer for answer in answers or ()]


def _notes(pools: Sequence[SourcePool], entries: Sequence[Any], *, verbatim: bool) -> list[str]:
    probes = [pool.probes for pool in pools if pool.probes]
    beyond = sum(
        offset > tokens[sample]
        for pool, tokens in ((pool.probes, pool.tokens or ()) for pool in pools)
        if pool
        for sample, offset in zip(pool.sample_indices, pool.offsets, strict=True)
    )
    vote = "they vote, as for the authors" if verbatim else "they are no answer"
    notes = counted_notes(
        (
            f"Final answers {_NO_ANSWER!r} ({vote})",
            sum(list(pool.answers or ()).count(_NO_ANSWER) for pool in pools),
        ),
        (
            f"Probe answers {_NO_ANSWER!r} ({vote})",
            sum(list(each.answers or ()).count(_NO_ANSWER) for each in probes),
        ),
        ("Probes at offsets beyond the end of their trace", beyond),
    )
    intervals = sorted({int(entry["probe_freq"]) for entry in entries})
    if len(intervals) > 1:
        notes.append(
            "The questions were probed at different intervals:"
            f" {', '.join(map(str, intervals[:12]))} tokens."
        )
    return notes
