"""The real client of the Hub, made to ask a double on loopback, with nothing of the user's own settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub_double import HubDouble
from huggingface_hub import constants

from feval.hub import client

TOKEN = "hf_MarkedTokenThatNobodyMaySee"  # noqa: S105  made up
VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "FEVAL_CARDS", "FEVAL_RECORDING")


def use(double: HubDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, token: str | None = TOKEN) -> None:
    """Point the client of this process to a double; its constants were read when it was imported."""
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
    monkeypatch.setenv("FEVAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_ENDPOINT", double.url)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
