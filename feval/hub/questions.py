"""The question files of a dataset card, from the Hugging Face Hub, each fetched once.

Files are fetched at the commit that the card pins, so a cached copy never goes stale and needs no
connection. They are kept in a cache of huggingface_hub, in `questions/` of feval's own cache
folder. That cache does not know which files make a split, and does not compare hashes, so a list
with the hashes lies beside it, and each file is compared with it whenever it is read.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote

import orjson
from huggingface_hub import constants, try_to_load_from_cache

from feval.cards.cards import HubSource
from feval.errors import HubError, StorageError
from feval.hub.client import Client, RepoFile, TransientError, cache_folder
from feval.recording.layout.format import is_safe_path

MAX_BYTES = 256 << 20
"""Most bytes that the question files of one card may have."""

_FORMATS = (".parquet", ".jsonl", ".json")
_QUESTIONS_FILE = "pass a file with the questions, --questions FILE"
_ROWS_FILE = (
    "pass a file with the rows of the train split, train_rows = ... in a file for --settings"
)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """Path and checked bytes of a file of a repository."""

    path: str
    data: bytes = field(repr=False)


def question_files(source: HubSource, *, train: bool = False) -> list[QuestionFile]:
    """Return the files of a split, in the order of splits and shards, from the cache or the Hub.

    Args:
        source: the `hub` section of a dataset card.
        train: whether it is a train split for exemplars, which has another option in messages.

    Raises:
        HubError: no pinned revision, no such repository, commit or split, not reachable, not
            allowed, or other bytes than the Hub states.
        StorageError: the cache folder cannot be read or written.
    """
    remedy = _ROWS_FILE if train else _QUESTIONS_FILE
    if source.revision is None:
        raise HubError(
            f"The card pins no commit of {source.repository} on the Hub, and questions are fetched"
            f" at a pinned commit only. {_sentence(remedy)}"
        )
    folder = cache_folder() / "questions"
    try:
        return _Split(source, source.revision, folder, remedy).files()
    except OSError as error:
        raise StorageError(
            f"The questions could not be kept in {folder}: {error.strerror or error}. "
            "Name a folder that can be read, can be written to and has space in FEVAL_CACHE."
        ) from error


def _sentence(clause: str) -> str:
    return f"{clause[0].upper()}{clause[1:]}."


class _Split:
    """One split in the cache and on the Hub."""

    def __init__(self, source: HubSource, revision: str, folder: Path, remedy: str) -> None:
        self._source = source
        self._revision = revision
        self._folder = folder
        self._remedy = remedy
        # Names come from a card, which may be a stranger's: quoted, and with an "@" in each, no
        # name leaves the folder.
        parts = [
            source.repository,
            revision,
            source.config or "",
            source.split,
            *(source.files or ()),
        ]
        self._list = folder / ("@".join(quote(part, safe="") for part in parts) + ".json")
        self._what = f"{source.repository} at commit {revision[:12]}"
        self._cached = f"no copy is in {cache_folder()}"
        self._client = Client(
            source.repository,
            self._failed,
            lambda message: StorageError(
                f"The questions could not be fetched to {cache_folder()}: {message}. "
                "Name a folder that can be written to and has space in FEVAL_CACHE."
            ),
        )

    def files(self) -> list[QuestionFile]:
        """Return the files of the split, those that are missing or damaged from the Hub.

        Raises:
            OSError: the cache cannot be read or written.
        """
        try:
            listed = {
                path: RepoFile(**file)
                for path, file in orjson.loads(self._list.read_bytes()).items()
            }
        except (FileNotFoundError, orjson.JSONDecodeError, AttributeError, TypeError):
            listed = {}
        cached = {path: self._read(path, file) for path, file in listed.items()}
        if cached and None not in cached.values():
            return [QuestionFile(path, data) for path, data in cached.items() if data is not None]
        if self._list.exists():
            self._cached = f"the copy in {self._folder} is damaged"
            _LOG.info("The cached questions of %s are damaged; they are fetched again.", self._what)
        return self._client.attempts(self._fetch)

    def _read(self, path: str, file: RepoFile) -> bytes | None:
        """Return a file's bytes from the cache; `None` where it is not there, or has other bytes
        than it should.
        """
        place = self._place(path)
        data = None if place is None else place.read_bytes()
        return data if data is not None and file.holds(data) else None

    def _place(self, path: str) -> Path | None:
        place = try_to_load_from_cache(
            self._source.repository,
            path,
            cache_dir=self._folder,
            revision=self._revision,
            repo_type="dataset",
        )
        return Path(place) if isinstance(place, str) else None

    def _fetch(self) -> list[QuestionFile]:
        listed = self._listed()
        self._folder.mkdir(parents=True, exist_ok=True)
        files = [QuestionFile(path, self._download(path, file)) for path, file in listed.items()]
        self._list.write_bytes(
            orjson.dumps({path: dataclasses.asdict(file) for path, file in listed.items()})
        )
        return files

    def _listed(self) -> Mapping[str, RepoFile]:
        """Return what the Hub says about the files of the split, in order."""
        source = self._source
        with self._client.errors():
            info = self._client.api().dataset_info(
                source.repository,
                revision=self._revision,
                files_metadata=True,
                timeout=constants.HF_HUB_ETAG_TIMEOUT,
            )
        if info.sha != self._revision:
            raise HubError(
                f"The Hub ({self._client.host}) answered for commit {info.sha} where {self._what}"
                " was asked for."
            )
        files = {
            sibling.rfilename: RepoFile(
                sibling.size or 0, sibling.lfs.sha256 if sibling.lfs else None, sibling.blob_id
            )
            for sibling in info.siblings or ()
            if is_safe_path(sibling.rfilename)
        }
        paths = split_files(list(files), source.config, source.split, source.files)
        if not paths:
            raise HubError(self._no_split(list(files)))
        size = sum(files[path].size for path in paths)
        if size > MAX_BYTES:
            raise HubError(
                f"The split {source.split!r} of {self._what} has {size:,} bytes; at most"
                f" {MAX_BYTES:,} are fetched. {_sentence(self._remedy)}"
            )
        return {path: files[path] for path in paths}

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
        return (
            f"No files of config {source.config!r} and split {source.split!r} were found in"
            f" {self._what}; {files}. {advice}"
        )

    def _download(self, path: str, file: RepoFile) -> bytes:
        """Return a file's bytes; one that is in the cache with the right bytes is not sent
        again.
        """
        data = self._read(path, file)
        if data is not None:
            return data
        with self._client.errors(client_retries=True):
            self._client.api().hf_hub_download(
                self._source.repository,
                path,
                repo_type="dataset",
                revision=self._revision,
                cache_dir=self._folder,
                force_download=self._place(path) is not None,
            )
        data = self._read(path, file)
        if data is None:
            raise TransientError(f"{path} came with other bytes than the Hub says it has")
        return data

    def _failed(self, reason: str, advice: str) -> HubError:
        return HubError(
            f"The questions of {self._what} could not be fetched from the Hub"
            f" ({self._client.host}): {reason}, and {self._cached}. {advice}, or {self._remedy}."
        )


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
