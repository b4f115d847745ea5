"""The recording that most forecasts are made from."""

import pytest
from forecasts import toy


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    return toy(tmp_path_factory.mktemp("forecast"))
