"""The page of a recording on the Hub: `dataset_card.md.jinja` filled in from the manifest and the
figures.

Names, titles, notes, questions and CoTs come from outside. They are escaped, in code spans, or in
fences longer than any fence in them; none of it is markup.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from feval import hub
from feval.cards.cards import find_dataset_card
from feval.cards.prices import PriceList
from feval.cards.reading import parse_json
from feval.cards.tokens import SPLIT_USAGE, USAGE
from feval.errors import RecordingError
from feval.publish.figures import MOST_COTS, PairFigures, gap_table, has_gap, price_section
from feval.publish.front_matter import (
    MOST_SPLITS,
    Config,
    Licence,
    front_matter,
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

PICTURE = "figures/cost-accuracy.png"
"""The picture's path in the repository."""
SURFACES = "figures/width-depth"
"""What the paths of pictures of width and depth begin with."""

_MOST_TEXT = 1200
_MOST_PROMPT = 600
_MOST_PROMPTS = 12
_MOST_NAMED = 4
_Facts = dict[str, Any]
_EXAMPLES = {
    "": ("llms[0](dataset.question_ids[0], n=1).answers", "curve self-consistency"),
    "steps": ("llms[0].ask(dataset.question_ids[0]).expand()[0].text", "run beam-search"),
    "turns": ("llms[0].ask(dataset.question_ids[0]).sample(1).answers", "run sequential-revision"),
}
"""What the page asks of an LLM, by what its pools consist of: an expression, and a command."""


@dataclass(frozen=True, slots=True)
class Page:
    """What a page is made from, besides the recording.

    `tag` is named by the examples, `words` is the owner's section, `kept_fields` is front matter of
    an earlier page that stays, `picture` says what
    that of accuracy shows, `surfaces` is path and subject of each picture of width and depth,
    `prices` the list of its dollars.
    """

    repo_id: str
    title: str
    figures: Sequence[PairFigures]
    configs: Sequence[Config]
    licence: Licence
    tag: str | None = None
    words: str = ""
    languages: Sequence[str] = ()
    kept_fields: Mapping[str, Any] = field(default_factory=dict)
    picture: str | None = None
    surfaces: Mapping[str, str] = field(default_factory=dict)
    prices: PriceList | None = None

    def config_name(self, dataset: str, part: str) -> str | None:
        """Return the configuration with a part of a dataset; `None` where it has no row."""
        names = (
            config.name
            for config in self.configs
            if (config.dataset, config.part) == (dataset, part)
        )
        return next(names, None)

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


def card(recording: Recording, page: Page) -> str:
    """Return the whole README.md: front matter and page."""
    fields = front_matter(
        recording,
        page.configs,
        title=visible(page.title),
        licence=page.licence,
        licence_details=_licence_details(recording, page),
        languages=page.languages,
        kept=page.kept_fields,
    )
    facts: _Facts = {
        "code": code,
        "plain": plain,
        "listed": listed,
        "python_text": python_text,
        "repo_id": page.repo_id,
        "pinned": page.pinned,
        "tag": page.tag,
        "title": page.title,
        "words": page.words,
        "words_begin": BEGIN,
        "words_end": END,
        "recording_hash": recording.hash,
        "several_datasets": len(recording.dataset_ids()) > 1,
        "provenance": provenance(recording),
        "prices": price_section(recording, page.prices),
        "counters": _counters(page),
        "example": _example(recording, page),
        "sample": _sample(recording),
        **_opening(recording, page),
        **_datasets(recording),
        **_llms(recording),
        "prompts": _prompts(recording),
        **_gaps(recording, page),
        **_files(recording, page),
        "licences": _licences(recording, page),
        **_citation(recording, page),
    }
    template = (files("feval.publish") / "dataset_card.md.jinja").read_text("utf-8")
    return hub.render_page(template, fields, facts) + "\n"


def _opening(recording: Recording, page: Page) -> _Facts:
    manifest = recording.manifest
    records = list(manifest.datasets.values())
    cots = sum(pair["cots"] for pair in manifest.pairs.values())
    dataset_names = f"{len(records)} datasets"
    if len(records) == 1:
        dataset_names = plain(records[0]["title"])
    elif len(records) <= _MOST_NAMED:
        dataset_names = f"{dataset_names} ({listed(map(code, recording.dataset_ids()))})"
    complete = ["every question its gold answer"] * all(
        r["with_gold"] == r["questions"] for r in records
    )
    complete += ["every request the prompt that was sent"] * has_sent_prompts(
        recording, page.configs
    )
    return {
        "cots": f"{cots:,} {'chain' if cots == 1 else 'chains'}",
        "llm_count": counted(len(manifest.llms), "LLM"),
        "llm_names": (
            f" ({listed(map(code, manifest.llms))})" if len(manifest.llms) <= _MOST_NAMED else ""
        ),
        "question_count": counted(sum(record["questions"] for record in records), "question"),
        "dataset_names": dataset_names,
        "times": _times(page),
        "every_pair": len(manifest.pairs) == len(manifest.llms) * len(records),
        "cot_parts": _cot_parts(page),
        "complete": complete,
        "probes": " ".join(filter(None, (_probes(recording), _turns(recording)))),
        "picture": PICTURE if page.picture else None,
        "surfaces": page.surfaces,
        "picture_alt": page.picture,
        "unlabelled": any(record["with_gold"] < record["questions"] for record in records),
        "panels": len({figures.dataset for figures in page.figures}) > 1,
        "most_cots": MOST_COTS,
    }


def _probes(recording: Recording) -> str:
    """Return in a sentence what was probed; empty where nothing was."""
    records = [record for record in recording.manifest.raw["probes"] if record["probes"]]
    if not records:
        return ""
    intervals = {record["interval"] for record in records}
    every = (
        "" if len(intervals) > 1 or None in intervals else f" (every {intervals.pop():,} tokens)"
    )
    traces, probes = (sum(record[name] for record in records) for name in ("traces", "probes"))
    said = f"{counted(probes, 'probe')}{every} say what the LLM would have answered"
    return f"{counted(traces, 'CoT')} can also be cut short: {said}."


def _turns(recording: Recording) -> str:
    """Return in a sentence how many CoTs are turns; empty where none is."""
    turns = sum(pair.get("turns", 0) for pair in recording.manifest.pairs.values())
    return (
        f"{counted(turns, 'CoT')} of these reply to another, with the whole conversation before."
        if turns
        else ""
    )


def _cot_parts(page: Page) -> list[str]:
    """Return what every CoT of the recording has."""
    rows = sum(
        split.rows for config in page.configs if config.part == "samples" for split in config.splits
    )
    texts = [split for config in page.configs if config.part == "texts" for split in config.splits]
    has_texts = rows == sum(split.rows - split.nulls.get("text", 0) for split in texts)
    has_ends = all(figures.unknown in {None, 0.0} for figures in page.figures)
    return [
        *(["its text"] * has_texts),
        "its answer as extracted",
        "its tokens",
        *(["why it ended"] * has_ends),
    ]


def _times(page: Page) -> str:
    most = max((figures.largest for figures in page.figures), default=0)
    least = min((figures.smallest for figures in page.figures), default=0)
    times = {1: "once", 2: "twice"}.get(most, f"{most:,} times")
    return times if least == most else f"up to {times}"


def _example(recording: Recording, page: Page) -> _Facts | None:
    """Return what the examples load: the first LLM on the first dataset; `None` where it has no
    samples.
    """
    dataset = recording.dataset_ids()[0]
    samples = next(
        (
            config
            for config in page.configs
            if config.part == "samples" and config.dataset == dataset
        ),
        None,
    )
    if samples is None:
        return None
    first = samples.splits[0]
    pattern = _pattern(
        [path for split in samples.splits for path in split.paths],
        f"samples/{slug(dataset)}/*.parquet",
    )
    flags = "" if len(recording.dataset_ids()) == 1 else f" --dataset {shell_word(dataset)}"
    flags += (
        "" if len(recording.llm_names(dataset)) == 1 else f" --llm {shell_word(str(first.llm))}"
    )
    channels = recording.channels(dataset, str(first.llm))
    shape = "turns" if "turns" in channels else "steps" if "steps" in channels else ""
    call, command = _EXAMPLES[shape]
    return {
        "dataset": dataset,
        "call": call,
        "command": command,
        "llm": str(first.llm),
        "flags": flags,
        "samples": samples.name,
        "split": first.name,
        "questions": page.config_name(dataset, "questions"),
        "texts": page.config_name(dataset, "texts"),
        "revision": f', revision="{page.tag}"' if page.tag else "",
        "files": f"hf://datasets/{page.pinned}/{pattern}",
    }


def _datasets(recording: Recording) -> _Facts:
    rows = []
    for record in recording.manifest.datasets.values():
        source_card = find_dataset_card(record["id"])
        source = (
            f"[{plain(source_card.hub.repository)}](https://huggingface.co/datasets/{source_card.hub.repository})"
            if source_card is not None and source_card.hub is not None
            else "not stated"
        )
        golds = "all" if record["with_gold"] == record["questions"] else f"{record['with_gold']:,}"
        kind = plain(record["answer_kind"])
        rows.append(
            [
                code(record["id"]),
                plain(record["title"]),
                f"{record['questions']:,}",
                golds,
                kind,
                source,
            ]
        )
    extractors = dict.fromkeys(
        code(record["extractor"]) for record in recording.manifest.datasets.values()
    )
    return {
        "datasets": table(
            ["dataset", "title", "questions", "with gold", "answers", "source"], rows
        ),
        "extractors": listed(extractors),
        "imported": is_imported(recording),
    }


def _llms(recording: Recording) -> _Facts:
    splits = split_names(recording)
    rows = []
    for name, record in recording.manifest.llms.items():
        other = {
            key: value
            for key, value in record["decoding"].items()
            if value not in (None, [], {}, "")
            and not (key == "model" and value == record.get("base"))
        }
        rows.append([
            code(name),
            code(splits[name]),
            *("not stated" if record.get(key) is None else f"{record[key]:,}" for key in ("temperature", "max_tokens")),  # noqa: E501
            code(", ".join(f"{key}={_compact(value)}" for key,
            value in other.items())) if other else "-",
        ])  # fmt: skip
    header = ["LLM", "split", "temperature", "max tokens", "other"]
    columns = len(header) if any(row[-1] != "-" for row in rows) else -1
    return {
        "llms": table(header[:columns], (row[:columns] for row in rows)),
        "most_splits": MOST_SPLITS if len(rows) > MOST_SPLITS else None,
    }


def _prompts(recording: Recording) -> list[_Facts]:
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


def _sample(recording: Recording) -> _Facts | None:
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
    about = {name: words.get(name, f"counted by {code(name)}") for name in counters}
    if len(about) == 1:
        return f"The tokens are {about.popitem()[1]}."
    return " ".join(
        f"The tokens of {_few(names)} are {about[name]}." for name, names in counters.items()
    )


def _gaps(recording: Recording, page: Page) -> _Facts:
    gaps = [figures for figures in page.figures if has_gap(figures)]
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


_PARTS = {
    "samples": (
        (
            "`llm`, `question_id`, `sample_index`, `answer_raw`, `answer` (normal form; null for"
            " none), `correct` (null without a gold), `output_tokens`, `finish_reason`, and seed,"
            " response id, served model where known"
        ),
        "samples/*/*.parquet",
    ),
    "questions": (
        "`question_id`, `question`, `answer` (the gold), `answer_key` (its normal form), `choices`",
        "questions/*.parquet",
    ),
    "texts": (
        "`llm`, `question_id`, `sample_index`, `text`: the chain of thought",
        "texts/*/*.parquet",
    ),
    "requests": (
        "`llm`, `question_id`, `prompt` (messages as JSON), `prompt_tokens`",
        "requests/*/*.parquet",
    ),
    "equality": (
        "`question_id`, `left`, `right`, `gold`, `equal`: pairs of answers compared",
        "equality/*.parquet",
    ),
    "reasoning": (
        "`reasoning`: thoughts, apart or split off; `marks`: where they stood",
        "reasoning/*/*.parquet",
    ),
    "logprobs": (
        "`sequence_logprob`, `token_confidences`, `token_logprobs`",
        "logprobs/*/*.parquet",
    ),
    "probes": (
        (
            "`offset` (output tokens of the CoT before the LLM was made to answer), `answer_raw`,"
            " `answer`, `text`, `output_tokens`, `confidence`"
        ),
        "probes/*/*.parquet",
    ),
    "turns": (
        "`messages` (sent behind the conversation so far), `prompt_tokens`",
        "turns/*/*.parquet",
    ),
    "timings": ("`first_token_s`: seconds to the first token", "timings/*/*.parquet"),
    "steps": (
        "`parent` (`sample_index` of the step before, null for a first step), `ends`",
        "steps/*/*.parquet",
    ),
    "scores": (
        "`score`, `step_scores`, `verdict` of judges and reward models",
        "scores/*/*/*.parquet",
    ),
}


def _pattern(paths: Iterable[str], pattern: str) -> str:
    """Return a pattern that files match, also where an LLM has a folder of them."""
    deep = any(path.count("/") > pattern.count("/") for path in paths)
    return pattern.replace("*.parquet", "**/*.parquet") if deep else pattern


def _files(recording: Recording, page: Page) -> _Facts:
    sizes: dict[str, int] = {}
    for path, record in recording.manifest.files.items():
        part = path.split("/")[0]
        sizes[part] = sizes.get(part, 0) + record["bytes"]
    dataset = page.configs[0].dataset if page.configs else ""
    rows = []
    for part, (columns, pattern) in _PARTS.items():
        names = [config.name for config in page.configs if config.part == part]
        if names:
            name = page.config_name(dataset, part) or names[0]
            shown = _pattern(
                [path for path in recording.manifest.files if path.startswith(f"{part}/")], pattern
            )
            rows.append(
                [code(name), code(shown), size(sizes.get(part, 0)).replace(" ", UNBROKEN), columns]
            )
    return {
        "files_of": dataset,
        "files": table(["configuration", "files", "size", "columns"], rows),
        "votes_size": size(sizes.get("votes", 0)),
    }


def _licences(recording: Recording, page: Page) -> str:
    url, name = page.licence.url, plain(page.licence.title)
    stated = recording.manifest.raw["licences"]
    rows = [["the collection, as a database", f"[{name}]({url})" if url else name]]
    rows += [
        [
            f"questions of {code(record['id'])}",
            plain(record["licence"] or stated.get("questions") or "not stated"),
        ]
        for record in recording.manifest.datasets.values()
    ]
    outputs = plain(outputs_licence(recording) or "not stated; the terms of their providers apply")
    return table(["what", "licence"], [*rows, ["what the LLMs wrote", outputs]])


def _citation(recording: Recording, page: Page) -> _Facts:
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


def _licence_details(recording: Recording, page: Page) -> str:
    stated = recording.manifest.raw["licences"]
    licences = {record["id"]: record["licence"] for record in recording.manifest.datasets.values()}
    questions = ", ".join(
        f"{dataset} {licence or stated.get('questions') or 'not stated'}"
        for dataset, licence in licences.items()
    )
    outputs = outputs_licence(recording) or "not stated"
    return visible(f"Collection: {page.licence.title}. Questions: {questions}. Outputs: {outputs}.")


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_MOST_LINES = 12
_RECORDED = frozenset(("record", "proxy"))
_DERIVED = {
    "merge": "merged from",
    "select": "selected from",
    "extract": "extracted again from",
    "score": "scored from",
}


def has_sent_prompts(recording: Recording, configs: Iterable[Config]) -> bool:
    """Return whether every request has the prompt that was sent.

    An importer may have had to use the question's text instead, so this is known only for what
    feval itself recorded.
    """
    requests = [split for config in configs if config.part == "requests" for split in config.splits]
    recorded = all(operation.get("name") in _RECORDED for operation in _first_operations(recording))
    return recorded and bool(requests) and not any(split.nulls.get("prompt") for split in requests)


def is_imported(recording: Recording) -> bool:
    """Return whether others may have extracted the answers: true unless feval is known to have
    recorded or extracted them.
    """
    operation = recording.manifest.raw["operation"].get("name")
    return operation != "extract" and any(
        each.get("name") not in _RECORDED for each in _first_operations(recording)
    )


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


def _sentence(operation: Mapping[str, Any]) -> str:
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


def _first_operations(recording: Recording) -> list[Mapping[str, Any]]:
    """Return what made the samples: the operation of the recording, or those of the recordings it
    was derived from.
    """
    parents, operation = (recording.manifest.raw[name] for name in ("parents", "operation"))
    return [_mapping(parent.get("operation")) for parent in parents] or [operation]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _code(values: Mapping[str, Any], key: str) -> str:
    return code(str(values.get(key) or "not stated"))
