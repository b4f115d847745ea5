"""Token counters by name: who counted the tokens that dollars are computed from.

| name | counts |
| --- | --- |
| `words` | 1.365 tokens for each word between white space, rounded half to even: the reference package's estimate |
| `usage` | nothing: the counts are those the provider reported, stored with the CoTs |
| `usage, split by length` | nothing: the provider's totals of several CoTs were split by the length of their texts |
| `tiktoken:ENCODING` | the tokens of that encoding, such as `tiktoken:cl100k_base`, special tokens read as plain text |

A recording names its counter; counts by different counters are not comparable.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from feval.errors import TokenCounterError, UnknownNameError

__all__ = ["COUNTERS", "SPLIT_USAGE", "USAGE", "count_words", "is_usage", "token_counter"]

USAGE = "usage"
SPLIT_USAGE = "usage, split by length"

COUNTERS: Mapping[str, str] = {
    "words": "1.365 tokens per word, rounded half to even (the reference package's estimate)",
    USAGE: "the counts that the provider reported",
    SPLIT_USAGE: "the provider's totals of several CoTs, split by the length of their texts",
    "tiktoken:ENCODING": "the tokens of a tiktoken encoding, such as tiktoken:cl100k_base",
}
"""The names of the token counters, with what each counts."""

_TIKTOKEN = "tiktoken:"
_loading = threading.Lock()


def count_words(text: str) -> int:
    """Return the reference package's token estimate: 1.365 times the number of words, rounded half to even.

    Computed in integers, so the result is that of exact arithmetic for a text of any length.

    Args:
        text: any text; a word is what stands between white space.
    """
    tokens, rest = divmod(1365 * len(text.split()), 1000)
    return tokens + (rest > 500 or (rest == 500 and tokens % 2 == 1))


def is_usage(counter: str) -> bool:
    """Return whether a counter's numbers rest on what the provider reported, exactly or as shares of its totals."""
    return counter in (USAGE, SPLIT_USAGE)


def token_counter(name: str) -> Callable[[str], int]:
    """Return the function that counts the tokens of a text.

    Args:
        name: `words` or `tiktoken:ENCODING`.

    Raises:
        UnknownNameError: no counter, or no encoding, has this name.
        TokenCounterError: the counter is known but cannot count here: `usage`, or an encoding whose vocabulary is not on
            this machine (feval does not fetch it).
    """
    if name == "words":
        return count_words
    if is_usage(name):
        raise TokenCounterError(
            f"The token counter {name!r} stands for the counts that the provider reported, and no such counts are here for"
            " this text. Take 'words' or 'tiktoken:ENCODING' to count the text itself."
        )
    if name.startswith(_TIKTOKEN):
        return _tiktoken_counter(name.removeprefix(_TIKTOKEN))
    raise UnknownNameError.of("token counter", name, COUNTERS)


def _tiktoken_counter(encoding_name: str) -> Callable[[str], int]:
    try:
        import tiktoken
    except ImportError as error:
        raise TokenCounterError(
            "The token counter 'tiktoken' needs the package tiktoken: pip install tiktoken."
        ) from error
    known = tiktoken.list_encoding_names()
    if encoding_name not in known:
        raise UnknownNameError.of("tiktoken encoding", encoding_name, known, "Write it as 'tiktoken:cl100k_base'.")
    try:
        with _no_download():
            encode = tiktoken.get_encoding(encoding_name).encode_ordinary
    except (OSError, ValueError) as error:  # ValueError: a vocabulary file with wrong content
        folder = os.environ.get("TIKTOKEN_CACHE_DIR")
        where = f"TIKTOKEN_CACHE_DIR is {folder!r}" if folder is not None else "TIKTOKEN_CACHE_DIR is not set"
        raise TokenCounterError(
            f"The vocabulary of the tiktoken encoding {encoding_name!r} is not on this machine ({where}), and feval does not"
            f" fetch it. Where there is a network, run"
            f" TIKTOKEN_CACHE_DIR=FOLDER python -c 'import tiktoken; tiktoken.get_encoding(\"{encoding_name}\")', then set"
            f" TIKTOKEN_CACHE_DIR to that folder (or its copy) here; or take the counter 'words'."
        ) from error
    return lambda text: len(encode(text))


@contextmanager
def _no_download() -> Iterator[None]:
    """Keep tiktoken from the network while it looks for a vocabulary: feval's doors to it are elsewhere.

    tiktoken has no offline switch. Its one way to the network is `tiktoken.load.read_file`, which is replaced for the moment
    (under a lock) by a reader of local files; so nothing hangs, either, where the network is closed.
    """
    import tiktoken.load

    with _loading:
        read_file = tiktoken.load.read_file

        def read_local(blobpath: str) -> bytes:
            if "://" in blobpath:
                raise FileNotFoundError(f"{blobpath} is not in tiktoken's cache")
            return read_file(blobpath)

        tiktoken.load.read_file = read_local
        try:
            yield
        finally:
            tiktoken.load.read_file = read_file
