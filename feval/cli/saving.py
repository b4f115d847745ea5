"""Where a command's files go. A receipt is kept unless --no-receipt is given, so that what was printed can be computed again."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feval.errors import FevalError, StorageError, UsageError
from feval.report.files import check_folder, save_files

if TYPE_CHECKING:
    from feval.cli.output import Output
    from feval.report.tables.tables import Table

__all__ = ["Saved", "encoded", "last_receipt"]

_ELSEWHERE = "--receipt or FEVAL_RECEIPTS (or keep no receipt with --no-receipt)"
_LONGEST_NAME = 100  # bytes; file systems take 255


@dataclass(frozen=True)
class Saved:
    """What --out, --receipt, --no-receipt and --force say.

    Attributes:
        out: folder of all files of the command, its receipt.json among them.
        receipt: file of the receipt alone.
        none: keep no receipt. Else, where neither place is named, it goes to a folder of its own, named after its content, in the
            user's state folder: nothing there is ever overwritten, and a repeated command adds nothing. If it cannot be written
            there, that is a remark.
        replace: files that are there with other content.

    Raises:
        UsageError: a receipt is wanted and refused at once.
        StorageError: nothing could be written to a place that was named; said before anything is computed.
    """

    out: Path | None
    receipt: Path | None
    none: bool
    replace: bool

    def __post_init__(self) -> None:
        if self.none and (self.out is not None or self.receipt is not None):
            given = "--receipt" if self.out is None else "--out"
            raise UsageError(f"--no-receipt and {given} were both given, and {given} writes a receipt. Leave one out.")
        if self.out is not None:
            check_folder(self.out)
        if self.receipt is not None:
            check_folder(self.receipt.parent, "--receipt")

    def show(
        self,
        show: Output,
        numbers: dict[str, Any],
        *tables: str | Table,
        receipt: Callable[[Path], Mapping[str, Any]],
        files: Callable[[Path], Mapping[str, bytes]],
    ) -> None:
        """Write, and print what was computed and written; what was computed also where the disk said no.

        Args:
            show: where to print.
            numbers: what --json prints, with the path of the receipt (null for none) as "receipt".
            tables: what is printed else.
            receipt: folder that it will lie in -> the receipt.
            files: folder `out` -> file name -> content of what is written beside the receipt.
        """
        try:
            with show.progress("writing"):
                written = self._write(receipt, files)
                if not written and not self.none:
                    written = _keep(show, receipt, replace=self.replace)
        except (FevalError, OSError) as error:
            if isinstance(error.__cause__ or error, OSError):  # what took long to compute is not lost with a full disk
                show.result(numbers | {"receipt": None}, *tables)
            raise
        place = str(written[-1]) if written else None  # the receipt comes last wherever it goes
        show.result(numbers | {"receipt": place}, *tables, *(f"wrote {path}" for path in written))

    def _write(
        self,
        receipt: Callable[[Path], Mapping[str, Any]],
        files: Callable[[Path], Mapping[str, bytes]],
    ) -> list[Path]:
        written = []
        if self.out is not None:
            beside = {**files(self.out), "receipt.json": encoded(receipt(self.out))}
            written += save_files(self.out, beside, replace=self.replace)
        if (alone := self.receipt) is not None:
            data = {alone.name: encoded(receipt(alone.parent))}
            written += save_files(alone.parent, data, replace=self.replace, option="--receipt")
        return written


def _receipts_folder() -> Path:
    """Where receipts go that nobody named a place for: FEVAL_RECEIPTS, or `receipts` in the user's state folder."""
    named = os.environ.get("FEVAL_RECEIPTS", "").strip()
    if named:
        return Path(os.path.expanduser(named))  # noqa: PTH111  no error where there is no such user
    from platformdirs import user_state_path

    return user_state_path("feval", appauthor=False) / "receipts"


def _keep(show: Output, receipt: Callable[[Path], Mapping[str, Any]], *, replace: bool) -> list[Path]:
    """Write the receipt that nobody named a place for; what keeps it from being written is a remark."""
    folder = _receipts_folder()
    content = receipt(folder / "any")  # paths in it start from its folder, whose own name is not in them
    data = encoded(content)
    name = f"{_name(content)}-{hashlib.sha256(data).hexdigest()[:12]}"
    try:
        [path] = save_files(folder / name, {"receipt.json": data}, replace=replace, option=_ELSEWHERE)
        os.utime(path)  # one that was there already is the newest now
    except (StorageError, OSError) as error:
        show.note(f"No receipt was kept: {error}")
        return []
    return [path]


def last_receipt() -> Path:
    """The newest of the receipts that nobody named a place for.

    Raises:
        UsageError: there is none.
    """
    folder = _receipts_folder()
    found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*/receipt.json")]
    if not found:
        raise UsageError(
            f"There is no receipt in {folder}, where commands keep one that are given neither --out nor --receipt. Name the "
            "receipt to verify."
        )
    return max(found)[1]


def _name(content: Mapping[str, Any]) -> str:
    """Words for people: the command, the method if there is one, the dataset."""
    request = content["request"]
    dataset = request.get("dataset") or request.get("plan", {}).get("dataset", "")
    words = (content["kind"], str(request.get("method", "")).rpartition(":")[2], dataset)
    plain = re.sub(r"[^\w.-]+", "_", "-".join(filter(None, words)))
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore")


def encoded(value: Mapping[str, Any]) -> bytes:
    """Return a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
