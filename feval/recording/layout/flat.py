"""Flat files of arrays: a header in JSON, then the arrays, mapped into memory and checked against
their SHA-256.

    b"FEVALVT1" | uint64 length of the header | header (JSON) | zeros to a multiple of 64
    | arrays, each at a multiple of 64

All numbers are little-endian. The header names the arrays in order, each with dtype, shape and
offset in the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feval.cards.reading import open_regular
from feval.errors import DamagedRecordingError
from feval.recording.layout.format import Record

Numbers = npt.NDArray[Any]
Integers = npt.NDArray[np.integer[Any]]
Rows = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
UInt32 = npt.NDArray[np.uint32]
UInt64 = npt.NDArray[np.uint64]

_MAGIC = b"FEVALVT1"
_ALIGN = 64
_BLOCK_CELLS = 1 << 16
_DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in (
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float32",
    )
}


class Strings(Sequence[str]):
    """An immutable list of strings in one buffer; each is decoded when it is looked up."""

    def __init__(self, data: UInt8, offsets: Integers) -> None:
        self._data: Any = data
        self._offsets: Any = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        place = range(len(self))[index]
        if isinstance(place, range):  # of a slice
            return [self[each] for each in place]
        try:
            start, stop = int(self._offsets[place]), int(self._offsets[place + 1])
            return bytes(self._data[start:stop]).decode()
        except UnicodeDecodeError as error:
            raise DamagedRecordingError(
                f"A name or answer in a votes file is not UTF-8 ({error}); verify it."
            ) from error


def mapped(path: Path, record: Record) -> mmap.mmap:
    """Map a file into memory; a `DamagedRecordingError` if it is missing or differs from its record
    in the manifest.
    """
    sha256 = record["sha256"]
    try:
        data = mapped_unread(path, record["bytes"])
    except OSError as error:
        raise DamagedRecordingError(
            f"{path} cannot be opened ({error.strerror}); `feval verify` lists what is left."
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise DamagedRecordingError(
            f"{path} should have SHA-256 {sha256}, found {digest}; fetch the recording again."
        )
    return data


def mapped_unread(path: Path, size: int) -> mmap.mmap:
    """Map a file of so many bytes into memory; a `DamagedRecordingError` if it has others, an
    `OSError` if it cannot be opened.
    """
    with open_regular(path) as file:
        actual_size = os.fstat(file.fileno()).st_size
        if actual_size != size or not size:
            raise DamagedRecordingError(
                f"{path} should have {size} bytes, found {actual_size}; fetch the recording again."
            )
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)


@contextmanager
def well_formed(path: Path) -> Iterator[None]:
    """Turn any error of a block that reads a file's arrays into a `DamagedRecordingError`."""
    try:
        yield
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
        IndexError,
    ) as error:
        raise DamagedRecordingError(
            f"{path} is not a votes file of this format: {error}."
        ) from error


Kind = tuple[tuple[str, ...], int]
"""The dtypes that an array may have, and its number of dimensions."""


def unpack(data: mmap.mmap, kinds: Mapping[str, Kind]) -> tuple[Record, dict[str, Numbers]]:
    """Return header and arrays, which lie behind the header one after the other; malformed bytes
    are any error of `well_formed`.

    `kinds` says what an array must be, by its name up to a dot.
    """
    if data[:8] != _MAGIC:
        raise ValueError(f"it should begin with {_MAGIC!r}, found {data[:8]!r}")
    size, end = len(data), 16 + int.from_bytes(data[8:16], "little")
    if end > size:
        raise ValueError(f"its header should end at byte {end}, and it has {size}")
    header = json.loads(data[16:end])
    arrays = {}
    for name, (dtype, shape, offset) in header["arrays"].items():
        dtypes, rank = kinds.get(name.partition(".")[0], ((), 0))
        if (
            dtype not in dtypes
            or [type(n) for n in (*shape, offset)] != [int] * (rank + 1)
            or min(shape) < 0
        ):
            raise ValueError(
                f"its array {name!r:.40} has the wrong form {[dtype, shape, offset]!r:.80}"
            )
        start, end = end, offset + _DTYPES[dtype].itemsize * math.prod(shape)
        if offset < start or offset % _ALIGN or end > size or max(shape) > size:
            raise ValueError(
                f"array {name} should lie in bytes {start} to {size}, found {shape} from {offset}"
            )
        arrays[name] = np.ndarray(shape, _DTYPES[dtype], data, offset)
    return header, arrays


class FlatArray(NamedTuple):
    """An array to be packed, as numbers of a type that holds them."""

    dtype: str
    array: Numbers


def starts_of(lengths: Numbers) -> Int64:
    """Return where each of consecutive pieces starts, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def offsets_of(lengths: Numbers) -> Integers:
    """Return `starts_of` pieces as they are stored."""
    starts = starts_of(lengths)
    return starts.astype("uint32" if starts[-1] < 2**32 else "uint64")


def pack(header: Record, arrays: Mapping[str, FlatArray]) -> Iterator[bytes]:
    """Yield the bytes of a file. The header is padded with blanks, so that offsets do not depend on
    its length.
    """
    room = _round_up(
        16 + len(json.dumps(header, ensure_ascii=False).encode()) + 96 * (len(arrays) + 1)
    )
    sizes = {name: a.array.size * _DTYPES[a.dtype].itemsize for name, a in arrays.items()}
    ends = accumulate(map(_round_up, sizes.values()), initial=room)
    places = {
        name: [a.dtype, list(a.array.shape), start]
        for (name, a), start in zip(arrays.items(), ends, strict=False)
    }
    text = json.dumps(
        header | {"arrays": places}, ensure_ascii=False, separators=(",", ":")
    ).encode()
    yield _MAGIC + (room - 16).to_bytes(8, "little") + text.ljust(room - 16)
    for name, array in arrays.items():
        rows = max(1, _BLOCK_CELLS // max(1, math.prod(array.array.shape[1:])))
        for start in range(0, len(array.array), rows):
            block = array.array[start : start + rows]
            yield np.ascontiguousarray(block, _DTYPES[array.dtype]).tobytes()
        yield bytes(_round_up(sizes[name]) - sizes[name])


def _round_up(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
