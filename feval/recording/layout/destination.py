"""The folder that a new recording is written into: hidden beside the target, and renamed in one
step at the end.

An interruption at any moment leaves either no recording or a whole one. A process that is killed
leaves its hidden folder, which the next one that writes the same target removes.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feval.errors import StorageError
from feval.recording.layout.locate import recording_around

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
