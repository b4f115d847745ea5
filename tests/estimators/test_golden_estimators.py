"""Reference values of the vote estimators, by the calls of `golden_estimators`."""

import re

import pytest
from golden_estimators import CALLS
from places import SHARED, read_json

FILE = SHARED / "golden" / "estimators.json"
ENTRIES = read_json(FILE)["cases"] if FILE.exists() else []

CLAIMED = [entry for entry in ENTRIES if entry["fn"] in CALLS]

# Notes of some entries give parts of their value a wider tolerance: (note, part) -> (absolute,
# relative).
WIDER = {
    (r"atoms/weights tolerance 1e-7", r"[LU]_(atoms|weights)"): (1e-7, 0.0),
    (r"lam and kap: relative 1e-6", r"lam|kap"): (1e-6, 1e-6),
    (r"eta, gamma: relative 1e-7", r"eta|gamma"): (0.0, 1e-7),
}


def tolerance(entry, part):
    for (note, name), (absolute, relative) in WIDER.items():
        if re.search(note, entry.get("note", "")) and re.fullmatch(name, part):
            return {"abs": absolute, "rel": relative}
    stated = float(entry["tol"])
    return (
        {"abs": 0.0, "rel": stated}
        if entry["tol_kind"] == "relative"
        else {"abs": stated, "rel": 0.0}
    )


def same(result, expected, entry, part=""):
    """Every expected part is there: numbers within the tolerance, everything else exactly."""
    where = f"{entry['id']} {part}"
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in result, f"{where} lacks {key}"
            same(
                result[key],
                value,
                entry,
                part if isinstance(value, float) and key.isdigit() else key,
            )
    elif isinstance(expected, list):
        assert len(result) == len(expected), where
        for pair in zip(result, expected, strict=True):
            same(*pair, entry, part)
    elif isinstance(expected, float) or (isinstance(expected, int) and isinstance(result, float)):
        assert result == pytest.approx(expected, **tolerance(entry, part)), where
    else:
        assert result == expected, where


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["id"]) for entry in CLAIMED])
def test_reference_value(entry):
    same(CALLS[entry["fn"]](entry["inputs"]), entry["expected"], entry)


def test_every_reference_value_is_claimed(shared):
    assert (shared / "golden" / "estimators.json") == FILE
    unclaimed = {entry["fn"] for entry in ENTRIES if entry["fn"] not in CALLS}
    assert unclaimed == set(), "no call computes these golden functions"
    assert len(CLAIMED) >= 84
