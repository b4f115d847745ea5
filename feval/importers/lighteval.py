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
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from feval.errors import SourceError
from feval.importers.columns import member, refuse, strings
from feval.importers.files import opened_parquet, shortest_floats
from feval.importers.logs import chat_prompt, decoding, gold_of, inside, labelled
from feval.importers.reading import Reader, read_bytes
from feval.importers.rows import collected
from feval.importers.source import ImportRequest, Prompt, Row, SourceContent, counted_notes

_DOC = ("query", "choices", "gold_index", "id", "instruction")
_RESPONSE = ("text", "reasonings", "input", "input_tokens", "output_tokens")
_DECODING = (
    "top_p", "top_k", "min_p", "seed", "stop_tokens", "repetition_penalty", "frequency_penalty",
    "presence_penalty",
)  # fmt: skip
_ROWS_AT_ONCE = 8
_FILLED = "Samples that batches filled up with their end token, which was counted once"
_NULL = "Samples without a text (null), which were read as empty texts"


def beside(source: Path) -> tuple[Path, ...]:
    """Return the results of the same run, where the folders are as lighteval made them."""
    date = source.parent.name
    for folder in source.parents:
        if folder.name == "details":
            model = source.parent.parent.relative_to(folder)
            results = folder.parent / "results" / model / f"results_{date}.json"
            return (results,) if results.is_file() else ()
    return ()


class _Question(NamedTuple):
    """One question with its columns and those of its CoTs, which have as `ids` how many token ids
    there are, the last one, and how often that stands at the end; `None` where that is not known.
    """

    place: int
    about: Row
    cots: list[Row]
    instruction: Any
    where: str


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read the Parquet details of one task. The request names the LLM if the results are not where
    lighteval puts them.
    """
    reader, noted = Reader(), Counter[str]()
    rows = sorted(_rows(source, noted), key=itemgetter(0))
    if not rows:
        raise SourceError(f"{source.name} has no questions; there is nothing to import.")
    cots = [cot for row in rows for cot in row.cots]
    ids = [cot.pop("ids") for cot in cots]
    counted = None not in ids
    ends = Counter(last for _, last, _ in ids) if counted else Counter[Any]()
    usual = max(ends, key=ends.__getitem__, default=None)
    for cot, (count, last, repeats) in zip(cots, ids if counted else (), strict=counted):
        filled = repeats - 1 if last == usual else 0
        noted[_FILLED] += filled > 0
        cot["tokens"] = count - filled
    about = _results(source, reader) | ({} if counted else {"prompt_tokens": None})
    questions = (
        (row.about | about | {"id": request.question_id(row.place)}, row.cots, row.where)
        for row in rows
    )
    instructions = {row.instruction for row in rows if isinstance(row.instruction, str)}
    system_prompt = instructions.pop() if len(instructions) == 1 else None
    notes = counted_notes(*noted.items())
    imported = collected(source, request, questions, reader, notes)
    return replace(imported, system_prompt=system_prompt)


def _rows(source: Path, noted: Counter[str]) -> Iterator[_Question]:
    number = 0
    with opened_parquet(source, partial(_needed, source.name)) as (file, _):
        columns = [f"doc.{name}" for name in _DOC] + [
            f"model_response.{name}" for name in _RESPONSE
        ]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            for record in shortest_floats(batch).to_pylist():
                where = f"row {number} of {source.name}"
                doc = member(record, "doc", dict, where)
                response = member(record, "model_response", dict, where)
                yield _question(doc, response, number, where, noted)
                number += 1


def _question(doc: Row, response: Row, number: int, where: str, noted: Counter[str]) -> _Question:
    about, name = _about(doc, where, noted), doc.get("id")
    texts = member(response, "text", list, where)
    strings([text for text in texts if text is not None], where)
    noted[_NULL] += texts.count(None)
    none = [None] * len(texts)
    columns = (response.get(column) for column in ("reasonings", "output_tokens"))
    reasoning, ids = (
        column if isinstance(column, list) and len(column) == len(texts) else none
        for column in columns
    )
    if not all(thoughts is None or isinstance(thoughts, str) for thoughts in reasoning):
        refuse(f"'reasonings' of {where}", "texts or null", reasoning)
    query, given = response.get("input"), response.get("input_tokens")
    if isinstance(query, list) and query and isinstance(query[0], dict):
        query = chat_prompt(query, where)
    about["prompt"] = query if isinstance(query, str | Prompt) and query else None
    about["prompt_tokens"] = len(given) if isinstance(given, list) and given else None
    return _Question(
        int(name) if isinstance(name, str) and name.isdecimal() and len(name) < 10 else number,
        about,
        [
            {"text": text or "", "reasoning": thoughts or None, "ids": _ends(own)}
            for text, thoughts, own in zip(texts, reasoning, ids, strict=True)
        ],
        doc.get("instruction"),
        where,
    )


def _ends(ids: Any) -> tuple[int, Any, int] | None:
    if not isinstance(ids, list) or not ids:
        return None
    last = ids[-1]
    repeats = next((n for n, token in enumerate(reversed(ids)) if token != last), len(ids))
    return len(ids), last, repeats


def _about(doc: Row, where: str, noted: Counter[str]) -> Row:
    """Return the columns of the question."""
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
    return {"question": text, "gold": gold_of(golds, where, noted), "choices": options}


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
        values = inside(general, "model_config", "generation_parameters")
        name = general.get("model_name")
        about = decoding(values if isinstance(values, dict) else {}, ["max_new_tokens"], _DECODING)
        return about | {"llm": name if isinstance(name, str) and name else None}
    return {}
