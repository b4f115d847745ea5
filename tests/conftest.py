"""Fixtures every test module shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real recordings and reference values that lies beside the checkout."""
    if not (SHARED / "real" / "README.md").is_file():
        reason = "the folder of real recordings (../shared beside the checkout) is absent"
        if os.environ.get("FEVAL_REQUIRE_SHARED"):
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED
