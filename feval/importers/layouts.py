"""What the columns of a table mean where their names do not say it: mapping files (TOML), `--map`
and `--score`.

`docs/import-rows.md` shows a mapping file, and the site its keys, which are the fields of `Layout`;
`published/` has those of well-known publications.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from feval.cards.billing import MOST_USD
from feval.cards.reading import read_regular, require_shallow, sentence
from feval.errors import FevalError, SourceError, UsageError, require_known
from feval.recording.content import CAUTION
from feval.recording.layout.format import check_name
from feval.values import Record, RecordLike

_MOST_BYTES = 256 << 10
_IGNORE = "ignore="
_FORMS = {
    "--map": "NAME=COLUMN, feval's name first, such as --map question=prompt",
    "--usd": "LLM=USD or LLM=COLUMN, such as --usd small=0.0003",
    "--outcome": "LLM=COLUMN or COLUMN, such as --outcome small",
}
_FOLDER = Path(__file__).with_name("published")


class Layout(BaseModel):
    """What the columns of a table mean.

    A column may be a path: a dot leads into a nested member, or into a list by place (`runs.0`),
    also of JSON that is written as text. `{llm}` in it stands for the names of LLMs, which the
    columns of the table show: each is one; the column `{llm}` alone has that very name. `{i}`
    stands for the numbers of CoTs, `{scorer}`, which the scorer's name has, too, for scorers.

    Attributes:
        title: what it reads, for people.
        source: where the format is described.
        licence: of the data that it reads.
        verified: what it was written from; one that read no "real file" has to be trusted.
        caution: how samples were selected, which every result says.
        columns: feval's column -> the table's, where a file may lack it. Two names of one column
            (`answer` and `prediction`) may be given, which must agree where a row has both.
        scores: scorer -> the table's column, likewise.
        required: members that every row has.
        lists: columns with a list that has an entry for each CoT of the row's question. Where none
            is named, texts in lists of usual names are recognised.
        ignored: columns that are not read; "*": all that are not named.
        no_answer: texts of extracted answers that stand for none.
        verbatim_marks: those texts vote where the answer kind is `verbatim`, as for the authors.
        rows: member of a JSON document that is the list of rows, which may be a path, where `*` is
            each member of an object, by whose name the column `*` is. The other members on the way
            apply to each row. Empty: the document is that list.
        file: how names of files are written, such as "analysis_{dataset}_{llm}.jsonl", with names
            of feval's columns. Of a folder, the files are read whose names are so.
        datasets: the source's name of a dataset -> feval's id.
        number: column with the number of a question in its dataset: ids are `<dataset>/<number>`,
            in that order. Where no row has it, and for `row`, rows are counted from 0.
        distinct: the texts of questions are distinct.
        answer_kind: of answers, where neither the import nor the dataset's card says one.
        answer_as_text: an answer stands for its CoT's text where there is none.
        grader: facts of who gave the verdicts, such as metric, version or threshold; `name`: what
            the grader is called where no column says so.
        clip: verdicts outside [0, 1] are cut to it.
        outcomes: LLM -> the column with its verdict on the row's question.
        usd: LLM -> USD per CoT, or the column with them.
        features: columns with a feature of the question, which is kept with it.
        probe_interval: column with the tokens between two probes, where `probes` are answers.
        named: columns that somebody named for this very table, so that it must have them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(default="", exclude=True)
    source: str = Field(default="", exclude=True)
    licence: str = Field(default="", exclude=True)
    verified: Literal["", "real file", "from loader code", "from the data card"] = Field(
        default="", exclude=True
    )
    caution: str = Field(default="", exclude=True)
    columns: dict[str, str] = Field(default_factory=dict)
    scores: dict[str, str] = Field(default_factory=dict)
    required: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    no_answer: tuple[str, ...] = ()
    verbatim_marks: bool = False
    rows: str = ""
    file: str = ""
    datasets: dict[str, str] = Field(default_factory=dict)
    number: str = ""
    distinct: bool = False
    answer_kind: str = ""
    answer_as_text: bool = False
    grader: Record = Field(default_factory=dict)
    clip: bool = False
    outcomes: dict[str, str] = Field(default_factory=dict)
    usd: Record = Field(default_factory=dict)
    features: tuple[str, ...] = ()
    probe_interval: str = ""
    named: frozenset[str] = Field(default=frozenset(), exclude=True)

    @field_validator("named", mode="before")
    @classmethod
    def _refuse_named(cls, _value: object) -> None:  # only `layout_of` gives it
        raise ValueError("which is no key of a mapping file")

    @field_validator("file")
    @classmethod
    def _refuse_outside(cls, file: str) -> str:
        path = Path(file)
        if path.anchor or ".." in path.parts:
            raise ValueError("which leads out of the folder that is imported")
        return file

    @field_validator("grader")
    @classmethod
    def _check_facts(cls, facts: Record) -> Record:
        for name, fact in facts.items():
            is_number = isinstance(fact, int | float) and abs(fact) < 2**63
            if not (is_name(fact) if name == "name" else is_number or isinstance(fact, str)):
                raise ValueError(
                    f"{name!r:.60}: a name has 1 to 200 characters, and other facts are text, true,"
                    " false or finite numbers of 64 bits"
                )
        return facts

    def is_listed(self, column: str) -> bool:
        """Return whether a list has an entry per CoT of a column, or the object it is in."""
        return not {column, column.split(".")[0]}.isdisjoint(self.lists)

    def about(self) -> Record:
        """Return it as JSON values for a manifest, without what is empty."""
        values = self.model_dump(mode="json")
        return {name: value for name, value in values.items() if value}

    def notes(self) -> list[str]:
        """Return what an import notes of a published one: its origin, and the caution."""
        origin = (
            f"Layout: {self.title}; verified: {self.verified}; licence: {self.licence}; source:"
            f" {self.source}."
        )
        return [origin] * bool(self.verified) + [CAUTION + self.caution] * bool(self.caution)


def is_name(value: Any) -> bool:
    """Return whether a value can name a grader."""
    with suppress(FevalError):
        return isinstance(value, str) and bool(check_name("grader", value))
    return False


def layout_of(
    layout: Layout | str | Path | None = None,
    columns: Mapping[str, str] | Iterable[str] = (),
    scores: Mapping[str, str] | Iterable[str] = (),
    ignored: Iterable[str] = (),
    *,
    outcome: Mapping[str, str] | Iterable[str] = (),
    usd: RecordLike | Iterable[str] = (),
    feature: Iterable[str] = (),
    trusted: bool = True,
) -> Layout:
    """Return a layout from a mapping file, and what is said of single columns, which overrules the
    file.

    Args:
        layout: one, the name of a published one (`layout_names`), or the path of a TOML file;
            `None`: names of columns decide.
        columns: feval's column -> the table's, or texts "feval's=the table's", of which
            "ignore=COLUMN" is a column that is not read.
        scores: scorer -> the table's column, or texts "scorer=column", or "column", which names the
            scorer, too.
        ignored: columns of the table that are not read.
        outcome: LLM -> the column with its verdict on the row's question, likewise.
        usd: LLM -> USD per CoT, or the column with them, likewise.
        feature: columns with a feature of the question, likewise.
        trusted: whether the layout may be one that never read a real file.

    Raises:
        require_known: no such layout.
        SourceError: the file cannot be read, or is not a mapping file.
        UsageError: a text is not of that form, names one thing twice, or a column that is ignored;
            or the layout is not trusted.
    """
    known = layout or Layout()
    if not isinstance(known, Layout):
        known = _read(known)
        if known.verified not in ("", "real file") and not trusted:
            raise UsageError(
                f"The layout {layout} was written {known.verified} and has not read a real file"
                " yet. Look at what it makes of one before you say that you trust it,"
                " --trust-layout."
            )
    if not isinstance(columns, Mapping):
        texts = [*columns]
        columns = [text for text in texts if not text.startswith(_IGNORE)]
        ignored = [*ignored, *(text[len(_IGNORE) :] for text in texts if text not in columns)]
    columns, scores = _pairs(columns, "--map"), _pairs(scores, "--score (in Python: scores)")
    outcomes = known.outcomes | _pairs(outcome, "--outcome")
    prices = {llm: _price(llm, each) for llm, each in (known.usd | _pairs(usd, "--usd")).items()}
    if unknown := [*prices.keys() - outcomes.keys()]:
        raise UsageError(
            f"--usd gives a cost of {unknown[0]!r:.80}, and --outcome names no verdicts of it (in"
            " a layout: usd and outcomes)."
        )
    named, unread = {*columns.values(), *scores.values(), *feature}, set(ignored)
    if both := sorted(named & unread):
        raise UsageError(
            f"The column {both[0]!r:.80} is named by --map or --score (in Python: map or"
            f" scores), and by --map ignore={both[0]:.80}, too. Leave one of them out."
        )

    def kept(pairs: Mapping[str, str]) -> dict[str, str]:
        return {name: column for name, column in pairs.items() if column not in unread}

    changes = {
        "columns": kept(known.columns) | columns,
        "scores": kept(known.scores) | scores,
        "named": known.named | named | unread,
        "lists": tuple(column for column in known.lists if column not in unread),
        "outcomes": outcomes,
        "answer_kind": known.answer_kind or "text" * bool(outcomes),  # there are no answers
        "features": (*known.features, *feature),
        "usd": prices,
        "ignored": tuple(sorted({*known.ignored} - named | unread)),
    }
    return known.model_copy(update=changes)


def layout_names() -> list[str]:
    """Return the names of the published layouts that are no formats of their own."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def _price(llm: str, price: Any) -> str | float:
    """Return the USD of a CoT, or the column with them."""
    try:
        amount = float("nan" if isinstance(price, bool) else price)
    except (TypeError, ValueError):
        return str(price)
    if not 0 <= amount <= MOST_USD:
        raise UsageError(
            f"--usd gives {llm!r:.80} {price} USD per CoT; give 0 to {MOST_USD:,}, or the column"
            " with them (in a layout: usd)."
        )
    return amount


def _pairs(texts: RecordLike | Iterable[str], option: str) -> dict[str, str]:
    if isinstance(texts, Mapping):
        return {str(name): str(column) for name, column in texts.items()}
    pairs = dict[str, str]()
    for text in texts:
        name, equals, column = str(text).partition("=")
        if not equals and option not in {"--map", "--usd"}:
            column = name
        if not name.strip() or not column:
            form = _FORMS.get(option, "SCORER=COLUMN or COLUMN, such as --score prm=rewards")
            raise UsageError(f"{option} takes {form}; {text!r:.80} was given.")
        if pairs.setdefault(name, column) != column:
            raise UsageError(
                f"{option} gives {name!r} two columns, {pairs[name]!r} and {column!r}; name one."
            )
    return pairs


def _read(layout: str | Path) -> Layout:
    path = Path(layout)
    if path.suffix != ".toml" and not path.exists():
        require_known("layout", str(layout), layout_names(), "A file of your own ends in .toml.")
        path = _FOLDER / f"{layout}.toml"
    try:
        values = tomllib.loads(read_regular(path, _MOST_BYTES).decode("utf-8"))
        require_shallow(values)
        return Layout.model_validate(values)
    except ValidationError as error:
        raise SourceError(
            f"The mapping file {path} {sentence(error)}. Its keys are"
            f" {', '.join(name for name in Layout.model_fields if name != 'named')}."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).partition(";")[0]
        raise SourceError(
            f"The mapping file {path} cannot be read: {reason}. It should be TOML."
        ) from error
