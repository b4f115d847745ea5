"""The page of a recording on the Hub: `dataset_card.md.jinja` filled in from the manifest and the
figures.

Names, titles, notes, questions and CoTs come from outside. They are escaped, in code spans, or in
fences longer than any fence in them; none of it is markup.
"""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from importlib.resources import files
from itertools import chain
from typing import Any

from feval import hub
from feval.cards import PriceList, find_dataset_card
from feval.cards.reading import parse_json
from feval.cards.tokens import NONE, SPLIT_USAGE, USAGE
from feval.errors import RecordingError
from feval.publish.figures import MOST_COTS, PairFigures, gap_table, price_section, unpaid_cots
from feval.publish.front_matter import (
    MOST_SPLITS,
    Config,
    FileSplit,
    Licence,
    outputs_licence,
    split_names,
)
from feval.publish.markdown import (
    BEGIN,
    END,
    UNBROKEN,
    bullets,
    code,
    cut,
    fenced,
    folded,
    listed,
    plain,
    python_text,
    shell_word,
    table,
)
from feval.recording import Recording
from feval.recording.layout.format import slug
from feval.report.text import counted, size, visible
from feval.values import Record, RecordLike, frozen

PICTURE = "figures/cost-accuracy.png"
"""The picture's path in the repository."""
SURFACES = "figures/width-depth"
"""What the paths of pictures of width and depth begin with."""

_SIZES = (
    "n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B",
    "1B<n<10B", "10B<n<100B", "100B<n<1T", "n>1T",
)  # fmt: skip
_TAGS = (
    "feval", "llm", "chain-of-thought", "test-time-compute", "self-consistency", "evaluation",
    "synthetic",
)  # fmt: skip
_MOST_TEXT = 1200
_MOST_PROMPT = 600
_MOST_PROMPTS = 12
_MOST_NAMED = 4
_EXAMPLES = {
    "": ("llms[0](dataset.question_ids[0], n=1).answers", "curve self-consistency"),
    "verdicts": ("feval.evaluate(feval.SingleCall(), dataset, llms[0])", "run single-call"),
    "steps": ("llms[0].ask(dataset.question_ids[0]).expand()[0].text", "run beam-search"),
    "turns": ("llms[0].ask(dataset.question_ids[0]).sample(1).answers", "run sequential-revision"),
}
"""What the page asks of an LLM, by what its pools consist of: an expression, and a command."""


@frozen
class Page:
    """What a page is made from.

    `tag` is named by the examples, `words` is the owner's section, `kept_fields` is front matter of
    an earlier page that stays, `picture` says what that of accuracy shows, `surfaces` is path and
    subject of each picture of width and depth, `prices` the list of its dollars.
    """

    recording: Recording
    repo_id: str
    title: str
    figures: Sequence[PairFigures]
    configs: Sequence[Config]
    licence: Licence
    tag: str | None = None
    words: str = ""
    languages: Sequence[str] = ()
    kept_fields: RecordLike = field(default_factory=dict)
    picture: str | None = None
    surfaces: Mapping[str, str] = field(default_factory=dict)
    prices: PriceList | None = None

    def configs_of(self, part: str, dataset: str | None = None) -> list[Config]:
        """Return the configurations with a part, of one dataset or of all."""
        return [
            config
            for config in self.configs
            if config.part == part and dataset in {None, config.dataset}
        ]

    def splits(self, part: str) -> list[FileSplit]:
        """Return all splits with a part."""
        return [split for config in self.configs_of(part) for split in config.splits]

    @property
    def pinned(self) -> str:
        """The repository with its tag, where there is one."""
        return f"{self.repo_id}@{self.tag}" if self.tag else self.repo_id


def default_title(recording: Recording) -> str:
    """Return the title of a recording where nobody gave it one."""
    records = list(recording.manifest.datasets.values())
    if len(records) == 1:
        return f"{records[0]['title']}: recorded chains of thought"
    return (
        f"Recorded chains of thought: {counted(len(recording.manifest.llms), 'LLM')} on"
        f" {len(records)} datasets"
    )


def card(page: Page) -> str:
    """Return the whole README.md: front matter and page."""
    licences, details = _licences(page)
    facts: Record = {
        "code": code,
        "plain": plain,
        "listed": listed,
        "python_text": python_text,
        "page": page,
        "words_begin": BEGIN,
        "words_end": END,
        "several_datasets": len(page.recording.dataset_ids()) > 1,
        "provenance": provenance(page.recording),
        "prices": price_section(page.recording, page.prices),
        "counters": _counters(page),
        "example": _example(page),
        "sample": _sample(page.recording),
        **_opening(page),
        **_datasets(page.recording),
        **_llms(page.recording),
        "prompts": _prompts(page.recording),
        **_gaps(page),
        **_files(page),
        "licences": licences,
        **_citation(page),
    }
    template = (files("feval.publish") / "dataset_card.md.jinja").read_text("utf-8")
    return hub.render_page(template, _front_matter(page, details), facts) + "\n"


def _front_matter(page: Page, details: str) -> Record:
    """Return the fields of the front matter; `details` are about licences."""
    manifest, kept = page.recording.manifest, page.kept_fields
    kinds = {record["answer_kind"] for record in manifest.datasets.values()}
    cots = sum(pair["cots"] for pair in manifest.pairs.values())
    cards = map(find_dataset_card, page.recording.dataset_ids())
    sources = [card.hub.repository for card in cards if card and card.hub]
    fields: Record = {
        "pretty_name": visible(page.title),
        **page.licence.fields,
        "license_details": details,
        **({"language": list(page.languages)} if page.languages else {}),
        "task_categories": [
            "text-generation",
            "question-answering",
            *(["multiple-choice"] if "choice" in kinds else []),
        ],
        "size_categories": [_SIZES[min(max(len(str(cots)) - 3, 0), len(_SIZES) - 1)]],
        "annotations_creators": ["machine-generated"],
        **({"source_datasets": [*dict.fromkeys(sources)]} if sources else {}),
        "tags": [*_TAGS, *(tag for tag in kept.get("tags", ()) if tag not in _TAGS)],
        "configs": [
            {
                "config_name": config.name,
                **({} if place else {"default": True}),
                "data_files": [
                    {
                        "split": split.name,
                        "path": split.paths[0] if len(split.paths) == 1 else list(split.paths),
                    }
                    for split in config.splits
                ],
            }
            for place, config in enumerate(page.configs)
        ],
        "dataset_info": [
            {
                "config_name": config.name,
                "features": config.features,
                "splits": [
                    {"name": split.name, "num_bytes": split.arrow_bytes, "num_examples": split.rows}
                    for split in config.splits
                ],
                "download_size": sum(split.file_bytes for split in config.splits),
                "dataset_size": sum(split.arrow_bytes for split in config.splits),
            }
            for config in page.configs
        ],
    }
    return fields | {name: value for name, value in kept.items() if name not in fields}


def _opening(page: Page) -> Record:
    manifest = page.recording.manifest
    records, pairs = manifest.datasets, manifest.pairs.values()
    cots, turns = (sum(pair.get(name, 0) for pair in pairs) for name in ("cots", "turns"))
    llms, datasets = (
        f" ({listed(map(code, names))})" if len(names) <= _MOST_NAMED else ""
        for names in (manifest.llms, records)
    )
    most = max((figures.largest for figures in page.figures), default=0)
    least = min((figures.smallest for figures in page.figures), default=0)
    times = {1: "once", 2: "twice"}.get(most, f"{most:,} times")
    with_texts = sum(split.rows - split.nulls.get("text", 0) for split in page.splits("texts"))
    has_texts = with_texts == sum(split.rows for split in page.splits("samples"))
    pairs_graded = [page.recording.graders(*pair) for pair in manifest.pairs]
    has_ends = not any(figures.unknown for figures in page.figures)
    has_answers = any(figures.no_answer != 1 for figures in page.figures)
    requests = page.splits("requests")
    nulls = any(split.nulls.get("prompt") for split in requests)
    has_sent_prompts = bool(requests) and not nulls and _is_recorded(page.recording)
    unlabelled = any(record["with_gold"] < record["questions"] for record in records.values())
    return {
        "cots": f"{cots:,} {'chain' if cots == 1 else 'chains'}",
        "llm_count": counted(len(manifest.llms), "LLM"),
        "llm_names": llms,
        "question_count": counted(sum(each["questions"] for each in records.values()), "question"),
        "dataset_names": (
            plain(next(iter(records.values()))["title"])
            if len(records) == 1
            else f"{len(records)} datasets{datasets}"
        ),
        "times": times if least == most else f"up to {times}",
        "every_pair": len(pairs) == len(manifest.llms) * len(records),
        "cot_parts": [
            *["its text"] * has_texts,
            *["its answer as extracted"] * has_answers,
            *["a verdict on it"] * all(pairs_graded),
            *["its tokens"] * all(figures.counter != NONE for figures in page.figures),
            *["its cost in USD"] * (unpaid_cots(page.recording) == 0),
            *["why it ended"] * has_ends,
        ],
        "complete": [
            *([] if unlabelled else ["every question its gold answer"]),
            *["every request the prompt that was sent"] * has_sent_prompts,
        ],
        "probes": _probes(page.recording),
        "turns": counted(turns, "CoT") if turns else "",
        "picture": PICTURE if page.picture else None,
        "unlabelled": unlabelled,
        "has_answers": has_answers,
        "graders": listed(code(name) for name in names)
        if (names := {*chain(*pairs_graded)})
        else "",
        "panels": len({figures.dataset for figures in page.figures}) > 1,
        "most_cots": MOST_COTS,
    }


def _probes(recording: Recording) -> str:
    """Return in a sentence what was probed; empty where nothing was."""
    records = [record for record in recording.manifest.raw["probes"] if record["probes"]]
    if not records:
        return ""
    first, *others = {record["interval"] for record in records}
    every = "" if others or first is None else f" (every {first:,} tokens)"
    traces, probes = (sum(record[name] for record in records) for name in ("traces", "probes"))
    return (
        f"{counted(traces, 'CoT')} can also be cut short: {counted(probes, 'probe')}{every} say"
        " what the LLM would have answered."
    )


def _example(page: Page) -> Record | None:
    """Return what the examples load: the first LLM on the first dataset; `None` where it has no
    samples.
    """
    recording = page.recording
    dataset, *others = recording.dataset_ids()
    found = {config.part: config for config in page.configs if config.dataset == dataset}
    if "samples" not in found:
        return None
    first = found["samples"].splits[0]
    llm = str(first.llm)
    flags = f" --dataset {shell_word(dataset)}" * bool(others)
    if len(recording.llm_names(dataset)) > 1:
        flags += f" --llm {shell_word(llm)}"
    shape = {"turns", "steps"}.intersection(recording.channels(dataset, llm))
    graders = recording.graders(dataset, llm)
    call, command = _EXAMPLES[max(shape, default="verdicts" if graders else "")]
    paths, right = _pattern([found["samples"]], slug(dataset)), "correct"
    if graders and not recording.manifest.datasets[dataset]["with_gold"]:
        kind, own, _, *rest = recording.files(f"scores/{graders[0]}", dataset, llm)[0].split("/")
        paths, right = "/".join([kind, own, "*", *rest]), "score"
    return {
        "dataset": dataset,
        "call": call,
        "command": command,
        "llm": llm,
        "flags": flags,
        "split": first.name,
        "configs": {part: config.name for part, config in found.items()},
        "revision": f', revision="{page.tag}"' if page.tag else "",
        "files": f"hf://datasets/{page.pinned}/{paths}",
        "right": right,
    }


def _datasets(recording: Recording) -> Record:
    rows = []
    for record in recording.manifest.datasets.values():
        source_card = find_dataset_card(record["id"])
        source = source_card.hub.repository if source_card and source_card.hub else None
        link = f"[{plain(source)}](https://huggingface.co/datasets/{source})" if source else ""
        rows.append([
            code(record["id"]),
            plain(record["title"]),
            f"{record['questions']:,}",
            "all" if record["with_gold"] == record["questions"] else f"{record['with_gold']:,}",
            plain(record["answer_kind"]),
            link or "not stated",
        ])  # fmt: skip
    extractors = dict.fromkeys(
        code(record["extractor"]) for record in recording.manifest.datasets.values()
    )
    return {
        "datasets": table(
            ["dataset", "title", "questions", "with gold", "answers", "source"], rows
        ),
        "extractors": listed(extractors),
        "imported": recording.manifest.raw["operation"].get("name") != "extract"
        and not _is_recorded(recording),
    }


def _llms(recording: Recording) -> Record:
    splits = split_names(recording)
    rows = []
    for name, record in recording.manifest.llms.items():
        other = [
            f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in record["decoding"].items()
            if value not in (None, [], {}, "") and not (key == "model" and value == record["base"])
        ]
        limits = (record.get(key) for key in ("temperature", "max_tokens"))
        rows.append([
            code(name),
            code(splits[name]),
            *("not stated" if limit is None else f"{limit:,}" for limit in limits),
            code(", ".join(other)) if other else "-",
        ])  # fmt: skip
    header = ["LLM", "split", "temperature", "max tokens", "other"]
    columns = len(header) if any(row[-1] != "-" for row in rows) else -1
    return {
        "llms": table(header[:columns], (row[:columns] for row in rows)),
        "most_splits": MOST_SPLITS if len(rows) > MOST_SPLITS else None,
    }


def _prompts(recording: Recording) -> list[Record]:
    """Return the system prompts, each with the datasets it was used for."""
    prompts: dict[str, list[str]] = {}
    for record in recording.manifest.datasets.values():
        if record["system_prompt"]:
            prompts.setdefault(record["system_prompt"], []).append(record["id"])
    everywhere = len(recording.dataset_ids())
    return [
        {
            "datasets": (
                "every dataset" if len(datasets) == everywhere else listed(map(code, datasets))
            ),
            "text": fenced(cut(prompt, _MOST_PROMPT)),
        }
        for prompt, datasets in list(prompts.items())[:_MOST_PROMPTS]
    ]


def _sample(recording: Recording) -> Record | None:
    """Return one question with its request and its first CoT; `None` where the recording keeps no
    texts of it.
    """
    dataset = recording.dataset_ids()[0]
    names = recording.llm_names(dataset)
    try:
        question = next(recording.scan_questions(dataset))
        texts = recording.texts(dataset, names[0], 0) if names else []
        prompts = recording.scan_prompts(dataset, names[0]) if names else ()
        request = next((prompt for name, prompt in prompts if name == question.id), None)
    # a folder without all its files; `prepare` has checked what is published
    except RecordingError:
        return None
    if not texts or texts[0] is None:
        return None
    votes = recording.votes(dataset)
    candidate = int(votes.llms[names[0]].codes[0, 0])
    answer = votes.candidates(0)[candidate] if candidate >= 0 else None
    return {
        "llm": html.escape(visible(names[0])),
        "request": fenced(cut(_messages(request) or question.text, _MOST_TEXT)),
        "text": fenced(cut(texts[0], _MOST_TEXT)),
        "answer": code(answer) if answer else "no answer",
        "gold": code(question.answer_key) if question.answer_key else "none",
    }


def _counters(page: Page) -> str:
    """Return who counted the tokens: an estimate makes the dollars an estimate."""
    counters: dict[str, list[str]] = {}
    for figures in page.figures:
        counters.setdefault(figures.counter, []).append(code(figures.llm))
    words = {
        USAGE: "those that the provider reported (`usage`)",
        SPLIT_USAGE: (
            "the provider's totals of several CoTs, split by the length of their texts"
            f" (`{SPLIT_USAGE}`)"
        ),
        "words": "estimates, 1.365 for each word (`words`), and so are dollars computed from them",
    }
    words[NONE] = "not recorded"
    about = {name: words.get(name, f"counted by {code(name)}") for name in counters}
    if len(about) == 1:
        return f"The tokens are {about.popitem()[1]}."
    return " ".join(
        f"The tokens of {_few(names)} are {about[name]}." for name, names in counters.items()
    )


def _gaps(page: Page) -> Record:
    recording = page.recording
    gaps = [
        figures
        for figures in page.figures
        if figures.asked < figures.questions
        or any((figures.no_answer, figures.truncated, figures.withheld))
    ]
    unknown = [figures for figures in page.figures if figures.unknown]
    served = [each.sentence for each in recording.manifest.served_models()]
    notes = [plain(str(note)) for note in (*served, *recording.manifest.raw["notes"])]
    return {
        "gaps": gap_table(gaps, several_datasets=len(recording.dataset_ids()) > 1),
        "cut_off": any(figures.truncated or figures.withheld for figures in gaps),
        "all_have_gaps": len(gaps) == len(page.figures),
        "unknown_ends": _few(code(figures.llm) for figures in unknown) if unknown else "",
        "some_ends_known": any(figures.unknown != 1 for figures in unknown),
        "notes": bullets("Noted when it was made:", notes),
    }


_COLUMN_NOTES = {
    ("samples", "answer"): "normal form; null for none",
    ("samples", "correct"): "null without a gold",
    ("samples", "usd"): "what the CoT cost",
    ("questions", "answer"): "the gold",
    ("questions", "answer_key"): "its normal form",
    ("texts", "text"): "the chain of thought",
    ("requests", "prompt"): "messages as JSON",
    ("reasoning", "reasoning"): "thoughts, apart or split off",
    ("reasoning", "marks"): "where they stood",
    ("probes", "offset"): "output tokens of the CoT before the LLM was made to answer",
    ("turns", "messages"): "sent behind the conversation so far",
    ("calls", "tool_calls"): "a JSON array of objects with id, name and arguments",
    ("timings", "first_token_s"): "seconds to the first token",
    ("steps", "parent"): "`sample_index` of the step before, null for a first step",
    ("scores", "score"): "a grader's says how right the CoT is, from 0 to 1",
    ("scores", "verdict"): "a judge's reply",
}
"""What the name of a column does not say."""


def _pattern(configs: Iterable[Config], dataset: str = "*") -> str:
    """Return a pattern that the files of a part match, also where an LLM has a folder of them."""
    paths = [path.split("/") for each in configs for split in each.splits for path in split.paths]
    depths = {len(path) for path in paths}
    part = paths[0][0]
    own = {"questions": 2, "scores": 4}.get(part, 3)
    folders = [
        part,
        *[dataset, "*"][: own - 2],
        *(["**"] if max(depths) > own else []),
        "*.parquet",
    ]
    return "/".join(folders)


def _files(page: Page) -> Record:
    sizes = Counter[str]()
    for path, record in page.recording.manifest.files.items():
        sizes[path.split("/")[0]] += record["bytes"]
    rows, dataset = [], page.configs[0].dataset if page.configs else ""
    for part in dict.fromkeys(config.part for config in page.configs):
        configs = page.configs_of(part)
        named = (page.configs_of(part, dataset) or configs)[0]
        names = [str(each["name"]) for each in named.features]
        notes = {name: _COLUMN_NOTES.get((part, name)) for name in names}
        columns = (f"`{name}`" + (f" ({note})" if note else "") for name, note in notes.items())
        shown = size(sizes[part]).replace(" ", UNBROKEN)
        rows.append([code(named.name), code(_pattern(configs)), shown, ", ".join(columns)])
    return {
        "files_of": dataset,
        "files": table(["configuration", "files", "size", "columns"], rows),
        "votes_size": size(sizes["votes"]),
    }


def _licences(page: Page) -> tuple[str, str]:
    """Return the licences as a table, and in a sentence for the front matter."""
    url, title = page.licence.url, page.licence.title
    manifest = page.recording.manifest
    otherwise = manifest.raw["licences"].get("questions") or "not stated"
    stated = {record["id"]: record["licence"] or otherwise for record in manifest.datasets.values()}
    outputs = outputs_licence(page.recording) or "not stated"
    rows = [
        ["the collection, as a database", f"[{plain(title)}]({url})" if url else plain(title)],
        *([f"questions of {code(dataset)}", plain(own)] for dataset, own in stated.items()),
        [
            "what the LLMs wrote",
            plain(outputs)
            + ("; the terms of their providers apply" if outputs == "not stated" else ""),
        ],
    ]
    questions = ", ".join(f"{dataset} {own}" for dataset, own in stated.items())
    details = f"Collection: {title}. Questions: {questions}. Outputs: {outputs}."
    return table(["what", "licence"], rows), visible(details)


def _citation(page: Page) -> Record:
    recording = page.recording
    created = str(recording.manifest.raw["created"])
    owner, name = page.repo_id.split("/")
    papers = {
        source_card.citation: record["id"]
        for record in recording.manifest.datasets.values()
        if (source_card := find_dataset_card(record["id"])) is not None
    }
    return {
        "citation": {
            "key": re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "recording",
            "title": " ".join(re.sub(r"[\\{}$&#_^~%]", " ", visible(page.title)).split()),
            "owner": owner,
            "year": created[:4] if re.fullmatch(r"\d{4}-.*", created) else "n.d.",
        },
        "papers": bullets(
            "Please also cite the authors of the questions:",
            [f"{code(dataset)}: {plain(citation)}" for citation, dataset in papers.items()],
        ),
    }


def _few(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return listed(distinct[:4]) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")


def _messages(request: str | None) -> str | None:
    """Return the messages of a request, one after the other; the request itself where it has
    another form.
    """
    try:
        messages = parse_json(request) if request else None
    except ValueError:
        return request
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("content"), str)
        for message in messages
    ):
        return request
    return (
        "\n\n".join(f"[{message.get('role')}]\n{message['content']}" for message in messages)
        or None
    )


_MOST_LINES = 12
_RECORDED = frozenset(("record", "proxy"))
_DERIVED = {
    "merge": "merged from",
    "select": "selected from",
    "extract": "extracted again from",
    "score": "scored from",
}


def _is_recorded(recording: Recording) -> bool:
    """Return whether feval itself made the samples: an importer may have had to use the question's
    text as the prompt, or answers that others extracted.
    """
    raw = recording.manifest.raw
    first = [_mapping(parent.get("operation")) for parent in raw["parents"]] or [raw["operation"]]
    return all(operation.get("name") in _RECORDED for operation in first)


def provenance(recording: Recording) -> str:
    """Return the section's text."""
    raw = recording.manifest.raw
    operation = raw["operation"]
    date = re.match(r"\d{4}-\d\d-\d\d", raw["created"])
    when = f" on {date[0]}" if date else ""
    by = f" with feval {plain(raw['feval_version'])}"
    parents = raw["parents"]
    if not parents:
        return f"{_sentence(operation)}{when}{by}."
    verb = _DERIVED.get(
        str(operation.get("name")), f"made ({code(str(operation.get('name')))}) from"
    )
    number = "one recording" if len(parents) == 1 else f"{len(parents)} recordings"
    items = "\n".join(f"- {_sentence(_mapping(parent.get('operation')))}" for parent in parents)
    head = f"{verb.capitalize()} {number}{when}{by}:"
    if len(parents) > _MOST_LINES:
        return f"{head[:-1]}.\n\n{folded('These recordings', items)}"
    return f"{head}\n\n{items}"


def _sentence(operation: RecordLike) -> str:
    """Return what made a recording, from the operation in its manifest, in words."""
    name = operation.get("name")
    if name == "record":
        what = (
            f" {_code(operation, 'llm')} on {_code(operation, 'dataset')}"
            if "llm" in operation
            else ""
        )
        return f"Recorded{what}"
    if name == "proxy":
        return "Recorded between a program and its provider (`feval proxy`)"
    if name == "import":
        source = _mapping(operation.get("source"))
        digest = str(source.get("sha256", ""))
        known = f", SHA-256 `{digest}`" if re.fullmatch("[0-9a-f]{64}", digest) else ""
        place = _code(operation, "address") if "address" in operation else _code(source, "file")
        return f"Imported from {place} (format {_code(operation, 'format')}{known})"
    return f"Made by {code(str(name))}" if name else "Made in a way that is not stated"


def _mapping(value: Any) -> RecordLike:
    return value if isinstance(value, Mapping) else {}


def _code(values: RecordLike, key: str) -> str:
    return code(str(values.get(key) or "not stated"))
