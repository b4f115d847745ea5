"""Loopback addresses, and whether a web page may be behind a request."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


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
def refusal(
    host: bytes | None, origin: bytes | None, site: bytes | None = None, *, only_loopback: bool
) -> str | None:
    """Return why a request is refused because a web page may have sent it; `None` if it is not
    refused.

    A page can send requests to loopback, too: its `Origin` gives it away, and after DNS rebinding
    its `Host`. An image or a link is asked for without `Origin`, but with `Sec-Fetch-Site`
    (`site`).
    """
    if (site == b"cross-site") if origin is None else not is_loopback(_host_of(origin)):
        return "Requests from web pages of other hosts are not answered."
    if only_loopback and host is not None and not is_loopback(_host_of(b"//" + host)):
        return "This server answers on loopback only; ask it as localhost or 127.0.0.1."
    return None


def _host_of(url: bytes) -> str:
    try:
        return urlsplit(url.decode("latin-1")).hostname or ""
    except ValueError:
        return ""
