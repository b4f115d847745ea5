"""Import recordings that others made: layouts in TOML, modules for what no layout says, and
`import_recording`, which they share.

All read files into the columns of `feval.importers.source`. The shared part normalises answers,
counts tokens and writes. `docs/importing.md` is the user's guide, `docs/own-importer.md` says
how to add an importer.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.importers.conversion import IMPORTERS, import_recording
    from feval.importers.frames import from_dataframe
    from feval.importers.tables import understood

__all__ = ["IMPORTERS", "from_dataframe", "import_recording", "understood"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "conversion": "IMPORTERS import_recording",
        "frames": "from_dataframe",
        "tables": "understood",
    },
)
