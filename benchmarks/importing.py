"""Importing the reference package's zip against the baseline's own load of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms


def goals(workspace: Workspace) -> list[Goal]:
    """One LLM: read, make canonical, compress, hash and seal, against read."""
    from feval.importers import import_recording

    archive, names = workspace.archive(1), reference.LLM_NAMES[:1]

    def import_once() -> None:
        with tempfile.TemporaryDirectory(dir=workspace.folder) as folder:
            import_recording(
                "feval-ttc", archive, Path(folder) / "recording", dataset=reference.DATASET
            )

    ms = cpu_ms({"load": lambda: reference.load(archive, names), "import": import_once})
    note = f"{ms['import']:.0f} ms against {ms['load']:.0f} ms"
    return [
        Goal(
            "import of the reference's zip over its load",
            ms["import"] / ms["load"],
            2,
            "x",
            note=note,
        )
    ]
