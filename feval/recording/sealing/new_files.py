"""The files of a recording that is being written: their paths, their records, and links to files of
its parents.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from feval.errors import ConflictError
from feval.recording.layout.hashed import link_file
from feval.recording.reader import Recording


class NewFiles(dict[str, dict[str, Any]]):
    """Path -> record of the files in the new folder, whose methods are given its `root`."""

    def __init__(self) -> None:
        super().__init__()
        self._paths: dict[str, str] = {}

    def claim(self, path: str) -> str:
        """Register a path; refuse two that differ only in case, which some disks cannot tell
        apart.
        """
        if self._paths.setdefault(path.casefold(), path) != path or path in self:
            raise ConflictError(
                f"{path} and {self._paths[path.casefold()]} cannot be in one recording: some disks"
                " cannot tell such names apart. Rename the dataset or LLM, or make two recordings."
            )
        return path

    def link(self, root: Path, parent: Recording, path: str, target: str | None = None) -> None:
        """Link a file of a parent under a new path, or under its own."""
        self._link(root, parent, path, self.claim(target or path))

    def link_if_same(self, root: Path, parent: Recording | None, *paths: str) -> None:
        """Replace written files by links to those of a parent, if there is one, where their bytes
        are equal.
        """
        if parent is None:
            return
        for path in paths:
            record, own = parent.manifest.files.get(path), self.get(path)
            if record is not None and own is not None and record["sha256"] == own["sha256"]:
                (root / path).unlink()
                self._link(root, parent, path, path)

    def _link(self, root: Path, parent: Recording, path: str, target: str) -> None:
        record = parent.file_record(path)
        link_file(parent.path / path, root / target, record)
        self[target] = record
