"""The question files of a dataset card, from the Hugging Face Hub, each fetched once.

Files are fetched at the commit that the card pins, so a cached copy never goes stale and needs no connection. Downloads are
compared with the hash that the Hub states, cached files with the hash beside them:

    <cache folder>/questions/<repository>@<commit>/<config>@<split>/
      0, 1, ...      the files, in order
      entry.json     path, size and SHA-256 of each; the folder appears in one rename, complete

The Hub's own cache would do for downloads, but does not know which files make a split while offline.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from huggingface_hub import HfApi, constants
from huggingface_hub.hf_api import RepoSibling

from feval.cards.cards import HubSource
from feval.errors import HubError, StorageError
from feval.hub.client import Client, TransientError
from feval.hub.files import RepoFile, cache_folder

MAX_BYTES = 256 << 20
"""Most bytes that the question files of one card may have."""

_FORMATS = (".parquet", ".jsonl", ".json")
_ENTRY = "entry.json"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """Path and checked bytes of a file of a repository."""

    path: str
    data: bytes = field(repr=False)


_QUESTIONS_FILE = "pass a file with the questions, --questions FILE"
_ROWS_FILE = "pass a file with the rows of the train split, train_rows = ... in a file for --settings"


def question_files(source: HubSource, *, train: bool = False) -> list[QuestionFile]:
    """Return the files of a split, in the order of splits and shards, from the cache or the Hub.

    Args:
        source: the `hub` section of a dataset card.
        train: whether it is a train split for exemplars, which has another option in messages.

    Raises:
        HubError: no pinned revision, no such repository, commit or split, not reachable, not allowed, or other bytes
            than the Hub states.
        StorageError: the cache folder cannot be read or written.
    """
    remedy = _ROWS_FILE if train else _QUESTIONS_FILE
    if source.revision is None:
        raise HubError(
            f"The card pins no commit of {source.repository} on the Hub, and questions are fetched at a pinned commit only. "
            f" {_sentence(remedy)}"
        )
    folder = _entry_folder(source, source.revision)
    try:
        files = _read_entry(folder)
    except ValueError as damage:
        _LOG.info("The cached questions in %s are damaged (%s); they are fetched again.", folder, damage)
        instead = f"the copy in {folder} is damaged"
    else:
        if files is not None:
            return files
        instead = f"no copy is in {cache_folder()}"
    files = _Download(source, source.revision, instead, remedy).files()
    _write_entry(folder, source, files)
    return files


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


# --- the cache ----------------------------------------------------------------------------------------------------------


def _entry_folder(source: HubSource, revision: str) -> Path:
    # Names come from a card, which may be a stranger's: quoted, and with an "@" in each, no name leaves the folder.
    repository = f"{quote(source.repository, safe='')}@{revision}"
    parts = [source.config or "", source.split, *(source.files or ())]
    return cache_folder() / "questions" / repository / "@".join(quote(part, safe="+") for part in parts)


def _read_entry(folder: Path) -> list[QuestionFile] | None:
    """Return the files of an entry; `None` where there is no entry.

    Raises:
        ValueError: the entry is damaged.
        StorageError: it cannot be read.
    """
    try:
        if not folder.is_dir():
            return None
        listed = orjson.loads((folder / _ENTRY).read_bytes())["files"]
        if not listed:
            raise ValueError(f"{_ENTRY} lists no files")
        return [_checked_file(folder / str(number), each) for number, each in enumerate(listed)]
    except (FileNotFoundError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    except OSError as error:
        raise StorageError(
            f"The cached questions in {folder} could not be read: {error.strerror or error}. "
            "Make them readable, or name another folder in FEVAL_CACHE."
        ) from error


def _checked_file(path: Path, listed: dict[str, Any]) -> QuestionFile:
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != listed["sha256"]:
        raise ValueError(f"{path.name} does not have the SHA-256 it was stored with")
    return QuestionFile(str(listed["path"]), data)


def _write_entry(folder: Path, source: HubSource, files: Sequence[QuestionFile]) -> None:
    account = {
        "repository": source.repository,
        "revision": source.revision,
        "config": source.config,
        "split": source.split,
        "files": [
            {"path": file.path, "bytes": len(file.data), "sha256": hashlib.sha256(file.data).hexdigest()}
            for file in files
        ],
    }
    contents = {str(number): file.data for number, file in enumerate(files)}
    contents[_ENTRY] = orjson.dumps(account, option=orjson.OPT_INDENT_2)
    with _cache_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _scratch_folder(folder.parent) as scratch:
            for name, data in contents.items():
                _write_synced(scratch / name, data)
            _put_in_place(scratch, folder)


def _put_in_place(scratch: Path, folder: Path) -> None:
    try:
        scratch.rename(folder)
        return
    except OSError:
        if not folder.exists():
            raise
    with contextlib.suppress(ValueError):
        if _read_entry(folder) is not None:
            return  # another process was faster
    shutil.rmtree(folder)
    scratch.rename(folder)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _scratch_folder(parent: Path) -> Iterator[Path]:
    """Make a scratch folder on the same disk, and remove what is left of it in the end."""
    scratch = Path(tempfile.mkdtemp(prefix=".part-", dir=parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _cache_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"The questions could not be kept in {folder}: {error.strerror or error}. "
            "Name a folder that can be written to and has space in FEVAL_CACHE."
        ) from error


# --- which files hold a split ---------------------------------------------------------------------------------------------


def split_files(
    paths: Sequence[str], config: str | None, split: str, patterns: Sequence[str] | None = None
) -> list[str]:
    """Return the files of a split, chosen from all files of a repository by their usual layout.

    A file belongs to a config if it lies in a folder of that name (the one config "default": at the top or in `data/`), and to a
    split if its name starts with the split's, as in `main/test-00000-of-00001.parquet`, or if it lies in a folder of that name.

    Args:
        paths: of all files.
        config: `None` without configurations.
        split: "a+b" is both, one after the other.
        patterns: of the files, in order, where the card has them; they overrule names.

    Returns:
        The paths in order, shards by name. Parquet is preferred to JSON Lines, and that to JSON. Empty where a part is missing.
    """
    if patterns is not None:
        chosen = [sorted(path for path in paths if fnmatchcase(path, pattern)) for pattern in patterns]
    else:
        data = [path for path in paths if _in_config(path, config)]
        chosen = [_of_one_format([path for path in data if _in_split(path, part)]) for part in split.split("+")]
    return [path for part in chosen for path in part] if all(chosen) else []


def _in_config(path: str, config: str | None) -> bool:
    folders = path.split("/")[:-1]
    return config in folders or (config in {None, "default"} and folders in ([], ["data"]))


def _in_split(path: str, split: str) -> bool:
    *folders, name = path.split("/")
    stem, dot, ending = name.rpartition(".")
    named = stem == split or stem.startswith((f"{split}-", f"{split}_", f"{split}."))
    return dot + ending in _FORMATS and (named or split in folders)


def _of_one_format(paths: Sequence[str]) -> list[str]:
    for ending in _FORMATS:
        if chosen := sorted(path for path in paths if path.endswith(ending)):
            return chosen
    return []


# --- the Hub --------------------------------------------------------------------------------------------------------------


class _Download:
    """The download of one split."""

    def __init__(self, source: HubSource, revision: str, instead: str, remedy: str) -> None:
        self._source = source
        self._revision = revision
        self._instead = instead
        self._remedy = remedy
        self._what = f"{source.repository} at commit {revision[:12]}"
        self._client = Client(source.repository, self._failed, self._disk_failed)

    def files(self) -> list[QuestionFile]:
        """Return the files of the split; a failure that may pass is tried again."""
        return self._client.attempts(self._attempt)

    def _attempt(self) -> list[QuestionFile]:
        api = self._client.api()
        listed = self._listed(api)
        with _cache_errors(cache_folder()):
            cache_folder().mkdir(parents=True, exist_ok=True)
            with _scratch_folder(cache_folder()) as scratch:
                return [QuestionFile(each.rfilename, self._download(api, each, scratch)) for each in listed]

    def _listed(self, api: HfApi) -> list[RepoSibling]:
        """Return what the Hub says about the files of the split: names, sizes, hashes."""
        source = self._source
        with self._client.errors():
            info = api.dataset_info(
                source.repository, revision=self._revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT
            )
        if info.sha != self._revision:
            raise HubError(
                f"The Hub ({self._client.host}) answered for commit {info.sha} where {self._what} was asked for."
            )
        siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
        chosen = [siblings[path] for path in split_files(list(siblings), source.config, source.split, source.files)]
        if not chosen:
            raise HubError(self._no_split(list(siblings)))
        size = sum(sibling.size or 0 for sibling in chosen)
        if size > MAX_BYTES:
            raise HubError(
                f"The split {source.split!r} of {self._what} has {size:,} bytes; at most {MAX_BYTES:,} are fetched. "
                f"{_sentence(self._remedy)}"
            )
        return chosen

    def _no_split(self, paths: list[str]) -> str:
        source = self._source
        data = [path for path in paths if path.endswith(_FORMATS)]
        files = (
            f"its data files are {', '.join(data[:8])}{', ...' if len(data) > 8 else ''}"
            if data
            else "it has no data files"
        )
        named = "name them under `files` in the `hub` section of the card, or "
        advice = _sentence(self._remedy if self._remedy == _ROWS_FILE else named + self._remedy)
        return f"No files of config {source.config!r} and split {source.split!r} were found in {self._what}; {files}. {advice}"

    def _download(self, api: HfApi, listed: RepoSibling, scratch: Path) -> bytes:
        with self._client.errors(client_retries=True):
            path = api.hf_hub_download(
                self._source.repository,
                listed.rfilename,
                repo_type="dataset",
                revision=self._revision,
                cache_dir=scratch,
            )
        data = Path(path).read_bytes()
        if not RepoFile(len(data), listed.lfs.sha256 if listed.lfs else None, listed.blob_id).holds(data):
            raise TransientError(f"{listed.rfilename} came with other bytes than the Hub says it has")
        return data

    def _disk_failed(self, message: str) -> StorageError:
        return StorageError(
            f"The questions could not be fetched to {cache_folder()}: {message}. "
            "Name a folder that can be written to and has space in FEVAL_CACHE."
        )

    def _failed(self, reason: str, advice: str) -> HubError:
        return HubError(
            f"The questions of {self._what} could not be fetched from the Hub ({self._client.host}): {reason}, and "
            f"{self._instead}. {advice}, or {self._remedy}."
        )
