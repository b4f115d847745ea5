"""The files of a split of a dataset repository, as the library `datasets` finds them: by its
README, else by their names.

Only the names of files are taken from the library. They are fetched and read like files that an
address names, so that the same files give the same recording, with the library and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from feval.cards.front_matter import refuse_bombs
from feval.errors import CardError, UsageError
from feval.hub.addresses import Address
from feval.hub.client import without_addresses
from feval.recording.layout.format import is_safe_path

_FIRST_WITHOUT_SCRIPTS = 4  # earlier versions may run code of a repository
_MOST_NAMED = 8
_MOST_DEPTH = 60  # of the features of a table, which are described there, too

DESCRIPTIONS = ("README.md", ".huggingface.yaml")
"""Files of a repository where the library reads which files a split has."""

MOST_DESCRIPTION_BYTES = 1 << 20


def split_paths(address: Address, described: Callable[[], Iterable[Path]]) -> list[str]:
    """Return the paths of the files of a split; none where no library is installed that can be
    trusted with it.

    Args:
        address: pinned. Its path is CONFIGURATION/SPLIT; either may be left out where there is only
            one.
        described: returns those of `DESCRIPTIONS` that the repository has.

    Raises:
        UsageError: there is no such split, or there are several; the repository names files in
            another place; or a folder here has the name of the repository, which the library would
            read.
    """
    try:
        if int(version("datasets").partition(".")[0]) < _FIRST_WITHOUT_SCRIPTS:
            return []
    except (PackageNotFoundError, ValueError):
        return []
    whole, path = replace(address, path=""), address.path.strip("/")
    if Path(address.repo_id).exists():
        raise UsageError(
            f"The library `datasets` would read the folder {address.repo_id} here in place of"
            f" {whole}. Go to another folder, or name a file, or how the names of several begin."
        )
    for description in described():
        _refuse_elsewhere(description, whole)
    import datasets

    names = _found(datasets.get_dataset_config_names, whole)
    config = next(
        (name for name in names if f"{path}/".startswith(f"{name}/")),
        names[0] if len(names) == 1 else None,
    )
    if config is None:
        raise _unclear(whole, "configurations", names)
    split = path.removeprefix(config).strip("/")
    files = _found(datasets.load_dataset_builder, whole, config).config.data_files or {}
    if not split and len(files) == 1:
        split = str(next(iter(files)))
    if split not in files:
        raise _unclear(replace(whole, path=config), "splits", files)
    here = f"hf://datasets/{address.repo_id}@{address.revision}/"
    paths = [file.removeprefix(here) for file in files[split]]
    if not all(
        file.startswith(here) and is_safe_path(path)
        for file, path in zip(files[split], paths, strict=True)
    ):
        raise UsageError(
            f"The split {split!r} of {whole} has files that are not in it. Name a file of it."
        )
    return paths


def _refuse_elsewhere(description: Path, repository: Address) -> None:
    """The library follows whatever a repository names, on this machine and on others: no such name
    is to come to it.
    """
    for place in _named_places(description):
        if place.startswith(("/", "~", "\\")) or ":" in place or ".." in place:
            raise UsageError(
                f"{description.name} of {repository} names files that are not in it, such as"
                f" {place!r:.120}, which the library `datasets` would follow. Name a file, or how"
                " the names of several begin."
            )


def _named_places(description: Path) -> Iterator[str]:
    """Every text under `data_files` and `data_dir`, read as the library does: byte for byte, a line
    feed apart from a return.
    """
    try:
        text = description.read_bytes().decode()
        if description.suffix == ".md":
            text = block[2] if (block := REGEX_YAML_BLOCK.search(text)) else ""
        refuse_bombs(text, "Its YAML", _MOST_DEPTH, yaml.SafeLoader)
        open_ = [(yaml.safe_load(text), False)]
    except Exception as error:
        reason = (
            str(error)
            if isinstance(error, CardError)
            else f"It is not read: {type(error).__name__}."
        )
        raise UsageError(
            f"{description.name} cannot be used. {reason} Or name a file of the repository, or how"
            " the names of several begin."
        ) from error
    while open_:
        value, is_place = open_.pop()
        if isinstance(value, str) and is_place:
            yield value
        elif isinstance(value, dict):
            open_ += [
                (each, is_place or key in ("data_files", "data_dir")) for key, each in value.items()
            ]
        elif isinstance(value, list):
            open_ += [(each, is_place) for each in value]


def _found(look: Callable[..., Any], repository: Address, *config: str) -> Any:
    try:
        return look(repository.repo_id, *config, revision=repository.revision)
    except Exception as error:  # noqa: BLE001  whatever a README or a file's name makes the library raise
        raise UsageError(
            f"The library `datasets` finds no splits in {repository} ({type(error).__name__}). Name"
            " a file, or how the names of several begin."
        ) from without_addresses(error)


def _unclear(place: Address, what: str, names: Iterable[str]) -> UsageError:
    listed = list(map(str, names))
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return UsageError(
        f"{place} should lead to one table; its {what} are"
        f" {', '.join(listed[:_MOST_NAMED]):.600}{more}. Name one of them,"
        f" {place}/{listed[0] if listed else 'NAME'}."
    )
