"""The questions of a page, within limits of size: of a report with what every method did, and of a
recording, as a page to look at, with everything that was recorded of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from feval.cards import FINISH_REASONS
from feval.evaluation.replicates import drawn_orders
from feval.executors import Progress, reports, silent
from feval.recording import Recording
from feval.replay import LLM, load
from feval.report.looking import LLMOnQuestion, answer_span, overview, readable, recorded_questions
from feval.report.page.document import escaped_json, html_page, table_data
from feval.report.tables.recordings import info_tables, pool_kinds
from feval.report.tables.tables import Fields, make_table, number, share
from feval.report.text import counted, size
from feval.values import Record, frozen

if TYPE_CHECKING:
    from feval.comparison.comparison import Traces
    from feval.replay import Dataset

_ELLIPSIS = " […] "
_NOT_SHOWN = -2
"""Stands for the answer where a page shows none: of steps that end nothing, and of traces beyond a
number of changes.
"""

_MOST_CHANGES = 240


@frozen
class Caps:
    """Limits on a page's text: the number of questions, then characters of a question, an answer, a
    CoT and all CoTs together.

    Of a long CoT its beginning and end are shown; beyond `texts`, only each LLM's first CoTs in
    draw order have their text. The first `deep` questions have traces with probes, and trees of
    steps, of each LLM so many.
    """

    questions: int = 5_000
    question: int = 4_000
    answer: int = 120
    cot: int = 600
    texts: int = 8_000_000
    deep: int = 20
    traces: int = 32
    steps: int = 200
    step: int = 240


REPORT = Caps()
LIMITS = Caps(questions=20_000, answer=200, cot=20_000, texts=40_000_000, step=2_000, steps=1_000)
"""Limits of a recording's page: `texts` is bytes here, of all questions together; the first
questions in recorded order are taken.
"""


def cut(text: str | None, most: int, *, ends: bool = False) -> str | None:
    """Cut a text to so many characters; `ends` keeps its end too, where a CoT has its answer."""
    if text is None or len(text) <= most:
        return text
    tail = (most - len(_ELLIPSIS)) // 3 if ends else 0
    head = most - len(_ELLIPSIS) - tail
    return text[:head] + _ELLIPSIS + (text[-tail:] if tail else "")


def _entry(question: Any, text: str, candidates: Sequence[str], gold: int, caps: Caps) -> Any:
    """Id, text, gold, choices, distinct answers and the gold's code."""
    return {
        "i": cut(question.id, caps.answer),
        "q": cut(text, caps.question),
        "g": cut(question.answer, caps.answer),
        "c": [
            [cut(label, caps.answer), cut(choice, caps.question)]
            for label, choice in question.choices
        ],
        "a": [cut(answer, caps.answer) for answer in candidates],
        "k": gold,
    }


def _party_shares(pools: Iterable[tuple[Sequence[int], Sequence[float]]]) -> dict[int, float]:
    """How right the CoTs with each answer are on average; nothing where the gold says it."""
    given: dict[int, list[float]] = {}
    for codes, rights in pools:
        for code, right in zip(codes, rights, strict=False):
            given.setdefault(code, []).append(right)
    return {code: round(sum(own) / len(own), 4) for code, own in given.items()}


def question_book(
    dataset: Dataset, llms: Sequence[LLM], traces: Traces, seed: int, caps: Caps
) -> Record:
    """Return the questions of a report, with CoTs and what the methods did in draws of one seed, as
    JSON values.
    """
    rows = traces.rows[: caps.questions].tolist()
    draws = [llm.seeded(seed) for llm in llms]
    whole = [llm for llm in draws if not llm.pool.channels.has_steps]
    texts = _texts_per_pool(whole, rows, caps)
    orders = [_order(llm, traces.order, rows) for llm in draws]
    places = {llm.name: place for place, llm in enumerate(draws)}
    questions = []
    for place, row in enumerate(rows):
        drawn = [order[place].tolist() for order in orders]
        entry, gold = dataset[row], int(dataset.gold[row])
        question = _entry(entry, entry.question, dataset.candidates(row), gold, caps)
        if dataset.rightness is not None and dataset.rightness.is_mixed[row]:
            of_llm = dataset.rightness.of_llm
            question["p"] = _party_shares(
                (llm.pool.codes[row].tolist(), of_llm[llm.name][row].tolist()) for llm in llms
            )
        question["d"] = [
            _pool(llm, own, row, texts, caps) for llm, own in zip(draws, drawn, strict=True)
        ]
        question["m"] = [
            [[int(trace.answer[place]), *trace.cots[:, place].tolist()] for trace in curve]
            for curve in traces.curves
        ]
        if place < caps.deep:
            question |= _depth(draws, traces, drawn, place, row, caps)
        questions.append(question)
    return {
        "llms": [llm.name for llm in draws],
        "trees": [None if llm in whole else list(llm.pool.channels.scorers()) for llm in draws],
        "turns": [llm.pool.channels.has_turns for llm in draws],
        "methods": [
            {
                "label": curve[0].label if curve else "",
                "points": [trace.budget for trace in curve],
                "llms": [[places[name] for name in trace.llms] for trace in curve],
            }
            for curve in traces.curves
        ],
        "questions": questions,
        "lede": _lede(traces, seed),
        "notes": _notes(traces, rows, draws, texts, caps),
    }


def _lede(traces: Traces, seed: int) -> str:
    order, more = "in recorded order", ""
    if traces.order == "seeded":
        order = f"in one seeded draw (seed {seed}, replicate 0)"
        more = " The results above are means or expectations over draws; this is one of them."
    return (
        f"What every method did with every question, {order}. Open a question, then choose a"
        " method's answer to see which CoTs it drew and where it stopped, or a CoT to read"
        f" it.{more}"
    )


def _notes(
    traces: Traces, rows: list[int], llms: Sequence[LLM], texts: int, caps: Caps
) -> list[str]:
    notes = [f"{label} is not followed here: {reason}" for label, reason in traces.missing]
    if len(rows) < traces.judged:
        notes.append(
            f"The first {len(rows):,} of {traces.judged:,} questions are shown. The results above"
            " are over all of them; questions.parquet, which `feval compare --out` writes beside"
            " this page, has every method's numbers on each."
        )
    pools = [llm.pool for llm in llms]
    largest = max((int(p.sizes.max()) for p in pools if not p.channels.has_steps), default=0)
    if largest:
        few = f", and only the first {texts} CoTs that each LLM drew have their text here"
        notes.append(
            f"Texts longer than {caps.cot} characters are cut in the"
            f" middle{few if texts < largest else ''}; the recording holds all of it."
        )
    if any(pool.channels.has_probes for pool in pools):
        notes.append(
            f"The first {caps.deep} questions show the first {caps.traces} traces of each LLM with"
            " their probes, and where methods stopped them."
        )
    if any(pool.channels.has_steps for pool in pools):
        notes.append(
            f"The first {caps.deep} questions show {caps.steps} steps of a tree, first those that"
            f" methods took; texts longer than {caps.step} characters are cut in the middle."
        )
    return notes


def _order(llm: LLM, order: str, rows: list[int]) -> Any:
    """[Q, smallest pool] indices of the CoTs in the order in which they are drawn."""
    draws = int(llm.pool.sizes[rows].min()) if rows and not llm.pool.channels.has_steps else 0
    if not draws:
        return np.zeros((len(rows), 0), np.uint16)
    return next(drawn_orders(llm, order, 1, draws, np.asarray(rows, np.intp)))[0]


def _texts_per_pool(llms: Sequence[LLM], rows: list[int], caps: Caps) -> int:
    """Number of CoTs per pool that have their text in the page, from the lengths on a sample of the
    questions.
    """
    sampled = rows[:: max(1, len(rows) // 16)]
    lengths = [
        min(len(text or ""), caps.cot) for llm in llms for row in sampled for text in llm.texts(row)
    ]
    if not lengths:
        return 0
    each = max(1.0, sum(lengths) / len(lengths)) * len(rows) * len(llms)
    return min(int(caps.texts / each), max(int(llm.pool.sizes.max()) for llm in llms))


def _pool(llm: LLM, drawn: list[int], row: int, texts: int, caps: Caps) -> list[Any]:
    """Codes, output tokens and texts of a pool in draw order, then the CoTs beyond the smallest
    pool.
    """
    if llm.pool.channels.has_steps:
        return []
    reached = set(drawn)
    order = [*drawn, *(i for i in range(int(llm.pool.sizes[row])) if i not in reached)]
    written = llm.texts(row) if texts else []
    return [
        llm.pool.codes[row, order].tolist(),
        llm.pool.output_tokens[row, order].tolist(),
        [
            cut(readable(written[place], caps.step), caps.cot, ends=True)
            for place in islice(order, texts)
        ],
        len(drawn),
    ]


def _depth(
    llms: Sequence[LLM],
    traces: Traces,
    drawn: Sequence[list[int]],
    place: int,
    row: int,
    caps: Caps,
) -> Record:
    """By LLM, its traces with their probes or its tree; by method, point and LLM, tokens of each
    trace or the steps taken.
    """
    if not any(llm.pool.channels.has_probes or llm.pool.channels.has_steps for llm in llms):
        return {}
    grown = [
        [
            dict(zip(trace.llms, trace.grown[place], strict=True))
            if place < len(trace.grown)
            else {}
            for trace in curve
        ]
        for curve in traces.curves
    ]
    content: list[Any] = []
    kept: dict[str, dict[int, int]] = {}
    for llm, own in zip(llms, drawn, strict=True):
        channels = llm.pool.channels
        if channels.has_steps:
            taken = {
                step for curve in grown for each in curve for step, _ in each.get(llm.name, ())
            }
            # visited steps before others; they rise, so parents come first
            every = range(int(llm.pool.sizes[row]))
            steps = sorted(sorted(every, key=lambda at: (at not in taken, at))[: caps.steps])
            kept[llm.name] = {step: number for number, step in enumerate(steps)}
            content.append(_tree(llm, row, steps, llm.texts(row), llm.messages(row), caps))
        else:
            some = own[: caps.traces]
            content.append(_trace_answers(llm, row, some) if channels.has_probes else None)

    def shown(name: str, own: Any) -> list[int] | None:
        if own is None or name in kept:
            return own and [kept[name][step] for step, _ in own if step in kept[name]]
        return [tokens for _, tokens in own[: caps.traces]]

    reached = [
        [[shown(llm.name, each.get(llm.name)) for llm in llms] for each in curve] for curve in grown
    ]
    return {"t": content, "r": reached}


def _trace_answers(llm: LLM, row: int, places: Sequence[int]) -> list[list[list[int]]]:
    """Return, for each CoT, the token after which each new answer was probed, and the answer's
    code.
    """
    probes, answers = llm.pool.probes(), []
    for place in places:
        own = probes.of(row, place)
        codes = probes.codes[own].astype(np.int64)
        changes = np.flatnonzero(np.diff(codes, prepend=_NOT_SHOWN))
        codes[changes[_MOST_CHANGES:]] = _NOT_SHOWN
        changes = changes[: _MOST_CHANGES + 1]
        answers.append(np.column_stack([probes.offsets[own][changes], codes[changes]]).tolist())
    return answers


def _tree(
    llm: LLM,
    row: int,
    places: Sequence[int],
    texts: Sequence[str | None],
    messages: Sequence[str | None] | None,
    caps: Caps,
) -> list[list[Any]]:
    """Return, for each step at some places, number of its parent among them, tokens, answer's code,
    scores, and text behind what a turn was sent.
    """
    steps, pool = llm.pool.steps(), llm.pool
    number = {place: i for i, place in enumerate(places)}
    scores = [pool.scores(name).values[row] for name in pool.channels.scorers()]
    content = []
    for place in places:
        text = readable(texts[place], caps.step)
        if messages and (sent := messages[place]) is not None:
            text = f"{readable(sent, caps.step)}\n\n── assistant ──\n{text or ''}"
        own = [None if np.isnan(each[place]) else round(float(each[place]), 4) for each in scores]
        code = int(pool.codes[row, place]) if steps.ends[row, place] else _NOT_SHOWN
        parent = number.get(int(steps.parents[row, place]), -1)
        text = cut(text, caps.step, ends=True)
        content.append([parent, int(pool.output_tokens[row, place]), code, own, text])
    return content


class ViewPage(NamedTuple):
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
    right: str | None = None,
    limits: Caps = LIMITS,
    progress: Progress = silent,
) -> ViewPage:
    """Return a page with questions and CoTs of some datasets (id -> LLMs).

    Args:
        recording: holds them.
        pairs: which.
        first: of each dataset only its first questions, so many; `None` for as many as the limits
            allow.
        right: what says which CoTs are right, as for `load`.
        limits: of the page's size.
        progress: called with (questions done, most of a dataset).
    """
    llms = list(dict.fromkeys(llm for names in pairs.values() for llm in names))
    questions: list[Record] = []
    blocks: list[str] = []
    left_out: list[str] = []
    room, long = limits.texts, 0
    for place, (dataset, names) in enumerate(pairs.items()):
        share, asked = room // (len(pairs) - place), len(recording.votes(dataset))
        most = min(asked, limits.questions, asked if first is None else first)
        before = len(questions)
        every = _questions(recording, dataset, names, range(most), right, limits)
        for entry, block, shortened in every:
            share, room, long = share - len(block), room - len(block), long + shortened
            if share < 0 and len(questions) > before:
                break
            entry["d"] = [entry["d"].get(llm) for llm in llms]
            questions.append(entry | {"n": place})
            blocks.append(block)
            progress(len(blocks) - before, most)
        shown = len(questions) - before
        if shown < asked:
            why = f"all would make the page larger than {size(limits.texts)}"
            left_out.append(
                f"The first {shown:,} of {asked:,} questions of {dataset} are here"
                f" ({'--first' if shown == first else why}); --first, --dataset and --llm choose."
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
        "tables": [_table(recording, pairs, right)],
        "facts": [row for row in info_tables(recording)[0].rows if row[0] != "recording"],
    }
    codes = (code for entry in questions for pool in entry["d"] if pool for code in pool[0])
    cots = counted(sum(code != _NOT_SHOWN for code in codes), "CoT")
    lede = (
        f"{counted(len(questions), 'question')} of {', '.join(pairs)}, {cots} of"
        f" {counted(len(llms), 'LLM')}."
    )
    several = counted(len(pairs), "dataset") if len(pairs) > 3 else ", ".join(pairs)
    title = f"Recording {recording.address}" if recording.address else f"Recording of {several}"
    html = html_page(title, [lede], data, ("tables", "depth", "view"), blocks)
    return ViewPage(html, len(questions), left_out)


def _questions(
    recording: Recording,
    dataset: str,
    names: Sequence[str],
    rows: range,
    right: str | None,
    limits: Caps,
) -> Iterator[tuple[Record, str, int]]:
    """Each question's entry in the index, its texts as JSON, and how many of these were cut."""
    _, llms = load(dataset, names, recording, prices="none", right="gold")
    every = recorded_questions(recording, dataset, names, rows, right)
    for row, asked in zip(rows, every, strict=True):
        question, on_each = asked.question, asked.llms
        entry = _entry(question, question.text, asked.candidates, asked.gold, limits)
        entry["d"] = {on.llm: _index(on) for on in on_each}
        if shares := _party_shares((on.codes, on.right) for on in on_each):
            entry["p"] = shares
        texts = {
            on.llm: _texts(llm, row, on, limits) for llm, on in zip(llms, on_each, strict=True)
        }
        written = (text for on in on_each for text in (*on.pool.texts, *(on.pool.reasoning or ())))
        long = sum(len(text or "") > limits.cot for text in written)
        yield entry, escaped_json(texts), long


def _index(on: LLMOnQuestion) -> list[Any]:
    """Codes, output tokens, finish reasons of an LLM's CoTs, and how right they are where it is no
    party of answers; steps that end nothing have a code that is not counted.
    """
    ends = on.pool.ends or [True] * len(on.codes)
    codes = [code if end else _NOT_SHOWN for code, end in zip(on.codes, ends, strict=True)]
    finish = [FINISH_REASONS.index(reason) for reason in on.pool.finish_reasons]
    return [codes, list(on.pool.output_tokens), finish, [round(right, 4) for right in on.right]]


def _texts(llm: LLM, row: int, on: LLMOnQuestion, limits: Caps) -> Record:
    """Texts, where they say their answers, thoughts, scores, and traces or tree of an LLM on a
    question.
    """
    pool, places = on.pool, range(len(on.codes))
    if on.is_tree:
        steps = _tree(llm, row, places[: limits.steps], pool.texts, pool.messages, limits)
        return {
            "x": [step[-1] for step in steps],
            "tree": steps,
            "scorers": list(llm.pool.channels.scorers()),
            "kind": "CoTs and turns" if on.turns else "tree of steps",
        }
    texts, thoughts = (
        [cut(readable(text, limits.cot), limits.cot, ends=True) for text in own or ()]
        for own in (pool.texts, pool.reasoning)
    )
    spans = map(_span, texts, pool.raw_answers, pool.answers)
    content: Record = {"x": texts, "s": list(spans)}
    if any(thoughts):
        content["r"] = thoughts
    if on.scores:
        content["p"] = on.scores
    if on.probes is not None:
        content["t"] = _trace_answers(llm, row, places)
    return content


def _span(text: str | None, *answers: str | None) -> list[int] | None:
    """Where a text says its answer, counted in UTF-16 as scripts do."""
    span = None if text is None else answer_span(text, *answers)
    if text is None or span is None:
        return None
    return [len(text[:end].encode("utf-16-le", "surrogatepass")) // 2 for end in span]


def _table(recording: Recording, pairs: Mapping[str, Sequence[str]], right: str | None) -> Record:
    """How every LLM did on every dataset, over all of its questions."""
    manifest = recording.manifest.pairs
    held = pool_kinds(manifest[dataset, llm] for dataset, llms in pairs.items() for llm in llms)
    records = []
    for dataset, llms in pairs.items():
        seen, votes = overview(recording, dataset, llms, right), recording.votes(dataset)
        for llm, accuracy in zip(llms, seen.accuracy, strict=True):
            pool, judged = votes.llms[llm], accuracy[~np.isnan(accuracy)]
            present = pool.codes > -2
            ends = present if (steps := recording.steps(dataset, llm)) is None else steps.ends > 0
            length = (pool.finish == FINISH_REASONS.index("length")) & present
            cots = int(pool.sizes.sum())
            own = {"dataset": dataset, "llm": llm, "questions": len(votes), "cots": cots}
            own |= {
                "right": float(judged.mean()) if len(judged) else None,
                "none": float(((pool.codes == -1) & ends).sum() / max(int(ends.sum()), 1)),
                "cut": float(length.sum() / max(cots, 1)),
                "tokens": float(pool.output_tokens.sum(dtype=np.int64) / max(cots, 1)),
            }
            records.append(own)
    fields: Fields = {
        "dataset": "dataset",
        "LLM": "llm",
        "#questions": "questions",
        f"#{held}": "cots",
        "#accuracy %": share("right"),
        "#no answer %": share("none"),
        "#cut off %": share("cut"),
        f"#tokens {'/ CoT' if held == 'CoTs' else 'each'}": number(1, "tokens"),
    }
    intro = "Over all recorded questions; accuracy is the mean share of CoTs that are right."
    return table_data(make_table("LLMs", fields, records, link="LLMs", intro=intro))
