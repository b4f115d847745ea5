"""What `feval record` and `feval score` share: settings of asking, from options and a file, and the
display of a run.
"""

from __future__ import annotations

import inspect
import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from pydantic import AfterValidator, Field, PrivateAttr
from typer.models import OptionInfo

from feval.cards.reading import read_toml
from feval.cli.commands import Decorator, expanded, keyword
from feval.errors import UsageError
from feval.evaluation.requests import Request
from feval.hub.addresses import is_address
from feval.publish.secrets import check_variable, known_secrets, refuse_secrets, shown
from feval.report.text import duration
from recorders.asking.budget import dollars
from recorders.asking.engine import Progress, RunBar
from recorders.asking.pace import Limits
from recorders.backends.endpoint import Endpoint

if TYPE_CHECKING:
    from feval.cli.output import Output
    from feval.executors.progress import ProgressBar
    from recorders.asking.budget import CostEstimate


_LONG_WAIT_S = 60.0
_SET_HELP = "A rarer setting, such as concurrency=8; see docs/recording.md. Repeat for several."
_SETTINGS_HELP = "TOML file with options and rarer settings, such as `retries = 3`."


def _usable_url(url: str | None) -> str | None:
    if url is not None:
        Endpoint(url)
    return url


def _usable_variable(name: str | None) -> str | None:
    return check_variable(name) if name else name


class AskingSettings(Request):
    """Settings that recording and scoring share: where an LLM is, how fast and for how much it may
    be asked.

    A field annotated with a `typer.Option` is an option of the command line; any field may be set
    by `--set KEY=VALUE`, or in a file, `--settings FILE`.
    """

    base_url: Annotated[
        str | None,
        AfterValidator(_usable_url),
        typer.Option(
            "--base-url", metavar="URL", help="Endpoint. Default: OPENAI_BASE_URL, or OpenAI."
        ),
    ] = None
    api_key_env: Annotated[str | None, AfterValidator(_usable_variable)] = None
    concurrency: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    retries: int = 8
    timeout: float = 600.0
    cost_limit: Annotated[
        float | None,
        Field(gt=0),
        typer.Option("--cost-limit", metavar="USD", help="Stop before spending more."),
    ] = None
    prices: str | None = None

    _in_file: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def in_file(self) -> dict[str, Any]:
        """What the file says and no option of the command line overrides."""
        return self._in_file

    def file_notes(self) -> list[str]:
        """Sentences on what the file says; none without a file."""
        values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in self._in_file.items())
        return [f"From the settings file: {values}."] if values else []

    def limits(self, samples_per_request: int | None = None) -> Limits:
        """How much may be asked of a server."""
        return Limits(
            self.concurrency,
            self.requests_per_minute,
            self.tokens_per_minute,
            samples_per_request,
            self.timeout,
            self.retries,
        )


def settings_options(model: type[AskingSettings]) -> Decorator:
    """Give a command --set, --settings and the options of a model, its own fields first; it gets an
    instance as `settings`.
    """
    names = [name for kind in model.__mro__ for name in inspect.get_annotations(kind)]
    fields = {name: model.model_fields[name] for name in names if name in model.model_fields}
    parameters = [
        keyword(name, Annotated[field.annotation | None, option], None)  # type: ignore[operator]  # it is a type
        for name, field in fields.items()
        for option in field.metadata
        if isinstance(option, OptionInfo)
    ]
    key = typer.Option("--set", metavar="KEY=VALUE", help=_SET_HELP)
    parameters.append(keyword("pairs", Annotated[list[str] | None, key], None))
    option = typer.Option("--settings", metavar="FILE", help=_SETTINGS_HELP)
    parameters.append(keyword("settings", Annotated[Path | None, option], None))

    def build(values: dict[str, Any]) -> AskingSettings:
        path, pairs = values.pop("settings"), values.pop("pairs")
        options = {
            fields[name].alias or name: value for name, value in values.items() if value is not None
        }
        return _read(model, path, dict(_key_value(model, pair) for pair in pairs or ()) | options)

    return expanded("settings", parameters, build)


def _key_value(model: type[AskingSettings], pair: str) -> tuple[str, Any]:
    """Read KEY=VALUE; the value is TOML, or else, and for a setting that is text, as it stands."""
    key, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"--set takes KEY=VALUE, such as concurrency=8; {pair!r} was given.")
    if key in model.model_fields and str in get_args(model.model_fields[key].annotation):
        return key, value
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except ValueError:
        return key, value


def _read(
    model: type[AskingSettings], path: Path | None, options: dict[str, Any]
) -> AskingSettings:
    """Settings of a file and of the command line, which comes first. Paths in the file start from
    its folder.
    """
    content = (
        {}
        if path is None
        else read_toml(path, "The settings file", "Write lines such as `retries = 3`.")
    )
    in_file = {name: value for name, value in content.items() if name not in options}
    values = content | options
    for name, field in model.model_fields.items():
        key = field.alias or name
        if field.is_required() and key not in values:
            raise UsageError(
                f"--{key} is missing; give it, or `{key} = ...` in a file for --settings."
            )
        value = values.get(key)
        folder = path.parent if path is not None and key in in_file else Path()
        if not isinstance(value, str):
            continue
        if Path in get_args(field.annotation):
            values[key] = Path(value) if is_address(value) else folder / value
        elif key == "prices" and key in in_file and _is_file(folder / value):
            values[key] = str(folder / value)
    settings = model.parse("The command" if path is None else f"The settings file {path}", values)
    settings.in_file.update(
        {name: shown(value) if isinstance(value, str) else value for name, value in in_file.items()}
    )
    stored = {
        f"the setting {name}": value
        for name, value in settings.model_dump(mode="json", by_alias=True).items()
    }
    refuse_secrets(stored, known_secrets(settings.api_key_env))
    return settings


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  False where Path.is_file raises: a name too long


class RunDisplay(RunBar):
    """Shows progress in a bar, and prints what it would hide: what was there before, the first
    failure and stop, warnings.

    Args:
        bar: shows the counts.
        show: prints the notes.
        first: notes for when it begins.

    Attributes:
        printed: the warnings that were printed.
    """

    def __init__(self, bar: ProgressBar, show: Output, first: Sequence[str] = ()) -> None:
        super().__init__(bar)
        self._show, self._first = show, first
        self._is_stopping = self._has_trouble = self._is_waiting = self._has_begun = False
        self.printed: set[str] = set()

    def __call__(self, state: Progress) -> None:
        """Show a state."""
        super().__call__(state)
        if not self._has_begun:
            self._has_begun = True
            for sentence in self._first:
                self._show.note(sentence)
            if kept := state.done - state.new:
                self._show.note(
                    f"{kept:,} of {state.total:,} were there before and are kept; only the others"
                    " are asked for."
                )
        if state.trouble is not None and not self._has_trouble:
            self._has_trouble = True
            self._show.note(f"A request failed and is sent again: {state.trouble.rstrip('.')}.")
        if state.waiting_s < _LONG_WAIT_S:
            self._is_waiting = False
        elif not self._is_waiting:
            self._is_waiting = True
            self._show.note(
                f"The server asks to wait {duration(state.waiting_s)}; nothing is sent until then."
            )
        if state.warning is not None and state.warning not in self.printed:
            self.printed.add(state.warning)
            self._show.note(state.warning)
        if state.stopping and state.in_flight and not self._is_stopping:
            self._is_stopping = True
            requests = "1 request" if state.in_flight == 1 else f"{state.in_flight} requests"
            self._show.note(f"Stopping: waiting for {requests} in flight. Ctrl-C stops at once.")


def estimated_usd(estimate: CostEstimate, prices: str) -> str:
    """Return an estimate's dollars in words."""
    if estimate.usd is None:
        return "no price known"
    return (
        f"{'at most' if estimate.at_most else 'about'} ${dollars(estimate.usd)} by price list"
        f" {prices}"
    )
