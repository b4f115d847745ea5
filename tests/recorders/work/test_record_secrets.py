"""A key is nowhere but in the requests: recorded with a marked key through every failure, then looked for everywhere."""

from __future__ import annotations

import asyncio
import base64
import logging
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from faulty_server import FAULTS, FaultyServer
from recording_doubles import task

from feval.errors import FevalError
from feval.recording import Question
from recorders.asking.pace import Limits
from recorders.backends.endpoint import Endpoint
from recorders.work.record import record_dataset

pytest.importorskip("openai", reason="the official client (extra `record`) is not installed")

from recorders.backends.openai_compatible import OpenAICompatible

KEY = "sk-proj-MARKED/0123456789+abcdefghijkl"
PASSWORD = "MARKED-pass:word/0123"  # noqa: S105  it opens nothing
# Whatever half of the key would show it; the names of these tests hold none.
FRAGMENTS = [
    form[start : start + 8]
    for secret in (KEY, PASSWORD, f"marked-user:{PASSWORD}")
    for form in (secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode())
    for start in range(len(form) - 7)
]
QUICK = Limits(concurrency=2, retries=1, backoff_s=0.001, longest_backoff_s=0.001, timeout_s=0.3)


def assert_no_secret(text: str, where: str) -> None:
    fragments = [fragment for fragment in FRAGMENTS if fragment in text]
    assert not fragments, f"{where} shows the key: {text[max(0, text.index(fragments[0]) - 80) :][:200]!r}"


def record(endpoint: Endpoint, out: Path, heard: list[str], *questions: str) -> None:
    """Record; whatever is said to the user on the way goes to `heard`, with the traceback a developer would see."""
    notes: list[str] = []
    backend = OpenAICompatible(endpoint, note=lambda sentence: (notes.append(sentence), heard.append(sentence))[1])
    work = task([Question(f"q{number}", text, "3") for number, text in enumerate(questions)], 2, logprobs=1)
    heard += [repr(backend), repr(endpoint), repr(endpoint.redaction), repr(vars(backend))]
    try:
        said: dict[str, Any] = {"backend_notes": notes, "progress": lambda progress: heard.append(repr(progress))}
        record_dataset(work, backend, out, limits=QUICK, prices="none", partial=True, **said)
    except FevalError as error:
        heard += [str(error), repr(error), "".join(traceback.format_exception(error))]


def written(folder: Path) -> dict[Path, str]:
    return {path: path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fault", ["", *(name for name in FAULTS if name != "429 date")])
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for ever"])
def test_the_key_is_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str, lasting: bool) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[str] = []
    with FaultyServer(lambda _question, attempt: fault if lasting or not attempt else "", repeats_key=True) as server:
        record(Endpoint(server.url, KEY), tmp_path / "out", heard, "How much is 1 + 2? [key]", "How much is 2 + 1?")
    assert any(seen.headers["authorization"] == f"Bearer {KEY}" for seen in server.seen)
    assert written(tmp_path) or any("nothing is recorded yet" in text for text in heard)
    for path, content in written(tmp_path).items():
        assert_no_secret(content, str(path.relative_to(tmp_path)))
    for text in heard:
        assert_no_secret(text, "what is said")
    assert caplog.records
    for entry in caplog.records:
        assert_no_secret(logging.Formatter().format(entry), f"the log of {entry.name}")
    assert_no_secret(Path("/proc/self/cmdline").read_bytes().decode(), "the command line")


def test_a_masked_key_in_a_reply_is_said(tmp_path: Path) -> None:
    heard: list[str] = []
    with FaultyServer(repeats_key=True) as server:
        record(Endpoint(server.url, KEY), tmp_path / "out", heard, "How much is 1 + 2? [key]")
    assert "A reply held the API key; it is masked in the recording." in heard


def test_credentials_in_the_base_url_are_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    heard: list[str] = []
    with FaultyServer(["500", "401"], repeats_key=True) as server:
        url = f"http://marked-user:{quote(PASSWORD, safe='')}@127.0.0.1:{server.port}/v1"
        record(Endpoint(url), tmp_path / "out", heard, "How much is 1 + 2?")
    assert server.seen[0].headers["authorization"].startswith("Basic ")
    texts = [*written(tmp_path).values(), *heard, *(logging.Formatter().format(entry) for entry in caplog.records)]
    for text in texts:
        assert_no_secret(text, "something")


def test_the_guard_of_the_logs_goes_with_the_backend() -> None:
    logger = logging.getLogger("openai._base_client")
    before = list(logger.filters)
    backend = OpenAICompatible(Endpoint("https://host.example/v1", KEY))
    assert len(logger.filters) == len(before) + 1
    asyncio.run(backend.aclose())
    assert logger.filters == before


def test_the_test_would_see_a_key() -> None:
    with pytest.raises(AssertionError):
        assert_no_secret(f"... {KEY[5:14]} ...", "this text")
