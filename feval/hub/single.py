"""One small file of a repository, such as a receipt: fetched into the Hub's cache, and read from there afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePath

from feval.errors import UsageError
from feval.hub.addresses import parse_address
from feval.hub.snapshots import open_snapshot

__all__ = ["fetch_file"]


def fetch_file(place: str | PurePath, *, most_bytes: int) -> Path:
    """Fetch a file by its address, with the bytes that the Hub says it has.

    Args:
        place: hf://namespace/name@revision/path; a branch warns.
        most_bytes: the most that it may have.

    Raises:
        UsageError: no address of a file.
        HubError: it is not there, is larger, or cannot be had.
    """
    address = parse_address(place)
    folder, _, name = address.path.rpartition("/")
    if not name:
        raise UsageError(f"{address} is a repository; name a file in it, such as {address}/results/NAME/receipt.json.")
    return open_snapshot(replace(address, path=folder), name, most_bytes=most_bytes).folder / name
