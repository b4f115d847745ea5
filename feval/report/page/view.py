"""A recording as a page to look at: its questions, by difficulty, with everything that was recorded
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from feval.cards.finish_reasons import FINISH_REASONS
from feval.executors.progress import reports
from feval.recording import Recording
from feval.replay import LLM, load
from feval.report.looking.overview import overview
from feval.report.looking.questions import (
    LLMOnQuestion,
    RecordedQuestion,
    answer_span,
    recorded_questions,
)
from feval.report.page.depth import NOT_SHOWN, trace_answers, tree, turn_text
from feval.report.page.document import escaped_json, html_page
from feval.report.page.questions import Caps, cut
from feval.report.tables.info import info_tables, pool_kinds
from feval.report.text import counted, fixed, percent, size

LIMITS = Caps(questions=20_000, answer=200, cot=20_000, texts=40_000_000, step=2_000, steps=1_000)
"""Limits of a page: `texts` is bytes here, of all questions together; the first questions in
recorded order are taken.
"""


@dataclass(frozen=True, slots=True)
class ViewPage:
    """A page, to be written as UTF-8, how many questions it has, and sentences on what it leaves
    out.
    """

    html: str
    questions: int
    left_out: list[str]


@reports("reading questions")
def view_page(
    recording: Recording,
    pairs: Mapping[str, Sequence[str]],
    *,
    first: int | None = None,
    limits: Caps = LIMITS,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> ViewPage:
    """Return a page with questions and CoTs of some datasets (id -> LLMs).

    Args:
        recording: holds them.
        pairs: which.
        first: of each dataset only its first questions, so many; `None` for as many as the limits
            allow.
        limits: of the page's size.
        progress: called with (questions done, most of a dataset).
    """
    llms = list(dict.fromkeys(llm for names in pairs.values() for llm in names))
    questions: list[dict[str, Any]] = []
    blocks: list[str] = []
    left_out: list[str] = []
    room, long = limits.texts, 0
    for place, (dataset, names) in enumerate(pairs.items()):
        share, asked = room // (len(pairs) - place), len(recording.votes(dataset))
        most = min(asked, limits.questions, asked if first is None else first)
        before = len(questions)
        for entry, block, shortened in _questions(recording, dataset, names, range(most), limits):
            share, room, long = share - len(block), room - len(block), long + shortened
            if share < 0 and len(questions) > before:
                break
            entry["d"] = [entry["d"].get(llm) for llm in llms]
            questions.append(entry | {"n": place})
            blocks.append(block)
            progress(len(blocks) - before, most)
        shown = len(questions) - before
        if shown < asked:
            why = (
                "--first"
                if shown == first
                else f"all would make the page larger than {size(limits.texts)}"
            )
            left_out.append(
                f"The first {shown:,} of {asked:,} questions of {dataset} are here ({why});"
                " --first, --dataset and --llm choose."
            )
    if long:
        left_out.append(
            f"{counted(long, 'text')} longer than {limits.cot:,} characters: the middle is left"
            " out."
        )
    data = {
        "datasets": list(pairs),
        "llms": llms,
        "finish": list(FINISH_REASONS),
        "questions": questions,
        "notes": left_out,
        "tables": [_table(recording, pairs)],
        "facts": [row for row in info_tables(recording)[0].rows if row[0] != "recording"],
    }
    cots = sum(
        code != NOT_SHOWN for entry in questions for pool in entry["d"] if pool for code in pool[0]
    )
    lede = (
        f"{counted(len(questions), 'question')} of {', '.join(pairs)}, {counted(cots, 'CoT')} of"
        f" {counted(len(llms), 'LLM')}."
    )
    title = f"Recording {recording.address or recording.path.resolve().name}"
    html = html_page(title, [lede], data, ("tables", "depth", "view"), blocks)
    return ViewPage(html, len(questions), left_out)


def _questions(
    recording: Recording, dataset: str, names: Sequence[str], rows: range, limits: Caps
) -> Iterator[tuple[dict[str, Any], str, int]]:
    """Each question's entry in the index, its texts as JSON, and how many of these were cut."""
    _, llms = load(dataset, names, recording, prices="none") if names else (None, [])
    for row, asked in zip(rows, recorded_questions(recording, dataset, names, rows), strict=True):
        question = asked.question
        entry = {
            "i": cut(question.id, limits.answer),
            "q": cut(question.text, limits.question),
            "g": None if question.answer is None else cut(question.answer, limits.answer),
            "c": [
                [cut(label, limits.answer), cut(text, limits.question)]
                for label, text in question.choices
            ],
            "a": [cut(answer, limits.answer) for answer in asked.candidates],
            "k": asked.gold,
            "d": {on.llm: _index(on) for on in asked.llms},
        }
        texts = {
            on.llm: _texts(llm, row, on, limits) for llm, on in zip(llms, asked.llms, strict=True)
        }
        yield entry, escaped_json(texts), _count_long(asked, limits)


def _index(on: LLMOnQuestion) -> list[Any]:
    """Codes, output tokens and finish reasons of an LLM's CoTs; steps that end nothing have a code
    that is not counted.
    """
    ends = on.pool.ends or [True] * len(on.codes)
    codes = [code if end else NOT_SHOWN for code, end in zip(on.codes, ends, strict=True)]
    return [
        codes,
        list(on.pool.output_tokens),
        [FINISH_REASONS.index(reason) for reason in on.pool.finish_reasons],
    ]


def _texts(llm: LLM, row: int, on: LLMOnQuestion, limits: Caps) -> dict[str, Any]:
    """Texts, where they say their answers, thoughts, scores, and traces or tree of an LLM on a
    question.
    """
    pool, places = on.pool, range(len(on.codes))
    if on.is_tree:
        texts = [
            turn_text(on.said(place), None if text is None else cut(text, limits.step, ends=True))
            for place, text in enumerate(pool.texts[: limits.steps])
        ]
        steps = tree(llm, row, places[: limits.steps], texts)
        kind = "CoTs and turns" if on.turns else "tree of steps"
        return {
            "x": texts,
            "tree": steps,
            "scorers": list(llm.pool.channels.scorers()),
            "kind": kind,
        }
    texts = [None if text is None else cut(text, limits.cot, ends=True) for text in pool.texts]
    content: dict[str, Any] = {
        "x": texts,
        "s": [
            _span(text, raw, key)
            for text, raw, key in zip(texts, pool.raw_answers, pool.answers, strict=True)
        ],
    }
    if pool.reasoning is not None and any(pool.reasoning):
        content["r"] = [
            None if text is None else cut(text, limits.cot, ends=True) for text in pool.reasoning
        ]
    if on.scores:
        content["p"] = on.scores
    if on.probes is not None:
        content["t"] = trace_answers(llm, row, places)
    return content


def _span(text: str | None, *answers: str | None) -> list[int] | None:
    """Where a text says its answer, counted in UTF-16 as scripts do."""
    span = None if text is None else answer_span(text, *answers)
    if text is None or span is None:
        return None
    return [len(text[:end].encode("utf-16-le", "surrogatepass")) // 2 for end in span]


def _count_long(asked: RecordedQuestion, limits: Caps) -> int:
    texts = [
        text for on in asked.llms for text in (*on.pool.texts, *(on.pool.reasoning or ())) if text
    ]
    return sum(len(text) > limits.cot for text in texts)


def _table(recording: Recording, pairs: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """How every LLM did on every dataset, over all of its questions."""
    held = pool_kinds(
        recording.manifest.pairs[dataset, llm] for dataset, llms in pairs.items() for llm in llms
    )
    each = "/ CoT" if held == "CoTs" else "each"
    names = (
        "dataset",
        "LLM",
        "#questions",
        f"#{held}",
        "#accuracy %",
        "#no answer %",
        "#cut off %",
        f"#tokens {each}",
    )
    rows = []
    for dataset, llms in pairs.items():
        seen = overview(recording, dataset, llms)
        votes, judged = recording.votes(dataset), ~np.isnan(seen.accuracy)
        for i, llm in enumerate(llms):
            pool = votes.llms[llm]
            present, cots = (
                np.arange(pool.codes.shape[1]) < pool.sizes[:, None],
                max(int(pool.sizes.sum()), 1),
            )
            ends = present if (steps := recording.steps(dataset, llm)) is None else steps.ends > 0
            right = float(seen.accuracy[i][judged[i]].mean()) if judged[i].any() else None
            none = ((pool.codes == -1) & ends).sum() / max(int(ends.sum()), 1)
            length = ((pool.finish == FINISH_REASONS.index("length")) & present).sum() / cots
            tokens = pool.output_tokens.sum(dtype=np.int64) / cots
            rows.append(
                [
                    dataset,
                    llm,
                    {"t": f"{len(votes):,}", "s": len(votes)},
                    {"t": f"{int(pool.sizes.sum()):,}", "s": int(pool.sizes.sum())},
                    {"t": "-" if right is None else percent(right), "s": right},
                    *({"t": percent(float(value)), "s": float(value)} for value in (none, length)),
                    {"t": fixed(float(tokens), 1), "s": float(tokens)},
                ]
            )
    return {
        "id": "llms",
        "link": "LLMs",
        "title": "LLMs",
        "intro": "Over all recorded questions; accuracy is the mean share of CoTs that are right.",
        "columns": [
            {"name": name.removeprefix("#"), "number": name.startswith("#")} for name in names
        ],
        "rows": rows,
        "notes": [],
    }
