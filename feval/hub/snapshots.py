"""Files of a repository at one commit, in huggingface_hub's cache, which every program for the Hub
shares.

Only the files asked for are fetched. What the Hub lists is compared with the size and SHA-256 that
a file should have before any byte is downloaded; so are files in the cache, and a damaged one is
fetched again, once. A commit never changes, so a file in the cache needs no connection.

The question files of a dataset card are fetched at the commit that the card pins, into a cache in
`questions/` of feval's own cache folder. That cache does not know which files make a split, so a
list of them lies beside it.
"""

from __future__ import annotations

import glob
import hashlib
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import quote

import orjson
import yaml
from huggingface_hub import RepoFile as ListedFile, constants, try_to_load_from_cache
from huggingface_hub.errors import (
    LocalEntryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils.tqdm import tqdm

from feval.cards.cards import HubSource
from feval.cards.front_matter import refuse_bombs
from feval.cards.reading import some
from feval.errors import (
    CardError,
    DamagedRecordingError,
    HubError,
    StorageError,
    UnpinnedWarning,
    UsageError,
)
from feval.executors import Progress, reports, silent
from feval.hub.addresses import Address, is_commit, parse_address
from feval.hub.client import (
    Client,
    RepoFile,
    TransientError,
    cache_folder,
    is_offline,
    without_addresses,
)
from feval.recording.layout.format import MANIFEST, is_safe_path

_LISTED_AT_ONCE = 200
_MOST_NAMED = 8
_MOST_TABLE_BYTES = 1 << 40
_TABLE_ENDINGS = (
    ".parquet",
    ".jsonl",
    ".jsonl.gz",
    ".csv",
    ".csv.gz",
    ".tsv",
    ".json",
    ".arrow",
    ".feather",
)
_SHARD = re.compile(r"-[0-9]{5}(-of-[0-9]{5}[.])")
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit: the folder in huggingface_hub's cache with as much of it as was
    fetched.
    """

    address: Address
    folder: Path
    client: Client = field(repr=False)

    @reports("fetching")
    def fetch(
        self, files: Mapping[str, RepoFile], progress: Progress | None = None
    ) -> dict[str, int]:
        """Make sure that files are in the cache with the right bytes; return path -> size of those
        that were downloaded.

        `progress` is called with (bytes so far, bytes in all) of the download.

        Raises:
            HubError: a file cannot be fetched.
            DamagedRecordingError: the Hub has another file in its place.
            StorageError: the cache cannot be written.
        """
        for path in files:
            if not is_safe_path(path):
                raise DamagedRecordingError(
                    f"{self.address} names the file {path!r:.120}, which is outside of it."
                )
        missing = {path: file for path, file in files.items() if not self._has(path, file)}
        if missing:
            self.client.attempts(lambda: self._check_listing(missing))
            self._check_room(missing)
            self._download(missing, progress or silent)
        return {path: file.size for path, file in missing.items()}

    def _has(self, path: str, file: RepoFile) -> bool:
        try:
            return file.holds(self.folder / path)
        except OSError:
            return False

    def _check_listing(self, files: Mapping[str, RepoFile]) -> None:
        listing = _listing(self.client, self.address, [self.address.inside(path) for path in files])
        for path, file in files.items():
            listed = listing.get(self.address.inside(path))
            if listed is None:
                raise DamagedRecordingError(
                    f"{self.address} has no file {path}, which its manifest lists. Its owner has to"
                    " publish it again."
                )
            if listed.size != file.size or (
                listed.lfs is not None and listed.lfs.sha256 != file.sha256
            ):
                raise DamagedRecordingError(
                    f"{path} of {self.address} has {listed.size:,} bytes on the Hub, and is not the"
                    f" file of {file.size:,} bytes that its manifest lists. Its owner has to"
                    " publish it again."
                )

    def _check_room(self, files: Mapping[str, RepoFile]) -> None:
        place = next(folder for folder in (self.folder, *self.folder.parents) if folder.exists())
        needed, free = sum(file.size for file in files.values()), shutil.disk_usage(place).free
        if needed + _SPARE_BYTES > free:
            raise StorageError(
                f"{len(files)} files of {self.address} have {needed:,} bytes, and the disk of"
                f" {place} has room for {free:,}. Fetch a part of it, some"
                " datasets, some LLMs or no texts, or move the cache with HF_HOME."
            )

    def _download(self, files: Mapping[str, RepoFile], progress: Progress) -> None:
        bar = _progress_bar(progress, sum(file.size for file in files.values()))
        wrong = list(files)
        for _ in range(2):
            # A file that is there is damaged, so it has to be forced. A second wrong copy is not
            # the fault of this disk.
            damaged = [path for path in wrong if (self.folder / path).exists()]
            absent = [path for path in wrong if path not in damaged]
            for paths, force in ((absent, False), (damaged, True)):
                if paths:
                    self._ask(paths, bar, force=force)
            wrong = [path for path in wrong if not self._has(path, files[path])]
            if not wrong:
                return
        raise HubError(
            f"{wrong[0]} of {self.address} came twice from the Hub ({self.client.host}) with other"
            " bytes than its manifest lists. Try later; if it stays so, its owner has to publish"
            " it again."
        )

    def _ask(self, paths: Sequence[str], bar: type[Any], *, force: bool) -> None:
        def download() -> None:
            with self.client.errors():
                self.client.api().snapshot_download(
                    self.address.repo_id,
                    repo_type="dataset",
                    revision=self.address.revision,
                    cache_dir=constants.HF_HUB_CACHE,
                    allow_patterns=[glob.escape(self.address.inside(path)) for path in paths],
                    force_download=force,
                    tqdm_class=bar,
                )
            # Where its own listing fails, snapshot_download returns the incomplete folder without
            # an error.
            if absent := [path for path in paths if not (self.folder / path).exists()]:
                raise TransientError(f"it did not send {absent[0]}")

        self.client.attempts(download, most=2)  # the client retries by itself


def _progress_bar(progress: Progress, total: int) -> type[Any]:
    """Return a class for `tqdm_class`: a bar that is not drawn, and reports bytes to a callback.

    snapshot_download has bars for files, bytes received and bytes written; the furthest of the
    latter two is reported.
    """
    so_far = 0

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            self._counts_bytes = options.get("unit") == "B"
            self._bytes = 0
            super().__init__(*args, **options | {"disable": True})  # type: ignore[no-untyped-call]  # tqdm is untyped

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal so_far
            if self._counts_bytes:
                self._bytes += int(n or 0)
                so_far = min(max(so_far, self._bytes), total)
                progress(so_far, total)
            return None

    progress(0, total)
    return Bar


def open_snapshot(address: Address, index: str, *, most_bytes: int) -> Snapshot:
    """Resolve an address to a commit, warning of a branch, and fetch the file `index` below it.

    Raises:
        HubError: no such repository, revision or file, or it cannot be reached and is not in the
            cache.
    """
    client = _client(address)
    pinned = _pinned(client, address)
    file = file_at_commit(client, pinned, index, most_bytes)
    return Snapshot(pinned, file.parents[index.count("/")], client)


def _pinned(client: Client, address: Address) -> Address:
    """Return an address at its commit; a branch, which moves, warns."""
    if address.is_pinned:
        return address
    revision = address.revision or "main"
    if is_offline():
        try:
            commit, moves = _commit_of(client, address, revision, here=True), revision == "main"
        except (LocalEntryNotFoundError, RevisionResolutionError) as error:
            raise client.offline() from without_addresses(error)
    else:
        commit, moves = client.attempts(lambda: _resolve(client, address, revision))
    pinned = address.at(commit)
    if moves:
        warnings.warn_explicit(
            f"{address} is a branch, which may hold something else tomorrow. Pin today's commit:"
            f" {pinned}",
            UnpinnedWarning,
            "feval.load",
            1,
        )
    return pinned


def fetch_file(place: str | PurePath, *, most_bytes: int) -> Path:
    """Fetch one file, such as a receipt, into the Hub's cache, and return its path there; a branch
    warns.

    Raises:
        UsageError: not the address of a file.
        HubError: it is not there, is larger, or cannot be fetched.
    """
    address = parse_address(place)
    folder, _, name = address.path.rpartition("/")
    if not name:
        raise UsageError(
            f"{address} is a repository; name a file in it, such as"
            f" {address}/results/NAME/receipt.json."
        )
    return open_snapshot(replace(address, path=folder), name, most_bytes=most_bytes).folder / name


def fetch_table(place: str | PurePath) -> tuple[Path, Address]:
    """Fetch the files of a table into the Hub's cache.

    Args:
        place: the address of a file, or of the beginning of the paths of several: of a folder, or
            of a split such as `hf://namespace/name/data/train`. Of several formats the first of
            Parquet, JSON Lines, CSV and JSON counts. Where that is not one table and the library
            `datasets` is installed, `hf://namespace/name/CONFIGURATION/SPLIT`.

    Returns:
        What importers read: the path of the one file, a pattern of several, or a folder; and the
        address with its commit.

    Raises:
        UsageError: not an address, or of several tables.
        HubError: there is no table, or it cannot be fetched.
    """
    address = parse_address(place)
    client = _client(address)
    pinned = replace(_pinned(client, address), path="")
    paths = [address.path]
    if not address.path.endswith(_TABLE_ENDINGS):
        paths = _table_paths(client, pinned, address)
    files = [file_at_commit(client, pinned, path, _MOST_TABLE_BYTES) for path in paths]
    pattern = Path(_stem(str(files[0])))
    if len(files) == 1:
        place = files[0]
    elif {*pattern.parent.glob(pattern.name)} == {*files}:  # no other shard was fetched before
        place = pattern
    else:
        # a folder in feval's cache with links to these files alone, named by their paths
        name = hashlib.sha256("\n".join(map(str, files)).encode()).hexdigest()[:16]
        place = cache_folder() / "tables" / name
        try:
            place.mkdir(parents=True, exist_ok=True)
            for path, file in zip(paths, files, strict=True):
                link = place / quote(path, safe="")
                if not link.exists():
                    link.unlink(missing_ok=True)
                    with suppress(FileExistsError):  # of another process
                        link.symlink_to(file.absolute())
        except OSError as error:
            raise client.disk_failed(error) from error
    return place, replace(pinned, path=address.path)


def _table_paths(client: Client, pinned: Address, address: Address) -> list[str]:
    """Return the paths of the files of the one table at an address."""
    with client.errors():
        paths = client.attempts(
            lambda: client.api().list_repo_files(
                address.repo_id, revision=pinned.revision, repo_type="dataset"
            )
        )
    own = [path for path in paths if path.startswith(address.path) and is_safe_path(path)]
    found = (sorted(path for path in own if path.endswith(ending)) for ending in _TABLE_ENDINGS)
    tables = next(filter(None, found), [])
    stems = {_stem(path) for path in tables}
    if len(stems) == 1:
        return tables

    def described() -> list[Path]:
        return [
            file_at_commit(client, pinned, name, MOST_DESCRIPTION_BYTES)
            for name in DESCRIPTIONS
            if name in paths
        ]

    if split := client.attempts(lambda: split_paths(replace(pinned, path=address.path), described)):
        if not any(all(path.endswith(ending) for path in split) for ending in _TABLE_ENDINGS):
            raise UsageError(
                f"{address} has files that are not read, such as {split[0]:.120}. Read them with"
                " `datasets`, and give what it returns to `feval.from_dataframe`."
            )
        return split
    named = (
        f"it has several: {', '.join(sorted(stems)[:_MOST_NAMED])}" if stems else "there is none"
    )
    raise UsageError(
        f"{address} should be one table, and {named}. Name the file, or how the names of its files"
        " begin."
    )


def _stem(path: str) -> str:
    """Return the path of a table's file, as a pattern where it is one of several shards."""
    return _SHARD.sub(r"-*\1", path)


def file_at_commit(client: Client, address: Address, index: str, most_bytes: int) -> Path:
    """Return a file below a pinned address in the client's cache, fetched unless it is there as the
    Hub has it.
    """
    path = address.inside(index)
    cached = try_to_load_from_cache(
        address.repo_id,
        path,
        cache_dir=client.cache,
        revision=address.revision,
        repo_type="dataset",
    )
    file = Path(cached) if isinstance(cached, str) else None

    def fetch() -> Path:
        listed = _listing(client, address, [path]).get(path)
        if listed is None:
            hint = "so it is not a recording" if index == MANIFEST else "or not at that revision"
            raise HubError(f"{address} has no {index}, {hint}. Check the address and its revision.")
        if listed.size > most_bytes:
            raise HubError(
                f"{path} of {address} has {listed.size:,} bytes; at most {most_bytes:,} are"
                " fetched."
            )
        with client.errors():
            return Path(
                client.api().hf_hub_download(
                    address.repo_id,
                    path,
                    repo_type="dataset",
                    revision=address.revision,
                    cache_dir=client.cache,
                    force_download=file is not None,
                )
            )

    for attempt in range(3):
        if file is not None and _is_as_cached(file):
            return file
        if attempt < 2:
            file = client.attempts(fetch, most=2)
    raise HubError(
        f"{path} of {address} came twice from the Hub ({client.host}) with other bytes than the Hub"
        " says it has. Try later."
    )


def _resolve(client: Client, address: Address, revision: str) -> tuple[str, bool]:
    """Return the commit of a revision, and whether it is a branch, which moves."""
    with client.errors():
        # resolve_revision does not tell a tag from a branch
        refs = client.api().list_repo_refs(address.repo_id, repo_type="dataset")
        tags = {ref.name for ref in refs.tags}
        branches = {ref.name: ref.target_commit for ref in refs.branches}
        try:
            resolved = _commit_of(client, address, revision)
        except RevisionNotFoundError as error:
            named = (
                f"its {noun} are {_printable(sorted(names))}" if names else f"it has no {noun}"
                for noun, names in (("tags", tags), ("branches", branches))
            )
            reason = (
                f"the Hub has the repository but no such commit, tag or branch; {', '.join(named)}"
            )
            raise client.failed(reason, client.wrong_name) from without_addresses(error)
        commit = str(branches.get(revision) or resolved)
    if not is_commit(commit):
        raise HubError(
            f"The Hub ({client.host}) answered {commit!r:.60} where the commit of {address} was"
            " asked for."
        )
    # the beginning of a commit does not move either
    is_fixed = revision in tags or commit.startswith(revision)
    return commit, revision in branches or not is_fixed


def _printable(names: Iterable[str]) -> str:
    return f"{some(filter(str.isprintable, names), _MOST_NAMED):.600}"


def _listing(client: Client, address: Address, paths: Sequence[str]) -> dict[str, ListedFile]:
    """Return what the Hub says about some files, by path."""
    listing: dict[str, ListedFile] = {}
    with client.errors():
        for start in range(0, len(paths), _LISTED_AT_ONCE):
            batch = list(paths[start : start + _LISTED_AT_ONCE])
            items = client.api().get_paths_info(
                address.repo_id, batch, revision=address.revision, repo_type="dataset"
            )
            listing |= {item.path: item for item in items if isinstance(item, ListedFile)}
    return listing


def _commit_of(client: Client, address: Address, revision: str, *, here: bool = False) -> str:
    """Return the commit of a revision, and note it in the cache; with `here`, the one noted."""
    resolved = client.api().resolve_revision(
        address.repo_id,
        repo_type="dataset",
        revision=revision,
        cache_dir=constants.HF_HUB_CACHE,
        local_files_only=here,
    )
    return str(resolved.resolved)


def _is_as_cached(path: Path) -> bool:
    """Return whether a file has the hash that names it in the cache: SHA-256 (64 digits) or git's.

    On a disk without links the cache keeps no hash.
    """
    try:
        name = path.readlink().name
    except OSError:
        return path.is_file()
    try:
        file = RepoFile(path.stat().st_size, name if len(name) == 64 else None, name)
        return file.holds(path)
    except OSError:
        return False


def _client(address: Address) -> Client:
    return Client(
        address.repo_id,
        f"{address} could not be fetched from",
        (
            f"{address} could not be fetched",
            "Name a folder that can be written to and has space in HF_HOME",
        ),
        "Check the address",
        ", and what is needed is not in the cache",
    )


_FIRST_WITHOUT_SCRIPTS = 4  # earlier versions may run code of a repository
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
    # The library follows whatever a repository names, on this machine and on others: no such name
    # is to come to it.
    for description in described():
        for place in _named_places(description):
            if place.startswith(("/", "~", "\\")) or ":" in place or ".." in place:
                raise UsageError(
                    f"{description.name} of {whole} names files that are not in it, such as"
                    f" {place!r:.120}, which the library `datasets` would follow. Name a file, or"
                    " how the names of several begin."
                )
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
    if not all(file.startswith(here) for file in files[split]) or not all(map(is_safe_path, paths)):
        raise UsageError(
            f"The split {split!r} of {whole} has files that are not in it. Name a file of it."
        )
    return paths


def _named_places(description: Path) -> Iterator[str]:
    """Every text under `data_files` and `data_dir`, read as the library does: byte for byte, a line
    feed apart from a return.
    """
    try:
        text = description.read_bytes().decode()
        if description.suffix == ".md":
            text = block[2] if (block := REGEX_YAML_BLOCK.search(text)) else ""
        refuse_bombs(text, "Its YAML", _MOST_DEPTH, yaml.SafeLoader)
        left = [(yaml.safe_load(text), False)]
    except Exception as error:
        reason = f"It is not read: {type(error).__name__}."
        if isinstance(error, CardError):
            reason = str(error)
        raise UsageError(
            f"{description.name} cannot be used. {reason} Or name a file of the repository, or how"
            " the names of several begin."
        ) from error
    while left:
        value, is_place = left.pop()
        if isinstance(value, str) and is_place:
            yield value
        elif isinstance(value, dict):
            left += [
                (each, is_place or key in ("data_files", "data_dir")) for key, each in value.items()
            ]
        elif isinstance(value, list):
            left += [(each, is_place) for each in value]


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
    return UsageError(
        f"{place} should lead to one table; its {what} are {_printable(listed)}. Name one of them,"
        f" {place}/{listed[0] if listed else 'NAME'}."
    )


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
