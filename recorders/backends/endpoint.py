"""URL and credentials of an OpenAI-compatible server: the one place that holds a key, and what
keeps it out of sight.

Servers repeat keys in error texts ("Incorrect API key provided: sk-..."), debugging proxies in
headers and replies. So everything a server says is redacted here before anyone sees it, and so are
the HTTP libraries' log records.
"""

from __future__ import annotations

import base64
import logging
import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from feval.errors import UsageError
from feval.publish.secrets import MASK, Mask, check_variable, forms, known_secrets
from feval.serving.loopback import is_loopback

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
    """

    __slots__ = ("_basic", "_key", "_redaction", "host", "url")

    def __init__(self, base_url: str, key: str | None = None) -> None:
        parts = _split(base_url)
        self.host = parts.netloc.rpartition("@")[2]
        self.url = f"{parts.scheme}://{self.host}{parts.path.rstrip('/')}"
        self._key = _checked(key)
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        pair = f"{user}:{password}"
        self._basic = base64.b64encode(pair.encode()).decode() if user or password else None
        secrets = (
            self._key,
            self._basic,
            password,
            user if not password else None,
            pair if self._basic else None,
        )
        self._redaction = Redaction(*(secret for secret in secrets if secret))

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
                " is not set. Set it, name another variable with --api-key-env, or another server"
                " with --base-url."
            )
        return endpoint

    @property
    def client_key(self) -> str:
        """The key for the client; a placeholder if there is none."""
        return self._key or _PLACEHOLDER

    @property
    def has_key(self) -> bool:
        """Whether there is a key."""
        return self._key is not None

    @property
    def headers(self) -> dict[str, str]:
        """Headers to send instead of the key."""
        return {} if self._basic is None else {"Authorization": f"Basic {self._basic}"}

    @property
    def redaction(self) -> Redaction:
        """Removes the credentials from texts."""
        return self._redaction

    @property
    def warning(self) -> str | None:
        """A sentence if what is sent can be read in transit; `None` otherwise."""
        parts = urlsplit(self.url)
        if parts.scheme == "https" or is_loopback(parts.hostname or ""):
            return None
        what = (
            "Questions, replies and the credentials"
            if self._key or self._basic
            else "Questions and replies"
        )
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
        printable = "".join(
            character if character.isprintable() else "\ufffd" for character in line
        )
        return (
            printable if len(printable) <= _LONGEST_REASON else f"{printable[:_LONGEST_REASON]}..."
        )

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
        raise UsageError(f"The base URL {_harmless(base_url)!r} names no server. {advice}")
    if parts.query or parts.fragment:
        raise UsageError(
            f"The base URL of {parts.hostname} has a query or a fragment (what follows ? or #),"
            f" which would not be sent and may hold a key. {advice} Keys come from an environment"
            " variable."
        )
    return parts


def _harmless(url: str) -> str:
    """Return an unusable URL without what may be secret in it."""
    return re.split(r"[?#]", url.rpartition("@")[2])[0][:80]


def _checked(key: str | None) -> str | None:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(
            "The API key holds a blank, a line break or a character outside ASCII, which no HTTP"
            " header can carry. Check the environment variable it comes from; the key is not shown"
            " here."
        )
    return key or None
