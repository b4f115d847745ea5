"""What a run of the engine asks for: one protocol for recording samples and for scoring them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from recorders.asking.budget import Budget
from recorders.errors import Refused
from recorders.journal.appendlog import AppendLog

Batch = TypeVar("Batch")
"""What goes into one request."""

Reply = TypeVar("Reply")
"""What comes back."""


class TokenEstimate(NamedTuple):
    """Tokens that a request should take: of its prompt, of the reply as expected, and of the
    longest reply possible.
    """

    prompt: float
    output: float
    longest_output: float


class Assignment(ABC, Generic[Batch, Reply]):
    """What the engine asks for, batch by batch: how to send a batch, journal its reply and count
    its cost.

    The engine calls all methods in its event loop; only `journal.commit` runs in another thread.
    `has_replies` says that an earlier run was answered, so that a refusal is not likely to be our
    own mistake; `concurrency` and `timeout_s` may be narrower than the limits.
    """

    ACTIVITY: ClassVar[str]
    """What is done, such as "Recording", for messages."""
    DONE: ClassVar[str]
    """What has happened to finished items, such as "recorded", for messages."""
    unit: str = "CoTs"
    """What is counted, for messages."""

    journal: AppendLog[Any, Any]
    budget: Budget
    total: int
    has_replies: bool
    concurrency: int | None = None
    timeout_s: float | None = None
    warning: str | None = None

    @property
    @abstractmethod
    def done(self) -> int:
        """How many of the wanted items need no more asking."""

    @abstractmethod
    def next_batch(self) -> Batch | None:
        """Take the next batch out of the queue; `None` if it is empty."""

    @abstractmethod
    def put_back(self, batch: Batch) -> None:
        """Return a batch that was not sent to the front of the queue."""

    @abstractmethod
    def label(self, batch: Batch) -> str:
        """Return text that tells batches apart."""

    @abstractmethod
    def estimate(self, batch: Batch) -> TokenEstimate:
        """Return the tokens that a batch should take."""

    @abstractmethod
    async def send(self, batch: Batch) -> Reply:
        """Send a batch once; a `BackendError` says why it brought no reply."""

    @abstractmethod
    def pay(self, batch: Batch, reply: Reply) -> float:
        """Charge the budget for a reply, and return the tokens it took."""

    @abstractmethod
    def accept(self, batch: Batch, reply: Reply) -> None:
        """Hand a reply to the journal; put what is still missing of the batch back into the
        queue.
        """

    @abstractmethod
    def refuse(self, batch: Batch, error: Refused) -> None:
        """Journal that a batch was refused."""

    def withdraw(self, batch: Batch) -> None:
        """Move into a refused batch what is queued of the same request, which would be refused
        alike.
        """

    def before_commit(self) -> None:
        """Hand to the journal what else the next commit should write."""

    def notes(self) -> list[str]:
        """Return what was unusual, in sentences."""
        return []
