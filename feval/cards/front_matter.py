"""Card files: which folders hold them, and how the front matter of one is read;
`data_cards/README.md` describes both.

The YAML read here is the part that JSON can say too, so `no` and `2025-06-02` stay text, and a card
cannot hold aliases (the stuff of YAML bombs), tags, or the same key twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic_core import ValidationError

from feval.cards.reading import read_regular, sentence, shorten
from feval.errors import CardError, UnknownNameError
from feval.values import Record, RecordLike

CARD_KINDS: Mapping[str, str] = {
    "datasets": "dataset card",
    "llms": "LLM card",
    "prices": "price list",
    "prompts": "prompt card",
    "serving": "serving profile",
    "sets": "set card",
}
"""The folders inside a card folder, and what one file of each is called."""

MAX_CARD_BYTES = 256 * 1024
"""A larger file is no card: the built-in ones have 1 to 4 kB."""

MAX_CARD_DEPTH = 8

_Checked = TypeVar("_Checked")
_FENCE = "---"
_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = frozenset(
    _TAG + name for name in ("str", "int", "float", "bool", "null", "seq", "map")
)
_NUMBER_START = "-0123456789"


def card_folder() -> Path:
    """Return the folder of the cards that come with feval."""
    package = Path(__file__).resolve().parents[1]
    installed, checkout = package / "data_cards", package.parent / "data_cards"
    for folder in (installed, checkout):
        if folder.is_dir():
            return folder
    raise CardError(
        f"The cards of feval are missing: {installed} is not a folder. Install feval again."
    )


def card_folders() -> tuple[Path, ...]:
    """Return the card folders in search order: those in `FEVAL_CARDS`, separated as in `PATH`, then
    feval's own.
    """
    named = [
        Path(entry).expanduser()
        for entry in os.environ.get("FEVAL_CARDS", "").split(os.pathsep)
        if entry.strip()
    ]
    for folder in named:
        if not os.path.isdir(folder):  # noqa: PTH112  False where Path.is_dir raises: a name too long
            raise CardError(
                f"FEVAL_CARDS names {str(folder)!r}, which is not a folder. Correct or unset"
                " FEVAL_CARDS."
            )
    return (*named, card_folder())


def card_files(kind: str) -> dict[str, tuple[Path, ...]]:
    """Return the names of the cards of a kind (a key of `CARD_KINDS`), sorted, with their files:
    the one that counts first.
    """
    files: dict[str, tuple[Path, ...]] = {}
    for folder in card_folders():
        for path in _cards_in(folder / kind):
            # `Qwen/Qwen2.5-32B-Instruct` has a slash, files have not
            name = path.name.removesuffix(".md").replace("--", "/")
            files[name] = (*files.get(name, ()), path)
    return dict(sorted(files.items()))


def _cards_in(folder: Path) -> list[Path]:
    """List the `.md` files of a folder that may be absent; a README and hidden files are no
    cards.
    """
    try:
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    except OSError as error:
        raise CardError(
            f"The card folder {folder} cannot be listed: {error.strerror or error}."
        ) from error
    return [
        folder / name
        for name in names
        if name.endswith(".md") and name != "README.md" and not name.startswith(".")
    ]


def find_card(kind: str, name: str) -> Path | None:
    """Return the file of the card that describes `name`, the first one found; `None` where there is
    none.
    """
    # Looked up in the listing and not on the disk: a disk that ignores case would find "GSM8K", and
    # a name with dots and slashes could point outside the folder.
    paths = card_files(kind).get(name)
    return paths[0] if paths else None


def read_card_text(path: Path) -> str:
    """Return a card's (or a price file's) text, with line feeds as line ends."""
    try:
        data = read_regular(path, MAX_CARD_BYTES)
    except FileNotFoundError as error:
        raise CardError(f"There is no card {path}. Check the path.") from error
    except OSError as error:
        raise CardError(
            f"The card {path} cannot be read: {error.strerror or error}. Name a Markdown or JSON"
            " file."
        ) from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CardError(
            f"The card {path} is not UTF-8 text: line {line} has an invalid byte. Save it as UTF-8."
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_front_matter(path: str | os.PathLike[str]) -> Record:
    """Return the facts of a card: the mapping between its two lines `---`, unchecked beyond JSON's
    types.

    Raises:
        CardError: not readable, or not plain YAML; the message names the file and, where there is
            one, the line.
    """
    card = Path(path)
    return deepcopy(_parse(card, _front_matter(card, read_card_text(card))))


def check_card(
    kind: str, path: Path, check: Callable[[object], _Checked], facts: RecordLike | None = None
) -> _Checked:
    """Return what pydantic's check of a card's facts returns: of its front matter, or of other
    `facts`; `kind` is a key of `CARD_KINDS`, for messages. The `CardError` names wrong fields.
    """
    try:
        return check(read_front_matter(path) if facts is None else facts)
    except ValidationError as error:
        raise CardError(
            f"The {CARD_KINDS[kind]} {path} {sentence(error)}. {card_folder() / 'README.md'} lists"
            " the fields."
        ) from error


def known_card(kind: str, name: str, advice: str) -> Path:
    """Return the file of the card that describes `name`; an `UnknownNameError` lists the others."""
    path = find_card(kind, name)
    if path is None:
        raise UnknownNameError.among(CARD_KINDS[kind], name, card_files(kind), advice)
    return path


def read_body(path: str | os.PathLike[str]) -> str:
    """Return the text below a card's front matter; a `CardError` as for `read_front_matter`."""
    text = read_card_text(Path(path))
    lines = _front_matter(Path(path), text).count("\n")
    return "\n".join(text.split("\n")[lines + 1 :])


def _front_matter(path: Path, text: str) -> str:
    """Return the YAML, beginning with an empty line in the place of the first `---`, so that line
    numbers are the file's.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise CardError(
            f"The card {path} has no front matter: line 1 must be '---'."
            f" {card_folder() / 'README.md'} shows the form."
        )
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _FENCE:
            return "\n" + "\n".join(lines[1:number]) + "\n"
    raise CardError(
        f"The front matter of the card {path} does not end: a second line '---' is missing."
    )


@lru_cache(16)
def _parse(path: Path, text: str) -> Record:
    """Read YAML text whose line numbers are those of the card; every recording and every evaluation
    reads the same few cards.
    """
    try:
        refuse_bombs(text, f"The card {path}")
        loader = _loader_class()(text)
        try:
            root = loader.get_single_node()
            if not isinstance(root, yaml.MappingNode):
                raise CardError(
                    f"The front matter of the card {path} is not a mapping. Write lines such as"
                    " 'id: gsm8k'."
                )
            _refuse_odd_nodes(path, root)
            facts: Record = loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise CardError(_yaml_sentence(path, text, error)) from error
    except ValueError as error:  # an integer with thousands of digits
        raise CardError(
            f"The front matter of the card {path} holds a number that cannot be read: {error}."
        ) from error
    return facts


@cache
def _loader_class() -> Any:
    """Return PyYAML's safe loader (in C where there is one) with the scalars of JSON only."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("CardLoader", (base,), {"yaml_implicit_resolvers": {}})
    # YAML 1.1 as PyYAML reads it makes False of `no`, a date of 2025-06-02 and 8 of 010; JSON's
    # words are enough here.
    for tag, pattern, starts in (
        ("bool", r"(?:true|false)\Z", "tf"),
        ("null", r"(?:null|~|)\Z", ("n", "~", "")),
        ("int", r"-?(?:0|[1-9][0-9]*)\Z", _NUMBER_START),
        (
            "float",
            r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)\Z",
            _NUMBER_START,
        ),
    ):
        loader.add_implicit_resolver(_TAG + tag, re.compile(pattern), starts)
    return loader


def refuse_bombs(
    text: str, where: str, most_depth: int = MAX_CARD_DEPTH, loader_class: Any = None
) -> None:
    """Raise a `CardError` where YAML, as the loader would read it, has aliases (a few lines expand
    to gigabytes) or is deep.
    """
    # Events come before any tree is built, which a recursive reader would stumble over.
    loader = (loader_class or _loader_class())(text)
    try:
        depth = 0
        while loader.check_event():
            event = loader.get_event()
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
                event, yaml.CollectionEndEvent
            )
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                raise CardError(f"{where} uses a YAML alias in line {line}. Write the value out.")
            if depth > most_depth:
                raise CardError(
                    f"{where} nests deeper than {most_depth} levels in line {line}. Flatten it."
                )
    finally:
        loader.dispose()


def _refuse_odd_nodes(path: Path, root: Any) -> None:
    """Refuse tags beyond JSON's, keys that are no text, and keys that stand twice in one
    mapping.
    """
    nodes = [root]
    for node in nodes:  # of which each adds its own
        line = node.start_mark.line + 1
        if node.tag not in _JSON_TAGS:
            raise CardError(
                f"The card {path} uses the YAML tag {shorten(node.tag)} in line {line}. Write plain"
                " values."
            )
        if node.id == "sequence":
            nodes += node.value
        seen: set[str] = set()
        for key, value in node.value if node.id == "mapping" else ():
            nodes += (key, value)
            line = key.start_mark.line + 1
            if key.tag != _TAG + "str":
                raise CardError(
                    f"The card {path} has a key in line {line} that is not text. Put it in quotes."
                )
            if key.value in seen:
                raise CardError(
                    f"The card {path} has the key {shorten(key.value)} twice, again in line {line}."
                    " Keep one."
                )
            seen.add(key.value)


def _yaml_sentence(path: Path, text: str, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    # an error of the reader has a position instead
    line = mark.line if mark else text.count("\n", 0, getattr(error, "position", 0))
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it is not YAML"
    return (
        f"The front matter of the card {path} cannot be read in line {line + 1}: {what}. Correct"
        " the YAML there."
    )


def iso_date(text: str) -> str:
    """Return a day, YYYY-MM-DD; a `ValueError` for other text."""
    try:
        # fromisoformat takes 20250602 and week dates, too
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        raise ValueError("write the date as YYYY-MM-DD")
    return text


def not_blank(text: str) -> str:
    """Return text; a `ValueError` for blank text."""
    if not text.strip():
        raise ValueError("it cannot be blank")
    return text
