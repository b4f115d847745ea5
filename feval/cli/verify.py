"""`feval verify`: check the bytes of a recording, or the numbers of a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from feval.cli.options import JsonFlag, QuietFlag, whole_folder
from feval.cli.output import Output, say
from feval.cli.saving import last_receipt
from feval.errors import UsageError
from feval.hub.addresses import is_address, parse_address
from feval.receipts.receipts import ReceiptCheck, is_receipt, local_receipt, verify_receipt
from feval.receipts.semantics import VERSION
from feval.recording import verify_recording
from feval.report.text import counted

_MOST_DIFFERENCES = 20
_OUTDATED = 3  # exit code for a receipt of an older meaning of the numbers


def verify(
    recording: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECORDING|RECEIPT",
            help="Folder of a recording or a report, or a receipt.json; on the Hub as well.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="The receipt of the last command that was given no place for one.")
    ] = False,
    recordings: Annotated[
        list[Path] | None,
        typer.Option("--recording", metavar="DIR", help="For a receipt that has been moved away from its recording."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="FILE.py:FUNCTION", help="A user's method that a receipt may run."),
    ] = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="LIST", help="For a receipt with a price list of your own.")
    ] = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Check a recording, or the numbers of a receipt.

    Every byte and hash of a recording is checked; the numbers of a receipt are computed again.

    Exit code 0 if all agree, 1 if anything does not, 3 if what a receipt's numbers mean has changed since it was written.
    """
    show = Output(as_json=as_json, quiet=quiet)
    if last == (recording is not None):
        raise UsageError(
            "Name the recording or the receipt to verify, or pass --last for the newest receipt that was kept."
        )
    recording = recording or last_receipt()
    if is_receipt(recording) and is_address(recording):
        _verify_receipt(show, recording, recordings, methods or [], prices)
        return
    recording = whole_folder(show, recording)
    if not (recording / "manifest.json").is_file() and (recording / "receipt.json").is_file():
        recording = recording / "receipt.json"  # the folder that a report was written to
    if is_receipt(recording):
        _verify_receipt(show, recording, recordings, methods or [], prices)
        return
    if recordings or methods or prices:
        raise UsageError(f"--recording, --method and --prices belong to receipts; {recording} is no receipt.json.")
    with show.progress(f"verifying {recording.name}") as progress:
        found = verify_recording(recording, progress=progress)
    account = {
        "path": str(recording),
        "ok": found.ok,
        "recording_hash": found.recording_hash,
        "files": found.files,
        "leaves": found.leaves,
        "problems": list(found.problems),
        "remarks": list(found.remarks),
    }
    for remark in found.remarks:
        show.note(remark)
    leaves = "1 leaf" if found.leaves == 1 else f"{found.leaves:,} leaves"
    checked = f"{counted(found.files, 'file')} and {leaves} checked"
    show.result(account, *([f"{recording} is sound: {checked}, hash {found.recording_hash}"] if found.ok else []))
    if not found.ok:
        for problem in found.problems:
            say(f"error: {recording}: {problem}")
        raise typer.Exit(1)


def _verify_receipt(
    show: Output, place: Path, recordings: Sequence[Path] | None, methods: Sequence[str], prices: str | None
) -> None:

    path, local = _place_of(place), local_receipt(place)
    with show.progress(f"verifying {local.name}"):
        found = verify_receipt(local, recordings, methods=methods, prices=prices)
    for remark in found.notes:
        show.note(remark)
    account = {
        "path": str(path),
        "ok": found.equal,
        "kind": found.kind,
        "numbers": found.numbers,
        "semantics": {"receipt": found.semantics, "now": VERSION},
        "changes": list(found.changes),
        "differences": [{"where": d.where, "receipt": d.receipt, "now": d.now} for d in found.differences],
    }
    what = {"compare": "a comparison", "estimate": "an estimate"}.get(found.kind, f"a {found.kind}")
    shown = [f"{path} is right: {found.numbers} values of {what} computed again, all equal"] if found.equal else []
    if found.outdated:
        shown = [
            f"{path} is of an older feval: what its numbers mean has changed since, from version {found.semantics} to {VERSION}. "
            f"{len(found.differences):,} of {found.numbers:,} values of {what} come out otherwise now:"
            if found.differences
            else f"{path} is of an older feval, and its numbers cannot be computed as they were meant then.",
            *(f"  {line}" for line in _shown_differences(found)),
            "Changed since:",
            *(f"  {sentence}" for sentence in found.changes),
        ]
    show.result(account, *shown)
    if found.outdated:
        raise typer.Exit(_OUTDATED)
    if not found.equal:
        for line in _shown_differences(found):
            say(f"error: {path}: {line}")
        raise typer.Exit(1)


def _shown_differences(found: ReceiptCheck) -> list[str]:
    """The first differences, and how many more there are."""
    more = len(found.differences) - _MOST_DIFFERENCES
    rest = [f"{more:,} more of {found.numbers:,} values differ; --json lists all."] if more > 0 else []
    return [*map(str, found.differences[:_MOST_DIFFERENCES]), *rest]


def _place_of(place: Path) -> str:
    """A place as it is written: an address with the slashes that a path lacks."""
    return str(parse_address(place) if is_address(place) else place)
