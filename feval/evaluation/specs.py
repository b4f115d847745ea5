"""Methods by name: from a name and fields as text or TOML give them, to a method; and methods from a user's file.

Nothing is registered: a name is a key of `METHODS`, or `FILE.py:FUNCTION`.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from importlib.util import module_from_spec, spec_from_file_location
from inspect import getdoc
from pathlib import Path
from typing import Any, NoReturn

from feval.errors import UnknownNameError, UsageError
from feval.evaluation.oracle import Oracle
from feval.evaluation.user_methods import contained
from feval.methods import METHODS
from feval.methods.fields import field_value, takes

__all__ = ["MethodFile", "field_names", "make_method", "method_fields", "parse_settings"]

_LOADING_SECONDS = 600.0
"""A file may load something large when it is imported."""


@dataclass(frozen=True)
class MethodFile:
    """A user's method: a callable in a Python file, pinned by the sha256 of the file.

    Attributes:
        path: of the file.
        function: its name there.
    """

    path: Path
    function: str
    _module: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def __name__(self) -> str:
        return self.function

    @cached_property
    def source_sha256(self) -> str:
        """Of the file's bytes, in hex."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"The method's file {self.path} cannot be read: {error.strerror or error}.") from error

    def load(self) -> Any:
        """The callable itself; runs the file once.

        Raises:
            UsageError: no such file, or nothing callable of that name in it.
            MethodError: the file raised.
        """
        if "callable" not in self._module:
            self._module["callable"] = self._loaded()
        return self._module["callable"]

    def __call__(self, question: str, *llms: Any) -> Any:
        """The user's answer."""
        return self.load()(question, *llms)

    def fit(self, pools: Sequence[Any], gold: Any) -> MethodFile:
        """The same file with what its method learnt; see `feval.methods.protocol.Learner.fit`."""
        learnt = MethodFile(self.path, self.function)
        learnt.__dict__["source_sha256"] = self.source_sha256
        learnt._module.update(callable=self.load().fit(pools, gold), learnt=True)
        return learnt

    def __getstate__(self) -> dict[str, Any]:
        if "learnt" in self._module:  # another process runs the file anew, and would have learnt nothing
            raise UsageError(f"What {self.function} has learnt stays in this process; take one worker.")
        return {"path": self.path, "function": self.function}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in (*state.items(), ("_module", {})):
            object.__setattr__(self, name, value)

    def _loaded(self) -> Any:
        pinned = self.source_sha256
        name = f"feval_method_{pinned[:16]}"
        spec = spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{self.path} is no Python file; a user's method is FILE.py:FUNCTION.")
        module = module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        with contained(f"The file {self.path}", _LOADING_SECONDS):
            spec.loader.exec_module(module)
        found = getattr(module, self.function, None)
        if not callable(found):
            names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
            raise UnknownNameError.of("callable", self.function, names, f"It should be defined in {self.path}.")
        if not isinstance(found, type):
            return found
        with contained(f"The class {self.function} of {self.path}", _LOADING_SECONDS):
            return found()


def make_method(name: str, settings: Mapping[str, Any] | None = None) -> Any:
    """A method by its name.

    Args:
        name: a key of `METHODS`, or `FILE.py:FUNCTION` for a user's own.
        settings: fields that differ from the defaults. Text is read as the field's type wants it.

    Raises:
        UnknownNameError: no such method or field; the message names the nearest.
        UsageError: a value of the wrong type, or fields for a user's method.
        OutOfRangeError: the method refuses a value.
    """
    settings = settings or {}
    if ":" in name:
        path, _, function = name.rpartition(":")
        if not function:
            raise UsageError(f"{name!r} names no function of the file; a user's method is FILE.py:FUNCTION.")
        if settings:
            raise UsageError(f"{name} is a user's method, which has no fields; {', '.join(settings)} cannot be set.")
        if not Path(path).is_file():
            raise UsageError(f"There is no file {path!r}; a user's method is named FILE.py:FUNCTION.")
        return MethodFile(Path(path), function)
    if name == "path-consistency":
        raise UsageError(
            "Path-Consistency (arXiv 2409.01281) cannot be replayed: its later CoTs are generated from prefixes of earlier ones, "
            "and a recording holds CoTs that were drawn independently. Anything replayed under its name would be another method."
        )
    if name not in (*METHODS, "oracle"):
        raise UnknownNameError.of("method", name, (*METHODS, "oracle"), "A user's own is named FILE.py:FUNCTION.")
    kind = METHODS.get(name, Oracle)
    known = {f.name for f in fields(kind) if f.init}
    for setting in settings:
        if setting not in known:
            raise UnknownNameError.of("field", setting, known, f"These are the fields of {name}.")
    return kind(**{key: _fitting(kind, key, value) for key, value in settings.items()})


def field_names(name: str) -> list[str]:
    """The fields of a built-in method or of the oracle, in order.

    Raises:
        UnknownNameError: no such method.
    """
    if name not in (*METHODS, "oracle"):
        raise UnknownNameError.of("method", name, (*METHODS, "oracle"))
    return [f.name for f in fields(METHODS.get(name, Oracle)) if f.init]


def method_fields(name: str) -> list[dict[str, Any]]:
    """What can be set of a built-in method: for each field its name, default, the values it takes and what it means.

    Raises:
        UnknownNameError: no such method.
    """
    names = field_names(name)
    kind = METHODS.get(name, Oracle)
    about = _attributes(getdoc(kind) or "")
    defaults = {f.name: f.default for f in fields(kind)}
    return [
        {
            "field": field,
            "default": None if defaults[field] is MISSING else defaults[field],
            "takes": takes(kind, field),
            "about": about.get(field, ""),
        }
        for field in names
    ]


def _attributes(documentation: str) -> dict[str, str]:
    """What the section "Attributes:" says of each; a line that is indented further goes on with the one before."""
    said: dict[str, str] = {}
    _, _, section = documentation.partition("Attributes:\n")
    for line in section.split("\n\n")[0].splitlines():
        key, colon, text = line.strip().partition(": ")
        if colon and line.startswith("    ") and not line.startswith("     "):
            said[key] = text
        elif said:
            said[[*said][-1]] += f" {line.strip()}"
    return said


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Read FIELD=VALUE pairs.

    Raises:
        UsageError: one is no such pair, or a field comes twice.
    """
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"A field is set by FIELD=VALUE, such as --set n=20; {pair!r} was given.")
        if key.strip() in settings:
            raise UsageError(f"The field {key.strip()!r} is set twice.")
        settings[key.strip()] = value.strip()
    return settings


def _fitting(kind: type[Any], name: str, value: Any) -> Any:
    """The value, as one of the types that a field takes. A list of one may be given as its only value."""
    readings = _readings(value)
    return field_value(kind, name, [*readings, *([reading] for reading in readings)], value)


def _readings(value: Any) -> list[Any]:
    """A text may stand for nothing, true, false, a number or a list; where the field takes text, the text itself counts last."""
    if not isinstance(value, str):
        return [value]
    if value.lower() in {"none", "null"}:
        return [None, value]
    if value.lower() in {"true", "false"}:
        return [value.lower() == "true", value]
    readings: list[Any] = []
    try:
        readings.append(_parsed(value))
    except ValueError:
        if "," in value:
            readings.append([_number_or_text(piece.strip()) for piece in value.strip("()").split(",") if piece.strip()])
    return [*readings, value]


def _number_or_text(piece: str) -> Any:
    try:
        return _parsed(piece)
    except ValueError:
        return piece


def _parsed(text: str) -> Any:
    """JSON, or an infinity. What is not a number is none: no field takes it."""
    if text.lower().lstrip("+-") in {"inf", "infinity"}:
        return float(text)
    return json.loads(text, parse_constant=_refuse)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)
