"""Where the repository's folders are, and cases that lie there as data."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SUPPORT = ROOT / "tests" / "support"
SHARED = ROOT.parent / "shared"


def read_data(name):
    """Return what a JSON file of tests/data holds."""
    return json.loads((DATA / name).read_text("utf-8"))
