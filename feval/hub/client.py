"""The only module that makes a huggingface_hub client: its failures become sentences, passing ones
are tried again.

Texts of its errors contain addresses, which may contain a password. None is shown: errors chained
to ours keep class and status.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import platformdirs
from huggingface_hub import HfApi, constants, errors as hub_errors
from huggingface_hub.utils.logging import get_verbosity, set_verbosity
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

from feval import __version__
from feval.cards.reading import open_regular
from feval.errors import FevalError, HubError, StorageError
from feval.values import frozen

WAITS_SECONDS = (1.0, 4.0)
"""Waits before the second and the third attempt."""

_LONGEST_WAIT_SECONDS = 30.0
_DISK_ERRORS = {errno.EACCES, errno.EDQUOT, errno.EPERM, errno.ENOSPC, errno.EROFS}
_HTTP_LOGGERS = ("httpcore", "httpcore2", "httpx", "httpx2")
# The client's wrappers of what happened in a thread that uploads, while asking for a file, or for a
# revision.
_WRAPPERS = (RuntimeError, hub_errors.LocalEntryNotFoundError, hub_errors.RevisionResolutionError)
_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class TransientError(Exception):
    """A failure that another attempt may not meet again.

    `wait_seconds` is how long the Hub asks us to wait.
    """

    def __init__(self, sentence: str, wait_seconds: float = 0) -> None:
        super().__init__(sentence)
        self.wait_seconds = wait_seconds


class StaleParentError(Exception):
    """Somebody else committed in between (HTTP 412)."""


@frozen
class Client:
    """huggingface_hub for one dataset repository, with errors that name what was asked.

    `undone` begins the sentence of its errors ("X could not be fetched from"), `besides` ends it,
    and `remedy` the advice; `disk` are what could not be done on this disk, and the advice;
    `wrong_name` is the advice where the Hub knows no such repository or commit; `folder` is the
    cache, `None` for the one of huggingface_hub.
    """

    repository: str
    undone: str
    disk: tuple[str, str]
    wrong_name: str
    besides: str = ""
    remedy: str = ""
    folder: Path | None = None

    def failed(self, reason: str, advice: str) -> HubError:
        """Return the error with a reason and an advice, half a sentence each."""
        return HubError(
            f"{self.undone} the Hub ({self.host}): {reason}{self.besides}. {advice}{self.remedy}."
        )

    def disk_failed(self, error: OSError) -> StorageError:
        """Return the error for one of this machine's disk."""
        what, advice = self.disk
        return StorageError(f"{what}: {error.strerror or error}. {advice}.")

    @property
    def cache(self) -> str:
        """The folder that files at a commit are fetched to."""
        return str(self.folder or constants.HF_HUB_CACHE)

    def api(self) -> HfApi:
        """Return huggingface_hub's client."""
        endpoint = os.environ.get("HF_ENDPOINT") or None
        return HfApi(endpoint=endpoint, library_name="feval", library_version=__version__)

    @property
    def host(self) -> str:
        """Host name of the Hub: the only part of its address that is shown."""
        return urlsplit(public_endpoint()).hostname or "its address"

    def attempts(self, work: Callable[[], _Result], most: int = 3) -> _Result:
        """Do some work, again after a failure that may pass.

        Raises:
            HubError: the network is off, or the last attempt failed too.
        """
        if is_offline():
            raise self.offline()
        for wait in (*WAITS_SECONDS[: most - 1], None):
            try:
                with _QUIET:
                    return work()
            except TransientError as error:
                if wait is None:
                    raise self.failed(str(error), "Try later") from error
                _LOG.info("%s: %s; trying again.", self.repository, error)
                time.sleep(min(max(wait, error.wait_seconds), _LONGEST_WAIT_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what the client raises into our errors."""
        try:
            yield
        except (FevalError, TransientError, StaleParentError):
            raise
        except Exception as error:
            ours = self._translated(error)
            if ours is None:
                raise
            raise ours from without_addresses(error)

    def offline(self) -> HubError:
        """Return the error for a network that is switched off."""
        return self.failed("the network is off (HF_HUB_OFFLINE)", "Unset HF_HUB_OFFLINE once")

    def _translated(self, error: Exception) -> Exception | None:
        if isinstance(error, _WRAPPERS) and isinstance(error.__cause__, Exception):
            return self._translated(error.__cause__)
        ask = (
            f"Ask for access at https://huggingface.co/datasets/{self.repository}, log in with `hf"
            " auth login`, and try again"
        )
        log_in = (
            f"{self.wrong_name} if the name is wrong; if the repository is private, log in with `hf"
            " auth login`"
        )
        gone = "the Hub has the repository but no such commit"
        for kind, reason, advice in (
            (hub_errors.GatedRepoError, "access to it is restricted", ask),
            (hub_errors.RevisionNotFoundError, gone, self.wrong_name),
            (hub_errors.RepositoryNotFoundError, "the Hub shows no such repository", log_in),
            (hub_errors.RemoteEntryNotFoundError, "the Hub lists a file it has not", "Try later"),
            (hub_errors.HFValidationError, "no repository can have that name", self.wrong_name),
        ):
            if isinstance(error, kind):
                return self.failed(reason, advice)
        if isinstance(error, hub_errors.OfflineModeIsEnabled):
            return self.offline()
        # OSError covers most of the client's errors; HTTPError is that of its HTTP library, httpx
        # or httpx2.
        if isinstance(error, OSError | hub_errors.HTTPError):  # type: ignore[attr-defined]  # re-exported, and not declared so
            return self._http_error(error)
        if isinstance(error, AttributeError | KeyError | TypeError | ValueError):
            return self.failed(
                "the answer is not that of a Hub", "Check HF_ENDPOINT, if you set it"
            )
        return None

    def _http_error(self, error: Exception) -> Exception:
        response = getattr(error, "response", None)
        status = getattr(response, "status_code", None)
        if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
            return self.disk_failed(error)
        if isinstance(status, int):
            return self._status_error(status, getattr(response, "headers", {}))
        classes = {each.__name__ for each in type(error).__mro__}
        if "TimeoutException" in classes or isinstance(error, TimeoutError):
            return TransientError(
                "the Hub did not answer in time (HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT"
                " say how long)"
            )
        if "ConnectError" in classes or "ProxyError" in classes:
            return self.failed(
                "the Hub cannot be reached", "Check the network (and HF_ENDPOINT, if you set it)"
            )
        if "Consistency check failed" in str(error) or "HTTPError" in classes:
            return TransientError(f"the connection to the Hub broke ({type(error).__name__})")
        return self.failed(
            f"the client failed ({type(error).__name__})", "Check HF_ENDPOINT, if you set it"
        )

    def _status_error(self, status: int, headers: Any) -> Exception:
        if status == 412:
            return StaleParentError()
        if status == 429 or status >= 500:
            reason = "asks for fewer requests" if status == 429 else "has a problem of its own"
            wait = str(headers.get("Retry-After", ""))
            seconds = float(wait) if re.fullmatch("[0-9]{1,6}", wait) else 0
            return TransientError(f"the Hub {reason} (HTTP {status})", seconds)
        advice = (
            "Log in with `hf auth login`, and check that the token is valid"
            if status in {401, 403}
            else "Try later"
        )
        return self.failed(f"the Hub refuses (HTTP {status})", advice)


def public_endpoint() -> str:
    """Return the address of the Hub without any user and password in it."""
    parts = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def without_addresses(error: BaseException) -> Exception:
    """Return a stand-in for an error that is safe to show: its class and HTTP status without its
    text.
    """
    status = getattr(getattr(error, "response", None), "status_code", None)
    kind, shown = type(error), f", HTTP {status}" if status else ""
    stand_in = RuntimeError(
        f"{kind.__module__}.{kind.__name__}{shown} (its text is left out: it may contain addresses)"
    )
    if error.__cause__ is not None:
        stand_in.__cause__ = without_addresses(error.__cause__)
    return stand_in


def is_offline() -> bool:
    """Return whether the user has switched the network off."""
    # The client reads the variable when it is imported; we also honour one that was set later.
    word = os.environ.get("HF_HUB_OFFLINE", "").upper()
    return constants.HF_HUB_OFFLINE or word in constants.ENV_VARS_TRUE_VALUES


class _Quiet:
    """Silences the client's progress bars and log lines, which may contain addresses, while any
    thread is inside.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._silence()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._undo.close()

    def _silence(self) -> None:
        self._undo.callback(set_verbosity, get_verbosity())
        set_verbosity(logging.CRITICAL)
        for name in _HTTP_LOGGERS:
            logger = logging.getLogger(name)
            self._undo.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.WARNING)
        if constants.HF_HUB_DISABLE_PROGRESS_BARS is None and not are_progress_bars_disabled():
            self._undo.callback(enable_progress_bars)
            disable_progress_bars()


_QUIET = _Quiet()


@frozen
class RepoFile:
    """Size in bytes and hash of a file as the Hub states them.

    A small file, stored in git itself, has no `sha256`; `blob_id` is git's hash of the file, or of
    its pointer.
    """

    size: int
    sha256: str | None
    blob_id: str | None

    def holds(self, content: Path | bytes) -> bool:
        """Return whether a file, or bytes, is exactly this file; an unreadable file raises
        `OSError`.
        """
        if isinstance(content, Path):
            with open_regular(content) as file:
                if file.seek(0, os.SEEK_END) != self.size:
                    return False
                file.seek(0)
                if self.sha256 is not None:
                    return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
                content = file.read()
        if len(content) != self.size:
            return False
        if self.sha256 is not None:
            return hashlib.sha256(content).hexdigest() == self.sha256
        blob = hashlib.sha1(b"blob %d\0" % self.size + content, usedforsecurity=False)
        return blob.hexdigest() == self.blob_id


def cache_folder() -> Path:
    """Return the folder for what can be fetched again: FEVAL_CACHE, or `feval` in the platform's
    cache folder.
    """
    folder = os.environ.get("FEVAL_CACHE")
    return Path(folder).expanduser() if folder else platformdirs.user_cache_path("feval")
