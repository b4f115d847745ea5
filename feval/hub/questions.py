"""The question files of a dataset card, from the Hugging Face Hub, each fetched once.

Files are fetched at the commit that the card pins, so a cached copy never goes stale and needs no
connection. They are kept in a cache of huggingface_hub, in `questions/` of feval's own cache
folder. That cache does not know which files make a split, so a list of them lies beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

import orjson
from huggingface_hub import constants

from feval.cards.cards import HubSource
from feval.errors import HubError
from feval.hub.addresses import Address
from feval.hub.client import Client, cache_folder
from feval.hub.snapshots import file_at_commit
from feval.recording.layout.format import is_safe_path

MAX_BYTES = 256 << 20
"""Most bytes that the question files of one card may have."""

_FORMATS = (".parquet", ".jsonl", ".json")
_QUESTIONS_FILE = "pass a file with the questions, --questions FILE (in Python: source=FILE)"
_ROWS_FILE = (
    "pass a file with the rows of the train split: --settings FILE with train_rows ="
    " ROWS (in Python: source=ROWS)"
)


def question_files(source: HubSource, *, train: bool = False) -> dict[str, Path]:
    """Return path -> copy here of the files of a split, in the order of splits and shards, from the
    cache or the Hub.

    Args:
        source: the `hub` section of a dataset card.
        train: whether it is a train split for exemplars, which has another option in messages.

    Raises:
        HubError: no pinned revision, no such repository, commit or split, not reachable, not
            allowed, or other bytes than the Hub states.
        StorageError: the cache folder cannot be read or written.
    """
    remedy = _ROWS_FILE if train else _QUESTIONS_FILE
    advice = f"{remedy[0].upper()}{remedy[1:]}."
    if source.revision is None:
        raise HubError(
            f"The card pins no commit of {source.repository} on the Hub, and questions are fetched"
            f" at a pinned commit only. {advice}"
        )
    address = Address(source.repository, source.revision)
    what, folder = f"{source.repository} at commit {source.revision[:12]}", cache_folder()
    client = Client(
        source.repository,
        f"The questions of {what} could not be fetched from",
        (
            f"The questions could not be kept in {folder}",
            "Name a folder that can be read, can be written to and has space in FEVAL_CACHE",
        ),
        "Correct the card",
        f", and no sound copy is in {folder}",
        f", or {remedy}",
        folder / "questions",
    )
    # Names come from a card, which may be a stranger's: quoted, and with an "@" in each, no name
    # leaves the folder.
    parts = (source.repository, source.revision, source.config or "", source.split)
    name = "@".join(quote(part, safe="") for part in (*parts, *(source.files or ())))
    listing = folder / "questions" / f"{name}.json"
    try:
        paths = _listed(listing)
        if not paths:
            paths = client.attempts(lambda: _split(client, source, what, advice, train=train))
            listing.parent.mkdir(parents=True, exist_ok=True)
            listing.write_bytes(orjson.dumps(paths))
        return {path: file_at_commit(client, address, path, MAX_BYTES) for path in paths}
    except OSError as error:
        raise client.disk_failed(error) from error


def _listed(listing: Path) -> list[str]:
    """Return the files of a split as they were listed; none where they were not."""
    try:
        paths = orjson.loads(listing.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return []
    is_list = isinstance(paths, list) and all(isinstance(path, str) for path in paths)
    return paths if is_list and all(map(is_safe_path, paths)) else []


def _split(client: Client, source: HubSource, what: str, advice: str, *, train: bool) -> list[str]:
    """Return the files of a split, in order, as the Hub has them."""
    with client.errors():
        info = client.api().dataset_info(
            source.repository,
            revision=source.revision,
            files_metadata=True,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
        )
    if info.sha != source.revision:
        raise HubError(
            f"The Hub ({client.host}) answered for commit {info.sha} where {what} was asked for."
        )
    sizes = {
        sibling.rfilename: sibling.size or 0
        for sibling in info.siblings or ()
        if is_safe_path(sibling.rfilename)
    }
    paths = split_files(list(sizes), source.config, source.split, source.files)
    if not paths:
        data = [path for path in sizes if path.endswith(_FORMATS)]
        shown = ", ".join(data[:8]) + (", ..." if len(data) > 8 else "")
        files = f"its data files are {shown}" if data else "it has no data files"
        named = "" if train else " Name them under `files` in the `hub` section of the card."
        raise HubError(
            f"No files of config {source.config!r} and split {source.split!r} were found in"
            f" {what}; {files}.{named} {advice}"
        )
    size = sum(sizes[path] for path in paths)
    if size > MAX_BYTES:
        raise HubError(
            f"The split {source.split!r} of {what} has {size:,} bytes; at most {MAX_BYTES:,} are"
            f" fetched. {advice}"
        )
    return paths


def split_files(
    paths: Sequence[str], config: str | None, split: str, patterns: Sequence[str] | None = None
) -> list[str]:
    """Return the files of a split, chosen from all files of a repository by their usual layout.

    A file belongs to a config if it lies in a folder of that name (the one config "default": at the
    top or in `data/`), and to a split if its name starts with the split's, as in
    `main/test-00000-of-00001.parquet`, or if it lies in a folder of that name.

    Args:
        paths: of all files.
        config: `None` without configurations.
        split: "a+b" is both, one after the other.
        patterns: of the files, in order, where the card has them; they overrule names.

    Returns:
        The paths in order, shards by name. Parquet is preferred to JSON Lines, and that to JSON.
        Empty where a part is missing.
    """
    if patterns is not None:
        chosen = [
            sorted(path for path in paths if fnmatchcase(path, pattern)) for pattern in patterns
        ]
    else:
        chosen = [
            next(filter(None, (
                sorted(
                    path for path in paths if path.endswith(ending) and _is_of(path, config, part)
                )
                for ending in _FORMATS
            )), [])
            for part in split.split("+")
        ]  # fmt: skip
    return [path for part in chosen for path in part] if all(chosen) else []


def _is_of(path: str, config: str | None, split: str) -> bool:
    """Return whether a file lies in a configuration and belongs to a split."""
    *folders, name = path.split("/")
    stem = name.rpartition(".")[0]
    named = stem == split or stem.startswith((f"{split}-", f"{split}_", f"{split}."))
    in_config = config in folders or (config in {None, "default"} and folders in ([], ["data"]))
    return in_config and (named or split in folders)
