"""One browser for all pages, which makes the tests that look at them slow ones."""

import io
import sys

import pytest
from chromium import CHROMIUM, tab


def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian's package is called chromium)")
    with tab(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard output a terminal, and returns it."""

    def opened():
        monkeypatch.setattr("sys.stdout", Terminal())
        return sys.stdout

    return opened
