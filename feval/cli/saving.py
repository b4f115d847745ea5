"""Where the files of a command go; a receipt is kept unless --no-receipt is given, so that what was printed can be verified."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_state_path

from feval.errors import FevalError, StorageError, UsageError
from feval.report.files import check_folder, save_files

if TYPE_CHECKING:
    from feval.cli.output import Output
    from feval.report.tables.tables import Table

__all__ = ["ResultFiles", "encoded", "last_receipt"]

_ELSEWHERE = "--receipt or FEVAL_RECEIPTS (or keep no receipt with --no-receipt)"
_LONGEST_NAME = 100  # bytes; file systems take 255


@dataclass(frozen=True)
class ResultFiles:
    """Where results are written, by --out, --receipt, --no-receipt and --force.

    Attributes:
        out: folder for all files of the command, receipt.json among them.
        receipt: file for the receipt alone.
        no_receipt: keep no receipt. Otherwise, where neither place is named, it goes to a folder of its own, named after its
            content, in the user's state folder: nothing there is ever overwritten, and a repeated command adds nothing. If it
            cannot be written there, a note says so.
        force: replace files with other content.

    Raises:
        UsageError: a receipt is both wanted and refused.
        StorageError: a named place cannot be written to; raised before anything is computed.
    """

    out: Path | None
    receipt: Path | None
    no_receipt: bool
    force: bool

    def __post_init__(self) -> None:
        if self.no_receipt and (self.out is not None or self.receipt is not None):
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
        """Write the files, and print the results, also where writing failed.

        Args:
            show: where to print.
            numbers: what --json prints, with the path of the receipt (null for none) as "receipt".
            tables: what is printed otherwise.
            receipt: makes the receipt for the folder that it will lie in.
            files: makes the files beside the receipt, by name, for the folder `out`.
        """
        try:
            with show.progress("writing"):
                written = self._write(receipt, files)
                if not written and not self.no_receipt:
                    written = _keep(show, receipt, replace=self.force)
        except (FevalError, OSError) as error:
            if isinstance(error.__cause__ or error, OSError):  # a full disk does not lose what took long to compute
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
            written += save_files(self.out, beside, replace=self.force)
        if (alone := self.receipt) is not None:
            data = {alone.name: encoded(receipt(alone.parent))}
            written += save_files(alone.parent, data, replace=self.force, option="--receipt")
        return written


def _receipts_folder() -> Path:
    """The default folder of receipts: FEVAL_RECEIPTS, or `receipts` in the user's state folder."""
    named = os.environ.get("FEVAL_RECEIPTS", "").strip()
    if named:
        return Path(os.path.expanduser(named))  # noqa: PTH111  no error where there is no such user
    return user_state_path("feval", appauthor=False) / "receipts"


def _keep(show: Output, receipt: Callable[[Path], Mapping[str, Any]], *, replace: bool) -> list[Path]:
    """Write a receipt to the default folder; if that fails, print a note."""
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
    """The newest receipt in the default folder.

    Raises:
        UsageError: there is none.
    """
    folder = _receipts_folder()
    receipts = [(path.stat().st_mtime_ns, path) for path in folder.glob("*/receipt.json")]
    if not receipts:
        raise UsageError(
            f"There is no receipt in {folder}, where commands without --out and --receipt keep theirs. Name one to verify."
        )
    return max(receipts)[1]


def _name(content: Mapping[str, Any]) -> str:
    """A name for people: the command, the method if there is one, the dataset."""
    request = content["request"]
    dataset = request.get("dataset") or request.get("plan", {}).get("dataset", "")
    words = (content["kind"], str(request.get("method", "")).rpartition(":")[2], dataset)
    plain = re.sub(r"[^\w.-]+", "_", "-".join(filter(None, words)))
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore")


def encoded(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
