"""Recordings on the Hugging Face Hub: opened as if they were folders, fetched as far as they are looked at.

    recording = open_place("hf://somebody/my-recording@<commit>")
    dataset, llms = load("gsm8k", ["a", "b"], recording)      # fetches what voting of two LLMs on one dataset needs

Three things are checked before a number rests on a file: its bytes against the manifest of that commit, its content against its
leaf of the recording hash, and the votes of the LLMs that are used against the samples, questions and requests that they are
derived from. That a content was checked is noted in feval's own cache, by commit and SHA-256; bytes are checked every time.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from urllib.parse import quote

import orjson

from feval.errors import StorageError
from feval.hub.addresses import is_address, parse_address
from feval.hub.cache import cache_folder
from feval.hub.snapshots import Listed, Snapshot, open_snapshot
from feval.recording import open_recording, parquet
from feval.recording.layout.format import MANIFEST, README, file_path
from feval.recording.layout.locate import MOST_BYTES
from feval.recording.partial import check_leaf, check_votes, paths_of, write_origin
from feval.recording.reader import Recording

__all__ = ["Pulled", "open_remote", "pull"]

_LOG = logging.getLogger(__name__)
_Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull brought.

    Attributes:
        address: with the commit.
        folder: where the recording lies now.
        recording_hash: as its manifest states it, recomputed from its leaves.
        files: number of files of the recording that were asked for, the manifest included.
        size: bytes of them.
        fetched: path -> bytes of those that were not in the cache yet.
        left_out: number of files of the recording that were not asked for.
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
    progress: _Progress = lambda _done, _total: None,
) -> Pulled:
    """Fetch a recording from the Hub, or a part of it, and check it.

    Args:
        place: its address.
        out: a new folder to put it in; `None` leaves it in the cache.
        datasets: ids; `None` is all.
        llms: names; `None` is all.
        texts: whether the texts of the CoTs (and the reasoning apart from them) are wanted.
        progress: called with (bytes so far, bytes in all) of what is fetched.

    Raises:
        UsageError: no address of the Hub.
        NotRecordedError: the recording lacks a dataset or an LLM.
        HubError, DamagedRecordingError, StorageError: it cannot be fetched, is damaged, or cannot be written.
    """
    target = None if out is None else _new_folder(Path(out))
    recording, source = open_remote(place)
    wanted = list(datasets or recording.dataset_ids())
    pairs = [(dataset, name) for dataset in wanted for name in _held(recording, dataset, llms)]
    paths = paths_of(recording.manifest, wanted, llms, texts=texts)
    fetched = source.bring(recording, paths, progress)
    for dataset in wanted:
        source.check_votes(recording, dataset, [name for where, name in pairs if where == dataset])
    size = (recording.path / MANIFEST).stat().st_size
    folder = recording.path
    if target is not None:
        _copy(recording, paths, target)
        folder = target
    return Pulled(
        str(source.snapshot.address),
        folder,
        recording.hash,
        len(paths) + 1,
        size + sum(recording.file_record(path)["bytes"] for path in paths),
        fetched,
        len(recording.manifest.files.keys() - {README}) - len(paths),
    )


def _held(recording: Recording, dataset: str, llms: Collection[str] | None) -> list[str]:
    recording.require(dataset)
    held = recording.llm_names(dataset)
    if llms is None:
        return held
    if not any(name in recording.llm_names(each) for name in llms for each in recording.dataset_ids()):
        recording.require(dataset, next(iter(llms), None))
    known = {llm for _, llm in recording.manifest.pairs}
    for name in llms:
        if name not in known:
            recording.require(dataset, name)
    return [name for name in held if name in llms]


def open_remote(place: str | PurePath) -> tuple[Recording, _Source]:
    """Open a recording at an address, and return it with the source of its files."""
    snapshot = open_snapshot(parse_address(place), MANIFEST, most_bytes=MOST_BYTES)
    source = _Source(snapshot)
    recording = open_recording(snapshot.folder, source)
    return recording, source


class _Source:
    """The Hub behind a recording in its cache: see `feval.recording.reader.FileSource`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._here: set[str] = set()
        self._noted = _Noted(snapshot)

    def fetch(self, recording: Recording, path: str) -> None:
        """Bring one file, and check it."""
        self.bring(recording, [path])

    def prepare(self, recording: Recording, dataset: str, llms: Sequence[str]) -> None:
        """Bring what voting of some LLMs on a dataset needs, and check that it is derived from what the hash pins."""
        wanted = [file_path("questions", dataset), *recording.votes_paths(dataset).values()]
        wanted += [path for path in [file_path("equality", dataset)] if path in recording.manifest.files]
        wanted += [file_path(part, dataset, llm) for llm in llms for part in ("requests", "samples")]
        self.bring(recording, wanted)
        self.check_votes(recording, dataset, llms)

    def bring(
        self, recording: Recording, paths: Sequence[str], progress: _Progress = lambda _done, _total: None
    ) -> dict[str, int]:
        """Bring some files, and check their bytes and leaves; those that were brought before are passed over."""
        new = [path for path in dict.fromkeys(paths) if path not in self._here]
        records = {path: recording.file_record(path) for path in new}
        listed = {path: Listed(record["bytes"], record["sha256"]) for path, record in records.items()}
        fetched = self.snapshot.fetch(listed, progress)
        self._here.update(new)
        for path in new:
            if path.endswith(".parquet"):
                self._check(recording, path)
        return fetched

    def _check(self, recording: Recording, path: str) -> None:

        record = recording.file_record(path)
        if self._noted.has(f"leaf {record['sha256']}"):
            return
        recording.check_file(path, parquet.check_expansion)
        check_leaf(recording, path)
        self._noted.add([f"leaf {record['sha256']}"])

    def check_votes(self, recording: Recording, dataset: str, llms: Iterable[str]) -> None:
        """Check that the votes of some LLMs say what their Parquet files say."""
        sha256 = recording.file_record(file_path("votes", dataset))["sha256"]
        new = [llm for llm in llms if not self._noted.has(f"votes {sha256} {llm}")]
        if new:
            check_votes(recording, dataset, new)
            self._noted.add([f"votes {sha256} {llm}" for llm in new])


class _Noted:
    """What was found right of a commit, so that it is not computed anew in every process."""

    def __init__(self, snapshot: Snapshot) -> None:
        address = snapshot.address
        name = "@".join(
            quote(piece, safe="") for piece in (address.repo_id, str(address.revision), address.path) if piece
        )
        self._path = cache_folder() / "checked" / f"{name}.json"
        self._found = self._read()

    def has(self, what: str) -> bool:
        """Whether it was found right."""
        return what in self._found

    def add(self, what: Iterable[str]) -> None:
        """Note what was found right."""
        self._found |= set(what) | self._read()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, scratch = tempfile.mkstemp(prefix=".part-", dir=self._path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(orjson.dumps(sorted(self._found)))
            Path(scratch).replace(self._path)
        except OSError as error:
            _LOG.info("%s cannot be written (%s); what was checked will be checked again.", self._path, error)

    def _read(self) -> set[str]:
        try:
            found = orjson.loads(self._path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return set()
        return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _new_folder(out: Path) -> Path:
    if is_address(out):
        raise StorageError(f"{out} is on the Hub; --out names a folder of this machine. `feval push` publishes.")
    if out.exists() or out.is_symlink():
        raise StorageError(f"{out} is there already. Name a new folder for what is pulled, or remove the old one.")
    return out


def _copy(recording: Recording, paths: Sequence[str], target: Path) -> None:
    """Copy files of the cache to a folder of their own, which appears in one rename, its manifest written last."""
    try:
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.absolute().parent))
        try:
            scratch.chmod(0o755)
            for path in (*paths, MANIFEST):
                place = scratch / path
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(recording.path / path, place)
            write_origin(scratch, str(recording.address))
            scratch.rename(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise StorageError(
            f"{target} could not be written: {error.strerror or error}. Name another folder with --out."
        ) from error
