"""Files for `--settings`."""

from __future__ import annotations

from pathlib import Path


def settings_file(folder: Path, *lines: str) -> tuple[str, str]:
    """Options that name a new file with these lines of TOML; none without lines."""
    path = folder / "settings.toml"
    path.write_text("".join(f"{line}\n" for line in lines))
    return "--settings", str(path)
