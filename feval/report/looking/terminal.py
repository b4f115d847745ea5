"""Questions and CoTs as lines of styled text: in colour on a terminal, plain elsewhere.

Texts of LLMs and files are made visible here: no character of them steers a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.recording import NO_ANSWER
from feval.report.looking.questions import answer_span
from feval.report.tables.tables import Column, Line, Table
from feval.report.text import counted, percent, shortened, visible

if TYPE_CHECKING:
    from feval.report.looking.overview import Overview
    from feval.report.looking.questions import LLMOnQuestion, RecordedQuestion

RIGHT, WRONG, PLAIN, FAINT, HEAD = "green", "red", "", "dim", "bold"
_SAID = "black on yellow"
_MANY_PROBES = 12
_MOST_ANSWERS = 20
_WIDE_QUESTION, _SHORT_ANSWER = 60, 40


def overview_table(overview: Overview, rows: Sequence[int], texts: Sequence[str]) -> Table:
    """Return a table of some questions (by row) with their texts; accuracies per LLM and agreement
    in per cent.
    """
    llms = overview.llms
    hidden = len(overview.order) - len(rows)
    notes = ["agreement: share of the CoTs of all these LLMs that give the most frequent answer"]
    if hidden:
        notes.insert(
            0, f"{hidden:,} easier questions are not shown; --first {len(overview.order)} shows all"
        )
    return Table(
        title=f"{overview.dataset}, {counted(len(overview.order), 'question')}, the hardest first",
        columns=(
            Column("question"),
            *(Column(f"{llm} %", number=True) for llm in llms),
            Column("agreement %", number=True),
            Column("CoTs", number=True, spare=True),
            Column("text", spare=True),
        ),
        rows=tuple(
            (
                overview.question_ids[row],
                *(_percent(overview.accuracy[i, row]) for i in range(len(llms))),
                _percent(overview.agreement[row]),
                f"{int(overview.cots[:, row].sum()):,}",
                shortened(text, _WIDE_QUESTION),
            )
            for row, text in zip(rows, texts, strict=True)
        ),
        notes=tuple(notes),
    )


def _percent(value: float) -> str:
    return "-" if np.isnan(value) else percent(float(value))


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
    question = asked.question
    pieces: list[Line | Table] = [
        ((f"{visible(asked.dataset)}  {visible(question.id)}", HEAD),),
        (),
    ]
    pieces += [((line, PLAIN),) for line in _lines(question.text)]
    pieces += [
        ((f"  {visible(label)}  ", HEAD), (visible(text), PLAIN))
        for label, text in question.choices
    ]
    gold = ("none", FAINT) if question.answer is None else (visible(question.answer), RIGHT)
    pieces += [(("gold  ", HEAD), gold), (), _counts(asked)]
    for on in asked.llms:
        if not on.codes:
            pieces += [(), ((f"{visible(on.llm)}: nothing was recorded", FAINT),)]
        elif on.is_tree:
            pieces += _tree(asked, on, samples)
        else:
            for place in range(len(on.codes)) if samples is None else sorted(samples):
                if place < len(on.codes):
                    pieces += [(), *_cot(asked, on, place, reasoning=reasoning)]
    return pieces


def _counts(asked: RecordedQuestion) -> Table:
    """How many CoTs of each LLM gave each answer."""
    counts = [dict(on.counts()) for on in asked.llms]
    total: dict[int, int] = {}
    for own in counts:
        for code, count in own.items():
            total[code] = total.get(code, 0) + count
    codes = sorted(total, key=lambda code: (code < 0, -total[code], code))
    rare = [code for code in codes[_MOST_ANSWERS:] if code not in (asked.gold, NO_ANSWER)]
    return Table(
        title="",
        columns=(Column("answer"), *(Column(on.llm, number=True) for on in asked.llms)),
        rows=tuple(
            (_verdict(asked, code), *(f"{own[code]:,}" if code in own else "" for own in counts))
            for code in codes
            if code not in rare
        ),
        notes=(f"and {counted(len(rare), 'rarer answer')}",) if rare else (),
    )


def _verdict(asked: RecordedQuestion, code: int) -> str:
    answer = asked.answer(code)
    word = "no answer" if answer is None else shortened(visible(answer), _SHORT_ANSWER)
    return f"{_sign(asked, code)[0]} {word}"


def _sign(asked: RecordedQuestion, code: int) -> tuple[str, str]:
    """Mark and style of an answer."""
    if code == NO_ANSWER:
        return "–", FAINT
    right = asked.is_right(code)
    return ("·", PLAIN) if right is None else ("✓", RIGHT) if right else ("✗", WRONG)


def _cot(
    asked: RecordedQuestion, on: LLMOnQuestion, place: int, *, reasoning: bool
) -> Iterator[Line]:
    pool = on.pool
    code = on.codes[place]
    finish = pool.finish_reasons[place]
    about = [
        f"{pool.output_tokens[place]:,} tokens",
        *([] if finish == "unknown" else [finish]),
        *_scores(on, place),
    ]
    head = f"{visible(on.llm)}, sample {place}  "
    yield (
        (head, HEAD),
        (_verdict(asked, code), _sign(asked, code)[1]),
        (f"  {', '.join(map(visible, about))}", FAINT),
    )
    if probes := _probes(on, place):
        yield ((probes, FAINT),)
    thoughts = pool.reasoning[place] if pool.reasoning is not None else None
    if thoughts and reasoning:
        yield from (((line, FAINT),) for line in _lines(thoughts))
    elif thoughts:
        yield (
            (f"[reasoning of {counted(len(thoughts), 'character')}; --reasoning shows it]", FAINT),
        )
    text = pool.texts[place]
    if text is None:
        yield (("no text was recorded", FAINT),)
    else:
        yield from _highlighted(text, pool.raw_answers[place], pool.answers[place])


def _scores(on: LLMOnQuestion, place: int) -> list[str]:
    return [
        f"{name} {score:.4g}"
        for name, own in on.scores.items()
        if (score := own[place]) is not None
    ]


def _probes(on: LLMOnQuestion, place: int) -> str:
    """The answers of a CoT's probes, where they change."""
    changes = probe_changes(on, place)
    if not changes:
        return ""
    told = [
        f"from {tokens:,}: {shortened(visible(answer or 'no answer'), 20)}"
        for tokens, answer in changes
    ]
    more = len(told) - _MANY_PROBES
    rest = [f"and {more:,} more changes"] if more > 0 else []
    return f"probed after tokens: {', '.join([*told[:_MANY_PROBES], *rest])}"


def probe_changes(on: LLMOnQuestion, place: int) -> list[tuple[int, str | None]]:
    """Return (tokens before the probe, its answer) of a CoT's first probe and of each with another
    answer than the last.
    """
    if on.probes is None:
        return []
    rows = zip(on.probes.sample_indices, on.probes.offsets, on.probes.answers, strict=True)
    own = [(offset, answer) for index, offset, answer in rows if index == place]
    return own[:1] + [after for before, after in pairwise(own) if before[1] != after[1]]


def _highlighted(text: str, *answers: str | None) -> Iterator[Line]:
    """The lines of a text; the answer in it stands out."""
    span = answer_span(text, *answers)
    if span is None:
        yield from (((line, PLAIN),) for line in _lines(text))
        return
    before, said, after = (
        _lines(text[: span[0]]),
        _lines(text[slice(*span)]),
        _lines(text[span[1] :]),
    )
    yield from (((line, PLAIN),) for line in before[:-1])
    first, *rest = said
    line: Line = ((before[-1], PLAIN), (first, _SAID))
    for more in rest:
        yield line
        line = ((more, _SAID),)
    yield (*line, (after[0], PLAIN))
    yield from (((line, PLAIN),) for line in after[1:])


def _lines(text: str) -> list[str]:
    """The lines of a text, safe to print."""
    return [visible(line.replace("\t", "    ")) for line in re.split("\r?\n", text)]


def _tree(
    asked: RecordedQuestion, on: LLMOnQuestion, samples: Collection[int] | None
) -> Iterator[Line]:
    """The steps of a tree, each behind the one it goes on from and indented."""
    pool, parents, ends = on.pool, on.pool.parents or (), on.pool.ends or ()
    yield ()
    cots, steps = counted(len(on.codes) - on.turns, "CoT"), counted(len(on.codes), "step")
    holds = f"{cots} and {counted(on.turns, 'turn')}" if on.turns else f"tree of {steps}"
    yield ((f"{visible(on.llm)}, {holds}", HEAD),)
    children: dict[int | None, list[int]] = {}
    for step, parent in enumerate(parents):
        children.setdefault(parent, []).append(step)
    kept = None if samples is None else {step for each in samples for step in _path(parents, each)}
    waiting = [(step, 0) for step in reversed(children.get(None, ()))]
    while waiting:
        step, level = waiting.pop()
        waiting += [(child, level + 1) for child in reversed(children.get(step, ()))]
        if kept is not None and step not in kept:
            continue
        indent = "  " * level
        answer = (
            ((f"  {_verdict(asked, on.codes[step])}", _sign(asked, on.codes[step])[1]),)
            if ends[step]
            else ()
        )
        about = ", ".join([f"{pool.output_tokens[step]:,} tokens", *_scores(on, step)])
        said = on.said(step)
        noun = "turn" if said is not None else "CoT" if on.turns else "step"
        yield (f"{indent}{noun} {step}", HEAD), *answer, (f"  {visible(about)}", FAINT)
        for line in [] if said is None else _lines(said):
            yield ((f"{indent}  > {line}", FAINT),)
        for line in _lines(pool.texts[step] or ""):
            yield ((f"{indent}  {line}", PLAIN),)


def _path(parents: Sequence[int | None], step: int) -> Iterator[int]:
    """A step and those before it."""
    at: int | None = step if step < len(parents) else None
    while at is not None:
        yield at
        at = parents[at]


def question_dict(
    asked: RecordedQuestion, samples: Collection[int] | None = None
) -> dict[str, Any]:
    """Return a question with its CoTs, or some of them by sample index, as JSON values."""
    question = asked.question
    return {
        "dataset": asked.dataset,
        "id": question.id,
        "question": question.text,
        "choices": [{"label": label, "text": text} for label, text in question.choices],
        "answer": question.answer,
        "answer_key": question.answer_key,
        "llms": [_llm_dict(asked, on, samples) for on in asked.llms],
    }


def _llm_dict(
    asked: RecordedQuestion, on: LLMOnQuestion, samples: Collection[int] | None
) -> dict[str, Any]:
    counts = [
        {"answer": asked.answer(code), "count": count, "right": asked.is_right(code)}
        for code, count in on.counts()
    ]
    places = [place for place in range(len(on.codes)) if samples is None or place in samples]
    return {
        "llm": on.llm,
        "counts": counts,
        "samples": [_sample_dict(asked, on, place) for place in places],
    }


def _sample_dict(asked: RecordedQuestion, on: LLMOnQuestion, place: int) -> dict[str, Any]:
    pool = on.pool
    sample: dict[str, Any] = {
        "sample": place,
        "answer": pool.answers[place],
        "right": asked.is_right(on.codes[place]),
        "output_tokens": pool.output_tokens[place],
        "finish_reason": pool.finish_reasons[place],
        "text": pool.texts[place],
        "reasoning": pool.reasoning[place] if pool.reasoning is not None else None,
        "scores": {
            name: None if (own := scores[place]) is None else float(own)
            for name, scores in on.scores.items()
        },
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
