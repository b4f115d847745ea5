import base64
import hashlib
import json
import re
import shutil
import socket
import sys
import threading
from fractions import Fraction

import command_line
import pytest
from hypothesis import given, strategies as st
from loopback import Server
from parcels import travelled
from real_files import golden
from settings_files import settings_file

from feval.cards.tokens import COUNTERS, beginnings, count_words, token_counter
from feval.errors import TokenCounterError, UnknownNameError
from feval.serving import replay_http_client


def test_words_agrees_with_the_reference_package_on_its_probe(shared):
    for text, tokens in golden(shared, "cost.token_probe")["cost.token_probe"]["expected"]:
        assert count_words(text) == tokens


@given(st.integers(0, 300_000))
def test_words_is_the_exact_product_rounded_half_to_even(words):
    assert count_words("w " * words) == round(Fraction(1365, 1000) * words)


@pytest.mark.parametrize("text", ["", " ", "\n\t\r", "\u3000\xa0"])
def test_a_text_of_white_space_has_no_tokens(text):
    assert count_words(text) == 0


def test_words_counts_what_stands_between_white_space():
    assert count_words("a\n\nb \tc  d") == 5
    assert count_words("\ud800 broken \udfff") == 4


def test_the_counters_are_documented():
    counted = {"words", "usage", "usage, split by length", "tiktoken:ENCODING"}
    assert set(COUNTERS) == counted | {"none"}
    assert token_counter("words") is count_words


@pytest.mark.parametrize("name", ["", "Words", "word", "tiktoken", "characters"])
def test_an_unknown_counter_is_refused(name):
    with pytest.raises(
        UnknownNameError,
        match=r"no token counter.*none, tiktoken:ENCODING, usage, usage, split by length, words",
    ):
        token_counter(name)


def test_usage_counts_no_text():
    with pytest.raises(TokenCounterError, match=r"'usage'.*provider reported.*'words'"):
        token_counter("usage")


def vocabulary():
    tokens = [bytes([byte]) for byte in range(256)] + [b"ab", b"abab"]
    return b"".join(
        base64.b64encode(token) + f" {rank}\n".encode() for rank, token in enumerate(tokens)
    )


REMOTE = "/remote.tiktoken"


@pytest.fixture
def storage(monkeypatch):
    """Stands in for the publisher of vocabularies."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(lambda path, _: (200 if path == REMOTE else 404, vocabulary())) as served:
        yield served


@pytest.fixture
def closed(monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError("the network is closed")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def encodings(tmp_path, storage, monkeypatch):
    """tiktoken with encodings of ours, one in a file and the others to be fetched; the cache, which
    is empty.
    """
    import tiktoken
    from tiktoken import registry
    from tiktoken.load import load_tiktoken_bpe

    file = tmp_path / "tiny.tiktoken"
    file.write_bytes(vocabulary())
    digest = hashlib.sha256(vocabulary()).hexdigest()

    def encoding(name, place, digest=None):
        ranks = load_tiktoken_bpe(place, digest)
        return {
            "name": name,
            "pat_str": r"\S+|\s+",
            "mergeable_ranks": ranks,
            "special_tokens": {"<|end|>": 258},
        }

    tiktoken.list_encoding_names()
    constructors = {
        "tiny": lambda: encoding("tiny", str(file)),
        "remote": lambda: encoding("remote", storage.url + REMOTE, digest),
        "gone": lambda: encoding("gone", storage.url + REMOTE + ".old", digest),
        "damaged": lambda: encoding("damaged", storage.url + REMOTE, "0" * 64),
    }
    monkeypatch.setattr(
        registry,
        "ENCODING_CONSTRUCTORS",
        {**(registry.ENCODING_CONSTRUCTORS or {}), **constructors},
    )
    monkeypatch.setattr(registry, "ENCODINGS", {})
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def forget(monkeypatch):
    """As in a process of its own: no encoding is loaded."""
    from tiktoken import registry

    monkeypatch.setattr(registry, "ENCODINGS", {})


def test_tiktoken_counts_the_tokens_of_its_encoding(encodings):
    count = travelled(token_counter("tiktoken:tiny"))
    assert [count(text) for text in ("", "a", "ab", "abab", "ab ab", "ababab", "é")] == [
        0,
        1,
        1,
        1,
        3,
        2,
        2,
    ]


def test_special_tokens_in_a_cot_are_plain_text(encodings):
    assert token_counter("tiktoken:tiny")("<|end|>") == 7


def test_a_lone_surrogate_is_counted(encodings):
    assert token_counter("tiktoken:tiny")("\ud800") > 0


@pytest.mark.parametrize(
    ("text", "tokens", "kept", "count"),
    [
        ("ababab", 1, "abab", 1), ("ababab", 2, "ababab", 2), ("ababab", 9, "ababab", 2), ("abab",
        0, "", 0),
        ("aé", 2, "a", 2), ("aé", 3, "aé", 3),  # half of a character is none
    ],
)  # fmt: skip
def test_the_first_tokens_of_a_text(text, tokens, kept, count, encodings):
    assert beginnings("tiktoken:tiny")(text, tokens) == (kept, count)


@given(
    st.lists(st.sampled_from(["a", "bc", "\u3000", " ", "\n\t"])).map("".join), st.integers(0, 40)
)
def test_the_first_words_are_as_many_as_fit(text, tokens):
    kept, count = beginnings("words")(text, tokens)
    assert text.startswith(kept)
    assert count_words(kept) == count <= tokens
    words = kept.split()
    assert words == text.split()[: len(words)]
    assert kept == text or count_words("w " * (len(words) + 1)) > tokens


def test_whoever_cuts_a_cot_fetches_nothing(encodings, storage):
    with pytest.raises(TokenCounterError, match="could not fetch"):
        beginnings("tiktoken:remote")
    assert len(storage.seen) == 0
    token_counter("tiktoken:remote")
    assert len(storage.seen) == 1
    assert beginnings("tiktoken:remote")("ab ab", 2) == ("ab ", 2)


def test_tiktoken_fetches_a_vocabulary_once(encodings, storage, monkeypatch):
    assert token_counter("tiktoken:remote")("ab abab") == 3
    assert len(storage.seen) == 1
    name = hashlib.sha1((storage.url + REMOTE).encode(), usedforsecurity=False).hexdigest()
    assert [file.name for file in encodings.iterdir()] == [name]
    forget(monkeypatch)
    assert token_counter("tiktoken:remote")("ab abab") == 3
    assert len(storage.seen) == 1


def test_a_vocabulary_is_placed_by_hand_as_the_message_says(
    encodings, storage, closed, tmp_path, monkeypatch
):
    with pytest.raises(TokenCounterError) as caught:
        token_counter("tiktoken:remote")
    message = str(caught.value)
    assert f"TIKTOKEN_CACHE_DIR is '{encodings}'" in message
    assert "'words'" in message
    named = re.search(
        r"could not fetch (\S+), which it keeps as (\w+) \(ConnectionError: ", message
    )
    assert named is not None
    assert named[1] == storage.url + REMOTE
    (tmp_path / "placed").mkdir()
    (tmp_path / "placed" / named[2]).write_bytes(vocabulary())
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "placed"))
    assert token_counter("tiktoken:remote")("ab abab") == 3
    assert len(storage.seen) == 0


@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base", "gpt2"])
def test_what_could_not_be_fetched_is_named(encoding, encodings, closed):
    with pytest.raises(
        TokenCounterError,
        match=rf"encoding '{encoding}'.*could not fetch https://\S+, .*get_encoding",
    ):
        token_counter(f"tiktoken:{encoding}")
    assert not encodings.exists()


@pytest.mark.parametrize(
    ("encoding", "why"), [("gone", "HTTPError: 404"), ("damaged", "ValueError: Hash mismatch")]
)
def test_a_vocabulary_that_is_not_what_it_should_be_is_an_error(encoding, why, encodings):
    with pytest.raises(TokenCounterError, match=why):
        token_counter(f"tiktoken:{encoding}")


def test_the_message_says_when_no_folder_is_named(encodings, closed, monkeypatch, tmp_path):
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tmp_path / "absent"))
    with pytest.raises(TokenCounterError, match="TIKTOKEN_CACHE_DIR is not set"):
        token_counter("tiktoken:remote")


def test_an_import_fetches_and_no_reader_does(encodings, storage, tmp_path, monkeypatch):
    """After the import tiktoken cannot even be imported, and its storage would notice."""
    samples = tmp_path / "samples.jsonl"
    texts = [{"text": "abab is 1"}, {"text": "ab is 2"}, {"text": "1"}]
    samples.write_text(
        json.dumps({"id": "a", "question": "ab?", "answer": "1", "samples": texts}) + "\n", "utf-8"
    )
    recording = str(tmp_path / "recording")

    def feval(*arguments):
        result = command_line.feval(*arguments)
        assert result.exit_code == 0, result.output
        return result.output

    counter = ["--counter tiktoken:remote --answer-kind number"]
    feval("import jsonl", str(samples), "--dataset ab --llm gpt-4o-mini --out", recording, *counter)
    assert len(storage.seen) == 1

    def replayed(**fields):
        with replay_http_client(recording) as client:
            body = {
                "model": "gpt-4o-mini",
                "messages": [{"role": "user", "content": "ab?"}],
                "n": 3,
            }
            return client.post("http://replay/v1/chat/completions", json=body | fields).json()

    cut = replayed(max_tokens=3)
    assert {choice["message"]["content"] for choice in cut["choices"]} == {"abab i", "ab i", "1"}
    assert cut["usage"]["completion_tokens"] == 3 + 3 + 1
    shutil.rmtree(encodings)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    out = tmp_path / "curve"
    feval("curve self-consistency --recording", recording, "--n 1,3 --out", str(out))
    feval("run single-call --recording", recording, "--out", str(tmp_path / "run"))
    feval("verify", recording)
    feval("verify", str(out / "receipt.json"))
    feval("extract", recording, "--out", str(tmp_path / "extracted"))
    assert "tiktoken:remote" in feval("info", recording, "--json")
    reply = replayed()
    assert reply["usage"]["completion_tokens"] == 13  # abab," ",i,s," ",1; ab," ",i,s," ",2; 1
    assert len(storage.seen) == 1


def test_a_recording_fetches_before_it_asks_anything(encodings, storage, tmp_path, monkeypatch):
    arguments = (
        "record --dataset tiny_sums --llm feval/tiny-30k --first 2 --samples 2 --out",
        tmp_path / "recording",
        *settings_file(tmp_path, 'counter = "tiktoken:gone"'),
    )
    refused = command_line.feval(*arguments)
    assert (refused.exit_code, "which it keeps as" in refused.output) == (1, True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["settings.toml", "tiny.tiktoken"]
    settings_file(tmp_path, 'counter = "tiktoken:remote"')
    assert command_line.feval(*arguments).exit_code == 0
    assert len(storage.seen) == 2
    # Sealed: there is nothing left to count, so nothing is fetched.
    shutil.rmtree(encodings)
    forget(monkeypatch)
    assert command_line.feval(*arguments).exit_code == 0
    assert len(storage.seen) == 2


def test_threads_may_ask_for_counters_together(encodings):
    counts = []
    threads = [
        threading.Thread(target=lambda: counts.append(token_counter("tiktoken:remote")("ab")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 8


@pytest.mark.parametrize("encoding", ["cl100k", "", "gpt-4o"])
def test_an_unknown_encoding_is_refused(encoding):
    with pytest.raises(UnknownNameError, match=r"no tiktoken encoding.*cl100k_base"):
        token_counter(f"tiktoken:{encoding}")


def test_a_missing_tiktoken_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(TokenCounterError, match="pip install tiktoken"):
        token_counter("tiktoken:cl100k_base")
