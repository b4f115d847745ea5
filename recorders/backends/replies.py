"""From the bytes of a chat completion to `Completion`s: every field is checked, nothing is trusted.

The official client builds its objects from replies without checking them, and compatible servers
leave fields out, add others and invent values. So the client only sends and receives; the reply is
read here.
"""

from __future__ import annotations

import json
import math
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from operator import add
from typing import Any, NamedTuple, TypeGuard, TypeVar

import orjson

from feval.answers.thoughts import block_text, read_blocks
from feval.cards import FINISH_REASONS
from feval.cards.tokens import Usage
from feval.recording.content import calls_as_json
from feval.values import Record, RecordLike, inside
from recorders.errors import Fatal, Transient
from recorders.request import Completion, note_on_number

T = TypeVar("T")

MOST_BYTES = 64 * 2**20
"""Of one reply."""

ACCEPTED = {"Accept-Encoding": "gzip"}
"""Header of every request."""

_CODINGS = {"", "identity", "gzip", "deflate"}
_SURROGATES = re.compile("[\ud800-\udfff]")
_SPLIT = (
    "The server counts the output tokens of all choices of a reply together: they are split by"
    " length of text, and only the sum is exact. Ask for one sample per request"
    " (samples_per_request = 1) to get exact counts."
)
_SPLIT_EVENLY = " Hidden reasoning is split evenly, since no text shows whose it is."
_VERY_UNLIKELY = -9999.0  # OpenAI's stand-in for a log-probability of minus infinity
_HIGHEST = 0.01  # rounding on a GPU takes certain tokens a little above 0
_MOST_TOKENS = 2**31
_MARKS = 32  # tokens of a choice that no text shows: ends of turns, names of channels
_LONGEST_LABEL = 1000
_PARTS = ("text", "thinking", "reasoning")
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Where servers put thoughts: DeepSeek and many others, vLLM and OpenRouter, Ollama."""
_GEMINI_THOUGHTS = ("thoughts_token_count", "thoughtsTokenCount")
_USAGE_DETAILS = ("completion_tokens_details", "output_tokens_details")


class ReplyReading(NamedTuple):
    """Completions, at most as many as were asked for, and sentences about what the server did not
    do as asked.
    """

    completions: tuple[Completion, ...]
    notes: tuple[str, ...]


async def body(response: Any, host: str, most_bytes: int | None = None) -> bytes:
    """Return the body of an open response of httpx or httpx2; an error if it is larger than so many
    bytes, also after decompression.
    """
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in _CODINGS:  # httpx decodes others, and lists of them, without a bound
        raise Fatal(
            f"{host} sent a reply with the content encoding {coding[:40]!a}, and gzip was asked"
            " for."
        )
    content, most = bytearray(), most_bytes or MOST_BYTES
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > most:
            raise Transient(f"{host} sent a reply of more than {most:,} bytes")
    return bytes(content)


def parse(content: bytes) -> RecordLike:
    """Return a reply's JSON object; `Transient` if it is none: cut short, or a page of something in
    between.
    """
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError:
        try:  # what strict JSON forbids and servers send: halves of surrogate pairs, NaN, Infinity
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Transient(
                f"the reply is not valid JSON ({len(content):,} bytes, perhaps cut short)"
            ) from error
    if not isinstance(value, dict):
        raise Transient(f"the reply is JSON, but not an object (a {type(value).__name__})")
    return value


def read(
    reply: RecordLike,
    asked: int,
    top: int | None,
    clean: Callable[[str], str],
    max_tokens: int | None = None,
    seconds: float | None = None,
) -> ReplyReading:
    """Return the completions of a chat completion's JSON object; `Transient` if no choice in it can
    be read.

    `top` log-probabilities per token were asked for (`None`: none); `clean` removes secrets from
    every text of the server; `max_tokens` were allowed for each choice; the reply, and so each of
    them, took so many seconds.
    """
    choices = choices_of(reply)
    if not choices:
        raise Transient("the reply holds no choice")
    notes: list[str] = []
    texts = [_Texts.from_message(choice["message"], notes, clean) for choice in choices]
    logprobs = [_Logprobs.from_choice(choice.get("logprobs"), top, notes) for choice in choices]
    usage = _usage(reply.get("usage"), notes)
    if doubt := _doubt(reply.get("usage"), usage, choices, texts, max_tokens):
        usage = Usage()
    output, reasoning, is_split = _shares(usage, texts, logprobs, notes)
    label = {name: _label(reply.get(name), clean) for name in ("id", "model", "system_fingerprint")}
    completions = tuple(
        Completion(
            text=text.answer,
            finish_reason=_finish_reason(choice.get("finish_reason"), text.refused, notes),
            reasoning=text.reasoning,
            tool_calls=text.calls,
            output_tokens=tokens,
            reasoning_tokens=thoughts,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            response_id=label["id"],
            served_model=label["model"],
            system_fingerprint=label["system_fingerprint"],
            token_logprobs=sampled.sampled,
            token_confidences=sampled.confidences,
            token_lengths=_lengths(sampled.tokens, text),
            tokens_split=is_split or None,
            stop_text=_stop_text(choice),
            usage_doubt=doubt,
            duration_s=seconds,
        )
        for choice, text, sampled, tokens, thoughts in zip(
            choices, texts, logprobs, output, reasoning, strict=True
        )
    )
    if note := note_on_number(len(completions), asked):
        notes.append(note)
    return ReplyReading(completions[:asked], tuple(dict.fromkeys(notes)))


def choices_of(reply: RecordLike) -> list[RecordLike]:
    """Return the choices that have a message, in the order of their index."""
    choices = reply.get("choices")
    if not isinstance(choices, list):
        return []
    choices = [_as_chat(choice) for choice in choices]
    whole: list[RecordLike] = [
        choice
        for choice in choices
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict)
    ]
    numbers = [choice.get("index") for choice in whole]
    if all(_is_count(number) for number in numbers) and len(set(numbers)) == len(numbers):
        whole.sort(key=lambda choice: choice["index"])
    return whole


def _as_chat(choice: object) -> object:
    """Return a choice of a text completion in the form of a chat's."""
    if (
        not isinstance(choice, dict)
        or "message" in choice
        or not isinstance(choice.get("text"), str)
    ):
        return choice
    logprobs = choice.get("logprobs")
    tokens, values = (inside(logprobs, name) for name in ("tokens", "token_logprobs"))
    if isinstance(tokens, list) and isinstance(values, list) and len(tokens) == len(values):
        content = [
            {"token": token, "logprob": value} for token, value in zip(tokens, values, strict=True)
        ]
        logprobs = {"content": content}
    return choice | {"message": {"content": choice["text"]}, "logprobs": logprobs}


def _lengths(tokens: tuple[bytes, ...] | None, text: _Texts) -> tuple[int, ...] | None:
    """Return the characters of thoughts and text that each token wrote; `None` where the tokens do
    not spell them.
    """
    if tokens is None:
        return None
    decoder = getincrementaldecoder("utf-8")("replace")
    pieces = [decoder.decode(token) for token in tokens]
    whole, apart = "".join(pieces), text.reasoning or ""
    first = whole.find(apart)
    second = whole.find(text.answer, first + len(apart))
    if first < 0 or second < 0 or (not apart and second > 0):
        return None
    ends = accumulate(map(len, pieces), initial=0)
    kept = [
        min(max(end - first, 0), len(apart)) + min(max(end - second, 0), len(text.answer))
        for end in ends
    ]
    return tuple(end - start for start, end in pairwise(kept))


def _stop_text(choice: RecordLike) -> str | None:
    """Return the stop text that vLLM and SGLang state; they state a token or null where a reply
    ended by itself.
    """
    stated = [choice[name] for name in ("stop_reason", "matched_stop") if name in choice]
    return next((text for text in stated if isinstance(text, str)), "") if stated else None


def _finish_reason(word: object, refused: bool, notes: list[str]) -> str:
    if refused:
        notes.append(
            "The model refused in words of its own (the field `refusal`): recorded as refusal."
        )
        return "refusal"
    if isinstance(word, str) and word in FINISH_REASONS:
        return word
    stated = "no finish reason" if word is None else "a finish reason that OpenAI does not have"
    notes.append(f"The server states {stated}: recorded as unknown.")
    return "unknown"


class _Texts(NamedTuple):
    answer: str
    reasoning: str | None
    refused: bool
    calls: str | None

    @classmethod
    def from_message(
        cls, message: RecordLike, notes: list[str], clean: Callable[[str], str]
    ) -> _Texts:
        """Read a message: its content, reasoning that some servers send separately, a refusal."""
        content, thoughts = _content(message.get("content"))
        apart = (message.get(name) for name in _REASONING_FIELDS)
        reasoning = next(
            filter(_is_text, apart), thoughts or _details(message.get("reasoning_details"))
        )
        refusal = message.get("refusal")
        refused = not content and _is_text(refusal)
        answer = str(refusal) if refused else content
        return cls(
            _storable(answer, notes, clean),
            _storable(reasoning, notes, clean) if reasoning else None,
            refused,
            _calls(message.get("tool_calls"), notes, clean),
        )


def _calls(made: object, notes: list[str], clean: Callable[[str], str]) -> str | None:
    """Return the tools that a message calls, as `Recording.tool_calls` has them."""
    if not made:
        return None
    try:
        return _storable(calls_as_json(made), notes, clean)
    except ValueError:
        notes.append("A reply called a tool without a name or arguments: it is not recorded.")
        return None


def _content(content: object) -> tuple[str, str | None]:
    """Return the text and the thoughts of a message's content, which is a string, nothing, or a
    list of parts.
    """
    if isinstance(content, str):
        return content, None
    if content is not None and not (
        isinstance(content, list) and all(isinstance(part, dict) for part in content)
    ):
        raise Transient(f"the content of a reply is not text (a {type(content).__name__})")
    parts: list[Record] = content or []
    if parts and not any(part.get("type", "text") in _PARTS for part in parts):
        raise Transient("the content of a reply is not text (a list without any)")
    return read_blocks(parts)


def _details(details: object) -> str | None:
    """Return the texts and summaries in OpenRouter's list of reasoning details; encrypted ones have
    none.
    """
    parts = (
        [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    )
    return (
        "".join(block_text(part, "text") or block_text(part, "summary") for part in parts) or None
    )


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _storable(text: str, notes: list[str], clean: Callable[[str], str]) -> str:
    """Return a text that UTF-8 can hold, without secrets."""
    if not text.isascii() and _SURROGATES.search(text):
        notes.append(
            "A reply held halves of surrogate pairs, which no file can hold: they are recorded as"
            " U+FFFD."
        )
        text = _SURROGATES.sub("\ufffd", text)
    if (cleaned := clean(text)) != text:
        notes.append("A reply held the API key; it is masked in the recording.")
    return cleaned


def _label(value: object, clean: Callable[[str], str]) -> str | None:
    return clean(_SURROGATES.sub("\ufffd", value))[:_LONGEST_LABEL] if _is_text(value) else None


class _Logprobs(NamedTuple):
    sampled: tuple[float, ...] | None = None
    confidences: tuple[float, ...] | None = None
    tokens: tuple[bytes, ...] | None = None

    @classmethod
    def from_choice(cls, logprobs: object, top: int | None, notes: list[str]) -> _Logprobs:
        """Read a choice's log-probabilities; without `top` they were not asked for."""
        if top is None:
            return cls()
        tokens = inside(logprobs, "content")
        if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
            notes.append("The server ignores logprobs: none came back though they were asked for.")
            return cls()
        sampled = _all(_logprob(token.get("logprob")) for token in tokens)
        if sampled is None:
            notes.append(
                "The server's log-probabilities are not all numbers: those CoTs are recorded"
                " without any."
            )
            return cls()
        confidences = (
            _all(_confidence(token.get("top_logprobs"), top) for token in tokens) if top else None
        )
        if top and confidences is None:
            notes.append(
                "The server sent tokens without top_logprobs: those CoTs are recorded without"
                " confidences."
            )
        return cls(sampled, confidences, _all(map(_bytes, tokens)))


def _all(values: Iterable[T | None]) -> tuple[T, ...] | None:
    """Return values; `None` if one of them is."""
    found = list(values)
    known = tuple(value for value in found if value is not None)
    return known if len(known) == len(found) else None


def _bytes(token: RecordLike) -> bytes | None:
    """Return what a token spells; some servers state bytes, which part of a character needs."""
    stated, text = token.get("bytes"), token.get("token")
    if isinstance(stated, list) and all(
        isinstance(value, int) and 0 <= value < 256 for value in stated
    ):
        return bytes(stated)
    return text.encode(errors="replace") if isinstance(text, str) else None


def _confidence(alternatives: object, top: int) -> float | None:
    """Return minus the mean log-probability of the top k.

    Source: Fu et al. 2025, "Deep Think with Confidence", section 2.2, eq. (2),
    https://arxiv.org/abs/2508.15260.
    """
    if not isinstance(alternatives, list):
        return None
    values = [
        _logprob(entry.get("logprob")) if isinstance(entry, dict) else None
        for entry in alternatives
    ]
    numbers = sorted((value for value in values if value is not None), reverse=True)[:top]
    # Servers may send the sampled token in addition to the top k, and fewer than k if only few can
    # follow.
    return (
        -math.fsum(numbers) / len(numbers)
        if numbers and len(numbers) >= min(top, len(values))
        else None
    )


def _logprob(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value <= _HIGHEST:
        return None
    return float(max(value, _VERY_UNLIKELY))


def _usage(usage: object, notes: list[str]) -> Usage:
    """Read a reply's token counts."""
    if not isinstance(usage, dict) or usage.get("completion_tokens") is None:
        notes.append("The server states no token usage: its replies are recorded without.")
        return Usage()
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    inside = (_count(usage.get(name), "reasoning_tokens") for name in _USAGE_DETAILS)
    reasoning = next((count for count in inside if count is not None), None)
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    cached = _count(usage, "prompt_cache_hit_tokens") if cached is None else cached
    thoughts = next(
        (count for name in _GEMINI_THOUGHTS if (count := _count(usage, name)) is not None), None
    )
    counts = Usage.from_reply(
        prompt, output, reasoning, cached, total=_count(usage, "total_tokens"), thoughts=thoughts
    )
    if counts.added:
        notes.append(
            "The server counts reasoning tokens beside the completion's; they are recorded as part"
            " of the output."
        )
    return counts


def _doubt(
    stated: object,
    usage: Usage,
    choices: Sequence[RecordLike],
    texts: Sequence[_Texts],
    max_tokens: int | None,
) -> str | None:
    """Return why a reply's token counts cannot be; `None` if they can, or if it states none.

    A token has at least one byte of text, but for marks that no text shows, such as the end of a
    turn.
    """
    for name in ("completion_tokens", "prompt_tokens"):
        value = inside(stated, name)
        if value is not None and _count(stated, name) is None:
            return f"{name} is no count"
    if usage.problem is not None:
        return usage.problem
    if usage.output is None:
        return None
    sizes = [len(text.answer.encode()) + len((text.reasoning or "").encode()) for text in texts]
    visible = usage.output - (usage.reasoning or 0)
    if usage.prompt == 0:
        return "0 tokens for a prompt"
    if usage.output < sum(map(bool, sizes)):
        return "fewer tokens than texts"
    if max_tokens is not None and visible > len(texts) * (max_tokens + 1):
        return "more tokens than the limit allows"
    # Where nothing is seen, nothing is known: calls of tools, what a filter withheld, a limit
    # reached while thinking; and of thoughts that are not counted apart, a summary may be all.
    summarised = usage.reasoning is None and any(text.reasoning for text in texts)
    if (
        all(sizes)
        and not summarised
        and visible > sum(sizes) + len(texts) * _MARKS
        and not any(c["message"].get("tool_calls") for c in choices)
    ):
        return "more tokens than the text has bytes"
    return None


def _count(counts: object, name: str) -> int | None:
    value = inside(counts, name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if _is_count(value) else None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS


def _shares(
    usage: Usage, texts: Sequence[_Texts], logprobs: Sequence[_Logprobs], notes: list[str]
) -> tuple[list[int | None], list[int | None], bool]:
    """Return the output and reasoning tokens of each choice, and whether they are shares of the
    server's total.
    """
    if len(texts) == 1 or usage.output is None:
        return [usage.output] * len(texts), [usage.reasoning] * len(texts), False
    answers = [len(text.answer.encode()) for text in texts]
    thoughts = [len((text.reasoning or "").encode()) for text in texts]
    hidden = min(usage.reasoning or 0, usage.output)
    # Nothing is known of the hidden thoughts of each choice, and its visible text says nothing
    # about them.
    reasoning = _split(hidden, thoughts)
    counted = [len(values.sampled) for values in logprobs if values.sampled is not None]
    is_exact = len(counted) == len(texts) and sum(counted) == usage.output
    if is_exact:
        output = counted
    elif usage.reasoning is None:
        output = _split(usage.output, [*map(add, answers, thoughts)])
    else:
        output = [*map(add, _split(usage.output - hidden, answers), reasoning)]
    if not is_exact:
        notes.append(_SPLIT + (_SPLIT_EVENLY if hidden and not any(thoughts) else ""))
    unknown: list[int | None] = [None] * len(texts)
    return [*output], unknown if usage.reasoning is None else [*reasoning], not is_exact


def _split(total: int, weights: Sequence[int]) -> list[int]:
    """Split a total by weights into integers that add up to it: largest remainders, the first of
    equal ones.
    """
    weights = weights if any(weights) else [1] * len(weights)
    whole, rest = zip(*(divmod(total * weight, sum(weights)) for weight in weights), strict=True)
    most = sorted(range(len(weights)), key=lambda number: -rest[number])[: total - sum(whole)]
    return [share + (number in most) for number, share in enumerate(whole)]
