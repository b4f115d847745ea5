"""What commands that evaluate share: options from the fields of a request, opened recordings, files of results."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from platformdirs import user_state_path

from feval.cli.options import only_name, recording_folders
from feval.errors import FevalError, StorageError, UsageError
from feval.hub.places import open_place
from feval.replay.loading import load
from feval.report.files import check_folder, save_files

if TYPE_CHECKING:
    from feval.cli.output import Output
    from feval.evaluation.requests import ReplayOptions
    from feval.recording import Recording
    from feval.replay import LLM, Dataset
    from feval.report.tables.tables import Table


REMOVED: Mapping[str, str] = {
    "--split-seed": "write `split_seed = ...` into a comparison file, and evaluate with `feval compare FILE`",
}
"""Options of earlier versions, and what to do instead."""

_Command = Callable[..., None]
_TAKES_RECEIPT = "Keep the receipt in this file. Default: in your state folder (`feval verify --last`)."


def request_options(
    model: type[ReplayOptions], *, without: Collection[str] = (), overriding: bool = False
) -> Callable[[_Command], _Command]:
    """Give a command an option for each field of a request that is one; the values come as the dict `options`.

    Args:
        model: the request. Its rare options are left out.
        without: fields that change nothing in this command.
        overriding: whether the options stand in place of what a file says: those not given are not in the dict.
    """
    rare = {name for name, own in model.model_fields.items() if _extra(own).get("rare", True)}
    names = [name for name in model.model_fields if name not in {*rare, *without}]
    removed = {option: _dest(option) for option in REMOVED if _dest(option) in model.model_fields}
    parameters = [_parameter(model, name, overriding=overriding) for name in names]
    parameters += [
        keyword(name, Annotated[str | None, typer.Option(option, hidden=True)], None)
        for option, name in removed.items()
    ]

    def build(values: dict[str, Any]) -> dict[str, Any]:
        for option, name in removed.items():
            if values.pop(name) is not None:
                raise UsageError(f"{option} is no longer an option of this command; {REMOVED[option]}.")
        return {name: value for name, value in values.items() if value is not None or not overriding}

    return expanded("options", parameters, build)


def result_options(files: str) -> Callable[[_Command], _Command]:
    """Give a command --out, --receipt, --no-receipt and --force; their values come as `saved`.

    Args:
        files: what the command writes with --out.
    """
    path = Path | None
    options = {
        "out": (path, typer.Option("--out", metavar="DIR", help=f"Write {files} there."), None),
        "receipt": (path, typer.Option("--receipt", metavar="FILE", dir_okay=False, help=_TAKES_RECEIPT), None),
        "no_receipt": (bool, typer.Option("--no-receipt", help="Keep no receipt; see docs/receipts.md."), False),
        "force": (bool, typer.Option("--force", help="Replace files that are there with other content."), False),
    }
    parameters = [keyword(name, Annotated[kind, own], default) for name, (kind, own, default) in options.items()]
    return expanded("saved", parameters, lambda values: ResultFiles(**values))


def expanded(
    name: str, parameters: Sequence[inspect.Parameter], build: Callable[[dict[str, Any]], Any]
) -> Callable[[_Command], _Command]:
    """A decorator that puts parameters in place of one, which is built from their values."""

    def decorate(command: _Command) -> _Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            values = {own.name: arguments.pop(own.name) for own in parameters}
            command(**arguments, **{name: build(values)})

        own = [new for old in signature.parameters.values() for new in (parameters if old.name == name else [old])]
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        run.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]  # Typer reads it
        run.__annotations__ = {each.name: each.annotation for each in own}
        return run

    return decorate


def _parameter(model: type[ReplayOptions], name: str, *, overriding: bool) -> inspect.Parameter:
    own = model.model_fields[name]
    least = next((bound.ge for bound in own.metadata if hasattr(bound, "ge")), None)
    option = typer.Option(
        "--" + name.replace("_", "-"), metavar=_extra(own)["metavar"], help=own.description, min=least
    )
    kind: Any = own.annotation
    return keyword(name, Annotated[kind | None if overriding else kind, option], None if overriding else own.default)


def _extra(field: Any) -> Mapping[str, Any]:
    extra: Mapping[str, Any] = field.json_schema_extra or {}
    return extra


def _dest(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter of a command."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@dataclass(frozen=True)
class OpenedRecordings:
    """Opened recordings, with the dataset and the LLMs in them that are meant.

    Attributes:
        recordings: one at least.
        dataset: id.
        llms: names, in the order given.
    """

    recordings: Sequence[Recording]
    dataset: str
    llms: tuple[str, ...]

    def load(self, options: ReplayOptions) -> tuple[Dataset, list[LLM]]:
        """Load them as a request says."""
        return load(self.dataset, self.llms, list(self.recordings), **options.loading())


def open_recordings(
    folders: Sequence[Path] | None, dataset: str | None, llms: Sequence[str] | None
) -> OpenedRecordings:
    """Open recordings, and choose the dataset and the LLM where there is only one.

    Args:
        folders: what --recording says; `None` for the folders in FEVAL_RECORDING.
        dataset: what --dataset says.
        llms: what --llm says.

    Raises:
        NotRecordedError: there is none.
        UsageError: there are several, and none was named.
    """
    opened = [open_place(folder) for folder in recording_folders(folders)]
    dataset = only_name("dataset", dataset, (name for recording in opened for name in recording.dataset_ids()))
    recorded = [name for recording in opened for name in recording.llm_names(dataset)]
    if not llms and not recorded:
        load(dataset, None, opened)  # raises, and lists what is recorded
    return OpenedRecordings(opened, dataset, tuple(llms or [only_name("LLM", None, recorded)]))


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
