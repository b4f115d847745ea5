"""Bytes, JSON and lines from untrusted files, within bounds.

A source may be compressed by gzip (recognised by its first bytes, not its name). It is never
unpacked to disk, and expansion is bounded as it happens, so that a decompression bomb ends in an
error. JSON Lines are read one by one. JSON is read by orjson; what orjson refuses and Python's
reader accepts (NaN, lone surrogates, numbers beyond 64 bits) is read by the latter, and noted.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import string
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import orjson
import pyarrow as pa

from feval.errors import SourceError
from feval.values import frozen

MAX_EXPANDED_BYTES = 4 << 30
"""Most bytes that a source, or one member of an archive, may expand to."""
MAX_LINE_BYTES = 128 << 20
"""Most bytes of one line of JSON Lines, which takes some ten times its size in memory."""
MAX_RATIO = 200
"""Most bytes that one compressed byte may expand to, beyond the first `RATIO_FREE_BYTES`. 40 equal
CoTs stay below 60.
"""
RATIO_FREE_BYTES = 16 << 20

BRACKETS_FREE = 1 << 20
"""Brackets that JSON may open at any size; beyond these, at most one in four bytes."""

GZIP, ZIP, PARQUET = b"\x1f\x8b", b"PK\x03\x04", b"PAR1"
"""What files of a kind begin with."""

_MOST_DEPTH = 254  # of lists and objects, that orjson writes
_CHUNK = 1 << 20
_BOM = b"\xef\xbb\xbf"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# protocol 2 and later say so; text and binary ones before begin with a list, a dict or a class
_PICKLE = re.compile(rb"\x80|\([dl]p\d+\n|[\]}]q[\0\1]|c[\w.]+\n\w+\n(p\d+\n|q[\0\1])")
# orjson reads a whole number beyond 64 bits as a float and loses digits; 64 bits hold every number
# of 18 digits. A search for 19 zeros, after all digits were made zeros and all else blanks, is
# faster than a pattern.
_LONG_NUMBER = b"0" * 19
_DIGITS_AS_ZEROS = bytes(
    ord("0") if chr(byte) in string.digits else ord(" ") for byte in range(256)
)


def regular_file(path: Path, what: str = "the file to import") -> Path:
    """Return the path of a source; raise unless it is a file, or a link to one."""
    if path.is_file():
        return path
    kind = (
        "a folder" if path.is_dir() else "neither file nor folder" if path.exists() else "nothing"
    )
    raise SourceError(f"{path} should be {what}; there is {kind}. Check the path.")


def file_state(path: Path) -> tuple[int, int] | None:
    """Return size and time of change of a file, which tell whether it was written to; `None` where
    there is none.
    """
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def fingerprint(path: Path, what: str = "the file to import") -> dict[str, str | int]:
    """Return name, size and SHA-256 of a file for the manifest, without its folder, which is
    private.
    """
    with disk_errors(path), regular_file(path, what).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {
            "file": _LONE_SURROGATE.sub("\ufffd", path.name),
            "sha256": digest,
            "bytes": file.tell(),
        }


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a source, expanded where it is compressed by gzip."""
    with opened(path) as stream:
        size = path.stat().st_size
        check_bounds(size, size, str(path))
        data = stream.read()
    if not data or data.isspace():
        raise _nothing(path)
    return data


def read_lines(path: Path) -> Generator[bytes, None, None]:
    """Yield the lines of a source, expanded where it is compressed by gzip, one at a time; close it
    to close the file.
    """
    blank, number = True, 0
    with opened(path) as stream:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise SourceError(
                    f"Line {number} of {path} has more than {MAX_LINE_BYTES:,} bytes, the most that"
                    " is read; write a line for each CoT."
                )
            blank = blank and line.isspace()
            yield line
    if blank:
        raise _nothing(path)


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a source, expanded within the bounds where it is compressed by gzip."""
    with disk_errors(path), regular_file(path).open("rb", buffering=_CHUNK) as file:
        stream: Any = file
        if starts_with(path, GZIP):
            expanded = _Bounded(gzip.GzipFile(fileobj=file), path.stat().st_size, str(path))
            stream = io.BufferedReader(expanded, _CHUNK)
        with stream:
            if _PICKLE.match(stream.peek(64)):
                raise SourceError(
                    f"{path} is a pickle, which may run any code when it is read. If you trust it,"
                    f" make a table of it: python -c \"import pandas; pandas.read_pickle('{path}')."
                    f"to_parquet('{path.name}.parquet')\" writes {path.name}.parquet."
                )
            yield stream


def starts_with(path: Path, magic: bytes) -> bool:
    """Return whether a file begins with some bytes, as those of its kind do."""
    with disk_errors(path), regular_file(path).open("rb") as file:
        return file.read(len(magic)) == magic


def _nothing(path: Path) -> SourceError:
    return SourceError(f"{path} is empty; there is nothing to read.")


class _Bounded(io.RawIOBase):
    """A stream that raises where it is damaged, or expands beyond the bounds."""

    def __init__(self, stream: Any, compressed_bytes: int, name: str) -> None:
        self._stream, self._compressed, self._name = stream, compressed_bytes, name
        self._total = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise SourceError(
                f"{self._name} is damaged: it could not be expanded beyond byte {self._total}"
                f" ({error}). Get the file again."
            ) from error
        self._total += len(data)
        check_bounds(self._total, self._compressed, self._name)
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read(_CHUNK), b""))


def check_bounds(expanded: int, compressed: int, name: str) -> None:
    """Raise a `SourceError` where a compressed source expands beyond what any does."""
    if expanded > MAX_EXPANDED_BYTES:
        raise SourceError(
            f"{name} expands to more than {MAX_EXPANDED_BYTES:,} bytes, the most that is read;"
            " split it into smaller files."
        )
    if expanded > max(RATIO_FREE_BYTES, MAX_RATIO * compressed):
        raise SourceError(
            f"{name} expands to more than {MAX_RATIO} times its {compressed:,} bytes, as no"
            " recording does; if you trust it, store it uncompressed."
        )


def _check_brackets(data: bytes, name: str) -> None:
    """Refuse data that is mostly brackets: each becomes an object of some sixty bytes."""
    if len(data) <= BRACKETS_FREE:
        return
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > max(BRACKETS_FREE, len(data) // 4):
        raise SourceError(
            f"{name} has {brackets:,} brackets in {len(data):,} bytes, as no recording has; get the"
            " file again."
        )


def _shallow(value: Any, data: bytes, name: str) -> Any:
    """Return a value that was read from JSON; raise where it is deeper than it could be written
    again.
    """
    if data.count(b"[") + data.count(b"{") > _MOST_DEPTH:
        try:
            orjson.dumps(value)
        except TypeError as error:
            if "ecursion" in str(error):  # else a whole number beyond 64 bits
                raise _too_deep(name) from error
    return value


def _too_deep(name: str) -> SourceError:
    return SourceError(
        f"{name} is nested too deeply to be a recording. Leave out what is nested so."
    )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading into a `SourceError`."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path} could not be read: {error.strerror or error}.") from error


_SURROGATES = "{} half surrogate pairs, which are not characters, were each replaced by U+FFFD."
_NOT_FINITE = "{} values were NaN or infinite, which is not JSON; they were read as null."
_MARK = "The source starts with a byte order mark; it was left out."
_ODDITIES = (_SURROGATES, _NOT_FINITE, _MARK)


class Reader:
    """Reads the texts of one source and counts oddities."""

    def __init__(self) -> None:
        self._oddities = Counter[str]()

    def notes(self) -> list[str]:
        """Return a sentence for each oddity so far."""
        return [text.format(count) for text in _ODDITIES if (count := self._oddities[text])]

    def json(self, data: bytes, name: str, *, exact: bool = False) -> Any:
        """Read one JSON document; `exact` where whole numbers beyond 64 bits matter.

        Raises:
            SourceError: not UTF-8, not JSON, or nested too deeply.
        """
        data = self.without_mark(data)
        _check_brackets(data, name)
        if not (exact and _LONG_NUMBER in data.translate(_DIGITS_AS_ZEROS)):
            try:
                return _shallow(orjson.loads(data), data, name)
            except orjson.JSONDecodeError:
                pass  # what Python's reader says of it decides
        return _shallow(self._lenient(self.text(data, name), name), data, name)

    def entries(self, data: bytes, name: str) -> list[Any]:
        """Read a JSON array with an entry per question, at least one."""
        entries = self.json(data, name, exact=True)
        if not isinstance(entries, list) or not entries:
            raise SourceError(
                f"{name} should be a JSON array with an entry per question. Is the format the right"
                " one?"
            )
        return entries

    def _lenient(self, text: str, name: str) -> Any:
        try:
            return self._scrub(json.loads(text))
        except json.JSONDecodeError as error:
            place = (
                f"line {error.lineno} column {error.colno}"
                if "\n" in text
                else f"column {error.colno}"
            )
            raise SourceError(
                f"{name} is not valid JSON: {error.msg}, {place}. Correct it or get the file again."
            ) from error
        except ValueError as error:
            raise SourceError(
                f"{name} has a number that cannot be read: it has more than"
                f" {sys.get_int_max_str_digits():,} digits."
            ) from error
        except RecursionError as error:
            raise _too_deep(name) from error

    def _scrub(self, value: Any) -> Any:
        if isinstance(value, str):
            if value.isascii():
                return value
            clean, count = _LONE_SURROGATE.subn("\ufffd", value)
            self._oddities[_SURROGATES] += count
            return clean
        if isinstance(value, list):
            return [self._scrub(item) for item in value]
        if isinstance(value, dict):
            return {self._scrub(key): self._scrub(item) for key, item in value.items()}
        # what reads a number refuses these, also those of a literal such as 1e999
        self._oddities[_NOT_FINITE] += isinstance(value, float) and value - value != 0
        return value

    def lines(self, path: Path) -> Iterator[tuple[str, Any]]:
        """Yield place and value of each line of JSON Lines that is not blank."""
        # lines end with a line feed alone: a text may hold other line separators
        with closing(read_lines(path)) as lines:
            for number, line in enumerate(lines, 1):
                content = (line if number > 1 else self.without_mark(line)).removesuffix(b"\n")
                if content and not content.isspace():
                    value = self.json(content, f"Line {number} of {path.name}", exact=True)
                    yield f"line {number} of {path.name}", value

    def text(self, data: bytes, name: str) -> str:
        """Decode UTF-8; the error names the place of other bytes, and of a zero as in UTF-16."""
        place = data.find(b"\0")
        try:
            decoded = data.decode("utf-8")
            if place < 0:
                return decoded
        except UnicodeDecodeError as error:
            place = error.start
        line = data.count(b"\n", 0, place) + 1
        raise SourceError(
            f"{name} is not UTF-8: byte {place} (line {line}) is 0x{data[place]:02x}. Convert the"
            " file to UTF-8."
        )

    def without_mark(self, data: bytes) -> bytes:
        """Return the start of a source without a byte order mark."""
        if data.startswith(_BOM):
            self._oddities[_MARK] += 1
            return data[len(_BOM) :]
        return data


_ZSTANDARD = 93
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD)
_ENCRYPTED = 0x1
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


@frozen
class Archive:
    """An open zip whose member names were found harmless."""

    zip: zipfile.ZipFile
    path: Path

    def where(self, name: str) -> str:
        """Return a member's name for messages."""
        return f"{name} in {self.path.name}"

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
                return _Bounded(stream, info.compress_size, self.where(name)).readall()

    def _from_zstandard(self, info: zipfile.ZipInfo) -> bytes:
        stream = pa.CompressedInputStream(pa.BufferReader(self._compressed(info)), "zstd")
        try:
            data = _Bounded(stream, info.compress_size, self.where(info.filename)).readall()
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
            if not header.startswith(ZIP):
                raise zipfile.BadZipFile(
                    f"there is no header of {info.filename!r:.80} where it should be"
                )
            name_bytes, extra_bytes = struct.unpack("<HH", header[26:30])
            file.seek(name_bytes + extra_bytes, 1)
            return file.read(info.compress_size)


@contextmanager
def opened_archive(path: Path) -> Iterator[Archive]:
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
