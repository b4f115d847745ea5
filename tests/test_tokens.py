from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feval.errors import TokenCounterError, UnknownNameError
from feval.tokens import COUNTERS, count_words, token_counter


def golden(shared: Path, name: str) -> Any:
    entries = json.loads((shared / "golden/methods.json").read_text("utf-8"))["goldens"]
    return next(entry["expected"] for entry in entries if entry["id"] == name)


# --- words


def test_words_agrees_with_the_reference_package_on_its_probe(shared: Path) -> None:
    for text, tokens in golden(shared, "cost.token_probe"):
        assert count_words(text) == tokens


def test_words_agrees_with_the_reference_package_on_a_recording(shared: Path) -> None:
    expected = golden(shared, "cost.tokens.date_cot1_40")
    with gzip.open(shared / "real/mot_cascade/GPT3_result/date_cot1_40.json.gz") as file:
        questions = json.load(file)
    count = token_counter("words")
    assert [count(text) for text in questions[0]["generated"]] == expected["first_question"]
    assert sum(count(text) for question in questions for text in question["generated"]) == expected["tokens"]


@given(st.integers(0, 300_000))
def test_words_is_the_exact_product_rounded_half_to_even(words: int) -> None:
    assert count_words("w " * words) == round(Fraction(1365, 1000) * words)


@pytest.mark.parametrize(("words", "tokens"), [(0, 0), (1, 1), (2, 3), (100, 136), (300, 410), (500, 682), (700, 956)])
def test_words_rounds_a_half_to_the_even_neighbour(words: int, tokens: int) -> None:
    assert count_words(" ".join(["word"] * words)) == tokens


@pytest.mark.parametrize("text", ["", " ", "\n\t\r", "\u3000\xa0"])
def test_a_text_of_white_space_has_no_tokens(text: str) -> None:
    assert count_words(text) == 0


def test_words_counts_what_stands_between_white_space() -> None:
    assert count_words("a\n\nb \tc  d") == 5
    assert count_words("\ud800 broken \udfff") == 4


def test_counting_a_recording_takes_a_second_or_two() -> None:
    text = "word " * 180
    started = time.process_time()
    for _ in range(5000):  # a tenth of a recording
        count_words(text)
    assert time.process_time() - started < 2  # about 0.02 s; the limit is for a loaded machine


# --- names


def test_the_counters_are_documented() -> None:
    assert set(COUNTERS) == {"words", "usage", "usage, split by length", "tiktoken:ENCODING"}
    assert token_counter("words") is count_words


@pytest.mark.parametrize("name", ["", "Words", "word", "tiktoken", "characters"])
def test_an_unknown_counter_is_refused(name: str) -> None:
    with pytest.raises(
        UnknownNameError, match=r"no token counter.*tiktoken:ENCODING, usage, usage, split by length, words"
    ):
        token_counter(name)


def test_usage_counts_no_text() -> None:
    with pytest.raises(TokenCounterError, match=r"'usage'.*provider reported.*'words'"):
        token_counter("usage")


# --- tiktoken


@pytest.fixture
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def encodings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_network: None) -> dict[str, Any]:
    """tiktoken with three encodings of ours: one with its vocabulary in a file, two that would have to fetch it."""
    import tiktoken
    from tiktoken import registry
    from tiktoken.load import load_tiktoken_bpe

    vocabulary = tmp_path / "tiny.tiktoken"
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab", b"abab"]
    vocabulary.write_text(
        "".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)), encoding="ascii"
    )

    def encoding(name: str, place: str, digest: str | None = None) -> dict[str, Any]:
        ranks = load_tiktoken_bpe(place, digest)
        return {"name": name, "pat_str": r"\S+|\s+", "mergeable_ranks": ranks, "special_tokens": {"<|end|>": 258}}

    tiktoken.list_encoding_names()
    constructors = {
        "tiny": lambda: encoding("tiny", str(vocabulary)),
        "remote": lambda: encoding("remote", "https://example.invalid/remote.tiktoken"),
        "damaged": lambda: encoding("damaged", str(vocabulary), "0" * 64),
    }
    monkeypatch.setattr(registry, "ENCODING_CONSTRUCTORS", {**(registry.ENCODING_CONSTRUCTORS or {}), **constructors})
    monkeypatch.setattr(registry, "ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    return constructors


def test_tiktoken_counts_the_tokens_of_its_encoding(encodings: object) -> None:
    count = token_counter("tiktoken:tiny")
    assert [count(text) for text in ("", "a", "ab", "abab", "ab ab", "ababab", "é")] == [0, 1, 1, 1, 3, 2, 2]


def test_special_tokens_in_a_cot_are_plain_text(encodings: object) -> None:
    assert token_counter("tiktoken:tiny")("<|end|>") == 7


def test_a_lone_surrogate_is_counted(encodings: object) -> None:
    assert token_counter("tiktoken:tiny")("\ud800") > 0


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base", "gpt2", "remote"])
def test_a_vocabulary_that_is_not_here_is_told_and_not_fetched(
    encoding: str, encodings: object, tmp_path: Path
) -> None:
    with pytest.raises(TokenCounterError) as caught:
        token_counter(f"tiktoken:{encoding}")
    message = str(caught.value)
    assert encoding in message
    assert f"TIKTOKEN_CACHE_DIR is '{tmp_path / 'cache'}'" in message
    assert "'words'" in message
    assert not (tmp_path / "cache").exists()


def test_the_message_says_when_no_folder_is_named(
    encodings: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tmp_path / "absent"))
    with pytest.raises(TokenCounterError, match="TIKTOKEN_CACHE_DIR is not set"):
        token_counter("tiktoken:remote")


def test_a_damaged_vocabulary_is_an_error(encodings: object) -> None:
    with pytest.raises(TokenCounterError, match="damaged"):
        token_counter("tiktoken:damaged")


def test_tiktoken_is_left_as_it_was(encodings: object) -> None:
    import tiktoken.load

    before = tiktoken.load.read_file
    token_counter("tiktoken:tiny")
    assert tiktoken.load.read_file is before
    with pytest.raises(TokenCounterError):
        token_counter("tiktoken:remote")
    assert tiktoken.load.read_file is before


def test_threads_may_ask_for_counters_together(encodings: object) -> None:
    import tiktoken.load

    before, failures = tiktoken.load.read_file, []

    def ask() -> None:
        try:
            token_counter("tiktoken:remote")
        except TokenCounterError:
            return
        failures.append("no error")

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert tiktoken.load.read_file is before


@pytest.mark.parametrize("encoding", ["cl100k", "", "gpt-4o"])
def test_an_unknown_encoding_is_refused(encoding: str) -> None:
    with pytest.raises(UnknownNameError, match=r"no tiktoken encoding.*cl100k_base"):
        token_counter(f"tiktoken:{encoding}")


def test_a_missing_tiktoken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(TokenCounterError, match="pip install tiktoken"):
        token_counter("tiktoken:cl100k_base")
