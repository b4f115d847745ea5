"""Users' own methods: callables, called in this process, and methods from files
(`FILE.py:FUNCTION`), which run in a worker process.

`calling` asks a callable. `host` starts a worker, on request in a sandbox, hands it a blinded
dataset and ends it at a time limit; `worker` is what runs there.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feval.errors import UsageError
from feval.evaluation import TIME_LIMIT
from feval.lazy import lazy_names
from feval.values import RecordLike

if TYPE_CHECKING:
    from feval.evaluation.user_methods.calling import (
        answers as answers,
        require_arguments as require_arguments,
    )
    from feval.evaluation.user_methods.host import MethodHost

__getattr__, __dir__ = lazy_names(__name__, {"calling": "answers require_arguments"})


@dataclass(frozen=True)
class MethodFile:
    """A user's method: a callable in a Python file, pinned by the sha256 of the file. It runs in a
    worker process.

    Attributes:
        path: of the file.
        function: name of the callable: a function, or a class that is instantiated.
        sandbox: whether the process runs in bubblewrap; see `sandbox`.
        settings: (name, value) of keyword arguments that the class, or each call of the function,
            is given; text becomes a number, a list or a word such as true unless the argument's
            type is `str`.
    """

    path: Path
    function: str
    sandbox: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def __name__(self) -> str:
        return self.function

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"

    @cached_property
    def source(self) -> bytes:
        """The file's bytes, read once: those that are hashed are those that run."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"The method's file {self.path} cannot be read: {error.strerror or error}."
            ) from error

    @property
    def source_sha256(self) -> str:
        """Sha256 of the file's bytes, in hex."""
        return hashlib.sha256(self.source).hexdigest()

    @cached_property
    def host(self) -> MethodHost:
        """What starts its process, when it is first needed, and asks it."""
        # naming a file starts no process
        from feval.evaluation.user_methods.host import MethodHost

        return MethodHost(
            self.path, self.function, self.source, self.settings, sandbox=self.sandbox
        )

    def having(self, settings: RecordLike) -> MethodFile:
        """Return the same source with other settings."""
        method = replace(self, settings=tuple(settings.items()))
        method.__dict__["source"] = self.source
        return method

    def started(self, time_limit: float | None = TIME_LIMIT) -> MethodFile:
        """Return it in a process of its own, which has run the file."""
        method = self.having(dict(self.settings))
        method.host.start(time_limit)
        return method

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "source": self.source}
        host = state.pop("host", None)
        # another process would have to learn again, perhaps something else
        if host is not None and host.training is not None:
            raise UsageError(
                f"What {self.function} has learnt stays in its process: take one worker."
            )
        return state


def learns(method: Any) -> bool:
    """Return whether a method has something left to learn, see `feval.methods.protocol.Learner`."""
    if isinstance(method, MethodFile):
        return method.host.learns()
    return hasattr(method, "fit") and not getattr(method, "fitted", False)
