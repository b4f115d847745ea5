"""Files as the Hub lists them, and feval's own cache folder."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from feval.recording.layout.format import open_regular


@dataclass(frozen=True, slots=True)
class RepoFile:
    """Size in bytes and hash of a file as the Hub states them.

    A small file, stored in git itself, has no `sha256`; `blob_id` is git's hash of the file, or of
    its pointer.
    """

    size: int
    sha256: str | None
    blob_id: str | None

    def holds(self, content: Path | bytes) -> bool:
        """Return whether a file, or bytes, is exactly this file; an unreadable file raises
        `OSError`.
        """
        if isinstance(content, Path):
            with open_regular(content) as file:
                if file.seek(0, os.SEEK_END) != self.size:
                    return False
                file.seek(0)
                if self.sha256 is not None:
                    return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
                content = file.read()
        if len(content) != self.size:
            return False
        if self.sha256 is not None:
            return hashlib.sha256(content).hexdigest() == self.sha256
        blob = hashlib.sha1(b"blob %d\0" % self.size + content, usedforsecurity=False)
        return blob.hexdigest() == self.blob_id


def cache_folder() -> Path:
    """Return the folder for what can be fetched again: FEVAL_CACHE, or `feval` in the platform's
    cache folder.
    """
    folder = os.environ.get("FEVAL_CACHE")
    return Path(folder).expanduser() if folder else platformdirs.user_cache_path("feval")
