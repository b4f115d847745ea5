"""Untrusted zip archives: opened only if their names are harmless, read member by member within the
bounds of `reading`.

Members may be stored, deflated, or compressed by Zstandard, which `zipfile` reads only from Python
3.14.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from feval.errors import SourceError
from feval.importers.reading import MAX_EXPANDED_BYTES, Reader, disk_errors, expand, regular_file

_ZSTANDARD = 93
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD)
_ENCRYPTED = 0x1
_MAGIC = b"PK\x03\x04"
_LOCAL_HEADER_BYTES = 30
# `zipfile` has one exception of its own and lets these others through.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)


@dataclass(frozen=True, slots=True)
class Archive:
    """An open zip whose member names were found harmless."""

    zip: zipfile.ZipFile
    path: Path

    def where(self, name: str) -> str:
        """Return a member's name for messages."""
        return f"{name} in {self.path.name}"

    def names(self) -> list[str]:
        """Return the names of the members, in the order of the archive."""
        return self.zip.namelist()

    def json(self, name: str, reader: Reader, *, exact: bool = False) -> Any:
        """Read a member as JSON; `exact` where whole numbers beyond 64 bits matter."""
        return reader.json(self._bytes(name), self.where(name), exact=exact)

    def check_size(self, names: Iterable[str]) -> None:
        """Raise where members together expand beyond what one file may."""
        total = sum(self.zip.getinfo(name).file_size for name in names)
        if total > MAX_EXPANDED_BYTES:
            raise SourceError(
                f"The members of {self.path.name} expand to {total:,} bytes; at most"
                f" {MAX_EXPANDED_BYTES:,} are read. Split it into smaller files."
            )

    def _bytes(self, name: str) -> bytes:
        try:
            info = self.zip.getinfo(name)
        except KeyError as error:
            raise SourceError(
                f"{self.path.name} has no member {name!r}, which such an archive should have."
            ) from error
        if info.flag_bits & _ENCRYPTED:
            raise SourceError(
                f"{self.where(name)} is encrypted; make an archive without a password."
            )
        if info.compress_type not in _METHODS:
            raise SourceError(
                f"{self.where(name)} is compressed by neither deflate nor Zstandard; make an"
                " ordinary zip."
            )
        with _zip_errors(self.path):
            if info.compress_type == _ZSTANDARD:
                return self._from_zstandard(info)
            with self.zip.open(info) as stream:
                return expand(stream, info.compress_size, self.where(name))

    def _from_zstandard(self, info: zipfile.ZipInfo) -> bytes:
        stream = pa.CompressedInputStream(pa.BufferReader(self._compressed(info)), "zstd")
        try:
            data = expand(stream, info.compress_size, self.where(info.filename))
        except OSError as error:  # what Arrow says of a damaged stream
            raise zipfile.BadZipFile(
                f"{info.filename!r:.80} cannot be expanded ({error})"
            ) from error
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 or size for file {info.filename!r:.80}")
        return data

    def _compressed(self, info: zipfile.ZipInfo) -> bytes:
        """Return a member's compressed bytes, which follow its own header in the file."""
        with self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            if not header.startswith(_MAGIC):
                raise zipfile.BadZipFile(
                    f"there is no header of {info.filename!r:.80} where it should be"
                )
            name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
            file.seek(name_bytes + extra_bytes, 1)
            return file.read(info.compress_size)


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive, by its first bytes."""
    with disk_errors(path), regular_file(path).open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open a zip archive; raise where it is damaged, or has a member twice or outside of it."""
    with disk_errors(path), _zip_errors(path), zipfile.ZipFile(regular_file(path)) as archive:
        names = archive.namelist()
        for name in names:
            if name.startswith("/") or "\\" in name or ":" in name[:2] or ".." in name.split("/"):
                raise SourceError(
                    f"{path.name} has a member that points outside of it, {name!r:.80}; it is not"
                    " read."
                )
        if len(set(names)) != len(names):
            raise SourceError(f"{path.name} has two members of one name; it is not read.")
        yield Archive(archive, path)


@contextmanager
def _zip_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a damaged archive into a `SourceError`."""
    try:
        yield
    except _DAMAGED as error:
        raise SourceError(
            f"{path} is not a zip archive, or is damaged: {error}. Get the file again."
        ) from error
