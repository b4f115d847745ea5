"""Map a server's error to what the recorder should do: wait, retry, give up the request, or stop.

Servers' messages go into reasons, shortened and without secrets. The client's errors are never
chained to ours: their messages quote the server word for word, and a traceback would print them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

from recorders.backends.endpoint import Endpoint
from recorders.errors import BackendError, Fatal, RateLimited, Refused, Transient

_POLICY = re.compile(
    r"content[_ ]?(?:filter|policy|management)|responsible[ _]?ai|safety"
    r" (?:system|filter|polic)|usage polic|moderation"
    r"|data_inspection_failed|prompt[_ ]blocked",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|too (?:long|many tokens|large)|maximum.{0,40}tokens",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|billing[_ ](?:hard[_ ]limit|not[_ ]active)",
    re.IGNORECASE,
)
# The same in every request: a server that rejects one of these will never answer.
_SETTINGS = {
    "model",
    "temperature",
    "top_p",
    "n",
    "seed",
    "stop",
    "logprobs",
    "top_logprobs",
    "max_completion_tokens",
}
_PASSING = {408, 409, 421, 425}
_SECONDS = re.compile(r"\s*-?[0-9]+(?:\.[0-9]*)?\s*")
_LONGEST_WAIT_S = 366 * 86_400.0  # whoever asks for more asks for as long as this


class Answer:
    """An HTTP error; its body is a JSON value, or a text if it is not JSON."""

    __slots__ = ("code", "headers", "message", "parameter", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        # OpenAI wraps errors in `error`, and its client has already unwrapped them; others give a
        # `detail`, a string, or a list of errors.
        outer = body[0] if isinstance(body, list) and body else body
        inner = outer.get("error", outer) if isinstance(outer, dict) else outer
        fields: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
        self.status = status
        self.headers = headers
        self.message = str(fields.get("message") or fields.get("detail") or inner or "")
        self.code = " ".join(str(fields[name]) for name in ("code", "type") if fields.get(name))
        self.parameter = str(fields.get("param") or "")

    @property
    def words(self) -> str:
        """Code and message."""
        return f"{self.code} {self.message}"


def of_answer(answer: Answer, endpoint: Endpoint, model: str) -> BackendError:
    """Return the recorder's error for an HTTP error."""
    message = endpoint.redaction.reason(answer.message)
    message = message if message.endswith("...") else message.rstrip(".")
    reason = f"{endpoint.host} answered {answer.status}" + (f": {message}" if message else "")
    wait = retry_after(answer.headers)
    status = answer.status
    if 300 <= status < 400:
        return Fatal(
            f"{endpoint.host} answered {status}, a redirection to {_target(answer, endpoint)},"
            " which is not followed: question and key would go there. If you trust it, give its"
            " base URL."
        )
    if status == 402 or (status in {403, 429} and _NO_MONEY.search(answer.words)):
        return Fatal(
            f"{reason}. The account has no money or quota left; fill it up, then run the same"
            " command again."
        )
    if status == 429:
        return RateLimited(wait, reason)
    if status >= 500 or status in _PASSING:
        return Transient(reason, wait)
    if status == 401:
        return Fatal(
            f"{reason}. Check the API key in the environment variable, and that it belongs to this"
            " server."
        )
    if status in {400, 403, 422} and _POLICY.search(answer.words):
        return Refused(reason, "content_filter")
    if status == 403:
        return Fatal(f"{reason}. The key may not use the model {model!r}, or not from here.")
    if status == 404:
        return Fatal(
            f"{reason}. Check the model's name ({model!r}) and the base URL ({endpoint.url}), which"
            " usually ends in /v1."
        )
    if (
        status in {400, 422}
        and answer.parameter in _SETTINGS
        and not _TOO_LONG.search(answer.words)
    ):
        return Fatal(
            f"{reason}. The server does not take the setting {answer.parameter!r} as it is; change"
            " it or leave it out."
        )
    if status in {400, 413, 422}:
        return Refused(reason)
    return Fatal(f"{reason}. Check the base URL ({endpoint.url}), which usually ends in /v1.")


def of_error_in_reply(
    reply: Mapping[str, Any], endpoint: Endpoint, model: str
) -> BackendError | None:
    """Return the error that routers send in place of choices with status 200; `None` if there is
    none.
    """
    error = reply.get("error")
    if not error or reply.get("choices"):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = (
        int(code)
        if isinstance(code, int | str) and re.fullmatch("[45][0-9][0-9]", str(code))
        else 502
    )
    return of_answer(Answer(status, {}, reply), endpoint, model)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds a server asks to wait; `None` if it does not say, or not readably.

    An HTTP date is read against the header `date`, the server's clock; `now` replaces our clock
    where there is none.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    until, sent = _date(value), _date(headers.get("date")) or now or datetime.now(UTC)
    return None if until is None else min(max(0.0, (until - sent).total_seconds()), _LONGEST_WAIT_S)


def _target(answer: Answer, endpoint: Endpoint) -> str:
    """Return scheme and host of a redirection."""
    try:
        parts = urlsplit(urljoin(endpoint.url, answer.headers.get("location", "")))
        return endpoint.redaction.reason(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    except ValueError:
        return "an address that cannot be read"


def _number(text: str | None) -> float | None:
    return (
        min(max(0.0, float(text)), _LONGEST_WAIT_S) if text and _SECONDS.fullmatch(text) else None
    )


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
