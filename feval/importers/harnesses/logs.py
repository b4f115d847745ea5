"""What logs of evaluation harnesses share: chat requests, decoding, golds, options. Other shapes
raise a `SourceError`.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from feval.importers.shapes import LARGEST, gold_text, member, refuse, whole
from feval.importers.source import Prompt, SourcePool

SEVERAL_GOLDS = "Questions with several accepted answers, whose first is the gold answer"
"""A note, with their number."""
_SCALARS = (str, int, float, bool)


def chat_prompt(messages: list[Any], where: str) -> Prompt:
    """Return a request of several messages, each with a role and a content."""
    plain = [
        {
            "role": member(message, "role", str, f"a message of {where}"),
            "content": text_of(message.get("content"), f"a message of {where}"),
        }
        for message in messages
    ]
    return Prompt(orjson.dumps(plain).decode(), "\n".join(message["content"] for message in plain))


def text_of(content: object, where: str) -> str:
    """Return the text of a message: its content, or the texts among its parts, with other parts as
    "[image]".

    Reasoning parts are left out: they are not what was said; `reasoning_of` gives them.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        refuse(f"The content of {where}", "text or a list of parts", content)
    kinds = [(part, member(part, "type", str, f"a part of {where}")) for part in content]
    return "\n".join(
        member(part, "text", str, f"a part of {where}") if kind == "text" else f"[{kind}]"
        for part, kind in kinds
        if kind != "reasoning"
    )


def reasoning_of(message: Mapping[str, Any]) -> str | None:
    """Return the reasoning of a message: its reasoning parts (a redacted one has at most a
    summary), or its field `reasoning`.
    """
    content = message.get("content")
    parts = (
        [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    )
    shown = [
        (
            part.get("summary")
            if part.get("redacted")
            else part.get("reasoning") or part.get("summary")
        )
        for part in parts
        if part.get("type") == "reasoning"
    ]
    return (
        "\n".join(
            text for text in (*shown, message.get("reasoning")) if isinstance(text, str) and text
        )
        or None
    )


def gold_of(value: object, where: str) -> tuple[str | None, bool]:
    """Return the gold answer, the first of a list of accepted ones, and whether there are
    others.
    """
    if isinstance(value, list):
        golds = [gold_text(item, where) for item in value]
        return (golds[0] if golds else None), len(set(golds)) > 1
    return gold_text(value, where), False


def labelled(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return options with the labels A to Z; none where there are more, or where the texts are the
    labels.
    """
    labels = string.ascii_uppercase[: len(texts)]
    if len(labels) != len(texts) or [text.strip().strip("().") for text in texts] == list(labels):
        return ()
    return tuple(zip(labels, texts, strict=True))


def decoding(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the named decoding parameters that are set: numbers, texts, true or false, and short
    lists of texts.
    """
    parameters = {name: values.get(name) for name in names}
    return {
        name: value
        for name, value in parameters.items()
        if type(value) in _SCALARS or _is_list_of_texts(value)
    }


def _is_list_of_texts(value: object) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= 64
        and all(isinstance(item, str) for item in value)
    )


def temperature_of(value: object, where: str) -> float | None:
    """Return a temperature; `None` where there is none."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST:
        refuse(f"The temperature of {where}", "a number from 0", value)
    return float(value)


def limit_of(value: object, where: str) -> int | None:
    """Return a limit on output tokens; `None` where there is none."""
    if value is None:
        return None
    limit = whole(value)
    if not limit:
        refuse(
            f"The limit on output tokens of {where}", f"a whole number from 1 to {LARGEST}", value
        )
    return limit


def extracted(pools: Iterable[tuple[Sequence[str | None], Sequence[str | None]]]) -> bool:
    """Return whether stored answers were extracted: not where each is its whole text, whatever its
    case.
    """
    pairs = [
        (answer, text)
        for answers, texts in pools
        for answer, text in zip(answers, texts, strict=True)
        if answer is not None
    ]
    return any(
        answer.strip().casefold() != (text or "").strip().casefold() for answer, text in pairs
    )


def same_texts_note(pools: Sequence[SourcePool]) -> list[str]:
    """Say where every question has one text many times: greedy decoding, or one seed sent with each
    repeat.
    """
    several = [pool for pool in pools if len(pool.texts) > 1]
    if not several or any(len(set(pool.texts)) > 1 for pool in several):
        return []
    note = (
        "On every question all samples are the same text: the decoding was greedy, or one seed was"
        " sent with each of them. They are one sample stored several times, and votes over them"
        " show nothing."
    )
    return [note]
