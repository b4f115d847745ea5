"""Files of a new recording: hashed while they are written, or shared with another recording by hard
links.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any
from weakref import finalize

from feval.errors import DamagedRecordingError, StorageError
from feval.recording.layout.format import Record, recording_around

_BLOCK_BYTES = 1 << 20


class HashedFile:
    """A binary file that knows size and SHA-256 of what was written to it. Arrow writes to it as to
    any file.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("xb")
        self._sha = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write and hash; ignored after `abandon`, when the Parquet writer still writes its
        footer.
        """
        view = memoryview(data)
        if not self.closed:
            self._file.write(view)
            self._sha.update(view)
            self.size += view.nbytes
        return view.nbytes

    def close(self) -> None:
        """Flush the bytes to the disk."""
        if not self.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self.closed = True

    def abandon(self) -> None:
        """Close without caring whether the bytes arrived."""
        self.closed = True
        with suppress(OSError):  # the disk is full and the folder is about to be removed
            self._file.close()

    def record(self, rows: int) -> Record:
        """Return the file's record for the manifest."""
        return {"sha256": self._sha.hexdigest(), "bytes": self.size, "rows": rows}


def write_file(path: Path, blocks: Iterable[bytes], rows: int) -> Record:
    """Write a file, block by block; return its record for the manifest."""
    file = HashedFile(path)
    try:
        for block in blocks:
            file.write(block)
        file.close()
    finally:
        file.abandon()
    return file.record(rows)


def link_file(source: Path, target: Path, record: Record) -> None:
    """Put a file of a recording, checked against its record, into another: as a hard link, or a
    copy where disks have none.
    """
    try:
        size = source.stat().st_size
    except OSError as error:
        raise DamagedRecordingError(
            f"{source} cannot be read ({error.strerror}); run `feval verify`."
        ) from error
    if size != record["bytes"]:
        raise DamagedRecordingError(
            f"{source} should have {record['bytes']} bytes, found {size}; run `feval verify`."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)  # a cache may hold symbolic links
    except OSError:
        with source.open("rb") as file:
            copy = write_file(target, iter(lambda: file.read(_BLOCK_BYTES), b""), record["rows"])
        if copy["sha256"] != record["sha256"]:
            raise DamagedRecordingError(
                f"{source} should have SHA-256 {record['sha256']}, found {copy['sha256']}; run"
                " `feval verify`."
            ) from None


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FULL, _READ_ONLY = "the disk is full", "the folder is read-only"
_NO_FOLDER = "a part of its path is a file, not a folder"
_WHAT_HAPPENED = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _READ_ONLY,
    errno.EPERM: _READ_ONLY,
    errno.EEXIST: _NO_FOLDER,
    errno.ENOTDIR: _NO_FOLDER,
    errno.ENOTEMPTY: "somebody else made it in the meantime",
    errno.ENAMETOOLONG: (
        "its name, with what is put behind it while it is written, is too long for the disk"
    ),
}


@contextmanager
def storage_errors(out: Path) -> Iterator[None]:
    """Turn an error of the disk while a recording is written into one sentence."""
    try:
        yield
    except OSError as error:
        what = _WHAT_HAPPENED.get(error.errno or 0, error.strerror or str(error))
        raise StorageError(
            f"The recording {out!s:.300} could not be written: {what}. Nothing was left behind."
            " Correct this, or name another folder."
        ) from error


class NewFolder:
    """The hidden folder of one new recording; `path` is where its files go.

    Raises:
        StorageError: `out` exists and is not empty, lies inside a recording, or cannot be written.
    """

    def __init__(self, out: Path, what: str = "a recording") -> None:
        self._out = out
        with storage_errors(out):
            # A rename would replace a link to a folder.
            is_folder = out.is_dir() and not out.is_symlink()
            if os.path.lexists(out) and not (is_folder and not any(out.iterdir())):
                raise StorageError(
                    f"{out} exists already; {what} is never overwritten. Name another folder."
                )
            parent = out.absolute().parent
            # whose own check would find foreign files
            if (holder := recording_around(parent)) is not None:
                raise StorageError(
                    f"{out} would lie inside the recording {holder}, which never changes. Name"
                    " another folder."
                )
            self._new_parents = [path for path in (parent, *parent.parents) if not path.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            try:
                self.path, self._lock = scratch_beside(parent / out.name, Path.mkdir)
            except OSError:
                self._remove_parents()
                raise

    def publish(self) -> None:
        """Sync all folders and give the folder its name."""
        for folder in [self.path, *(path for path in self.path.rglob("*") if path.is_dir())]:
            sync_folder(folder)
        self.path.rename(self._out)
        sync_folder(self._out.absolute().parent)

    def remove(self) -> None:
        """Remove what is left, and the folders above that were made and nobody uses; nothing
        happens once it is published.
        """
        if self.path.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            self._remove_parents()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def _remove_parents(self) -> None:
        with suppress(OSError):
            for folder in self._new_parents:
                folder.rmdir()


def scratch_beside(
    target: Path, make: Callable[[Path], object], name: str = ".{}.partial-{}"
) -> tuple[Path, int]:
    """Make a hidden file or folder beside a target; it is in use until the descriptor is closed.

    Those that nobody uses any more are removed: a lock says so, not a process id, which another
    host or container may have, too.
    """
    for path in target.parent.glob(name.format(glob.escape(target.name), "*")):
        with suppress(OSError):
            lock = os.open(path, _FLAGS)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            finally:
                os.close(lock)
    while True:
        path = target.with_name(name.format(target.name, secrets.token_hex(4)))
        make(path)
        # another process took it for left behind before it was locked
        with suppress(FileNotFoundError):
            lock = os.open(path, _FLAGS)
            with suppress(OSError):  # on a disk without locks nobody removes it
                fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path, lock
            os.close(lock)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_IN_MEMORY_BYTES = 1 << 20


class Spill:
    """A temporary file, in a folder or where the system keeps such files, which goes with it."""

    def __init__(self, folder: Path | None = None) -> None:
        self._file = SpooledTemporaryFile(  # noqa: SIM115  closed below
            _IN_MEMORY_BYTES, dir=None if folder is None else str(folder)
        )
        finalize(self, _closed, self._file)

    def write(self, data: bytes) -> int:
        """Append some bytes; return where they start."""
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        return start

    def read(self, start: int, size: int) -> bytes:
        """Return some of the bytes."""
        self._file.seek(start)
        return self._file.read(size)


def _closed(file: IO[bytes]) -> None:
    with suppress(OSError):  # of what is still to be written to a full disk
        file.close()
