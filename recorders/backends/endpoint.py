"""URL and credentials of an OpenAI-compatible server: the one place that holds a key, and what
keeps it out of sight.

Servers repeat keys in error texts ("Incorrect API key provided: sk-..."), debugging proxies in
headers and replies. So everything a server says is redacted here before anyone sees it, and so are
the HTTP libraries' log records. The client's errors are never chained to ours: their messages quote
the server word for word, and a traceback would print them.

An error of the server becomes what the recorder should do: wait, retry, give up the request, or
stop.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from feval.errors import UsageError
from feval.publish.secrets import MASK, Mask, check_variable, forms, known_secrets
from feval.serving.loopback import is_loopback
from recorders.errors import BackendError, Fatal, RateLimited, Refused, Transient

DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_KEY_VARIABLE = "OPENAI_API_KEY"

_FRAGMENT = 8  # anything shorter is not secret: "none", "EMPTY" and "x", as keys of local servers
_LONGEST_REASON = 300
_READ_AT_MOST = 20_000  # characters of an error page
_PLACEHOLDER = "none"  # the client needs some key, and servers without keys take any
_LOGGERS = (
    "openai", "openai._base_client", "openai._response", "openai._legacy_response",
    *(
        f"{library}{version}{part}"
        for version in ("", "2")
        for library, parts in (("httpx", ("",)), ("httpcore", ("", ".connection", ".http11",
        ".http2", ".proxy", ".socks")))
        for part in parts
    ),
)  # fmt: skip


class Endpoint:
    """A base URL and the credentials for it, which `repr` and `url` (what is recorded and shown)
    leave out.

    Credentials inside the base URL are removed from it and sent as HTTP Basic authentication
    instead of the key.

    Attributes:
        url: without credentials.
        host: with its port.
        client_key: the key for the official client; a placeholder if there is none.
        headers: that carry the credentials, if there are any.
        redaction: removes the credentials from texts.
    """

    def __init__(self, base_url: str, key: str | None = None) -> None:
        parts = _split(base_url)
        self.host = parts.netloc.rpartition("@")[2]
        self.url = f"{parts.scheme}://{self.host}{parts.path.rstrip('/')}"
        if key and not (key.isascii() and key.isprintable() and " " not in key):
            raise UsageError(
                "The API key holds a blank, a line break or a character outside ASCII, which no"
                " HTTP header can carry. Check the environment variable it comes from; the key is"
                " not shown here."
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        secrets = [key] if key else []
        self.client_key = key or _PLACEHOLDER
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}
        if user or password:
            pair = f"{user}:{password}"
            basic = base64.b64encode(pair.encode()).decode()
            self.headers = {"Authorization": f"Basic {basic}"}
            secrets += [basic, password or user, pair]
        self.redaction = Redaction(*secrets)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @classmethod
    def from_environment(
        cls,
        base_url: str | None = None,
        key_variable: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Endpoint:
        """Return the endpoint and key that the official client would use.

        The variable with the key must be set if it is named; the default, OPENAI_API_KEY, only for
        OpenAI itself.
        """
        values = os.environ if environment is None else environment
        name = check_variable(key_variable or DEFAULT_KEY_VARIABLE, values)
        url = base_url or values.get("OPENAI_BASE_URL", "").strip() or DEFAULT_BASE_URL
        key = values.get(name, "").strip()
        if not key and key_variable:
            raise UsageError(
                f"The API key was to be read from the environment variable {name!r}; it is not set,"
                " or empty. Set it, or name the variable that holds the key."
            )
        endpoint = cls(url, key or None)
        if not key and endpoint.url == DEFAULT_BASE_URL:
            raise UsageError(
                f"{endpoint.url} wants an API key; the environment variable {DEFAULT_KEY_VARIABLE}"
                " is not set. Set it, name another variable with api_key_env, or another server"
                " with --base-url."
            )
        return endpoint

    def redirection(self, headers: Mapping[str, str]) -> str:
        """Return where a reply redirects to, without what may be secret in the address."""
        try:
            parts = urlsplit(urljoin(self.url, headers.get("location", "")))
        except ValueError:
            return "an address that cannot be read"
        host = parts.netloc.rpartition("@")[2]
        return self.redaction.reason(f"{parts.scheme}://{host}{parts.path}")

    @property
    def warning(self) -> str | None:
        """A sentence if what is sent can be read in transit; `None` otherwise."""
        parts = urlsplit(self.url)
        if parts.scheme == "https" or is_loopback(parts.hostname or ""):
            return None
        what = "Questions, replies and the credentials" if self.headers else "Questions and replies"
        return (
            f"{what} travel unencrypted to {self.host}: its base URL begins with http://. Use"
            " https:// if possible."
        )


class Redaction(logging.Filter):
    """Masks secrets of 8 characters or more in texts and, as a logging filter, in log records; and
    all known secrets.
    """

    def __init__(self, *secrets: str) -> None:
        super().__init__()
        long = [secret for secret in secrets if len(secret) >= _FRAGMENT]
        self._mask = Mask([*long, *known_secrets().values()])
        self._fragments = frozenset(
            form[start : start + _FRAGMENT]
            for secret in long
            for form in forms(secret)
            for start in range(len(form) - _FRAGMENT + 1)
        )

    def __bool__(self) -> bool:
        return bool(self._fragments)

    def masked(self, text: str) -> str:
        """Return the text with every piece of a secret masked that is 8 characters or longer."""
        places = [
            at
            for at in range(len(text) - _FRAGMENT + 1)
            if text[at : at + _FRAGMENT] in self._fragments
        ]
        pieces, end = [], 0
        for at in places:
            if at >= end:
                pieces += [text[end:at], MASK]
            end = at + _FRAGMENT
        return self._mask.text("".join([*pieces, text[end:]]))

    def reason(self, text: str) -> str:
        """Return a server's message as one short printable line without secrets."""
        # Masked before it is cut: half a key is a secret too.
        line = " ".join(self.masked(text[:_READ_AT_MOST]).split())
        line = "".join(each if each.isprintable() else "\ufffd" for each in line)
        return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."

    def reply(self, text: str) -> str:
        """Return a model's text with only whole secrets masked, of 16 characters or more: what
        cannot be a word.
        """
        return self._mask.text(text)

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record's message; the record is always kept."""
        message = record.getMessage()
        if (masked := self.masked(message)) != message:
            record.msg, record.args = masked, ()
        return True

    def guard_logs(self) -> None:
        """Filter the loggers of the client and of the HTTP libraries under it."""
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)

    def leave_logs(self) -> None:
        """Undo `guard_logs`."""
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def _split(base_url: str) -> SplitResult:
    advice = "Give http:// or https://, a host, and usually /v1, such as http://127.0.0.1:8000/v1."
    try:
        parts = urlsplit(base_url.strip())
        wrong = parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0
    except ValueError as error:
        # The library's message may quote the URL, and with it a password.
        raise UsageError(
            f"The base URL cannot be read as a URL ({type(error).__name__}). {advice}"
        ) from None
    if wrong:
        harmless = re.split(r"[?#]", base_url.rpartition("@")[2])[0][:80]  # no key, no password
        raise UsageError(f"The base URL {harmless!r} names no server. {advice}")
    if parts.query or parts.fragment:
        raise UsageError(
            f"The base URL of {parts.hostname} has a query or a fragment (what follows ? or #),"
            f" which would not be sent and may hold a key. {advice} Keys come from an environment"
            " variable."
        )
    return parts


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


def answer_error(answer: Answer, endpoint: Endpoint, model: str) -> BackendError:
    """Return the recorder's error for an HTTP error."""
    message = endpoint.redaction.reason(answer.message)
    message = message if message.endswith("...") else message.rstrip(".")
    reason = f"{endpoint.host} answered {answer.status}" + (f": {message}" if message else "")
    wait = retry_after(answer.headers)
    status = answer.status
    if 300 <= status < 400:
        return Fatal(
            f"{endpoint.host} answered {status}, a redirection to"
            f" {endpoint.redirection(answer.headers)},"
            " which is not followed: question and key would go there. If you trust it, give its"
            " base URL."
        )
    if status == 402 or (status in {403, 429} and _NO_MONEY.search(answer.words)):
        return Fatal(
            f"{reason}. The account has no money or quota left; fill it up, then run the same"
            " command again."
        )
    if status == 429:
        return RateLimited(reason, wait)
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


def error_in_reply(reply: Mapping[str, Any], endpoint: Endpoint, model: str) -> BackendError | None:
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
    return answer_error(Answer(status, {}, reply), endpoint, model)


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
