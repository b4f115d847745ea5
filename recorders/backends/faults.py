"""What a server's error means for the recorder: wait, try again, give up this request, or stop.

The texts of servers go into reasons, shortened and without secrets. Errors of the client are never chained to ours: their
messages hold what the server sent, word for word, and a traceback prints a chain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from recorders.backends.endpoint import Endpoint
from recorders.errors import BackendError, Fatal, RateLimited, Refused, Transient

__all__ = ["Answer", "of_answer", "of_error_in_reply", "retry_after"]

_POLICY = re.compile(
    r"content[_ ]?(?:filter|policy|management)|responsible[ _]?ai|safety (?:system|filter|polic)|usage polic|moderation"
    r"|data_inspection_failed|prompt[_ ]blocked",
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|too (?:long|many tokens|large)|maximum.{0,40}tokens", re.IGNORECASE
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|billing[_ ](?:hard[_ ]limit|not[_ ]active)", re.IGNORECASE
)
# What is the same in every request: a server that does not take one of these will never answer.
_SETTINGS = {"model", "temperature", "top_p", "n", "seed", "stop", "logprobs", "top_logprobs", "max_completion_tokens"}
_PASSING = {408, 409, 421, 425}


class Answer:
    """An HTTP answer that is an error.

    Args:
        status: its code.
        headers: in any case.
        body: the JSON value, or the text where it is none.
    """

    __slots__ = ("code", "headers", "message", "parameter", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: object) -> None:
        # OpenAI wraps errors in `error`, and its client has already unwrapped them; others give a `detail`, a
        # string, or a list of errors.
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
        """Everything it says."""
        return f"{self.code} {self.message}"


def of_answer(answer: Answer, endpoint: Endpoint, model: str) -> BackendError:
    """Return the error that an HTTP error is for the recorder.

    Args:
        answer: of the server.
        endpoint: whose server it is.
        model: that was asked for.
    """
    said = endpoint.redaction.reason(answer.message)
    said = said if said.endswith("...") else said.rstrip(".")
    told = f"{endpoint.host} answered {answer.status}" + (f": {said}" if said else "")
    status = answer.status
    if status == 402 or (status in {403, 429} and _NO_MONEY.search(answer.words)):
        return Fatal(f"{told}. The account has no money or quota left; fill it up, then run the same command again.")
    if status == 429:
        return RateLimited(retry_after(answer.headers), told)
    if status >= 500 or status in _PASSING:
        return Transient(told, retry_after(answer.headers))
    if status == 401:
        return Fatal(f"{told}. Check the API key in the environment variable, and that it belongs to this server.")
    if status in {400, 403, 422} and _POLICY.search(answer.words):
        return Refused(told, "content_filter")
    if status == 403:
        return Fatal(f"{told}. The key may not use the model {model!r}, or not from here.")
    if status == 404:
        return Fatal(
            f"{told}. Check the model's name ({model!r}) and the base URL ({endpoint.url}), which usually ends in /v1."
        )
    if status in {400, 422} and answer.parameter in _SETTINGS and not _TOO_LONG.search(answer.words):
        return Fatal(
            f"{told}. The server does not take the setting {answer.parameter!r} as it is; change it or leave it out."
        )
    if status in {400, 413, 422}:
        return Refused(told)
    return Fatal(f"{told}. Check the base URL ({endpoint.url}), which usually ends in /v1.")


def of_error_in_reply(reply: Mapping[str, Any], endpoint: Endpoint, model: str) -> BackendError | None:
    """Return the error that stands in the place of choices in a reply with status 200, as routers in front of servers send it.

    Args:
        reply: the JSON object.
        endpoint: whose server it is.
        model: that was asked for.
    """
    error = reply.get("error")
    if not error or reply.get("choices"):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = int(code) if isinstance(code, int | str) and re.fullmatch("[45][0-9][0-9]", str(code)) else 502
    return of_answer(Answer(status, {}, reply), endpoint, model)


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return how many seconds a server asks us to wait; `None`: it does not say, or not so that it can be read.

    Args:
        headers: `retry-after-ms`, or `retry-after` in seconds or as an HTTP date, which is read against the header `date`: the
            server's clock, not ours.
        now: instead of our clock, where there is no `date`.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    until, sent = _date(value), _date(headers.get("date")) or now or datetime.now(UTC)
    return None if until is None else max(0.0, (until - sent).total_seconds())


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _date(text: str | None) -> datetime | None:
    try:
        date = parsedate_to_datetime(text or "")
    except (ValueError, TypeError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
