"""Recordings on the Hub: opened like folders, fetched only as far as they are read.

    recording = hub.open_place("hf://somebody/my-recording@<commit>")
    dataset, llms = load("gsm8k", ["a", "b"], recording)  # fetches what their votes need

Three things are checked before a number rests on a file: its bytes against the manifest of that
commit, its content against its leaf of the recording hash, and the votes of the LLMs in use against
the samples, questions and requests they are derived from. Bytes are checked every time; that a
content was checked is noted in feval's own cache, by commit and SHA-256.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path, PurePath
from urllib.parse import quote

import orjson

from feval.errors import StorageError
from feval.executors import Progress
from feval.hub.addresses import is_address, parse_address
from feval.hub.client import RepoFile, cache_folder
from feval.hub.snapshots import Snapshot, open_snapshot
from feval.recording import NewFolder, Recording, open_recording, storage_errors
from feval.recording.layout.format import MANIFEST, MOST_BYTES, README, Part
from feval.recording.verify import check_leaf, check_votes, listed_parts, paths_of, write_origin
from feval.values import frozen

_LOG = logging.getLogger(__name__)


@frozen
class PullResult:
    """What a pull fetched.

    Attributes:
        address: with the commit.
        folder: where the recording is now.
        recording_hash: as the manifest states it, recomputed from its leaves.
        files: number of files that were asked for, the manifest included.
        size: their bytes.
        fetched: path -> bytes of those that were not in the cache yet.
        left_out: number of files that were not asked for.
    """

    address: str
    folder: Path
    recording_hash: str
    files: int
    size: int
    fetched: dict[str, int]
    left_out: int


def pull(
    place: str | PurePath,
    out: str | Path | None = None,
    *,
    datasets: Collection[str] | None = None,
    llms: Collection[str] | None = None,
    texts: bool = True,
    progress: Progress | None = None,
) -> PullResult:
    """Fetch a recording from the Hub, or a part of it, and check it.

    Args:
        place: its address.
        out: a new folder for it; `None` leaves it in the cache.
        datasets: ids; `None` is all.
        llms: names; `None` is all.
        texts: whether to fetch the texts of the CoTs, and the reasoning stored apart from them.
        progress: called with (bytes so far, bytes in all) of the download.

    Raises:
        UsageError: not an address on the Hub.
        NotRecordedError: the recording lacks a dataset or an LLM.
        HubError, DamagedRecordingError, StorageError: it cannot be fetched, is damaged, or cannot
            be written.
    """
    target = None if out is None else Path(out)
    if is_address(target):
        raise StorageError(
            f"{target} is on the Hub; --out names a local folder. `feval push` publishes."
        )
    if target is not None and (target.exists() or target.is_symlink()):
        raise StorageError(f"{target} exists already. Name a new folder, or remove the old one.")
    recording, source = open_remote(place)
    dataset_ids = list(datasets or recording.dataset_ids())
    names = {dataset: _llm_names(recording, dataset, llms) for dataset in dataset_ids}
    paths = paths_of(recording.manifest, dataset_ids, llms, texts=texts)
    fetched = source.bring(recording, paths, progress)
    for dataset in dataset_ids:
        source.check_votes(recording, dataset, names[dataset])
    if target is not None:
        new = NewFolder(target)  # which appears in one rename
        try:
            with storage_errors(target):
                for path in (*paths, MANIFEST):
                    copy = new.path / path
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(recording.path / path, copy)
                write_origin(new.path, str(recording.address))
                new.publish()
        finally:
            new.remove()
    return PullResult(
        str(source.snapshot.address),
        recording.path if target is None else target,
        recording.hash,
        len(paths) + 1,
        (recording.path / MANIFEST).stat().st_size
        + sum(recording.file_record(path)["bytes"] for path in paths),
        fetched,
        len(recording.manifest.files.keys() - {README}) - len(paths),
    )


def open_remote(place: str | PurePath) -> tuple[Recording, RemoteFiles]:
    """Open a recording at an address, and return it with the source of its files."""
    snapshot = open_snapshot(parse_address(place), MANIFEST, most_bytes=MOST_BYTES)
    source = RemoteFiles(snapshot)
    return open_recording(snapshot.folder, source), source


def _llm_names(recording: Recording, dataset: str, llms: Collection[str] | None) -> list[str]:
    """Return the chosen LLMs recorded on a dataset; raise where one is recorded on none."""
    recording.require(dataset)
    names = recording.llm_names(dataset)
    if llms is None:
        return names
    recorded = {llm for _, llm in recording.manifest.pairs}
    for name in llms:
        if name not in recorded:
            recording.require(dataset, name)
    return [name for name in names if name in llms]


class RemoteFiles:
    """The Hub behind a recording in its cache: a `feval.recording.reader.FileSource`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._fetched = set[str]()
        self._parts: dict[str, Part] = {}
        # what a commit has passed is not checked again in every process
        address = snapshot.address
        pieces = (address.repo_id, str(address.revision), address.path)
        name = "@".join(quote(piece, safe="") for piece in pieces if piece)
        self._log = cache_folder() / "checked" / f"{name}.json"
        self._passed = self._read_log()

    def fetch(self, recording: Recording, path: str) -> None:
        """Fetch one file, and check it."""
        self.bring(recording, [path])

    def prepare(self, recording: Recording, dataset: str, llms: Sequence[str]) -> None:
        """Fetch what votes of some LLMs on a dataset need, and check that they are derived from
        what the hash pins.
        """
        paths = [*recording.files("questions", dataset), *recording.votes_paths(dataset)]
        paths += recording.files("equality", dataset)
        for llm in llms:
            for part in ("requests", "samples"):
                paths += recording.files(part, dataset, llm)
        self.bring(recording, paths)
        self.check_votes(recording, dataset, llms)

    def bring(
        self, recording: Recording, paths: Sequence[str], progress: Progress | None = None
    ) -> dict[str, int]:
        """Fetch some files, and check their bytes and leaves; files fetched before are skipped.

        With a file come the others of its part: its leaf is over all of them.
        """
        if self._fetched.issuperset(paths):
            return {}
        self._parts = self._parts or listed_parts(recording.manifest)
        for path in paths:
            recording.file_record(path)
        parts = dict.fromkeys(self._parts[path] for path in paths if path not in self._fetched)
        new = [path for part in parts for path in recording.files(*part)]
        records = {path: recording.file_record(path) for path in new}
        files = {
            path: RepoFile(record["bytes"], record["sha256"], None)
            for path, record in records.items()
        }
        fetched = self.snapshot.fetch(files, progress=progress)
        self._fetched.update(new)
        for part in parts:
            hashes = [records[path]["sha256"] for path in recording.files(*part)]
            check = f"leaf {' '.join(hashes)}"
            if check not in self._passed:
                check_leaf(recording, part)
                self._note([check])
        return fetched

    def check_votes(self, recording: Recording, dataset: str, llms: Iterable[str]) -> None:
        """Check that the votes of some LLMs agree with their Parquet files."""
        sha256 = recording.file_record(Part("votes", dataset).path)["sha256"]
        new = [llm for llm in llms if f"votes {sha256} {llm}" not in self._passed]
        if new:
            check_votes(recording, dataset, new)
            self._note([f"votes {sha256} {llm}" for llm in new])

    def _note(self, checks: Iterable[str]) -> None:
        self._passed |= set(checks) | self._read_log()
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            # half a log, as another process may find it, is none
            self._log.write_bytes(orjson.dumps(sorted(self._passed)))
        except OSError as error:
            _LOG.info(
                "%s cannot be written (%s); what was checked will be checked again.",
                self._log,
                error,
            )

    def _read_log(self) -> set[str]:
        try:
            checks = orjson.loads(self._log.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return set()
        found = checks if isinstance(checks, list) else []
        return {check for check in found if isinstance(check, str)}
