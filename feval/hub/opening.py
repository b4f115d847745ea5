"""Open a recording by its place, without loading what the network needs unless the place is on the Hub."""

from __future__ import annotations

from pathlib import Path, PurePath

from feval import hub
from feval.hub.addresses import is_address
from feval.recording.reader import Recording, open_recording

__all__ = ["open_place"]


def open_place(place: str | PurePath) -> Recording:
    """Open a recording in a folder, or at an address on the Hub, from where files are fetched as they are needed.

    Raises:
        UsageError: not a valid address.
        HubError: it cannot be fetched.
        RecordingError: it cannot be read as a recording.
    """
    return hub.recordings.open_address(place) if is_address(place) else open_recording(Path(place))
