"""The application: a request in, a reply out. It opens no connection and knows no web framework.

A door (the transport in this process, the server) makes a `Call` of what it received and sends the `Reply` on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from feval.prices import PriceList
    from feval.recording.reader import Recording

__all__ = ["Application", "Call", "Reply"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        method: "GET", "POST", ...
        path: percent-decoded once, without the query, such as "/v1/chat/completions" or "/run/NAME/v1/chat/completions".
        query: as it was sent, without the question mark.
        headers: names in lower case; of repeated ones the last.
        body: decoded from its transfer.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back.

    Attributes:
        status: of HTTP.
        headers: content-type among them, names as they are to be sent; those of the transfer are the door's.
        body: whole, or the events of a stream, one item each (`data: ...` and two line ends).
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Iterable[bytes]


class Application:
    """Answers requests in OpenAI's dialect from recordings. Safe to use from many threads."""

    @classmethod
    def open(
        cls,
        recording: str | Path | Recording | Sequence[str | Path | Recording] | None = None,
        *,
        datasets: str | Sequence[str] | None = None,
        llms: str | Sequence[str] | None = None,
        seed: int = 0,
        order: str = "seeded",
        recycle: bool = False,
        strict: bool = False,
        prices: str | Path | PriceList | None = None,
        billing: str = "once",
        ledger: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Open recordings for serving.

        Args:
            recording: what `feval.load` takes: a folder, an open recording, or several.
            datasets: only these; all that were recorded for `None`.
            llms: only these; all that were recorded for `None`.
            seed: what every draw is made from.
            order: of runs that name none: "seeded" (replicate 0) or "recorded".
            recycle: whether a used-up pool starts over, and what is handed out again is marked.
            strict: whether only requests that were recorded are answered.
            prices: as in `feval.load`.
            billing: as in `feval.load`.
            ledger: file to write every request to; `None` keeps the ledger in memory.
            resume: whether to go on where an existing ledger file ends.

        Raises:
            FevalError: whatever `feval.load` raises, and StorageError or ConflictError for a ledger file that cannot be used.
        """
        raise NotImplementedError

    def respond(self, call: Call) -> Reply:
        """Answer a request. What cannot be answered is an error reply in OpenAI's shape; nothing is raised."""
        raise NotImplementedError

    def ledger(self, run: str | None = None, *, detail: bool = False) -> dict[str, Any]:
        """What was handed out.

        Args:
            run: the name of one; `None` for all.
            detail: whether to list, as "asked", every question of the run: llm, dataset, question, requests, samples.

        Returns:
            For one run: "run", "replicate" (`None`: recorded order), "requests", "cots", "prompt_tokens", "output_tokens", "usd"
            (`None` where something has no price; "usd_missing" says why), "questions", "recycled" and "llms", name -> the same
            counts. For all: "recordings" (hashes), "seed", "order", "billing", "prices" and "runs", a list of the former.

        Raises:
            NotRecordedError: no such run has asked anything.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Write what is left of the ledger file and let go of it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
