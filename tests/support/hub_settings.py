"""The real client of the Hub, pointed to one double on loopback, without any of the user's own
settings.

`conftest.py` of a folder imports the fixtures `hub_server` and `hub`. One server and one client
session serve all tests of a run.
"""

import time
import traceback

import pytest
from hub_double import HubDouble
from huggingface_hub import close_session, constants

from feval.hub import client

TOKEN = "hf_MarkedTokenThatNobodyMaySee"  # noqa: S105  made up
VARIABLES = (
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "FEVAL_CARDS",
    "FEVAL_RECORDING",
)


class _NoWaiting:
    """The module `time`, for a client that should not wait before it tries again."""

    def __getattr__(self, name):
        return getattr(time, name)

    def sleep(self, _):
        """Return at once."""


def use(double, monkeypatch, tmp_path, *, token=TOKEN):
    """Point the client of this process to a double; its constants were read when it was
    imported.
    """
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "hf-home"
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(home / "stored_tokens"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # its protocol is not the double's
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(client, "WAITS_SECONDS", (0.0, 0.0))
    monkeypatch.setattr("huggingface_hub.utils._http.time", _NoWaiting())
    monkeypatch.setenv("FEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", double.url)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)


def full_text(error):
    """Return an error's traceback and the texts of all errors chained to it."""
    pieces = ["".join(traceback.format_exception(error))]
    seen = error
    while seen is not None:
        pieces += [repr(seen), str(seen), repr(vars(seen))]
        seen = seen.__cause__
    return "\n".join(pieces)


@pytest.fixture(scope="session")
def hub_server():
    """The server; tests use `hub`."""
    with HubDouble() as double:
        yield double
        close_session()


@pytest.fixture
def hub(hub_server, monkeypatch, tmp_path):
    """An empty Hub, which the client asks with a token, from an empty cache."""
    hub_server.reset()
    use(hub_server, monkeypatch, tmp_path)
    return hub_server
