"""What the commands that evaluate share: options made from the fields of their request, and recordings opened for it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feval.cli.options import only_name, recording_folders
from feval.cli.saving import ResultFiles
from feval.errors import UsageError
from feval.hub.places import open_place
from feval.replay.loading import load

if TYPE_CHECKING:
    from feval.evaluation.requests import ReplayOptions
    from feval.recording import Recording
    from feval.replay import LLM, Dataset

__all__ = ["OpenedRecordings", "open_recordings", "request_options", "result_options"]

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
        _keyword(name, Annotated[str | None, typer.Option(option, hidden=True)], None)
        for option, name in removed.items()
    ]

    def build(values: dict[str, Any]) -> dict[str, Any]:
        for option, name in removed.items():
            if values.pop(name) is not None:
                raise UsageError(f"{option} is no longer an option of this command; {REMOVED[option]}.")
        return {name: value for name, value in values.items() if value is not None or not overriding}

    return _expanded("options", parameters, build)


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
    parameters = [_keyword(name, Annotated[kind, own], default) for name, (kind, own, default) in options.items()]
    return _expanded("saved", parameters, lambda values: ResultFiles(**values))


def _expanded(
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
    return _keyword(name, Annotated[kind | None if overriding else kind, option], None if overriding else own.default)


def _extra(field: Any) -> Mapping[str, Any]:
    extra: Mapping[str, Any] = field.json_schema_extra or {}
    return extra


def _dest(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
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
