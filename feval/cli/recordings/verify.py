"""`feval verify`: check recordings, results and receipts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from feval.cli.evaluating import last_receipt
from feval.cli.options import Machines, Sandbox, UsersMethods, machine_options
from feval.cli.output import Output, say
from feval.errors import UsageError
from feval.evaluation.method_names import make_method
from feval.hub.addresses import is_address, parse_address
from feval.hub.places import local_folder
from feval.receipts.document import is_receipt, local_receipt
from feval.receipts.verifying import ReceiptCheck, verify_receipt
from feval.recording import verify_recording
from feval.report.text import counted

_MOST_DIFFERENCES = 20


@machine_options
def verify(
    recording: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECORDING|RECEIPT",
            help="Folder of a recording or a report, or a receipt.json; also on the Hub.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="The newest receipt in your state folder.")
    ] = False,
    recordings: Annotated[
        list[Path] | None,
        typer.Option(
            "--recording", metavar="DIR", help="Where a receipt's recording is, if it moved."
        ),
    ] = None,
    methods: UsersMethods = None,
    sandbox: Sandbox = False,
    prices: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="A price list of your own that the receipt needs."),
    ] = None,
    *,
    machines: Machines,
    show: Output,
) -> None:
    """Check a recording, or the numbers of a receipt.

    Checks every byte and hash of a recording; computes the numbers of a receipt again.

    Exit code: 0 all agree; 1 something differs.
    """
    if last == (recording is not None):
        raise UsageError(
            "Name a recording or a receipt to verify, or give --last for the newest receipt in your"
            " state folder."
        )
    files = [make_method(name, sandbox=sandbox) for name in methods or []]
    recording = recording or last_receipt()
    if is_receipt(recording) and is_address(recording):
        _verify_receipt(show, recording, recordings, files, prices, machines)
        return
    recording = local_folder(recording)
    if not (recording / "manifest.json").is_file() and (recording / "receipt.json").is_file():
        recording = recording / "receipt.json"  # the folder that a report was written to
    if is_receipt(recording):
        _verify_receipt(show, recording, recordings, files, prices, machines)
        return
    if recordings or methods or sandbox or prices:
        raise UsageError(
            f"--recording, --method, --sandbox and --prices belong to receipts; {recording} is not"
            " a receipt."
        )
    with machines.opened() as executor:
        verification = verify_recording(recording, executor=executor)
    summary = {
        "path": str(recording),
        "ok": verification.ok,
        "recording_hash": verification.recording_hash,
        "files": verification.files,
        "leaves": verification.leaves,
        "problems": list(verification.problems),
        "remarks": list(verification.remarks),
    }
    for remark in verification.remarks:
        show.note(remark)
    leaves = "1 leaf" if verification.leaves == 1 else f"{verification.leaves:,} leaves"
    checked = f"{counted(verification.files, 'file')} and {leaves} checked"
    show.result(
        summary,
        *(
            [f"{recording} is sound: {checked}, hash {verification.recording_hash}"]
            if verification.ok
            else []
        ),
    )
    if not verification.ok:
        for problem in verification.problems:
            say(f"error: {recording}: {problem}")
        raise typer.Exit(1)


def _verify_receipt(
    show: Output,
    place: Path,
    recordings: Sequence[Path] | None,
    methods: Sequence[Any],
    prices: str | None,
    machines: Machines,
) -> None:
    path, local = _place_of(place), local_receipt(place)
    with machines.opened() as executor:
        check = verify_receipt(local, recordings, methods=methods, prices=prices, executor=executor)
    for remark in check.notes:
        show.note(remark)
    summary = {
        "path": str(path),
        "ok": check.equal,
        "kind": check.kind,
        "numbers": check.numbers,
        "files": list(check.files),
        "differences": [
            {"where": d.where, "receipt": d.receipt, "now": d.now} for d in check.differences
        ],
    }
    what = {"compare": "a comparison", "estimate": "an estimate"}.get(check.kind, f"a {check.kind}")
    shown = (
        [f"{path} is right: {check.numbers} values of {what} computed again, all equal"]
        if check.equal
        else []
    )
    show.result(summary, *shown)
    for line in (*check.files, *_shown_differences(check)):
        say(f"error: {path}: {line}")
    if not check.equal:
        raise typer.Exit(1)


def _shown_differences(check: ReceiptCheck) -> list[str]:
    """Return the first differences, and how many more there are."""
    more = len(check.differences) - _MOST_DIFFERENCES
    rest = (
        [f"{more:,} more of {check.numbers:,} values differ; --json lists all."] if more > 0 else []
    )
    return [*map(str, check.differences[:_MOST_DIFFERENCES]), *rest]


def _place_of(place: Path) -> str:
    """Return a place as it is written: `Path` drops a slash of an address."""
    return str(parse_address(place) if is_address(place) else place)
