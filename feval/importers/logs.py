"""What logs of evaluation harnesses share: chat requests, decoding, golds, options. Other shapes
raise a `SourceError`.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from feval.importers.columns import member, refuse, scalar_text
from feval.importers.source import Prompt, Row, chat


def inside(value: Any, *path: str) -> Any:
    """Return a nested member of an object; `None` where there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def chat_prompt(messages: Iterable[Any], where: str) -> Prompt:
    """Return a request of several messages, each with a role and a content."""
    here = f"a message of {where}"
    return chat(
        {
            "role": member(message, "role", str, here),
            "content": text_of(message.get("content"), here),
        }
        for message in messages
    )


def text_of(content: object, where: str) -> str:
    """Return the text of a message: its content, or the texts among its parts, with other parts as
    "[image]".

    Reasoning parts are left out: they are not what was said; `reasoning_of` gives them.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        refuse(f"The content of {where}", "text or a list of parts", content)
    here = f"a part of {where}"
    kinds = [(part, member(part, "type", str, here)) for part in content]
    return "\n".join(
        member(part, "text", str, here) if kind == "text" else f"[{kind}]"
        for part, kind in kinds
        if kind != "reasoning"
    )


def reasoning_of(message: Row) -> str | None:
    """Return the reasoning of a message: its reasoning parts (a redacted one has at most a
    summary), or its field `reasoning`.
    """
    content = message.get("content")
    shown = [
        (not part.get("redacted") and part.get("reasoning")) or part.get("summary")
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, dict) and part.get("type") == "reasoning"
    ]
    texts = (*shown, message.get("reasoning"))
    return "\n".join(text for text in texts if isinstance(text, str) and text) or None


def gold_of(value: object, where: str, noted: Counter[str]) -> str | None:
    """Return the gold answer, the first of those accepted; count where there are others."""
    values = value if isinstance(value, list) else [value]
    golds = [scalar_text(each, f"The gold answer of {where}") for each in values]
    several = "Questions with several accepted answers, whose first is the gold answer"
    noted[several] += len(set(golds)) > 1
    return golds[0] if golds else None


def labelled(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return options with the labels A to Z; none where there are more, or where the texts are the
    labels.
    """
    labels = string.ascii_uppercase[: len(texts)]
    if len(labels) != len(texts) or [text.strip().strip("().") for text in texts] == list(labels):
        return ()
    return tuple(zip(labels, texts, strict=True))


def decoding(values: Row, limits: Sequence[str], names: Iterable[str]) -> Row:
    """Return temperature, limit (under one of several names) and other named parameters of the
    decoding that are set: numbers, texts, true or false, and short lists of texts.
    """
    return {
        "temperature": values.get("temperature"),
        "max_tokens": next((values[name] for name in limits if name in values), None),
        "decoding": {
            name: value
            for name in names
            if isinstance(value := values.get(name), str | int | float | bool)
            or (isinstance(value, list) and 0 < len(value) <= 64 and are_texts(value))
        },
    }


def are_texts(values: Any) -> TypeGuard[list[str]]:
    """Return whether a value is a list of texts, at least one."""
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(value, str) for value in values)
    )


def extracted(pairs: Iterable[tuple[str | None, str | None]]) -> bool:
    """Return whether stored answers were extracted: not where each is its whole text, whatever its
    case.
    """
    return any(
        answer is not None and answer.strip().casefold() != (text or "").strip().casefold()
        for answer, text in pairs
    )
