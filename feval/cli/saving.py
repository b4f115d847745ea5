"""Where a command's files go. A receipt is always kept, so that what was printed can be computed again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feval.errors import FevalError, UsageError
from feval.report.files import check_folder, save_files

if TYPE_CHECKING:
    from feval.cli import _Out
    from feval.report.tables import Table

__all__ = ["Saved", "encoded"]

_ELSEWHERE = "--receipt or FEVAL_RECEIPTS (or keep no receipt with --no-receipt)"
_LONGEST_NAME = 100  # bytes; file systems take 255


@dataclass(frozen=True)
class Saved:
    """What --out, --receipt, --no-receipt and --force say.

    Attributes:
        out: folder of all files of the command, its receipt.json among them.
        receipt: file of the receipt alone.
        none: keep no receipt. Else, where neither place is named, it goes to a folder of its own, named after its content,
            under feval-receipts (or $FEVAL_RECEIPTS): nothing there is ever overwritten, and a repeated command adds nothing.
        replace: files that are there with other content.

    Raises:
        UsageError: a receipt is wanted and refused at once.
        StorageError: nothing could be written there; said before anything is computed.
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
        elif self.out is None and not self.none:
            check_folder(_kept(), _ELSEWHERE)

    def show(
        self,
        show: _Out,
        numbers: dict[str, Any],
        *tables: str | Table,
        receipt: Callable[[Path], Mapping[str, Any]],
        files: Callable[[Path], Mapping[str, bytes]],
    ) -> None:
        """Write, and print what was computed and written; what was computed also where the disk said no.

        Args:
            show: where to print.
            numbers: what --json prints.
            tables: what is printed else.
            receipt: folder that it will lie in -> the receipt.
            files: folder `out` -> file name -> content of what is written beside the receipt.
        """
        try:
            with show.progress("writing"):
                written = self._write(receipt, files)
        except (FevalError, OSError) as error:
            if isinstance(error.__cause__ or error, OSError):  # what took long to compute is not lost with a full disk
                show.result(numbers, *tables)
            raise
        show.result(numbers, *tables, *(f"wrote {path}" for path in written))

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
        if not written and not self.none:
            written.append(_keep(receipt, replace=self.replace))
        return written


def _kept() -> Path:
    return Path(os.path.expanduser(os.environ.get("FEVAL_RECEIPTS", "").strip() or "feval-receipts"))  # noqa: PTH111  no error


def _keep(receipt: Callable[[Path], Mapping[str, Any]], *, replace: bool) -> Path:
    """Write the receipt that nobody named a place for."""
    import hashlib

    kept = _kept()
    told = receipt(kept / "any")  # paths in it start from its folder, whose own name is not in them
    data = encoded(told)
    name = f"{_name(told)}-{hashlib.sha256(data).hexdigest()[:12]}"
    [path] = save_files(kept / name, {"receipt.json": data}, replace=replace, option=_ELSEWHERE)
    return path


def _name(told: Mapping[str, Any]) -> str:
    """Words for people: the command, the method if there is one, the dataset."""
    request = told["request"]
    dataset = request.get("dataset") or request.get("plan", {}).get("dataset", "")
    words = (told["kind"], str(request.get("method", "")).rpartition(":")[2], dataset)
    plain = re.sub(r"[^\w.-]+", "_", "-".join(filter(None, words)))
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore")


def encoded(value: Mapping[str, Any]) -> bytes:
    """Return a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
