"""Files of a repository at one commit, in the cache that every program for the Hugging Face Hub shares.

Only the files that are asked for are fetched, each with the size and the SHA-256 that it has to have; what the Hub lists is held
against them before a byte is downloaded. A file in the cache is held against them as well: a damaged one is fetched again, once.
A commit never changes, so a file that is there needs no connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from feval.errors import DamagedRecordingError, HubError, StorageError, UnpinnedWarning
from feval.hub.addresses import Address, is_commit
from feval.hub.client import Client, is_offline, without_addresses
from feval.recording.layout.format import MANIFEST, is_safe_path, open_regular

if TYPE_CHECKING:
    from huggingface_hub import RepoFile

__all__ = ["Listed", "Snapshot", "open_snapshot"]

_DOWNLOADS = 8
_LISTED_AT_ONCE = 200
_MOST_NAMED = 8
_SPARE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """What a file has to be.

    Attributes:
        size: bytes.
        sha256: as 64 hex digits.
    """

    size: int
    sha256: str


@dataclass(frozen=True)
class Snapshot:
    """A repository at one commit, as much of it as is in the cache.

    Attributes:
        address: with the commit.
        folder: where its files lie, in the Hub's cache.
    """

    address: Address
    folder: Path
    client: Client = field(repr=False)

    def fetch(
        self, files: Mapping[str, Listed], progress: Callable[[int, int], None] = lambda _done, _total: None
    ) -> dict[str, int]:
        """Make sure that some files are in the cache, with the bytes that they have to have.

        Args:
            files: path -> what it has to be.
            progress: called with (bytes so far, bytes in all) of what is fetched.

        Returns:
            Path -> bytes of what was fetched.

        Raises:
            HubError: a file cannot be had.
            DamagedRecordingError: the Hub's file is another one.
            StorageError: the cache cannot be written.
        """
        for path in files:
            if not is_safe_path(path):
                raise DamagedRecordingError(f"{self.address} names the file {path!r:.120}, which lies outside of it.")
        lacking = {path: listed for path, listed in files.items() if not self.has(path, listed)}
        if lacking:
            self.client.attempts(lambda: self._check_listing(lacking))
            self._check_room(lacking)
            self._download_all(lacking, progress)
        return {path: listed.size for path, listed in lacking.items()}

    def has(self, path: str, listed: Listed) -> bool:
        """Whether the cache has a file with the right bytes."""
        try:
            with open_regular(self.folder / path) as file:
                return (
                    file.seek(0, 2) == listed.size
                    and file.seek(0) == 0
                    and hashlib.file_digest(file, "sha256").hexdigest() == listed.sha256
                )
        except OSError:
            return False

    def _check_listing(self, files: Mapping[str, Listed]) -> None:
        """Hold what the Hub says of some files against what they have to be, before any of it comes."""
        found = _listing(self.client, self.address, [self._full(path) for path in files])
        for path, listed in files.items():
            item = found.get(self._full(path))
            if item is None:
                raise DamagedRecordingError(
                    f"{self.address} has no file {path}, which its manifest lists. Its owner has to publish it anew."
                )
            if item.size != listed.size or (item.lfs is not None and item.lfs.sha256 != listed.sha256):
                raise DamagedRecordingError(
                    f"{path} of {self.address} has {item.size:,} bytes on the Hub, and is not the file of {listed.size:,} bytes "
                    "that its manifest lists. Its owner has to publish it anew."
                )

    def _check_room(self, files: Mapping[str, Listed]) -> None:
        place = next(folder for folder in (self.folder, *self.folder.parents) if folder.exists())
        needed, free = sum(listed.size for listed in files.values()), shutil.disk_usage(place).free
        if needed + _SPARE_BYTES > free:
            raise StorageError(
                f"{len(files)} files of {self.address} have {needed:,} bytes, and the disk of {place} has room for {free:,}. "
                "Fetch a part of it (--dataset, --llm, --no-texts), or move the cache with HF_HOME."
            )

    def _download_all(self, files: Mapping[str, Listed], progress: Callable[[int, int], None]) -> None:
        total, done = sum(listed.size for listed in files.values()), 0
        progress(done, total)
        with ThreadPoolExecutor(min(_DOWNLOADS, len(files))) as threads:
            work = [threads.submit(self._download_one, path, listed) for path, listed in files.items()]
            try:
                for one, listed in zip(work, files.values(), strict=True):
                    one.result()
                    done += listed.size
                    progress(done, total)
            finally:
                for one in work:
                    one.cancel()

    def _download_one(self, path: str, listed: Listed) -> None:
        # What is there is damaged; a second copy that is damaged as well is not the fault of this disk.
        for anew in ((self.folder / path).exists(), True):
            self._ask(path, anew=anew)
            if self.has(path, listed):
                return
        raise HubError(
            f"{path} of {self.address} came from the Hub ({self.client.host}) with other bytes than its manifest lists, twice. "
            "Try later; if it stays so, its owner has to publish it anew."
        )

    def _ask(self, path: str, *, anew: bool) -> None:
        # The client makes several attempts of its own to reach the Hub.
        self.client.attempts(lambda: _download(self.client, self.address, self._full(path), anew=anew), most=2)

    def _full(self, path: str) -> str:
        return f"{self.address.path}/{path}" if self.address.path else path


def open_snapshot(address: Address, index: str, *, most_bytes: int, token: str | None = None) -> Snapshot:
    """Find the commit of an address, and the file there that lists the others.

    Args:
        address: what was asked for; a branch warns, since tomorrow it may be another commit.
        index: path of that file.
        most_bytes: the most that it may have.
        token: `None` takes the one huggingface_hub finds.

    Returns:
        The snapshot, with the index in its folder.

    Raises:
        HubError: no such repository, revision or file, or it cannot be reached and is not in the cache.
    """
    client = _client(address, token)
    path = f"{address.path}/{index}" if address.path else index
    if address.is_pinned:
        return _at_commit(client, address, path, most_bytes)
    revision = address.revision or "main"
    if is_offline():
        pinned = address.at(_cached_commit(client, address, revision))
        if revision == "main":
            _warn(address, pinned)
        return _at_commit(client, pinned, path, most_bytes)
    commit, is_tag = client.attempts(lambda: _commit_of(client, address, revision))
    pinned = address.at(commit)
    snapshot = _at_commit(client, pinned, path, most_bytes)
    _note_commit(snapshot, revision, commit)
    if not is_tag:
        _warn(address, pinned)
    return snapshot


def _warn(address: Address, pinned: Address) -> None:
    warnings.warn(
        f"{address} is a branch, which may hold something else tomorrow. Pin the commit that it is today: {pinned}",
        UnpinnedWarning,
        stacklevel=2,
    )


def _at_commit(client: Client, address: Address, path: str, most_bytes: int) -> Snapshot:
    folder = _cache_of(address) / "snapshots" / str(address.revision)
    snapshot = Snapshot(address, folder / address.path if address.path else folder, client)
    held = folder / path
    for anew in (False, True):
        if held.exists() and not anew and _is_as_cached(held):
            return snapshot

        def bring(anew: bool = anew or held.exists()) -> None:
            item = _listing(client, address, [path]).get(path)
            if item is None:
                name = path.rpartition("/")[2]
                lacks = "so it is no recording" if name == MANIFEST else "or not at that revision"
                raise HubError(f"{address} holds no {name}, {lacks}. Check the address and its revision.")
            if item.size > most_bytes:
                raise HubError(
                    f"{path} of {address} has {item.size:,} bytes; {most_bytes:,} is the most that is fetched."
                )
            _download(client, address, path, anew=anew)

        client.attempts(bring, most=2)
        if _is_as_cached(held):
            return snapshot
    raise HubError(
        f"{path} of {address} came from the Hub ({client.host}) with other bytes than the Hub says it has, twice. Try later."
    )


def _commit_of(client: Client, address: Address, revision: str) -> tuple[str, bool]:
    """The commit of a revision, and whether it is a tag, which is not meant to move."""
    from huggingface_hub.errors import RevisionNotFoundError

    api = client.api()
    with client.errors():
        refs = api.list_repo_refs(address.repo_id, repo_type="dataset")
        tags = {ref.name: ref.target_commit for ref in refs.tags}
        branches = {ref.name: ref.target_commit for ref in refs.branches}
        is_tag = revision in tags and revision not in branches
        commit = branches.get(revision) or tags.get(revision)
        if commit is None:
            try:
                commit = str(api.dataset_info(address.repo_id, revision=revision).sha)
            except RevisionNotFoundError as error:
                reason = f"the Hub has the repository but no such commit, tag or branch; {_named(tags, branches)}"
                raise client.failed(reason, client.wrong_name) from without_addresses(error)
            is_tag = commit.startswith(revision)  # the beginning of a commit is as firm as the whole
    if not is_commit(str(commit)):
        raise HubError(
            f"The Hub ({client.host}) answers with {commit!r:.60} where the commit of {address} was asked for."
        )
    return str(commit), is_tag


def _named(tags: Iterable[str], branches: Iterable[str]) -> str:
    """The names that a repository has, as far as they can be shown."""
    told = []
    for what, names in (("tags", tags), ("branches", branches)):
        shown = [name for name in names if name.isprintable()]
        more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
        told.append(f"its {what} are {', '.join(shown[:_MOST_NAMED])}{more}" if shown else f"it has no {what}")
    return ", ".join(told)


def _listing(client: Client, address: Address, paths: Sequence[str]) -> dict[str, RepoFile]:
    from huggingface_hub import RepoFile

    api = client.api()
    found: dict[str, RepoFile] = {}
    with client.errors():
        for start in range(0, len(paths), _LISTED_AT_ONCE):
            asked = list(paths[start : start + _LISTED_AT_ONCE])
            items = api.get_paths_info(address.repo_id, asked, revision=address.revision, repo_type="dataset")
            found |= {item.path: item for item in items if isinstance(item, RepoFile)}
    return found


def _download(client: Client, address: Address, path: str, *, anew: bool) -> None:
    from huggingface_hub import constants

    with client.errors():
        client.api().hf_hub_download(
            address.repo_id,
            path,
            repo_type="dataset",
            revision=address.revision,
            cache_dir=constants.HF_HUB_CACHE,
            force_download=anew,
        )


# --- the cache ----------------------------------------------------------------------------------------------------------------


def _cache_of(address: Address) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE).expanduser() / f"datasets--{address.repo_id.replace('/', '--')}"


def _cached_commit(client: Client, address: Address, revision: str) -> str:
    """The commit that a name had when it was last asked for."""
    try:
        commit = (_cache_of(address) / "refs" / revision).read_text("utf-8").strip()
    except (OSError, ValueError):
        commit = ""
    if not is_commit(commit):
        raise client.failed("the network is off (HF_HUB_OFFLINE)", "Unset HF_HUB_OFFLINE once")
    return commit


def _note_commit(snapshot: Snapshot, revision: str, commit: str) -> None:
    path = _cache_of(snapshot.address) / "refs" / revision
    with contextlib.suppress(OSError):  # a cache that cannot be written can be read
        if not path.exists() or path.read_text("utf-8") != commit:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit, "utf-8")


def _is_as_cached(path: Path) -> bool:
    """Whether a file has the hash that the cache files it under: git's for a small one, SHA-256 for a large one.

    Where the disk has no links the cache does not say it.
    """
    try:
        name = path.readlink().name
    except OSError:
        return path.is_file()
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            if len(name) == 64:
                return hashlib.file_digest(file, "sha256").hexdigest() == name
            digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
            digest.update(file.read())
            return digest.hexdigest() == name
    except OSError:
        return False


def _client(address: Address, token: str | None) -> Client:
    def failed(reason: str, advice: str) -> HubError:
        return HubError(
            f"{address} could not be fetched from the Hub ({client.host}): {reason}, and what is needed is not "
            f"in the cache. {advice}."
        )

    def disk_failed(said: str) -> StorageError:
        return StorageError(
            f"{address} could not be fetched: {said}. Name a folder that can be written to and has space in HF_HOME."
        )

    client = Client(address.repo_id, failed, disk_failed, "Check the address", token=token)
    return client
