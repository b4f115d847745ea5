"""Where the repository's folders are, and cases that lie there as data."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SUPPORT = ROOT / "tests" / "support"
SHARED = ROOT.parent / "shared"


def read_data(name):
    """Return what a JSON file of tests/data holds."""
    return read_json(DATA / name)


def read_json(path):
    """What a file of JSON holds."""
    return json.loads(path.read_text("utf-8"))


def forge(path, place, value):
    """Change one value of a file of JSON, at a place such as "request.plan.seed"."""
    content = inner = read_json(path)
    *way, last = (int(each) if each.isdecimal() else each for each in place.split("."))
    for each in way:
        inner = inner[each]
    inner[last] = value
    path.write_text(json.dumps(content))
