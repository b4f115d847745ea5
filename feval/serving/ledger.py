"""The ledger file: one line for what is served, then one for every request (`feval.appendlog`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from feval.appendlog import AppendLog, Line
from feval.errors import SourceError, StorageError
from feval.values import Record, RecordLike

_LOG = logging.getLogger("feval.serving")
_FLUSH_S = 0.2
_MOST_WAITING = 16 << 20  # bytes that a disk may be behind


class LedgerFile(AppendLog[RecordLike, None]):
    """A ledger file; its header says what is served, `entries` are the requests that it held
    before.

    Open for appending, entries reach the operating system at most 0.2 s later. What could not be
    written is kept, and tried again then and at the end.
    """

    WHAT = HEADER = "ledger"
    ELSEWHERE, ANEW = "name another file", "start another ledger"
    REPAIR = ANEW
    UNWRITTEN = "Make room; until then, no CoTs are handed out."
    KEEPS_UNWRITTEN = True

    def __init__(self, path: str | Path, *, resume: bool = False) -> None:
        super().__init__(Path(path))
        self.entries: list[Record] = []
        self._resume = resume
        self._closing = Event()
        self._thread = Thread(target=self._write_on, name="ledger", daemon=True)

    def open(self, header: RecordLike) -> None:
        """Open the file for appending, or begin one.

        Raises:
            StorageError: the file exists and `resume` is false, another process appends to it, or
                it cannot be written.
            ConflictError: an existing file belongs to other recordings, seeds, orders, billings or
                prices.
            SourceError: an existing file is not a ledger.
        """
        self._open(header)
        self._thread.start()

    @property
    def is_late(self) -> bool:
        """Whether requests have to be on the disk before they are answered: a write has failed, or
        the disk is far behind.
        """
        return self._failed is not None or len(self._pending) > _MOST_WAITING

    def add(self, entries: Sequence[RecordLike], *, at_once: bool) -> None:
        """Append requests, `at_once` or soon; `StorageError` if they cannot be written at once, and
        then none of them is.
        """
        lines = b"".join(map(self._line, entries))
        if self._closing.is_set():
            raise StorageError(f"The ledger {self.path} is closed, so no more CoTs are handed out.")
        if at_once:
            self._flush(lines)
        else:
            with self._collecting:
                self._pending += lines

    def close(self) -> None:
        """Write what is left and close the file; `StorageError` if not everything could be
        written.
        """
        if self._closing.is_set() or self._file < 0:
            return
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()
        try:
            self._flush()
        except StorageError as error:
            lost = self._pending.count(b"\n")
            raise StorageError(
                f"{error} Requests that were answered and are not in it: {lost:,}."
            ) from error
        finally:
            super().close()

    def _admit(self, size: int) -> None:
        if size and not self._resume:
            raise StorageError(
                f"The ledger {self.path} exists already. Name another file, or continue this one"
                " with --resume."
            )

    def _take(self, line: Line) -> None:
        record = self._parse(line.number, line.data)
        try:
            _LINE.validate_python(record)
        except ValidationError:
            raise self._damaged(line.number, "is not a request") from None
        self.entries.append(record)

    def _flush(self, lines: bytes = b"") -> None:
        """Write what waits, then some lines; if that fails, what waits is kept, and the lines are
        not.
        """
        with self._committing:
            with self._collecting:
                waiting, self._pending = self._pending, bytearray()
            was_late = self._failed is not None
            try:
                self._write(waiting + lines)
            except StorageError as error:
                with self._collecting:
                    self._pending = waiting + self._pending
                if not was_late:
                    _LOG.warning("%s", error)
                raise

    def _write_on(self) -> None:
        while not self._closing.wait(_FLUSH_S):
            if self._pending:
                with suppress(StorageError):
                    self._flush()


def read_ledger(path: str | Path) -> tuple[RecordLike, list[Record]]:
    """Return the header and the requests of a ledger file, without an incomplete last line;
    docs/serving.md describes them.

    Raises:
        StorageError: the file cannot be read.
        SourceError: it is not a ledger.
    """
    ledger = LedgerFile(path)
    with ledger._storage_errors("read"):  # noqa: SLF001  of its own module
        ledger._read()  # noqa: SLF001  likewise
    if not ledger.header:
        raise SourceError(f"The ledger {path} is empty.")
    return ledger.header, ledger.entries


_Natural = Annotated[int, Field(ge=0)]
Example = Annotated[list[str], Field(min_length=2, max_length=2)] | None
"""How the first prompt of a run and another one read where they begin to differ."""


class HandoutRecord(BaseModel, strict=True):
    """CoTs that were handed out, as files say it; `tokens` says how many of each, null for all."""

    llm: str
    dataset: str
    question: str
    samples: list[_Natural]
    tokens: list[_Natural | None] | None = None

    @model_validator(mode="after")
    def _has_tokens_of_each(self) -> Self:
        if self.tokens is not None and len(self.tokens) != len(self.samples):
            raise ValueError
        return self


class _Entry(HandoutRecord):
    run: str
    n: Annotated[int, Field(ge=1)]
    limited: list[int] = []
    match: str
    template: str | None
    mismatch: str | None = None
    example: Example = None
    visit: Annotated[int, Field(alias="pass")] = 1

    @model_validator(mode="after")
    def _has_n_samples(self) -> Self:
        if self.n != len(self.samples):
            raise ValueError
        return self


class _Reset(BaseModel, strict=True):
    run: str
    reset: Literal[True]


_LINE: TypeAdapter[_Reset | _Entry] = TypeAdapter(_Reset | _Entry)
