"""The one place that talks to huggingface_hub: its client made, its failures turned into sentences, passing ones met again.

The texts of its errors hold addresses, and an address may hold a password or a signature; so none of them is shown, and what is
chained to an error of ours says only which class of error it was and where it stood.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from feval import __version__
from feval.errors import FevalError, HubError, StorageError

if TYPE_CHECKING:
    from huggingface_hub import HfApi

__all__ = ["WAITS_SECONDS", "Client", "TransientError", "is_offline", "public_endpoint", "without_addresses"]

WAITS_SECONDS = (1.0, 4.0)
"""Before the second and the third attempt."""

_LONGEST_WAIT_SECONDS = 30.0
_DISK_SAYS_NO = {errno.EACCES, errno.EDQUOT, errno.EPERM, errno.ENOSPC, errno.EROFS}
_HTTP_LOGGERS = ("httpcore", "httpcore2", "httpx", "httpx2")
_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class TransientError(Exception):
    """A failure that another attempt may not meet again.

    Args:
        sentence: what happened, for the case that it was the last attempt.
        wait_seconds: how long the Hub asks us to wait; `None` where it does not say.
        broken: whether bytes were lost on the way, which the client does not always meet by itself.
    """

    def __init__(self, sentence: str, wait_seconds: float | None = None, *, broken: bool = False) -> None:
        super().__init__(sentence)
        self.wait_seconds = wait_seconds
        self.broken = broken


class StaleParentError(Exception):
    """Somebody else committed in between (HTTP 412)."""


class ExistsError(Exception):
    """What was to be made is there already (HTTP 409)."""


@dataclass(frozen=True, slots=True)
class Client:
    """huggingface_hub, asked about one thing.

    Attributes:
        repository: "namespace/name" of a dataset repository.
        failed: makes the error from a reason (half a sentence) and an advice (half a sentence, capitalised).
        disk_failed: makes the error from what the disk said.
        wrong_name: what to do where the Hub knows no such repository or commit.
        token: of the user; `None` takes the one huggingface_hub finds.
        endpoint: address of another Hub; `None` takes HF_ENDPOINT, or else the public one.
    """

    repository: str
    failed: Callable[[str, str], HubError]
    disk_failed: Callable[[str], StorageError]
    wrong_name: str = "Correct the card"
    token: str | None = field(default=None, repr=False)
    endpoint: str | None = field(default=None, repr=False)

    def api(self) -> HfApi:
        """huggingface_hub's client."""
        from huggingface_hub import HfApi

        endpoint = self.endpoint or os.environ.get("HF_ENDPOINT") or None
        return HfApi(endpoint=endpoint, token=self.token, library_name="feval", library_version=__version__)

    @property
    def host(self) -> str:
        """The name of the Hub's host, which is all that is shown of its address."""
        return host_of(self.endpoint)

    def attempts(self, work: Callable[[], _Result], most: int = 3) -> _Result:
        """Do some work; a failure that may pass is met by another attempt.

        Args:
            work: what to do.
            most: the most attempts.

        Raises:
            HubError: the network is off, or the last attempt failed as well.
        """
        if is_offline():
            raise self.failed("the network is off (HF_HUB_OFFLINE)", "Unset HF_HUB_OFFLINE once")
        for wait in (*WAITS_SECONDS[: most - 1], None):
            try:
                with _QUIET:
                    return work()
            except TransientError as error:
                if wait is None:
                    raise self.failed(str(error), "Try later") from error
                asked = error.wait_seconds
                _LOG.info("%s: %s; trying again.", self.repository, error)
                time.sleep(wait if asked is None else min(max(wait, asked), _LONGEST_WAIT_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def errors(self, *, client_retries: bool = False) -> Iterator[None]:
        """Turn what the client raises into a sentence of ours.

        Args:
            client_retries: whether the client has made several attempts by itself before it raises; then we make no more.
        """
        # A failure of our own passes; the client's are OSErrors for the most part, and those of its HTTP library HTTPErrors.
        try:
            yield
        except (FevalError, TransientError, StaleParentError, ExistsError):
            raise
        except Exception as error:
            ours = self._translated(error, client_retries=client_retries)
            if ours is None:
                raise
            raise ours from without_addresses(error)

    def _translated(self, error: Exception, *, client_retries: bool) -> Exception | None:
        from huggingface_hub import errors as hub

        if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):
            # So the client wraps what happened in a thread that uploads.
            return self._translated(error.__cause__, client_retries=client_retries)
        if isinstance(error, hub.GatedRepoError):
            return self.failed(
                "its owners let in only people who asked",
                f"Ask for access at https://huggingface.co/datasets/{self.repository}, log in with `hf auth login`, "
                "and try again",
            )
        if isinstance(error, hub.RevisionNotFoundError):
            return self.failed("the Hub has the repository but no such commit", self.wrong_name)
        if isinstance(error, hub.RepositoryNotFoundError):
            return self.failed(
                "the Hub shows no such repository",
                f"{self.wrong_name} if the name is wrong; if the repository is private, log in with `hf auth login`",
            )
        if isinstance(error, hub.LocalEntryNotFoundError):
            # So the client says that it could not ask for a file; why, its cause knows.
            return self._client_error(error.__cause__ or error, client_retries=client_retries)
        if isinstance(error, hub.EntryNotFoundError):
            return self.failed("the Hub lists a file and does not have it", "Try later")
        if isinstance(error, hub.OfflineModeIsEnabled):
            return self.failed("the network is off (HF_HUB_OFFLINE)", "Unset HF_HUB_OFFLINE once")
        if isinstance(error, (OSError, hub.HTTPError)):  # type: ignore[attr-defined]  # from httpx or httpx2
            return self._client_error(error, client_retries=client_retries)
        if isinstance(error, hub.HFValidationError):
            return self.failed("no repository can have that name", self.wrong_name)
        if isinstance(error, (AttributeError, KeyError, TypeError, ValueError)):
            return self.failed("what came back is no answer of a Hub", "Check HF_ENDPOINT, if you set it")
        return None

    def _client_error(self, error: BaseException, *, client_retries: bool) -> Exception:
        found = self._cause(error)
        if client_retries and isinstance(found, TransientError) and not found.broken:
            return self.failed(str(found), "Try later")
        return found

    def _cause(self, error: BaseException) -> Exception:
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(error, OSError) and error.errno in _DISK_SAYS_NO:
            return self.disk_failed(str(error.strerror))
        classes = {each.__name__ for each in type(error).__mro__}
        if isinstance(status, int):
            return self._status_error(status, getattr(response, "headers", {}))
        if "TimeoutException" in classes or isinstance(error, TimeoutError):
            return TransientError(
                "the Hub did not answer in time (HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT say how long)"
            )
        if "ConnectError" in classes or "ProxyError" in classes:
            return self.failed("the Hub cannot be reached", "Check the network (and HF_ENDPOINT, if you set it)")
        if "Consistency check failed" in str(error) or "HTTPError" in classes:
            return TransientError(f"the connection to the Hub broke ({type(error).__name__})", broken=True)
        return self.failed(f"the client failed ({type(error).__name__})", "Check HF_ENDPOINT, if you set it")

    def _status_error(self, status: int, headers: Any) -> Exception:
        if status == 412:
            return StaleParentError()
        if status == 409:
            return ExistsError()
        if status == 429 or status >= 500:
            reason = "asks for fewer requests" if status == 429 else "has a problem of its own"
            asked = str(headers.get("Retry-After", ""))
            seconds = float(asked) if re.fullmatch("[0-9]{1,6}", asked) else None
            return TransientError(f"the Hub {reason} (HTTP {status})", seconds)
        advice = (
            "Log in with `hf auth login`, and check that the token is valid" if status in {401, 403} else "Try later"
        )
        return self.failed(f"the Hub refuses (HTTP {status})", advice)


def host_of(endpoint: str | None = None) -> str:
    """The host of a Hub, without the user and password that its address may hold."""
    return urlsplit(endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").hostname or "its address"


def public_endpoint(endpoint: str | None = None) -> str:
    """The address of a Hub, without the user and password that it may hold."""
    parts = urlsplit(endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def without_addresses(error: BaseException) -> Exception:
    """The error as one may show it: its class, its status, where it was raised; not its text."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    said = f"{type(error).__module__}.{type(error).__name__}" + (f", HTTP {status}" if status else "")
    cause = error.__cause__
    kept = RuntimeError(f"{said} (its text is left out: it may hold addresses)")
    if cause is not None and cause is not error:
        kept.__cause__ = RuntimeError(f"{type(cause).__module__}.{type(cause).__name__}")
    return kept.with_traceback(None)


def is_offline() -> bool:
    """Whether the user wants no network."""
    from huggingface_hub import constants

    # The client reads the variable when it is imported; we also honour one that was set later.
    return constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


class _Quiet:
    """The client's progress bars and remarks, kept off standard error as long as anybody is in here.

    They are not ours, and remarks hold addresses. Several threads may ask the Hub at once: the first to come hushes the client,
    the last to leave lets it speak again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._hush()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._undo.close()

    def _hush(self) -> None:
        from huggingface_hub.constants import HF_HUB_DISABLE_PROGRESS_BARS
        from huggingface_hub.utils.logging import get_verbosity, set_verbosity
        from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

        self._undo.callback(set_verbosity, get_verbosity())
        set_verbosity(logging.CRITICAL)
        for name in _HTTP_LOGGERS:
            logger = logging.getLogger(name)
            self._undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.WARNING)
        if HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled():
            self._undo.callback(enable_progress_bars)
            disable_progress_bars()


_QUIET = _Quiet()
