"""What the columns of a table mean: by a layout, by the catalogue of `feval.importers.columns`, or
by other usual names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from feval.errors import SourceError, UnknownNameError
from feval.importers.columns import Column, names_of
from feval.importers.shapes import sentence_start
from feval.importers.tables.files import Row, TableFile, plain
from feval.importers.tables.layouts import Layout

NAMES: Mapping[str, Column] = names_of("question", "request", "llm", "cot")

_DATASET = "dataset"
_USUAL: Mapping[str, tuple[str, ...]] = {
    _DATASET: (_DATASET, "dataset_name", "dataset_id", "benchmark", "task_name"),
    "id": ("qid", "problem_id", "task_id", "example_id", "doc_id", "question_idx", "problem_idx",
    "question_index", "unique_id"),
    "question": ("query", "instruction", "question_text", "problem_text", "input"),
    "gold": (
        "reference", "reference_answer", "gold_answer", "gold_label", "correct_answer",
        "expected_answer", "expected",
        "answer_key", "gt", "gt_answer",
    ),
    "llm": ("model_id", "llm_name", "generator"),
    "sample": ("sample_idx", "sample_number", "trial", "attempt", "rollout", "idx_answer"),
    "text": ("output", "generated_text", "model_output", "raw_output", "cot", "chain_of_thought",
    "rationale", "reply"),
    "answer": ("pred", "parsed_answer", "predicted_answer", "model_answer", "final_answer"),
    "tokens": ("num_tokens", "n_tokens", "token_count", "num_output_tokens", "generated_tokens",
    "completion_length"),
    "prompt_tokens": ("num_prompt_tokens", "num_input_tokens", "n_prompt_tokens"),
    "finish_reason": ("stop_reason",),
}  # fmt: skip
"""Names that count where a table has none of the catalogue's: on a single row of any origin they
would say too little.
"""

_WORDS = frozenset(word for words in _USUAL.values() for word in words)

GOLD_AS_ANSWER = "the gold answer, as no column is named target, gold or reference"
_MISSING = {"", "nan", "null", "none", "na", "n/a", "<na>"}
_SCORED = re.compile(r"(score|step_scores)\.(.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Use:
    """What one column of a table is read as.

    Attributes:
        column: the table's name; with dots, a nested member.
        name: in the catalogue, or "dataset", or "" where it is a score.
        about: its meaning, for people.
        scorer: whose score it is.
    """

    column: str
    name: str
    about: str
    scorer: str = ""

    @property
    def target(self) -> str:
        """The catalogue's own name of the column."""
        return NAMES[self.name].name if self.name in NAMES else self.name


@dataclass(frozen=True)
class Meanings:
    """What the columns of a table are read as, and those that are not read."""

    uses: tuple[Use, ...]
    unread: tuple[str, ...]
    cells_are_text: bool = False
    no_answer: frozenset[str] = frozenset()

    @cached_property
    def _steps(self) -> list[tuple[str, str, str, Callable[[Any], Any] | None]]:
        return [
            (use.column, use.name, use.scorer, _reader(use, self.no_answer)) for use in self.uses
        ]

    @cached_property
    def targets(self) -> dict[str, Use]:
        """The use of each of the catalogue's columns."""
        return {use.target: use for use in reversed(self.uses) if not use.scorer}

    def read(self, row: Mapping[str, Any]) -> Row:
        """Return a row under the catalogue's names; scores as objects scorer -> value."""
        values: Row = {}
        for column, name, scorer, read in self._steps:
            value = row[column] if column in row else _member(row, column)
            value = read(value) if value is not None and read is not None else value
            name = name or ("step_scores" if isinstance(value, list) else "score")
            if name in values and value is None:
                continue
            if scorer and value is not None:
                value = {scorer: value}
            both = name in {"score", "step_scores"} and values.get(name) is not None
            values[name] = _by_scorer(values[name]) | _by_scorer(value) if both else value
        if self.cells_are_text and values.get("text", "") is None:
            values["text"] = ""
        if values.get("node") is not None and values.get("answer", "") is None:
            del values["answer"]  # the answer of a step says that it ends a solution, null included
        return values


def meanings(
    table: TableFile,
    columns: Sequence[str],
    example: Mapping[str, Any],
    layout: Layout,
    *,
    has_golds: bool,
) -> Meanings:
    """Return what the columns of a table mean.

    Args:
        table: for its name.
        columns: all that the table has.
        example: a value of each column that has one.
        layout: what was said of them.
        has_golds: whether the golds come from elsewhere, so that `answer` can only be the LLM's.

    Raises:
        UnknownNameError: feval has no such column.
        SourceError: the table has no such column.
    """
    for column in sorted(layout.ignored & layout.required - set(columns)):
        raise _missing(table, columns, column)
    uses = list(_named(table, columns, example, layout))
    named = {use.target for use in uses if not use.scorer}
    free = [name for name in columns if name not in _columns(uses) and name not in layout.ignored]
    for use in filter(None, map(_by_name, sorted(free, key=lambda name: name not in NAMES))):
        if use.target not in named and all(use.name != other.name or use.scorer for other in uses):
            uses.append(use)
    # Usual names count where the catalogue's are missing.
    uses += _usual(uses, free, ["gold"])
    uses = list(_answers(uses, has_golds=has_golds))
    uses += _usual(uses, free, [target for target in _USUAL if target != "gold"])
    known = {use.target for use in uses}
    if not known & {"question", "id"}:  # what was sent stands for the question
        prompts = [
            use.column
            for use in uses
            if use.target == "prompt" and isinstance(example.get(use.column), str)
        ]
        uses += [
            Use(column, "question", "the question's text, which is what was sent")
            for column in prompts
        ]
    read = _columns(uses) | {use.column.split(".")[0] for use in uses} | layout.ignored
    order = {name: place for place, name in enumerate(columns)}
    uses.sort(key=lambda use: order.get(use.column, order.get(use.column.split(".")[0], 0)))
    unread = tuple(name for name in columns if name not in read)
    return Meanings(tuple(uses), unread, table.cells_are_text, layout.no_answer)


def may_matter(name: str, layout: Layout) -> bool:
    """Return whether a column can be read as anything, or change what others are read as."""
    named = (*layout.columns.values(), *layout.scores.values())
    return (
        _by_name(name) is not None
        or _snake(name) in _WORDS
        or any(name in (each, each.split(".")[0]) for each in named)
    )


def require_known(layout: Layout) -> None:
    """Raise an `UnknownNameError` where a layout names a column that feval does not have: before a
    table is opened.
    """
    for name in layout.columns:
        if name != _DATASET and name not in NAMES:
            raise UnknownNameError.of("column of feval's,", name, {_DATASET, *NAMES})


def _columns(uses: Iterable[Use]) -> frozenset[str]:
    return frozenset(use.column for use in uses)


def _usual(uses: Sequence[Use], free: Sequence[str], targets: Iterable[str]) -> list[Use]:
    """Return the uses of some of the catalogue's columns that have none yet, by usual names."""
    known, taken, more = {use.target for use in uses}, _columns(uses), []
    names = [(name, _snake(name)) for name in free if name not in taken]
    for target in targets:
        if target not in known:
            columns = [
                name for word in _USUAL[target] for name, written in names if written == word
            ]
            more += [Use(column, target, _about(target)) for column in columns[:1]]
    return more


def _named(
    table: TableFile, columns: Sequence[str], example: Mapping[str, Any], layout: Layout
) -> Iterator[Use]:
    """Yield the uses of columns that somebody named."""
    for name, column in layout.columns.items():
        if _has(table, columns, column, layout):
            yield Use(
                column,
                name,
                _about(name) + ", in a list with an entry per CoT" * (column in layout.lists),
            )
    for scorer, column in layout.scores.items():
        if _has(table, columns, column, layout):
            value = example.get(column.split(".")[0])
            value = parsed(value) if isinstance(value, str) else value
            if column in layout.lists and isinstance(value, list):
                value = next(iter(value), None)
            steps = isinstance(value, list)
            what = "for each step a score" if steps else "the score"
            yield Use(column, "", f"{what} of the scorer {scorer!r}", scorer)


def _has(table: TableFile, columns: Sequence[str], column: str, layout: Layout) -> bool:
    if column in columns or column.split(".")[0] in columns:
        return True
    if column in layout.required:
        raise _missing(table, columns, column)
    return False


def _missing(table: TableFile, columns: Sequence[str], column: str) -> SourceError:
    names = ", ".join(map(repr, columns))
    return SourceError(
        f"{table.name} has no column {column!r:.80}; it has {names:.400}. Name one of those."
    )


def _by_name(name: str) -> Use | None:
    """Return the use of a column by its own name, where the catalogue has it."""
    word = name if name in NAMES else _snake(name)
    if word in NAMES:
        return Use(name, word, _about(word))
    if scored := _SCORED.fullmatch(name):
        kind, scorer = scored.groups()
        return Use(
            name, kind, f"{NAMES[kind].about.split(',')[0]}, of the scorer {scorer!r}", scorer
        )
    return Use(name, name, "tokens") if name == "usage" else None


def _about(name: str) -> str:
    return "the id of the dataset" if name == _DATASET else NAMES[name].about


def _answers(uses: Iterable[Use], *, has_golds: bool) -> Iterator[Use]:
    """Yield the uses; a column `answer` is the gold where no other is."""
    uses = list(uses)
    gold = has_golds or any(use.target == "gold" for use in uses)
    for use in uses:
        yield Use(use.column, "gold", GOLD_AS_ANSWER) if use.name == "answer" and not gold else use


def _snake(name: str) -> str:
    """Return a column's name as the catalogue would write it: `Question ID` and `questionId` as
    `question_id`.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\s_-]+", "_", words).lower()


def _member(row: Mapping[str, Any], column: str) -> Any:
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _by_scorer(value: Any) -> Row:
    return value if isinstance(value, dict) else {"score": value}


def _reader(use: Use, no_answer: frozenset[str]) -> Callable[[Any], Any] | None:
    """Return what makes a value ready for the catalogue's own check: numbers, lists and objects may
    be written as text.

    `None`: values are as they should be.
    """
    if use.name == _DATASET or (not use.scorer and use.target in {"id", "node", "parent"}):
        return _identifier
    if use.target == "answer" and no_answer:
        return lambda value: None if isinstance(value, str) and value in no_answer else value
    column = NAMES.get(use.name)
    if column is not None and column.is_text and not use.scorer:
        return None
    if use.target == "prompt":
        return _messages
    return _score if use.scorer or use.target in {"score", "step_scores"} else _parsed_text


def _identifier(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parsed_text(value: Any) -> Any:
    return parsed(value) if isinstance(value, str) else value


def _score(value: Any) -> Any:
    """Return a score; an infinite one stays a text, which the catalogue refuses: it is the best or
    the worst, and not missing.
    """
    score = _parsed_text(value)
    return value if score is None and isinstance(value, str) and "inf" in value.lower() else score


def _messages(value: Any) -> Any:
    """Return what was sent: a text that holds a list of messages is that list."""
    messages = parsed(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    return (
        messages
        if isinstance(messages, list) and all(isinstance(each, dict) for each in messages)
        else value
    )


def parsed(text: str) -> Any:
    """Return the value of a cell: a number, a truth value, a list or object as JSON or Python
    writes it; else the text.
    """
    word = text.strip()
    if word.isdecimal() and len(word) < 19:
        return int(word)
    if word.lower() in _MISSING:
        return None
    if word.lower() in {"true", "false"}:
        return word.lower() == "true"
    if word[0] in "[{(":
        return _nested(word, text)
    try:
        number = float(word)
    except ValueError:
        return text
    return None if number - number != 0 else number


def _nested(word: str, text: str) -> Any:
    try:
        return orjson.loads(word)
    except orjson.JSONDecodeError:
        pass
    try:
        return plain(ast.literal_eval(word))
    except (ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError):
        return text


def late_column(where: str, column: str) -> SourceError:
    """Return the error for a column that comes late and would change what others mean."""
    return SourceError(
        f"{sentence_start(where)} is the first with the column {column!r:.60}, which changes what"
        f" others mean. Name it for the whole table: --map NAME={column:.60}."
    )
