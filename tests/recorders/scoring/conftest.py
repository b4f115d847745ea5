"""Fixtures of the scoring tests."""

import json
import sys

import pytest
from scoring_doubles import FUNCTIONS, GOLDS, POOLS, PRICES
from small import write_toy


@pytest.fixture
def toy(tmp_path):
    """A recording of two LLMs on two questions."""
    return write_toy(tmp_path / "toy", POOLS, GOLDS)


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """A module of scorers in the working folder."""
    name = "scorers_of_mine"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def prices(tmp_path):
    """A price list with the judge's model."""
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(PRICES))
    return str(path)
