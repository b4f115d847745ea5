"""Publishing a recording: its page and picture, the search for secrets, and the release that is
pushed.

`release` puts them together; connections are opened by `feval.hub` alone. Names are loaded when
first used.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.publish.front_matter import Licence
    from feval.publish.release import (
        Changes,
        Release,
        RepositorySnapshot,
        changes,
        known_licence,
        look,
        prepare,
        prepare_results,
        push,
    )
    from feval.publish.scan import Finding

__all__ = [
    "Changes",
    "Finding",
    "Licence",
    "Release",
    "RepositorySnapshot",
    "changes",
    "known_licence",
    "look",
    "prepare",
    "prepare_results",
    "push",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    # `release` has all of them but one
    {"release": " ".join(__all__), "scan": "Finding"},
)
