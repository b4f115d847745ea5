"""The page of a recording on the Hub: a dataset card that people read, generated from the manifest and the figures.

Names, titles, notes, questions and CoTs come from outside. They are escaped, stand in code spans, or in fences that are longer
than any fence in them; nothing of theirs is markup.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from feval.cards.cards import find_dataset_card, price_ids
from feval.cards.prices import price_list
from feval.cards.tokens import SPLIT_USAGE, USAGE
from feval.errors import RecordingError
from feval.publish.configs import MOST_SPLITS, split_names
from feval.publish.figures import MOST_COTS, Accuracy, PairFigures
from feval.publish.front import front_matter
from feval.publish.licences import licence_name, licence_url
from feval.publish.loading import loading
from feval.publish.markdown import code, cut, fenced, folded, listed, plain, share, size, table
from feval.publish.origin import has_sent_prompts, is_imported, origin
from feval.publish.page import PICTURE, Page
from feval.publish.words import section
from feval.recording import Recording
from feval.report.text import counted, plain_number, visible

__all__ = ["card", "default_title"]

_UNBROKEN = "\u00a0"
_MOST_ROWS = 24
_MOST_TEXT = 1200
_MOST_PROMPT = 600
_MOST_NOTES = 12
_MOST_NAMED = 4


def default_title(recording: Recording) -> str:
    """What a recording is called where nobody gave it a title."""
    records = list(recording.manifest.datasets.values())
    if len(records) == 1:
        return f"{records[0]['title']}: recorded chains of thought"
    return f"Recorded chains of thought: {counted(len(recording.manifest.llms), 'LLM')} on {len(records)} datasets"


def card(recording: Recording, page: Page) -> str:
    """The whole README.md: front matter and page."""
    head = front_matter(
        recording,
        page.configs,
        title=visible(page.title),
        licence=page.licence,
        licence_details=_licence_details(recording, page),
        languages=page.languages,
        kept=page.kept,
    )
    parts = (
        _opening(recording, page),
        section(page.words),
        loading(recording, page),
        _accuracy(recording, page),
        _datasets(recording),
        _llms(recording),
        _prompts(recording),
        _example(recording),
        origin(recording),
        _prices(recording, page),
        _gaps(recording, page),
        _files(recording, page),
        _licences(recording, page),
        _citation(recording, page),
    )
    return f"{head}\n" + "\n\n".join("\n".join(part) for part in parts if part) + "\n"


# --- sections -----------------------------------------------------------------------------------------------------------


def _opening(recording: Recording, page: Page) -> list[str]:
    manifest = recording.manifest
    records = list(manifest.datasets.values())
    questions = sum(record["questions"] for record in records)
    cots = sum(pair["cots"] for pair in manifest.pairs.values())
    where = f"{len(records)} datasets"
    if len(records) <= _MOST_NAMED:
        where = (
            f"{where} ({listed(map(code, recording.dataset_ids()))})"
            if len(records) > 1
            else plain(records[0]["title"])
        )
    names = f" ({listed(map(code, manifest.llms))})" if len(manifest.llms) <= _MOST_NAMED else ""
    whole = len(manifest.pairs) == len(manifest.llms) * len(records)
    missing = "" if whole else " Not every LLM was asked the questions of every dataset."
    more = ["every question its gold answer"] * all(r["with_gold"] == r["questions"] for r in records)
    more += ["every request the prompt that was sent"] * has_sent_prompts(recording, page.configs)
    return [
        f"# {plain(page.title)}",
        "",
        (
            f"**{cots:,} {'chain' if cots == 1 else 'chains'} of thought.** {counted(len(manifest.llms), 'LLM')}{names} "
            f"answered {counted(questions, 'question')} of {where}, {_times(page)} each.{missing} "
            f"Every chain of thought (CoT) has {listed(_kept(page))}"
            f"{'; ' if more else ''}{' and '.join(more)}."
        ),
        "",
        (
            "This is a recording made with feval, by the protocol of [FEval-TTC](https://arxiv.org/abs/2511.01203): "
            "language models asked once, to be replayed for ever. Methods that spend compute at test time "
            "(self-consistency, best-of-N, early stopping, cascades) are compared on the same samples at fixed prices, "
            "without a single API call, and anybody can compute the numbers again."
        ),
        *(["", f"![{_picture_words(page)}]({PICTURE})", *_caption(page)] if page.has_picture else []),
    ]


def _kept(page: Page) -> list[str]:
    """What every CoT of the recording has."""
    rows = sum(split.rows for config in page.configs if config.part == "samples" for split in config.splits)
    texts = [split for config in page.configs if config.part == "texts" for split in config.splits]
    has_texts = rows == sum(split.rows - split.nulls.get("text", 0) for split in texts)
    ends = all(figures.unknown in {None, 0.0} for figures in page.figures)
    return [*(["its text"] * has_texts), "its answer as extracted", "its tokens", *(["why it ended"] * ends)]


def _times(page: Page) -> str:
    most = max((figures.largest for figures in page.figures), default=0)
    least = min((figures.smallest for figures in page.figures), default=0)
    times = {1: "once", 2: "twice"}.get(most, f"{most:,} times")
    return times if least == most else f"up to {times}"


def _picture_words(page: Page) -> str:
    datasets = len({figures.dataset for figures in page.figures})
    panels = ", a panel for each dataset" if datasets > 1 else ""
    return f"Accuracy of the vote of 1 to {MOST_COTS} CoTs against mean cost per question, a line for each LLM{panels}"


def _caption(page: Page) -> list[str]:
    """What the marks of a picture with panels are; a picture of one dataset says it itself."""
    if len({figures.dataset for figures in page.figures}) < 2:
        return []
    words = f"as many CoTs as every question has, {MOST_COTS} at most"
    return ["", f"*Open marks: one call. Filled marks: the vote of {words}.*"]


def _accuracy(recording: Recording, page: Page) -> list[str]:
    judged = [figures for figures in page.figures if figures.single is not None]
    if not judged:
        return ["## Accuracy", "", "The questions have no gold answers, so nothing is right or wrong here."]
    records = recording.manifest.datasets.values()
    lines = [
        "## Accuracy",
        "",
        "Of a single call, and of the plurality vote of all recorded CoTs of a question: expectations over all draws, "
        "ties broken by lot, no answer counted as wrong"
        + (
            ", questions without a gold answer left out"
            if any(record["with_gold"] < record["questions"] for record in records)
            else ""
        )
        + "; in brackets the 95 % interval (over questions)"
        + (
            ". Dollars are for 1,000 questions, each prompt paid once."
            if any(f.usd_vote is not None for f in judged)
            else "."
        ),
        "",
    ]
    header = [
        "LLM", "CoTs per question", "tokens per CoT", "one call, %", "full vote, %", "USD, one call", "USD, full vote",
    ]  # fmt: skip
    return lines + _by_dataset(recording, judged, header, _accuracy_cells, _best)


def _accuracy_cells(figures: PairFigures) -> list[str]:
    size = (
        f"{figures.smallest:,}"
        if figures.smallest == figures.largest
        else f"{figures.smallest:,} to {figures.largest:,}"
    )
    tokens = "-" if figures.output_tokens is None else f"{figures.output_tokens:,.{int(figures.output_tokens < 100)}f}"
    dollars = map(_thousand, (figures.usd_single, figures.usd_vote))
    return [size, tokens, _shown(figures.single), _shown(figures.vote), *dollars]


def _best(rows: Sequence[PairFigures]) -> str:
    best = max((row for row in rows if row.vote), key=lambda row: row.vote.value if row.vote else 0.0, default=None)
    if best is None or best.vote is None:
        return counted(len(rows), "LLM")
    return f"{counted(len(rows), 'LLM')}, best full vote {100 * best.vote.value:.1f} %"


def _datasets(recording: Recording) -> list[str]:
    rows = []
    for record in recording.manifest.datasets.values():
        known = find_dataset_card(record["id"])
        source = (
            f"[{plain(known.hub.repository)}](https://huggingface.co/datasets/{known.hub.repository})"
            if known is not None and known.hub is not None
            else "not stated"
        )
        golds = "all" if record["with_gold"] == record["questions"] else f"{record['with_gold']:,}"
        kind = plain(record["answer_kind"])
        rows.append([code(record["id"]), plain(record["title"]), f"{record['questions']:,}", golds, kind, source])
    extractors = listed(dict.fromkeys(code(record["extractor"]) for record in recording.manifest.datasets.values()))
    said = (
        "Answers were taken as the source has them, or extracted from the texts,"
        if is_imported(recording)
        else "Answers were extracted from the texts"
    )
    return [
        "## Questions",
        "",
        (
            f"{said} and made canonical (`0.5` and `1/2` are one answer) before anything was counted; the answer as "
            f"extracted is kept beside it. Extractor: {extractors}."
        ),
        "",
        *table(["dataset", "title", "questions", "with gold", "answers", "source"], rows),
    ]


def _llms(recording: Recording) -> list[str]:
    splits = split_names(recording)
    rows = []
    for name, record in recording.manifest.llms.items():
        other = {
            key: value
            for key, value in (record.get("decoding") or {}).items()
            if value not in (None, [], {}, "") and not (key == "model" and value == record.get("base"))
        }
        rows.append([
            code(name),
            code(splits[name]),
            *("not stated" if record.get(key) is None else f"{record[key]:,}" for key in ("temperature", "max_tokens")),
            code(", ".join(f"{key}={_compact(value)}" for key, value in other.items())) if other else "-",
        ])  # fmt: skip
    others = any(row[-1] != "-" for row in rows)
    rows = rows if others else [row[:-1] for row in rows]
    shown = "" if len(rows) <= MOST_SPLITS else (
        f" The viewer on this page shows configurations of at most {MOST_SPLITS} splits; all of them load."
    )  # fmt: skip
    return [
        "## LLMs and decoding",
        "",
        (
            "An LLM is a model under one prompt and decoding. *Split* is what `datasets` calls it: names of splits have "
            f"neither `-` nor `/`.{shown}"
        ),
        "",
        *table(["LLM", "split", "temperature", "max tokens", *(["other"] if others else [])], rows),
    ]


def _prompts(recording: Recording) -> list[str]:
    prompts: dict[str, list[str]] = {}
    for record in recording.manifest.datasets.values():
        if record.get("system_prompt"):
            prompts.setdefault(record["system_prompt"], []).append(record["id"])
    if not prompts:
        return []
    lines = ["## Prompts", "", "The request of every question is in `requests/`, message by message."]
    for prompt, datasets in list(prompts.items())[:_MOST_NOTES]:
        whose = "every dataset" if len(datasets) == len(recording.dataset_ids()) else listed(map(code, datasets))
        lines += ["", f"System prompt of {whose}:", "", *fenced(cut(prompt, _MOST_PROMPT))]
    return lines


def _example(recording: Recording) -> list[str]:
    """One question with its request and its first CoT, folded; left out where the recording keeps no texts of it."""
    dataset = recording.dataset_ids()[0]
    names = recording.llm_names(dataset)
    try:
        question = recording.questions(dataset)[0]
        texts = recording.texts(dataset, names[0], 0) if names else []
        request = recording.prompts(dataset, names[0]).get(question.id) if names else None
    except RecordingError:  # a folder without all its files; `prepare` has checked what is published
        return []
    if not texts or texts[0] is None:
        return []
    votes = recording.votes(dataset)
    answer = int(votes.llms[names[0]].codes[0, 0])
    said = votes.candidates(0)[answer] if answer >= 0 else None
    key = question.answer_key
    head = f"One question, and the first chain of thought of {html.escape(visible(names[0]))}"
    answers = f"Extracted: {code(said) if said else 'no answer'}. Gold: {code(key) if key else 'none'}."
    return [
        "<details>",
        f"<summary>{head}</summary>",
        "",
        *fenced(cut(_messages(request) or question.text, _MOST_TEXT)),
        "",
        "The chain of thought:",
        "",
        *fenced(cut(texts[0], _MOST_TEXT)),
        "",
        answers,
        "",
        "</details>",
    ]


def _prices(recording: Recording, page: Page) -> list[str]:
    return ["## Prices", "", *_price_list(recording), "", _counters(page)]


def _counters(page: Page) -> str:
    """Who counted the tokens: an estimate makes the dollars an estimate."""
    counters: dict[str, list[str]] = {}
    for figures in page.figures:
        counters.setdefault(figures.counter, []).append(code(figures.llm))
    told = {
        name: {
            USAGE: "those that the provider reported (`usage`)",
            SPLIT_USAGE: f"the provider's totals of several CoTs, split by the length of their texts (`{SPLIT_USAGE}`)",
            "words": "estimates, 1.365 for each word (`words`), and dollars from them are estimates, too",
        }.get(name, f"counted by {code(name)}")
        for name in counters
    }
    if len(told) == 1:
        return f"The tokens are {told.popitem()[1]}."
    return " ".join(f"The tokens of {_few(names)} are {told[name]}." for name, names in counters.items())


def _price_list(recording: Recording) -> list[str]:

    named = recording.manifest.prices
    lines: list[str] = []
    if named == "none":
        return [*lines, "The recording names no price list. It holds tokens and no dollars: any list can be put to it."]
    if named not in price_ids():
        return [
            *lines,
            f"The recording names the price list {code(named)}, which the feval that wrote this page does not know.",
        ]
    prices = price_list(named)
    bases = list(dict.fromkeys(str(record.get("base")) for record in recording.manifest.llms.values()))
    rows = []
    for base in bases:
        price = prices.find(base)
        note = plain(prices.notes.get(base, ""))
        cells = (
            ["not listed", "not listed"]
            if price is None
            else [f"{p:,.10g}" for p in (price.input_usd_per_mtok, price.output_usd_per_mtok)]
        )
        rows.append([code(base), *cells, note])
    if not any(row[3] for row in rows):
        rows = [row[:3] for row in rows]
    header = ["LLM", "input", "output", "note"][: len(rows[0])] if rows else []
    return [
        *lines,
        (
            f"Price list {code(named)} of {plain(prices.date)}, USD per million tokens. The recording holds tokens and "
            f"no dollars: any other list can be put to it. Source: {plain(prices.source)}."
        ),
        "",
        *table(header, rows),
    ]


def _gaps(recording: Recording, page: Page) -> list[str]:
    lacking = [figures for figures in page.figures if _gap(figures)]
    unknown = [figures for figures in page.figures if figures.unknown]
    notes = [str(note) for note in recording.manifest.raw.get("notes", ())]
    lines = ["## Known gaps", ""]
    if lacking:
        lines += [
            _gap_words(lacking),
            "",
            *_by_dataset(
                recording,
                lacking,
                ["LLM", "questions asked", "no answer", "cut off", "withheld or failed"],
                _gap_cells,
                _worst,
            ),
        ]
        if len(lacking) < len(page.figures):
            lines += ["", "No such gap is known of the others."]
    else:
        end = "" if unknown else " and came to its end"
        lines.append(f"Every question was asked, and every CoT has an answer{end}.")
    if unknown:
        names = _few(code(figures.llm) for figures in unknown)
        some = "" if all(figures.unknown == 1 for figures in unknown) else ", or not of every CoT"
        lines += ["", f"Whether CoTs came to their end is not known of {names}{some}."]
    if notes:
        items = [f"- {plain(note)}" for note in notes]
        head = "Noted when it was made:"
        lines += ["", *([head, "", *items] if len(items) <= _MOST_NOTES else folded(head, items))]
    return lines


def _gap_words(lacking: Sequence[PairFigures]) -> str:
    words = "A CoT without an answer never votes and is never right, yet costs what it costs."
    if any(figures.truncated or figures.withheld for figures in lacking):
        words += (
            " *Cut off* are CoTs that met the limit on output tokens; *withheld or failed* are those that a filter "
            "stopped, or that ended in an error."
        )
    return words


def _gap(figures: PairFigures) -> bool:
    shares = (figures.no_answer, figures.truncated, figures.withheld)
    return figures.asked < figures.questions or any(share for share in shares)


def _gap_cells(figures: PairFigures) -> list[str]:
    asked = "all" if figures.asked == figures.questions else f"{figures.asked:,} of {figures.questions:,}"
    return [asked, *map(share, (figures.no_answer, figures.truncated, figures.withheld))]


def _worst(rows: Sequence[PairFigures]) -> str:
    most = max(row.no_answer or 0.0 for row in rows)
    return f"{counted(len(rows), 'LLM')}, at most {share(most)} without an answer"


def _few(found: Iterable[str]) -> str:
    names = list(dict.fromkeys(found))
    return listed(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


_PARTS = {
    "samples": (
        (
            "`llm`, `question_id`, `sample_index`, `answer_raw`, `answer` (normal form; null for none), `correct` (null without "
            "a gold), `output_tokens`, `finish_reason`, and seed, response id, served model where known"
        ),
        "samples/*/*.parquet",
    ),
    "questions": (
        "`question_id`, `question`, `answer` (the gold), `answer_key` (its normal form), `choices`",
        "questions/*.parquet",
    ),
    "texts": ("`llm`, `question_id`, `sample_index`, `text`: the chain of thought", "texts/*/*.parquet"),
    "requests": ("`llm`, `question_id`, `prompt` (messages as JSON), `prompt_tokens`", "requests/*/*.parquet"),
    "equality": ("`question_id`, `left`, `right`, `gold`, `equal`: pairs of answers compared", "equality/*.parquet"),
    "reasoning": (
        "`reasoning`: thoughts, given apart or split off the text; `marks`: where they stood in it",
        "reasoning/*/*.parquet",
    ),
    "logprobs": ("`sequence_logprob`, `token_confidences`, `token_logprobs`", "logprobs/*/*.parquet"),
    "scores": ("`score`, `step_scores`, `verdict` of judges and reward models", "scores/*/*/*.parquet"),
}


def _files(recording: Recording, page: Page) -> list[str]:
    sizes: dict[str, int] = {}
    for path, record in recording.manifest.files.items():
        sizes[path.split("/")[0]] = sizes.get(path.split("/")[0], 0) + record["bytes"]
    base = page.configs[0].dataset if page.configs else ""
    rows = []
    for part, (columns, files) in _PARTS.items():
        names = [config.name for config in page.configs if config.part == part]
        if names:
            own = page.config_name(base, part) or names[0]
            rows.append([code(own), code(files), size(sizes.get(part, 0)).replace(" ", _UNBROKEN), columns])
    several = len(recording.dataset_ids()) > 1
    return [
        "## What is in the files",
        "",
        (
            f"For each dataset, here {code(base)}:"
            if several
            else "One row per CoT, sorted by question and sample index:"
        ),
        "",
        *table(["configuration", "files", "size", "columns"], rows),
        "",
        (
            f"`votes/` holds the same answers as flat arrays ({size(sizes.get('votes', 0))}), which feval opens without "
            "reading any Parquet; `manifest.json` has sizes and hashes of all files. This recording hash pins the "
            "content, whoever wrote the bytes:"
        ),
        "",
        "```text",
        recording.hash,
        "```",
        "",
        f"`feval verify hf://{page.pinned}` computes it again.",
    ]


def _licences(recording: Recording, page: Page) -> list[str]:
    url = licence_url(page.licence)
    name = plain(licence_name(page.licence))
    stated = recording.manifest.raw.get("licences") or {}
    rows = [["the collection, as a database", f"[{name}]({url})" if url else name]]
    rows += [
        [f"questions of {code(record['id'])}", plain(record.get("licence") or stated.get("questions") or "not stated")]
        for record in recording.manifest.datasets.values()
    ]
    rows.append(
        ["what the LLMs wrote", plain(stated.get("outputs") or "not stated; the terms of their providers apply")]
    )
    return [
        "## Licences",
        "",
        "The collection, the questions and the outputs have licences of their own. `LICENSE` has the notice of the collection.",
        "",
        *table(["what", "licence"], rows),
    ]


def _citation(recording: Recording, page: Page) -> list[str]:
    created = str(recording.manifest.raw.get("created", ""))
    year = created[:4] if re.fullmatch(r"\d{4}-.*", created) else "n.d."
    owner, name = page.repo_id.split("/")
    key = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "recording"
    title = re.sub(r"[\\{}$&#_^~%]", " ", visible(page.title))
    papers = {
        known.citation: record["id"]
        for record in recording.manifest.datasets.values()
        if (known := find_dataset_card(record["id"])) is not None
    }
    bibtex = [
        f"@misc{{{key},",
        f"  title        = {{{' '.join(title.split())}}},",
        f"  author       = {{{{{owner}}}}},",
        f"  year         = {{{year}}},",
        f"  howpublished = {{\\url{{https://huggingface.co/datasets/{page.repo_id}}}}},",
        f"  note         = {{Recording hash {recording.hash[:16]}{', version ' + page.revision if page.revision else ''}}}",
        "}",
    ]
    lines = ["## Citation", "", "```bibtex", *bibtex, "```"]
    if papers:
        items = [f"- {code(dataset)}: {plain(citation)}" for citation, dataset in papers.items()]
        head = "Please cite those who made the questions, too:"
        lines += ["", *([head, "", *items] if len(items) <= _MOST_NOTES else folded(head, items))]
    return [*lines, "", "The protocol is that of FEval-TTC, [arXiv:2511.01203](https://arxiv.org/abs/2511.01203)."]


# --- pieces -------------------------------------------------------------------------------------------------------------


def _by_dataset(
    recording: Recording,
    rows: Sequence[PairFigures],
    header: Sequence[str],
    cells: Callable[[PairFigures], list[str]],
    summary: Callable[[Sequence[PairFigures]], str],
) -> list[str]:
    """One table, with the dataset in front where there are several; of many rows, a folded table for each dataset.

    The header begins with the LLM, `cells` gives the others; columns in which nothing is known are left out.
    """
    body = [[code(row.llm), *cells(row)] for row in rows]
    used = [n for n in range(len(header)) if any(line[n] != "-" for line in body)]
    header, body = [header[n] for n in used], [[line[n] for n in used] for line in body]
    if len(recording.dataset_ids()) == 1:
        return table(header, body)
    if len(rows) <= _MOST_ROWS:
        return table(["dataset", *header], ([code(row.dataset), *line] for row, line in zip(rows, body, strict=True)))
    lines: list[str] = []
    for dataset in dict.fromkeys(row.dataset for row in rows):
        own = [(row, line) for row, line in zip(rows, body, strict=True) if row.dataset == dataset]
        title = f"{html.escape(visible(dataset))}: {summary([row for row, _ in own])}"
        lines += [*folded(title, table(header, (line for _, line in own))), ""]
    return lines[:-1]


def _messages(request: str | None) -> str | None:
    """The messages of a request, one after the other; `None` where they are not known, or not in this form."""
    try:
        told = json.loads(request) if request else None
    except ValueError:
        return request
    if not isinstance(told, list) or not all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in told):
        return request
    return "\n\n".join(f"[{message.get('role')}]\n{message['content']}" for message in told) or None


def _licence_details(recording: Recording, page: Page) -> str:
    stated = recording.manifest.raw.get("licences") or {}
    own = {record["id"]: record.get("licence") for record in recording.manifest.datasets.values()}
    questions = ", ".join(
        f"{dataset} {licence or stated.get('questions') or 'not stated'}" for dataset, licence in own.items()
    )
    outputs = stated.get("outputs") or "not stated"
    return visible(f"Collection: {licence_name(page.licence)}. Questions: {questions}. Outputs: {outputs}.")


def _shown(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return "-"
    interval = f"({100 * accuracy.low:.1f} to {100 * accuracy.high:.1f})"
    return f"{100 * accuracy.value:.1f} {interval}".replace(" ", _UNBROKEN)


def _thousand(usd: float | None) -> str:
    return "-" if usd is None else plain_number(1000 * usd)


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
