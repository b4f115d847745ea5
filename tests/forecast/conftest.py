"""The recording that most forecasts are made from."""

from __future__ import annotations

import pytest
from forecasts import toy

from feval.replay import LLM, Dataset


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, LLM]:
    return toy(tmp_path_factory.mktemp("forecast"))
