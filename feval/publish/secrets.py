"""Keys and other secrets: which are known, what they look like, where they may not be, and what
masks them.

A known secret is the value of an environment variable that a command names, or that is named like
one (`OPENAI_API_KEY`, `HF_TOKEN`), if it has at least 16 characters and is no path. What would be
stored with one in it is refused where a user gives it, and masked where a server sends it.
`feval.publish.scan` searches finished recordings by the same list.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from feval.errors import UsageError

MASK = "[key]"

_SHORTEST = 16  # of what is looked for in texts: anything shorter may be a word
_SECRET_VARIABLE = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)$")
_PLAIN_VARIABLE = re.compile(r"(?=.*_|.{1,15}$|\D*$)[A-Z][A-Z0-9_]{0,79}")
LIKE_A_KEY = re.compile(
    r"(sk|pk|rk|hf|gsk|xai|gh[pous]|glpat|r8|nvapi|pplx|csk)[-_].*|github_pat_.*|(AIza|eyJ|AKIA|ya29).*",
    re.DOTALL,
)
"""The beginnings of keys, for names that a user chooses."""
_KEY_FIELD = re.compile(
    r"(x[-_])?api[-_]?key([-_]?string)?|((access|api|auth|authorization|bearer)[-_]?)?token"
    r"|(proxy[-_])?authorization|(client[-_]?)?secret([-_]?key)?|auth|password",
    re.IGNORECASE,
)
_USER_IN_URL = re.compile(r"(?<=://)[^\s/@\"']+(?=@)")
_KEY_IN_URL = re.compile(rf"(?<=[?&])((?:{_KEY_FIELD.pattern}|key)=)[^&\s\"')]+", re.IGNORECASE)


class Rule(NamedTuple):
    """What to look for. With `digits`, a digit and a letter must follow the first `keep` bytes,
    which are public, as in keys.

    A `strict` rule does not apply to the words of LLMs and questions; a match has one of the
    `beginnings`.
    """

    kind: str
    what: str
    pattern: re.Pattern[bytes]
    digits: bool = False
    keep: int = 0
    strict: bool = False
    beginnings: tuple[bytes, ...] = (b"",)

    def hits(self, text: bytes) -> Iterator[re.Match[bytes]]:
        """Yield the matches in a text; one without any of the beginnings is not searched, which
        saves most of the time.
        """
        return (
            self.pattern.finditer(text)
            if any(each in text for each in self.beginnings)
            else iter(())
        )

    def counts(self, text: bytes) -> bool:
        """Whether a match is one: keys have digits and letters."""
        rest = text[self.keep :]
        return not self.digits or bool(re.search(rb"[0-9]", rest) and re.search(rb"[A-Za-z]", rest))

    def masked(self, hit: re.Match[bytes]) -> bytes:
        """Return the beginning of a match and a mask, or what is none as it is."""
        text = hit.group()
        return text[: self.keep] + MASK.encode() if self.counts(text) else text


def _key(what: str, prefix: str, rest: str) -> Rule:
    text = re.escape(prefix) + rest
    pattern = re.compile(rf"(?<![A-Za-z0-9_-])(?:{text}|{text.upper()})".encode())
    beginnings = prefix.encode(), prefix.upper().encode()
    return Rule("secret", what, pattern, digits=True, keep=len(prefix), beginnings=beginnings)


_SHORT, _LONG = "[A-Za-z0-9_-]{20,}", "[A-Za-z0-9]{30,}"
KEYS = {
    "sk-": ("an API key in the form of OpenAI, Anthropic, DeepSeek or OpenRouter", _SHORT),
    "hf_": ("a Hugging Face token", _LONG),
    "api_org_": ("a Hugging Face organisation token", _LONG),
    "AIza": ("a Google API key", "[A-Za-z0-9_-]{35}"),
    "ya29.": ("a Google OAuth token", _SHORT),
    "AKIA": ("an AWS access key", "[0-9A-Z]{16}"),
    "ASIA": ("an AWS session key", "[0-9A-Z]{16}"),
    **{f"gh{letter}_": ("a GitHub token", _LONG) for letter in "pousr"},
    "github_pat_": ("a GitHub token", "[A-Za-z0-9_]{30,}"),
    "glpat-": ("a GitLab token", _SHORT),
    **{f"xox{letter}-": ("a Slack token", "[A-Za-z0-9-]{10,}") for letter in "abprs"},
    "gsk_": ("a Groq API key", _LONG),
    "xai-": ("an xAI API key", _LONG),
    "r8_": ("a Replicate token", _LONG),
    "pplx-": ("a Perplexity API key", _LONG),
    "nvapi-": ("an NVIDIA API key", _SHORT),
    "fw_": ("a Fireworks API key", "[A-Za-z0-9]{20,}"),
    "tgp_v1_": ("a Together API key", _SHORT),
    "csk-": ("a Cerebras API key", _LONG),
    "dapi": ("a Databricks token", "[0-9a-f]{32}"),
    "npm_": ("an npm token", "[A-Za-z0-9]{36}"),
    "pypi-": ("a PyPI token", "AgE[A-Za-z0-9_-]{40,}"),
    "sk_live_": ("a Stripe key", "[A-Za-z0-9]{20,}"),
    "eyJ": ("a JSON web token", r"[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
}
"""Public prefix of a key -> whose it is, and how it continues."""
_NAMED = rb"(?:api[_-]?key|access[_-]?token|secret[_-]?key)\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?"


@cache
def key_rules() -> tuple[Rule, ...]:
    """Return what secrets look like, whoever they belong to."""
    return (
        *(_key(what, prefix, rest) for prefix, (what, rest) in KEYS.items()),
        *(
            Rule("secret", what, re.compile(pattern), digits=digits, keep=keep)
            for what, digits, keep, pattern in (
                ("a bearer token", True, 6, rb"(?i:bearer)[ \t]+[A-Za-z0-9._~+/-]{20,}=*"),
                ("a private key", False, 11, rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY"),
                (
                    "an address with a password",
                    False,
                    3,
                    rb"://[^\s/:@\"']{1,64}:[^\s/@\"']{4,64}@",
                ),
                ("an API key", True, 7, rb"(?i)" + _NAMED + rb"[a-z0-9_.~+/-]{24,}"),
            )
        ),
    )


def known_secrets(variable: str | None = None) -> dict[str, str]:
    """Return the known secrets by environment variable: those named like one, and the one in
    `variable`.
    """
    values = ((name, value.strip()) for name, value in os.environ.items())
    return {
        name: value
        for name, value in values
        if (name == variable or _SECRET_VARIABLE.search(name))
        and len(value) >= _SHORTEST
        and value.isprintable()
        and not os.path.exists(value)  # noqa: PTH110  False where Path.exists raises: a name too long
    }


def forms(secret: str) -> Iterator[str]:
    """Yield the ways somebody may write a secret: plain, in a URL, base64, JSON, hex, in one case,
    backwards.
    """
    yield secret
    yield from (secret.upper(), secret.lower(), secret[::-1])
    yield quote(secret, safe="")
    yield from (base64.b64encode(secret.encode()).decode(), *in_base64(secret))
    yield secret.replace("/", "\\/")
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (secret.encode().hex(), secret.encode().hex().upper())


def in_base64(text: str) -> Iterator[str]:
    """Yield what the base64 of a text that holds this one has of it, wherever it stands there, in
    both alphabets.
    """
    data = text.encode()
    for skip in range(3):
        code = base64.b64encode(bytes(skip) + data).decode()[
            (4 * skip + 2) // 3 : 4 * (skip + len(data)) // 3
        ]
        yield from (code, code.replace("+", "-").replace("/", "_"))


class Mask:
    """Replaces secrets of at least 16 characters, in any of their forms, by `[key]`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        long = {form for secret in secrets if len(secret) >= _SHORTEST for form in forms(secret)}
        self._forms = sorted(long, key=len, reverse=True)
        self._bytes = [form.encode() for form in self._forms]

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value whose texts, names of fields included, are without the secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(name): self.value(item) for name, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list | tuple) else value

    def is_in(self, data: bytes) -> bool:
        """Whether JSON holds a secret."""
        return any(form in data for form in self._bytes)


def shown(text: str) -> str:
    """Return a message as it may be printed: without known secrets, credentials in URLs, and what
    looks like a key.
    """
    text = Mask(known_secrets().values()).text(text)
    text = _KEY_IN_URL.sub(rf"\1{MASK}", _USER_IN_URL.sub(MASK, text))
    data = text.encode(errors="surrogatepass")
    for rule in key_rules():
        data = rule.pattern.sub(rule.masked, data)
    return data.decode(errors="surrogatepass")


def check_variable(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of the variable with the key; `UsageError`, which does not show it, if it may
    be the key itself.
    """
    if name not in environment and (
        LIKE_A_KEY.fullmatch(name) or not _PLAIN_VARIABLE.fullmatch(name)
    ):
        raise UsageError(
            f"--api-key-env wants the name of an environment variable; the {len(name)} characters"
            " that were given, not shown here, are none that is set, and may be a key. Put the key"
            " into a variable such as OPENAI_API_KEY, and give its name."
        )
    return name


def open_private(path: Path, flags: int = 0) -> int:
    """Open a file, or make it, to read and write; from now on only its owner may."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    make_private(path)
    return descriptor


def make_private(path: Path) -> None:
    """Let only the owner of a file read and write it."""
    with suppress(PermissionError):  # it is somebody else's, who let us write
        path.chmod(0o600)


def refuse_secrets(stored: Mapping[str, object], secrets: Mapping[str, str]) -> None:
    """Raise a `UsageError` if what would be stored, by what it is called, holds a secret, by the
    variable it is in.
    """
    wanted = [(variable, [*dict.fromkeys(forms(secret))]) for variable, secret in secrets.items()]
    for place, value in stored.items() if wanted else ():
        texts = (
            text
            for name, _, item in _entries(value)
            for text in (name, item)
            if isinstance(text, str)
        )
        for text in texts:
            for variable, written in wanted:
                if any(form in text for form in written) or written[0] in unquote(text):
                    raise UsageError(
                        f"The value of the environment variable {variable} is in {place}, which is"
                        " stored. Leave it out there: a key is sent if --api-key-env names its"
                        " variable, and never stored."
                    )


def refuse_key_fields(value: object, allowed: Collection[str], advice: str) -> None:
    """Raise a `UsageError` if a JSON value has, at any depth, a field that is named like a key and
    not `allowed`.
    """
    for name, parent, item in _entries(value):
        # A JSON schema, as of a tool, describes the field and does not hold a key.
        is_described = parent == "properties" and isinstance(item, Mapping)
        is_key = _KEY_FIELD.fullmatch(name) and name not in allowed and item not in (None, "")
        if is_key and not is_described:
            raise UsageError(
                f"The request has a field {name!r}, which would be stored and may hold a key. Leave"
                f" it out; if it holds none, {advice.format(name)}."
            )


def _entries(value: object, name: str = "", parent: str = "") -> Iterator[tuple[str, str, object]]:
    """Yield a JSON value and all that is in it, each with its field and the field that is in."""
    yield name, parent, value
    if isinstance(value, Mapping):
        for field, item in value.items():
            yield from _entries(item, str(field), name)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _entries(item, "", parent)
