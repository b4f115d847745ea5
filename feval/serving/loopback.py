"""Who may ask a service on this machine: what is loopback, whose pages and host names are refused, what a taken port says."""

from __future__ import annotations

import errno
import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from feval.errors import StorageError

__all__ = ["cannot_listen", "is_loopback", "refusal"]


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    host = host.strip("[]").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def refusal(host: str | None, origin: str | None, *, only_loopback: bool) -> str | None:
    """Say why a request is refused, because a page in a browser may have sent it; `None` where it is not.

    A page can send requests to loopback, too: its `Origin` gives it away, and after DNS rebinding its `Host`.

    Args:
        host: the header `Host`; `None` where there is none.
        origin: the header `Origin`; `None` where there is none.
        only_loopback: whether the service listens on loopback, so that no other host can be meant.
    """
    if origin is not None and not is_loopback(_host_of(origin)):
        return "Requests from web pages of other hosts are not answered."
    if only_loopback and not is_loopback(_host_of(f"//{'localhost' if host is None else host}")):
        return "This server answers on loopback only; ask it as localhost or 127.0.0.1."
    return None


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def cannot_listen(host: str, port: int, error: OSError | OverflowError) -> StorageError:
    """Return the error of a host and port that nothing can listen on: what was wrong, what to name instead."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    advice = "Name another --port, or 0 for any that is free."
    if isinstance(error, OSError) and error.errno not in {errno.EADDRINUSE, errno.EACCES}:
        advice = "Name a --host that is an address of this machine, such as 127.0.0.1."
    return StorageError(f"Nothing can listen on {host}, port {port}: {why}. {advice}")
