"""What commands that evaluate share: options from the fields of a request, opened recordings, files
of results.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from platformdirs import user_state_path

from feval.cards.reading import read_toml
from feval.cli.commands import Decorator, expanded, keyword, option
from feval.cli.options import Drop, fold_prices, price_changes, recording_folders
from feval.cli.output import Output, quiet_matplotlib
from feval.errors import FevalError, StorageError, UsageError, require_known
from feval.evaluation.method_names import takes_several
from feval.evaluation.requests import beside
from feval.hub import open_place
from feval.methods import METHODS
from feval.replay import load, only_dataset, only_name
from feval.report.files import Content, check_folder, encoded, save_files, save_sealed
from feval.values import Record, RecordLike

if TYPE_CHECKING:
    from feval.evaluation.requests import ReplayOptions
    from feval.replay import LLM, Dataset
    from feval.report.tables.tables import Table

    _Request = TypeVar("_Request", bound=ReplayOptions)


_DROPPED = ("unlabelled", "short-pools")
_SettingsFile = Annotated[
    Path | None,
    option(
        "TOML file with these and rarer options: train_fraction, serving, clusters, ...",
        "FILE",
        name="--settings",
    ),
]


def request_options(
    model: type[ReplayOptions],
    *,
    without: Collection[str] = (),
    rare: Collection[str] = (),
    overriding: bool = False,
) -> Decorator:
    """Give a command an option for each field of a request that is not rare, --drop, and a file for
    all of them; the values come as the dict `options`.

    Fields in `without` change nothing in this command; those in `rare` are left to the file. With
    `overriding`, the options stand in place of what the command's own file says: those not given
    are not in the dict.
    """
    fields: RecordLike = {
        name: field
        for name, field in model.model_fields.items()
        if "rare" in _extra(field) and name not in without
    }
    parameters = [
        keyword(
            name,
            field_option(name, field, optional=overriding),
            None if overriding else field.default,
        )
        for name, field in fields.items()
        if not (_extra(field)["rare"] or name in rare)
    ]
    parameters += price_changes
    parameters.append(keyword("drop", Drop))
    if not overriding:
        parameters.append(keyword("settings_file", _SettingsFile))

    def build(values: Record) -> Record:
        dropped = {drop_field(name): "drop" for name in values.pop("drop") or ()}
        path = values.pop("settings_file", None)
        in_file = (
            {}
            if path is None
            else read_toml(path, "The settings file", "Write lines such as `train_fraction = 0.5`.")
        )
        for name, value in in_file.items():
            require_known("setting", name, fields)
            read = _extra(fields[name])["read"]
            if read is not None and isinstance(value, str):
                in_file[name] = read(beside(path.parent, value))  # files that it names are there
        given = {
            name: value
            for name, value in values.items()
            if value is not None
            and (overriding or name not in fields or value != fields[name].default)
        }
        options = in_file | given | dropped
        if not overriding:
            fold_prices(options)
        return options

    return expanded("options", parameters, build)


def field_option(name: str, field: Any, *, optional: bool) -> Any:
    """The type of a field that `feval.evaluation.requests.option` declares, or `None` where it is
    optional, with its option of the command line.
    """
    flag = option(
        field.description,
        _extra(field)["metavar"],
        "--" + name.replace("_", "-"),
        min=next((bound.ge for bound in field.metadata if hasattr(bound, "ge")), None),
    )
    return Annotated[field.annotation | None if optional else field.annotation, flag]


def drop_field(name: str) -> str:
    """The field of a request that --drop NAME sets."""
    require_known("choice for --drop", name, _DROPPED)
    return name.replace("-", "_")


def result_options(files: str) -> Decorator:
    """Give a command --out (which writes `files`) and --force; their values come as `saved`."""
    parameters = [
        keyword("out", Path | None, option(f"Write {files} there.", "DIR")),
        keyword("force", bool, option("Replace files that are there with other content.")),
    ]
    return expanded("saved", parameters, lambda values: ResultFiles(**values))


def _extra(field: Any) -> RecordLike:
    return field.json_schema_extra or {}


def open_request(
    model: type[_Request],
    folders: Sequence[Path] | None,
    dataset: str | None,
    llms: Sequence[str] | None,
    **fields: Any,
) -> tuple[_Request, Dataset, list[LLM]]:
    """Open recordings, and return a request with the dataset and the LLMs that are loaded for it:
    those that are named, or else the only ones.
    """
    opened = [open_place(folder) for folder in recording_folders(folders)]
    dataset = only_dataset(dataset, opened)
    recorded = [name for recording in opened for name in recording.llm_names(dataset)]
    if not llms and not recorded:
        load(dataset, None, opened)  # raises, and lists what is recorded
    several = takes_several(METHODS.get(fields.get("method", "")))
    chosen = tuple(
        llms or (dict.fromkeys(recorded) if several else [only_name("LLM", None, recorded)])
    )
    fields["dataset"], fields["llms"] = dataset, chosen
    request = model(**fields)
    return request, *load(dataset, chosen, opened, **request.loading())


_ELSEWHERE = "FEVAL_RECEIPTS (FEVAL_RECEIPTS=none keeps no receipts)"
_LONGEST_NAME = 100  # bytes; file systems take 255


@dataclass(frozen=True)
class ResultFiles:
    """Where results are written: all files to the folder `out`.

    Where it is not named, the receipt alone goes to a folder of its own, named after its content,
    in the user's state folder: nothing there is ever overwritten, and a repeated command adds
    nothing. If it cannot be written there, a note says so. A place that cannot be written to is
    refused before anything is computed.
    """

    out: Path | None
    force: bool

    def __post_init__(self) -> None:
        if self.out is not None:
            check_folder(self.out)

    def show(
        self,
        show: Output,
        numbers: Record,
        *tables: str | Table,
        receipt: Callable[[Path], RecordLike],
        files: Callable[[], Mapping[str, Content]] | None = None,
    ) -> None:
        """Write the files and the receipt, and print the results, also where writing failed.

        `numbers` is what --json prints, with the path of the receipt (null for none); `tables` are
        printed otherwise. `receipt` makes the receipt for the folder that it will lie in, `files`
        the files beside it in the folder `out`: result.json with the numbers, unless others are
        made.
        """
        try:
            with show.progress("writing"):
                if self.out is None:
                    written = _keep(show, receipt, replace=self.force)
                else:
                    quiet_matplotlib()
                    made = files() if files else {"result.json": encoded(numbers)}
                    written = save_sealed(self.out, made, receipt(self.out), replace=self.force)
        except (FevalError, OSError) as error:
            # a full disk does not lose what took long to compute
            if isinstance(error.__cause__ or error, OSError):
                show.result(numbers | {"receipt": None}, *tables)
            raise
        place = str(written[-1]) if written else None  # the receipt comes last wherever it goes
        show.result(numbers | {"receipt": place}, *tables, written=written)

    def save(self, files: Callable[[], Mapping[str, Content]]) -> list[Path]:
        """Write files that have no receipt, if there is a folder for them."""
        if self.out is None:
            return []
        quiet_matplotlib()
        return save_files(self.out, files(), replace=self.force)


def _receipts_folder() -> Path | None:
    """The folder of receipts: FEVAL_RECEIPTS, or `receipts` in the user's state folder; `None` for
    none, where FEVAL_RECEIPTS says so.
    """
    named = os.environ.get("FEVAL_RECEIPTS", "").strip()
    if named == "none":
        return None
    if named:
        return Path(os.path.expanduser(named))  # noqa: PTH111  no error where there is no such user
    return user_state_path("feval", appauthor=False) / "receipts"


def _keep(show: Output, receipt: Callable[[Path], RecordLike], *, replace: bool) -> list[Path]:
    """Write a receipt to the default folder, if there is one; if that fails, print a note."""
    folder = _receipts_folder()
    if folder is None:
        return []
    # paths in it start from its folder, whose own name is not in them
    content = receipt(folder / "any")
    data = encoded(content)
    # for people: the command, the method if there is one, the dataset
    request = content["request"]
    dataset = request.get("dataset") or request.get("plan", {}).get("dataset", "")
    words = (content["kind"], str(request.get("method", "")).rpartition(":")[2], dataset)
    plain = re.sub(r"[^\w.-]+", "_", "-".join(filter(None, words)))
    short = plain.encode()[:_LONGEST_NAME].decode(errors="ignore")
    name = f"{short}-{hashlib.sha256(data).hexdigest()[:12]}"
    try:
        [path] = save_files(
            folder / name, {"receipt.json": data}, replace=replace, option=_ELSEWHERE
        )
        os.utime(path)  # one that was there already is the newest now
    except (StorageError, OSError) as error:
        show.note(f"No receipt was kept: {error}")
        return []
    return [path]


def last_receipt(*kinds: str) -> Path:
    """The newest receipt in the default folder, of some kinds, or of any."""
    folder = _receipts_folder()
    named = [f"{kind}-*" for kind in kinds] or ["*"]
    kept = [] if folder is None else [each for it in named for each in folder.glob(f"{it}/*.json")]
    receipts = [(path.stat().st_mtime_ns, path) for path in kept if path.name == "receipt.json"]
    if not receipts:
        where = "FEVAL_RECEIPTS keeps none" if folder is None else f"there is none in {folder}"
        raise UsageError(
            f"No receipt was named, and of those that commands without --out keep, {where}. Name"
            " one."
        )
    return max(receipts)[1]
