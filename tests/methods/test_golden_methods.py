"""Every reference value of methods, through the table of `golden_methods`."""

import json

import pytest
from golden_methods import GOLDENS, Real
from places import SHARED

FILE = SHARED / "golden" / "methods.json"
ENTRIES = json.loads(FILE.read_text("utf-8"))["goldens"] if FILE.exists() else []


@pytest.fixture(scope="module")
def real(shared):
    return Real(shared)


def call_of(name):
    prefixes = [prefix for prefix in GOLDENS if name.startswith(prefix)]
    assert prefixes, f"no call computes {name}"
    return GOLDENS[max(prefixes, key=len)]


def same(result, expected, tolerance, where):
    """Compare every expected part: numbers within the tolerance, everything else exactly."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            if key == "exact":  # the rational number behind the decimal one, which is compared
                continue
            assert key in result, f"{where} lacks {key}"
            same(result[key], value, tolerance, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(result) == len(expected), where
        for place, pair in enumerate(zip(result, expected, strict=True)):
            same(*pair, tolerance, f"{where}[{place}]")
    elif isinstance(expected, float):
        assert result == pytest.approx(expected, abs=tolerance, rel=tolerance), where
    else:
        assert result == expected, where


@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry["id"]) for entry in ENTRIES])
def test_reference_value(entry, real):
    result = call_of(entry["id"])(real, entry)
    same(result, entry["expected"], entry["tolerance"], entry["id"])


def test_every_reference_value_was_tried(shared):
    assert (shared / "golden" / "methods.json") == FILE
    assert len(ENTRIES) >= 73
