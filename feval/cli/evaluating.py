"""What commands that evaluate share: options from the fields of a request, opened recordings, files
of results.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from platformdirs import user_state_path

from feval.cli.commands import Decorator, expanded, keyword
from feval.cli.options import only_name, recording_folders
from feval.errors import FevalError, StorageError, UsageError
from feval.hub.places import open_place
from feval.replay.loading import load
from feval.report.files import Content, check_folder, encoded, save_files, save_sealed

if TYPE_CHECKING:
    from feval.cli.output import Output
    from feval.evaluation.requests import ReplayOptions
    from feval.recording import Recording
    from feval.replay import LLM, Dataset
    from feval.report.tables.tables import Table


_RECEIPT_HELP = (
    "File for the receipt, or none. Default: in your state folder (`feval verify --last`)."
)


def request_options(
    model: type[ReplayOptions], *, without: Collection[str] = (), overriding: bool = False
) -> Decorator:
    """Give a command an option for each field of a request that is not rare; the values come as the
    dict `options`.

    Fields in `without` change nothing in this command. With `overriding`, the options stand in
    place of what a file says: those not given are not in the dict.
    """
    names = [
        name for name, field in model.model_fields.items() if not _extra(field).get("rare", True)
    ]
    parameters = [
        _parameter(model, name, overriding=overriding) for name in names if name not in without
    ]

    def build(values: dict[str, Any]) -> dict[str, Any]:
        given = {
            name: value for name, value in values.items() if value is not None or not overriding
        }
        read = {
            name: _extra(model.model_fields[name]).get("read")
            for name, value in given.items()
            if value is not None
        }
        return given | {
            name: function(given[name]) for name, function in read.items() if function is not None
        }

    return expanded("options", parameters, build)


def result_options(files: str) -> Decorator:
    """Give a command --out (which writes `files`), --receipt and --force; their values come as
    `saved`.
    """
    out = typer.Option("--out", metavar="DIR", help=f"Write {files} there.")
    receipt = typer.Option("--receipt", metavar="FILE", dir_okay=False, help=_RECEIPT_HELP)
    force = typer.Option("--force", help="Replace files that are there with other content.")
    parameters = [
        keyword("out", Annotated[Path | None, out], None),
        keyword("receipt", Annotated[Path | None, receipt], None),
        keyword("force", Annotated[bool, force], default=False),
    ]
    return expanded("saved", parameters, lambda values: ResultFiles(**values))


def _parameter(model: type[ReplayOptions], name: str, *, overriding: bool) -> inspect.Parameter:
    field = model.model_fields[name]
    least = next((bound.ge for bound in field.metadata if hasattr(bound, "ge")), None)
    option = typer.Option(
        "--" + name.replace("_", "-"),
        metavar=_extra(field)["metavar"],
        help=field.description,
        min=least,
    )
    kind: Any = field.annotation if _extra(field)["read"] is None else str | None
    if overriding:
        return keyword(name, Annotated[kind | None, option], None)
    return keyword(name, Annotated[kind, option], field.default)


def _extra(field: Any) -> Mapping[str, Any]:
    extra: Mapping[str, Any] = field.json_schema_extra or {}
    return extra


@dataclass(frozen=True)
class OpenedRecordings:
    """Opened recordings, one at least, with the dataset and the LLMs in them that are meant."""

    recordings: Sequence[Recording]
    dataset: str
    llms: tuple[str, ...]

    def load(self, options: ReplayOptions) -> tuple[Dataset, list[LLM]]:
        """Load them as a request says."""
        return load(self.dataset, self.llms, list(self.recordings), **options.loading())


def open_recordings(
    folders: Sequence[Path] | None, dataset: str | None, llms: Sequence[str] | None
) -> OpenedRecordings:
    """Open recordings, and choose the dataset and the LLM where there is only one; otherwise they
    must be named.
    """
    opened = [open_place(folder) for folder in recording_folders(folders)]
    dataset = only_name(
        "dataset", dataset, (name for recording in opened for name in recording.dataset_ids())
    )
    recorded = [name for recording in opened for name in recording.llm_names(dataset)]
    if not llms and not recorded:
        load(dataset, None, opened)  # raises, and lists what is recorded
    return OpenedRecordings(opened, dataset, tuple(llms or [only_name("LLM", None, recorded)]))


_ELSEWHERE = "--receipt or FEVAL_RECEIPTS (or keep no receipt with --receipt none)"
_NO_RECEIPT = Path("none")
_LONGEST_NAME = 100  # bytes; file systems take 255


@dataclass(frozen=True)
class ResultFiles:
    """Where results are written: all files to the folder `out`, or the receipt alone to the file
    `receipt`.

    Where neither is named, the receipt goes to a folder of its own, named after its content, in the
    user's state folder: nothing there is ever overwritten, and a repeated command adds nothing. If
    it cannot be written there, a note says so. A place that cannot be written to is refused before
    anything is computed.
    """

    out: Path | None
    receipt: Path | None
    force: bool

    def __post_init__(self) -> None:
        if self.out is not None:
            if self.receipt == _NO_RECEIPT:
                raise UsageError(
                    "--receipt none and --out were both given, and --out writes a receipt. Leave"
                    " one out."
                )
            check_folder(self.out)
        if self.receipt is not None:
            check_folder(self.receipt.parent, "--receipt")

    def show(
        self,
        show: Output,
        numbers: dict[str, Any],
        *tables: str | Table,
        receipt: Callable[[Path], Mapping[str, Any]],
        files: Callable[[Path], Mapping[str, Content]],
    ) -> None:
        """Write the files and the receipt, and print the results, also where writing failed.

        `numbers` is what --json prints, with the path of the receipt (null for none); `tables` are
        printed otherwise. `receipt` makes the receipt for the folder that it will lie in, `files`
        the files beside it for the folder `out`.
        """
        try:
            with show.progress("writing"):
                written = self._write(receipt, files)
                if not written and self.receipt != _NO_RECEIPT:
                    written = _keep(show, receipt, replace=self.force)
        except (FevalError, OSError) as error:
            # a full disk does not lose what took long to compute
            if isinstance(error.__cause__ or error, OSError):
                show.result(numbers | {"receipt": None}, *tables)
            raise
        place = str(written[-1]) if written else None  # the receipt comes last wherever it goes
        show.result(numbers | {"receipt": place}, *tables, *(f"wrote {path}" for path in written))

    def _write(
        self,
        receipt: Callable[[Path], Mapping[str, Any]],
        files: Callable[[Path], Mapping[str, Content]],
    ) -> list[Path]:
        written = []
        if self.out is not None:
            written += save_sealed(self.out, files(self.out), receipt(self.out), replace=self.force)
        if self.receipt not in (None, _NO_RECEIPT):
            folder, name = self.receipt.parent, self.receipt.name
            written += save_files(
                folder, {name: encoded(receipt(folder))}, replace=self.force, option="--receipt"
            )
        return written


def _receipts_folder() -> Path:
    """The default folder of receipts: FEVAL_RECEIPTS, or `receipts` in the user's state folder."""
    named = os.environ.get("FEVAL_RECEIPTS", "").strip()
    if named:
        return Path(os.path.expanduser(named))  # noqa: PTH111  no error where there is no such user
    return user_state_path("feval", appauthor=False) / "receipts"


def _keep(
    show: Output, receipt: Callable[[Path], Mapping[str, Any]], *, replace: bool
) -> list[Path]:
    """Write a receipt to the default folder; if that fails, print a note."""
    folder = _receipts_folder()
    # paths in it start from its folder, whose own name is not in them
    content = receipt(folder / "any")
    data = encoded(content)
    name = f"{_name(content)}-{hashlib.sha256(data).hexdigest()[:12]}"
    try:
        [path] = save_files(
            folder / name, {"receipt.json": data}, replace=replace, option=_ELSEWHERE
        )
        os.utime(path)  # one that was there already is the newest now
    except (StorageError, OSError) as error:
        show.note(f"No receipt was kept: {error}")
        return []
    return [path]


def last_receipt() -> Path:
    """The newest receipt in the default folder."""
    folder = _receipts_folder()
    receipts = [(path.stat().st_mtime_ns, path) for path in folder.glob("*/receipt.json")]
    if not receipts:
        raise UsageError(
            f"There is no receipt in {folder}, where commands without --out and --receipt keep"
            " theirs. Name one to verify."
        )
    return max(receipts)[1]


def _name(content: Mapping[str, Any]) -> str:
    """A name for people: the command, the method if there is one, the dataset."""
    request = content["request"]
    dataset = request.get("dataset") or request.get("plan", {}).get("dataset", "")
    words = (content["kind"], str(request.get("method", "")).rpartition(":")[2], dataset)
    plain = re.sub(r"[^\w.-]+", "_", "-".join(filter(None, words)))
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore")
