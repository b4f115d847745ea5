"""A user's method in a Python file, named `FILE.py:FUNCTION`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from feval.errors import UsageError
from feval.evaluation.user_methods.calling import TIME_LIMIT, MethodAnswer
from feval.methods.protocol import Rows

if TYPE_CHECKING:
    from feval.evaluation.user_methods.process import MethodProcess, Training
    from feval.replay.dataset import Dataset
    from feval.replay.llm import LLM


@dataclass(frozen=True)
class MethodFile:
    """A user's method: a callable in a Python file, pinned by the sha256 of the file. It runs in a
    worker process.

    Attributes:
        path: of the file.
        function: name of the callable: a function, or a class that is instantiated without
            arguments.
        sandbox: whether the process runs in bubblewrap; see `sandbox`.
        training: what it has learnt from; `None` for nothing.
    """

    path: Path
    function: str
    sandbox: bool = False
    training: Training | None = None

    @property
    def __name__(self) -> str:
        return self.function

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
    def _process(self) -> MethodProcess:
        # naming a file starts no process
        from feval.evaluation.user_methods.process import MethodProcess

        return MethodProcess(self.path, self.function, self.source, sandbox=self.sandbox)

    def start(self, time_limit: float | None = TIME_LIMIT) -> None:
        """Run the file in its process, unless that was done; see `MethodProcess.start`."""
        self._process.start(time_limit)

    def learns(self) -> bool:
        """Return whether it has something left to learn; see `MethodProcess.learns`."""
        return self.training is None and self._process.learns()

    def require_arguments(self, llms: int) -> None:
        """Check that it can be called with a question and so many LLMs; see
        `MethodProcess.require_arguments`.
        """
        self._process.require_arguments(llms)

    def fitted(
        self, dataset: Dataset, llms: Sequence[LLM], rows: Rows, time_limit: float | None
    ) -> MethodFile:
        """Return the method after learning from some questions; see `MethodProcess.fit`."""
        training = dataset, llms, rows
        self._process.fit(training, time_limit)
        method = MethodFile(self.path, self.function, self.sandbox, training)
        method.__dict__.update(source=self.source, _process=self._process)
        return method

    def answers(
        self,
        dataset: Dataset,
        llms: Sequence[LLM],
        rows: Rows,
        replicate: int | None,
        time_limit: float | None,
        *,
        closely: bool = False,
    ) -> Iterator[MethodAnswer]:
        """Ask it some questions, and return its answers in the order of the rows; see
        `MethodProcess.answers`.

        It gets the questions in an order of their own: a recording may have them sorted by what is
        right.
        """
        order = np.argsort(dataset.question_keys[rows], kind="stable")
        given = self._process.answers(
            dataset, llms, rows[order], replicate, time_limit, self.training, closely=closely
        )
        by_place = dict(zip(order.tolist(), given, strict=True))
        return (by_place[place] for place in range(len(rows)))

    def end(self) -> None:
        """End its process, whatever that is doing."""
        self._process.end()

    def __getstate__(self) -> dict[str, Any]:
        # another process would have to learn again, perhaps something else
        if self.training is not None:
            raise UsageError(
                f"What {self.function} has learnt stays in its process; take one worker."
            )
        return {
            name: getattr(self, name)
            for name in ("path", "function", "sandbox", "training", "source")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def learns(method: Any) -> bool:
    """Return whether a method has something left to learn, see `feval.methods.protocol.Learner`."""
    if isinstance(method, MethodFile):
        return method.learns()
    return hasattr(method, "fit") and not getattr(method, "fitted", False)
