"""Recordings by their place: a local folder, or an address on the Hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

from feval.hub.addresses import is_address
from feval.recording import Recording, open_recording


def open_place(place: str | PurePath) -> Recording:
    """Open a recording in a folder or on the Hub; files on the Hub are fetched when they are first
    read.

    Raises:
        UsageError: not a valid address.
        HubError: it cannot be fetched.
        RecordingError: it cannot be read as a recording.
    """
    if not is_address(place):
        return open_recording(Path(place))
    from feval.hub.recordings import open_remote  # huggingface_hub takes half a second to load

    return open_remote(place)[0]


def local_folder(place: str | PurePath, progress: Callable[[int, int], None] | None = None) -> Path:
    """Return the folder of a recording; a recording on the Hub is fetched whole into the cache.

    Raises:
        HubError, RecordingError: as for `open_place`.
    """
    if not is_address(place):
        return Path(place)
    from feval.hub.recordings import pull  # as above

    return pull(place, progress=progress).folder
