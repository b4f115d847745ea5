"""Details of lighteval (`--save-details`): `details/<model>/<date>/details_<task>_<date>.parquet`,
one row per question.

The columns `doc` (`query`, `choices`, `gold_index`, `id`, `instruction`) and `model_response`
(`text`, one per sample; `reasonings`, `input`, `input_tokens` and `output_tokens` where the backend
has them). `results/<model>/results_<date>.json` of the same run names the model and its decoding.
Older versions wrote other columns, which are refused.

No answers are stored: they are extracted from the texts. Tokens are the lengths of the stored token
ids, where every sample has some. Backends that generate in batches fill up shorter samples with the
end token: of an id repeated at the end, the id at which most samples end, one is counted. Finish
reasons are not stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from feval.errors import SourceError
from feval.importers.columns import member, refuse, strings
from feval.importers.files import opened_parquet, shortest_floats
from feval.importers.logs import SEVERAL_GOLDS, chat_prompt, decoding, gold_of, labelled
from feval.importers.reading import Reader, read_bytes
from feval.importers.rows import Rows
from feval.importers.source import Imported, ImportRequest, Prompt, Row, counted_notes

_DOC = ("query", "choices", "gold_index", "id", "instruction")
_RESPONSE = ("text", "reasonings", "input", "input_tokens", "output_tokens")
_DECODING = (
    "top_p", "top_k", "min_p", "seed", "stop_tokens", "repetition_penalty", "frequency_penalty",
    "presence_penalty",
)  # fmt: skip
_ROWS_AT_ONCE = 8


def beside(source: Path) -> tuple[Path, ...]:
    """Return the results of the same run, where the folders are as lighteval made them."""
    date = source.parent.name
    for folder in source.parents:
        if folder.name == "details":
            model = source.parent.parent.relative_to(folder)
            results = folder.parent / "results" / model / f"results_{date}.json"
            return (results,) if results.is_file() else ()
    return ()


@dataclass(slots=True)
class _Row:
    """One question with its columns, those of its samples, and what else is noted of it."""

    place: int
    question: Row
    other_golds: bool
    texts: list[str | None]
    reasoning: list[str | None]
    tokens: list[_Tokens] | None
    prompt_tokens: int | None
    instruction: Any
    where: str


def read(source: Path, request: ImportRequest) -> Imported:
    """Read the Parquet details of one task. The request names the LLM if the results are not where
    lighteval puts them.
    """
    reader = Reader()
    rows = sorted(_rows(source), key=lambda row: row.place)
    if not rows:
        raise SourceError(f"{source.name} has no questions; there is nothing to import.")
    counted = all(row.tokens is not None for row in rows)
    filled = (
        _without_padding([sample for row in rows for sample in row.tokens or ()]) if counted else 0
    )
    about = _results(source, reader)
    collected = Rows(source.name, request, null_stays=True)
    for row in rows:
        shared = about | row.question | {"id": request.question_id(row.place)}
        shared["prompt_tokens"] = row.prompt_tokens if counted else None
        lengths = row.tokens if row.tokens and counted else [None] * len(row.texts)
        columns = zip(row.texts, row.reasoning, lengths, strict=True)
        if not row.texts:
            collected.add(shared, row.where, line=row.where, cot=False)
        for sample, (text, reasoning, tokens) in enumerate(columns):
            cot: Row = {"text": text or "", "reasoning": reasoning}
            if tokens is not None:
                cot["tokens"] = tokens.count
            collected.add(
                shared | cot, f"sample {sample} of {row.where}", line=None if sample else row.where
            )
    notes = counted_notes(
        (SEVERAL_GOLDS, sum(row.other_golds for row in rows)),
        ("Samples that batches filled up with their end token, which was counted once", filled),
        (
            "Samples without a text (null), which were read as empty texts",
            sum(row.texts.count(None) for row in rows),
        ),
    )
    instructions = {row.instruction for row in rows if isinstance(row.instruction, str)}
    system_prompt = instructions.pop() if len(instructions) == 1 else None
    return replace(collected.imported(reader, notes=notes), system_prompt=system_prompt)


def _row(doc: Any, response: Any, number: int, where: str) -> _Row:
    name, question = doc.get("id"), _question(doc, where)
    texts = member(response, "text", list, where)
    strings([text for text in texts if text is not None], where)
    reasoning = response.get("reasonings")
    if not isinstance(reasoning, list) or len(reasoning) != len(texts):
        reasoning = [None] * len(texts)
    if not all(thoughts is None or isinstance(thoughts, str) for thoughts in reasoning):
        refuse(f"'reasonings' of {where}", "texts or null", reasoning)
    query, given = response.get("input"), response.get("input_tokens")
    if isinstance(query, list) and query and isinstance(query[0], dict):
        query = chat_prompt(query, where)
    return _Row(
        int(name) if isinstance(name, str) and name.isdecimal() and len(name) < 10 else number,
        question[0] | {"prompt": query if isinstance(query, str | Prompt) and query else None},
        question[1],
        texts,
        [thoughts or None for thoughts in reasoning],
        _token_ids(response.get("output_tokens"), len(texts)),
        len(given) if isinstance(given, list) and given else None,
        doc.get("instruction"),
        where,
    )


@dataclass(slots=True)
class _Tokens:
    """How many token ids a sample has, the last one, and how often that stands at its end."""

    count: int
    last: Any
    repeats: int


def _token_ids(ids: Any, samples: int) -> list[_Tokens] | None:
    """Return what is needed of the token ids of each sample; `None` where a sample has none."""
    if (
        not isinstance(ids, list)
        or len(ids) != samples
        or not all(isinstance(sample, list) and sample for sample in ids)
    ):
        return None
    ends = (
        next((n for n, token in enumerate(reversed(each)) if token != each[-1]), len(each))
        for each in ids
    )
    return [_Tokens(len(each), each[-1], repeats) for each, repeats in zip(ids, ends, strict=True)]


def _without_padding(samples: list[_Tokens]) -> int:
    """Count what repeats the usual last token at the end of each sample once; return in how many
    samples there was any.
    """
    ((last, _),) = Counter(sample.last for sample in samples).most_common(1) or [(None, 0)]
    filled = [sample for sample in samples if sample.last == last and sample.repeats > 1]
    for sample in filled:
        sample.count -= sample.repeats - 1
    return len(filled)


def _question(doc: Any, where: str) -> tuple[Row, bool]:
    """Return the question's columns, and whether it has other accepted answers than its gold."""
    text = member(doc, "query", str, where)
    choices = strings(member(doc, "choices", list, where), where)
    gold_index = doc.get("gold_index")
    places = (
        gold_index if isinstance(gold_index, list) else [] if gold_index is None else [gold_index]
    )
    if any(type(place) is not int or not 0 <= place < len(choices) for place in places):
        refuse(
            f"'gold_index' of {where}", f"places among its {len(choices)} choices", str(gold_index)
        )
    # Where every choice is right, they are ways to write one answer and no options.
    options = labelled(choices) if len(set(places)) < len(choices) and len(choices) > 1 else ()
    golds = [options[place][0] if options else choices[place].strip() for place in places]
    gold, others = gold_of(golds, where)
    return {"question": text, "gold": gold, "choices": options}, others


def _rows(source: Path) -> Iterator[_Row]:
    number = 0
    with opened_parquet(source, partial(_needed, source.name)) as (file, _):
        columns = [f"doc.{name}" for name in _DOC] + [
            f"model_response.{name}" for name in _RESPONSE
        ]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            for record in shortest_floats(batch).to_pylist():
                where = f"row {number} of {source.name}"
                doc, response = (
                    member(record, "doc", dict, where),
                    member(record, "model_response", dict, where),
                )
                yield _row(doc, response, number, where)
                number += 1


def _needed(name: str, columns: Sequence[str]) -> Sequence[str]:
    needed = ("doc", "model_response")
    missing = [column for column in needed if column not in columns]
    if missing:
        raise SourceError(
            f"{name} has no column {' and no '.join(missing)}, as details of lighteval 0.13 have;"
            f" its columns are {', '.join(columns)!s:.200}. Another version of lighteval wrote it,"
            " or something else."
        )
    return needed


def _results(source: Path, reader: Reader) -> Row:
    """Return name and decoding of the model, as the results state them."""
    for path in beside(source):
        results = reader.json(read_bytes(path), path.name)
        general = member(results, "config_general", dict, path.name)
        config = general.get("model_config")
        values = config.get("generation_parameters") if isinstance(config, dict) else None
        name = general.get("model_name")
        about = decoding(values if isinstance(values, dict) else {}, ["max_new_tokens"], _DECODING)
        return about | {"llm": name if isinstance(name, str) and name else None}
    return {}
