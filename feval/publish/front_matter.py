"""The front matter of a page: the YAML that the Hub and `datasets` read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from feval.cards import find_llm_card
from feval.cards.front_matter import refuse_bombs
from feval.cards.reading import open_regular
from feval.errors import CardError, DamagedRecordingError, UsageError
from feval.recording import Recording
from feval.recording.layout.format import Record, slug
from feval.recording.parts import PAIR_PARTS
from feval.values import frozen, without_none

_OURS = frozenset((
    "annotations_creators", "configs", "dataset_info", "language", "license", "license_details",
    "license_link", "license_name",
    "pretty_name", "size_categories", "source_datasets", "tags", "task_categories",
))  # fmt: skip
_MOST_BYTES = 4 << 20
_MOST_DEPTH = 12


_MADE_TITLE = re.compile(
    r"Recorded chains of thought: .*|.*: recorded chains of thought", re.DOTALL
)
"""Titles that `card.default_title` makes; any other title was chosen by somebody."""


@frozen
class EarlierMatter:
    """The front matter of an earlier page, as far as it stays.

    The title if somebody chose it, the licence if it is in the Hub's spelling (it may lack what
    `other` needs), and in `kept` tags, language and fields that feval does not write.
    """

    title: str | None = None
    licence: Licence | None = None
    kept: Record = field(default_factory=dict)


def earlier_matter(page: str, where: str) -> EarlierMatter | None:
    """Return what stays of an earlier page's front matter, `None` without any; raise a `CardError`
    if it is not plain YAML.
    """
    lines = page.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        return None
    end = front_matter_end(lines)
    text = "\n".join(lines[1:end])
    if not end or len(text) > _MOST_BYTES:
        raise CardError(
            f"The front matter of {where} has no end, or is too long. Correct it, or it would be"
            " lost."
        )
    try:
        refuse_bombs(text, f"The front matter of {where}", _MOST_DEPTH, yaml.SafeLoader)
        fields = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise CardError(
            f"The front matter of {where} is not YAML ({first}). Correct it, or it would be lost."
        ) from error
    if not isinstance(fields, dict):
        return None
    kept = {
        key: value for key, value in fields.items() if isinstance(key, str) and key not in _OURS
    }
    title, licence, tags, language = (
        fields.get(key) for key in ("pretty_name", "license", "tags", "language")
    )
    if isinstance(tags, list):
        kept["tags"] = [tag for tag in tags if isinstance(tag, str)]
    if isinstance(language, str | list) and language:
        kept["language"] = language
    if not isinstance(title, str) or not title.strip() or _MADE_TITLE.fullmatch(title):
        title = None
    stated = None
    if isinstance(licence, str) and is_licence(licence):
        named = (fields.get(f"license_{key}") for key in ("name", "link") if licence == OTHER)
        stated = Licence(licence, *(text if isinstance(text, str) else None for text in named))
    return EarlierMatter(title, stated, kept)


def front_matter_end(lines: Sequence[str]) -> int:
    """Return the number of the line that ends the front matter of a page; 0 without any."""
    ends = (number for number, line in enumerate(lines) if number and line.rstrip() == "---")
    return next(ends, 0) if lines[0].rstrip() == "---" else 0


OTHER = "other"
USUAL = {
    "cc-by-4.0": ("CC BY 4.0", "https://creativecommons.org/licenses/by/4.0/",
    "any use that names you"),
    "cc-by-sa-4.0": ("CC BY-SA 4.0", "https://creativecommons.org/licenses/by-sa/4.0/",
    "so, and under the same licence"),
    "cc-by-nc-4.0": ("CC BY-NC 4.0", "https://creativecommons.org/licenses/by-nc/4.0/",
    "so, and not for money"),
    "cc0-1.0": ("CC0 1.0", "https://creativecommons.org/publicdomain/zero/1.0/",
    "any use, as if nobody owned it"),
    "odc-by": (
        "Open Data Commons Attribution License 1.0", "https://opendatacommons.org/licenses/by/1-0/",
        "for databases: any use that names you",
    ),
    "odbl": (
        "Open Database License (ODbL) 1.0", "https://opendatacommons.org/licenses/odbl/1-0/",
        "for databases: so, and under the same licence",
    ),
    "pddl": (
        "Public Domain Dedication and License 1.0",
        "https://opendatacommons.org/licenses/pddl/1-0/",
        "for databases: any use, as if nobody owned it",
    ),
    "apache-2.0": ("Apache License 2.0", "https://www.apache.org/licenses/LICENSE-2.0",
    "any use that keeps the notices"),
    "mit": ("MIT License", "https://opensource.org/license/mit", "any use that keeps the notice"),
}  # fmt: skip
"""The usual licences in the Hub's spelling: name, address of the text, what it allows."""

is_licence = re.compile(r"[a-z0-9][a-z0-9.-]{1,40}").fullmatch
"""Whether a text has the form of the Hub's licence identifiers."""
is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}").fullmatch
"""Whether a text can be the name of a licence that the Hub does not know."""
is_link = re.compile(r"https?://[\w.~:/?#@!$&'*+,;=%\[\]-]{1,2000}|LICENSE\.md").fullmatch
"""Whether a text can be the link to a licence's text."""
_OWN = "feval/"


@frozen
class Licence:
    """A licence as the Hub spells it; `other` has a name, such as my-licence-1.0, and a link to its
    text, which the Hub asks for.

    `link` is an address, or LICENSE.md: a file that the owner has put into the repository.
    """

    id: str
    name: str | None = None
    link: str | None = None

    @property
    def title(self) -> str:
        """The licence's name for people."""
        return USUAL[self.id][0] if self.id in USUAL else self.name or self.id

    @property
    def url(self) -> str | None:
        """Where its text is; `None` where feval does not know."""
        return USUAL[self.id][1] if self.id in USUAL else self.link

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the front matter, as far as they are stated."""
        fields = {"license": self.id, "license_name": self.name, "license_link": self.link}
        return without_none(fields)


def check_licence(licence: Licence | None) -> Licence:
    """Return a licence; raise a `UsageError` where none is stated, or the Hub would not take it."""
    if licence is None:
        raise UsageError(
            "A push needs the licence of the collection; neither the recording nor an earlier page"
            " states one. Write a file with three lines, `---`, `license: cc-by-4.0` (or another,"
            " as the Hub spells it; `other` for one of your own) and `---`, and push with --words"
            " FILE (in Python: words=TEXT, or licence=ID)."
        )
    if not is_licence(licence.id):
        raise UsageError(
            f"The Hub spells licences as in cc-by-4.0, mit or other; {licence.id!r:.60} does not"
            " look like one."
        )
    if licence.id != OTHER and licence != Licence(licence.id):
        raise UsageError(
            f"license_name and license_link belong to the licence `other`, and not to {licence.id}."
        )
    if licence.id == OTHER and not (is_name(licence.name or "") and is_link(licence.link or "")):
        raise UsageError(
            "The Hub wants the name and the text of another licence. Beside `license: other`,"
            f" write `license_name`, such as my-licence-1.0 (found {licence.name!r:.60}), and"
            " `license_link`, an address with https://, or LICENSE.md for a file in the repository"
            f" (found {licence.link!r:.60}), into the front matter of --words FILE (in Python:"
            " words=TEXT, or a Licence with them as licence)."
        )
    return licence


def outputs_licence(recording: Recording) -> str | None:
    """Return the licence of what the LLMs wrote, in words: from the manifest, or the cards of LLMs
    that come with feval.
    """
    stated = recording.manifest.raw["licences"].get("outputs")
    if stated and "not stated" not in stated:  # a merge of recordings may state it of some
        return str(stated)
    bases = [record["base"] for record in recording.manifest.llms.values()]
    cards = [find_llm_card(base) if base.startswith(_OWN) else None for base in bases]
    licences = {None if card is None else card.licence for card in cards}
    return licences.pop() if len(licences) == 1 else None


def stated_licence(recording: Recording) -> Licence | None:
    """Return the licence of the outputs, `None` without any; what is none of the usual ones is
    `other` and lacks its link.
    """
    outputs = outputs_licence(recording)
    if outputs is None:
        return None
    spelled = re.sub(r"[^a-z0-9.-]+", "-", outputs.strip().lower()).strip("-")
    return (
        Licence(spelled)
        if spelled in USUAL
        else Licence(OTHER, spelled if is_name(spelled) else None)
    )


def notice(title: str, licence: Licence) -> str:
    """Return the file LICENSE of a release: the notice that section 4.2 of the ODbL asks for, and
    that of another licence.
    """
    where = f" ({licence.url})" if licence.url else ""
    return (
        f"{title}\n\nThis collection is made available under this licence:"
        f" {licence.title}{where}.\n\nIt covers the collection as a database. The individual"
        " contents (questions, and what language models wrote) are under\nlicences of their own,"
        " which README.md states; this one gives no rights in them.\n"
    )


MOST_SPLITS = 30
"""Splits of one configuration that the Hub's viewer shows; `datasets` loads any number."""

_NOT_IN_SPLITS = re.compile(r"[^A-Za-z0-9_.]+")


@frozen
class FileSplit:
    """The files of a part under a name that `datasets` accepts; `arrow_bytes` is their size in
    memory.

    Questions have no `llm`; `nulls` counts the missing values of columns with any.
    """

    name: str
    paths: tuple[str, ...]
    rows: int
    file_bytes: int
    arrow_bytes: int
    llm: str | None = None
    nulls: Mapping[str, int] = field(default_factory=dict)


class Config(NamedTuple):
    """One schema and its files with at least a row each, such as "gsm8k-texts" with the part
    "texts" of the dataset "gsm8k".
    """

    name: str
    dataset: str
    part: str
    features: list[Record]
    splits: tuple[FileSplit, ...]


def configs_of(recording: Recording) -> list[Config]:
    """Return every configuration of a recording that has rows, samples first; `datasets` does not
    load empty files.
    """
    names, splits = _Names(), split_names(recording)
    samples = {dataset: names.take(slug(dataset)) for dataset in recording.dataset_ids()}
    configs = []
    for dataset, name in samples.items():
        own: dict[str, list[tuple[str, str, str | None]]] = {
            "samples": [],
            "questions": [("questions", "questions", None)],
        }
        for llm in recording.llm_names(dataset):
            keyed = [part.name for part in recording.keyed_parts(dataset, llm)]
            for part in (*PAIR_PARTS, *recording.channels(dataset, llm), *keyed):
                kind, _, scorer = part.partition("/")
                split = f"{splits[llm]}.{_split_name(scorer)}" if scorer else splits[llm]
                own.setdefault(kind, []).append((split, part, llm))
        for kind, files in own.items():
            config_name = name if kind == "samples" else names.take(f"{name}-{kind}")
            features, filled = _splits(recording, dataset, files)
            if filled:
                configs.append(Config(config_name, dataset, kind, features, filled))
    return configs


def split_names(recording: Recording) -> dict[str, str]:
    """Return LLM -> the name of its split in every configuration, with the characters that
    `datasets` allows.
    """
    names = _Names(["all"])  # `datasets` takes it for all splits together
    return {llm: names.take(_split_name(llm), "_") for llm in recording.manifest.llms}


def _splits(
    recording: Recording, dataset: str, files: Iterable[tuple[str, str, str | None]]
) -> tuple[list[Record], tuple[FileSplit, ...]]:
    """Return the features of a configuration and its splits, from name, part and LLM of each."""
    names, splits, schema = _Names(), [], None
    for split, part, llm in files:
        paths = recording.files(part, dataset, llm)
        records = {path: recording.file_record(path) for path in paths}
        filled = tuple(path for path in paths if records[path]["rows"])
        if not filled:
            continue
        arrow_bytes, nulls = 0, Counter[str]()
        for path in filled:
            own_schema, size, missing = _measured(recording.path / path)
            schema, arrow_bytes, nulls = schema or own_schema, arrow_bytes + size, nulls + missing
        rows, size = (sum(records[path][key] for path in filled) for key in ("rows", "bytes"))
        splits.append(
            FileSplit(names.take(split, "_"), filled, rows, size, arrow_bytes, llm, nulls)
        )
    return [*_features(schema or ())], tuple(splits)


def _measured(path: Path) -> tuple[Any, int, Counter[str]]:
    """Return a Parquet file's schema, the size of its rows in memory, and its missing values by
    column.
    """
    try:
        with open_regular(path) as source, pq.ParquetFile(source) as file:
            size, nulls = 0, Counter[str]()
            for number in range(file.num_row_groups):
                group = file.read_row_group(number, use_threads=False)
                size += group.nbytes
                for name, column in zip(group.column_names, group.columns, strict=True):
                    nulls[name] += column.null_count
            return file.schema_arrow, size, +nulls
    except (pa.ArrowException, OSError) as error:
        raise DamagedRecordingError(
            f"{path} cannot be read ({error}); run `feval verify`."
        ) from error


def _features(fields: Iterable[Any]) -> Iterator[Record]:
    """Yield Arrow fields as the front matter has them: `dtype` for plain ones, `list` for nested
    ones.
    """
    for column in fields:
        kind, key = column.type, "dtype"
        if pa.types.is_list(kind):
            kind, key = kind.value_type, "list"
        name = {"double": "float64", "float": "float32"}.get(str(kind), str(kind))
        yield {
            "name": column.name,
            key: list(_features(kind)) if pa.types.is_struct(kind) else name,
        }


def _split_name(llm: str) -> str:
    """Return an LLM's name with the characters that `datasets` allows in names of splits."""
    words = _NOT_IN_SPLITS.sub("_", llm)
    return re.sub(r"\.{2,}", ".", words).strip("._") or "llm"


class _Names:
    """Distinct names, also on a disk that does not tell "A" from "a"."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._taken = {name.casefold() for name in names}

    def take(self, base: str, joint: str = "-") -> str:
        """Return the name, or the name with a number where it is taken."""
        name, number = base, 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{base}{joint}{number}"
        self._taken.add(name.casefold())
        return name
