"""Tables with a row for each CoT, or for each question: what their columns mean (by a layout, by
the catalogue of `feval.importers.columns`, or by other usual names), and how rows become questions
and pools, by dataset. Rows may come in any order.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson

from feval.answers import KINDS, canonical_gold
from feval.cards import count_words, find_dataset_card
from feval.errors import ConflictError, SourceError, UnknownNameError, UsageError, require_known
from feval.importers.columns import (
    COLUMNS,
    RowReader,
    examples,
    member,
    names_of,
    positive,
    refuse,
    sentence_start,
    whole_number,
)
from feval.importers.exported import ALONE, as_exported, facts_of, with_missing
from feval.importers.files import (
    TableFile,
    TableRow,
    check_width,
    opened_table,
    other_tables,
    plain,
    table_files as files_of,
)
from feval.importers.layouts import Layout, layout_of
from feval.importers.questions import known_answer_kind, read_questions
from feval.importers.reading import Reader
from feval.importers.rows import Rows
from feval.importers.source import ImportRequest, Row, SourceContent, counted_notes
from feval.values import frozen

NAMES = names_of("table", "question", "request", "llm", "cot")
_NAMED = NAMES | {word: column for column in NAMES.values() for word in column.usual}
"""Also the names that count where a table has none of the others: what somebody may name."""

_USUAL = {column.name: column.usual for column in COLUMNS if column.usual}
_USUAL_WORDS = frozenset(chain.from_iterable(_USUAL.values()))
_GOLD_AS_ANSWER = "the gold answer, as no column is named target, gold or reference"
_MISSING = {"", "nan", "null", "none", "na", "n/a", "<na>"}
_SCORED = re.compile(r"(score|step_scores|verdict)\.(.+)", re.DOTALL)
_ID, _LLM, _USD = "{id}", "names of {llm}", "{usd}"  # columns that a layout makes of others
_FIELD = re.compile(r"\{(\w+)\}")
_EXACT = {"verdict", "usd"}  # where NaN is no missing value, and only CSV has text
_SEEMING = ("passed", "is_correct", "correct")  # what verdicts are called, and much else
_ROWS_LOOKED_AT = 200
_COUNTS_KEPT = 4096
_COPIES = 1 << 32  # sample numbers between those of two questions that are merged
_MOST_LLMS = 30  # that a column is taken to name
_SCORERS = ("rm", "prm", "orm", "reward", "verifier")  # what scores are called
_SAMPLES = ("samples", "output_list")  # what lists of CoTs are called, beside "responses" and such
_LIKELY = ("number", "choice", "yes-no", "valid-invalid", "date")


@frozen
class Use:
    """What one column of a table is read as.

    Attributes:
        column: the table's name; with dots, a nested member.
        name: in the catalogue, or "" where it is a score.
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
        return _NAMED[self.name].name if self.name in _NAMED else self.name

    def reader(self) -> Callable[[Any], Any] | None:
        """Return what makes a value ready for the catalogue's own check: numbers, lists and objects
        may be written as text. `None`: values are as they should be.
        """
        if self.name == "features" and self.scorer:
            return None  # the column of one feature
        if self.target in _EXACT:
            return _stated
        if self.target in {"dataset", "id", "node", "parent"}:
            return _identifier
        if self.name in _NAMED and _NAMED[self.name].is_text:
            return _only_text
        return _messages if self.target == "prompt" else parsed


@dataclass(frozen=True)
class Meanings:
    """What a table was understood as, before its rows are read.

    Attributes:
        name: of the file that was looked at.
        uses: what its columns are read as.
        unread: the columns that are not read.
        ignored: those that were named as such.
        examples: column -> a value, where the first rows have one.
        missing: the error of an import that is told no more than this; `None`: it will do.
    """

    name: str = ""
    uses: tuple[Use, ...] = ()
    unread: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    examples: Row = field(default_factory=dict)
    missing: UsageError | None = None

    @cached_property
    def steps(self) -> list[tuple[str, str, str, Callable[[Any], Any] | None]]:
        """Column, name and scorer of each use, and what makes a value ready."""
        return [(use.column, use.name, use.scorer, use.reader()) for use in self.uses]

    @cached_property
    def targets(self) -> dict[str, Use]:
        """The use of each of the catalogue's columns."""
        return {use.target: use for use in reversed(self.uses) if not use.scorer}


def meanings(
    table: str, columns: Collection[str], example: Row, layout: Layout, *, has_golds: bool
) -> Meanings:
    """Return what the columns of a table mean.

    Args:
        table: its name.
        columns: all that the table has.
        example: a value of each column that has one.
        layout: what was said of them.
        has_golds: whether the golds come from elsewhere, so that `answer` can only be the LLM's.

    Raises:
        UnknownNameError: feval has no such column.
    """
    uses = [
        use
        for use in _named(example, layout)
        if use.column in columns or use.column.split(".")[0] in columns
    ]
    targets = {use.target for use in uses if not use.scorer}
    free = (
        []
        if "*" in layout.ignored
        else [
            name
            for name in columns
            if name not in layout.ignored and all(name != use.column for use in uses)
        ]
    )
    for use in filter(None, map(_by_name, sorted(free, key=lambda name: name not in NAMES))):
        if use.target not in targets and all(
            use.name != other.name or use.scorer for other in uses
        ):
            uses.append(use)
    # Usual names count where the catalogue's are missing; `answer` is the gold where no other is.
    uses += _usual(uses, free, ["gold"])
    if not has_golds and all(use.target != "gold" for use in uses):
        golds = [
            each.column
            for each in uses
            if each.name == "answer" and not layout.is_listed(each.column)
        ]
        # where the LLM's is in the objects of a list
        if not golds and "answer" in free and all(each.column != "answer" for each in uses):
            golds = ["answer"]
        uses = [each for each in uses if each.column not in golds]
        uses += [Use(column, "gold", _GOLD_AS_ANSWER) for column in golds]
    uses += _usual(uses, free, [target for target in _USUAL if target != "gold"])
    if not {use.target for use in uses} & {"question", "id"}:
        uses += [
            Use(use.column, "question", "the question's text, which is what was sent")
            for use in uses
            if use.target == "prompt" and isinstance(example.get(use.column), str)
        ]
    order = {name: place for place, name in enumerate(columns)}
    uses.sort(key=lambda use: order.get(use.column, order.get(use.column.split(".")[0], 0)))
    read = {name for use in uses for name in (use.column, use.column.split(".")[0])}
    unread = tuple(name for name in free if name not in read)
    ignored = tuple(name for name in columns if name in layout.ignored)
    return Meanings(table, tuple(uses), unread, ignored, example)


def _may_matter(name: str, layout: Layout) -> bool:
    """Return whether a column can be read as anything, or change what others are read as."""
    named = (*layout.columns.values(), *layout.scores.values())
    if any(name in (each, each.split(".")[0]) for each in named):
        return True
    known = _by_name(name) is not None or _snake(name) in _USUAL_WORDS
    return known and "*" not in layout.ignored


def _usual(uses: Sequence[Use], free: Sequence[str], targets: Iterable[str]) -> list[Use]:
    """Return the uses of some of the catalogue's columns that have none yet, by usual names."""
    known, taken = {use.target for use in uses}, {use.column for use in uses}
    written = {_snake(name): name for name in reversed(free) if name not in taken}
    found = (
        (target, next((written[word] for word in _USUAL[target] if word in written), None))
        for target in targets
        if target not in known
    )
    return [Use(column, target, NAMES[target].about) for target, column in found if column]


def _named(example: Row, layout: Layout) -> Iterator[Use]:
    """Yield the uses of columns that somebody named, whether or not they are there."""
    for name in _FIELD.findall(layout.file):
        yield Use(f"{{{name}}}", name, f"{_NAMED[name].about}, in the file's name")
    yield Use(_LLM, "llm", "name of the LLM, in the names of columns")
    if layout.number:
        yield Use(_ID, "id", f"the question's number, {layout.number!r}")
    for name, column in layout.columns.items():
        listed = ", in a list with an entry per CoT" * layout.is_listed(column)
        yield Use(column, name, _NAMED[name].about + listed)
    for column in layout.features:
        yield Use(column, "features", "a feature of the question", column)
    for scorer, column in layout.scores.items():
        value = parsed(example.get(column.split(".")[0]))
        if column in layout.lists and isinstance(value, list):
            value = next(iter(value), None)
        what = "for each step a score" if isinstance(value, list) else "the score"
        yield Use(column, "", f"{what} of the scorer {scorer!r}", scorer)


def _likely(target: str, columns: Iterable[str], *more: str) -> str:
    """Return the first column whose name has a word of the target's names, or of `more`; empty
    where none has.
    """
    names = (target, *NAMES[target].aliases, *more)
    words = {word for name in names for word in name.split("_")}
    return next((name for name in columns if words & {*_snake(name).split("_")}), "")


def _by_name(name: str) -> Use | None:
    """Return the use of a column by its own name, where the catalogue has it."""
    word = name if name in NAMES else _snake(name)
    if word in NAMES:
        return Use(name, word, NAMES[word].about)
    if scored := _SCORED.fullmatch(name):
        kind, scorer = scored.groups()
        return Use(
            name, kind, f"{NAMES[kind].about.split(',')[0]}, of the scorer {scorer!r}", scorer
        )
    return Use(name, name, "tokens") if name == "usage" else None


def _listed_as(name: str) -> str | None:
    """Return what the entries of a list of this name are, empty: not known; `None`: the list is not
    one of CoTs.
    """
    word = _snake(name)
    column = _NAMED.get(word) or _NAMED.get(word.removesuffix("s"))
    if word in _SAMPLES:
        return "text"
    return "" if column is None else column.name if "cot" in column.of else None


def _snake(name: str) -> str:
    """Return a column's name as the catalogue would write it: `Question ID` and `questionId` as
    `question_id`.
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[\s_-]+", "_", words).lower()


@lru_cache(_COUNTS_KEPT)
def fitting(pattern: str, field: str, names: tuple[str, ...]) -> dict[str, str]:
    """Return what a field such as `{llm}` of a pattern stands for in each name that fits."""
    before, _, after = pattern.partition(field)
    found = {
        value: name
        for name in names
        if field in pattern
        and (value := name.removeprefix(before).removesuffix(after))
        and name == f"{before}{value}{after}"
        and (field != "{i}" or (value.isdecimal() and len(value) < 10))
    }
    if field == "{i}" and len({*map(int, found)}) < len(found):
        raise SourceError(
            f"Two of the columns {', '.join(map(repr, found.values())):.300} have one number;"
            " rename one of them."
        )
    return found


def _nested(row: Row, path: str, where: str) -> Any:
    """Return the value that a path leads to, `None` where there is none; a list has to be
    as long as the path says, and a name leads into its only entry.
    """
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        value, is_place = parsed(value), name.isdecimal()
        value = value if is_place else _only(value)
        if isinstance(value, Mapping):
            value = value.get(name)
        elif is_place and isinstance(value, list) and int(name) < len(value):
            value = value[int(name)]
        elif value is None or not (is_place or str(value).lstrip().startswith(("[", "{"))):
            return None
        else:
            need = f"inside a list of {int(name) + 1} or more" if is_place else "inside an object"
            refuse(f"{path!r} of {where}", need, value)
    return value


def _only(value: Any) -> Any:
    """Return the only entry of a list, `None` where it has none; else the value."""
    return next(iter(value), None) if isinstance(value, list) and len(value) < 2 else value


def _only_text(value: Any) -> Any:
    """Return the only text of a list; a list of messages stays one."""
    return value if isinstance(entry := _only(value), dict) else entry


def _by_scorer(name: str, value: Any) -> Row:
    alone = "verdict" if name == "verdict" else "score"
    return value if isinstance(value, dict) else {alone: value}


def _identifier(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _messages(value: Any) -> Any:
    """Return what was sent: a text that holds a list of messages is that list."""
    messages = parsed(value)
    are_messages = isinstance(messages, list) and all(isinstance(each, dict) for each in messages)
    return messages if are_messages else value


def _stated(cell: Any) -> Any:
    """Return a verdict or an amount that is written as text; NaN is neither, and not missing."""
    return math.nan if str(cell).strip().lower() == "nan" else parsed(cell)


def _no_column(where: str, column: str, columns: Iterable[str]) -> SourceError:
    names = ", ".join(map(repr, columns))
    return SourceError(
        f"{where} has no column {column!r:.80}; it has {names:.400}. Name one of those."
    )


def parsed(cell: Any) -> Any:
    """Return the value of a cell that is text: a number, a truth value, a list or object as JSON or
    Python writes it; else the text. A lone NaN is missing; infinity is not.
    """
    if not isinstance(cell, str):
        return cell
    word = cell.strip()
    if word.isdecimal() and len(word) < 19:
        return int(word)
    if word.lower() in _MISSING:
        return None
    if word.lower() in {"true", "false"}:
        return word.lower() == "true"
    if word[0] in "[{(":
        # Python's reader takes NaN, too, which is refused where a number should be
        for read in (orjson.loads, json.loads, _literal):
            with suppress(
                ValueError, SyntaxError, TypeError, OverflowError, MemoryError, RecursionError
            ):
                return read(word)
        return cell
    try:
        number = float(word)
    except ValueError:
        return cell
    return None if number != number else number


def _literal(text: str) -> Any:
    return plain(ast.literal_eval(text))


def understood(
    source: Path, layout: Layout, questions: Path | None = None, **named: Any
) -> Meanings:
    """Return what the first file of a source is understood as, beside a questions file and what
    else was `named` for the import (`ImportRequest`).

    Raises:
        SourceError: it is no table, or lacks a column that was named.
        UnknownNameError: feval has no such column.
    """
    known = None if questions is None else read_questions(questions, "", Reader())
    request = ImportRequest(**{"dataset": "", **named}, questions=known, layout=layout)
    content = _Content(source.name, request)
    path, content.shared = next(iter(named_files(source, request).items()))
    with opened_table(path, Reader(), layout.rows, keeps_nan=True) as table:
        content.look_at(table)
    is_export = layout == Layout() and facts_of(source)  # which says all that an import needs
    return replace(content.meanings, missing=None) if is_export else content.meanings


def named_files(source: Path, request: ImportRequest) -> dict[Path, Row]:
    """Return the files of a source that are asked for, with the columns in their names.

    Raises:
        SourceError: no file is named as the layout says.
        UnknownNameError: no file is of a dataset or LLM that was asked for.
    """
    layout, is_folder = request.layout or Layout(), source.is_dir()
    if not layout.file:
        return {path: {} for path in files_of(source)}
    fields = _FIELD.findall(layout.file)
    for name in fields:
        if name not in _NAMED or fields.count(name) > 1:
            raise UsageError(
                f"The layout's file {layout.file!r:.80} has {{{name}}}; each of feval's columns"
                " (feval ls columns) may stand there once."
            )
    wanted = {"dataset": [request.dataset] if request.dataset else [], "llm": [*request.llms]}
    synonyms = [name for name, own in layout.datasets.items() if own == request.dataset]
    form = ""
    for place, piece in enumerate(_FIELD.split(layout.file)):
        # the name of an LLM may have what separates it from others
        names = [*wanted.get(piece, ()), *(synonyms if piece == "dataset" else ())]
        any_name = "[^/]+" if piece == "llm" else "[^/]+?"
        text = re.escape(piece)
        form += (
            f"(?P<{piece}>{'|'.join([*map(re.escape, names), any_name])})" if place % 2 else text
        )
    paths = source.rglob(_FIELD.sub("*", layout.file) + "*") if is_folder else files_of(source)
    files = {
        path: {
            f"{{{name}}}": layout.datasets.get(value, value)
            for name, value in (fit.groupdict() if fit else {}).items()
        }
        for path in sorted(paths)
        if (fit := re.fullmatch(rf"(?:.*/)?{form}(?:\.gz)?", path.as_posix())) or not is_folder
    }
    if not files:
        raise SourceError(
            f"{source} has no file that is named like {layout.file!r}, as the layout says."
        )
    for column, names in wanted.items():
        own = {path: row.get(f"{{{column}}}", "") for path, row in files.items()}
        if names and len({*own.values()}) > 1:
            for name in names:
                what = f"{'LLM' if column == 'llm' else column} named by a file in {source},"
                require_known(what, name, {*own.values()})
            files = {path: row for path, row in files.items() if own[path] in names}
    return files


def read(source: Path, request: ImportRequest) -> SourceContent:
    """Read a table, or the several files of one. The request names dataset and LLM if no column
    does, or chooses among them.
    """
    if request.facts is not None:
        request = replace(request, layout=Layout(ignored=("correct", ALONE)))
    reader, content = Reader(), _Content(source.name, request)
    files = named_files(source, request)
    if others := other_tables(source, files) if not content.layout.file else ():
        content.order_notes.append(
            f"Files of {source.name} that were not read: {', '.join(others):.400}."
        )
    for path, content.shared in files.items():
        with opened_table(path, reader, content.layout.rows, keeps_nan=True) as table:
            content.add(table)
    return content.imported(reader)


def read_as(layout: str, source: Path, request: ImportRequest) -> SourceContent:
    """Read a file of a format that is a layout, `formats/*.toml`."""
    path = Path(__file__).with_name("formats") / f"{layout}.toml"
    return read(source, replace(request, layout=layout_of(path)))


class _Content:
    """Collects the rows of a table by dataset."""

    def __init__(self, source: str, request: ImportRequest) -> None:
        layout = request.layout or Layout()
        columns = {
            name if name in _NAMED else _snake(name): column
            for name, column in layout.columns.items()
        }
        of_each = {"verdict": layout.outcomes, "llm": layout.outcomes, "usd": layout.usd}
        for name, column in columns.items():
            if name not in _NAMED:
                raise UnknownNameError.among("column of feval's,", name, NAMES)
            if of_each.get(_NAMED[name].name):
                raise UsageError(
                    f"--outcome or --usd says what the {_NAMED[name].name} of each row is, and"
                    f" --map {name}={column:.80} says it, too. Leave one of them out."
                )
        columns |= {"verdict": "{llm}"} if layout.outcomes else {}
        columns |= {"usd": _USD} if layout.usd else {}
        numbered = [column for column in columns.values() if "{i}" in column]
        lists = tuple(dict.fromkeys((*layout.lists, *numbered)))
        self.layout = layout.model_copy(update={"columns": columns, "lists": lists})
        self._source, self._request = source, request
        self.shared: Row = {}
        self._has_golds = any(question.gold is not None for question in request.questions or ())
        self.meanings = Meanings()
        self._known: dict[str, None] = {}
        self._raw: dict[str, None] = {}  # columns of the first rows, as they stand in the file
        self._intervals = set[int]()
        self._reader = RowReader(_NAMED)
        self._datasets: dict[str, Rows] = {}
        self._unread: Row = {}
        self._rows = 0
        self._id_column = ""
        self._texts: dict[bytes, str] = {}
        self._ids = set[bytes]()
        self._merged: dict[bytes, dict[str, int]] = {}
        self._count = lru_cache(_COUNTS_KEPT)(count_words)
        self._counted = Counter[str]()
        self.order_notes: list[str] = []
        self._marks_vote = self.layout.verbatim_marks and request.answer_kind == "verbatim"

    def look_at(self, table: TableFile) -> Iterator[TableRow]:
        """Understand the columns of a table by its first rows; return all rows."""
        rows = self._expanded(table)
        first = list(islice(rows, _ROWS_LOOKED_AT))
        if not first:
            raise SourceError(f"{table.name} has no rows; there is nothing to import.")
        columns = dict.fromkeys(chain(*(row for _, row in first)))
        check_width(table.name, len(columns))
        for column in sorted(self.layout.named.difference(columns)):
            top = column if column in self.layout.ignored else column.split(".")[0]
            if not {column, top} & self._raw.keys():
                raise _no_column(table.name, column, self._raw)
        example = {
            name: next((value for _, row in first if (value := row.get(name)) is not None), None)
            for name in columns
        }
        self._recognise(tuple(columns), first)
        self._understand(table, columns, table.name, example)
        self._check_paths(table.name, first)
        if self._request.facts is None:
            self.meanings = replace(self.meanings, missing=self._missing(table.name, first))
        self._cells_are_text, self._is_json = table.cells_are_text, table.columns is None
        return chain(first, rows)

    def _expanded(self, table: TableFile) -> Iterator[TableRow]:
        """Yield the rows with the columns that the layout makes of others: what the file's name
        says, ids of numbered questions, lists of numbered columns, and a row for each LLM that the
        names of columns show. What these are made of is left out.
        """
        layout = self.layout
        named = (*layout.columns.values(), *layout.scores.values())
        patterns = [name for name in named if "{llm}" in name and name != "{llm}"]
        alone, numbered = {"{llm}"} & {*named}, [name for name in layout.lists if "{i}" in name]
        is_plain = not (patterns or numbered or layout.outcomes or self.shared)
        prices = layout.usd
        rows: Iterator[TableRow] = table.rows
        if layout.number:
            rows = self._numbered(table)
        elif self._request.facts is not None:
            rows = with_missing(rows, self._request.facts, table.name)
        for where, row in rows:
            if not self._known:
                self._raw |= dict.fromkeys(row)
            for name in layout.required:
                if name not in row:
                    member({key: row[key] for key in row if key != _ID}, name, object, where)
            if is_plain:
                yield TableRow(where, row)
                continue
            names, made, used = tuple(row), dict(self.shared), set[str]()
            lists = [fitting(pattern, "{i}", names) for pattern in numbered]
            numbers = {i for each in lists for i, name in each.items() if row[name] is not None}
            for pattern, each in zip(numbered, lists, strict=True):
                used.update(each.values())
                if each:
                    made[pattern] = [row.get(each.get(i, "")) for i in sorted(numbers, key=int)]
                    gaps = int(max(each, key=int)) - int(min(each, key=int)) >= len(each)
                    self._counted[f"Rows with gaps in the numbers of columns {pattern!r}"] += gaps
            by_llm = {
                llm: {"{llm}": column} | ({_USD: prices[llm]} if llm in prices else {})
                for llm, column in layout.outcomes.items()
            }
            for pattern in patterns:
                for llm, name in fitting(pattern, "{llm}", names).items():
                    by_llm.setdefault(llm, dict.fromkeys(alone, llm))[pattern] = name
            for columns in by_llm.values():
                used.update(each for each in columns.values() if isinstance(each, str))
            if not used <= row.keys():
                raise _no_column(sentence_start(where), min(used - row.keys()), row)
            used -= layout.named
            kept = {name: value for name, value in row.items() if name not in used} | made
            for llm, columns in by_llm.items():
                own = {name: row.get(each, each) for name, each in columns.items()}
                if layout.outcomes and own.get("{llm}", 0) in (None, ""):
                    self._counted[f"Rows without an outcome of {llm}, which has no CoT there"] += 1
                    continue
                yield TableRow(where, kept | {_LLM: llm} | own)
            if not by_llm:
                yield TableRow(where, kept)

    def _recognise(self, names: tuple[str, ...], rows: Sequence[TableRow]) -> None:
        """Name the scorers that are in the names of columns; and, where nobody says which lists
        have an entry per CoT, take that of the texts, and those that are as long on each row.
        """
        layout = self.layout
        columns, scores, lists = {**layout.columns}, {**layout.scores}, [*layout.lists]
        for scorer, pattern in layout.scores.items():
            for value, name in fitting(pattern, "{scorer}", names).items():
                scores[scorer.replace("{scorer}", value)] = name
                lists += [name] * (pattern in lists)
        taken = {*columns.values(), *scores.values()}
        is_said = "*" in layout.ignored or any("{i}" not in name for name in lists)
        cells = {
            name: values
            for name in (() if is_said else names)
            if any(values := [parsed(row.get(name)) for _, row in rows])
        }
        texts = [
            column.split(".")[0] for name, column in columns.items() if _NAMED[name].name == "text"
        ]
        texts = texts or [name for name in cells if _listed_as(name) == "text"]
        found = [each for name in texts for each in cells.get(name, ())]
        listed = any(found) and all(isinstance(each, list | None) for each in found)
        entry = next(filter(None, found))[0] if listed else None
        # the entries of a conversation are its messages
        if listed and not (isinstance(entry, dict) and "role" in entry):
            samples = texts[0]
            sizes = {
                name: [len(each) if isinstance(each, list) else None for each in values]
                for name, values in cells.items()
                if _listed_as(name) is not None
            }
            verdicts = "verdict", "verdicts", columns.get("verdict")
            lists = [
                name
                for name, each in sizes.items()
                if each == sizes[samples] or (name in verdicts and {*each} != {None})
            ]
            named = {name: name for name in lists}
            if isinstance(entry, dict):
                del named[samples]
                named |= {f"{samples}.{name}": name for name in entry}
            for column, name in named.items():
                if (meant := _listed_as(name)) and column not in taken:
                    columns.setdefault(meant, column)
        self.layout = layout.model_copy(
            update={"columns": columns, "scores": scores, "lists": tuple(lists)}
        )

    def _numbered(self, table: TableFile) -> Iterator[TableRow]:
        """Yield the rows with the ids of their questions, in the order of the numbers."""
        number = self.layout.number
        numbered: Iterable[tuple[int, TableRow]] = enumerate(table.rows)
        if number != "row":
            rows = list(numbered)
            if any(number in row.cells for _, row in rows):
                rows = [
                    (
                        whole_number(
                            member(row.cells, number, int, row.where), f"{number!r} of {row.where}"
                        ),
                        row,
                    )
                    for _, row in rows
                ]
            else:
                self.order_notes.append(
                    f"The source does not number its questions ({number!r}); their ids count its"
                    " rows, which files may have in any order."
                )
            numbered, seen = sorted(rows, key=itemgetter(0)), dict[Any, TableRow]()
            dataset = self.layout.columns.get("dataset", "dataset")
            for place, row in numbered:
                other = seen.setdefault((row.cells.get(dataset), place), row)
                if other is not row:
                    raise ConflictError(
                        f"{sentence_start(row.where)} has the {number!r} of {other.where}, {place}:"
                        " two entries for one question id. Remove one of them or give each its own."
                    )
            if numbered != rows:
                self.order_notes.append(
                    "The source is in shuffled order; its questions were put in the order of their"
                    " numbers."
                )
        for place, row in numbered:
            yield TableRow(row.where, row.cells | {_ID: place})

    def add(self, table: TableFile) -> None:
        """Add the rows of a file."""
        rows = self.look_at(table)
        if self.meanings.missing is not None:
            raise self.meanings.missing
        example, unread = self.meanings.examples, list[str]()
        for where, row in rows:
            if table.columns is None and not row.keys() <= self._known.keys():
                new = dict.fromkeys(name for name in row if name not in self._known)
                check_width(table.name, len(self._known) + len(new))
                example |= {name: row[name] for name in new}
                if any(_may_matter(name, self.layout) for name in new):
                    self._understand(table, self._known | new, where, example)
                else:
                    unread += [name for name in new if not {name, "*"} & {*self.layout.ignored}]
                    self._known |= new
            if self.layout.lists:
                self._add_samples(row, where)
            else:
                self._add_row(row, where, cot=ALONE not in row)
        self._unread |= {
            name: example.get(name)
            for name in (*self.meanings.unread, *unread)
            if self._unread.get(name) is None
        }

    def _understand(
        self, table: TableFile, columns: dict[str, None], where: str, example: Row
    ) -> None:
        """Say what the columns mean; raise where one that comes late, or a later file, changes
        it.
        """
        what = meanings(table.name, columns, example, self.layout, has_golds=self._has_golds)
        for use in self.meanings.uses:
            if use not in what.uses and use.column.split(".")[0] in columns:
                late = next((name for name in columns if name not in self._known), use.column)
                raise SourceError(
                    f"{sentence_start(where)} is the first with the column {late!r:.60}, which"
                    " changes what others mean. Name it for the whole table: --map"
                    f" NAME={late:.60}."
                )
        self.meanings, self._known, known = what, columns, what.targets.keys()
        # Without any tokens of requests, nothing could be priced; those of a format are unknown.
        self._counts_requests = (
            not self.layout.number
            and "tokens" in known
            and bool(known & {"question", "prompt"})
            and not known & {"prompt_tokens", "usage"}
        )

    def _check_paths(self, name: str, rows: Sequence[TableRow]) -> None:
        """Raise where a path leads nowhere in any of the objects that it leads into."""
        for use in self.meanings.uses:
            top, dot, path = use.column.partition(".")
            if not dot or use.column in self.meanings.examples:
                continue
            cells = [parsed(row.get(top)) for _, row in rows]
            if self.layout.is_listed(top):
                cells = [each for cell in cells if isinstance(cell, list) for each in cell]
            objects = [cell for cell in cells if isinstance(cell, dict)]
            member = path.split(".")[0]
            if objects and not any(member in each for each in objects):
                raise SourceError(
                    f"{name} has nothing at {use.column!r:.80}, which is to be read as"
                    f" {use.scorer or use.target!r}: {top!r:.60} has the members"
                    f" {', '.join(map(repr, objects[0])):.300}. Name one of those."
                )
            with suppress(SourceError):  # which whoever reads the row says, with its place
                found = (_nested({top: cell}, use.column, name) for cell in cells)
                self.meanings.examples[use.column] = next(
                    (value for value in found if value is not None), None
                )

    def _missing(self, name: str, rows: Sequence[TableRow]) -> UsageError | None:
        """Return an error that says all that the table lacks and the request does not give, with
        the options that would.
        """
        request, what = self._request, self.meanings
        targets, needs = what.targets, list[tuple[str, str, str]]()
        example = {column: str(what.examples.get(column)) for column in what.unread}
        dataset = request.dataset
        if "dataset" in targets:
            dataset = dataset or str(what.examples.get(targets["dataset"].column))
        elif not dataset:
            stem = self.layout.title.partition(":")[0] or name.split(".")[0]
            dataset = re.sub(r"\W+", "-", stem.lower())
            needs.append((f"{name} does not name its dataset: any id will do", "dataset", dataset))
        has_kind = request.answer_kind or self.layout.answer_kind or find_dataset_card(dataset)
        if not has_kind:
            kinds = f"The kind of its answers is not known: one of {', '.join(KINDS)}"
            needs.append((kinds, "answer-kind", self._likely_kind(rows)))
        if not (request.llms or self.layout.number or "llm" in targets):
            sizes = {name: len({str(row.get(name)) for _, row in rows}) for name in example}
            few = [
                column
                for column, size in sizes.items()
                if size <= min(_MOST_LLMS, len(rows) // 2)
                and parsed(example[column]) == example[column]
            ]
            column = _likely("llm", few, "engine") or max(
                few, key=lambda each: sizes[each] > 1, default=""
            )
            if column:
                need = f"No column names the LLM, and {column!r} may", "map", f"llm={column}"
            else:
                need = "No column names the LLM (--map llm=COLUMN)", "llm", "NAME"
            needs.append(need)
            example.pop(column, None)
        for target, other, words in (
            ("question", "id", "question, nor one with its id"),
            ("text", "answer", "CoT, nor one with its answer"),
        ):
            found = {target, other} | ({"verdict"} if target == "text" else set())
            if not found & targets.keys():
                column = _likely(target, example, *NAMES[other].usual)
                pattern = re.sub(r"\d+$", "{i}", column)
                if len(fitting(pattern, "{i}", (*example,))) > 1:
                    column = pattern
                is_id = target == "question" and " " not in example.get(column, " ")
                value = f"{target}{'_id' * is_id}={column or 'COLUMN'}"
                needs.append((f"{name} has no column with the {words}", "map", value))
        if not needs:
            return None
        if not self.layout.scores and (column := _likely("score", example, *_SCORERS)):
            needs.append((f"{column!r} may have scores", "score", column))
        patterns = [each for each in self.layout.columns.values() if "{llm}" in each]
        like = f". None is like {patterns[0]!r:.60}" * (_LLM not in self._known) if patterns else ""
        said = ". ".join([sentence for sentence, *_ in needs]) + like
        error = UsageError(f"{said}. The columns are {', '.join(self._raw):.300}.")
        error.add = tuple((option, value) for _, option, value in needs)
        return error

    def _likely_kind(self, rows: Sequence[TableRow]) -> str:
        """Return the answer kind that the first golds look like."""
        golds = [question.gold for question in self._request.questions or ()]
        if (use := self.meanings.targets.get("gold")) is not None:
            golds = [row.get(use.column) for _, row in rows]
        texts = [str(gold) for gold in golds if gold is not None]
        if not texts or any("\\" in text for text in texts):
            return "latex" if texts else "KIND"
        fitting = (kind for kind in _LIKELY if all(canonical_gold(kind, text) for text in texts))
        return next(fitting, "text")

    def _add_samples(self, row: Row, where: str) -> None:
        """Add a row for each entry of its lists, or the question alone."""
        lists = {
            name: parsed(row[name])
            for name in self.layout.lists
            if row.get(name) is not None or (name in row and name in self.layout.required)
        }
        for name, entries in lists.items():
            if not isinstance(entries, list):
                refuse(f"{name!r} of {where}", "a list with an entry for each CoT", entries)
        if len({len(entries) for entries in lists.values()}) > 1:
            sizes = ", ".join(f"{len(entries)} in {name!r}" for name, entries in lists.items())
            raise SourceError(
                f"{sentence_start(where)} has lists of several lengths ({sizes}); each should have"
                " an entry per CoT."
            )
        for place, values in enumerate(zip(*lists.values(), strict=True)):
            sample = row | dict(zip(lists, values, strict=True))
            self._add_row(sample, f"sample {place} of {where}")
        if not any(lists.values()):
            if not lists and _LLM not in self._known:
                member(row, self.layout.lists[0], list, where)
            alone = {name: value for name, value in row.items() if name not in self.layout.lists}
            self._add_row(alone, where, cot=False)

    def _read(self, row: Row, where: str) -> Row:
        """Return a row under the catalogue's names; scores as objects scorer -> value."""
        values: Row = {}
        for column, name, scorer, read in self.meanings.steps:
            value = row[column] if column in row else _nested(row, column, where)
            if value != value and not (self._is_json or read is _stated):
                value = None
            if value is not None and read is not None:
                value = read(value) if self._cells_are_text or read is not _stated else value
            if name in ("", "score"):
                name = "step_scores" if isinstance(value, list) else "score"
            if name in values and value is None:
                continue
            if scorer and value is not None:
                value = {scorer: value}
            if (
                name in {"score", "step_scores", "features", "verdict"}
                and values.get(name) is not None
            ):
                value = _by_scorer(name, values[name]) | _by_scorer(name, value)
            values[name] = value
        if isinstance(verdict := values.get("verdict"), int | float):
            if self.layout.clip and verdict - verdict == 0:
                values["verdict"] = min(max(verdict, 0), 1)
                cut = values["verdict"] != verdict
                self._counted["Verdicts outside [0, 1], which were cut to it"] += cut
            values.setdefault("grader", self.layout.grader.get("name"))
        if self._cells_are_text and values.get("text", "") is None:
            values["text"] = ""
        if values.get("node") is not None and values.get("answer", "") is None:
            del values["answer"]  # the answer of a step says that it ends a solution, null included
        if (column := self.layout.probe_interval) and isinstance(values.get("probes"), list):
            interval = positive(_nested(row, column, where), f"{column!r} of {where}")
            self._intervals.add(interval)
            values["probes"] = [
                {"offset": interval * step, "answer": answer}
                for step, answer in enumerate(values["probes"], 1)
            ]
        return values

    def _add_row(self, row: Row, where: str, *, cot: bool = True) -> None:
        values, targets = self._read(row, where), self.meanings.targets
        dataset = values.pop("dataset", self._request.dataset)
        rows = self._of(dataset, where)
        if self.layout.no_answer:
            self._read_no_answers(values)
        try:
            values = rows.recognised(values, self._reader, where)
            if self.layout.number:  # in the dataset as it is recorded, whatever the source calls it
                own = self._request.dataset or self.layout.datasets.get(dataset, dataset)
                values["id"] = f"{own}/{values['id']}"
            values["id"] = self._name(values, where)
            if "question" not in targets and self._request.questions is None:
                values["question"] = values["id"] if self.layout.outcomes else ""
            if self._counts_requests and (
                request := values.get("prompt") or values.get("question")
            ):
                values["prompt_tokens"] = self._count(
                    request if isinstance(request, str) else request.text
                )
            if cot and self.layout.answer_as_text and values.get("text") is None:
                values["text"] = values.get("answer") or ""
                self._counted[
                    "CoTs without a text, for which the answer stands, so that token counts and"
                    " costs of outputs are too low"
                ] += 1
            question = rows.add_question(values, where)
            if cot or _LLM not in self._known:
                line = where if self.layout.outcomes and not self._request.merges else None
                rows.add_row(question, values, where, line=line, cot=cot)
        except (ConflictError, SourceError) as error:
            raise type(error)(self._in_its_words(str(error), row, where)) from error
        self._rows += 1

    def _read_no_answers(self, values: Row) -> None:
        """Read the layout's marks as no answer, of a CoT and of its probes; count them."""
        probes = values.get("probes") if self.layout.probe_interval else None
        probes = probes if isinstance(probes, list) else []
        vote = "they vote, as for the authors" if self._marks_vote else "they are no answer"
        for what, record in [("", values), *(("Probe ", probe) for probe in probes)]:
            marked = [
                name
                for name, value in record.items()
                if name in _ANSWERS and isinstance(value, str) and value in self.layout.no_answer
            ]
            if marked:
                kind = f"{what}answers".capitalize()
                self._counted[f"{kind} {record[marked[0]]!r} ({vote})"] += 1
            if not self._marks_vote:
                record |= dict.fromkeys(marked)

    def _of(self, dataset: Any, where: str) -> Rows:
        """Return the rows of a dataset."""
        if isinstance(dataset, str):
            dataset = self.layout.datasets.get(dataset, dataset)
        rows = self._datasets.get(dataset) if isinstance(dataset, str) else None
        if rows is None:
            if not isinstance(dataset, str) or not dataset.strip():
                refuse(f"The dataset of {where}", "text that is not empty", dataset)
            if not self._request.dataset and self._request.facts is None:
                known_answer_kind(dataset, self._request.answer_kind, self.layout.answer_kind)
            rows = self._datasets[dataset] = Rows(
                self._source, self._request, null_stays=bool(self.layout.number)
            )
        return rows

    def _name(self, values: Row, where: str) -> str:
        """Return the id of the question: as the row has it, else made from its text and options."""
        text, name = values.get("question"), values.get("id")
        targets = self.meanings.targets
        if "id" in targets:
            column = targets["id"].column
            if name is None:
                raise SourceError(
                    f"{sentence_start(where)} has nothing in {column!r}, the question's id."
                )
            is_named = column in ("question_id", _ID, *self.layout.columns.values())
            if text and (self.layout.distinct or not is_named):
                other = self._texts.setdefault(_digest(text), str(name))
                if self.layout.distinct and other != name:
                    raise ConflictError(
                        f"Questions {other!r} and {name!r} are the same, {text!r:.60}; remove one"
                        " of them."
                    )
            if text and not is_named:
                self._id_column = column
                self._ids.add(_digest(str(name)))
            if text and self._request.merges:
                ids = self._merged.setdefault(_digest(text, values.get("choices") or ()), {})
                place, sample = ids.setdefault(str(name), len(ids)), values.get("sample")
                if place and sample is not None:
                    number = isinstance(sample, int)
                    values["sample"] = sample + place * _COPIES if number else f"{name}/{sample}"
                name = next(iter(ids))
            return str(name)
        if not text:
            raise SourceError(
                f"{sentence_start(where)} has nothing in {targets['question'].column!r}, and"
                " no column has ids."
            )
        return f"q-{_digest(text, values.get('choices') or ()).hex()}"

    def imported(self, reader: Reader) -> SourceContent:
        """Return the whole table."""
        if len(self._texts) < len(self._ids) == self._rows:
            raise SourceError(
                f"The column {self._id_column!r} of {self._source} is another on each of the"
                f" {self._rows:,} rows, and there are {len(self._texts):,} different questions: it"
                f" names rows. Read it as such, --map sample={self._id_column}, or name the column"
                " with the question's id, --map question_id=COLUMN."
            )
        notes = self._notes()
        names = list(dict.fromkeys(llm for rows in self._datasets.values() for llm in rows.llms))
        several = len(names) > 1
        for llm in self._request.llms if several else ():
            require_known(f"LLM in {self._source},", llm, [name for name in names if name])
        parts: list[SourceContent] = []
        for dataset, rows in self._chosen(notes).items():
            wanted = tuple(llm for llm in self._request.llms if not several or llm in rows.llms)
            if wanted or not self._request.llms:
                part = rows.imported(reader, wanted, () if parts else notes)
                part = replace(part, dataset=dataset)
                facts = self._request.facts
                parts.append(part if facts is None else as_exported(part, facts))
        return replace(parts[0], others=parts[1:])

    def _chosen(self, notes: list[str]) -> Mapping[str, Rows]:
        """Return the datasets to record: the one that was asked for, or all. A single one is
        renamed.
        """
        asked = self._request.dataset
        if not asked:
            return self._datasets
        if asked in self._datasets:
            left_out = ", ".join(name for name in self._datasets if name != asked)
            if left_out:
                notes.append(
                    f"The source also has the datasets {left_out:.400}, which were left out."
                )
            return {asked: self._datasets[asked]}
        if len(self._datasets) > 1:
            require_known(
                f"dataset in {self._source},",
                asked,
                self._datasets,
                "Leave out --dataset to import all.",
            )
        [(name, rows)] = self._datasets.items()
        notes.append(
            f"The source calls the dataset {name!r}; it was recorded as {asked!r}, as requested."
        )
        return {asked: rows}

    def _notes(self) -> list[str]:
        what = self.meanings
        notes = [*self.order_notes, *counted_notes(*self._counted.items())]
        if any(use.about == _GOLD_AS_ANSWER for use in what.uses):
            notes.append(f"The column 'answer' was read as {_GOLD_AS_ANSWER}.")
        if len(self._intervals) > 1:
            shown = ", ".join(map(str, sorted(self._intervals)[:12]))
            notes.append(f"The questions were probed at different intervals: {shown} tokens.")
        if "id" not in what.targets:
            notes.append(
                "The table has no question ids; they were made from the texts of the questions."
            )
        if "question" not in what.targets and self._request.questions is None:
            notes.append(
                "The table has no texts of questions: what was asked is not shown, and costs of"
                " prompts need 'prompt_tokens'."
            )
        if self._counts_requests:
            notes.append(
                "The table has the tokens of outputs and not of requests; those of the"
                f" {'requests' if 'prompt' in what.targets else 'questions'} were counted by"
                " 'words'. For their true cost, give 'prompt_tokens'."
            )
        if self._unread:
            notes.append(f"Columns that were not read: {examples(self._unread)}.")
            for name, value in self._unread.items() if "verdict" not in what.targets else ():
                if _snake(name) in _SEEMING and parsed(value) in (0, 1):
                    notes[-1] += f" {name!r:.60} may be the verdict: --map verdict={name:.60}."
        return notes

    def _in_its_words(self, message: str, row: Row, where: str) -> str:
        """Return a message of the catalogue with the names of this table's columns."""
        llm, layout, targets = row.get(_LLM, "{llm}"), self.layout, self.meanings.targets
        real = {"{llm}": layout.outcomes.get(llm, llm), _USD: layout.usd.get(llm)}
        for use in self.meanings.uses:
            if use.name and use.name != use.column:
                column = real.get(use.column, use.column.replace("{llm}", llm))
                for behind in (f" of {where}", " ("):
                    message = message.replace(f"{use.name!r}{behind}", f"{column!r}{behind}")
        if "two gold answers" in message and (gold := targets.get("gold")) is not None:
            message += (
                f" {gold.column!r} was read as the gold: if it is the LLM's, --map"
                f" prediction={gold.column}."
            )
        return message


_ANSWERS = frozenset(name for name, column in NAMES.items() if column.name == "answer")


def _digest(*values: Any) -> bytes:
    return hashlib.sha256(orjson.dumps(values)).digest()[:8]
