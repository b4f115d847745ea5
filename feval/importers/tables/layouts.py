"""What the columns of a table mean where their names do not say it: mapping files (TOML), `--map`
and `--score`.

A mapping file has these keys, all optional; `published/` has those of well-known publications.

    title = "what it reads, for people"
    source = "where the format is described"
    rows = "records"                  # member of one JSON document that is the list of rows; the
    others apply to each row lists = ["completions", "preds"]  # columns that hold a list with an
    entry for each CoT of the row's question ignored = ["solution"]            # columns that are
    not read, whatever their names no_answer = ["None"]              # texts that stand for no
    answer in the column of extracted answers

    [columns]                         # feval's column = the table's; a dot leads into a nested
    member question = "problem"
    [scores]                          # scorer = column, of scores or of lists with a score for each
    step prm = "rewards"
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from feval.cards.reading import read_regular, require_shallow
from feval.errors import SourceError, UnknownNameError, UsageError

_MOST_BYTES = 256 << 10
_NAME_FIRST = "NAME=COLUMN, feval's name first, such as --map question=prompt"
_FOLDER = Path(__file__).with_name("published")
_KEYS: dict[str, type] = {
    "title": str,
    "source": str,
    "rows": str,
    "lists": list,
    "ignored": list,
    "no_answer": list,
    "columns": dict,
    "scores": dict,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of a table mean.

    Attributes:
        columns: feval's column -> the table's, where a file may lack it.
        scores: scorer -> the table's column, likewise.
        required: columns of the table that somebody named for this table, so that it must have
            them.
        lists: columns of the table with a list that has an entry for each CoT.
        ignored: columns that are not read.
        no_answer: texts of extracted answers that stand for none.
        rows: member of a JSON document that is the list of rows; empty: the document is that list.
        title: what it reads, for people.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    lists: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    no_answer: frozenset[str] = frozenset()
    rows: str = ""
    title: str = ""

    def about(self) -> dict[str, Any]:
        """Return it as JSON values for a manifest, without what is empty."""
        values = {
            "columns": dict(self.columns),
            "scores": dict(self.scores),
            "lists": list(self.lists),
            "ignored": sorted(self.ignored),
            "no_answer": sorted(self.no_answer),
            "rows": self.rows,
        }
        return {name: value for name, value in values.items() if value}


def layout_of(
    layout: str | Path | None = None,
    columns: Mapping[str, str] | Iterable[str] = (),
    scores: Mapping[str, str] | Iterable[str] = (),
    ignored: Iterable[str] = (),
) -> Layout:
    """Return a layout from a mapping file, and what is said of single columns, which overrules the
    file.

    Args:
        layout: the name of a published one (`layout_names`), or the path of a TOML file; `None`:
            names of columns decide.
        columns: feval's column -> the table's, or texts "feval's=the table's".
        scores: scorer -> the table's column, or texts "scorer=column", or "column", which names the
            scorer, too.
        ignored: columns of the table that are not read.

    Raises:
        UnknownNameError: no such layout.
        SourceError: the file cannot be read, or is not a mapping file.
        UsageError: a text is not of that form, names one thing twice, or a column that is ignored.
    """
    known = Layout() if layout is None else _read(layout)
    columns, scores = _pairs(columns, "--map", alone=False), _pairs(scores, "--score", alone=True)
    named, unread = {*columns.values(), *scores.values()}, frozenset(ignored)
    if both := sorted(named & unread):
        raise UsageError(
            f"The column {both[0]!r:.80} is named by --map or --score, and by --ignore, too. Leave"
            " one of them out."
        )
    return replace(
        known,
        columns={name: column for name, column in known.columns.items() if column not in unread}
        | columns,
        scores={name: column for name, column in known.scores.items() if column not in unread}
        | scores,
        required=frozenset(named | unread),
        lists=tuple(column for column in known.lists if column not in unread),
        ignored=known.ignored - named | unread,
    )


def layout_names() -> list[str]:
    """Return the names of the published layouts."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def _pairs(texts: Mapping[str, str] | Iterable[str], option: str, *, alone: bool) -> dict[str, str]:
    if isinstance(texts, Mapping):
        return {str(name): str(column) for name, column in texts.items()}
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, column = str(text).partition("=")
        if not equals and alone:
            column = name
        if not name or not column:
            form = "SCORER=COLUMN or COLUMN, such as --score prm=rewards" if alone else _NAME_FIRST
            raise UsageError(f"{option} takes {form}; {text!r:.80} was given.")
        if pairs.setdefault(name, column) != column:
            raise UsageError(
                f"{option} gives {name!r} two columns, {pairs[name]!r} and {column!r}; name one."
            )
    return pairs


def _read(layout: str | Path) -> Layout:
    path = Path(layout)
    if path.suffix != ".toml" and not path.exists():
        if str(layout) not in layout_names():
            raise UnknownNameError.of(
                "layout", str(layout), layout_names(), "A file of your own ends in .toml."
            )
        path = _FOLDER / f"{layout}.toml"
    try:
        values = tomllib.loads(read_regular(path, _MOST_BYTES).decode("utf-8"))
        require_shallow(values)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SourceError(
            f"The mapping file {path} cannot be read: {reason}. It should be TOML."
        ) from error
    for key, value in values.items():
        if key not in _KEYS:
            raise UnknownNameError.of(f"key in the mapping file {path}", key, _KEYS)
        texts = (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        )
        if not (isinstance(value, _KEYS[key]) and all(isinstance(text, str) for text in texts)):
            kind = {"str": "text", "list": "a list of texts", "dict": "a table of texts"}[
                _KEYS[key].__name__
            ]
            raise SourceError(
                f"{key!r} in the mapping file {path} should be {kind}; found {value!r:.80}."
            )
    return Layout(
        values.get("columns", {}),
        values.get("scores", {}),
        lists=tuple(values.get("lists", ())),
        ignored=frozenset(values.get("ignored", ())),
        no_answer=frozenset(values.get("no_answer", ())),
        rows=values.get("rows", ""),
        title=values.get("title", ""),
    )
