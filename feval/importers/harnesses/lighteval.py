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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from feval.errors import SourceError
from feval.importers.harnesses.logs import (
    SEVERAL_GOLDS,
    chat_prompt,
    decoding,
    gold_of,
    labelled,
    limit_of,
    same_texts_note,
    temperature_of,
)
from feval.importers.questions import without_duplicates
from feval.importers.reading import Reader, read_bytes
from feval.importers.shapes import member, refuse, strings
from feval.importers.source import (
    Imported,
    ImportRequest,
    Prompt,
    SourceLLM,
    SourcePool,
    SourceQuestion,
    counted_notes,
    size_note,
)
from feval.importers.tables.files import opened_parquet, shortest_floats
from feval.recording.content import LLMInfo

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


def read(source: Path, request: ImportRequest) -> Imported:
    """Read the Parquet details of one task. The request names the LLM if the results are not where
    lighteval puts them.
    """
    reader = Reader()
    rows = sorted(_rows(source, request), key=lambda row: row.place)
    if not rows:
        raise SourceError(f"{source.name} has no questions; there is nothing to import.")
    questions = without_duplicates((row.question for row in rows), source.name)
    counted = all(row.tokens is not None for row in rows)
    filled = (
        _without_padding([sample for row in rows for sample in row.tokens or ()]) if counted else 0
    )
    pools = [row.pool(counted=counted) for row in rows]
    llm = SourceLLM(request.llm_of(source.name, _results(source, reader)), pools, counted)
    notes = [*_row_notes(rows, filled), *size_note(pools), *same_texts_note(pools), *reader.notes()]
    return Imported(questions, [llm], notes, _system_prompt(rows))


class _Row:
    """One question with its samples."""

    def __init__(
        self, doc: Any, response: Any, number: int, request: ImportRequest, where: str
    ) -> None:
        doc_id = doc.get("id")
        self.place = (
            int(doc_id)
            if isinstance(doc_id, str) and doc_id.isdecimal() and len(doc_id) < 10
            else number
        )
        self.instruction = doc.get("instruction")
        self.question, self.other_golds = _question(doc, request.question_id(self.place), where)
        texts = member(response, "text", list, where)
        self.empty = texts.count(None)
        self.texts = strings([text if text is not None else "" for text in texts], where)
        self.reasoning = _reasonings(response.get("reasonings"), len(texts), where)
        self.tokens = _token_ids(response.get("output_tokens"), len(texts))
        input_tokens = response.get("input_tokens")
        self.prompt_tokens = (
            len(input_tokens) if isinstance(input_tokens, list) and input_tokens else None
        )
        self.prompt = _prompt(response.get("input"), where)

    def pool(self, *, counted: bool) -> SourcePool:
        """Return the samples as columns."""
        return SourcePool(
            self.texts,
            tokens=[sample.count for sample in self.tokens or ()] if counted else None,
            prompt=self.prompt,
            prompt_tokens=self.prompt_tokens if counted else None,
            reasoning=self.reasoning,
        )


def _reasonings(reasonings: Any, samples: int, where: str) -> list[str | None] | None:
    """Return the reasoning that a server gave apart from each sample's text; `None` where there is
    none.
    """
    if not isinstance(reasonings, list) or len(reasonings) != samples:
        return None
    if not all(thoughts is None or isinstance(thoughts, str) for thoughts in reasonings):
        refuse(f"'reasonings' of {where}", "texts or null", reasonings)
    return [thoughts or None for thoughts in reasonings]


@dataclass(slots=True)
class _Tokens:
    """How many token ids a sample has, the last one, and how often that stands at its end."""

    count: int
    last: Any
    repeats: int

    @classmethod
    def of(cls, ids: list[Any]) -> _Tokens:
        last = ids[-1]
        return cls(
            len(ids),
            last,
            next((n for n, token in enumerate(reversed(ids)) if token != last), len(ids)),
        )


def _token_ids(ids: Any, samples: int) -> list[_Tokens] | None:
    """Return what is needed of the token ids of each sample; `None` where a sample has none."""
    if (
        not isinstance(ids, list)
        or len(ids) != samples
        or not all(isinstance(sample, list) and sample for sample in ids)
    ):
        return None
    return list(map(_Tokens.of, ids))


def _without_padding(samples: list[_Tokens]) -> int:
    """Count what repeats the usual last token at the end of each sample once; return in how many
    samples there was any.
    """
    ((last, _),) = Counter(sample.last for sample in samples).most_common(1) or [(None, 0)]
    filled = [sample for sample in samples if sample.last == last and sample.repeats > 1]
    for sample in filled:
        sample.count -= sample.repeats - 1
    return len(filled)


def _prompt(query: Any, where: str) -> Prompt | None:
    if isinstance(query, str) and query:
        return Prompt.of(query)
    return (
        chat_prompt(query, where)
        if isinstance(query, list) and query and isinstance(query[0], dict)
        else None
    )


def _question(doc: Any, name: str, where: str) -> tuple[SourceQuestion, bool]:
    """Return the question, and whether it has other accepted answers than its gold."""
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
    return SourceQuestion(name, text, gold, options), others


def _rows(source: Path, request: ImportRequest) -> Iterator[_Row]:
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
                yield _Row(doc, response, number, request, where)
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


def _results(source: Path, reader: Reader) -> LLMInfo:
    """Return name and decoding of the model, as the results state them."""
    for path in beside(source):
        results = reader.json(read_bytes(path), path.name)
        general = member(results, "config_general", dict, path.name)
        config = general.get("model_config")
        values = config.get("generation_parameters") if isinstance(config, dict) else None
        values = values if isinstance(values, dict) else {}
        name = general.get("model_name")
        return LLMInfo(
            name if isinstance(name, str) else "",
            temperature_of(values.get("temperature"), path.name),
            limit_of(values.get("max_new_tokens"), path.name),
            decoding(values, _DECODING),
        )
    return LLMInfo("")


def _row_notes(rows: list[_Row], filled: int) -> list[str]:
    return counted_notes(
        (SEVERAL_GOLDS, sum(row.other_golds for row in rows)),
        ("Samples that batches filled up with their end token, which was counted once", filled),
        (
            "Samples without a text (null), which were read as empty texts",
            sum(row.empty for row in rows),
        ),
    )


def _system_prompt(rows: list[_Row]) -> str | None:
    """Return the instruction, where all questions have the same."""
    instructions = {row.instruction for row in rows if isinstance(row.instruction, str)}
    return instructions.pop() if len(instructions) == 1 else None
