r"""Dates: "05/01/2021", "5/1/2021", "May 1, 2021", "1st of May 2021", "2021-05-01" are one answer.

Which date of a CoT is its answer (the first rule that finds one): the last one in the answer that
the CoT sets apart, in a JSON object or the last `\boxed{...}`; after the last answer phrase
(`feval.answers.markers`) the first date of a sentence ("the answer is ..."), or the date right
behind a label ("A:", "Answer:"), or the last one of the CoT's last line; the last date of the text,
unless an answer phrase without a date closes it. Behind a phrase, "not May 1, 2021 but May 2, 2021"
is May 2.

The key is MM/DD/YYYY, zero-padded. Numeric dates are read month first, as the questions ask; year
first (ISO) is recognised by the four digits in front. What looks like a date but is none
(02/30/2021), is day first (25/12/2021), or has a year of two digits (4/21/21: 1921 or 2021?) is
extracted, so that the raw answer can be seen, but has no key: it is not the answer asked for.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata

from feval.answers import markers
from feval.answers.markers import Match, Segment

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:r?uary|urary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_ORDINAL = r"\s?(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"""
    (?<![\d/]) (?: (?P<m>\d\d?) \s? (?P<sep>[/-]) \s? (?P<d>\d\d?) \s? (?P=sep) \s? (?P<y>\d{{4}}|\d\d) (?!\d|/\d) )
  | (?<![\d/]) (?: (?P<iso_y>\d{{4}}) (?P<iso_sep>[/-]) (?P<iso_m>\d\d?) (?P=iso_sep) (?P<iso_d>\d\d?) (?!\d) )
  | (?<![a-z]) (?P<name>{_MONTH}) \.? \s{{1,3}} (?P<name_d>\d\d?) {_ORDINAL}
        \s{{0,2}} ,? \s{{0,2}} (?:of\s)? (?<!\d) (?P<name_y>\d{{4}}) (?!\d)
  | (?<!\d) (?P<day>\d\d?) {_ORDINAL} \s? (?:of\s)? (?:day\sof\s)? (?P<day_name>{_MONTH}) \.? \s{{0,2}} ,? \s{{0,2}} (?:of\s)?
        (?P<day_y>\d{{4}}) (?!\d)
    """,  # noqa: E501  a pattern is read as one line
    re.IGNORECASE | re.VERBOSE | re.ASCII,
)
_DIRECT = re.compile(
    r"[^a-z0-9]*+(?:(?:on|the|is|mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}[^a-z0-9]*+){0,3}",
    re.IGNORECASE,
)
_DENIED = re.compile(rf"[^a-z0-9]{{0,8}}not\s(?:on\s|the\s)?(?=\d|{_MONTH})", re.IGNORECASE)


_PART = re.compile(r"[0-9]{4}|[0-9]\s?[/-]")  # of every date
_REACH = 80
# up to the last character that no date holds
_APART = re.compile(r".*[kqwxz:;()!?\"'=*$%]", re.DOTALL)


def extract(text: str) -> str | None:
    """Return the date a CoT answers with, as it is written there; `None` where there is none."""
    match = markers.answer(
        text, lambda content: _last(_readable(content)), _of_segment, _last, _readable
    )
    return match[0] if match else None


def canonical(raw: str) -> str | None:
    """Return MM/DD/YYYY; a raw answer that does not begin with its date is read as a text."""
    plain = _readable(raw)
    match = _direct(plain) or _DATE.search(extract(plain) or "")
    return _key(match) if match else None


def _readable(text: str) -> str:
    """Undo typography and TeX as far as dates need it."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(dict.fromkeys(map(ord, "‐‑‒–−"), "-")))
    return text.replace("\\text{", " ").replace("\\,", " ").replace("{,}", ",").replace("\\/", "/")


def _of_segment(segment: Segment) -> Match | None:
    text = markers.affirmed(segment.text)
    if _DENIED.match(text):
        return None
    if segment.verb:
        return _DATE.search(text)
    return _direct(text) or (_last(text) if segment.final else None)


def _direct(text: str) -> Match | None:
    """The date a text begins with, markup and the day of the week aside."""
    match = _DATE.search(text)
    return match if match and _DIRECT.fullmatch(text, 0, match.start()) else None


def _last(text: str) -> Match | None:
    digit = max(map(text.rfind, "0123456789"))
    if digit < 0 or not _PART.search(text):
        return None
    apart = _APART.match(text, max(0, digit - _REACH), digit)
    near = markers.last_match(_DATE, text, apart.end()) if apart else None
    return near or markers.last_match(_DATE, text)


def _key(match: Match) -> str | None:
    year = match["y"] or match["iso_y"] or match["name_y"] or match["day_y"]
    name = match["name"] or match["day_name"]
    month = _MONTHS.index(name[:3].lower()) + 1 if name else int(match["m"] or match["iso_m"])
    day = int(match["d"] or match["iso_d"] or match["name_d"] or match["day"])
    if len(year) != 4:
        return None
    try:
        dt.date(int(year), month, day)
    except ValueError:  # not in the calendar
        return None
    return f"{month:02}/{day:02}/{year}"
