"""The files of a split of a dataset repository, as the library `datasets` finds them: by its README, else by their names.

Only the names of files are taken from the library. They are fetched and read like files that an address names, so that the same
files give the same recording, with the library and without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from feval.errors import UsageError
from feval.hub.addresses import Address
from feval.hub.client import without_addresses
from feval.recording.layout.format import is_safe_path

_FIRST_WITHOUT_SCRIPTS = 4  # earlier versions may run code of a repository
_MOST_NAMED = 8


def split_paths(address: Address) -> list[str]:
    """Return the paths of the files of a split; none where no library is installed that can be trusted with it.

    The address is pinned. Its path is CONFIGURATION/SPLIT; either may be left out where there is only one.

    Raises:
        UsageError: there is no such split, or there are several; its files are in another place; or a folder here has the name of
            the repository, which the library would read.
    """
    try:
        if int(version("datasets").partition(".")[0]) < _FIRST_WITHOUT_SCRIPTS:
            return []
    except (PackageNotFoundError, ValueError):
        return []
    whole, path = replace(address, path=""), address.path.strip("/")
    if Path(address.repo_id).exists():
        raise UsageError(
            f"The library `datasets` would read the folder {address.repo_id} here in place of {whole}. Go to another folder, or "
            "name a file, or how the names of several begin."
        )
    import datasets

    names = _found(datasets.get_dataset_config_names, whole)
    config = next((name for name in names if f"{path}/".startswith(f"{name}/")), names[0] if len(names) == 1 else None)
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
    if not all(file.startswith(here) and is_safe_path(path) for file, path in zip(files[split], paths, strict=True)):
        raise UsageError(f"The split {split!r} of {whole} has files that are not in it. Name a file of it.")
    return paths


def _found(look: Callable[..., Any], repository: Address, *config: str) -> Any:
    try:
        return look(repository.repo_id, *config, revision=repository.revision)
    except Exception as error:  # noqa: BLE001  whatever a README or a file's name makes the library raise
        raise UsageError(
            f"The library `datasets` finds no splits in {repository} ({type(error).__name__}). Name a file, or how the names of "
            "several begin."
        ) from without_addresses(error)


def _unclear(place: Address, what: str, names: Iterable[str]) -> UsageError:
    listed = list(map(str, names))
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return UsageError(
        f"{place} should lead to one table; its {what} are {', '.join(listed[:_MOST_NAMED]):.600}{more}. Name one of them, "
        f"{place}/{listed[0] if listed else 'NAME'}."
    )
