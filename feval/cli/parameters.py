"""Parameters that commands share: several options that arrive as one value."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

Command = Callable[..., None]
Decorator = Callable[[Command], Command]


def expanded(name: str, parameters: Sequence[inspect.Parameter], build: Callable[[dict[str, Any]], Any]) -> Decorator:
    """Make a decorator that puts parameters in place of the one of this name, which is built from their values."""

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            values = {parameter.name: arguments.pop(parameter.name) for parameter in parameters}
            command(**arguments, **{name: build(values)})

        every = [new for old in signature.parameters.values() for new in (parameters if old.name == name else [old])]
        every = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]  # Typer reads it
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return run

    return decorate


def keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """Make a keyword parameter."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
