"""Token counters by name: who counted the tokens that dollars are computed from.

A recording names its counter; counts by different counters are not comparable.

tiktoken fetches the vocabulary of an encoding once, when a counter of that encoding is first made,
and caches it in the folder named by TIKTOKEN_CACHE_DIR. Only imports and recordings need counters:
a recording stores the counts. Whoever cuts a recorded CoT (`beginnings`) fetches nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from threading import Lock, get_ident
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple

from feval.errors import TokenCounterError, UnknownNameError, require_known

USAGE = "usage"
SPLIT_USAGE = "usage, split by length"
NONE = "none"

COUNTERS: Mapping[str, str] = {
    "words": "1.365 tokens per word, rounded half to even (the reference package's estimate)",
    USAGE: "the counts that the provider reported",
    SPLIT_USAGE: "the provider's totals of several CoTs, split by the length of their texts",
    NONE: "nothing: there are neither texts nor counts, so that tokens are not known",
    "tiktoken:ENCODING": "the tokens of a tiktoken encoding, such as tiktoken:cl100k_base",
}
"""The names of the token counters, with what each counts."""

_TIKTOKEN = "tiktoken:"
_WORD = re.compile(r"\S+")
_LOADING = Lock()


class Usage(NamedTuple):
    """Token counts of a reply as recordings have them: thoughts are part of the output, cached
    tokens part of the prompt.

    `None`: not known. `added` says what was counted beside these by the source, and was added.
    """

    prompt: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cached: int | None = None
    added: tuple[str, ...] = ()

    @classmethod
    def from_reply(
        cls,
        prompt: int | None,
        output: int | None,
        reasoning: int | None = None,
        cached: int | None = None,
        *,
        total: int | None = None,
        thoughts: int | None = None,
        cache_read: int | None = None,
        cache_write: int | None = None,
    ) -> Usage:
        """Return the counts of a reply from those that its source states.

        OpenAI, DeepSeek, Anthropic and Ollama count thoughts inside the output. Gemini counts them
        beside it: `thoughts`, its own name, or (its OpenAI-compatible endpoint, xAI) what the total
        has beyond prompt and output. OpenAI, DeepSeek and Gemini count cached tokens inside the
        prompt (`cached`); Anthropic counts those that it read from and wrote to a cache beside it,
        `cache_read` and `cache_write`. A total that is the sum of prompt and output says that all
        is inside.
        """
        added = []
        both = None if prompt is None or output is None else prompt + output
        in_cache = (cache_read or 0) + (cache_write or 0)
        if cached is None and not (cache_read is None and cache_write is None):
            if (
                in_cache
                and prompt is not None
                and (both is None or total not in (both, both + (reasoning or 0)))
            ):
                prompt += in_cache
                added.append("tokens read from or written to a cache")
            cached = cache_read
            both = None if prompt is None or output is None else prompt + output
        rest = None if both is None or total is None or total <= both else total - both
        apart = thoughts if thoughts is not None and (both is None or total != both) else None
        if (
            thoughts is None
            and rest is not None
            and (rest == reasoning or (reasoning is None and rest != cached))
        ):
            apart = rest
        if apart and output is not None:
            output, reasoning = output + apart, apart
            added.append("tokens of thoughts")
        return cls(prompt, output, reasoning, cached, tuple(added))

    @property
    def problem(self) -> str | None:
        """What cannot be; `None` where nothing is wrong."""
        if self.reasoning is not None and self.output is not None and self.reasoning > self.output:
            return "more reasoning tokens than output tokens"
        if self.cached is not None and self.prompt is not None and self.cached > self.prompt:
            return "more cached tokens than prompt tokens"
        return None


def count_words(text: str) -> int:
    """Return the reference package's token estimate: 1.365 times the words between white space,
    rounded half to even.

    Computed in integers, so the result is that of exact arithmetic for a text of any length.
    """
    return _tokens_of_words(len(text.split()))


def _tokens_of_words(words: int) -> int:
    tokens, rest = divmod(1365 * words, 1000)
    return tokens + (rest > 500 or (rest == 500 and tokens % 2 == 1))


def is_usage(counter: str) -> bool:
    """Return whether a counter's numbers rest on what the provider reported, exactly or as shares
    of its totals.
    """
    return counter in (USAGE, SPLIT_USAGE)


def token_counter(name: str) -> Callable[[str], int]:
    """Return the function that counts the tokens of a text; a vocabulary that is not on this
    machine is fetched by tiktoken.

    Args:
        name: `words` or `tiktoken:ENCODING`.

    Raises:
        UnknownNameError: no counter, or no encoding, has this name.
        TokenCounterError: the counter is known but cannot count here: `usage`, or an encoding whose
            vocabulary is not on this machine and cannot be fetched; the message says which file to
            put where.
    """
    if name == "words":
        return count_words
    if is_usage(name):
        raise TokenCounterError(
            f"The token counter {name!r} means the counts that the provider reported, and there are"
            " none for this text. Use 'words' or 'tiktoken:ENCODING' to count the text itself."
        )
    if name == NONE:
        raise TokenCounterError(
            "The token counter 'none' means that there is nothing to count, and there is a text or"
            " a count. Leave the counter out, or use 'words' or 'tiktoken:ENCODING'."
        )
    if name.startswith(_TIKTOKEN):
        return _TiktokenCounter(name.removeprefix(_TIKTOKEN))
    raise UnknownNameError.among("token counter", name, COUNTERS)


class Beginning(NamedTuple):
    """The first tokens of a text, as text, and how many they are."""

    text: str
    tokens: int


def beginnings(name: str) -> Callable[[str, int], Beginning]:
    """Return the function that gives at most so many first tokens of a text, as a counter counts
    them. It fetches nothing.

    Raises:
        UnknownNameError, TokenCounterError: as `token_counter` does; also for a vocabulary that is
            not on this machine.
    """
    if not name.startswith(_TIKTOKEN):
        token_counter(name)
        return _first_words
    encoding = name.removeprefix(_TIKTOKEN)
    with _fetching_nothing(_tiktoken_of(encoding)):
        return _TiktokenCounter(encoding).beginning


def _first_words(text: str, tokens: int) -> Beginning:
    most = (1000 * tokens + 500) // 1365
    most -= _tokens_of_words(most) > tokens
    words = list(islice(_WORD.finditer(text), min(most, sys.maxsize - 1) + 1))
    if len(words) <= most:
        return Beginning(text, _tokens_of_words(len(words)))
    return Beginning(text[: words[most - 1].end()] if most else "", _tokens_of_words(most))


@contextmanager
def _fetching_nothing(tiktoken: ModuleType) -> Iterator[None]:
    """Have tiktoken, in this thread, raise an `OSError` instead of fetching a vocabulary."""
    thread, load = get_ident(), tiktoken.load
    with _LOADING:
        read: Any = load.read_file

        def read_local(path: str) -> Any:
            if "://" in path and get_ident() == thread:
                raise OSError("nothing is fetched while recorded CoTs are cut")
            return read(path)

        load.read_file = read_local
        try:
            yield
        finally:
            load.read_file = read


def check_counter(name: str) -> str:
    """Return the name of a counter; raise as `token_counter` does if there is none, and fetch
    nothing.
    """
    if name.startswith(_TIKTOKEN):
        _tiktoken_of(name.removeprefix(_TIKTOKEN))
    elif name != USAGE:
        token_counter(name)
    return name


def _tiktoken_of(encoding_name: str) -> ModuleType:
    """Return tiktoken, which has the encoding."""
    try:
        import tiktoken
    except ImportError as error:
        raise TokenCounterError(
            "The token counter 'tiktoken' needs the package tiktoken: pip install tiktoken."
        ) from error
    known = tiktoken.list_encoding_names()
    require_known("tiktoken encoding", encoding_name, known, "Write it as 'tiktoken:cl100k_base'.")
    return tiktoken


class _TiktokenCounter:
    """Counts the tokens of an encoding; another process is sent its name, not the vocabulary."""

    def __init__(self, encoding_name: str) -> None:
        tiktoken: Any = _tiktoken_of(encoding_name)
        self._name = encoding_name
        try:
            self._encoding = tiktoken.get_encoding(encoding_name)
        except (
            OSError,
            ValueError,
        ) as error:  # every error of the HTTP library is an OSError; ValueError: wrong content
            raise TokenCounterError(_how_to_place(encoding_name, error)) from error

    def __call__(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def beginning(self, text: str, tokens: int) -> Beginning:
        """Return at most so many first tokens of a text, less the bytes of a character that they
        cut in two.
        """
        encoded = self._encoding.encode_ordinary(text)
        if len(encoded) <= tokens:
            return Beginning(text, len(encoded))
        return Beginning(
            self._encoding.decode_bytes(encoded[:tokens]).decode("utf-8", "ignore"), tokens
        )

    def __reduce__(self) -> tuple[type[_TiktokenCounter], tuple[str]]:
        return _TiktokenCounter, (self._name,)


def _how_to_place(encoding_name: str, error: Exception) -> str:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    place = "is not set" if folder is None else f"is {folder!r}"
    address = name = ""
    for frame, _ in walk_tb(error.__traceback__):
        # The file that tiktoken failed to get is named in the frames of its loader alone.
        if frame.f_code.co_name == "read_file_cached":
            places = frame.f_locals
            address = str(places.get("blobpath", ""))
            # a name, whatever the system that wrote it
            name = os.path.basename(str(places.get("cache_path", "")))  # noqa: PTH119  as above
    reason = str(error) if len(str(error)) <= 160 else f"{str(error)[:157]}..."
    file = f"{address}, which it keeps as {name}" if name else "it"
    return (
        f"The vocabulary of the tiktoken encoding {encoding_name!r} is not on this machine"
        f" (TIKTOKEN_CACHE_DIR {place}), and tiktoken could not fetch {file}"
        f" ({type(error).__name__}: {reason}). To place it by hand, run TIKTOKEN_CACHE_DIR=FOLDER"
        f" python -c 'import tiktoken; tiktoken.get_encoding(\"{encoding_name}\")' where there is a"
        " network, copy what is then in FOLDER, under the names it has there, into a folder here,"
        " and set TIKTOKEN_CACHE_DIR to that folder; or take the counter 'words'."
    )
