"""Where feval keeps what can be fetched, or found out, again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


def cache_folder() -> Path:
    """Return the folder for what can be fetched again: FEVAL_CACHE, or `feval` in the platform's cache folder.

    That is XDG_CACHE_HOME where it is set, else ~/Library/Caches on macOS and ~/.cache elsewhere.
    """
    if own := os.environ.get("FEVAL_CACHE"):
        return Path(own).expanduser()
    platform = os.environ.get("XDG_CACHE_HOME", "")
    if not Path(platform).is_absolute():  # as the XDG specification has it, a relative path does not count
        platform = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(platform).expanduser() / "feval"
